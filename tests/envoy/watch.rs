//! What watches weir asks for what is there: each metric, label and value that examples/alerts.yaml, the dashboard and
//! docs/operations.md name is one that a real Envoy exports; and promtool runs the tests of the alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use weir_stack::{Client, Scratch};

use crate::rig::{Options, Rig, of};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Something of everything that is counted: a rule that lends, one whose tenants do not all fit into the table, one that
/// refuses nothing.
const POLICY: &str = r#"{"version": 1, "proxies": 1, "table": {"entries": 64},
    "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": "2s",
        "breaker": {"failures": 5, "share": 0, "within": "60s", "probe_every": "200ms"}}},
    "rules": [
        {"name": "lent", "key": [{"header": {"name": "x-user-id", "as": "user", "trusted": true}}],
            "limits": "500/d", "on_error": "deny"},
        {"name": "own", "key": [{"header": {"name": "x-user-id", "as": "user", "trusted": true}}],
            "mode": "local", "limits": "3/d"},
        {"name": "try", "key": [{"constant": "all"}], "mode": "local", "limits": "1/d", "shadow_mode": true}]}"#;

/// Labels that Prometheus itself adds to what it gets of a proxy.
const ADDED: &str = "instance";

/// What workers do to each other cannot be had at will. tests/host/observed.rs has it counted.
const RARE: &str = "weir_shared_data_conflicts";

/// What is known of a metric: its labels, and their values.
#[derive(Clone, Default, Debug)]
struct Known {
    labels: BTreeSet<String>,
    values: BTreeSet<(String, String)>,
}

type Metrics = BTreeMap<String, Known>;

