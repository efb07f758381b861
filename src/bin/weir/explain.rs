//! `weir explain`: what a policy makes of one request, by the code that the module runs.
//!
//! Nothing is decided here: the core classifies, names tenants, finds limits and writes answers; this asks it, and tells.

use clap::Args;
use weir::clock::Ms;
use weir::explain::{buckets, words::duration};
use weir::limiter::Failure;
use weir::path::Malformed;
use weir::policy::{
    Allowance, ClassId, ClassMatch, Classes, Kind, Limit, Mode, OnError, Origin, Path, Policy, Rule, Segment,
};
use weir::request::{Class, Identity, Request, classify, identify, matching, value_of};
use weir::response::{Answer, Outcome as Told, answer};
use weir::rules::{Ask, Ruling, judge};
use weir::tenant::Tenant;

use crate::check::{Format, named_variables};
use crate::document::Node;
use crate::found::{Envoy, Found, Host, choose, policies};
use crate::given::Given;
use crate::parse::read;
use crate::render::refused;
use crate::report::Report;
use crate::told::{Answered, Bucket, Explained, RuleSeen, Seen};
use crate::{Outcome, Output, Stop, input, warnings};

const AFTER: &str = "\
A value that the policy calls secret, and authorization where it is a source, is taken from a file or the standard input \
alone: -H @FILE, -H @-. Secrets are told as their hash. The key of the hash comes from the environment variable that the \
policy names, or from --secret-file.

Exit code: 0 explained, 1 the policy has errors, 2 wrong usage, or a file cannot be read.";

/// Explain what a policy makes of a request: path, class, tenants, limits, Redis keys, and what the client gets.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Options {
    /// A file with a policy, as for weir check
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: String,

    /// Method and path, such as 'POST /v1/reports/7/export'; @FILE reads them from a file
    #[arg(long, value_name = "REQUEST")]
    request: String,

    /// A header, such as 'x-user-id: acme'; @FILE reads lines of headers, @- the standard input
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,

    /// What the host knows, such as 'metadata.filter_metadata."envoy.filters.http.jwt_authn".payload.sub=acme'; @FILE
    /// reads lines of them
    #[arg(long = "property", value_name = "PATH=VALUE")]
    properties: Vec<String>,

    /// The client's address, as the host settles on it
    #[arg(long, value_name = "IP[:PORT]")]
    peer: Option<String>,

    /// Which policy of the file: its number, from 1, or a part of its name
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// A file with the key of the hash, in place of the environment variable; - is the standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    secret_file: Option<String>,

    /// How to tell it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

pub fn run(options: &Options) -> Result<Output, Stop> {
    options.reads_stdin_once()?;
    let text = input::file(&options.file)?;
    let nodes = read(&text, options.file.ends_with(".json"))
        .map_err(|error| Stop(format!("{}:{}:{}: {}", options.file, error.at.line, error.at.column, error.message)))?;
    let found = choose(&options.file, nodes.iter().flat_map(policies).collect(), options.policy.as_deref())?;
    let node = match &found.policy {
        Ok(node) => node,
        Err(error) => return Ok(refused(&options.file, &found, vec![Report::error(error.at, error.message.clone())])),
    };
    let secret = options.secret_file.as_deref().map(input::file).transpose()?;
    let hash_variable = node.get("hash_secret_env").and_then(Node::text);
    let value = |name: &str| match (&secret, Some(name) == hash_variable) {
        (Some(secret), true) => Some(secret.strip_suffix('\n').unwrap_or(secret).trim_end_matches('\r').to_owned()),
        _ => std::env::var(name).ok().filter(|value| !value.is_empty()),
    };
    let unknown = hash_variable.filter(|name| value(name).is_none());
    let policy = match Policy::from_tree(&node.tree(), &|name| value(name).or_else(|| Some("set".to_owned()))) {
        Ok(policy) => policy,
        Err(problems) => {
            let problems = problems.iter().map(|problem| Report::of(problem, node)).collect();
            return Ok(refused(&options.file, &found, problems));
        }
    };
    let given = Given::read(&options.request, &options.headers, &options.properties, options.peer.as_deref())?;
    given.refuse_open_secrets(&policy)?;
    let given = given.typed(&policy);
    let asker = Asker { policy: &policy, node, given: &given, unknown };
    let explained = asker.explain(&options.file, &found, options);
    let text = match options.format {
        Format::Text => explained.text(),
        Format::Json => explained.json(),
    };
    Ok(Output { text, outcome: Outcome::Fine })
}

