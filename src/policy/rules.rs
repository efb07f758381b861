//! The rules of a policy: whose requests are limited, and how.

use std::collections::HashMap;

use super::classes::DEFAULT;
use super::problem::{Found, Path};
use super::read::{Fields, Reader, Words, is_name};
use super::sources::NONE;
use super::tree::Tree;
use super::{Classes, Missing, OnError, Rule, Source, Tier, limits, sources};
use crate::tenant::{HashKey, Storage, Tenant};

const RULE: Words = Words {
    built: &["name", "limiter", "key", "missing", "tier", "mode", "limits", "on_error"],
    later: &["algorithm", "lease", "sync_interval", "overrides", "shadow_mode", "idempotency"],
};

const TIER: Words = Words { built: &["tenants", "default"], later: &["sources"] };

pub(super) fn read(reader: &mut Reader, fields: &Fields, classes: &Classes, hash_key: Option<HashKey>) -> Option<Rule> {
    const WANTED: &str = "write a list with one rule";
    let limiters = fields.get("limiters").map(|(tree, _)| tree);
    let (tree, path) = reader.needed(fields, "rules", WANTED)?;
    let rules: Vec<_> = reader.list(&path, tree, WANTED)?.collect();
    let [(path, tree)] = rules.as_slice() else {
        let found = Found::Number(i64::try_from(rules.len()).unwrap_or(i64::MAX));
        reader.note(&path, found, "rules", "write one; several are not built yet");
        return None;
    };
    let fields = reader.object(path, tree, RULE)?;
    let name = reader
        .needed(&fields, "name", "write the name of the rule")
        .and_then(|(tree, path)| reader.name_at(&path, tree));
    limiter(reader, &fields, limiters);
    mode(reader, &fields);
    let sources = sources::read(reader, &fields, hash_key.is_some());
    let keys = Keys { sources: sources.as_deref().unwrap_or_default(), hash_key: hash_key.unwrap_or_default() };
    let missing = match fields.get("missing") {
        Some((tree, path)) => missing(reader, &path, tree, &keys.hash_key),
        None => Some(Missing::As(keys.none("anonymous"))),
    };
    let tiers = limits::read(reader, &fields, classes);
    let (tenants, default_tier) = match fields.get("tier") {
        Some((tree, path)) => tier(reader, &path, tree, tiers.as_deref(), &keys)?,
        None => (HashMap::new(), without_tier(reader, &fields, tiers.as_deref())),
    };
    let on_error = reader
        .needed(&fields, "on_error", "choose what a request gets when the limiter fails: allow or deny")
        .and_then(|(tree, path)| {
            let words = [("allow", OnError::Allow), ("deny", OnError::Deny)];
            reader.word(&path, tree, &words, &["local"])
        });
    let hash_key = keys.hash_key;
    Some(Rule {
        name: name?,
        sources: sources?,
        hash_key,
        missing: missing?,
        tenants,
        default_tier: default_tier?,
        tiers: tiers?,
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

fn mode(reader: &mut Reader, fields: &Fields) {
    const WANTED: &str = "write mode: exact; the default, lease, is not built yet";
    if let Some((tree, path)) = reader.needed(fields, "mode", WANTED) {
        reader.word(&path, tree, &[("exact", ())], &["lease", "async", "local"]);
    }
}

/// What the tenants of a rule can be.
struct Keys<'s> {
    sources: &'s [Source],
    hash_key: HashKey,
}

impl Keys<'_> {
    fn none(&self, name: &str) -> Tenant {
        Tenant::new(NONE, name.as_bytes(), Storage::Plain, &self.hash_key)
    }
}

fn missing(reader: &mut Reader, path: &Path, tree: &Tree, hash_key: &HashKey) -> Option<Missing> {
    const AS: Words = Words { built: &["as"], later: &[] };
    match tree {
        Tree::Map(_) => {
            let fields = reader.object(path, tree, AS)?;
            let (tree, path) = reader.needed(&fields, "as", "write {as: NAME}")?;
            let name = reader.name_at(&path, tree)?;
            let tenant = Tenant::new(NONE, name.as_bytes(), Storage::Plain, hash_key);
            Some(Missing::As(tenant))
        }
        Tree::Text(_) => match reader.word(path, tree, &[("deny", false), ("skip", true)], &[])? {
            true => Some(Missing::Skip),
            false => Some(Missing::Deny),
        },
        _ => {
            reader.wrong_kind(path, tree, "write deny, skip or {as: NAME}");
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
    let listed = fields
        .get("tenants")
        .and_then(|(tree, path)| reader.chosen(&path, tree, "write tenant: tier, such as user.acme: gold"));
    for (text, path, tree) in listed.into_iter().flatten() {
        let tier = tier_index(reader, &path, tree, tiers);
        let (Some(tenant), Some(tier)) = (tenant(reader, &path, text, keys), tier) else {
            continue;
        };
        if tenants.insert(tenant, tier).is_some() {
            reader.note(&path, Found::Nothing, "is the same tenant as another entry", "write it once");
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
    let Some(source) = keys.sources.iter().find(|source| source.label == label) else {
        let mut labels: Vec<String> = keys.sources.iter().map(|source| source.label.clone()).collect();
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
        let wanted = "write label.~HASH: ~ and the first 32 hex digits of its HMAC-SHA-256";
        reader.note(path, Found::Nothing, "is the plain value of a secret source", wanted);
    }
    tenant
}
