//! What an editor and a reader of the README are told of a policy is what the decoder does: words, defaults, bounds.
//!
//! `WEIR_BLESS=1 cargo test --features cli --test schema` writes the schema and the tables anew.
#![cfg(not(target_arch = "wasm32"))]

#[path = "../src/bin/weir/language/mod.rs"]
mod language;
#[path = "../src/bin/weir/schema/mod.rs"]
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jsonschema::Validator;
use language::{Map, Object, POLICY, Presence, SOURCES, Text, Value};
use weir::policy::{Found, Policy, Problem, Tree};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

const TWICE: &str = "a field that stands twice is one field to a validator";

const NO_JSON: &str = "it is no JSON, so there is nothing to look at";

const ENVIRONMENT: &str = "the environment is the proxy's";

const OTHER_RULES: &str = "which classes other rules limit for every client depends on their tiers and classes";

/// Bad policies that the schema takes, and why no schema can refuse them.
const BEYOND_A_SCHEMA: &[(&str, &str)] = &[
    ("all_of_the_page.yaml", ENVIRONMENT),
    ("auth_value_is_no_header_value.yaml", ENVIRONMENT),
    ("auth_variable_absent.yaml", ENVIRONMENT),
    ("class_twice_in_one.json", TWICE),
    ("cost_above_the_burst.yaml", "a cost of one place against a burst of another"),
    ("cost_above_the_burst_of_one_entry.yaml", "a cost of one place against a burst of another"),
    ("field_twice.json", TWICE),
    ("hash_secret_variable_absent.yaml", ENVIRONMENT),
    ("hash_secret_variable_empty.yaml", ENVIRONMENT),
    ("labels_the_same.yaml", "no two items may have one label, and labels may be left out"),
    ("limit_for_no_class.yaml", "the name of a class stands elsewhere"),
    ("limit_too_large.yaml", "a product of two fields"),
    ("limiter_twice.json", TWICE),
    ("networks_that_no_request_can_be_in.yaml", "what a value can be depends on the source of its label"),
    ("no_json.json", NO_JSON),
    ("no_json_cut_off.json", NO_JSON),
    ("no_json_nested_too_deeply.json", NO_JSON),
    ("overrides_of_no_source.yaml", "the label of a source stands elsewhere"),
    ("path_not_as_the_paths_of_the_policy.yaml", "the normal form depends on `paths`"),
    ("path_regex_without_the_feature.yaml", "it depends on how the module is built"),
    ("routing_twice.json", TWICE),
    ("rule_names_another_limiter.yaml", "the name of a limiter stands elsewhere"),
    ("rules_not_trusted_and_not_limited.yaml", OTHER_RULES),
    ("rules_not_trusted_and_not_limited_by_tier.yaml", OTHER_RULES),
    ("rules_not_trusted_beside_an_address_of_an_unlimited_tier.yaml", OTHER_RULES),
    ("rules_not_trusted_beside_an_address_or_another_header.yaml", OTHER_RULES),
    ("rules_not_trusted_beside_an_address_that_may_be_skipped.yaml", OTHER_RULES),
    ("tenant_of_a_secret_source_twice.json", TWICE),
    ("tenants_not_trusted.yaml", "whether one tier gives more than another is counted"),
    ("tenants_that_no_request_can_be.yaml", "what a value can be depends on the source of its label"),
    ("tier_and_entry_twice.json", TWICE),
    ("tier_unknown.yaml", "the name of a tier stands elsewhere"),
];

