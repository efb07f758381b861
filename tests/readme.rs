//! What the README says is so: its policies are valid, its messages are the ones that are given, its commands work.
#![cfg(not(target_arch = "wasm32"))]

use std::fs;
use std::path::Path;
use std::process::Command;

use weir::policy::{Limit, Policy, Tree};
use weir::tenant::{HashKey, Storage, Tenant};

const README: &str = include_str!("../README.md");

/// The text of each fenced block of a language, indentation taken off.
fn blocks(language: &str) -> Vec<String> {
    blocks_of(README, language)
}

fn blocks_of(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        let Some(of) = text.strip_prefix("```") else {
            continue;
        };
        let indent = line.len() - text.len();
        let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
        let block: String = block.map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n").collect();
        if of == language {
            blocks.push(block);
        }
    }
    blocks
}

fn decode(yaml: &str) -> Result<Policy, Vec<String>> {
    let tree: Tree = serde_saphyr::from_str(yaml).expect("YAML");
    let environment = |name: &str| name.starts_with("WEIR_").then(|| "a value".to_owned());
    let people = |problems: Vec<weir::policy::Problem>| {
        problems.iter().map(|problem| problem.for_people().to_string()).collect()
    };
    Policy::from_tree(&tree, &environment).map_err(people)
}

#[test]
fn its_policies_are_valid_and_their_defaults_are_the_ones_it_names() {
    let policies: Vec<Policy> = blocks("yaml").iter().map(|yaml| decode(yaml).unwrap()).collect();
    let [whole, smallest, _words, limiters] = policies.as_slice() else {
        panic!("four policies, found {}", policies.len());
    };
    // Where the long one says "default", it says what the short one gets.
    assert_eq!(whole.response, smallest.response);
    assert_eq!(whole.namespace, smallest.namespace);
    assert_eq!(whole.limiters.first().timeout, smallest.limiters.first().timeout);
    assert_eq!(whole.limiters.first().breaker, smallest.limiters.first().breaker);
    assert_eq!(whole.table_entries, smallest.table_entries);
    assert_eq!(whole.limiters.first().authority, smallest.limiters.first().authority);
    assert_eq!(whole.rules[0].missing, smallest.rules[0].missing);
    assert_eq!(whole.rules[0].mode, smallest.rules[0].mode);
    assert_eq!(whole.rules[0].shadow, smallest.rules[0].shadow);
    let minute = weir::clock::Ms(60_000);
    assert_eq!(
        smallest.rules[0].tiers[0].entries[0].limits().collect::<Vec<_>>(),
        [Limit::new(100, minute, 100).unwrap()]
    );
    let limiter_of = |user: &str, tier| {
        let tenant = Tenant::new("user", user.as_bytes(), Storage::Plain, &HashKey::default());
        &limiters.limiters.get(limiters.rules[0].routing.limiter_of(&tenant, tier)).name
    };
    assert_eq!([limiter_of("alice", 0), limiter_of("acme", 1), limiter_of("whale", 0)], ["main", "big", "own"]);
}

#[test]
fn the_demo_shows_the_policy_that_the_examples_hold() {
    let demo = include_str!("../examples/policy.yaml");
    decode(demo).unwrap();
}

#[test]
fn the_policy_of_the_patterns_is_valid() {
    let patterns = decode(include_str!("../examples/patterns.yaml")).unwrap();
    assert!(patterns.response.x_ratelimit && patterns.response.ratelimit);
}

#[test]
fn its_error_is_the_one_that_people_get() {
    let said = README.split('`').find(|text| text.contains("\"10/x\" is no limit")).expect("an example of an error");
    let whole = blocks("yaml").remove(0).replace("read: unlimited", "read: 10/x");
    assert_eq!(decode(&whole).unwrap_err(), [said]);
}

#[test]
fn its_openssl_line_prints_a_tenant_as_the_module_does() {
    let line = blocks("sh").into_iter().find(|block| block.contains("openssl")).expect("the openssl line");
    let shell = Command::new("sh")
        .args(["-c", &line])
        .env("API_KEY", "key 7/ä")
        .env("WEIR_HASH_SECRET", "hush")
        .output()
        .expect("a shell");
    let tenant = Tenant::new("key", "key 7/ä".as_bytes(), Storage::Secret, &HashKey::new("hush"));
    assert_eq!(String::from_utf8_lossy(&shell.stdout), format!("{}\n", tenant.as_str()));
}

#[test]
fn its_normal_form_is_the_one_that_is_compared() {
    assert_eq!(weir::path::normalise(b"/v1//a/../%72eports").as_deref(), Ok("/v1/reports"));
}

#[test]
fn make_run_shows_what_it_says() {
    let expected = blocks("").into_iter().find(|block| block.contains("tenant       tier")).expect("the demo's table");
    let demo = Command::new("make")
        .args(["run", "ONCE=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // It is a new make, not a part of the one that may run these tests.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .expect("make");
    let shown = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{shown}\n{}", String::from_utf8_lossy(&demo.stderr));
    for line in expected.lines() {
        assert!(shown.lines().any(|other| other == line), "no line {line:?} in\n{shown}");
    }
}

#[test]
fn the_pages_of_the_examples_show_what_stands_in_their_files() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let pages: Vec<&str> = README.split("](examples/").skip(1).filter_map(|rest| rest.split(".md)").next()).collect();
    let pages: Vec<&str> = pages.into_iter().filter(|page| !page.contains(')')).collect();
    assert_eq!(pages, ["api-keys", "per-ip", "login", "exports", "grpc", "jwt"]);
    let lines = |text: &str| -> Vec<String> { text.lines().map(|line| line.trim().to_owned()).collect() };
    for page in pages {
        let text = fs::read_to_string(examples.join(format!("{page}.md"))).expect("a page");
        let links: Vec<&str> = text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        let files = links.iter().filter(|link| !link.starts_with("http"));
        for file in files.clone() {
            assert!(examples.join(file).is_file(), "{page}: {file}");
        }
        let files: Vec<Vec<String>> =
            files.map(|file| lines(&fs::read_to_string(examples.join(file)).expect("a file"))).collect();
        let shown = blocks_of(&text, "yaml");
        assert!(!shown.is_empty(), "{page}");
        for block in shown {
            let block = lines(&block);
            let stands = files.iter().any(|file| file.windows(block.len()).any(|window| window == block));
            assert!(stands, "{page}: in none of its files: {block:#?}");
        }
    }
}

#[test]
fn its_make_targets_are_there_and_its_files_too() {
    let help = Command::new("make").arg("help").current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("make");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let named = |text: &str| {
        text.lines()
            .filter_map(|line| Some(line.strip_prefix("make ")?.split(' ').next()?.to_owned()))
            .collect::<Vec<_>>()
    };
    let targets: Vec<String> = blocks("sh").iter().flat_map(|block| named(block)).collect();
    assert_eq!(targets, ["run", "test"]);
    for target in targets {
        assert!(help.lines().any(|line| line.starts_with(&format!("{target} "))), "{target} in\n{help}");
    }
    let links: Vec<&str> = README.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let is_file = |link: &&&str| !link.starts_with("http") && !link.starts_with('#');
    for link in links.iter().filter(is_file) {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(link).exists(), "{link}");
    }
}
