//! The transport to Redis through Webdis: a command is the body of a POST, a reply is JSON.
//!
//! POST, because a GET would put keys into Webdis's log. Webdis cuts a suffix such as `.json` off the last argument and
//! reads `+` as a space, so every byte outside `A-Z a-z 0-9 _ -` is percent-encoded. An error of Redis comes with
//! status 200 and `{"EVALSHA":[false,"ERR ..."]}`.
//!
//! Webdis 0.1.9 may write a reply to a connection that it is not for: one whose socket has the number that the socket of
//! a client had that has gone. So a call carries a number of its own, the script repeats it, and nothing else makes a
//! reply this call's. An error of Redis carries none: it is believed as far as it says that there is no verdict.

use super::key;
use crate::algorithm::{Acquire, Acquired, Script};
use crate::bucket::BucketId;
use crate::limiter::{Attempt, Capabilities, Failure, HttpCall, HttpEnd, Reply, Transport};
use crate::percent::escape_into;
use crate::policy::{Policy, Tree};

/// The longest reply in bytes that can be a verdict: see [`MAX_RUNS`].
pub const MAX_REPLY: usize = 4096;

/// The most runs in one call. Each is answered by an integer of at most 16 digits.
pub const MAX_RUNS: usize = 128;

/// How the script is named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By its SHA-1, which is all that Redis needs after the first time.
    Sha,
    /// By its whole text, which also makes Redis remember it.
    Text,
}

/// Redis through Webdis.
#[derive(Clone, Copy, Debug)]
pub struct Webdis;

impl Transport for Webdis {
    fn can(&self) -> Capabilities {
        Capabilities { lends: true, groups: true, settles: true }
    }

    fn max_reply(&self) -> usize {
        MAX_REPLY
    }

    fn max_runs(&self) -> usize {
        MAX_RUNS
    }

    fn name_of(&self, policy: &Policy, bucket: &BucketId) -> String {
        key(policy, bucket)
    }

    fn encode(&self, policy: &Policy, bucket: &BucketId, asked: &Acquire, attempt: Attempt) -> HttpCall {
        encode(asked.limit.script(), By::from(attempt), &key(policy, bucket), asked)
    }

    fn decode(&self, end: HttpEnd, asked: &Acquire, attempt: Attempt) -> Reply {
        decode(end, By::from(attempt), asked)
    }
}

impl From<By> for Attempt {
    fn from(by: By) -> Attempt {
        match by {
            By::Sha => Attempt::FIRST,
            By::Text => Attempt::SECOND,
        }
    }
}

impl From<Attempt> for By {
    fn from(attempt: Attempt) -> By {
        if attempt == Attempt::FIRST { By::Sha } else { By::Text }
    }
}

/// Encodes `acquire` at one bucket.
pub fn encode(script: &Script, by: By, key: &str, asked: &Acquire) -> HttpCall {
    let mut body = String::new();
    body.push_str(command(by));
    let mut part = |bytes: &[u8]| {
        body.push('/');
        escape_into(&mut body, bytes);
    };
    match by {
        By::Sha => part(script.sha.as_bytes()),
        By::Text => part(script.text().as_bytes()),
    }
    part(b"1");
    part(key.as_bytes());
    asked.arguments(key).for_each(|number| part(number.to_string().as_bytes()));
    HttpCall { path: "/", content_type: "application/x-www-form-urlencoded", body }
}

/// Reads how the call ended.
pub fn decode(end: HttpEnd, by: By, asked: &Acquire) -> Reply {
    let body = match end {
        HttpEnd::Answer { status: 200, body } if body.len() <= MAX_REPLY => body,
        HttpEnd::Answer { status: 200, .. } | HttpEnd::Oversized => return Reply::Failure(Failure::Oversized),
        HttpEnd::Answer { .. } => return Reply::Failure(Failure::Status),
        HttpEnd::NoAnswer => return Reply::Failure(Failure::Reset),
        HttpEnd::NotStarted(failure) => return Reply::Failure(failure),
    };
    let Some((name, reply)) = reply_of(body) else {
        return Reply::Failure(Failure::Unreadable);
    };
    match reply.as_slice() {
        [Tree::Bool(false), Tree::Text(_)] if name != command(by) => Reply::Failure(Failure::Misdelivered),
        // It does not know the script, or so somebody was told: with the text it has to know it.
        [Tree::Bool(false), Tree::Text(error)] if by == By::Sha && error.starts_with("NOSCRIPT") => {
            Reply::Again(By::Text.into())
        }
        [Tree::Bool(false), Tree::Text(_)] => Reply::Failure(Failure::Redis),
        [number, rest @ ..] => match (number.integer(), rest) {
            (Some(number), _) if u64::try_from(number) != Ok(asked.number) => Reply::Failure(Failure::Misdelivered),
            (Some(_), [Tree::Text(error)]) if error.starts_with("WEIR ") => Reply::Failure(Failure::BadKey),
            (Some(_), numbers) if name == command(by) => verdict(numbers, asked),
            _ => Reply::Failure(Failure::Unreadable),
        },
        [] => Reply::Failure(Failure::Unreadable),
    }
}

/// What the numbers after a call's own say.
fn verdict(numbers: &[Tree], asked: &Acquire) -> Reply {
    let numbers: Option<Vec<i64>> = numbers.iter().map(Tree::integer).collect();
    match numbers.map(|numbers| Acquired::from_reply(&numbers, asked)) {
        Some(Ok(acquired)) => Reply::Acquired(acquired),
        Some(Err(_)) | None => Reply::Failure(Failure::Unreadable),
    }
}

fn command(by: By) -> &'static str {
    match by {
        By::Sha => "EVALSHA",
        By::Text => "EVAL",
    }
}

/// The command and the list in `{"EVALSHA":[...]}`. A reply to the other way to call the script is another call's.
fn reply_of(body: &[u8]) -> Option<(String, Vec<Tree>)> {
    let Tree::Map(object) = Tree::from_json(body).ok()? else {
        return None;
    };
    match <[_; 1]>::try_from(object) {
        Ok([(name, Tree::List(list))]) if name == "EVALSHA" || name == "EVAL" => Some((name, list)),
        _ => None,
    }
}