/// Policies with every word of the language, and few tenants: what is printed of a plan has an order then.
const WORDS: [&str; 3] = [
    r#"
version: 1
namespace: words
proxies: 10
table: {entries: 1000}
hash_secret_env: WEIR_HASH_SECRET
limiters:
  main:
    transport: webdis
    cluster: webdis
    authority: other
    timeout: 1s
    auth_env: WEIR_AUTH
    breaker: {failures: 3, share: 0.25, within: 2s, probe_every: 10ms}
    max_new_keys_per_second: 500
paths: {malformed: default, ignore_case: false, trailing_slash: distinct, strip_path_parameters: false}
classes:
  - {class: health, match: {path: /healthz}, exempt: true}
  - class: a
    match:
      methods: [GET]
      path: /a
      host: a.b
      headers: {x: {present: true}, x-b: {exact: z}}
      query: {q: {exact: v}, r: {present: true}}
      route_name: r
      route_metadata: {path: [weir, class], exact: x}
    cost: 2
  - {class: g, match: {methods: [POST], grpc: {service: s, method: m}}, exempt: false}
  - {class: g, match: {route_metadata: {path: [weir], present: true}}}
rules:
  - {name: everybody, key: [{constant: all}], mode: exact, limits: 1000/s, on_error: allow}
  - name: full
    limiter: main
    key:
      - header: {name: x-user, as: user, trusted: true, secret: false, doubled: refuse}
      - authorization: {scheme: bearer, as: bearer, trusted: false, doubled: refuse}
      - query: {name: q, as: q, trusted: false, secret: true, doubled: refuse}
      - cookie: {name: c, as: c, trusted: true, secret: true, doubled: refuse}
      - host: {as: h, trusted: true}
      - path_segment: {index: 2, as: s, trusted: true}
      - property: {path: [a, b], as: p, trusted: true, secret: true, type: number}
      - client_ip: {from: host, as: ip, ipv6_prefix: 56}
      - client_ip: {from: x_forwarded_for, as: forwarded, peer_appended: true, trusted_hops: 1, ipv6_prefix: 56}
      - constant: {value: rest, as: rest}
      - all: {sources: [{header: {name: x-org, secret: true}}, {path_segment: 1}, {host: {}}], as: two}
    missing: {as: nobody}
    tier:
      sources: [{header: {name: x-plan, trusted: true}}, {all: [{host: {trusted: true}}]}]
      tenants: {user.acme: gold}
      default: free
    algorithm: token_bucket
    mode: lease
    lease: {life: 60s, lend: 0.4}
    limits:
      free: {default: {requests: 600, per: 1s, burst: 100}, a: [10/s, 60/m]}
      gold: 1000/m
    on_error: local
    shadow_mode: true
    idempotency: {header: x-id, keep: 1h}
    headers: false
  - name: later
    key: [{header: {name: x, as: user, trusted: true}}, {header: {name: x-a, as: a, trusted: true}}]
    missing: deny
    mode: async
    sync_interval: 2s
    limits: {requests: 600, per: 1s, burst: 100}
    overrides: {user.big: {default: unlimited, a: 10/m}}
    on_error: deny
  - {name: share, key: [{client_ip: host}], mode: local, limits: 100/m}
response:
  status: 503
  content_type: text/plain
  body: "no"
  headers: [ratelimit]
  reset: seconds
  upstream_headers: keep
  retry_after_jitter: 0.2
observe: {secret_env: WEIR_HASH_SECRET, debug_header: x-why, top_path: /.weir/top, filter_state: true}
"#,
    r#"
version: 1
limiters: {main: {transport: webdis, cluster: webdis}}
classes:
  - {class: a, match: {path: /a}}
  - {class: h, match: {host: a.b}}
  - {class: v, match: {headers: {x: {exact: a}}}}
rules:
  - name: per-user
    key: [{header: {name: x-user-id, trusted: true}}]
    tier: {default: default}
    limits: 100/m
    on_error: allow
  - name: per-ip
    key: [{client_ip: {from: x_forwarded_for, peer_appended: true, trusted_hops: 1}}]
    mode: exact
    limits: {default: {requests: 600, per: 1s, burst: 100}}
    overrides: {none.anonymous: deny}
    on_error: allow
  - {name: later, key: [{constant: all}], mode: async, limits: 100/m, on_error: allow}
"#,
    r#"
version: 1
limiters: {main: {transport: webdis, cluster: webdis}, big: {transport: webdis, cluster: big}}
rules:
  - name: per-user
    limiter: {default: main, tiers: {gold: big}, tenants: {user.whale: big}}
    key: [{header: {name: x-user-id, as: user, trusted: true}}]
    tier: {default: free}
    limits: {free: 100/m, gold: 1000/m}
    on_error: allow
"#,
];

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

fn readme() -> String {
    fs::read_to_string(format!("{ROOT}/README.md")).expect("the README")
}

/// The policies of the examples; its rules for alerts are YAML, too.
fn examples() -> Vec<PathBuf> {
    let mut files = files("examples", &["yaml"]);
    files.retain(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("alerts")));
    assert!(files.len() >= 2, "{files:?}");
    files
}

/// The policies that are good: of the tests, of the examples, of the README and of this file.
fn good() -> Vec<(String, Tree)> {
    let mut good = Vec::new();
    for path in files("tests/policies/good", &["yaml"]).into_iter().chain(examples()) {
        good.push((name(&path), yaml(&fs::read_to_string(&path).expect("a readable policy"))));
    }
    assert!(good.len() >= 12, "{}", good.len());
    let readme = readme();
    let blocks = readme.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().expect("an end"));
    let before = good.len();
    good.extend(blocks.enumerate().map(|(number, block)| (format!("README, block {number}"), yaml(block))));
    assert!(good.len() >= before + 3, "the README has its policies");
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