/// What an expression names.
#[derive(Default, Debug, PartialEq)]
struct Named {
    /// Metrics, each with the matchers of its selector: the label, and the values that it is to have or not to have.
    metrics: Vec<(String, Vec<(String, String)>)>,
    /// Labels that it groups or joins by.
    labels: Vec<String>,
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

/// Signs, words and texts of an expression; numbers and what stands in brackets mean no name.
fn tokens(expr: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expr;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_:.".contains(c);
    while let Some(first) = rest.chars().next() {
        let take = |end: Option<usize>| rest.split_at(end.unwrap_or_else(|| panic!("never ends: {rest}")));
        let after = &rest[first.len_utf8()..];
        match first {
            '"' => {
                let (text, _) = after.split_once('"').unwrap_or_else(|| panic!("never ends: {rest}"));
                assert!(!text.contains('\\'), "an escape, which this does not read: {text}");
                tokens.push(Token::Text(text.to_owned()));
                rest = &after[text.len() + 1..];
            }
            '[' => rest = &take(rest.find(']')).1[1..],
            c if is_word(c) => {
                let (word, left) = take(rest.find(|c| !is_word(c)).or(Some(rest.len())));
                if !c.is_ascii_digit() {
                    tokens.push(Token::Word(word.to_owned()));
                }
                rest = left;
            }
            c => {
                assert!(!"'`#".contains(c), "a sign that this does not read: {rest}");
                if !c.is_whitespace() {
                    tokens.push(Token::Sign(c));
                }
                rest = after;
            }
        }
    }
    tokens
}

fn named(expr: &str) -> Named {
    let mut named = Named::default();
    let mut tokens = tokens(expr).into_iter().peekable();
    while let Some(token) = tokens.next() {
        let Token::Word(word) = token else {
            assert_ne!(token, Token::Sign('{'), "a selector without a name: {expr}");
            continue;
        };
        let next = tokens.peek();
        match word.as_str() {
            "by" | "without" | "on" | "ignoring" | "group_left" | "group_right" => {
                if next == Some(&Token::Sign('(')) {
                    let labels = tokens.by_ref().take_while(|token| *token != Token::Sign(')'));
                    named
                        .labels
                        .extend(labels.filter_map(|token| if let Token::Word(of) = token { Some(of) } else { None }));
                }
            }
            "and" | "or" | "unless" | "bool" | "offset" => {}
            // A function, or an aggregation before what it groups by.
            _ if next == Some(&Token::Sign('(')) => {}
            _ if matches!(next, Some(Token::Word(next)) if next == "by" || next == "without") => {}
            _ => {
                let mut matchers = Vec::new();
                if next == Some(&Token::Sign('{')) {
                    let mut label = String::new();
                    for token in tokens.by_ref().take_while(|token| *token != Token::Sign('}')) {
                        match token {
                            Token::Word(word) => label = word,
                            Token::Text(value) => matchers.push((std::mem::take(&mut label), value)),
                            Token::Sign(_) => {}
                        }
                    }
                }
                named.metrics.push((word, matchers));
            }
        }
    }
    named
}

/// Asserts that all that an expression names is known; gives the labels that its result can have: those that it groups
/// by, and those of recorded metrics.
fn check(expr: &str, metrics: &Metrics) -> BTreeSet<String> {
    let named = named(expr);
    let mut all = BTreeSet::from([ADDED.to_owned()]);
    let mut recorded: BTreeSet<String> = named.labels.iter().cloned().collect();
    assert!(!named.metrics.is_empty(), "no metric in {expr}");
    for (name, matchers) in named.metrics {
        let known = metrics.get(&name).unwrap_or_else(|| panic!("Envoy exports no {name}, which is asked for: {expr}"));
        for (label, values) in matchers {
            assert!(known.labels.contains(&label), "{name} has no label {label}: {expr}");
            for value in values.split('|').filter(|value| !value.contains('$')) {
                let is_known = known.values.contains(&(label.clone(), value.to_owned()));
                assert!(is_known, "{name} never has {label}={value:?}, but {:?}: {expr}", known.values);
            }
        }
        all.extend(known.labels.iter().cloned());
        if name.contains(':') {
            recorded.extend(known.labels.iter().cloned());
        }
    }
    for label in &named.labels {
        assert!(all.contains(label), "no metric has the label {label}: {expr}");
    }
    recorded
}

/// What Envoy exports for Prometheus.
fn exported(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines().filter(|line| line.starts_with("weir_")) {
        let (name, rest) = line.split_once('{').expect("labels");
        let known = metrics.entry(name.to_owned()).or_default();
        // No value of ours holds a comma or a quotation mark.
        for pair in rest.split_once('}').expect("an end of labels").0.split(',') {
            let (label, value) = pair.split_once('=').expect("a label and its value");
            known.labels.insert(label.to_owned());
            known.values.insert((label.to_owned(), value.trim_matches('"').to_owned()));
        }
    }
    metrics
}

/// All metrics of a real Envoy that has done and suffered all that there is to count.
fn all_metrics() -> Metrics {
    let mut rig = Rig::start(POLICY, Options { envoys: 1, ..Options::default() });
    let send = |rig: &Rig, user: &str| Client::new(rig.envoys[0].port()).send(&of(user)).unwrap().status;
    let statuses: Vec<u16> = (0..4).map(|_| send(&rig, "bob")).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    // Each has an entry of two rules, in a table of 64.
    for user in 0..100 {
        assert_eq!(send(&rig, &format!("u{user}")), 200);
    }
    rig.webdis.kill();
    for user in 0..10 {
        assert_eq!(send(&rig, &format!("late{user}")), 503);
    }
    let read = |rig: &Rig| exported(&rig.envoys[0].admin("/stats/prometheus").unwrap().text());
    // Gauges follow with a tick, histograms are merged now and then, and one request in 32 is timed.
    let is_whole = |metrics: &Metrics| {
        let named = |name: &str| metrics.contains_key(name);
        named("weir_table_evictions") && named("weir_filter_microseconds_bucket") && named("weir_lease_tokens_bucket")
    };
    rig.envoys[0].wait_for(Duration::from_secs(15), |_| is_whole(&read(&rig)) && rig.counted("breaker_open.main") == 1);
    assert_eq!(rig.counted("breaker_open.main"), 1);
    let mut metrics = read(&rig);
    let source = include_str!("../../src/host/meters.rs");
    assert!(source.contains(&format!("{:?}", RARE.trim_start_matches("weir_"))), "meters.rs has no {RARE}");
    let namespace = metrics["weir_policy"].clone();
    metrics.insert(RARE.to_owned(), namespace);
    metrics
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// The rules of examples/alerts.yaml, in order.
fn rules() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(include_str!("../../examples/alerts.yaml")).expect("YAML");
    let groups = file["groups"].as_array().expect("groups");
    groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
}

/// The panels of the dashboard that ask for something, and the queries of its variables.
fn dashboard() -> (Vec<Value>, Vec<String>) {
    let file: Value = serde_json::from_str(include_str!("../../examples/dashboard.json")).expect("JSON");
    let panels = file["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row");
    let variables = file["templating"]["list"].as_array().expect("variables").iter();
    let queries = variables.filter(|variable| variable["type"] == "query");
    (panels.cloned().collect(), queries.map(|variable| text(&variable["query"]["query"]).to_owned()).collect())
}

/// What stands between these two, again and again.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Vec<&'t str> {
    text.split(open).skip(1).filter_map(|rest| Some(rest.split_once(close)?.0.trim())).collect()
}

