//! From a tree to a policy: the top level, the limiter and the response.

use std::ops::RangeInclusive;

use super::problem::{Found, Path, Problem};
use super::read::{Fields, Reader, Words};
use super::tree::Tree;
use super::{
    BreakerLimits, Credential, Environment, Limit, Limiter, Limiters, Policy, Reset, Response, UpstreamHeaders,
    classes, observe, rules,
};
use crate::clock::Ms;
use crate::path::Paths;
use crate::tenant::HashKey;

const POLICY: Words = Words {
    built: &[
        "version",
        "namespace",
        "proxies",
        "table",
        "hash_secret_env",
        "limiters",
        "paths",
        "classes",
        "rules",
        "response",
        "observe",
    ],
    later: &[],
};

const PATHS: Words =
    Words { built: &["malformed", "ignore_case", "trailing_slash", "strip_path_parameters"], later: &[] };

const LIMITER: Words = Words {
    built: &["transport", "cluster", "authority", "timeout", "auth_env", "breaker", "max_new_keys_per_second"],
    later: &[],
};

const TABLE: Words = Words { built: &["entries"], later: &[] };

const BREAKER: Words = Words { built: &["failures", "share", "within", "probe_every"], later: &[] };

/// Each has calls, a breaker and metrics of its own in every proxy.
const LIMITERS: RangeInclusive<usize> = 1..=8;

/// Entries of a table: 145 bytes each.
const ENTRIES: RangeInclusive<u64> = 64..=16_777_216;

/// More proxies than this have no token each.
const PROXIES: RangeInclusive<u64> = 1..=100_000;

const RESPONSE: Words = Words {
    built: &["status", "content_type", "body", "headers", "reset", "upstream_headers", "retry_after_jitter"],
    later: &[],
};

/// The longest wait for a limiter; beyond it a request is better answered.
const MAX_TIMEOUT: Ms = Ms(60_000);

pub(super) fn policy(tree: &Tree, environment: Environment) -> Result<Policy, Vec<Problem>> {
    let mut reader = Reader::default();
    let decoded = read_policy(&mut reader, tree, environment);
    match decoded {
        Some(policy) if reader.problems.is_empty() => Ok(policy),
        _ => Err(reader.problems),
    }
}

fn read_policy(reader: &mut Reader, tree: &Tree, environment: Environment) -> Option<Policy> {
    let fields = reader.object(&Path::default(), tree, POLICY)?;
    version(reader, &fields);
    let namespace = match fields.get("namespace") {
        Some((tree, path)) => reader.name_at(&path, tree),
        None => Some("rl".to_owned()),
    };
    let hash_key = variable(reader, &fields, "hash_secret_env", environment);
    let limiters = limiters(reader, &fields, environment);
    let paths = fields.get("paths").map(|(tree, path)| paths(reader, &path, tree)).unwrap_or_default();
    let classes = classes::read(reader, &fields, paths);
    let proxies = fields.get("proxies").and_then(|(tree, path)| within(reader, &path, tree, PROXIES));
    let table_entries = match fields.get("table") {
        Some((tree, path)) => table(reader, &path, tree),
        None => Some(65_536),
    };
    let rules = rules::read(reader, &fields, &classes, hash_key.map(HashKey::new), proxies);
    let response = match fields.get("response") {
        Some((tree, path)) => response(reader, tree, &path),
        None => Some(Response::default()),
    };
    let observe = observe::read(reader, &fields, environment);
    // In one go, here and below: what is dropped is dropped in one place, and the module is smaller.
    match (namespace, table_entries, limiters, rules, response, observe) {
        (Some(namespace), Some(table_entries), Some(limiters), Some(rules), Some(response), Some(observe)) => {
            let fingerprint = tree.fingerprint();
            Some(Policy { namespace, proxies, table_entries, limiters, classes, rules, response, observe, fingerprint })
        }
        _ => None,
    }
}

