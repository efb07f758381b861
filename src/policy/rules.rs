//! The rules of a policy: whose requests are limited, and how.

use std::collections::HashMap;

use super::classes::DEFAULT;
use super::problem::{Found, Path, bytes};
use super::read::{Fields, Reader, Words, is_name};
use super::sources::NONE;
use super::tree::Tree;
use super::{Classes, Missing, Mode, OnError, Rule, Source, Tier, limits, sources};
use crate::tenant::{HashKey, Storage, Tenant};

const RULE: Words = Words {
    built: &["name", "limiter", "key", "missing", "tier", "mode", "limits", "on_error"],
    later: &["algorithm", "lease", "sync_interval", "overrides", "shadow_mode", "idempotency"],
};

const TIER: Words = Words { built: &["tenants", "default"], later: &["sources"] };

pub(super) fn read(
    reader: &mut Reader,
    fields: &Fields,
    classes: &Classes,
    hash_key: Option<HashKey>,
    proxies: Option<u64>,
) -> Option<Rule> {
    // A variable that is named and absent has been noted already.
    let has_hash_key = fields.get("hash_secret_env").is_some();
    const WANTED: &str = "write a list with one rule";
    let limiters = fields.get("limiters").map(|(tree, _)| tree);
    let (tree, path) = reader.needed(fields, "rules", WANTED)?;
    let rules: Vec<_> = reader.list(&path, tree, WANTED)?.collect();
    let [(path, tree)] = rules.as_slice() else {
        let found = Found::Number(i64::try_from(rules.len()).unwrap_or(i64::MAX));
        reader.note(&path, found, "rules", "write exactly one (several are not built yet)");
        return None;
    };
    let (top, fields) = (fields, reader.object(path, tree, RULE)?);
    let name = reader
        .needed(&fields, "name", "write the name of the rule")
        .and_then(|(tree, path)| reader.name_at(&path, tree));
    limiter(reader, &fields, limiters);
    let mode = mode(reader, &fields);
    let sources = sources::read(reader, &fields, has_hash_key);
    let keys = Keys { sources: sources.as_deref(), hash_key: hash_key.unwrap_or_default() };
    let missing = match fields.get("missing") {
        Some((tree, path)) => missing(reader, &path, tree, &keys.hash_key),
        None => Some(Missing::As(keys.none("anonymous"))),
    };
    let mut tiers = limits::read(reader, &fields, classes);
    let (tenants, default_tier) = match fields.get("tier") {
        Some((tree, path)) => tier(reader, &path, tree, tiers.as_deref(), &keys).unwrap_or_default(),
        None => (HashMap::new(), without_tier(reader, &fields, tiers.as_deref())),
    };
    let on_error = match mode {
        Some(Mode::Local) => without_limiter(reader, &fields),
        _ => on_error(reader, &fields),
    };
    if mode == Some(Mode::Local) || on_error == Some(OnError::Local) {
        let proxies = proxies.or_else(|| without_proxies(reader, top, &fields))?;
        limits::share(tiers.as_deref_mut().unwrap_or_default(), classes, proxies);
    }
    let hash_key = keys.hash_key;
    Some(Rule {
        name: name?,
        sources: sources?,
        hash_key,
        missing: missing?,
        tenants,
        default_tier: default_tier?,
        tiers: tiers?,
        mode: mode?,
        on_error: on_error?,
    })
}

fn limiter(reader: &mut Reader, fields: &Fields, limiters: Option<&Tree>) {
    let Some((tree, path)) = fields.get("limiter") else {
        return;
    };
    let Some(name) = reader.text(&path, tree, "write the name of a limiter") else {
        return;
    };
    let names: Vec<String> = match limiters {
        Some(Tree::Map(pairs)) => pairs.iter().map(|(name, _)| name.clone()).collect(),
        _ => Vec::new(),
    };
    if !names.iter().any(|known| known == name) {
        let wanted = "write a name that stands under limiters";
        reader.note_choices(&path, Found::Text(name.to_owned()), "is no limiter", wanted, names);
    }
}

fn mode(reader: &mut Reader, fields: &Fields) -> Option<Mode> {
    const WANTED: &str = "write mode: exact or mode: local (the default, lease, is not built yet)";
    let (tree, path) = reader.needed(fields, "mode", WANTED)?;
    reader.word(&path, tree, &[("exact", Mode::Exact), ("local", Mode::Local)], &["lease", "async"])
}

fn on_error(reader: &mut Reader, fields: &Fields) -> Option<OnError> {
    const WANTED: &str = "choose what a request gets when the limiter fails: allow, deny or local";
    let (tree, path) = reader.needed(fields, "on_error", WANTED)?;
    let words = [("allow", OnError::Allow), ("deny", OnError::Deny), ("local", OnError::Local)];
    reader.word(&path, tree, &words, &[])
}

/// A rule that asks nobody has no failure to answer.
fn without_limiter(reader: &mut Reader, fields: &Fields) -> Option<OnError> {
    if let Some((_, path)) = fields.get("on_error") {
        reader.note(&path, Found::Nothing, "has no meaning with mode: local", "leave it out");
    }
    Some(OnError::Deny)
}

