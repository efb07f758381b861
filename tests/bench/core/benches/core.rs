//! What the core costs, natively: `cargo bench --package weir-bench-core` in tests/bench. `make bench` keeps the figures.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use weir::algorithm::{Acquire, Offer, Run, TOKEN_BUCKET};
use weir::clock::Ms;
use weir::engine::decide;
use weir::limiter::redis::webdis::{By, decode, encode};
use weir::limiter::{HttpEnd, Reply};
use weir::path::normalise;
use weir::policy::{Limit, Policy, Terms};
use weir::request::{Request, classify};

struct Sent(&'static str, String);

impl Request for Sent {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            ":method" => Some(self.0.as_bytes().to_vec()),
            ":path" => Some(self.1.as_bytes().to_vec()),
            "x-user-id" => Some(b"acme".to_vec()),
            _ => None,
        }
    }

    fn is_doubled(&self, _name: &str) -> bool {
        false
    }

    fn property(&self, _path: &[&str]) -> Option<Vec<u8>> {
        None
    }
}

/// So many classes as an API has them: a service each, with parameters, several methods and subtrees; so many rules.
fn policy(classes: usize, rules: usize) -> Policy {
    let classes: Vec<String> = (0..classes)
        .map(|number| {
            let path = match number % 4 {
                0 => format!("/v1/service-{number}/items/{{id}}"),
                1 => format!("/v1/service-{number}/**"),
                2 => format!("/v1/{{org}}/service-{number}/export"),
                _ => format!("/v2/service-{number}"),
            };
            let methods = if number % 3 == 0 { r#""methods": ["GET", "HEAD"], "# } else { "" };
            format!(r#"{{"class": "c{}", "match": {{{methods}"path": "{path}"}}}}"#, number % 50)
        })
        .collect();
    let rules: Vec<String> = (0..rules)
        .map(|number| {
            format!(
                r#"{{"name": "rule-{number}", "key": [{{"header": {{"name": "x-user-id", "as": "user", "trusted": true}}}}],
                    "limits": {{"default": {{"default": "100/m", "c7": "10/m"}}}}, "on_error": "allow"}}"#
            )
        })
        .collect();
    let json = format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis"}}}},
            "classes": [{}], "rules": [{}]}}"#,
        classes.join(","),
        rules.join(",")
    );
    Policy::from_host(json.as_bytes(), &|_| None).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// One of each kind of class, and one that matches none.
fn requests(classes: usize) -> [Sent; 5] {
    let last = classes - 1;
    [
        Sent("GET", format!("/v1/service-{}/items/7", last / 4 * 4)),
        Sent("POST", "/v1/service-1/a/b/c?x=y".to_owned()),
        Sent("GET", format!("/v1/acme/service-{}/export", last / 4 * 4 - 2)),
        Sent("GET", format!("/v2/service-{}", last / 4 * 4 - 1)),
        Sent("DELETE", "/nothing/at/all".to_owned()),
    ]
}

/// Calls `work` with the requests in turns.
fn in_turns<T>(bencher: &mut criterion::Bencher, requests: &[Sent], mut work: impl FnMut(&Sent) -> T) {
    let mut next = requests.iter().cycle();
    bencher.iter(|| next.next().map(|request| black_box(work(black_box(request)))));
}

fn on_requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("classify");
    for classes in [10, 1_000] {
        let (policy, requests) = (policy(classes, 1), requests(classes));
        group.bench_function(BenchmarkId::from_parameter(format!("{classes} classes")), |bencher| {
            in_turns(bencher, &requests, |request| classify(&policy.classes, request));
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("normalise");
    for (name, path) in [("plain", "/v1/service-7/items/1234"), ("odd", "/v1//service-7/./a/../items/%31234%2Fx?q=1#f")]
    {
        let sent = path.as_bytes();
        group.bench_function(name, |bencher| bencher.iter(|| black_box(normalise(black_box(sent)))));
    }
    group.finish();

    let mut group = criterion.benchmark_group("decide");
    for (classes, rules) in [(10, 1), (10, 16), (1_000, 1), (1_000, 16)] {
        let (policy, requests) = (policy(classes, rules), requests(classes));
        let name = format!("{classes} classes, {rules} rule{}", if rules == 1 { "" } else { "s" });
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            in_turns(bencher, &requests, |request| decide(&policy, request));
        });
    }
    group.finish();
}

fn on_calls(criterion: &mut Criterion) {
    let key = "rl:{user.acme}:per-user:default:60000:t3";
    let limit = Limit::new(6_000, Ms(60_000), 6_000).expect("a limit");
    let offer = Offer { want: 640, end: 1_700_000_300_000, size: 200, carry: 40, debt: 0 };
    let terms = Terms { life: Ms(300_000), lend: 500 };
    for runs in [1, 16] {
        // Costs in turns, so that no two make one run.
        let asked = Acquire {
            limit,
            terms,
            offer,
            hold: false,
            runs: (0..runs).map(|number| Run { cost: 1 + number % 2, count: 3 }).collect(),
            number: 1 << 52,
        };
        let granted = ",3".repeat(runs as usize);
        let body =
            format!(r#"{{"EVALSHA":[4503599627370496,300000000,10000,1700000300000,299000,40,600,0{granted}]}}"#);
        let end = HttpEnd::Answer { status: 200, body: body.as_bytes() };
        assert!(matches!(decode(end, By::Sha, &asked), Reply::Acquired(_)), "{:?}", decode(end, By::Sha, &asked));
        let name = if runs == 1 { "one waits".to_owned() } else { format!("{runs} wait") };
        criterion.benchmark_group("encode").bench_function(&name, |bencher| {
            bencher.iter(|| black_box(encode(&TOKEN_BUCKET, By::Sha, key, black_box(&asked))));
        });
        criterion.benchmark_group("decode").bench_function(&name, |bencher| {
            bencher.iter(|| black_box(decode(black_box(end), By::Sha, &asked)));
        });
    }
}

criterion_group!(benches, on_requests, on_calls);
criterion_main!(benches);
