//! What an editor and a reader of docs/reference.md are told of a policy is what the decoder does: words, defaults, bounds.
//!
//! `WEIR_BLESS=1 cargo test --features cli --test schema` writes the schema and the tables anew.
#![cfg(not(target_arch = "wasm32"))]

#[path = "../pages/mod.rs"]
mod pages;
mod policies;
mod presence;
#[path = "../../src/bin/weir/schema/mod.rs"]
mod schema;
mod sites;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jsonschema::Validator;
use policies::{BEYOND_A_SCHEMA, WORDS};
use weir::policy::{Policy, Problem, Tree};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn decode(tree: &Tree) -> Result<Policy, Vec<Problem>> {
    let environment = |name: &str| match name {
        "WEIR_EMPTY" => Some(String::new()),
        "WEIR_NO_SUCH" => None,
        "WEIR_HASH_SECRET_NEWLINE" => Some("Basic c2VjcmV0\n".to_owned()),
        _ => Some("a value".to_owned()),
    };
    Policy::from_tree(tree, &environment)
}

fn told(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| problem.for_people().to_string()).collect()
}

fn yaml(text: &str) -> Tree {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("no YAML: {error}\n{text}"))
}

struct Schema(Validator);

impl Schema {
    fn made() -> Schema {
        let json: serde_json::Value = serde_json::from_str(&schema::json()).expect("JSON");
        jsonschema::meta::validate(&json).expect("a JSON Schema");
        assert_eq!(json["$schema"], "https://json-schema.org/draft/2020-12/schema");
        Schema(jsonschema::draft202012::new(&json).expect("a schema that refers to nothing that is missing"))
    }

    fn takes(&self, tree: &Tree) -> bool {
        self.0.is_valid(&serde_json::to_value(tree).expect("JSON"))
    }

    /// What it says against a policy.
    fn against(&self, tree: &Tree) -> Vec<String> {
        let json = serde_json::to_value(tree).expect("JSON");
        self.0.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }
}

fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("{ROOT}/{folder}")).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_wanted = |path: &PathBuf| path.extension().is_some_and(|of| extensions.iter().any(|wanted| of == *wanted));
    let mut files: Vec<PathBuf> = paths.filter(is_wanted).collect();
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// The policies of the examples; its rules for alerts are YAML, too.
fn examples() -> Vec<PathBuf> {
    let mut files = files("examples", &["yaml"]);
    files.retain(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("alerts")));
    assert!(files.len() >= 2, "{files:?}");
    files
}

/// The policies that are good: of the tests, of the examples, of the pages and of this file.
fn good() -> Vec<(String, Tree)> {
    let mut good = Vec::new();
    for path in files("tests/policies/good", &["yaml"]).into_iter().chain(examples()) {
        good.push((name(&path), yaml(&fs::read_to_string(&path).expect("a readable policy"))));
    }
    assert!(good.len() >= 12, "{}", good.len());
    let before = good.len();
    let blocks = pages::all_blocks("yaml").into_iter().enumerate();
    good.extend(blocks.map(|(number, (page, block))| (format!("{page}, block {number}"), yaml(&block))));
    assert!(good.len() >= before + 5, "the pages have their policies");
    good.extend(WORDS.iter().enumerate().map(|(number, text)| (format!("words {number}"), yaml(text))));
    good
}

/// Whether a file or a part of one is as it is made; WEIR_BLESS=1 makes it so.
fn is_as_made(path: &str, found: &str, made: &str) {
    #[expect(clippy::disallowed_methods, reason = "a test is no core")]
    let bless = std::env::var_os("WEIR_BLESS").is_some();
    if bless {
        fs::write(format!("{ROOT}/{path}"), made).expect("a writable file");
    } else {
        let line = found.lines().zip(made.lines()).find(|(found, made)| found != made);
        assert!(found == made, "{path} is not as it is made; see the head of this file. First difference: {line:#?}");
    }
}

#[test]
fn the_schema_takes_every_good_policy() {
    let schema = Schema::made();
    for (name, tree) in good() {
        decode(&tree).unwrap_or_else(|problems| panic!("{name}: {:#?}", told(&problems)));
        assert!(schema.takes(&tree), "{name}: {:#?}", schema.against(&tree));
    }
}

#[test]
fn the_schema_refuses_every_bad_policy_that_a_schema_can() {
    let schema = Schema::made();
    let mut taken = BTreeMap::new();
    let bad = files("tests/policies/bad", &["yaml", "json"]);
    assert!(bad.len() >= 60, "{}", bad.len());
    for path in bad {
        let text = fs::read_to_string(&path).expect("a readable policy");
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        // A validator sees the last one of two fields of a name.
        let value: Result<serde_json::Value, _> = match is_json {
            true => serde_json::from_str(&text),
            false => Ok(serde_json::to_value(yaml(&text)).expect("JSON")),
        };
        match value {
            Ok(value) if schema.0.is_valid(&value) => taken.insert(name(&path), "it is taken"),
            Ok(_) => None,
            Err(_) => taken.insert(name(&path), "it is no JSON"),
        };
    }
    let listed: BTreeSet<&str> = BEYOND_A_SCHEMA.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed.len(), BEYOND_A_SCHEMA.len(), "a name stands twice");
    assert!(BEYOND_A_SCHEMA.iter().all(|(_, reason)| !reason.is_empty()));
    let not_listed: Vec<_> = taken.iter().filter(|(name, _)| !listed.contains(name.as_str())).collect();
    assert!(not_listed.is_empty(), "bad policies that the schema does not refuse: {not_listed:#?}");
    let refused: Vec<_> = listed.iter().filter(|name| !taken.contains_key(**name)).collect();
    assert!(refused.is_empty(), "listed, and refused or not there: {refused:#?}");
}

#[test]
fn the_tool_prints_what_is_shipped() {
    let weir = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("the tool runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(weir(&["schema"]), schema::json());
    assert_eq!(weir(&["schema", "--tables"]), schema::tables());
    let path = "examples/policy.schema.json";
    is_as_made(path, &fs::read_to_string(format!("{ROOT}/{path}")).unwrap_or_default(), &schema::json());
}

#[test]
fn the_tables_of_the_reference_are_made_from_the_language() {
    const START: &str = "<!-- made by: weir schema --tables -->\n\n";
    const END: &str = "<!-- end -->";
    const PAGE: &str = "docs/reference.md";
    let page = pages::page(PAGE);
    let (before, rest) = page.split_once(START).expect("where the tables start");
    let (_, after) = rest.split_once(END).expect("where the tables end");
    is_as_made(PAGE, &page, &format!("{before}{START}{}{END}{after}", schema::tables()));
}

#[test]
fn each_example_names_the_schema_for_editors() {
    for path in examples() {
        let text = fs::read_to_string(&path).expect("a readable policy");
        let line = text.lines().next().expect("a line");
        let schema =
            line.strip_prefix("# yaml-language-server: $schema=").unwrap_or_else(|| panic!("{path:?}: {line}"));
        assert!(path.parent().expect("a folder").join(schema).is_file(), "{path:?}: {schema}");
    }
}
