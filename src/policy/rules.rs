//! The rules of a policy: whose requests are limited, and how.

use std::ops::RangeInclusive;

use super::problem::{Found, Path};
use super::read::{Fields, Reader, Words};
use super::sources::{HEADER, NONE};
use super::tenants::{Keys, OfTenants, overrides, tier, without_tier};
use super::tree::Tree;
use super::{
    Allowance, ClassId, Classes, Idempotency, Missing, Mode, OnError, Origin, Rule, Source, Terms, Tier, limits,
    routing, sources,
};
use crate::clock::Ms;
use crate::tenant::{HashKey, Storage, Tenant};

const RULE: Words = Words {
    built: &[
        "name",
        "limiter",
        "key",
        "missing",
        "tier",
        "algorithm",
        "mode",
        "lease",
        "sync_interval",
        "limits",
        "on_error",
        "overrides",
        "shadow_mode",
        "idempotency",
        "headers",
    ],
    later: &[],
};

const LEASE: Words = Words { built: &["life", "lend"], later: &[] };

const IDEMPOTENCY: Words = Words { built: &["header", "keep"], later: &[] };

/// Each rule may cost a request a call.
const RULES: RangeInclusive<usize> = 1..=16;

const LEASE_LIFE: RangeInclusive<Ms> = Ms(1000)..=Ms(3_600_000);

const SYNC_INTERVAL: RangeInclusive<Ms> = Ms(10)..=Ms(60_000);

const KEEP: RangeInclusive<Ms> = Ms(1000)..=Ms(86_400_000);

/// What the rules of a policy have in common.
struct Common<'c> {
    classes: &'c Classes,
    limiters: Vec<String>,
    /// A variable that is named and absent has been noted already.
    has_hash_key: bool,
    hash_key: HashKey,
    /// None where none are written, or where they could not be read.
    proxies: Option<u64>,
    names_proxies: bool,
}

pub(super) fn read(
    reader: &mut Reader,
    fields: &Fields,
    classes: &Classes,
    hash_key: Option<HashKey>,
    proxies: Option<u64>,
) -> Option<Vec<Rule>> {
    const WANTED: &str = "write a list of 1 to 16 rules";
    let common = Common {
        classes,
        limiters: routing::names(fields),
        has_hash_key: fields.get("hash_secret_env").is_some(),
        hash_key: hash_key.unwrap_or_default(),
        proxies,
        names_proxies: fields.get("proxies").is_some(),
    };
    let (tree, path) = reader.needed(fields, "rules", WANTED)?;
    let items: Vec<_> = reader.list(&path, tree, WANTED)?.collect();
    if !RULES.contains(&items.len()) {
        let found = Found::Number(i64::try_from(items.len()).unwrap_or(i64::MAX));
        reader.note(&path, found, "rules", "write 1 to 16");
        return None;
    }
    let counts_all: Vec<bool> = items.iter().map(|(_, tree)| counts_all(tree)).collect();
    let (mut rules, mut names, mut untrusted) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (path, tree)) in items.iter().enumerate() {
        let others_count_all = counts_all.iter().enumerate().any(|(other, all)| *all && other != index);
        let mut setting = sources::Setting {
            has_hash_key: common.has_hash_key,
            paths: classes.paths,
            others_count_all,
            untrusted: Vec::new(),
        };
        rules.extend(rule(reader, path, tree, &common, &mut names, &mut setting));
        untrusted.extend(setting.untrusted.into_iter().map(|path| (index, path)));
    }
    if rules.len() != items.len() {
        return None;
    }
    for (index, path) in untrusted {
        let open = open_classes(&rules, index, classes);
        if !open.is_empty() {
            let wanted = "write trusted: true if something before weir sets or checks this value, or limit these \
                          classes in a rule keyed by client_ip or constant";
            let wrong = "is not trusted, and no other rule limits all of the same requests";
            reader.note_choices(&path, Found::Nothing, wrong, wanted, open);
        }
    }
    Some(rules)
}