/// Which paths are one. A value that could not be read is noted, so the default in its place is never used.
fn paths(reader: &mut Reader, path: &Path, tree: &Tree) -> Paths {
    let mut paths = Paths::default();
    let Some(fields) = reader.object(path, tree, PATHS) else {
        return paths;
    };
    if let Some((tree, path)) = fields.get("malformed") {
        const WANTED: &str = "write 400 or default";
        match tree {
            Tree::Int(400) => {}
            Tree::Int(other) => reader.note(&path, Found::Number(*other), "is not known here", WANTED),
            Tree::Text(_) => paths.malformed_is_default = reader.word(&path, tree, &[("default", ())], &[]).is_some(),
            _ => reader.wrong_kind(&path, tree, WANTED),
        }
    }
    if let Some((tree, path)) = fields.get("trailing_slash") {
        let words = [("distinct", false), ("ignore", true)];
        paths.ignore_trailing_slash = reader.word(&path, tree, &words, &[]).unwrap_or_default();
    }
    paths.ignore_case = reader.flag(&fields, "ignore_case").unwrap_or_default();
    paths.strip_parameters = reader.flag(&fields, "strip_path_parameters").unwrap_or_default();
    paths
}

fn version(reader: &mut Reader, fields: &Fields) {
    if let Some((tree, path)) = reader.needed(fields, "version", "write version: 1") {
        match tree {
            Tree::Int(1) => {}
            Tree::Int(other) => reader.note(&path, Found::Number(*other), "is no version", "write version: 1"),
            _ => reader.wrong_kind(&path, tree, "write version: 1"),
        }
    }
}

/// The value of the environment variable that a field names.
pub(super) fn variable(
    reader: &mut Reader,
    fields: &Fields,
    word: &'static str,
    environment: Environment,
) -> Option<String> {
    const WANTED: &str = "write the name of a variable (A-Z, 0-9 and _); a secret itself has no place in a policy";
    let (tree, path) = fields.get(word)?;
    let name = reader.text(&path, tree, WANTED)?;
    let is_variable = !name.is_empty()
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_variable {
        // It may be the secret itself.
        reader.note(&path, Found::Nothing, "names no environment variable", WANTED);
        return None;
    }
    let value = environment(name).filter(|value| !value.is_empty());
    if value.is_none() {
        let wanted =
            "set it for the proxy and let the host hand it to the module (Envoy: vm_config.environment_variables)";
        let found = Found::Text(name.to_owned());
        reader.note(&path, found, "is absent or empty in the environment", wanted);
    }
    value
}

/// All limiters, in the order of their names, as [`super::routing::names`] counts them.
fn limiters(reader: &mut Reader, fields: &Fields, environment: Environment) -> Option<Limiters> {
    const WANTED: &str = "write limiters: {main: {transport: webdis, cluster: NAME}}";
    let (tree, path) = reader.needed(fields, "limiters", WANTED)?;
    let chosen = reader.chosen(&path, tree, WANTED)?;
    if !LIMITERS.contains(&chosen.len()) {
        let found = Found::Number(i64::try_from(chosen.len()).unwrap_or(i64::MAX));
        reader.note(&path, found, "limiters", "write 1 to 8, each under a name of its own");
        return None;
    }
    let count = chosen.len();
    let mut limiters: Vec<Limiter> = Vec::new();
    for (name, path, tree) in chosen {
        limiters.extend(limiter(reader, name, &path, tree, environment));
    }
    limiters.sort_by(|one, other| one.name.cmp(&other.name));
    let is_complete = limiters.len() == count;
    let mut limiters = limiters.into_iter();
    let first = limiters.next().filter(|_| is_complete)?;
    Some(Limiters::new(first, limiters.collect()))
}

