//! What a real Envoy knows of a request beside its headers: properties of every kind as tenants, and classes by what
//! Envoy matches and by what clients send.

use std::process::Command;

use serde_json::{Value, json};
use weir_stack::{Listeners, Request, Scratch};

use crate::listener::{client, listener, manager, weir};
use crate::rig::{Options, Rig};

/// Rules that a policy may have.
const MOST_RULES: usize = 16;

/// A property, its parts separated by spaces, and the value of the tenant, as Redis has it; empty where there is none.
type Row<'r> = (&'r str, &'r str);

const METADATA: &str = "metadata filter_metadata";

#[rustfmt::skip]
const PLAIN: &[Row] = &[
    // Texts and bytes are as they are.
    ("M test text", "acme"),
    ("M test odd", ""),
    ("M from-header text", "a%20b%C3%A4"),
    ("request path", "%2Fv1%2Fthings%3Fq%3D1"),
    ("request url_path", "%2Fv1%2Fthings"),
    ("request query", "q%3D1"),
    ("request host", "api%2Eexample%2Ecom%3A8080"),
    ("request method", "GET"),
    ("request scheme", "http"),
    ("request protocol", "HTTP%2F1%2E1"),
    ("request headers x-tenant", "acme"),
    ("request headers x-bytes", ""),
    ("source address", "203%2E0%2E113%2E7%3A4711"),
    ("xds route_name", "things"),
    ("xds virtual_host_name", "all"),
    ("plugin_name", "weir-0"),
    // Numbers and booleans are no texts: they need their `type`.
    ("source port", ""),
    ("M test seven", ""),
    ("M from-header number", ""),
    ("M test yes", ""),
    ("connection mtls", ""),
    // A part of a struct or a list.
    ("M test org name", "acme"),
    ("M test org plan level", ""),
    ("M test list 1", "b"),
    ("xds route_metadata filter_metadata weir class", "slow"),
    // Nothing.
    ("M test empty", ""),
    ("M test null", ""),
    ("M test absent", ""),
    ("M test text more", ""),
    ("M test org absent", ""),
    ("M test list 2", ""),
    ("M test list -1", ""),
    ("M test list b", ""),
    ("M test list 99999999999999999999", ""),
    ("M absent sub", ""),
    ("metadata absent", ""),
    ("request headers x-absent", ""),
    ("request absent", ""),
    ("connection requested_server_name", ""),
    ("connection uri_san_peer_certificate", ""),
    ("xds route_metadata filter_metadata weir absent", ""),
    ("response code absent", ""),
    ("absent", ""),
    ("absent of all", ""),
];

const OVER_TLS: &[Row] = &[
    ("connection mtls", ""),
    ("connection requested_server_name", "acme%2Eexample"),
    ("connection tls_version", "TLSv1%2E3"),
    ("connection subject_peer_certificate", "CN%3Dacme"),
    ("connection dns_san_peer_certificate", "acme%2Eexample"),
    ("connection uri_san_peer_certificate", "spiffe%3A%2F%2Fexample%2Facme"),
    ("request scheme", "https"),
];

fn policy(rules: Vec<Value>, more: Value) -> Value {
    let mut policy = json!({
        "version": 1,
        "hash_secret_env": "WEIR_HASH_SECRET",
        "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": "10s"}},
        "rules": rules,
    });
    policy.as_object_mut().expect("an object").extend(more.as_object().expect("words").clone());
    policy
}

fn path(row: &Row) -> Vec<String> {
    row.0.replace("M ", &format!("{METADATA} ")).split(' ').map(str::to_owned).collect()
}

/// Filters whose rules, one for each row, are keyed by the properties.
fn filters(rows: &[Row]) -> Vec<Value> {
    let rule = |(number, row): (usize, &Row)| {
        let key = json!([{"property": {"path": path(row), "as": "p", "trusted": true}}]);
        json!({"name": format!("row-{number}"), "key": key, "missing": {"as": "nobody"}, "mode": "exact",
               "limits": "1000/d", "on_error": "deny"})
    };
    let rules: Vec<Value> = rows.iter().enumerate().map(rule).collect();
    let filter =
        |(number, rules): (usize, &[Value])| weir(&format!("weir-{number}"), &policy(rules.to_vec(), json!({})));
    rules.chunks(MOST_RULES).enumerate().map(filter).collect()
}