/// One step from the root of a policy.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Item(usize),
}

/// Where the language's words stand in one policy.
#[derive(Default)]
struct Sites {
    objects: Vec<(Vec<Step>, &'static Object)>,
    /// Values that are neither objects nor lists of more than words.
    values: Vec<(Vec<Step>, &'static Value)>,
    /// Keys that a user chose.
    keys: Vec<(Vec<Step>, &'static Text)>,
}

impl Sites {
    fn of(tree: &Tree) -> Sites {
        let mut sites = Sites::default();
        sites.object(&POLICY, tree, &[]);
        sites
    }

    fn object(&mut self, object: &'static Object, tree: &Tree, at: &[Step]) {
        let Tree::Map(pairs) = tree else { panic!("{at:?}: {tree:?} is no {}", object.name) };
        self.objects.push((at.to_vec(), object));
        for (key, tree) in pairs {
            let field = object.fields.iter().find(|field| field.word == key);
            let field = field.unwrap_or_else(|| panic!("{at:?}: no field {key} of {}", object.name));
            self.value(&field.value, tree, &below(at, Step::Key(key.clone())));
        }
    }

    fn value(&mut self, value: &'static Value, tree: &Tree, at: &[Step]) {
        match (value, tree) {
            (Value::Object(object), _) => self.object(object, tree, at),
            (Value::List(of, ..), Tree::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(of, item, &below(at, Step::Item(index)));
                }
            }
            (Value::Map(Map { keys, of, .. }), Tree::Map(pairs)) => {
                for (key, tree) in pairs {
                    let at = below(at, Step::Key(key.clone()));
                    self.keys.push((at.clone(), keys));
                    self.value(of, tree, &at);
                }
            }
            (Value::Either(values), _) => {
                let value = values.iter().find(|value| fits(value, tree));
                self.value(value.unwrap_or_else(|| panic!("{at:?}: {tree:?} is none of them")), tree, at);
            }
            (Value::Named(_, value), _) => self.value(value, tree, at),
            (Value::Sources(_), Tree::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    let Tree::Map(pairs) = item else { panic!("{at:?}: {item:?} is no source") };
                    let [(word, tree)] = pairs.as_slice() else { panic!("{at:?}: {pairs:?} is no source") };
                    let source = SOURCES.iter().find(|source| source.word == word).expect("a kind of source");
                    let at = below(&below(at, Step::Item(index)), Step::Key(word.clone()));
                    match tree {
                        Tree::Map(_) => self.object(&source.object, tree, &at),
                        _ => {
                            let main = source.object.fields.iter().find(|field| Some(field.word) == source.main);
                            self.value(&main.expect("a main field").value, tree, &at);
                        }
                    }
                }
            }
            _ => self.values.push((at.to_vec(), value)),
        }
    }
}

fn below(at: &[Step], step: Step) -> Vec<Step> {
    [at, &[step]].concat()
}

/// Whether a value is meant as one of this kind.
fn fits(value: &Value, tree: &Tree) -> bool {
    match (value, tree) {
        (Value::Object(object), Tree::Map(pairs)) => {
            pairs.is_empty() || pairs.iter().any(|(key, _)| object.fields.iter().any(|field| field.word == key))
        }
        (Value::Map(_), Tree::Map(_)) | (Value::List(..), Tree::List(_)) | (Value::Number(_), Tree::Int(_)) => true,
        (Value::Word(words), Tree::Text(text)) => words.iter().any(|(word, _)| word == text),
        (Value::Limit, Tree::Text(text)) => text.contains('/'),
        (Value::Text(_), Tree::Text(_)) => true,
        (Value::Either(values), _) => values.iter().any(|value| fits(value, tree)),
        (Value::Named(_, value), _) => fits(value, tree),
        _ => false,
    }
}

fn at<'t>(tree: &'t mut Tree, path: &[Step]) -> &'t mut Tree {
    path.iter().fold(tree, |tree, step| match (tree, step) {
        (Tree::Map(pairs), Step::Key(key)) => {
            &mut pairs.iter_mut().find(|(name, _)| name == key).expect("a key that is there").1
        }
        (Tree::List(items), Step::Item(index)) => &mut items[*index],
        (tree, step) => panic!("no {step:?} in {tree:?}"),
    })
}