fn rule(
    reader: &mut Reader,
    path: &Path,
    tree: &Tree,
    common: &Common,
    names: &mut Vec<String>,
    setting: &mut sources::Setting,
) -> Option<Rule> {
    let fields = reader.object(path, tree, RULE)?;
    let name = reader
        .needed(&fields, "name", "write the name of the rule")
        .and_then(|(tree, path)| name(reader, &path, tree, names));
    if let Some((tree, path)) = fields.get("algorithm") {
        reader.word(&path, tree, &[("token_bucket", ())], &[]);
    }
    let mode = mode(reader, &fields);
    let sources = sources::read(reader, &fields, setting);
    let keys = Keys { sources: sources.as_deref(), hash_key: common.hash_key.clone() };
    let missing = match fields.get("missing") {
        Some((tree, path)) => missing(reader, &path, tree, &keys.hash_key),
        None => Some(Missing::As(keys.none("anonymous"))),
    };
    let is_lent = matches!(mode, Some(Mode::Lease(_)));
    let limits = limits::Setting { classes: common.classes, is_lent };
    let mut tiers = limits::read(reader, &fields, limits);
    let mut of_tenants = OfTenants::default();
    match fields.get("tier") {
        Some((tree, path)) => tier(reader, &path, tree, tiers.as_deref(), &keys, setting, &mut of_tenants),
        None => of_tenants.default = without_tier(reader, &fields, tiers.as_deref()),
    };
    if let Some((tree, path)) = fields.get("overrides") {
        overrides(reader, &path, tree, tiers.as_mut(), &keys, limits, &mut of_tenants);
    }
    let is_local = mode == Some(Mode::Local);
    let routing = routing::read(reader, &fields, &common.limiters, tiers.as_deref(), &keys, is_local);
    let on_error = match mode {
        // It asks nobody, so there is no failure to answer; what is written is for the day when the mode is another one.
        Some(Mode::Local) if fields.get("on_error").is_none() => Some(OnError::Deny),
        Some(Mode::Local) => on_error(reader, &fields).map(|_| OnError::Deny),
        _ => on_error(reader, &fields),
    };
    let shadow = reader.flag(&fields, "shadow_mode");
    let headers = match fields.get("headers") {
        Some((tree, path)) => reader.boolean(&path, tree),
        None => Some(true),
    };
    let idempotency = match fields.get("idempotency") {
        Some((tree, path)) => idempotency(reader, &path, tree).map(Some),
        None => Some(None),
    };
    if mode == Some(Mode::Local) || on_error == Some(OnError::Local) {
        let proxies = common.proxies.or_else(|| without_proxies(reader, common, path))?;
        limits::share(tiers.as_deref_mut().unwrap_or_default(), common.classes, proxies);
    }
    let Keys { hash_key, .. } = keys;
    let OfTenants { tenants, networks, sources: tier_sources, default } = of_tenants;
    match (name, sources, missing, default, tiers, mode, routing, on_error, shadow, idempotency, headers) {
        (
            Some(name),
            Some(sources),
            Some(missing),
            Some(default_tier),
            Some(tiers),
            Some(mode),
            Some(routing),
            Some(on_error),
            Some(shadow),
            Some(idempotency),
            Some(headers),
        ) => Some(Rule {
            name,
            sources,
            hash_key,
            missing,
            tenants,
            networks,
            tier_sources,
            default_tier,
            tiers,
            mode,
            routing,
            on_error,
            shadow,
            idempotency,
            headers,
        }),
        _ => None,
    }
}

/// A name that no rule before has: it stands in Redis keys.
fn name(reader: &mut Reader, path: &Path, tree: &Tree, names: &mut Vec<String>) -> Option<String> {
    let name = reader.name_at(path, tree)?;
    if names.contains(&name) {
        reader.note(path, Found::Text(name), "stands twice", "give each rule a name of its own");
        return None;
    }
    names.push(name.clone());
    Some(name)
}

/// Whether a rule counts every client, whatever it sends, and can refuse it: told before the rule is read, so that rules
/// before it may rely on it. What else is wrong with it is noted in its turn.
fn counts_all(rule: &Tree) -> bool {
    let Some(Tree::List(sources)) = field(rule, "key") else {
        return false;
    };
    // An address is nothing that a client makes up.
    let of_all = |source| field(source, "constant").or_else(|| field(source, "client_ip")).is_some();
    sources.first().is_some_and(of_all) && field(rule, "shadow_mode") != Some(&Tree::Bool(true))
}

