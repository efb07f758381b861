//! The limits of a rule, by tier and class.

use std::rc::Rc;

use super::classes::DEFAULT;
use super::counting::{self, Counting};
use super::language::{LIMIT, LIST, NAME, Value};
use super::limit::{self, Limit, NoLimit};
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::tree::Tree;
use super::{BucketKind, ClassId, Classes, Mode};

/// The limits of one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name in the policy.
    pub name: String,
    /// The limits that differ.
    pub entries: Vec<Entry>,
    /// By [`ClassId`], an index into `entries`.
    pub by_class: Vec<usize>,
}

/// One limit of a tier: a bucket belongs to it, whichever of its classes a request is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A class or `default`; part of the Redis key.
    pub name: String,
    /// What it allows.
    pub allowance: Allowance,
}

/// What an entry allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Nothing: 403.
    Deny,
    /// Everything.
    Unlimited,
    /// What all of these limits allow, one at least; their periods differ.
    Limited(Vec<Bounded>),
}

/// A limit of an entry, and the buckets that it bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// Which of a tenant's buckets.
    pub kind: Rc<BucketKind>,
    /// What each of them holds.
    pub limit: Limit,
    /// The share of one proxy, where the rule needs one.
    pub own: Option<Limit>,
}

const LIMIT_TEXT: &str = "write requests/period with s, m, h or d, such as 10/m";

/// What the limits of a rule must fit.
#[derive(Clone, Copy)]
pub(super) struct Setting<'c> {
    /// The name of the rule; none where that could not be read.
    pub rule: &'c str,
    pub classes: &'c Classes,
    /// Where the tokens of the rule are; None where that could not be read.
    pub mode: Option<Mode>,
    /// How limits are counted that do not say.
    pub counting: Counting,
}

/// `limits`: a limit, or by tier a limit or limits by entry.
pub(super) fn read(reader: &mut Reader, fields: &Fields, setting: Setting) -> Option<Vec<Tier>> {
    let (tree, path) = reader.needed(fields, "limits")?;
    if !is_by_name(tree) {
        return Some(vec![tier_of(reader, &path, DEFAULT, tree, setting)?]);
    }
    let mut tiers = Vec::new();
    let mut complete = true;
    for (name, path, tree) in reader.chosen(&path, tree, fields.wanted("limits"))? {
        let is_name = reader.of_form(&path, name, &NAME);
        match tier_of(reader, &path, name, tree, setting) {
            Some(tier) if is_name => tiers.push(tier),
            _ => complete = false,
        }
    }
    if complete && tiers.is_empty() {
        reader.note(&path, Found::Nothing, "is empty", fields.wanted("limits"));
        return None;
    }
    complete.then_some(tiers)
}

/// An object is a limit exactly if it has `requests`; any other maps names to limits. So words that a limit gets later
/// take no name from tiers and classes.
///
/// `per` and `burst` are no names of entries either: an object with one of them is a limit whose requests are missing.
const NO_NAMES: [&str; 3] = ["requests", "per", "burst"];

/// Whether an object maps names to limits.
fn is_by_name(tree: &Tree) -> bool {
    match tree {
        Tree::Map(pairs) => !pairs.iter().any(|(key, _)| NO_NAMES.contains(&key.as_str())),
        _ => false,
    }
}