/// The policy with a field of an object written, written anew or left out.
fn with(tree: &Tree, path: &[Step], word: &str, value: Option<Tree>) -> Tree {
    let mut tree = tree.clone();
    let Tree::Map(pairs) = at(&mut tree, path) else { panic!("{path:?} is no object") };
    let place = pairs.iter().position(|(key, _)| key == word);
    match (place, value) {
        (Some(place), Some(value)) => pairs[place].1 = value,
        (None, Some(value)) => pairs.push((word.to_owned(), value)),
        (Some(place), None) => drop(pairs.remove(place)),
        (None, None) => {}
    }
    tree
}

fn replaced(tree: &Tree, path: &[Step], value: Tree) -> Tree {
    let mut tree = tree.clone();
    *at(&mut tree, path) = value;
    tree
}

fn renamed(tree: &Tree, path: &[Step], name: &str) -> Tree {
    let mut tree = tree.clone();
    let (Some(Step::Key(key)), parent) = (path.last(), &path[..path.len() - 1]) else { panic!("{path:?} has no key") };
    let Tree::Map(pairs) = at(&mut tree, parent) else { panic!("{parent:?} is no object") };
    let pair = pairs.iter_mut().find(|(name, _)| name == key).expect("a key that is there");
    name.clone_into(&mut pair.0);
    tree
}

