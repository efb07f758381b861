//! The transport to Redis through `weir bridge`, and what the two say to each other: lines of ASCII, read alike by both.
//!
//! A call is the body of a POST: the version and how many milliseconds the work may take, then a line for each part, which
//! is one run of a script at one key. A number names the part, whatever it is; the reply repeats it.
//!
//! ```text
//! weir 1 900
//! 4242 t3/ae1d2c722fd39f24717f0fd93adc9142df96b22c rl:{user.acme}:per-key:default:60000:t3 60 60000 60 ...
//! ```
//!
//! The reply has the parts in the order of the call: `ok` and the script's integers, or `no` and the name of a
//! [`Failure`]. Where the whole call failed, which its status says as well, there is one line with `*` for a number.
//!
//! ```text
//! weir 1
//! 4242 ok 4242 3540000 1000 0 0 0 0 0 1
//! ```
//!
//! Every line ends with a newline, words are parted by one space, numbers have no sign (but a minus) and no zeros in front.
//! So each call and each reply has one spelling, and anything else is none. Both are bounded by the constants below.

use std::str::from_utf8;

use super::key;
use crate::algorithm::{Acquire, Acquired, SCRIPTS, Script};
use crate::bucket::BucketId;
use crate::clock::Ms;
use crate::limiter::{Attempt, Capabilities, Failure, HttpCall, HttpEnd, Reply, Transport};
use crate::policy::Policy;

/// Where calls are sent.
pub const PATH: &str = "/v1/run";

/// The longest call in bytes.
pub const MAX_CALL: usize = 64 * 1024;

/// The most parts of a call.
pub const MAX_PARTS: usize = 64;

/// The longest key in bytes: more than twice what a policy can make.
pub const MAX_KEY: usize = 1024;

/// The most arguments of a part: the 12 that every script takes, and two for each of [`MAX_RUNS`].
pub const MAX_ARGUMENTS: usize = 12 + 2 * MAX_RUNS;

/// The longest time that a call may ask for: ten times the longest `timeout`.
pub const MAX_DEADLINE: Ms = Ms(600_000);

/// The longest reply to a call of one part, in bytes, that can be a verdict: see [`MAX_RUNS`].
pub const MAX_REPLY: usize = 4096;

/// The most runs in one part. Each is answered by an integer of at most 16 digits.
pub const MAX_RUNS: usize = 128;

const VERSION: &str = "weir 1";

/// Redis through `weir bridge`.
#[derive(Clone, Copy, Debug)]
pub struct Bridge;

impl Transport for Bridge {
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

    fn encode(&self, policy: &Policy, bucket: &BucketId, asked: &Acquire, _attempt: Attempt) -> HttpCall {
        // A tenth is for the way: the bridge's word that Redis is late comes before the host gives up.
        let call = policy.limiters.get(bucket.limiter).call_timeout().0;
        let mut body = begin(Ms(call.saturating_sub(call.div_ceil(10))));
        add_part(&mut body, asked.limit.script(), &key(policy, bucket), asked);
        HttpCall { path: PATH, content_type: "text/plain", body }
    }

    fn decode(&self, end: HttpEnd, asked: &Acquire, _attempt: Attempt) -> Reply {
        match decode(end, asked) {
            Ok(acquired) => Reply::Acquired(acquired),
            Err(failure) => Reply::Failure(failure),
        }
    }
}

/// A call whose parts are still to be added.
pub fn begin(deadline: Ms) -> String {
    let mut call = VERSION.to_owned();
    add_number(&mut call, deadline.0);
    call.push('\n');
    call
}

/// Adds `acquire` at one bucket.
pub fn add_part(call: &mut String, script: &Script, key: &str, asked: &Acquire) {
    call.push_str(itoa::Buffer::new().format(asked.number));
    for word in [" ", script.format, "/", script.sha, " ", key] {
        call.push_str(word);
    }
    asked.arguments(key).for_each(|number| add_number(call, number));
    call.push('\n');
}

#[inline(never)]
fn add_number(to: &mut String, number: impl itoa::Integer) {
    to.push(' ');
    to.push_str(itoa::Buffer::new().format(number));
}

/// Reads how a call of one part ended.
///
/// # Errors
/// Why there is no verdict.
pub fn decode(end: HttpEnd, asked: &Acquire) -> Result<Acquired, Failure> {
    let (status, body) = match end {
        HttpEnd::Answer { status, body } if body.len() <= MAX_REPLY => (status, body),
        HttpEnd::Answer { .. } | HttpEnd::Oversized => return Err(Failure::Oversized),
        HttpEnd::NoAnswer => return Err(Failure::Reset),
        HttpEnd::NotStarted(failure) => return Err(failure),
    };
    // A list of one would be 3 kB of module.
    let line = from_utf8(body).ok().and_then(|body| body.strip_prefix(VERSION)?.strip_prefix('\n')?.strip_suffix('\n'));
    match line.and_then(answer) {
        Some(Answer { number: None, result: Err(failure) }) => Err(failure),
        // Something else than the bridge: its words are no reply of ours.
        _ if status != 200 => Err(Failure::Status),
        Some(Answer { number: Some(number), .. }) if number != asked.number => Err(Failure::Misdelivered),
        Some(Answer { result, .. }) => verdict(&result?, asked),
        None => Err(Failure::Unreadable),
    }
}

/// What the script's integers say, of which the first is the call's number.
fn verdict(numbers: &[i64], asked: &Acquire) -> Result<Acquired, Failure> {
    match numbers.split_first() {
        Some((number, rest)) if u64::try_from(*number) == Ok(asked.number) => {
            Acquired::from_reply(rest, asked).map_err(|_| Failure::Unreadable)
        }
        Some(_) => Err(Failure::Misdelivered),
        None => Err(Failure::Unreadable),
    }
}

