//! The rules of a policy: whose requests are limited, and how.

use super::language::{IDEMPOTENCY, MISSING, ON_ERROR, RULE};
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::tenants::{Keys, OfTenants, overrides, tier, without_tier};
use super::tree::Tree;
use super::{Classes, Idempotency, Missing, Mode, OnError, Rule, Tier, counting, limits, mode, open, routing, sources};
use crate::tenant::HashKey;

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
    let common = Common {
        classes,
        limiters: routing::names(fields),
        has_hash_key: fields.get("hash_secret_env").is_some(),
        hash_key: hash_key.unwrap_or_default(),
        proxies,
        names_proxies: fields.get("proxies").is_some(),
    };
    let items = reader.items(fields, "rules")?;
    let (mut rules, mut names, mut untrusted) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (path, tree)) in items.iter().enumerate() {
        let (paths, has_hash_key) = (classes.paths, common.has_hash_key);
        let mut setting = sources::Setting { has_hash_key, paths, untrusted: Vec::new() };
        rules.push(rule(reader, path, tree, &common, &mut names, &mut setting));
        untrusted.extend(setting.untrusted.into_iter().map(|path| (index, path)));
    }
    for (index, path) in untrusted {
        let open = open::classes(&rules, index, classes);
        if !open.is_empty() {
            let wanted = "write trusted: true if something before weir sets or checks this value, or limit these \
                          classes in a rule keyed by client_ip or constant; a client that can make it up gets a fresh \
                          bucket for each invention";
            let wrong = "is not trusted, and no other rule limits all of the same requests";
            reader.note_choices(&path, Found::Nothing, wrong, wanted, open);
        }
    }
    let is_whole = rules.iter().all(|known| known.is_whole);
    let rules = rules.into_iter().filter_map(|known| known.rule).collect();
    is_whole.then_some(rules)
}

fn rule(
    reader: &mut Reader,
    path: &Path,
    tree: &Tree,
    common: &Common,
    names: &mut Vec<String>,
    setting: &mut sources::Setting,
) -> open::Known {
    let Some(fields) = reader.object(path, tree, &RULE) else {
        return open::Known { rule: None, is_whole: false, may_limit_all: true };
    };
    let name = name(reader, &fields, names);
    let counting = counting::of_rule(reader, &fields);
    let mode = mode::read(reader, &fields);
    let sources = sources::read(reader, &fields, setting);
    let keys = Keys { sources: sources.as_deref(), hash_key: common.hash_key.clone() };
    let missing = missing(reader, &fields, &keys);
    let limits = limits::Setting { rule: name.as_deref().unwrap_or_default(), classes: common.classes, mode, counting };
    let problems = reader.problems.len();
    let (mut tiers, of_tenants) = tiers(reader, &fields, limits, &keys, setting);
    let is_sure = reader.problems.len() == problems;
    let is_local = mode == Some(Mode::Local);
    let routing = routing::read(reader, &fields, &common.limiters, tiers.as_deref(), &keys, is_local);
    let on_error = on_error(reader, &fields, is_local);
    let (shadow, headers) = (reader.flag(&fields, "shadow_mode"), reader.flag(&fields, "headers"));
    let idempotency = reader.if_written(&fields, "idempotency", idempotency);
    let mut has_shares = true;
    if is_local || on_error == Some(OnError::Local) {
        match common.proxies.or_else(|| without_proxies(reader, common, path)) {
            Some(proxies) => limits::share(tiers.as_deref_mut().unwrap_or_default(), common.classes, proxies),
            None => has_shares = false,
        }
    }
    let (hash_key, OfTenants { tenants, networks, sources: tier_sources, default }) = (keys.hash_key, of_tenants);
    let is_whole = has_shares
        && name.is_some()
        && mode.is_some()
        && routing.is_some()
        && on_error.is_some()
        && idempotency.is_some()
        && headers.is_some();
    let looks_at_all = open::looks_at_all(sources.as_deref(), shadow);
    // In one go: what is dropped is dropped in one place, and the module is smaller.
    let rule = match (sources, missing, default, tiers, shadow) {
        (Some(sources), Some(missing), Some(default_tier), Some(tiers), Some(shadow)) => Some(Rule {
            // What says nothing of whose requests are limited may be made up, in a rule that is not whole.
            name: name.unwrap_or_default(),
            sources,
            hash_key,
            missing,
            tenants,
            networks,
            tier_sources,
            default_tier,
            tiers,
            mode: mode.unwrap_or(Mode::Exact),
            routing: routing.unwrap_or_default(),
            on_error: on_error.unwrap_or(OnError::Deny),
            shadow,
            idempotency: idempotency.flatten(),
            headers: headers.unwrap_or_default(),
        }),
        _ => None,
    };
    let is_known = rule.is_some();
    open::Known { rule, is_whole: is_whole && is_known, may_limit_all: looks_at_all && !(is_known && is_sure) }
}