fn limiter(reader: &mut Reader, name: &str, path: &Path, tree: &Tree, environment: Environment) -> Option<Limiter> {
    let name = reader.name(path, name);
    let fields = reader.object(path, tree, LIMITER)?;
    if let Some((tree, path)) = reader.needed(&fields, "transport", "write transport: webdis") {
        reader.word(&path, tree, &[("webdis", ())], &["upstash", "rls"]);
    }
    let cluster = reader
        .needed(&fields, "cluster", "write the host's name for the limiter")
        .and_then(|(tree, path)| header_value(reader, &path, tree));
    let authority = match fields.get("authority") {
        Some((tree, path)) => header_value(reader, &path, tree),
        None => cluster.clone(),
    };
    let timeout = match fields.get("timeout") {
        Some((tree, path)) => timeout(reader, &path, tree),
        None => Some(Ms(20)),
    };
    let breaker = match fields.get("breaker") {
        Some((tree, path)) => breaker(reader, &path, tree),
        None => Some(BreakerLimits::default()),
    };
    let new_keys = match fields.get("max_new_keys_per_second") {
        Some((tree, path)) => new_keys(reader, &path, tree).map(Some),
        None => Some(None),
    };
    let authorization = variable(reader, &fields, "auth_env", environment);
    if let (Some(value), Some((_, path))) = (&authorization, fields.get("auth_env"))
        && !is_header_value(value)
    {
        // The value stays unsaid.
        reader.note(&path, Found::Nothing, "names a variable whose value is no header value", "use visible ASCII");
    }
    match (name, cluster, authority, timeout, breaker, new_keys) {
        (Some(name), Some(cluster), Some(authority), Some(timeout), Some(breaker), Some(max_new_keys_per_second)) => {
            let authorization = authorization.map(Credential);
            Some(Limiter { name, cluster, authority, timeout, authorization, breaker, max_new_keys_per_second })
        }
        _ => None,
    }
}

/// An integer of a range.
fn within(reader: &mut Reader, path: &Path, tree: &Tree, range: RangeInclusive<u64>) -> Option<u64> {
    let number = reader.count(path, tree)?;
    if !range.contains(&number) {
        let found = Found::Number(i64::try_from(number).unwrap_or(i64::MAX));
        reader.note(path, found, "is out of range", format!("write {} to {}", range.start(), range.end()));
        return None;
    }
    Some(number)
}

