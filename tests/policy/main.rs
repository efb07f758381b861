//! Policies as people write them: what is wrong with the bad ones, word for word, and what the good ones mean.
//!
//! Beside `tests/policies/bad/NAME.yaml` (or `.json`) stands `NAME.txt`: the problems for people, one a line, then
//! `--- log` and the same for a log. `BLESS=1 cargo test --test policy` writes those files anew; read the difference.

mod bad;
mod limiters;
mod limits;
mod plans;

use std::fs;
use std::path::{Path, PathBuf};

use weir::clock::Ms;
use weir::policy::{Allowance, Entry, Environment, Limit, Policy, Problem, Rule, Tree};

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policies");

const ENVIRONMENT: Environment = &|name| match name {
    "WEIR_HASH_SECRET" => Some("secret".to_owned()),
    "WEIR_HASH_SECRET_NEWLINE" => Some("Basic c2VjcmV0\n".to_owned()),
    "WEIR_EMPTY" => Some(String::new()),
    _ => None,
};

/// The files of a folder with one of these extensions, in order.
fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(format!("{POLICIES}/{folder}"))
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)))
        .collect();
    files.sort();
    files
}

fn decode(path: &Path) -> Result<Policy, Vec<Problem>> {
    let text = fs::read_to_string(path).expect("a readable policy");
    match path.extension().is_some_and(|extension| extension == "yaml") {
        true => Policy::from_tree(&tree(&text), ENVIRONMENT),
        false => Policy::from_host(text.as_bytes(), ENVIRONMENT),
    }
}

fn tree(yaml: &str) -> Tree {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("no YAML: {error}\n{yaml}"))
}

#[test]
fn the_policies_of_the_examples_are_valid() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let folders = fs::read_dir(examples).expect("the folder is there").map(|entry| entry.expect("an entry").path());
    let policies: Vec<PathBuf> =
        folders.map(|folder| folder.join("policy.yaml")).filter(|path| path.is_file()).collect();
    assert_eq!(policies.len(), 8, "{policies:?}");
    for path in policies {
        let problems = decode(&path).err().unwrap_or_default();
        let told: Vec<String> = problems.iter().map(|problem| problem.for_people().to_string()).collect();
        assert!(told.is_empty(), "{}: {told:#?}", path.display());
    }
}

fn good(name: &str) -> Policy {
    decode(Path::new(&format!("{POLICIES}/good/{name}.yaml"))).unwrap_or_else(|problems| {
        let told: Vec<String> = problems.iter().map(|problem| problem.for_people().to_string()).collect();
        panic!("{name}: {told:#?}")
    })
}

fn only(policy: &Policy) -> &Rule {
    let [rule] = policy.rules.as_slice() else { panic!("{:?}", policy.rules) };
    rule
}

/// The shares of one proxy, by tier and entry: requests, period in seconds and burst.
fn own(rule: &Rule) -> Vec<Vec<Option<(u64, u64, u64)>>> {
    let told = |limit: Limit| (limit.requests(), limit.period().0 / 1000, limit.burst());
    rule.tiers.iter().map(|tier| tier.entries.iter().map(|entry| first_own(entry).map(told)).collect()).collect()
}

/// The share of one proxy in the first limit of an entry.
fn first_own(entry: &Entry) -> Option<Limit> {
    entry.allowance.bounded().first().and_then(|bounded| bounded.own)
}

/// What an entry allows, without the names of its buckets.
#[derive(Debug, PartialEq)]
enum Allowed {
    Deny,
    Unlimited,
    Limits(Vec<Limit>),
}

fn allowed(entry: &Entry) -> Allowed {
    match entry.allowance {
        Allowance::Deny => Allowed::Deny,
        Allowance::Unlimited => Allowed::Unlimited,
        Allowance::Limited(_) => Allowed::Limits(entry.limits().collect()),
    }
}

fn limit(requests: u64, seconds: u64, burst: u64) -> Allowed {
    Allowed::Limits(vec![Limit::new(requests, Ms(seconds * 1000), burst).expect("a limit")])
}

#[test]
fn every_good_policy_is_looked_at() {
    let names: Vec<String> = files("good", &["yaml"])
        .iter()
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into())
        .collect();
    let looked_at = [
        "by_class_without_tiers",
        "everything",
        "identity",
        "largest",
        "limiter_by_words_of_one",
        "limiters",
        "local",
        "local_with_on_error",
        "modes",
        "networks",
        "numbers_of_doubles",
        "observe",
        "several",
        "sixteen",
        "smallest",
        "windows",
    ];
    assert_eq!(names, looked_at);
}

#[test]
fn yaml_and_json_of_one_policy_are_one_tree() {
    let yaml = "{a: 1, b: [true, ~, 1.5, 1e3, \"text\"], c: {d: -1}}";
    let json = br#"{"a": 1, "b": [true, null, 1.5, 1e3, "text"], "c": {"d": -1}}"#;
    assert_eq!(Ok(tree(yaml)), Tree::from_host(json));
}
