//! The limits of a rule, by tier and class.

use super::classes::DEFAULT;
use super::limit::{self, Limit, NoLimit};
use super::problem::{Found, Path};
use super::read::{Fields, Reader, Words};
use super::tree::Tree;
use super::{Allowance, ClassId, Classes, Entry, Tier};

const LIMIT: Words = Words { built: &["requests", "per", "burst"], later: &[] };

/// The smallest burst of which a part can be lent while a part stays.
const LENDABLE: u64 = 2;

const PERIOD: &str = "write one integer and s, m, h or d, such as 1m";

const LIMIT_TEXT: &str = "write requests/period with s, m, h or d, such as 10/m";

/// What the limits of a rule must fit.
#[derive(Clone, Copy)]
pub(super) struct Setting<'c> {
    pub classes: &'c Classes,
    /// Whether proxies borrow from the buckets.
    pub is_lent: bool,
}

/// `limits`: a limit, or by tier a limit or limits by entry.
pub(super) fn read(reader: &mut Reader, fields: &Fields, setting: Setting) -> Option<Vec<Tier>> {
    const WANTED: &str = "write a limit such as 100/m, or limits by tier";
    let (tree, path) = reader.needed(fields, "limits", WANTED)?;
    if !is_by_name(tree) {
        return Some(vec![tier_of(reader, &path, DEFAULT, tree, setting)?]);
    }
    let mut tiers = Vec::new();
    let mut complete = true;
    for (name, path, tree) in reader.chosen(&path, tree, WANTED)? {
        let name = reader.name(&path, name);
        match (&name, tier_of(reader, &path, name.as_deref().unwrap_or_default(), tree, setting)) {
            (Some(_), Some(tier)) => tiers.push(tier),
            _ => complete = false,
        }
    }
    if complete && tiers.is_empty() {
        reader.note(&path, Found::Nothing, "is empty", WANTED);
        return None;
    }
    complete.then_some(tiers)
}

/// Whether an object maps names to limits; one with a word of a limit is a limit.
fn is_by_name(tree: &Tree) -> bool {
    match tree {
        Tree::Map(pairs) => !pairs.iter().any(|(key, _)| LIMIT.built.contains(&key.as_str())),
        _ => false,
    }
}

fn tier_of(reader: &mut Reader, path: &Path, name: &str, tree: &Tree, setting: Setting) -> Option<Tier> {
    let Setting { classes, is_lent } = setting;
    let mut entries = Vec::new();
    let mut complete = true;
    if is_by_name(tree) {
        for (entry, path, tree) in reader.chosen(path, tree, LIMIT_TEXT)? {
            if !classes.names.iter().any(|class| class == entry) {
                let wanted = "write default or a class that stands under classes";
                reader.note_choices(&path, Found::Nothing, "is no class", wanted, classes.names.clone());
                complete = false;
            }
            match allowance(reader, &path, tree) {
                Some(allowance) => entries.push((path, entry, allowance)),
                None => complete = false,
            }
        }
    } else {
        let allowance = allowance(reader, path, tree)?;
        entries.push((path.clone(), DEFAULT, allowance));
    }
    if complete && !entries.iter().any(|(_, entry, _)| *entry == DEFAULT) {
        let wanted = "write a limit for the requests of all other classes; unlimited if there shall be none";
        reader.note(&path.word("default"), Found::Nothing, "is missing", wanted);
    }
    if !complete {
        return None;
    }
    let index_of = |name: &str| entries.iter().position(|(_, entry, _)| *entry == name);
    let default = index_of(DEFAULT)?;
    let by_class: Vec<usize> = classes.names.iter().map(|class| index_of(class).unwrap_or(default)).collect();
    for class_match in classes.matches.iter().filter(|class_match| !class_match.exempt) {
        let entry = by_class.get(class_match.class.0).and_then(|entry| entries.get(*entry));
        if let Some((path, _, Allowance::Limited(limit))) = entry
            && class_match.cost > limit.burst()
        {
            let found = Found::Number(i64::try_from(limit.burst()).unwrap_or(i64::MAX));
            let wanted = format!("raise it to at least {}, or give that class an entry of its own", class_match.cost);
            reader.note(path, found, "is a burst below the cost of a class that meets it", wanted);
        }
    }
    for (path, _, allowance) in &entries {
        if let Allowance::Limited(limit) = allowance
            && is_lent
            && limit.burst() < LENDABLE
        {
            let wanted = "raise the burst to at least 2, or write mode: exact";
            reader.note(path, Found::Nothing, "has a burst of 1, which cannot be lent", wanted);
        }
    }
    Some(Tier {
        name: name.to_owned(),
        entries: entries
            .into_iter()
            .map(|(_, entry, allowance)| Entry { name: entry.to_owned(), allowance, own: None })
            .collect(),
        by_class,
    })
}