fn json(text: &str) -> Tree {
    Tree::from_json(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// Every object of the language.
fn objects() -> Vec<&'static Object> {
    fn of_value(value: &'static Value, objects: &mut Vec<&'static Object>) {
        match value {
            Value::Object(object) => of_object(object, objects),
            Value::List(of, ..) | Value::Named(_, of) => of_value(of, objects),
            Value::Map(Map { of, .. }) => of_value(of, objects),
            Value::Either(values) => values.iter().for_each(|value| of_value(value, objects)),
            _ => {}
        }
    }
    fn of_object(object: &'static Object, objects: &mut Vec<&'static Object>) {
        if !objects.iter().any(|known| known.name == object.name) {
            objects.push(object);
            object.fields.iter().for_each(|field| of_value(&field.value, objects));
        }
    }
    let mut objects = Vec::new();
    of_object(&POLICY, &mut objects);
    SOURCES.iter().for_each(|source| of_object(&source.object, &mut objects));
    objects
}

#[test]
fn the_language_has_the_words_that_the_decoder_knows() {
    // Nothing is near to it, so that all that is known is named.
    const UNKNOWN: &str = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq";
    let known = |problems: &[Problem]| -> BTreeSet<String> {
        let unknown = |problem: &&Problem| matches!(&problem.found, Found::Field(name) if name == UNKNOWN);
        let told: Vec<&Problem> = problems.iter().filter(unknown).collect();
        let [problem] = told.as_slice() else { panic!("{problems:#?}") };
        let words = problem.wanted.strip_prefix("known: ").expect("what is known");
        words.split(", ").map(str::to_owned).collect()
    };
    let mut looked_at = BTreeSet::new();
    let schema = Schema::made();
    for (name, tree) in good() {
        for (path, object) in Sites::of(&tree).objects {
            let unknown = with(&tree, &path, UNKNOWN, Some(Tree::Null));
            assert!(!schema.takes(&unknown), "{name}, {path:?}");
            let problems = decode(&unknown).expect_err("an unknown field");
            let words: BTreeSet<String> = object.fields.iter().map(|field| field.word.to_owned()).collect();
            assert_eq!(known(&problems), words, "{name}, {path:?}");
            looked_at.insert(object.name);
        }
    }
    let all: BTreeSet<&str> = objects().iter().map(|object| object.name).collect();
    assert_eq!(looked_at, all);
    // Kinds of sources are words, too.
    let mut tree = yaml(WORDS[1]);
    *at(&mut tree, &[Step::Key("rules".to_owned()), Step::Item(0), Step::Key("key".to_owned()), Step::Item(0)]) =
        Tree::Map(vec![(UNKNOWN.to_owned(), Tree::Null)]);
    let kinds: BTreeSet<String> = SOURCES.iter().map(|source| source.word.to_owned()).collect();
    assert_eq!(known(&decode(&tree).expect_err("an unknown source")), kinds);
}

#[test]
fn each_closed_set_of_words_is_the_one_that_the_decoder_knows() {
    let schema = Schema::made();
    // Each word is taken somewhere: elsewhere another one may speak against it.
    let mut taken: BTreeMap<(String, &str), bool> = BTreeMap::new();
    for text in WORDS {
        let tree = yaml(text);
        for (path, value) in Sites::of(&tree).values {
            let Value::Word(words) = value else {
                continue;
            };
            let unknown = replaced(&tree, &path, Tree::Text("qqqq".to_owned()));
            assert!(!schema.takes(&unknown), "{path:?}");
            let problems = decode(&unknown).expect_err("no such word");
            let [problem, ..] = problems.as_slice() else { panic!("no problem") };
            // The words of a limit stand beside texts, and are not told with them.
            if !problem.wanted.contains("requests/period") {
                let wanted = problem.wanted.trim_start_matches("write ").trim_start_matches("one of: ");
                // So are other kinds of values that stand beside words.
                let wanted = wanted.trim_start_matches("400 or ").trim_end_matches(" or {as: NAME}");
                let words: BTreeSet<&str> = words.iter().map(|(word, _)| *word).collect();
                assert_eq!(wanted.split(", ").collect::<BTreeSet<_>>(), words, "{path:?}");
            }
            let keys = path.iter().rev().find_map(|step| match step {
                Step::Key(key) => Some(key.clone()),
                Step::Item(_) => None,
            });
            for (word, _) in *words {
                let tree = replaced(&tree, &path, Tree::Text((*word).to_owned()));
                let (is_decoded, is_valid) = (decode(&tree).is_ok(), schema.takes(&tree));
                assert!(is_valid || !is_decoded, "{path:?}: {word}: {:#?}", schema.against(&tree));
                *taken.entry((keys.clone().expect("a key"), *word)).or_default() |= is_decoded && is_valid;
            }
        }
    }
    assert!(taken.len() >= 30, "{}", taken.len());
    let never: Vec<_> = taken.into_iter().filter(|(_, taken)| !taken).map(|(word, _)| word).collect();
    // It needs two words more, so it cannot stand alone.
    assert_eq!(never, [("client_ip".to_owned(), "x_forwarded_for")]);
}

#[test]
fn what_is_required_is_refused_without_and_what_is_optional_is_not() {
    let schema = Schema::made();
    let mut fields = BTreeSet::new();
    for (name, tree) in good() {
        for (path, object) in Sites::of(&tree).objects {
            for field in object.fields {
                let without = with(&tree, &path, field.word, None);
                if without == tree {
                    continue;
                }
                let is_taken = schema.takes(&without);
                match decode(&without) {
                    Ok(_) => {
                        assert!(is_taken, "{name}, {path:?}, {}: {:#?}", field.word, schema.against(&without));
                        let is_required = matches!(field.presence, Presence::Required);
                        assert!(!is_required, "{name}, {path:?}: {} is not required", field.word);
                        fields.insert((object.name, field.word));
                    }
                    Err(_) if matches!(field.presence, Presence::Required) => {
                        assert!(!is_taken, "{name}, {path:?}: {} is required", field.word);
                        fields.insert((object.name, field.word));
                    }
                    Err(_) => {}
                }
            }
        }
    }
    // What cannot be left out alone, or stands in a module of another build.
    let needs_another = [
        ("client_ip", "peer_appended"),
        ("client_ip", "trusted_hops"),
        ("match", "path_regex"),
        ("observe", "secret_env"),
        ("policy", "hash_secret_env"),
        ("policy", "proxies"),
        ("route_metadata", "exact"),
        ("route_metadata", "present"),
        ("value", "exact"),
        ("value", "present"),
    ];
    assert_eq!(every_field().difference(&fields).copied().collect::<Vec<_>>(), needs_another);
}

fn every_field() -> BTreeSet<(&'static str, &'static str)> {
    objects().iter().flat_map(|object| object.fields.iter().map(|field| (object.name, field.word))).collect()
}

#[test]
fn each_default_is_what_happens_without_it() {
    let schema = Schema::made();
    let mut compared = BTreeSet::new();
    for text in WORDS {
        let tree = yaml(text);
        for (path, object) in Sites::of(&tree).objects {
            for field in object.fields {
                let default = match field.presence {
                    Presence::Default(text) => json(text),
                    Presence::Parts => Tree::Map(Vec::new()),
                    Presence::Required | Presence::Optional(_) => continue,
                };
                let without = with(&tree, &path, field.word, None);
                let written = with(&tree, &path, field.word, Some(default));
                let (Ok(mut plan), Ok(other)) = (decode(&without), decode(&written)) else {
                    continue;
                };
                // Two texts, and so two policies, though they say the same.
                plan.fingerprint = other.fingerprint;
                assert_eq!(format!("{plan:?}"), format!("{other:?}"), "{path:?}, {}", field.word);
                for tree in [without, written] {
                    assert!(schema.takes(&tree), "{path:?}, {}: {:#?}", field.word, schema.against(&tree));
                }
                compared.insert((object.name, field.word));
            }
        }
    }
    let has_default = |presence: &Presence| matches!(presence, Presence::Default(_) | Presence::Parts);
    let all = objects().into_iter().flat_map(|object| {
        let fields = object.fields.iter().filter(move |field| has_default(&field.presence));
        fields.map(|field| (object.name, field.word))
    });
    assert_eq!(compared, all.collect::<BTreeSet<_>>());
}

/// What stands at the bounds of a value, and next beyond them.
fn bounds(value: &Value) -> Option<(Vec<Tree>, Vec<Tree>)> {
    let text = |text: String| Tree::Text(text);
    Some(match value {
        Value::Integer(from, i64::MAX) => (vec![Tree::Int(*from)], vec![Tree::Int(from - 1)]),
        Value::Integer(from, to) => {
            (vec![Tree::Int(*from), Tree::Int(*to)], vec![Tree::Int(from - 1), Tree::Int(to + 1), Tree::Float(1.5)])
        }
        Value::Number(number) => (vec![Tree::Int(*number)], vec![Tree::Int(number - 1), Tree::Int(number + 1)]),
        Value::Tenths(from, to) => {
            let (from, to) = (*from as f64 / 10.0, *to as f64 / 10.0);
            let texts = [from, to, (from + to) / 2.0].map(|part| text(part.to_string()));
            let beyond = [from - 0.0001, to + 0.0001];
            let numbers = [Tree::Float(from), Tree::Float(to)].into_iter().chain(texts).collect();
            let others = beyond.map(Tree::Float).into_iter().chain(beyond.map(|part| text(format!("{part:.4}"))));
            (numbers, others.chain([text(".".to_owned()), text("0.5%".to_owned())]).collect())
        }
        Value::Duration(from, to) => durations(*from, *to, 1),
        Value::Seconds(from, to) => durations(from * 1000, to * 1000, 1000),
        _ => return None,
    })
}

/// Durations in every unit. Between whole seconds nothing is taken where they are wanted.
fn durations(from: u64, to: u64, step: u64) -> (Vec<Tree>, Vec<Tree>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for (unit, size) in [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)] {
        let jump = (step / size).max(1);
        let (least, most) = (from.div_ceil(size).next_multiple_of(jump), to / size / jump * jump);
        let tell = |number: u64| Tree::Text(format!("{number}{unit}"));
        if least <= most {
            let middle = (least + most) / 2 / jump * jump;
            inside.extend([least, most, middle, least + (most - least) / jump / 7 * jump].map(tell));
            inside.push(Tree::Text(format!("00{most}{unit}")));
        }
        if jump > 1 {
            outside.extend([least + 1, most - 1].map(tell));
        }
        outside.extend([least.saturating_sub(jump), most + jump].map(tell));
        outside
            .extend([format!("{least} {unit}"), format!("-{least}{unit}"), format!("{least}.0{unit}")].map(Tree::Text));
    }
    outside.extend(["", "1", "1w", "1us", "s", "99999999999999999999s"].map(|text| Tree::Text(text.to_owned())));
    (inside, outside)
}

