//! What clients are told by a real Envoy, which adds, replaces and takes off headers and bodies of its own accord.

use std::time::Duration;

use weir_stack::{Client, Request, Response};

use crate::lifecycle::{patterns, start};
use crate::rig::{Limiter, Options, Rig, of, policy};

/// All values of a header.
fn values<'r>(answer: &'r Response, name: &str) -> Vec<&'r str> {
    answer.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect()
}

const OURS: [&str; 5] =
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"];

#[test]
fn both_families_tell_the_same_on_what_passes_and_on_what_is_refused() {
    let rig = start(&patterns(), Options::default());
    let mut client = Client::new(rig.envoys[0].port());
    for left in (0..10).rev() {
        let answer = client.send(&of("acme")).unwrap();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some(left.to_string().as_str())));
        assert_eq!(values(&answer, "ratelimit-policy"), [r#""per-user";q=10;w=86400"#]);
        let [state] = values(&answer, "ratelimit")[..] else { panic!("{answer:?}") };
        let (r, t) = state.strip_prefix(r#""per-user";r="#).and_then(|rest| rest.split_once(";t=")).expect(state);
        let wait: u64 = t.parse().unwrap();
        assert!(r == left.to_string() && (8600..=8640).contains(&wait), "a token takes 8640 s: {state}");
    }
    let refused = client.send(&of("acme")).unwrap();
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (429, Some("0")));
    let [state] = values(&refused, "ratelimit")[..] else { panic!("{refused:?}") };
    let wait: u64 = state.strip_prefix(r#""per-user";r=0;t="#).expect(state).parse().unwrap();
    let retry_after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait <= retry_after, "Retry-After is not the earlier one: {state}, {retry_after}");
    rig.assert_no_errors_logged();
}