/// Asserts the tenants that one request has left in Redis.
fn assert_tenants(rig: &Rig, rows: &[Row]) {
    let keys = rig.keys();
    let told = |number: usize, row: &Row| {
        let tenant = if row.1.is_empty() { "none.nobody".to_owned() } else { format!("p.{}", row.1) };
        format!("{}: rl:{{{tenant}}}:row-{number}:default:86400000:t3", row.0)
    };
    let found = |number: usize, row: &Row| {
        let own: Vec<&String> = keys.iter().filter(|key| key.contains(&format!("}}:row-{number}:"))).collect();
        let [key] = own[..] else { panic!("{}: {own:?}", row.0) };
        format!("{}: {key}", row.0)
    };
    let numbered = || rows.iter().enumerate();
    let wrong: Vec<String> = numbered().map(|(number, row)| found(number, row)).collect();
    let wanted: Vec<String> = numbered().map(|(number, row)| told(number, row)).collect();
    let wrong: Vec<_> = wrong.iter().zip(&wanted).filter(|(found, wanted)| found != wanted).collect();
    assert!(wrong.is_empty(), "found, wanted: {wrong:#?}");
    assert_eq!(keys.len(), rows.len());
}

/// What sets metadata before weir: from the configuration, and from headers.
fn metadata() -> Vec<Value> {
    const FILTERS: &str = "type.googleapis.com/envoy.extensions.filters.http";
    let value = json!({
        "text": "acme", "odd": "\u{0}", "empty": "", "null": null, "seven": 7, "yes": true, "list": ["a", "b"],
        "org": {"name": "acme", "plan": {"level": 2}, "since": "2020", "seats": 12},
    });
    let by_header = |header: &str, key: &str, kind: &str| {
        let at = json!({"metadata_namespace": "from-header", "key": key, "type": kind});
        json!({"header": header, "on_header_present": at})
    };
    vec![
        json!({"name": "envoy.filters.http.set_metadata", "typed_config": {
            "@type": format!("{FILTERS}.set_metadata.v3.Config"),
            "metadata": [{"metadata_namespace": "test", "value": value}],
        }}),
        json!({"name": "envoy.filters.http.header_to_metadata", "typed_config": {
            "@type": format!("{FILTERS}.header_to_metadata.v3.Config"),
            "request_rules": [by_header("x-text", "text", "STRING"), by_header("x-number", "number", "NUMBER")],
        }}),
    ]
}

/// A certificate of its own for a name, and its key.
fn certificate(scratch: &Scratch, name: &str) -> (String, String) {
    let file = |ending: &str| scratch.path().join(format!("{name}.{ending}")).display().to_string();
    let (certificate, key) = (file("crt"), file("key"));
    let names = format!("subjectAltName=DNS:{name}.example,URI:spiffe://example/{name}");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", &format!("/CN={name}"), "-addext", &names, "-keyout", &key, "-out", &certificate])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (certificate, key)
}

