//! From an outcome to what the client sees: one function.

use crate::algorithm::{Share, Standing};
use crate::clock::Ms;
use crate::limiter::Failure;
use crate::policy::{Limit, LimiterId, Policy, Reset, UpstreamHeaders};
use crate::request::{Refused, Request};

/// What was found out about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No limit applies.
    Pass,
    /// It is refused before any bucket was asked, by a rule or before all of them.
    Refused(Refused, Option<usize>),
    /// The buckets have spoken: the one that refuses, or else the one that has the least left.
    Decided {
        /// Whose bucket it is: an index into the rules of the policy.
        rule: usize,
        /// The bucket's limit.
        limit: Limit,
        /// What it gave.
        share: Share,
    },
    /// A limiter has failed, and a rule refuses what it cannot count.
    Failed {
        /// An index into the rules of the policy.
        rule: usize,
        /// Which limiter.
        limiter: LimiterId,
        /// How.
        failure: Failure,
    },
}

/// What the request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on; its response carries these headers: see [`added`].
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
    /// Response body. That an answer to HEAD has none is the host's care.
    pub body: String,
    /// The same for a client that speaks gRPC.
    pub grpc: Grpc,
}

/// A refusal in the words of gRPC, whose clients look at no HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grpc {
    /// Which of its codes.
    pub status: GrpcStatus,
    /// For people; visible ASCII without `%`, so that it needs no encoding.
    pub message: String,
    /// When a client that retries may do so; None leaves that to the client.
    pub pushback: Option<Ms>,
}

/// The codes of gRPC that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcStatus {
    /// `INVALID_ARGUMENT`: the path is malformed.
    InvalidArgument = 3,
    /// `PERMISSION_DENIED`: a rule refuses it.
    PermissionDenied = 7,
    /// `RESOURCE_EXHAUSTED`: it is limited.
    ResourceExhausted = 8,
    /// `UNAVAILABLE`: nobody could count it.
    Unavailable = 14,
}

/// Says what a request gets. `unix` is the wall's time, `random` any number.
pub fn answer(policy: &Policy, outcome: &Outcome, unix: Ms, random: u64) -> Answer {
    answer_among(policy, outcome, &[], unix, random)
}

/// The same where the request needs tokens of other buckets, too: `others` are the limits of those, each with the index of
/// its rule. Clients are told them, but for those of rules that tell none.
pub fn answer_among(policy: &Policy, outcome: &Outcome, others: &[(usize, Limit)], unix: Ms, random: u64) -> Answer {
    let name = |rule: &usize| policy.rules.get(*rule).map_or("", |rule| rule.name.as_str());
    match outcome {
        Outcome::Pass => Answer::Pass(Vec::new()),
        Outcome::Refused(refused, rule) => {
            let (status, grpc_status, error) = match refused {
                Refused::Malformed => (400, GrpcStatus::InvalidArgument, "malformed_path"),
                Refused::Doubled => (400, GrpcStatus::InvalidArgument, "doubled"),
                Refused::Forbidden => (403, GrpcStatus::PermissionDenied, "forbidden"),
            };
            refuse(status, grpc_status, error, rule.as_ref().map_or("", name), None)
        }
        Outcome::Decided { rule, limit, share: Share::Granted(standing) } => {
            let mut headers = Vec::new();
            tell_standing(&mut headers, policy, (*rule, *limit), others, *standing, unix, None);
            Answer::Pass(headers)
        }
        Outcome::Decided { rule, limit, share: Share::Refused { standing, retry_after } } => {
            let name = name(rule);
            let longer = jitter(*retry_after, policy.response.retry_after_jitter, random);
            // Each rounded for itself: jitter that is less than a second does not lengthen a wait by a whole one.
            let seconds = decimal(retry_after.seconds_up().saturating_add(longer.0 / 1000));
            let body = fill(&policy.response.body, name, &seconds);
            let mut headers = Vec::new();
            add(&mut headers, "content-type", policy.response.content_type.clone());
            add(&mut headers, "retry-after", seconds);
            tell_standing(&mut headers, policy, (*rule, *limit), others, *standing, unix, Some(*retry_after));
            let grpc = Grpc::new(GrpcStatus::ResourceExhausted, "rate_limited", name, Some(*retry_after + longer));
            Answer::Refuse(Refusal { status: policy.response.status, headers, body, grpc })
        }
        Outcome::Failed { rule, limiter, failure } => {
            let wait = retry_after_failure(policy, *limiter, *failure);
            refuse(503, GrpcStatus::Unavailable, "limiter_unavailable", name(rule), Some(wait))
        }
    }
}