fn field<'t>(tree: &'t Tree, word: &str) -> Option<&'t Tree> {
    let Tree::Map(pairs) = tree else {
        return None;
    };
    pairs.iter().find(|(key, _)| key == word).map(|(_, value)| value)
}

/// The classes that a rule limits and that no other rule limits for all clients together.
fn open_classes(rules: &[Rule], index: usize, classes: &Classes) -> Vec<String> {
    let allowance = |tier: &Tier, class: usize| {
        let entry = tier.entries.get(*tier.by_class.get(class)?)?;
        Some(entry.allowance)
    };
    let is_exempt = |class: usize| {
        let mut matches = classes.matches.iter().filter(|class_match| class_match.class == ClassId(class)).peekable();
        matches.peek().is_some() && matches.all(|class_match| class_match.exempt)
    };
    let limits = |class: usize| {
        let mut tiers = rules.get(index).into_iter().flat_map(|rule| &rule.tiers);
        tiers.any(|tier| matches!(allowance(tier, class), Some(Allowance::Limited(_))))
    };
    let is_limited_for_all = |class: usize| {
        let mut others = rules.iter().enumerate().filter(|(other, rule)| *other != index && !rule.shadow);
        others.any(|(_, rule)| {
            let tenant = match rule.sources.first() {
                Some(Source { label, origin: Origin::Constant(value), storage, .. }) => {
                    Some(Tenant::new(label, value.as_bytes(), *storage, &rule.hash_key))
                }
                // Where it yields nothing, the next source names the tenant, or nobody does.
                Some(Source { origin: Origin::ClientIp(..), .. })
                    if rule.missing != Missing::Skip && rule.sources.iter().all(|source| source.trusted) =>
                {
                    None
                }
                _ => return false,
            };
            let named = tenant.and_then(|tenant| rule.tier_of_tenant(&tenant));
            let is_limited = |tier: &Tier| allowance(tier, class) != Some(Allowance::Unlimited);
            if !rule.networks.tiers_of_all().all(|tier| rule.tiers.get(tier).is_some_and(is_limited)) {
                return false;
            }
            match named {
                Some(tier) => rule.tiers.get(tier).is_some_and(is_limited),
                None if rule.tier_sources.is_empty() => rule.tiers.get(rule.default_tier).is_some_and(is_limited),
                None => rule.tiers.iter().filter(|tier| !tier.name.is_empty()).all(is_limited),
            }
        })
    };
    let names = classes.names.iter().enumerate();
    let open = names.filter(|(class, _)| limits(*class) && !is_exempt(*class) && !is_limited_for_all(*class));
    open.map(|(_, name)| name.clone()).collect()
}

/// The mode, with its own words: those of another mode are noted.
fn mode(reader: &mut Reader, fields: &Fields) -> Option<Mode> {
    let lease = Mode::Lease(Terms::default());
    let words = [
        ("exact", Mode::Exact),
        ("lease", lease),
        ("async", Mode::Async { sync_interval: Ms(1000) }),
        ("local", Mode::Local),
    ];
    let mut mode = match fields.get("mode") {
        Some((tree, path)) => reader.word(&path, tree, &words, &[]),
        None => Some(lease),
    };
    // A value that could not be read is noted, so the default in its place is never used.
    match (fields.get("lease"), &mut mode) {
        (None, _) => {}
        (Some((tree, path)), None) => {
            terms(reader, &path, tree);
        }
        (Some((tree, path)), Some(Mode::Lease(own))) => *own = terms(reader, &path, tree),
        (Some((_, path)), Some(other)) => misplaced(reader, &path, *other, "leave it out, or write mode: lease"),
    }
    match (fields.get("sync_interval"), &mut mode) {
        (None, _) => {}
        (Some((tree, path)), None) => {
            interval(reader, &path, tree);
        }
        (Some((tree, path)), Some(Mode::Async { sync_interval })) => {
            *sync_interval = interval(reader, &path, tree).unwrap_or(*sync_interval);
        }
        (Some((_, path)), Some(other)) => misplaced(reader, &path, *other, "leave it out, or write mode: async"),
    }
    mode
}

