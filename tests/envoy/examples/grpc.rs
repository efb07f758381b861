//! `examples/grpc.md`.

use std::time::Instant;

use weir_stack::{Client, Request};

use super::{Page, policy, told};
use crate::lifecycle::{Service, plain};
use crate::rig::{Options, Rig};

fn grpc(path: &str) -> Request {
    Request::new("POST", path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(b"\0\0\0\0\0".to_vec())
}

#[test]
fn methods_of_grpc_have_their_own_limits() {
    let service = Service::start(|_, _| plain("200 OK", "content-type: application/grpc\r\ngrpc-status: 0\r\n"));
    let options = Options { envoys: 1, upstream_port: Some(service.port), bridge: true, ..Options::default() };
    let page = Page { rig: Rig::start(&policy("grpc"), options), started: Instant::now() };
    let front = page.rig.over_http2();
    let mut client = Client::new(front.over_http2_port(0));
    let mut call = |path: &str| client.send(&grpc(path)).unwrap();
    let table = [
        ("/shop.v1.Catalog/Search", 5, 720),
        ("/shop.v1.Checkout/Pay", 3, 1200),
        ("/shop.v1.Stock/Watch", 2, 1800),
        ("/shop.v1.Catalog/Get", 20, 180),
    ];
    for (path, limit, token) in table {
        for left in (0..limit).rev() {
            let answer = call(path);
            let (limit, left) = (limit.to_string(), left.to_string());
            assert_eq!(told(&answer), (200, Some(limit.as_str()), Some(left.as_str())), "{path}");
            assert_eq!((answer.header("grpc-status"), answer.text().as_str()), (Some("0"), "ok"), "the service's own");
        }
        let refused = call(path);
        let names = ["content-type", "grpc-status", "grpc-message", "x-ratelimit-remaining", "retry-after"];
        let wanted = [Some("application/grpc"), Some("8"), Some("rate_limited: per-client"), Some("0"), None];
        assert_eq!(
            (refused.status, names.map(|name| refused.header(name)), refused.text().as_str()),
            (200, wanted, "")
        );
        let pushback: u64 = refused.header("grpc-retry-pushback-ms").expect("a wait").parse().unwrap();
        page.assert_wait(token, pushback / 1000);
    }
    // Another method of a service that is limited as one, another service with a method that is.
    assert_eq!(call("/shop.v1.Checkout/Cancel").header("grpc-status"), Some("8"));
    assert_eq!(call("/shop.v1.Orders/Watch").header("grpc-status"), Some("8"));
    let reflection = call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
    let names = ["grpc-status", "grpc-message", "grpc-retry-pushback-ms"];
    let wanted = [Some("7"), Some("forbidden: per-client"), None];
    assert_eq!((reflection.status, names.map(|name| reflection.header(name))), (200, wanted));
    for _ in 0..30 {
        assert_eq!(told(&call("/grpc.health.v1.Health/Check")), (200, None, None));
    }
    // Nobody escapes by leaving the content type out; then HTTP's words are used.
    let plain = Client::new(front.over_http2_port(0)).send(&Request::new("POST", "/shop.v1.Catalog/Search")).unwrap();
    assert_eq!(told(&plain), (429, Some("5"), Some("0")));
    assert_eq!(page.rig.envoys[0].stat("http.ingress.downstream_cx_http2_total"), Some(1), "it was HTTP/2");
    page.rig.assert_no_errors_logged();
}