/// When a failure may be over: by then the next probe has gone. Of other failures there is no better guess than soon.
fn retry_after_failure(policy: &Policy, limiter: LimiterId, failure: Failure) -> Ms {
    match failure {
        Failure::Breaker => policy.limiters.get(limiter).breaker.probe_every.max(Ms(1000)),
        _ => Ms(1000),
    }
}

/// A refusal that the policy's `response` has no words for.
fn refuse(status: u16, grpc: GrpcStatus, error: &str, rule: &str, wait: Option<Ms>) -> Answer {
    let mut body = [r#"{"error":""#, error, "\""].concat();
    if !rule.is_empty() {
        body += &[r#","rule":""#, rule, "\""].concat();
    }
    let mut headers = Vec::new();
    add(&mut headers, "content-type", "application/json".to_owned());
    if let Some(wait) = wait {
        let seconds = decimal(wait.seconds_up());
        body += &[r#","retry_after":"#, seconds.as_str()].concat();
        add(&mut headers, "retry-after", seconds);
    }
    body.push('}');
    Answer::Refuse(Refusal { status, headers, body, grpc: Grpc::new(grpc, error, rule, wait) })
}

#[inline(never)] // As below: from many places, and the module is to be small.
fn add(headers: &mut Vec<Header>, name: &'static str, value: String) {
    headers.push((name, value));
}

#[inline(never)]
fn decimal(number: u64) -> String {
    itoa::Buffer::new().format(number).to_owned()
}

impl Grpc {
    fn new(status: GrpcStatus, error: &str, rule: &str, pushback: Option<Ms>) -> Grpc {
        let between = if rule.is_empty() { "" } else { ": " };
        Grpc { status, message: [error, between, rule].concat(), pushback }
    }
}

impl Refusal {
    /// The answer where no policy has ever been valid: an error is not read as allowed.
    pub fn without_policy() -> Refusal {
        let grpc = Grpc::new(GrpcStatus::Unavailable, "no_policy", "", None);
        Refusal { status: 503, headers: Vec::new(), body: String::new(), grpc }
    }

    /// Puts it into the protocol of the request. Reads a header of it, so it is called only where one is refused.
    pub fn fit(&mut self, request: &dyn Request) {
        let Some(content_type) = request.header("content-type").and_then(|sent| grpc_type(&sent)) else {
            return;
        };
        // What gRPC calls trailers alone: 200, and the status among the headers of a response without a body.
        self.status = 200;
        self.body.clear();
        self.headers.retain(|(name, _)| !matches!(*name, "content-type" | "retry-after"));
        add(&mut self.headers, "content-type", content_type.to_owned());
        add(&mut self.headers, "grpc-status", decimal(self.grpc.status as u64));
        add(&mut self.headers, "grpc-message", std::mem::take(&mut self.grpc.message));
        if let Some(Ms(wait)) = self.grpc.pushback {
            // Clients read it as an integer of 32 bits with a sign, and what is none as never.
            add(&mut self.headers, "grpc-retry-pushback-ms", decimal(wait.min(0x7fff_ffff)));
        }
    }
}

/// The content type of an answer to a request of gRPC, by that of the request; None where it is none. gRPC-Web has the
/// same statuses.
fn grpc_type(sent: &[u8]) -> Option<&'static str> {
    let known = ["application/grpc-web", "application/grpc"];
    known.into_iter().find(|known| {
        let start = sent.get(..known.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    })
}

/// Whether the service behind, or a limiter between, has refused the request itself, in words of HTTP or of gRPC: what
/// is left here is no help then, and would contradict it. `sent` reads a header of the response, `ends` says that it has
/// no body, as a refusal of gRPC has none.
pub fn is_refused_behind(sent: &dyn Fn(&str) -> Option<Vec<u8>>, ends: bool) -> bool {
    let is = |name, wanted: [&[u8]; 2]| sent(name).is_some_and(|value| wanted.contains(&value.as_slice()));
    is(":status", [b"429", b"503"]) || (ends && is("grpc-status", [b"8", b"14"]))
}

/// Which of these headers a response gets; `sent` says whether the service has sent one of that name. Each stands
/// instead of any of the same name.
pub fn added<'h>(
    policy: &Policy,
    headers: &'h [Header],
    sent: &dyn Fn(&str) -> bool,
) -> impl Iterator<Item = &'h Header> + use<'h> {
    let keep = policy.response.upstream_headers == UpstreamHeaders::Keep;
    // Half a family would tell the service's limit with what is left of this one.
    let is_theirs = |x: bool| keep && headers.iter().any(|(name, _)| is_x(name) == x && sent(name));
    let (x_ratelimit, ratelimit) = (is_theirs(true), is_theirs(false));
    headers.iter().filter(move |(name, _)| if is_x(name) { !x_ratelimit } else { !ratelimit })
}

fn is_x(name: &str) -> bool {
    name.starts_with("x-")
}

/// The families that the policy asks for. `retry_after` is when a request that was refused fits.
fn tell_standing(
    headers: &mut Vec<Header>,
    policy: &Policy,
    (rule, limit): (usize, Limit),
    others: &[(usize, Limit)],
    standing: Standing,
    unix: Ms,
    retry_after: Option<Ms>,
) {
    let name = |rule: usize| policy.rules.get(rule).filter(|rule| rule.headers).map(|rule| rule.name.as_str());
    let Some(told) = name(rule) else {
        return;
    };
    if policy.response.x_ratelimit {
        // The burst, what is left of it, and when it is whole again.
        let reset = match policy.response.reset {
            Reset::Epoch => unix + standing.reset,
            Reset::Seconds => standing.reset,
        };
        add(headers, "x-ratelimit-limit", decimal(limit.burst()));
        add(headers, "x-ratelimit-remaining", decimal(standing.remaining));
        add(headers, "x-ratelimit-reset", decimal(reset.seconds_up()));
    }
    if policy.response.ratelimit {
        // draft-ietf-httpapi-ratelimit-headers-10: a list of quotas, the one that is told to be left first.
        let mut quotas = quota(told, limit);
        for (rule, limit) in others {
            if let Some(name) = name(*rule) {
                quotas.push_str(", ");
                quotas.push_str(&quota(name, *limit));
            }
        }
        let mut left = item(told, ";r=", standing.remaining);
        if let Some(wait) = limit.next_token(standing) {
            // Retry-After must not be the earlier of the two.
            let wait = wait.min(retry_after.unwrap_or(wait)).max(Ms(1));
            parameter(&mut left, ";t=", wait.seconds_up());
        }
        add(headers, "ratelimit-policy", quotas);
        add(headers, "ratelimit", left);
    }
}

/// A quota in the words of the draft. It has none for a burst, so there is one of ours for a burst that is not the quota.
fn quota(rule: &str, limit: Limit) -> String {
    let mut quota = item(rule, ";q=", limit.requests());
    parameter(&mut quota, ";w=", limit.period().seconds_up());
    if limit.burst() != limit.requests() {
        parameter(&mut quota, ";weir-burst=", limit.burst());
    }
    quota
}

/// A String of RFC 9651 with a first parameter. A rule's name needs no escapes.
fn item(rule: &str, key: &str, value: u64) -> String {
    let mut item = ["\"", rule, "\""].concat();
    parameter(&mut item, key, value);
    item
}

#[inline(never)]
fn parameter(item: &mut String, key: &str, value: u64) {
    // An Integer of RFC 9651 has 15 digits at most.
    item.push_str(key);
    item.push_str(&decimal(value.min(999_999_999_999_999)));
}

/// What is added to a wait: at random, at most so many thousandths of it, so that those who were refused together do not
/// come back together.
fn jitter(wait: Ms, thousandths: u16, random: u64) -> Ms {
    let most = wait.times(u64::from(thousandths)).0 / 1000;
    Ms(random.checked_rem(most.saturating_add(1)).unwrap_or_default())
}

/// Replaces `{rule}` and `{retry_after}` in one pass, so that nothing that is filled in is read again.
fn fill(template: &str, rule: &str, retry_after: &str) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        if let Some(after) = after.strip_prefix("rule}") {
            filled.push_str(rule);
            rest = after;
        } else if let Some(after) = after.strip_prefix("retry_after}") {
            filled.push_str(retry_after);
            rest = after;
        } else {
            filled.push('{');
            rest = after;
        }
    }
    filled.push_str(rest);
    filled
}