#[test]
fn alerts_dashboard_and_page_name_what_a_real_envoy_exports() {
    let mut metrics = all_metrics();
    page(&metrics);
    let mut alerts = 0;
    for rule in rules() {
        let expr = text(&rule["expr"]);
        let labels = check(expr, &metrics);
        if let Some(name) = rule["record"].as_str() {
            let of = named(expr).metrics;
            let values = of.iter().flat_map(|(metric, _)| metrics[metric].values.clone()).collect();
            metrics.insert(name.to_owned(), Known { labels, values });
            continue;
        }
        alerts += 1;
        for part in [&rule["for"], &rule["labels"]["severity"]] {
            text(part);
        }
        for told in ["summary", "description"].map(|name| text(&rule["annotations"][name])) {
            for label in between(told, "$labels.", "}}") {
                assert!(labels.contains(label), "{label}, in {told}, is no label of {expr}");
            }
        }
    }
    assert_eq!(alerts, 10);
    let (panels, queries) = dashboard();
    assert_eq!((panels.len(), queries.len()), (17, 2));
    for query in queries {
        let (selector, label) = query.strip_prefix("label_values(").unwrap().rsplit_once(", ").expect("a label");
        check(&format!("sum by ({}) ({selector})", label.trim_end_matches(')')), &metrics);
    }
    for panel in panels {
        for part in ["title", "description"] {
            assert!(!text(&panel[part]).is_empty());
        }
        for target in panel["targets"].as_array().expect("targets") {
            let labels = check(text(&target["expr"]), &metrics);
            for label in between(text(&target["legendFormat"]), "{{", "}}") {
                assert!(labels.contains(label) || label == "policy", "{label} in the legend of {target}");
            }
        }
    }
}

/// The page of operations has a row for each metric, with its labels.
fn page(metrics: &Metrics) {
    let mut wanted = BTreeMap::new();
    for (name, known) in metrics {
        let labels: Vec<&str> = known.labels.iter().map(String::as_str).filter(|label| *label != "le").collect();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        wanted.insert(base.to_owned(), labels.join(" "));
    }
    let rows = include_str!("../../docs/operations.md").lines().filter(|line| line.starts_with("| `weir_"));
    let found: BTreeMap<String, String> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let mut labels: Vec<&str> = cells[2].split_whitespace().map(|label| label.trim_matches('`')).collect();
            labels.sort_unstable();
            (cells[1].trim_matches('`').to_owned(), labels.join(" "))
        })
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn names_are_found_in_any_expression() {
    let expr =
        r#"sum by (a, b) (rate(m_bucket{c=~"x|y", d!="z"}[5m])) / on (e) group_left n:r5m offset 1d > 3e4 or m * 0"#;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let wanted = Named {
        metrics: vec![
            ("m_bucket".to_owned(), vec![pair("c", "x|y"), pair("d", "z")]),
            ("n:r5m".to_owned(), Vec::new()),
            ("m".to_owned(), Vec::new()),
        ],
        labels: vec!["a".to_owned(), "b".to_owned(), "e".to_owned()],
    };
    assert_eq!(named(expr), wanted);
}

/// Runs promtool: that of `WEIR_PROMTOOL`, else the one that the workspace has installed for itself.
fn promtool(arguments: &[&str], file: &Path) {
    let tool = std::env::var_os("WEIR_PROMTOOL");
    let tool = tool.map_or_else(|| Path::new(ROOT).join(".tools/promtool"), PathBuf::from);
    assert!(tool.is_file(), "{} is missing; `make test-system` installs it", tool.display());
    let ran = Command::new(tool).args(arguments).arg(file).output().expect("promtool");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ran.status.success(), "{}{}", said(&ran.stdout), said(&ran.stderr));
}

#[test]
fn each_alert_fires_where_it_should_and_not_elsewhere() {
    let examples = Path::new(ROOT).join("examples");
    promtool(&["check", "rules"], &examples.join("alerts.yaml"));
    promtool(&["test", "rules"], &examples.join("alerts_test.yaml"));
    let tests = include_str!("../../examples/alerts_test.yaml");
    for name in rules().iter().filter_map(|rule| rule["alert"].as_str()) {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "no test has {name} fire");
    }
}

#[test]
fn prometheus_understands_what_the_dashboard_asks() {
    let targets = dashboard().0.into_iter().flat_map(|panel| panel["targets"].as_array().expect("targets").clone());
    let rule = |(number, target): (usize, Value)| {
        let expr = text(&target["expr"]).replace("$__rate_interval", "5m");
        json!({"record": "dashboard", "labels": {"number": number.to_string()}, "expr": expr})
    };
    let rules: Vec<Value> = targets.enumerate().map(rule).collect();
    let scratch = Scratch::new().unwrap();
    // JSON is YAML, too.
    let file = scratch.path().join("rules.yaml");
    std::fs::write(&file, json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).unwrap();
    promtool(&["check", "rules"], &file);
}