/// A name that no rule before has: it stands in Redis keys.
fn name(reader: &mut Reader, fields: &Fields, names: &mut Vec<String>) -> Option<String> {
    let name = reader.text_of(fields, "name")?;
    if names.contains(&name) {
        let path = fields.path.word("name");
        reader.note(&path, Found::Text(name), "stands twice", "give each rule a name of its own");
        return None;
    }
    names.push(name.clone());
    Some(name)
}

/// The limits by tier, and after them those of single tenants; and who has which.
fn tiers(
    reader: &mut Reader,
    fields: &Fields,
    limits: limits::Setting,
    keys: &Keys,
    setting: &mut sources::Setting,
) -> (Option<Vec<Tier>>, OfTenants) {
    let mut tiers = limits::read(reader, fields, limits);
    let mut of_tenants = OfTenants::default();
    match fields.get("tier") {
        Some((tree, path)) => tier(reader, &path, tree, tiers.as_deref(), keys, setting, &mut of_tenants),
        None => of_tenants.default = without_tier(reader, fields, tiers.as_deref()),
    };
    if let Some((tree, path)) = fields.get("overrides") {
        overrides(reader, &path, tree, tiers.as_mut(), keys, limits, &mut of_tenants);
    }
    (tiers, of_tenants)
}

fn idempotency(reader: &mut Reader, fields: &Fields, word: &'static str) -> Option<Idempotency> {
    let fields = reader.object_of(fields, word, &IDEMPOTENCY)?;
    let (header, keep) = (reader.text_of(&fields, "header"), reader.duration(&fields, "keep"));
    Some(Idempotency { header: header?, keep: keep? })
}

fn on_error(reader: &mut Reader, fields: &Fields, is_local: bool) -> Option<OnError> {
    if fields.get("on_error").is_none() && !is_local {
        const WANTED: &str = "choose what a request gets when the limiter fails: allow, deny or local";
        reader.note(&fields.path.word("on_error"), Found::Nothing, "is missing", WANTED);
    }
    if !is_local {
        return reader.choice(fields, "on_error", ON_ERROR);
    }
    // It asks nobody, so there is no failure to answer; what is written is for the day when the mode is another one.
    let written = reader.if_written(fields, "on_error", |reader, fields, word| reader.choice(fields, word, ON_ERROR));
    written.map(|_| OnError::Deny)
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

fn missing(reader: &mut Reader, fields: &Fields, keys: &Keys) -> Option<Missing> {
    const WANTED: &str = "write deny, skip or {as: NAME}";
    let mut missing = None;
    reader.with(fields, "missing", &mut |reader, path, tree| match tree {
        Tree::Map(_) => {
            let name = reader.object(path, tree, &MISSING).and_then(|fields| reader.text_of(&fields, "as"));
            missing = name.map(|name| Missing::As(keys.none(&name)));
        }
        Tree::Text(text) if text == "deny" => missing = Some(Missing::Deny),
        Tree::Text(text) if text == "skip" => missing = Some(Missing::Skip),
        Tree::Text(text) => reader.note(path, Found::Text(text.clone()), "is not known here", WANTED),
        _ => reader.wrong_kind(path, tree, WANTED),
    });
    missing
}
