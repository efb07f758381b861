//! What stands in a call and in its reply: the one place that knows how the core and the script speak.

use weir::algorithm::FIXED_WINDOW;

use crate::root::{Acquire, Algorithm, Reply};

/// A call as the limiter reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// EVAL, which carries the text; else EVALSHA.
    pub by_text: bool,
    pub key: String,
    pub acquire: Acquire,
}

impl Sent {
    /// Whether the lease that the caller has is over with its reply: a call by text that is about it names none.
    pub fn ends_lease(&self) -> bool {
        self.by_text && (self.acquire.want + self.acquire.debt > 0 || self.acquire.hold)
    }

    /// Reads the body of a call; None where it is none of ours.
    pub fn read(body: &str) -> Option<Sent> {
        let mut parts = body.split('/');
        let by_text = match parts.next()? {
            "EVAL" => true,
            "EVALSHA" => false,
            _ => return None,
        };
        let (script, keys) = (unescaped(parts.next()?)?, parts.next()?);
        let is_window = script == FIXED_WINDOW.sha || script.ends_with(FIXED_WINDOW.own);
        let algorithm = if is_window { Algorithm::FixedWindow } else { Algorithm::TokenBucket };
        let key = unescaped(parts.next()?)?;
        let numbers: Option<Vec<u64>> = parts.map(|part| part.parse().ok()).collect();
        let acquire = Acquire::read(algorithm, &numbers?)?;
        (keys == "1").then_some(Sent { by_text, key, acquire })
    }
}

/// The body of a reply.
pub fn body(reply: &Reply, by_text: bool) -> String {
    body_of(by_text, reply.to_list().iter())
}

/// What Webdis answers where Redis does not know the script.
pub const NO_SCRIPT: &str = r#"{"EVALSHA":[false,"NOSCRIPT No matching script."]}"#;

/// What Webdis answers while Redis cannot write.
pub fn read_only(by_text: bool) -> String {
    format!(r#"{{"{}":[false,"READONLY You can't write against a read only replica."]}}"#, command(by_text))
}

/// What the script answers to a call with this number where the key holds something else.
pub fn bad_key(by_text: bool, number: u64) -> String {
    format!(r#"{{"{}":[{number},"WEIR the key holds no token bucket"]}}"#, command(by_text))
}

fn command(by_text: bool) -> &'static str {
    if by_text { "EVAL" } else { "EVALSHA" }
}

fn body_of<'n>(by_text: bool, numbers: impl Iterator<Item = &'n i64>) -> String {
    use std::fmt::Write;
    let mut body = format!(r#"{{"{}":["#, command(by_text));
    for (at, number) in numbers.enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(body, "{comma}{number}");
    }
    body.push_str("]}");
    body
}

fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