/// The limits of one tier, or of one tenant.
pub(super) fn tier_of(reader: &mut Reader, path: &Path, name: &str, tree: &Tree, setting: Setting) -> Option<Tier> {
    let Setting { classes, mode, .. } = setting;
    let mut entries: Vec<(Path, Entry)> = Vec::new();
    let mut complete = true;
    if is_by_name(tree) {
        for (name, path, tree) in reader.chosen(path, tree, LIMIT_TEXT)? {
            if !classes.names.iter().any(|class| class == name) {
                let wanted = "write default or a class that stands under classes";
                reader.note_choices(
                    &path,
                    Found::Nothing,
                    "is no class",
                    wanted,
                    classes.names.iter().map(String::as_str),
                );
                complete = false;
            }
            match entry(reader, &path, name, tree, setting) {
                Some(entry) => entries.push((path, entry)),
                None => complete = false,
            }
        }
    } else {
        entries.push((path.clone(), entry(reader, path, DEFAULT, tree, setting)?));
    }
    if complete && !entries.iter().any(|(_, entry)| entry.name == DEFAULT) {
        let wanted = "write a limit for the requests of all other classes; unlimited if there shall be none";
        reader.note(&path.word("default"), Found::Nothing, "is missing", wanted);
    }
    if !complete {
        return None;
    }
    let index_of = |name: &str| entries.iter().position(|(_, entry)| entry.name == name);
    let default = index_of(DEFAULT)?;
    let by_class: Vec<usize> = classes.names.iter().map(|class| index_of(class).unwrap_or(default)).collect();
    for (index, (path, entry)) in entries.iter().enumerate() {
        let costs = costs(classes, &by_class, index);
        for limit in entry.limits() {
            for cost in costs.clone().filter(|cost| *cost > limit.burst()) {
                let found = Found::Number(i64::try_from(limit.burst()).unwrap_or(i64::MAX));
                let wanted = format!("raise it to at least {cost}, or give that class an entry of its own");
                reader.note(path, found, limit.below_a_cost(), wanted);
            }
            if let Some(unfit) = mode.and_then(|mode| limit.unfit_for(mode.name())) {
                reader.note(path, Found::Nothing, unfit.wrong, unfit.wanted);
            }
        }
    }
    Some(Tier { name: name.to_owned(), entries: entries.into_iter().map(|(_, entry)| entry).collect(), by_class })
}

/// What requests take that meet an entry, given as an index.
fn costs(classes: &Classes, by_class: &[usize], entry: usize) -> impl Iterator<Item = u64> + Clone {
    let meets = move |class: ClassId| by_class.get(class.0) == Some(&entry);
    let matches = classes.matches.iter().filter(move |class_match| !class_match.exempt && meets(class_match.class));
    matches.map(|class_match| class_match.cost)
}

/// An allowance, or a list of limits that differ in algorithm or `per`: an entry of that name.
fn entry(reader: &mut Reader, path: &Path, name: &str, tree: &Tree, setting: Setting) -> Option<Entry> {
    let named = |allowance| Entry { name: name.to_owned(), allowance };
    let bounded = |limit| Bounded { kind: Rc::new(BucketKind::new(setting.rule, name, limit)), limit, own: None };
    let Tree::List(items) = tree else {
        return Some(named(match read_one(reader, path, tree, setting.counting)? {
            One::Deny => Allowance::Deny,
            One::Unlimited => Allowance::Unlimited,
            One::Limit(limit) => Allowance::Limited(vec![bounded(limit)]),
        }));
    };
    let mut limits: Vec<Limit> = Vec::new();
    let mut complete = true;
    for (path, tree) in reader.list(path, tree, LIMIT_TEXT)? {
        match read_one(reader, &path, tree, setting.counting) {
            Some(One::Limit(limit)) if limits.iter().any(|other| is_one_bucket(*other, limit)) => {
                let wanted = "keep the tighter one: the limits of a list differ in algorithm or per";
                reader.note(&path, Found::Nothing, "has the period of another limit", wanted);
            }
            Some(One::Limit(limit)) => limits.push(limit),
            Some(_) => {
                reader.note(&path, Found::Nothing, "is no limit, and stands in a list of them", LIMIT_TEXT);
            }
            None => complete = false,
        }
    }
    if let Value::List(list) = LIST {
        reader.is_as_many(path, items.len(), list.least, list.most);
    }
    let is_complete = complete && !limits.is_empty();
    is_complete.then(|| named(Allowance::Limited(limits.into_iter().map(bounded).collect())))
}

impl Entry {
    /// The limits that all hold: none where the word is `deny` or `unlimited`.
    pub fn limits(&self) -> impl Iterator<Item = Limit> {
        self.allowance.bounded().iter().map(|bounded| bounded.limit)
    }
}

impl Allowance {
    /// The limits with their buckets: none where the word is `deny` or `unlimited`.
    pub fn bounded(&self) -> &[Bounded] {
        match self {
            Allowance::Limited(limits) => limits,
            Allowance::Deny | Allowance::Unlimited => &[],
        }
    }
}