fn without_proxies(reader: &mut Reader, top: &Fields, fields: &Fields) -> Option<u64> {
    if top.get("proxies").is_some() {
        // Its problem has been noted already.
        return None;
    }
    let wanted = "write proxies: N at the top, among how many proxies the limit is divided";
    reader.note(&fields.path, Found::Nothing, "has local buckets, and the number of proxies is missing", wanted);
    None
}

/// What the tenants of a rule can be.
struct Keys<'s> {
    /// None where they could not be read: their problem is noted already.
    sources: Option<&'s [Source]>,
    hash_key: HashKey,
}

impl Keys<'_> {
    fn none(&self, name: &str) -> Tenant {
        Tenant::new(NONE, name.as_bytes(), Storage::Plain, &self.hash_key)
    }

    /// What people get of a tenant in a policy: where it may hold the value of a secret source, the label alone.
    fn told(&self, text: &str) -> String {
        let (label, value) = text.split_once('.').unwrap_or(("", text));
        let of_label = |source: &&Source| source.label == label;
        let may_be_secret = match self.sources {
            None => true,
            Some(sources) => match sources.iter().find(of_label) {
                Some(source) => source.storage == Storage::Secret && Tenant::from_hash(label, value).is_none(),
                None => label != NONE && sources.iter().any(|source| source.storage == Storage::Secret),
            },
        };
        if !may_be_secret {
            return text.to_owned();
        }
        let dot = if label.is_empty() { "" } else { "." };
        format!("{label}{dot}({})", bytes(value.len()))
    }
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

fn tier(
    reader: &mut Reader,
    path: &Path,
    tree: &Tree,
    tiers: Option<&[Tier]>,
    keys: &Keys,
) -> Option<(HashMap<Tenant, usize>, Option<usize>)> {
    let fields = reader.object(path, tree, TIER)?;
    let default = reader
        .needed(&fields, "default", "write the tier of tenants that no entry names")
        .and_then(|(tree, path)| tier_index(reader, &path, tree, tiers));
    let mut tenants = HashMap::new();
    let listed = fields.get("tenants").and_then(|(tree, path)| {
        reader.chosen_and_told(&path, tree, "write tenant: tier, such as user.acme: gold", |text| keys.told(text))
    });
    for (text, path, tree) in listed.into_iter().flatten() {
        let tier = tier_index(reader, &path, tree, tiers);
        if let (Some(tenant), Some(tier)) = (tenant(reader, &path, text, keys), tier) {
            tenants.insert(tenant, tier);
        }
    }
    Some((tenants, default))
}

fn tier_index(reader: &mut Reader, path: &Path, tree: &Tree, tiers: Option<&[Tier]>) -> Option<usize> {
    let name = reader.text(path, tree, "write the name of a tier")?;
    // Where the tiers could not be read, their problem is noted already.
    let tiers = tiers?;
    let index = tiers.iter().position(|tier| tier.name == name);
    if index.is_none() {
        let names = tiers.iter().map(|tier| tier.name.clone()).collect();
        let wanted = "write a tier that stands under limits";
        reader.note_choices(path, Found::Text(name.to_owned()), "is no tier", wanted, names);
    }
    index
}

/// A rule without `tier` has the one tier `default`.
fn without_tier(reader: &mut Reader, fields: &Fields, tiers: Option<&[Tier]>) -> Option<usize> {
    let tiers = tiers?;
    if let [only] = tiers
        && only.name == DEFAULT
    {
        return Some(0);
    }
    let wanted = "write tier: {default: NAME}, or limits: {default: {...}} to limit classes without tiers";
    let path = fields.path.word("limits");
    reader.note(&path, Found::Nothing, "has tiers, and the rule has no tier", wanted);
    None
}

/// A tenant as a policy writes it: `label.value`, the value as clients send it, or its hash where it is secret.
fn tenant(reader: &mut Reader, path: &Path, text: &str, keys: &Keys) -> Option<Tenant> {
    let Some((label, value)) = text.split_once('.').filter(|(_, value)| !value.is_empty()) else {
        reader.note(path, Found::Nothing, "is no tenant", "write label.value, such as user.acme");
        return None;
    };
    if label == NONE && is_name(value) {
        return Some(keys.none(value));
    }
    let sources = keys.sources?;
    let Some(source) = sources.iter().find(|source| source.label == label) else {
        let mut labels: Vec<String> = sources.iter().map(|source| source.label.clone()).collect();
        labels.push(NONE.to_owned());
        let wanted = "start with the label of a source of this rule";
        reader.note_choices(path, Found::Nothing, "has the label of no source", wanted, labels);
        return None;
    };
    if source.storage == Storage::Plain {
        return Some(Tenant::new(label, value.as_bytes(), Storage::Plain, &keys.hash_key));
    }
    let tenant = Tenant::from_hash(label, value);
    if tenant.is_none() {
        let wanted = "write label.~HASH: ~ and the first 32 hex digits, in lower case, of its HMAC-SHA-256";
        reader.note(path, Found::Nothing, "is no hash, and its source is secret", wanted);
    }
    tenant
}