impl Options {
    fn reads_stdin_once(&self) -> Result<(), Stop> {
        let arguments = self.headers.iter().chain(&self.properties).chain([&self.request]);
        let from_stdin = arguments.filter(|argument| *argument == "@-").count();
        let files = [Some(&self.file), self.secret_file.as_ref()];
        let from_stdin = files.into_iter().flatten().filter(|file| *file == "-").count().saturating_add(from_stdin);
        match from_stdin {
            0 | 1 => Ok(()),
            _ => Err(Stop("the standard input can be read once; write one - or @- at most".to_owned())),
        }
    }
}

/// What asks the core about one request.
struct Asker<'a> {
    policy: &'a Policy,
    node: &'a Node,
    given: &'a Given,
    /// The variable with the key of the hash, where it is not known here.
    unknown: Option<&'a str>,
}

impl Asker<'_> {
    fn explain(&self, file: &str, found: &Found, options: &Options) -> Explained {
        let class = classify(&self.policy.classes, self.given);
        let rules = match class {
            Ok(Class::Charged(class, _)) => {
                self.policy.rules.iter().enumerate().map(|(index, rule)| self.rule(index, rule, class)).collect()
            }
            Ok(Class::Exempt(_)) | Err(Malformed) => Vec::new(),
        };
        Explained {
            request: self.given.line(),
            policy: match &found.name {
                Some(name) => format!("{file}, {name}"),
                None => file.to_owned(),
            },
            fingerprint: self.policy.fingerprint,
            path: self.path(),
            class: self.class(class),
            rules,
            answers: self.answers(),
            notes: self.notes(found, options),
        }
    }

    fn path(&self) -> String {
        let paths = self.policy.classes.paths;
        match self.given.header(":path").filter(|path| !path.is_empty()).map(|path| paths.normalise(&path)) {
            None => "none".to_owned(),
            Some(Ok(path)) => path,
            Some(Err(Malformed)) if paths.malformed_is_default => {
                "malformed; paths.malformed is default: the request is in class default".to_owned()
            }
            Some(Err(Malformed)) => "malformed; answered with 400 where a class or a key wants the path".to_owned(),
        }
    }

    fn class(&self, class: Result<Class, Malformed>) -> Seen {
        let classes = &self.policy.classes;
        let matched = matching(classes, self.given);
        let because = match matched {
            Ok(Some(index)) => {
                let line = self.node.place(&Path::default().word("classes").then(Segment::Index(index))).line;
                let words = classes.matches.get(index).map(|found| self.words(found, index)).unwrap_or_default();
                format!("classes[{index}] (line {line}) is the first that matches: {words}")
            }
            Ok(None) if classes.matches.is_empty() => "the policy has no classes".to_owned(),
            Ok(None) => "no entry of classes matches".to_owned(),
            Err(Malformed) => "a class wants the path, which is malformed".to_owned(),
        };
        let (name, cost) = match class {
            Ok(Class::Charged(class, cost)) => (class_name(classes, class), Some(cost)),
            Ok(Class::Exempt(_)) => {
                let index = matched.ok().flatten().and_then(|index| classes.matches.get(index));
                (index.map(|found| class_name(classes, found.class)).unwrap_or_default(), None)
            }
            Err(Malformed) => ("none".to_owned(), None),
        };
        Seen { name, because, cost, is_exempt: matches!(class, Ok(Class::Exempt(_))) }
    }

    /// What a match wants, in its own words.
    fn words(&self, found: &ClassMatch, index: usize) -> String {
        let mut words = Vec::new();
        if let Some(methods) = &found.methods {
            words.push(format!("methods {}", methods.join(", ")));
        }
        let written = self.node.get("classes").and_then(|classes| classes.items().get(index)?.get("match"));
        let text = |key| written.and_then(|written| written.get(key)).and_then(Node::text);
        words.extend(text("path").map(|path| format!("path {path}")));
        words.extend(text("path_regex").map(|path| format!("path_regex {path}")));
        if let Some(grpc) = written.and_then(|written| written.get("grpc")) {
            let pairs = grpc.pairs().iter().filter_map(|(key, node)| Some(format!("{} {}", key.text, node.text()?)));
            words.push(format!("grpc {}", pairs.collect::<Vec<_>>().join(" ")));
        }
        words.extend(found.conditions.iter().map(warnings::condition));
        words.join("; ")
    }

    fn rule(&self, index: usize, rule: &Rule, class: ClassId) -> RuleSeen {
        let tenant = identify(rule, self.given);
        let mut seen = RuleSeen {
            name: rule.name.clone(),
            line: self.node.place(&Path::default().word("rules").then(Segment::Index(index))).line,
            source: self.source(rule, &tenant),
            mode: mode(rule.mode),
            is_shadow: rule.shadow,
            is_untold: !rule.headers,
            ..RuleSeen::default()
        };
        let Identity::Tenant(tenant) = &tenant else {
            seen.result = match tenant {
                Identity::Skipped => "does not look at it: missing is skip",
                Identity::Refused => "refuses it: missing is deny",
                Identity::Malformed => "refuses it: what names the tenant stands in the path, which is malformed",
                _ => "refuses it: what names the tenant is sent twice",
            }
            .to_owned();
            return seen;
        };
        seen.tenant = Some(self.masked(tenant.as_str()));
        let (tier, why) = self.tier(rule, tenant);
        let found = rule.tiers.get(tier);
        let name = found.map(|tier| tier.name.as_str()).filter(|name| !name.is_empty());
        seen.tier = Some((name.unwrap_or("its own limits").to_owned(), why));
        let entry = found.and_then(|tier| tier.entries.get(*tier.by_class.get(class.0)?));
        seen.entry = entry.map(|entry| entry.name.clone());
        // Alone: an earlier rule that refuses the request would hide this one.
        let alone = Policy { rules: vec![rule.clone()], ..self.policy.clone() };
        match (judge(&alone, self.given).ruling, entry.map(|entry| entry.allowance)) {
            (Ruling::Ask(asks), _) => {
                seen.buckets = asks.iter().map(|ask| self.bucket(ask)).collect();
                seen.on_error = Some(self.on_error(index, rule));
                seen.idempotency = self.idempotency(rule);
            }
            (Ruling::Pass, Some(Allowance::Unlimited)) => seen.result = "passes: unlimited".to_owned(),
            (Ruling::Pass, _) => seen.result = "has no say: it is a shadow, and would refuse the request".to_owned(),
            (Ruling::Malformed, _) => seen.result = "refuses it: the path is malformed".to_owned(),
            (Ruling::Doubled(_), _) => seen.result = "refuses it: what names the tier is sent twice".to_owned(),
            (Ruling::Forbidden(_), _) => seen.result = "refuses it: deny".to_owned(),
        }
        seen
    }

    /// Which source names the tenant.
    fn source(&self, rule: &Rule, tenant: &Identity) -> String {
        for (index, source) in rule.sources.iter().enumerate() {
            match value_of(source, self.given) {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return format!("key[{index}], {}", origin(&source.origin)),
            }
        }
        match tenant {
            Identity::Tenant(_) => "none yields a value: missing names the tenant".to_owned(),
            _ => "none yields a value".to_owned(),
        }
    }

    /// Index of the tier and why it is that one.
    fn tier(&self, rule: &Rule, tenant: &Tenant) -> (usize, String) {
        if let Some(tier) = rule.tier_of_tenant(tenant) {
            let is_named = rule.tiers.get(tier).is_some_and(|tier| !tier.name.is_empty());
            let whose = if is_named { "tier.tenants" } else { "overrides" };
            // It may stand there itself, too, under what does not win.
            let what = if rule.tenants.get(tenant) == Some(&tier) { "it" } else { "a network that it is in" };
            return (tier, format!("{whose} names {what}"));
        }
        for (index, source) in rule.tier_sources.iter().enumerate() {
            // One that refuses the request is told as the rule's result.
            let Ok(Some(value)) = value_of(source, self.given) else {
                continue;
            };
            let what = format!("tier.sources[{index}], {}", origin(&source.origin));
            return match rule.tiers.iter().position(|tier| tier.name.as_bytes() == value) {
                Some(tier) => (tier, format!("{what}, says so")),
                None => (rule.default_tier, format!("{what}, says what is no tier: the default")),
            };
        }
        let is_the_only = rule.tiers.iter().filter(|tier| !tier.name.is_empty()).count() < 2;
        let why = if is_the_only { "the only one" } else { "the default" };
        (rule.default_tier, why.to_owned())
    }

    fn bucket(&self, ask: &Ask) -> Bucket {
        let own = ask.own.filter(|_| ask.mode == Mode::Local || ask.on_error == OnError::Local);
        Bucket { limit: ask.limit, own, key: self.masked(&ask.key), is_local: ask.mode == Mode::Local }
    }

    fn on_error(&self, index: usize, rule: &Rule) -> String {
        match (rule.mode, rule.on_error, rule.shadow) {
            (Mode::Local, ..) => "nobody is asked, so nothing fails".to_owned(),
            (.., true) => "a shadow has no say".to_owned(),
            (_, OnError::Allow, _) => "allow: it passes uncounted".to_owned(),
            (_, OnError::Local, _) => "local: this proxy's own bucket decides".to_owned(),
            (_, OnError::Deny, _) => {
                let Answer::Refuse(refusal) = answer(self.policy, &Told::Failed(index, Failure::Timeout), Ms(0), 0)
                else {
                    return "deny".to_owned();
                };
                let wait =
                    refusal.headers.iter().find(|(name, _)| *name == "retry-after").map(|(_, wait)| wait.as_str());
                format!("deny: {}, retry-after: {}", refusal.status, wait.unwrap_or("none"))
            }
        }
    }

    fn idempotency(&self, rule: &Rule) -> Option<String> {
        let idempotency = rule.idempotency.as_ref()?;
        let (header, keep) = (&idempotency.header, duration(idempotency.keep));
        Some(match self.given.header(header).is_some_and(|value| !value.is_empty()) {
            true => format!("{header} is sent: the same again takes nothing for {keep}"),
            false => format!("{header} is not sent: each request takes"),
        })
    }

    /// What the client gets, by the state of the buckets.
    fn answers(&self) -> Vec<Answered> {
        let alone = |told: Told, when: &str| {
            let answer = answer(self.policy, &told, Ms(0), 0);
            vec![Answered::new(when.to_owned(), &answer, self.given, self.policy)]
        };
        match judge(self.policy, self.given).ruling {
            Ruling::Pass => alone(Told::Pass, "always"),
            Ruling::Malformed => alone(Told::Malformed, "always"),
            Ruling::Forbidden(rule) => alone(Told::Forbidden(rule), "always"),
            Ruling::Doubled(rule) => alone(Told::Doubled(rule), "always"),
            Ruling::Ask(asks) => buckets::answers(self.policy, &asks)
                .into_iter()
                .map(|(when, answer)| Answered::new(when, &answer, self.given, self.policy))
                .collect(),
        }
    }

    fn notes(&self, found: &Found, options: &Options) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(name) = self.unknown {
            notes.push(format!(
                "{name} is not set here, so hashes cannot be told, nor whether tier.tenants or overrides names such a \
                 tenant; set it, or use --secret-file"
            ));
        }
        for (_, (_, name)) in named_variables(self.node) {
            let given = match &found.host {
                Host::Envoy(envoy) => &envoy.variables,
                Host::Istio(istio) => &istio.variables,
                Host::File => continue,
            };
            if !given.iter().any(|known| known == name) {
                notes.push(format!("{name} is not handed to the module by this configuration: see weir check"));
            }
        }
        let reads = |of: &dyn Fn(&Origin) -> bool| {
            let sources = self.policy.rules.iter().flat_map(|rule| rule.sources.iter().chain(&rule.tier_sources));
            sources
                .flat_map(|source| match &source.origin {
                    Origin::All(parts) => parts.iter().collect(),
                    _ => vec![source],
                })
                .any(|source| of(&source.origin))
        };
        let reads_host = reads(&|origin| matches!(origin, Origin::ClientIp(weir::policy::AddressFrom::Host, _)));
        let reads_chain =
            reads(&|origin| matches!(origin, Origin::ClientIp(weir::policy::AddressFrom::Forwarded(_), _)));
        let manager = match &found.host {
            Host::Envoy(Envoy { managers, .. }) => managers.first(),
            _ => None,
        };
        match (&options.peer, manager) {
            (None, _) if reads_host => notes.push("the policy reads the client's address: give it with --peer".to_owned()),
            (Some(_), Some(manager)) if reads_host && !manager.use_remote_address => notes.push(format!(
                "this Envoy would take the address from x-forwarded-for, not from the peer: use_remote_address is not set \
                 (line {})",
                manager.at.line
            )),
            (Some(_), None) if reads_host => {
                notes.push("--peer is taken for the address that the host settles on".to_owned());
            }
            _ => {}
        }
        let jitter = self.policy.response.retry_after_jitter;
        if jitter > 0 && matches!(judge(self.policy, self.given).ruling, Ruling::Ask(_)) {
            let percent = f64::from(jitter) / 10.0;
            notes.push(format!(
                "retry-after of a limited request is longer at random by up to {percent} %, in whole seconds"
            ));
        }
        if reads_chain && self.given.has("x-forwarded-for") {
            notes.push("x-forwarded-for is taken as the module sees it, after the host has added to it".to_owned());
        }
        notes
    }

    /// A tenant or a key, without a hash that is made with a key nobody has given.
    fn masked(&self, text: &str) -> String {
        let Some(name) = self.unknown else {
            return text.to_owned();
        };
        match text.split_once(".~") {
            Some((before, after)) => {
                let rest = after.trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
                format!("{before}.~<hash: set {name}>{rest}")
            }
            None => text.to_owned(),
        }
    }
}