#[test]
fn no_header_is_ever_doubled() {
    // The service sends one header of each family, and one of them twice.
    let upstream_headers: &[_] =
        &[("x-ratelimit-limit", "7"), ("x-ratelimit-limit", "8"), ("ratelimit", r#""theirs";r=1"#)];
    let options = || Options { upstream_headers, ..Options::default() };
    {
        let rig = start(&patterns(), options());
        let answer = Client::new(rig.envoys[0].port()).send(&of("acme")).unwrap();
        let kept = OURS.map(|name| values(&answer, name));
        assert_eq!(kept, [vec!["7", "8"], vec![], vec![], vec![], vec![r#""theirs";r=1"#]], "kept, by family");
    }
    let replacing = patterns().replace(r#""upstream_headers":"keep""#, r#""upstream_headers":"replace""#);
    assert_ne!(replacing, patterns());
    let rig = start(&replacing, options());
    let answer = Client::new(rig.envoys[0].port()).send(&of("acme")).unwrap();
    assert!(OURS.iter().all(|name| values(&answer, name).len() == 1), "{answer:?}");
    assert_eq!((answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining")), (Some("10"), Some("9")));
    rig.assert_no_errors_logged();
}

#[test]
fn a_response_that_was_refused_behind_keeps_its_own_headers() {
    let upstream_headers: &[_] = &[(":status", "429"), ("retry-after", "7"), ("x-ratelimit-remaining", "0")];
    for word in ["keep", "replace"] {
        let policy = patterns().replace(r#""upstream_headers":"keep""#, &format!(r#""upstream_headers":"{word}""#));
        let rig = start(&policy, Options { upstream_headers, ..Options::default() });
        let answer = Client::new(rig.envoys[0].port()).send(&of("acme")).unwrap();
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")), "{word}");
        let told = OURS.map(|name| values(&answer, name));
        assert_eq!(told, [vec![], vec!["0"], vec![], vec![], vec![]], "{word}: of either family");
        rig.assert_no_errors_logged();
    }
}

#[test]
fn a_refused_head_has_the_headers_and_no_body() {
    let rig = start(&patterns(), Options::default());
    let mut client = Client::new(rig.envoys[0].port());
    let head = Request { method: "HEAD".to_owned(), ..of("acme") };
    // One connection: a body after the headers would be taken for the next answer.
    let statuses: Vec<u16> = (0..13).map(|_| client.send(&head).unwrap().status).collect();
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 3]].concat());
    let refused = client.send(&head).unwrap();
    assert!(refused.header("retry-after").is_some() && refused.body.is_empty(), "{refused:?}");
    let get = client.send(&of("acme")).unwrap();
    assert!(get.status == 429 && get.text().starts_with(r#"{"error":"rate_limited""#), "{get:?}");
    rig.assert_no_errors_logged();
}

fn grpc(user: &str, path: &str) -> Request {
    Request::new("POST", path)
        .header("x-user-id", user)
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(b"\0\0\0\0\0".to_vec())
}

/// Status, and what a client of gRPC looks at.
fn told(answer: &Response) -> (u16, [Option<&str>; 3], &[u8]) {
    const NAMES: [&str; 3] = ["content-type", "grpc-status", "grpc-message"];
    assert!(NAMES.iter().all(|name| values(answer, name).len() <= 1), "{answer:?}");
    (answer.status, NAMES.map(|name| answer.header(name)), &answer.body)
}

const GRPC: Option<&str> = Some("application/grpc");

#[test]
fn a_client_of_grpc_is_refused_in_its_own_words_over_http_1_and_2() {
    let rig = start(&patterns(), Options::default());
    let front = rig.over_http2();
    for (user, port) in [("acme", rig.envoys[0].port()), ("bob", front.over_http2_port(0))] {
        let mut client = Client::new(port);
        for left in (0..10).rev() {
            let answer = client.send(&grpc(user, "/pkg.Service/Call")).unwrap();
            assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
        }
        // The first is refused by Redis, while it waits; the second at once, since the bucket is known to be dry.
        for _ in 0..2 {
            let refused = client.send(&grpc(user, "/pkg.Service/Call")).unwrap();
            assert_eq!(told(&refused), (200, [GRPC, Some("8"), Some("rate_limited: per-user")], &b""[..]));
            let pushback: u64 = refused.header("grpc-retry-pushback-ms").unwrap().parse().unwrap();
            assert!((8_600_000..=9_504_000).contains(&pushback), "a token takes 8640 s: {pushback}");
            assert_eq!((refused.header("x-ratelimit-remaining"), refused.header("retry-after")), (Some("0"), None));
        }
    }
    assert_eq!(rig.peer.upstream_requests(), 20, "what the service has seen");
    assert_eq!(rig.envoys[0].stat("http.ingress.downstream_cx_http2_total"), Some(1));
    rig.assert_no_errors_logged();
}

#[test]
fn a_client_of_grpc_is_told_what_is_forbidden_malformed_or_not_to_be_counted() {
    let forbidding =
        policy("9/d", "50ms", "deny").replace(r#""mode": "exact","#, r#""mode": "exact", "missing": "deny","#);
    let rig = Rig::start(&forbidding, Options { envoys: 1, limiter: Limiter::Absent, ..Options::default() });
    let mut client = Client::new(rig.envoys[0].port());
    let failed = client.send(&grpc("acme", "/pkg.Service/Call")).unwrap();
    assert_eq!(told(&failed), (200, [GRPC, Some("14"), Some("limiter_unavailable: per-user")], &b""[..]));
    assert_eq!(failed.header("grpc-retry-pushback-ms"), Some("1000"));
    let mut nobody = grpc("", "/pkg.Service/Call");
    nobody.headers.retain(|(name, _)| name != "x-user-id");
    let forbidden = client.send(&nobody).unwrap();
    assert_eq!(told(&forbidden), (200, [GRPC, Some("7"), Some("forbidden: per-user")], &b""[..]));
    assert_eq!(forbidden.header("grpc-retry-pushback-ms"), None);
    let malformed = client.send(&grpc("acme", "/pkg%zz/Call")).unwrap();
    assert_eq!(told(&malformed), (200, [GRPC, Some("3"), Some("malformed_path")], &b""[..]));
    assert!(rig.envoys[0].wait_for(Duration::from_secs(5), |_| rig.degraded() == 1));
}
