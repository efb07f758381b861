//! `weir explain`, beside the core.

use std::fs;
use std::path::Path;

use weir::limiter::redis::key;
use weir::policy::{Environment, Policy, Tree};
use weir::request::Request as Asked;
use weir::rules::{Ruling, judge};

use crate::{ROOT, SECRET, folder, get, items, policies, text, weir};

/// A request of these headers.
struct Sent<'a>(&'a [(&'a str, &'a str)]);

impl Asked for Sent<'_> {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_bytes().to_vec())
    }
    fn is_doubled(&self, name: &str) -> bool {
        self.0.iter().filter(|(other, _)| *other == name).count() > 1
    }
    fn property(&self, _path: &[&str]) -> Option<Vec<u8>> {
        None
    }
}

/// The buckets of all rules.
fn buckets_of(explained: &Tree) -> impl Iterator<Item = &Tree> {
    items(get(explained, "rules")).iter().flat_map(|rule| items(get(rule, "buckets")))
}

#[test]
fn explain_names_the_buckets_that_the_core_asks() {
    let environment: Environment = &|name| (name == SECRET.0).then(|| SECRET.1.to_owned());
    let requests: [&[(&str, &str)]; 5] = [
        &[(":method", "GET"), (":path", "/v1/x")],
        &[(":method", "POST"), (":path", "/v1/reports/7/export"), ("x-user-id", "acme"), ("x-org", "o")],
        &[(":method", "DELETE"), (":path", "/a%2fb//c"), ("x-user-id", "ops"), ("x-write", "1")],
        &[(":method", "OPTIONS"), (":path", "*"), ("access-control-request-method", "PUT"), (":authority", "A.b:80")],
        &[(":method", "PUT"), (":path", "/v1/x/../y"), ("x-user-id", "mallory"), ("x-write", "1"), ("x-org", "ä")],
    ];
    let mut files = policies("good", &["yaml"]);
    files.extend([folder().join("who.yaml"), folder().join("warnings.yaml"), folder().join("deny.yaml")]);
    let (mut asked, mut of_several) = (0, 0);
    for file in files {
        let tree: Tree = serde_saphyr::from_str(&fs::read_to_string(&file).expect("a policy")).expect("YAML");
        let policy = Policy::from_tree(&tree, environment).expect("a good policy");
        for headers in requests {
            let line = format!("{} {}", headers[0].1, headers[1].1);
            let headers_file: String = headers[2..].iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
            let file = file.to_str().expect("a plain name");
            let args = ["explain", file, "--format", "json", "--request", &line, "-H", "@-"];
            let output = weir(Path::new(ROOT), &args, &[SECRET], headers_file.as_bytes());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let explained = Tree::from_json(&output.stdout).expect("JSON");
            let Ruling::Ask(asks) = judge(&policy, &Sent(headers)).ruling else { continue };
            let wanted: Vec<(Tree, Tree)> = asks
                .iter()
                .map(|ask| {
                    (Tree::Text(key(&policy, &ask.bucket)), Tree::Int(ask.limit.burst().try_into().expect("small")))
                })
                .collect();
            let told: Vec<(Tree, Tree)> = buckets_of(&explained)
                .map(|bucket| (get(bucket, "key").clone(), get(get(bucket, "limit"), "burst").clone()))
                .collect();
            assert_eq!(told, wanted, "{file} {line}");
            // Where there are several, and the rule asks one.
            let limiters = buckets_of(&explained).map(|bucket| get(bucket, "limiter"));
            for (ask, limiter) in asks.iter().zip(limiters).filter(|(_, limiter)| **limiter != Tree::Null) {
                assert_eq!(*limiter, Tree::Text(policy.limiters.get(ask.bucket.limiter).name.clone()), "{file} {line}");
                of_several += 1;
            }
            asked += told.len();
        }
    }
    assert!(asked >= 60 && of_several >= 8, "{asked}, {of_several}");
}