#[test]
fn properties_of_every_kind_are_tenants_and_absent_ones_are_nobody() {
    let scratch = Scratch::new().unwrap();
    let (server, client_of_tls) = (certificate(&scratch, "server"), certificate(&scratch, "acme"));
    let weir = json!({"filter_metadata": {"weir": {"class": "slow"}}});
    let routes =
        json!([{"name": "things", "match": {"prefix": "/"}, "metadata": weir, "route": {"cluster": "upstream"}}]);
    let plain: Vec<Value> = metadata().into_iter().chain(filters(PLAIN)).collect();
    let whole = filters(&[("M test org", ""), ("M test list", ""), ("metadata", "")]);
    let file = |name: &str| json!({"filename": name});
    let tls = json!({"name": "envoy.transport_sockets.tls", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {
            "tls_certificates": [{"certificate_chain": file(&server.0), "private_key": file(&server.1)}],
            "validation_context": {"trusted_ca": file(&client_of_tls.0)},
        },
    }});
    let words = || json!({"use_remote_address": true});
    let listener = listener(&[
        json!({"name": "plain", "filter_chain_match": {"destination_port": 1, "transport_protocol": "raw_buffer"},
               "filters": manager(words(), plain, routes.clone())}),
        json!({"name": "whole", "filter_chain_match": {"destination_port": 2, "transport_protocol": "raw_buffer"},
               "filters": manager(words(), [metadata(), whole].concat(), routes.clone())}),
        json!({"name": "tls", "filter_chain_match": {"transport_protocol": "tls"}, "transport_socket": tls,
               "filters": manager(words(), filters(OVER_TLS), routes)}),
    ]);
    let env: &[(&str, &str)] = &[("WEIR_HASH_SECRET", "secret")];
    let rig = Rig::listening(Listeners::File(&listener), Options { envoys: 1, env, ..Options::default() });
    let port = rig.envoys[0].port();
    let request = Request::get("/v1/things?q=1")
        .header("host", "api.example.com:8080")
        .header("x-tenant", "acme")
        .header("x-bytes", b"\xff\xfea".to_vec())
        .header("x-text", "a b\u{e4}")
        .header("x-number", "7");
    assert_eq!(client(port, "203.0.113.7", 1).send(&request).unwrap().status, 200);
    assert_tenants(&rig, PLAIN);

    // A whole list or struct is no text: it names nobody.
    rig.forget_keys();
    for _ in 0..20 {
        assert_eq!(client(port, "203.0.113.7", 2).send(&request).unwrap().status, 200);
    }
    let nobody = [0, 1, 2].map(|row| format!("rl:{{none.nobody}}:row-{row}:default:86400000:t3"));
    assert_eq!(rig.keys(), nobody);

    rig.forget_keys();
    let get = "printf 'GET / HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n'";
    let (certificate, key) = client_of_tls;
    let own = format!("-servername acme.example -cert {certificate} -key {key}");
    let over_tls = format!("{get} | openssl s_client -quiet -connect 127.0.0.1:{port} {own}");
    let answer = Command::new("sh").args(["-c", &over_tls]).output().expect("a shell");
    let said = String::from_utf8_lossy(&answer.stdout);
    assert!(said.starts_with("HTTP/1.1 200"), "{said} {}", String::from_utf8_lossy(&answer.stderr));
    assert_tenants(&rig, OVER_TLS);
    rig.assert_no_errors_logged();
}