/// Whether a tier gives more to any class than another one does.
pub(super) fn gives_more(tiers: &[Tier], tier: Option<usize>, than: Option<usize>) -> bool {
    let entries = |index: Option<usize>| {
        let tier = index.and_then(|index| tiers.get(index));
        let entries = tier.map(|tier| tier.by_class.iter().filter_map(|entry| tier.entries.get(*entry)));
        entries.into_iter().flatten()
    };
    entries(tier).zip(entries(than)).any(|(one, other)| match (&one.allowance, &other.allowance) {
        (Allowance::Deny, _) | (_, Allowance::Unlimited) => false,
        (Allowance::Unlimited, _) | (_, Allowance::Deny) => true,
        // Less only where each limit of the other is met by one that is as tight.
        _ => !other.limits().all(|other| one.limits().any(|one| is_as_tight(one, other))),
    })
}

/// Whether two limits of an entry would be those of one bucket.
fn is_one_bucket(one: Limit, other: Limit) -> bool {
    (one.period(), one.script().format) == (other.period(), other.script().format)
}

/// Whether whatever one lets pass, the other does. Those of two algorithms are not compared.
fn is_as_tight(one: Limit, other: Limit) -> bool {
    if one.script().format != other.script().format {
        return false;
    }
    let rate = |of: Limit, per: Limit| u128::from(of.requests()).saturating_mul(u128::from(per.period().0));
    one.burst() <= other.burst() && rate(one, other) <= rate(other, one)
}

/// Gives each entry of a tier the share of one of so many proxies.
pub(super) fn share(tiers: &mut [Tier], classes: &Classes, proxies: u64) {
    for tier in tiers {
        for (index, entry) in tier.entries.iter_mut().enumerate() {
            let largest = costs(classes, &tier.by_class, index).max().unwrap_or(1);
            if let Allowance::Limited(limits) = &mut entry.allowance {
                limits.iter_mut().for_each(|bounded| bounded.own = Some(bounded.limit.share(proxies, largest)));
            }
        }
    }
}

/// A limit, or a word in place of one.
enum One {
    Deny,
    Unlimited,
    Limit(Limit),
}

fn read_one(reader: &mut Reader, path: &Path, tree: &Tree, counting: Counting) -> Option<One> {
    match tree {
        Tree::Text(text) if text == "deny" => Some(One::Deny),
        Tree::Text(text) if text == "unlimited" => Some(One::Unlimited),
        Tree::Text(text) => {
            let found = Found::LimitText(text.clone());
            match limit::numbers(text) {
                Some((requests, period)) => checked(reader, path, found, counting.limit(requests, period, None)),
                None => {
                    reader.note(path, found, "is no limit", LIMIT_TEXT);
                    None
                }
            }
        }
        Tree::Map(_) => limit_object(reader, path, tree, counting),
        Tree::Int(0) => checked(reader, path, Found::Number(0), Err(NoLimit::Zero)),
        _ => {
            reader.wrong_kind(path, tree, LIMIT_TEXT);
            None
        }
    }
}

fn limit_object(reader: &mut Reader, path: &Path, tree: &Tree, counting: Counting) -> Option<One> {
    let fields = reader.object(path, tree, &LIMIT)?;
    let requests = limit_number(reader, &fields, "requests");
    let period = reader.duration(&fields, "per");
    let burst = reader.if_written(&fields, "burst", limit_number);
    let counting = counting::of_limit(reader, &fields, counting);
    let limit = counting?.limit(requests?, period?, burst?);
    checked(reader, path, Found::Nothing, limit)
}

/// An integer, with the hint that 0 is a word.
fn limit_number(reader: &mut Reader, fields: &Fields, word: &'static str) -> Option<u64> {
    if let Some((Tree::Int(0), path)) = fields.get(word) {
        reader.note(&path, Found::Number(0), "allows nothing", "write the word deny in place of the whole limit");
        return None;
    }
    reader.integer(fields, word)
}

fn checked(reader: &mut Reader, path: &Path, found: Found, limit: Result<Limit, NoLimit>) -> Option<One> {
    match limit {
        Ok(limit) => return Some(One::Limit(limit)),
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