fn table(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<u64> {
    let fields = reader.object(path, tree, TABLE)?;
    let (tree, path) = reader.needed(&fields, "entries", "write how many tenants the proxy keeps in mind")?;
    within(reader, &path, tree, ENTRIES)
}

fn breaker(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<BreakerLimits> {
    let fields = reader.object(path, tree, BREAKER)?;
    let default = BreakerLimits::default();
    let failures = match fields.get("failures") {
        Some((tree, path)) => reader.count(&path, tree),
        None => Some(default.failures),
    };
    let share = match fields.get("share") {
        Some((tree, path)) => {
            reader.thousandths(&path, tree, 0.0..=1.0, "is outside 0 to 1", "write a part from 0 to 1, such as 0.5")
        }
        None => Some(default.share),
    };
    const WANTED: [&str; 2] = ["write one integer and ms or s, such as 200ms", "write 10ms to 60s"];
    let mut time = |word, default| match fields.get(word) {
        Some((tree, path)) => reader.duration_within(&path, tree, Ms(10)..=MAX_TIMEOUT, WANTED),
        None => Some(default),
    };
    let (within, probe_every) = (time("within", default.within), time("probe_every", default.probe_every));
    Some(BreakerLimits { failures: failures?, share: share?, within: within?, probe_every: probe_every? })
}

/// So many new keys a second, as a limit of their own.
fn new_keys(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Limit> {
    let keys = within(reader, path, tree, 1..=1_000_000_000)?;
    Limit::new(keys, Ms(1000), keys).ok()
}

impl Default for BreakerLimits {
    fn default() -> BreakerLimits {
        BreakerLimits { failures: 5, share: 500, within: Ms(1000), probe_every: Ms(200) }
    }
}

fn timeout(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Ms> {
    let timeout = reader.duration(path, tree, "write one integer and ms or s, such as 20ms")?;
    if timeout < Ms(1) || timeout > MAX_TIMEOUT {
        // Hosts cut durations to whole milliseconds, and 0 means for ever to them.
        let found = if let Tree::Text(text) = tree { Found::Text(text.clone()) } else { Found::Nothing };
        reader.note(path, found, "is no wait for a request", "write 1ms to 60s");
        return None;
    }
    Some(timeout)
}

/// A text that may stand in a header: visible ASCII and spaces inside.
fn header_value(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<String> {
    const WANTED: &str = "write visible ASCII";
    let text = reader.text(path, tree, WANTED)?;
    if !is_header_value(text) {
        reader.note(path, Found::Text(text.to_owned()), "is no header value", WANTED);
        return None;
    }
    Some(text.to_owned())
}

fn is_header_value(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

impl Default for Response {
    fn default() -> Response {
        Response {
            status: 429,
            content_type: "application/json".to_owned(),
            body: r#"{"error":"rate_limited","rule":"{rule}","retry_after":{retry_after}}"#.to_owned(),
            x_ratelimit: true,
            ratelimit: false,
            reset: Reset::Epoch,
            upstream_headers: UpstreamHeaders::Replace,
            retry_after_jitter: 100,
        }
    }
}

fn response(reader: &mut Reader, tree: &Tree, path: &Path) -> Option<Response> {
    let fields = reader.object(path, tree, RESPONSE)?;
    // A value that could not be read is noted, so the default in its place is never used.
    let status = fields.get("status").and_then(|(tree, path)| status(reader, &path, tree));
    let content_type = fields.get("content_type").and_then(|(tree, path)| header_value(reader, &path, tree));
    let body = fields.get("body").and_then(|(tree, path)| reader.text(&path, tree, "write the body as a text"));
    let headers = fields.get("headers").and_then(|(tree, path)| families(reader, &path, tree));
    let reset = fields.get("reset").and_then(|(tree, path)| {
        reader.word(&path, tree, &[("epoch", Reset::Epoch), ("seconds", Reset::Seconds)], &[])
    });
    let upstream_headers = fields.get("upstream_headers").and_then(|(tree, path)| {
        const WORDS: [(&str, UpstreamHeaders); 2] =
            [("replace", UpstreamHeaders::Replace), ("keep", UpstreamHeaders::Keep)];
        reader.word(&path, tree, &WORDS, &[])
    });
    let jitter = fields.get("retry_after_jitter").and_then(|(tree, path)| {
        const WANTED: &str = "write a part from 0 to 1, such as 0.1";
        reader.thousandths(&path, tree, 0.0..=1.0, "is outside 0 to 1", WANTED)
    });
    let default = Response::default();
    let (x_ratelimit, ratelimit) = headers.unwrap_or((default.x_ratelimit, default.ratelimit));
    Some(Response {
        status: status.unwrap_or(default.status),
        content_type: content_type.unwrap_or(default.content_type),
        body: body.map_or(default.body, str::to_owned),
        x_ratelimit,
        ratelimit,
        reset: reset.unwrap_or(default.reset),
        upstream_headers: upstream_headers.unwrap_or(default.upstream_headers),
        retry_after_jitter: jitter.unwrap_or(default.retry_after_jitter),
    })
}

/// Whether `x-ratelimit`, and whether `ratelimit`, stands in the list of families to send.
fn families(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<(bool, bool)> {
    const WORDS: [(&str, (bool, bool)); 2] = [("x-ratelimit", (true, false)), ("ratelimit", (false, true))];
    let mut listed = (false, false);
    for (path, item) in reader.list(path, tree, "write a list: [x-ratelimit], [x-ratelimit, ratelimit] or []")? {
        let (x_ratelimit, ratelimit) = reader.word(&path, item, &WORDS, &[]).unwrap_or_default();
        listed = (listed.0 || x_ratelimit, listed.1 || ratelimit);
    }
    Some(listed)
}

fn status(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<u16> {
    const WANTED: &str = "write a status from 400 to 599";
    match tree {
        Tree::Int(status @ 400..=599) => u16::try_from(*status).ok(),
        Tree::Int(other) => {
            reader.note(path, Found::Number(*other), "is no status of a refusal", WANTED);
            None
        }
        _ => {
            reader.wrong_kind(path, tree, WANTED);
            None
        }
    }
}