fn misplaced(reader: &mut Reader, path: &Path, mode: Mode, wanted: &str) {
    let wrong = match mode {
        Mode::Exact => "has no meaning with mode: exact",
        Mode::Lease(_) => "has no meaning with mode: lease",
        Mode::Async { .. } => "has no meaning with mode: async",
        Mode::Local => "has no meaning with mode: local",
    };
    reader.note(path, Found::Nothing, wrong, wanted);
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { life: Ms(300_000), lend: 500 }
    }
}

fn terms(reader: &mut Reader, path: &Path, tree: &Tree) -> Terms {
    let mut terms = Terms::default();
    let Some(fields) = reader.object(path, tree, LEASE) else {
        return terms;
    };
    if let Some((tree, path)) = fields.get("life") {
        let wanted = ["write one integer and s, m or h, such as 300s", "write 1s to 1h"];
        terms.life = reader.duration_within(&path, tree, LEASE_LIFE, wanted).unwrap_or(terms.life);
    }
    if let Some((tree, path)) = fields.get("lend") {
        let wanted = "write the part of the burst that may be lent freely, from 0.1 to 0.9, such as 0.5";
        let lend = reader.thousandths(&path, tree, 0.1..=0.9, "is outside 0.1 to 0.9", wanted);
        terms.lend = lend.unwrap_or(terms.lend);
    }
    terms
}

fn interval(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Ms> {
    let wanted = ["write one integer and ms or s, such as 1s", "write 10ms to 60s"];
    reader.duration_within(path, tree, SYNC_INTERVAL, wanted)
}

fn idempotency(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Idempotency> {
    let fields = reader.object(path, tree, IDEMPOTENCY)?;
    let header = reader
        .needed(&fields, "header", "write the header that names a request, such as idempotency-key")
        .and_then(|(tree, path)| reader.header_name(&path, tree, HEADER));
    let keep = match fields.get("keep") {
        Some((tree, path)) => {
            let wanted = ["write one integer and s, m or h, such as 10m", "write 1s to 24h"];
            reader.duration_within(&path, tree, KEEP, wanted)
        }
        None => Some(Ms(600_000)),
    };
    Some(Idempotency { header: header?, keep: keep? })
}

fn on_error(reader: &mut Reader, fields: &Fields) -> Option<OnError> {
    const WANTED: &str = "choose what a request gets when the limiter fails: allow, deny or local";
    let (tree, path) = reader.needed(fields, "on_error", WANTED)?;
    let words = [("allow", OnError::Allow), ("deny", OnError::Deny), ("local", OnError::Local)];
    reader.word(&path, tree, &words, &[])
}

fn without_proxies(reader: &mut Reader, common: &Common, path: &Path) -> Option<u64> {
    if common.names_proxies {
        // Their problem has been noted already.
        return None;
    }
    let wanted = "write proxies: N at the top, among how many proxies the limit is divided";
    reader.note(path, Found::Nothing, "has local buckets, and the number of proxies is missing", wanted);
    None
}

fn missing(reader: &mut Reader, path: &Path, tree: &Tree, hash_key: &HashKey) -> Option<Missing> {
    const AS: Words = Words { built: &["as"], later: &[] };
    const WANTED: &str = "write deny, skip or {as: NAME}";
    match tree {
        Tree::Map(_) => {
            let fields = reader.object(path, tree, AS)?;
            let (tree, path) = reader.needed(&fields, "as", "write {as: NAME}")?;
            let name = reader.name_at(&path, tree)?;
            let tenant = Tenant::new(NONE, name.as_bytes(), Storage::Plain, hash_key);
            Some(Missing::As(tenant))
        }
        Tree::Text(text) if text == "deny" => Some(Missing::Deny),
        Tree::Text(text) if text == "skip" => Some(Missing::Skip),
        Tree::Text(text) => {
            reader.note(path, Found::Text(text.clone()), "is not known here", WANTED);
            None
        }
        _ => {
            reader.wrong_kind(path, tree, WANTED);
            None
        }
    }
}