/// Whether a tier gives more to any class than another one does.
pub(super) fn gives_more(tiers: &[Tier], tier: Option<usize>, than: Option<usize>) -> bool {
    let allowances = |index: Option<usize>| {
        let tier = index.and_then(|index| tiers.get(index));
        let entries = tier.map(|tier| tier.by_class.iter().filter_map(|entry| tier.entries.get(*entry)));
        entries.into_iter().flatten().map(|entry| entry.allowance)
    };
    allowances(tier).zip(allowances(than)).any(|(one, other)| match (one, other) {
        (Allowance::Deny, _) | (_, Allowance::Unlimited) => false,
        (Allowance::Unlimited, _) | (_, Allowance::Deny) => true,
        (Allowance::Limited(one), Allowance::Limited(other)) => {
            let rate = |of: Limit, per: Limit| u128::from(of.requests()).saturating_mul(u128::from(per.period().0));
            one.burst() > other.burst() || rate(one, other) > rate(other, one)
        }
    })
}

/// Gives each entry of a tier the share of one of so many proxies.
pub(super) fn share(tiers: &mut [Tier], classes: &Classes, proxies: u64) {
    for tier in tiers {
        for (index, entry) in tier.entries.iter_mut().enumerate() {
            let meets = |class: ClassId| tier.by_class.get(class.0) == Some(&index);
            let costs = classes.matches.iter().filter(|class_match| !class_match.exempt && meets(class_match.class));
            let largest = costs.map(|class_match| class_match.cost).max().unwrap_or(1);
            if let Allowance::Limited(limit) = entry.allowance {
                entry.own = Some(limit.share(proxies, largest));
            }
        }
    }
}

fn allowance(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Allowance> {
    match tree {
        Tree::Text(text) if text == "deny" => Some(Allowance::Deny),
        Tree::Text(text) if text == "unlimited" => Some(Allowance::Unlimited),
        Tree::Text(text) => {
            let found = Found::LimitText(text.clone());
            match limit::parse(text) {
                Some(limit) => checked(reader, path, found, limit),
                None => {
                    reader.note(path, found, "is no limit", LIMIT_TEXT);
                    None
                }
            }
        }
        Tree::Map(_) => limit_object(reader, path, tree),
        Tree::Int(0) => checked(reader, path, Found::Number(0), Err(NoLimit::Zero)),
        Tree::List(_) => {
            reader.note(path, Found::Ours("a list of limits"), "is not built yet", "write one limit");
            None
        }
        _ => {
            reader.wrong_kind(path, tree, LIMIT_TEXT);
            None
        }
    }
}

fn limit_object(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Allowance> {
    let fields = reader.object(path, tree, LIMIT)?;
    let requests = reader
        .needed(&fields, "requests", "write how many requests per period")
        .and_then(|(tree, path)| limit_number(reader, &path, tree));
    let period = reader.needed(&fields, "per", PERIOD).and_then(|(tree, path)| reader.duration(&path, tree, PERIOD));
    let burst = match fields.get("burst") {
        Some((tree, path)) => limit_number(reader, &path, tree),
        None => requests,
    };
    let limit = Limit::new(requests?, period?, burst?);
    checked(reader, path, Found::Nothing, limit)
}

/// An integer of at least 1, with the hint that 0 is a word.
fn limit_number(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<u64> {
    if matches!(tree, Tree::Int(0)) {
        reader.note(path, Found::Number(0), "allows nothing", "write the word deny in place of the whole limit");
        return None;
    }
    reader.count(path, tree)
}

fn checked(reader: &mut Reader, path: &Path, found: Found, limit: Result<Limit, NoLimit>) -> Option<Allowance> {
    match limit {
        Ok(limit) => return Some(Allowance::Limited(limit)),
        Err(NoLimit::Zero) => reader.note(path, found, "allows nothing", "write the word deny for that"),
        Err(NoLimit::Period) => {
            reader.note(path, found, "has a period out of range", "write per in whole seconds, from 1s to 31d")
        }
        Err(NoLimit::TooLarge) => reader.note(
            path,
            found,
            "is too large to be counted exactly",
            "keep burst x period in milliseconds, and requests, below 2^53",
        ),
    }
    None
}