fn class_name(classes: &Classes, class: ClassId) -> String {
    classes.names.get(class.0).cloned().unwrap_or_default()
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exact => "exact: Redis grants each request".to_owned(),
        Mode::Lease(terms) => format!("lease: Redis lends to proxies, small leases for {}", duration(terms.life)),
        Mode::Async { sync_interval } => {
            format!("async: proxies spend, and tell Redis every {}", duration(sync_interval))
        }
        Mode::Local => "local: each proxy has its share".to_owned(),
    }
}

/// A source, in the words of a policy.
fn origin(of: &Origin) -> String {
    match of {
        Origin::Header(name) => format!("header {name}"),
        Origin::Bearer => "authorization bearer".to_owned(),
        Origin::BasicUser => "authorization basic".to_owned(),
        Origin::Query(name) => format!("query {name}"),
        Origin::Cookie(name) => format!("cookie {name}"),
        Origin::Host => "host".to_owned(),
        Origin::PathSegment(number, _) => format!("path_segment {number}"),
        Origin::Property(path, kind) => {
            let kind = match kind {
                Kind::Number => " of type number",
                Kind::Bool => " of type bool",
                Kind::Text | Kind::Bytes => "",
            };
            format!("property {}{kind}", path.join("."))
        }
        Origin::ClientIp(weir::policy::AddressFrom::Host, _) => "client_ip from host".to_owned(),
        Origin::ClientIp(weir::policy::AddressFrom::Forwarded(_), _) => "client_ip from x_forwarded_for".to_owned(),
        Origin::All(parts) => {
            let parts: Vec<String> = parts.iter().map(|part| origin(&part.origin)).collect();
            format!("all of {}", parts.join(" and "))
        }
        Origin::Constant(_) => "constant".to_owned(),
    }
}

/// A limit, in full.
pub fn limit(limit: Limit) -> String {
    format!("{} per {}, burst {}", limit.requests(), duration(limit.period()), limit.burst())
}