#[test]
fn classes_are_told_by_route_method_of_grpc_host_header_and_query() {
    let names =
        ["get", "cart", "watch", "checkout", "slow", "marked", "wild", "api", "one", "flagged", "two", "debug", "both"];
    let class = |name: &str, matches: Value| json!({"class": name, "match": matches});
    let metadata = |key: &str, value: Value| {
        let mut matches = json!({"path": ["weir", key]});
        matches.as_object_mut().expect("an object").extend(value.as_object().expect("words").clone());
        json!({"route_metadata": matches})
    };
    let flag = json!({"x-flag": {"exact": "1"}});
    let both = json!({"methods": ["POST"], "host": "api.example.com", "headers": flag, "query": {"v": {"exact": "2"}}});
    let classes = json!([
        class("both", both),
        class("get", json!({"grpc": {"service": "shop.v1.Cart", "method": "Get"}})),
        class("cart", json!({"grpc": {"service": "shop.v1.Cart"}})),
        class("watch", json!({"grpc": {"method": "Watch"}})),
        class("checkout", json!({"route_name": "checkout"})),
        class("slow", metadata("class", json!({"exact": "slow"}))),
        class("marked", metadata("mark", json!({"present": true}))),
        class("wild", json!({"host": "*.beta.example.com"})),
        class("api", json!({"host": "api.example.com"})),
        class("one", json!({"headers": {"x-flag": {"exact": "1"}}})),
        class("flagged", json!({"headers": {"x-flag": {"present": true}}})),
        class("two", json!({"query": {"v": {"exact": "2"}}})),
        class("debug", json!({"query": {"debug": {"present": true}}})),
    ]);
    let limits: serde_json::Map<String, Value> =
        names.iter().chain(&["default"]).map(|name| ((*name).to_owned(), json!("1000/d"))).collect();
    let (key, limits) = (json!([{"constant": "all"}]), json!({"default": limits}));
    let rule = json!({"name": "sorted", "key": key, "mode": "exact", "limits": limits, "on_error": "deny"});
    let route = |name: &str, prefix: &str, metadata: Value| {
        let metadata = json!({"filter_metadata": {"weir": metadata}});
        json!({"name": name, "match": {"prefix": prefix}, "metadata": metadata, "route": {"cluster": "upstream"}})
    };
    let routes = json!([
        route("checkout", "/checkout", json!({"class": "slow"})),
        route("slow", "/slow", json!({"class": "slow"})),
        route("slower", "/slower", json!({"class": "slower"})),
        route("marked", "/marked", json!({"mark": 1})),
        route("marked", "/empty", json!({"mark": ""})),
        route("", "/", json!({})),
    ]);
    let filter = weir("weir", &policy(vec![rule], json!({"classes": classes})));
    let chain = json!({"filters": manager(json!({"use_remote_address": true}), vec![filter], routes)});
    let listener = listener(&[chain]);
    let env: &[(&str, &str)] = &[("WEIR_HASH_SECRET", "secret")];
    let rig = Rig::listening(Listeners::File(&listener), Options { envoys: 1, env, ..Options::default() });

    let (get, post) = (|path: &str| Request::get(path), |path: &str| Request::new("POST", path));
    let at = |host: &str| get("/").header("host", host);
    let grpc = |path: &str| post(path).header("content-type", "application/grpc").header("te", "trailers");
    #[rustfmt::skip]
    let table = [
        (grpc("/shop.v1.Cart/Get"), "get"),
        (post("/shop.v1.Cart/Get"), "get"),
        (get("//shop.v1.Cart/%47et?x"), "get"),
        (grpc("/shop.v1.Cart/Put"), "cart"),
        (grpc("/shop.v1.Cart/Watch"), "cart"),
        (grpc("/shop.v1.Stock/Watch"), "watch"),
        (grpc("/shop.v1.Stock/watch"), "default"),
        (grpc("/shop.v1.Cart/Get/more"), "default"),
        (grpc("/shop.v1.Cart"), "default"),
        (get("/checkout"), "checkout"),
        (get("/checkout/7?v=2").header("x-flag", "1"), "checkout"),
        (get("/slow"), "slow"),
        (get("/slower"), "slow"),
        (get("/marked"), "marked"),
        // An empty text of metadata is none.
        (get("/empty"), "default"),
        (at("a.beta.example.com"), "wild"),
        (at("A.B.BETA.example.com.:8080"), "wild"),
        (at("beta.example.com"), "default"),
        (at("xbeta.example.com"), "default"),
        (at("api.example.com"), "api"),
        (at("API.example.com:443"), "api"),
        (at("api.example.com.evil.com"), "default"),
        (get("/").header("x-flag", "1"), "one"),
        (get("/").header("X-Flag", "1"), "one"),
        (get("/").header("x-flag", "2"), "flagged"),
        (get("/").header("x-flag", ""), "flagged"),
        (get("/").header("x-flag", b"\xff".to_vec()), "flagged"),
        (get("/").header("x-flag", "1").header("x-flag", "2"), "one"),
        (get("/?v=2"), "two"),
        (get("/?%76=%32"), "two"),
        (get("/?v=1&v=2"), "default"),
        (get("/?v=3"), "default"),
        (get("/?debug"), "debug"),
        (get("/?debug=&v=3"), "debug"),
        (get("/?nodebug"), "default"),
        (post("/?v=2").header("host", "api.example.com").header("x-flag", "1"), "both"),
        (get("/?v=2").header("host", "api.example.com").header("x-flag", "1"), "api"),
        (get("/"), "default"),
    ];
    let port = rig.envoys[0].port();
    for (request, class) in table {
        rig.forget_keys();
        let answer = client(port, "203.0.113.7", 1).send(&request).unwrap();
        assert_eq!(answer.status, 200, "{request:?}");
        assert_eq!(rig.keys(), [format!("rl:{{constant.all}}:sorted:{class}:86400000:t3")], "{request:?}");
    }
    rig.assert_no_errors_logged();
}