#[test]
fn each_bound_is_kept_by_decoder_and_schema_alike() {
    let schema = Schema::made();
    // Which values have been taken somewhere: elsewhere another word may speak against them.
    let mut taken: BTreeMap<String, bool> = BTreeMap::new();
    for text in WORDS {
        let tree = yaml(text);
        for (path, value) in Sites::of(&tree).values {
            let Some((inside, outside)) = bounds(value) else {
                continue;
            };
            let Some(Step::Key(word)) = path.last() else { panic!("{path:?}") };
            for bound in inside {
                let tree = replaced(&tree, &path, bound.clone());
                let (is_decoded, is_valid) = (decode(&tree).is_ok(), schema.takes(&tree));
                assert!(is_valid || !is_decoded, "{path:?}: {bound:?}: {:#?}", schema.against(&tree));
                *taken.entry(format!("{word}: {bound:?}")).or_default() |= is_decoded && is_valid;
            }
            for beyond in outside {
                let tree = replaced(&tree, &path, beyond.clone());
                assert!(decode(&tree).is_err(), "{path:?}: {beyond:?} is decoded");
                assert!(!schema.takes(&tree), "{path:?}: {beyond:?} is valid");
            }
        }
    }
    assert!(taken.len() >= 100, "{}", taken.len());
    let never: Vec<_> = taken.iter().filter(|(_, taken)| !**taken).collect();
    assert!(never.is_empty(), "{never:#?}");
}