/// What the reply says of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The part's number; none: all parts.
    pub number: Option<u64>,
    /// The script's integers, or why there are none.
    pub result: Result<Vec<i64>, Failure>,
}

/// The lines of a reply, where all of it is one.
pub fn answers(body: &[u8]) -> Option<Vec<Answer>> {
    let mut lines = lines(body).ok()?;
    lines.next().filter(|line| *line == VERSION)?;
    lines.map(answer).collect()
}

#[inline(never)]
fn answer(line: &str) -> Option<Answer> {
    let mut words = line.split(' ');
    let (number, kind) = (words.next()?, words.next()?);
    let number = if number == "*" { None } else { Some(unsigned(number)?) };
    let result = match kind {
        "ok" if number.is_some() => Ok(words.map(signed).collect::<Option<Vec<i64>>>()?),
        "no" => {
            let name = words.next().filter(|_| words.next().is_none())?;
            Err(Failure::TOLD.into_iter().find(|failure| failure.name() == name)?)
        }
        _ => return None,
    };
    Some(Answer { number, result })
}

/// Writes the reply of a bridge.
pub fn reply<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> String {
    let mut reply = [VERSION, "\n"].concat();
    for Answer { number, result } in answers {
        match number {
            Some(number) => reply.push_str(itoa::Buffer::new().format(*number)),
            None => reply.push('*'),
        }
        match result {
            Ok(numbers) => {
                reply.push_str(" ok");
                numbers.iter().for_each(|number| add_number(&mut reply, *number));
            }
            Err(failure) => {
                reply.push_str(" no ");
                reply.push_str(failure.name());
            }
        }
        reply.push('\n');
    }
    reply
}

/// A call as the bridge reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'b> {
    /// How long the work may take.
    pub deadline: Ms,
    /// Its parts, at least one.
    pub parts: Vec<Part<'b>>,
}

/// One run of a script at one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'b> {
    /// What names it.
    pub number: u64,
    /// The script, as [`script`] knows it.
    pub script: &'b str,
    /// The key.
    pub key: &'b str,
    /// What the script is handed: integers below 2^64.
    pub arguments: Vec<&'b str>,
}

/// Why bytes are no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCall {
    /// It is longer than [`MAX_CALL`].
    TooLong,
    /// It has more parts than [`MAX_PARTS`].
    TooManyParts,
    /// It begins as no call of this version does, or is no text that ends with the end of a line.
    Version,
    /// A line of it is not as it is written, counted from 1.
    Line(usize),
}

impl<'b> Call<'b> {
    /// Reads a call.
    ///
    /// # Errors
    /// See [`NoCall`].
    pub fn read(body: &'b [u8]) -> Result<Call<'b>, NoCall> {
        if body.len() > MAX_CALL {
            return Err(NoCall::TooLong);
        }
        let mut lines = lines(body)?;
        let first = lines.next().and_then(|line| line.strip_prefix(VERSION)?.strip_prefix(' '));
        let deadline = unsigned(first.ok_or(NoCall::Version)?).map(Ms);
        let deadline = deadline.filter(|ms| (Ms(1)..=MAX_DEADLINE).contains(ms)).ok_or(NoCall::Line(1))?;
        let mut parts = Vec::new();
        for (at, line) in (2..).zip(lines) {
            if parts.len() >= MAX_PARTS {
                return Err(NoCall::TooManyParts);
            }
            parts.push(part(line).ok_or(NoCall::Line(at))?);
        }
        if parts.is_empty() { Err(NoCall::Line(2)) } else { Ok(Call { deadline, parts }) }
    }
}

fn part(line: &str) -> Option<Part<'_>> {
    let mut words = line.split(' ');
    let number = unsigned(words.next()?)?;
    let (script, key) = (words.next()?, words.next()?);
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_word(script) || !is_word(key) || key.len() > MAX_KEY {
        return None;
    }
    let arguments: Vec<&str> = words.take(MAX_ARGUMENTS.saturating_add(1)).collect();
    let is_fine = arguments.len() <= MAX_ARGUMENTS && arguments.iter().all(|word| unsigned(word).is_some());
    is_fine.then_some(Part { number, script, key, arguments })
}

/// The script that a part names.
pub fn script(name: &str) -> Option<&'static Script> {
    let (format, sha) = name.split_once('/')?;
    SCRIPTS.into_iter().find(|script| script.format == format && script.sha == sha)
}

/// Whether a key lies in a namespace.
pub fn is_in(key: &str, namespace: &str) -> bool {
    // Its tenant follows in braces, which makes the hash tag: no key has a slot that its caller chose by another one.
    key.strip_prefix(namespace).is_some_and(|rest| rest.starts_with(":{"))
}

/// The lines of a text that ends with the end of one.
fn lines(body: &[u8]) -> Result<impl Iterator<Item = &str> + Clone, NoCall> {
    let text = from_utf8(body).ok().and_then(|text| text.strip_suffix('\n')).ok_or(NoCall::Version)?;
    Ok(text.split('\n'))
}

#[inline(never)] // The module is to be small: likewise above.
fn unsigned(word: &str) -> Option<u64> {
    let is_one_spelling = word == "0" || !word.starts_with('0');
    let add = |number: u64, byte: u8| {
        let digit = byte.is_ascii_digit().then_some(byte & 0x0f)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    if word.is_empty() || !is_one_spelling { None } else { word.bytes().try_fold(0, add) }
}

fn signed(word: &str) -> Option<i64> {
    match word.strip_prefix('-') {
        None => unsigned(word)?.try_into().ok(),
        Some(digits) => 0_i64.checked_sub_unsigned(unsigned(digits)?).filter(|number| *number < 0),
    }
}
