//! What a request costs among 10 and among 1,000 classes: the second may cost 1.3 times the first.
//!
//! `cargo bench --bench classes` prints nanoseconds and the ratio.

#![expect(clippy::disallowed_methods, reason = "a clock is what this is about")]

use std::hint::black_box;
use std::time::Instant;

use weir::policy::Policy;
use weir::request::{Request, classify};

struct Sent(&'static str, String);

impl Request for Sent {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            ":method" => Some(self.0.as_bytes().to_vec()),
            ":path" => Some(self.1.as_bytes().to_vec()),
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

/// So many classes as an API has them: a service each, with parameters, several methods and subtrees.
fn policy(count: usize) -> Policy {
    let classes: Vec<String> = (0..count)
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
    let json = format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis"}}}},
            "classes": [{}],
            "rules": [{{"name": "all", "key": [{{"constant": "all"}}], "limits": "100/m", "on_error": "allow"}}]}}"#,
        classes.join(",")
    );
    Policy::from_host(json.as_bytes(), &|_| None).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Nanoseconds a request, the best of several runs.
fn measure(count: usize) -> f64 {
    let policy = policy(count);
    let last = count - 1;
    let requests = [
        Sent("GET", format!("/v1/service-{}/items/7", last / 4 * 4)),
        Sent("POST", "/v1/service-1/a/b/c?x=y".to_owned()),
        Sent("GET", format!("/v1/acme/service-{}/export", last / 4 * 4 - 2)),
        Sent("GET", format!("/v2/service-{}", last / 4 * 4 - 1)),
        Sent("DELETE", "/nothing/at/all".to_owned()),
    ];
    let mut best = f64::INFINITY;
    for _ in 0..30 {
        const ROUNDS: usize = 4_000;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            for request in &requests {
                let _ = black_box(classify(&policy.classes, black_box(request)));
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (ROUNDS * requests.len()) as f64);
    }
    best
}

fn main() {
    let few = measure(10);
    for count in [100, 1_000, 10_000] {
        let many = measure(count);
        println!("10 classes: {few:.0} ns; {count} classes: {many:.0} ns; ratio {:.2}", many / few);
    }
}