#[test]
fn each_list_is_as_long_as_both_say() {
    let schema = Schema::made();
    let tree = yaml(WORDS[1]);
    let rules = |count: usize| {
        let rule = |number: usize| {
            yaml(&format!("{{name: r{number}, key: [{{constant: all}}], limits: 9/m, on_error: deny}}"))
        };
        with(&tree, &[], "rules", Some(Tree::List((0..count).map(rule).collect())))
    };
    let limits = |count: usize| {
        let limits = ["10/s", "100/m", "1000/h", "10000/d"].map(|text| Tree::Text(text.to_owned()));
        let limits = limits.into_iter().chain([yaml("{requests: 9, per: 2d}")]).take(count).collect();
        with(&tree, &[Step::Key("rules".to_owned()), Step::Item(0)], "limits", Some(Tree::List(limits)))
    };
    let takes = |tree: &Tree| (decode(tree).is_ok(), schema.takes(tree));
    for (of, most) in [(&rules as &dyn Fn(usize) -> Tree, 16), (&limits, 4)] {
        for (count, is_taken) in [(0, false), (1, true), (most, true), (most + 1, false)] {
            assert_eq!(takes(&of(count)), (is_taken, is_taken), "{count} of {most}");
        }
    }
}

#[test]
fn each_limit_is_as_large_as_both_say() {
    let schema = Schema::made();
    let tree = yaml(WORDS[1]);
    let rule = [Step::Key("rules".to_owned()), Step::Item(0)];
    for mode in ["exact", "lease"] {
        let least = if mode == "lease" { 2 } else { 1 };
        let tree = with(&tree, &rule, "mode", Some(Tree::Text(mode.to_owned())));
        for (unit, ms) in [("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000_u64)] {
            for (burst, is_taken) in [(0, false), (least - 1, false), (least, true)] {
                for text in [
                    format!("{{requests: {burst}, per: 1{unit}}}"),
                    format!("{{requests: 5, per: 1{unit}, burst: {burst}}}"),
                    format!("{{default: {{requests: {burst}, per: 1{unit}}}}}"),
                    format!("{{default: {{default: [5/s, {{requests: {burst}, per: 2{unit}}}]}}}}"),
                ] {
                    let tree = with(&tree, &rule, "limits", Some(yaml(&text)));
                    assert_eq!((decode(&tree).is_ok(), schema.takes(&tree)), (is_taken, is_taken), "{mode}, {text}");
                }
            }
            let most = ((1 << 53) - 1) / ms;
            for (requests, is_taken) in [(0, false), (least - 1, false), (least, true), (most, true), (most + 1, false)]
            {
                for text in [format!("{requests}/{unit}"), format!("0{requests}/{unit}")] {
                    let tree = with(&tree, &rule, "limits", Some(Tree::Text(text.clone())));
                    assert_eq!((decode(&tree).is_ok(), schema.takes(&tree)), (is_taken, is_taken), "{mode}, {text}");
                }
            }
        }
    }
}

/// Texts of every kind, good and bad.
const TEXTS: [&str; 92] = [
    "",
    " ",
    "a",
    "A",
    "z9",
    "_-0",
    "a b",
    " a",
    "a ",
    "é",
    "a\n",
    "\u{0}",
    "a\u{0}b",
    "1",
    "1A",
    "A1",
    "_A",
    "A-B",
    "default",
    "none",
    "requests",
    "per",
    "burst",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "GET",
    "get",
    "M-SEARCH",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "x-user-id",
    "X-User-Id",
    ":path",
    "a:b",
    "a,b",
    "!#$%&'*+-.^_`|~",
    "text/plain; charset=utf-8",
    "\"a\"",
    "a\tb",
    "/",
    "//",
    "/a",
    "/a/",
    "//a",
    "/a//b",
    "a/b",
    "/a/b/",
    "/.",
    "/..",
    "/...",
    "/.a",
    "/..a",
    "/a/../b",
    "/a/./b",
    "/a/..",
    "/a?b",
    "/a#b",
    "/a b",
    "/é",
    "/%7e",
    "/%7E",
    "/%7B",
    "/%2F",
    "/%2f",
    "/%2D",
    "/%41",
    "/%00",
    "/%0A",
    "/%C3%A9",
    "/%",
    "/%zz",
    "/a%3A",
    "/a:@!$&'()+,;=-._~",
    "/[",
    "/a|b",
    "/{a}",
    "/{a_1}/b",
    "/{}",
    "/{a-b}",
    "/a{b}",
    "/**",
    "/a/**",
    "//**",
    "/a/**/b",
    "/*",
    "/a*",
    "*.a.b",
    "*",
    "a.b.",
    "a.b:80",
    "[::1]",
    "[",
];

#[test]
fn each_kind_of_text_is_read_by_decoder_and_schema_alike() {
    let schema = Schema::made();
    // Where a name has to stand elsewhere, too, the decoder refuses more: for each kind there is a place where it
    // does not.
    let mut differing: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut probe = |kind: &'static Text, place: &str, of: &dyn Fn(&str) -> Tree| {
        let mut differs = BTreeSet::new();
        for text in TEXTS.iter().chain(&["none.a", "none.A", "user.a", "user.", "user", "none."]) {
            let tree = of(text);
            let (is_decoded, is_valid) = (decode(&tree).is_ok(), schema.takes(&tree));
            assert!(is_valid || !is_decoded, "{place}: {text:?} is decoded: {:#?}", schema.against(&tree));
            if is_decoded != is_valid {
                differs.insert((*text).to_owned());
            }
        }
        let known = differing.entry(kind.name).or_insert_with(|| differs.clone());
        known.retain(|text| differs.contains(text));
    };
    for text in WORDS {
        let tree = yaml(text);
        let sites = Sites::of(&tree);
        for (path, value) in &sites.values {
            if let Value::Text(kind) = value {
                probe(kind, &format!("{path:?}"), &|text| replaced(&tree, path, Tree::Text(text.to_owned())));
            }
        }
        for (path, kind) in &sites.keys {
            probe(kind, &format!("{path:?}"), &|text| renamed(&tree, path, text));
        }
    }
    let differing: BTreeMap<_, _> = differing.into_iter().filter(|(_, texts)| !texts.is_empty()).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn a_word_in_the_wrong_place_is_refused_by_both() {
    let schema = Schema::made();
    // A value that stands somewhere for each field.
    let trees: Vec<Tree> = WORDS.iter().map(|text| yaml(text)).collect();
    let mut values: BTreeMap<(&str, &str), Tree> = BTreeMap::new();
    for tree in &trees {
        for (path, object) in Sites::of(tree).objects {
            if let Tree::Map(pairs) = at(&mut tree.clone(), &path) {
                for (key, value) in pairs {
                    let word = object.fields.iter().find(|field| field.word == key).expect("a field").word;
                    values.insert((object.name, word), value.clone());
                }
            }
        }
    }
    let mut looked_at = 0;
    for tree in &trees {
        for (path, object) in Sites::of(tree).objects {
            for case in object.cases {
                // As the case is, with what it needs and without what it refuses.
                let mut right = with(tree, &path, case.field, Some(json(case.is)));
                for field in object.fields.iter().filter(|field| field.word != case.field) {
                    let is_needed = case.needs.contains(&field.word) || matches!(field.presence, Presence::Required);
                    if case.refuses.contains(&field.word)
                        || object.cases.iter().any(|other| other.refuses.contains(&field.word) && !is_needed)
                    {
                        right = with(&right, &path, field.word, None);
                    } else if is_needed {
                        right = with(&right, &path, field.word, values.get(&(object.name, field.word)).cloned());
                    }
                }
                if decode(&right).is_err() {
                    continue;
                }
                assert!(schema.takes(&right), "{path:?}, {}: {:#?}", case.is, schema.against(&right));
                for word in case.refuses {
                    let wrong = with(&right, &path, word, values.get(&(object.name, word)).cloned());
                    assert_ne!(wrong, right, "{path:?}, {word}");
                    assert!(decode(&wrong).is_err(), "{path:?}, {}: {word} is decoded", case.is);
                    assert!(!schema.takes(&wrong), "{path:?}, {}: {word} is valid", case.is);
                    looked_at += 1;
                }
                for word in case.needs {
                    let wrong = with(&right, &path, word, None);
                    assert!(decode(&wrong).is_err(), "{path:?}, {}: without {word} it is decoded", case.is);
                    assert!(!schema.takes(&wrong), "{path:?}, {}: without {word} it is valid", case.is);
                    looked_at += 1;
                }
            }
        }
    }
    assert!(looked_at >= 20, "{looked_at}");
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
fn the_tables_of_the_readme_are_made_from_the_language() {
    const START: &str = "<!-- made by: weir schema --tables -->\n\n";
    const END: &str = "<!-- end -->";
    let readme = readme();
    let (before, rest) = readme.split_once(START).expect("where the tables start");
    let (_, after) = rest.split_once(END).expect("where the tables end");
    is_as_made("README.md", &readme, &format!("{before}{START}{}{END}{after}", schema::tables()));
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
