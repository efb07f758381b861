//! From an outcome to what the client sees: one function.

use crate::bucket::{Share, Standing};
use crate::clock::Ms;
use crate::limiter::Failure;
use crate::policy::{Limit, Policy, Reset};

/// What was found out about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No limit applies.
    Pass,
    /// The path is malformed.
    Malformed,
    /// A rule refuses it.
    Forbidden(usize),
    /// The buckets have spoken: the one that refuses, or else the one that has the least left.
    Decided {
        /// Whose bucket it is: an index into the rules of the policy.
        rule: usize,
        /// The bucket's limit.
        limit: Limit,
        /// What it gave.
        share: Share,
    },
    /// The limiter of a rule has failed, and the rule refuses what it cannot count.
    Failed(usize, Failure),
}

/// What the request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on; its response carries these headers instead of any of the same names.
    Pass(Vec<Header>),
    /// It is answered.
    Refuse(Refusal),
}

/// A response header.
pub type Header = (&'static str, String);

/// The answer to a request that may not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Response headers.
    pub headers: Vec<Header>,
    /// Response body.
    pub body: String,
}

/// Says what a request gets. `unix` is the wall's time, `random` any number.
pub fn answer(policy: &Policy, outcome: &Outcome, unix: Ms, random: u64) -> Answer {
    let name = |rule: &usize| policy.rules.get(*rule).map_or("", |rule| rule.name.as_str());
    match outcome {
        Outcome::Pass => Answer::Pass(Vec::new()),
        Outcome::Malformed => refuse(400, r#"{"error":"malformed_path"}"#.to_owned(), Vec::new()),
        Outcome::Forbidden(rule) => {
            refuse(403, format!(r#"{{"error":"forbidden","rule":"{}"}}"#, name(rule)), Vec::new())
        }
        Outcome::Decided { limit, share: Share::Granted(standing), .. } => {
            Answer::Pass(standing_headers(policy, *limit, *standing, unix))
        }
        Outcome::Decided { rule, limit, share: Share::Refused { standing, retry_after } } => {
            let seconds = jittered(*retry_after, policy.response.retry_after_jitter, random).seconds_up();
            let mut headers = vec![("content-type", policy.response.content_type.clone())];
            headers.push(("retry-after", seconds.to_string()));
            headers.extend(standing_headers(policy, *limit, *standing, unix));
            Answer::Refuse(Refusal {
                status: policy.response.status,
                headers,
                body: fill(&policy.response.body, name(rule), seconds),
            })
        }
        Outcome::Failed(rule, failure) => {
            let seconds = retry_after_failure(policy, *failure).seconds_up();
            let name = name(rule);
            let body = format!(r#"{{"error":"limiter_unavailable","rule":"{name}","retry_after":{seconds}}}"#);
            refuse(503, body, vec![("retry-after", seconds.to_string())])
        }
    }
}

/// When a failure may be over: by then the next probe has gone. Of other failures there is no better guess than soon.
fn retry_after_failure(policy: &Policy, failure: Failure) -> Ms {
    match failure {
        Failure::Breaker => policy.limiter.breaker.probe_every.max(Ms(1000)),
        _ => Ms(1000),
    }
}

fn refuse(status: u16, body: String, mut headers: Vec<Header>) -> Answer {
    headers.insert(0, ("content-type", "application/json".to_owned()));
    Answer::Refuse(Refusal { status, headers, body })
}

/// The family `x-ratelimit`: the burst, what is left of it, and when it is whole again.
fn standing_headers(policy: &Policy, limit: Limit, standing: Standing, unix: Ms) -> Vec<Header> {
    if !policy.response.x_ratelimit {
        return Vec::new();
    }
    let reset = match policy.response.reset {
        Reset::Epoch => unix + standing.reset,
        Reset::Seconds => standing.reset,
    };
    vec![
        ("x-ratelimit-limit", limit.burst().to_string()),
        ("x-ratelimit-remaining", standing.remaining.to_string()),
        ("x-ratelimit-reset", reset.seconds_up().to_string()),
    ]
}

/// A wait, lengthened at random by at most so many thousandths, so that those who were refused together do not come
/// back together.
fn jittered(wait: Ms, thousandths: u16, random: u64) -> Ms {
    let most = wait.times(u64::from(thousandths)).0 / 1000;
    wait + Ms(random.checked_rem(most.saturating_add(1)).unwrap_or_default())
}

/// Replaces `{rule}` and `{retry_after}` in one pass, so that nothing that is filled in is read again.
fn fill(template: &str, rule: &str, retry_after: u64) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        if let Some(after) = after.strip_prefix("rule}") {
            filled.push_str(rule);
            rest = after;
        } else if let Some(after) = after.strip_prefix("retry_after}") {
            filled.push_str(&retry_after.to_string());
            rest = after;
        } else {
            filled.push('{');
            rest = after;
        }
    }
    filled.push_str(rest);
    filled
}
