//! Who a request is in a real Envoy: credentials and cookies on several lines, claims that are numbers, networks.

use serde_json::{Value, json};
use weir::tenant::{HashKey, Storage, Tenant};
use weir_stack::{Listeners, Request, Response};

use crate::listener::{client, listener, manager, weir};
use crate::rig::{Options, Rig};

/// A chain whose filter has one rule with this key and these words more.
fn chain(port: u16, before: Vec<Value>, key: Value, more: Value) -> Value {
    let mut rule = json!({"name": "only", "key": key, "missing": {"as": "nobody"}, "mode": "exact", "limits": "1000/d",
        "on_error": "deny"});
    rule.as_object_mut().expect("an object").extend(more.as_object().expect("words").clone());
    let policy = json!({
        "version": 1,
        "hash_secret_env": "WEIR_HASH_SECRET",
        "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": "10s"}},
        "rules": [rule],
    });
    let filters = before.into_iter().chain([weir(&format!("weir-{port}"), &policy)]).collect();
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]);
    json!({
        "name": format!("chain-{port}"),
        "filter_chain_match": {"destination_port": port},
        "filters": manager(json!({"use_remote_address": true}), filters, routes),
    })
}

fn rig(chains: &[Value]) -> Rig {
    let listener = listener(chains);
    let env: &[(&str, &str)] = &[("WEIR_HASH_SECRET", "secret")];
    Rig::listening(Listeners::File(&listener), Options { envoys: 1, env, ..Options::default() })
}

/// What a client at this address is answered by a chain, and the tenants that Redis then knows.
fn sees(rig: &Rig, address: &str, chain: u16, request: &Request) -> (Response, Vec<String>) {
    rig.forget_keys();
    let answer = client(rig.envoys[0].port(), address, chain).send(request).unwrap();
    let tenant = |key: String| Some(key.strip_prefix("rl:{")?.strip_suffix("}:only:default:86400000:t3")?.to_owned());
    let keys = rig.keys();
    let tenants: Vec<String> = keys.iter().cloned().filter_map(tenant).collect();
    assert_eq!(tenants.len(), keys.len(), "{keys:?}");
    (answer, tenants)
}

/// A request with these lines of one header.
fn lines(name: &str, values: &[&str]) -> Request {
    values.iter().fold(Request::get("/"), |request, value| request.header(name, *value))
}

#[test]
fn a_token_has_one_spelling_and_two_lines_of_credentials_name_nobody() {
    let bearer = |more: Value| {
        let mut source = json!({"scheme": "bearer", "as": "key", "trusted": true});
        source.as_object_mut().expect("an object").extend(more.as_object().expect("words").clone());
        json!([{"authorization": source}])
    };
    let rig = rig(&[
        chain(1, Vec::new(), bearer(json!({})), json!({})),
        chain(2, Vec::new(), bearer(json!({"doubled": "refuse"})), json!({})),
    ]);
    // As `openssl dgst -sha256 -hmac secret` prints it.
    let of = |token: &str| {
        Tenant::new("key", token.as_bytes(), Storage::Secret, &HashKey::new("secret")).as_str().to_owned()
    };
    let nobody = || "none.nobody".to_owned();
    #[rustfmt::skip]
    let table: &[(&[&str], Option<&str>, bool)] = &[
        (&["Bearer T"], Some("T"), false),
        (&["bearer   T"], Some("T"), false),
        (&["Bearer a.b.c="], Some("a.b.c"), false),
        (&["Bearer T X"], None, false),
        (&["Bearer T,X"], None, true),
        (&["Bearer ,T"], None, true),
        (&["Bearer T", "Bearer T"], None, true),
        (&["Bearer T", "Bearer X"], None, true),
        (&["Basic x", "Bearer T"], None, true),
    ];
    for (values, token, is_doubled) in table {
        let request = lines("authorization", values);
        let wanted = token.map_or_else(nobody, of);
        let (answer, tenants) = sees(&rig, "203.0.113.7", 1, &request);
        assert_eq!((answer.status, tenants), (200, vec![wanted.clone()]), "{values:?}");
        let (answer, tenants) = sees(&rig, "203.0.113.7", 2, &request);
        if *is_doubled {
            assert_eq!((answer.status, tenants), (400, Vec::new()), "{values:?}");
            assert_eq!(answer.body, br#"{"error":"doubled","rule":"only"}"#, "{values:?}");
        } else {
            assert_eq!((answer.status, tenants), (200, vec![wanted]), "{values:?}");
        }
    }
    rig.assert_no_errors_logged();
}

#[test]
fn cookies_are_found_on_every_line() {
    let key = |more: Value| {
        let mut source = json!({"name": "sid", "trusted": true});
        source.as_object_mut().expect("an object").extend(more.as_object().expect("words").clone());
        json!([{"cookie": source}])
    };
    let rig = rig(&[
        chain(1, Vec::new(), key(json!({})), json!({})),
        chain(2, Vec::new(), key(json!({"doubled": "refuse"})), json!({})),
    ]);
    #[rustfmt::skip]
    let table: &[(&[&str], &str, bool)] = &[
        (&["sid=acme"], "cookie.acme", false),
        (&["a=b; sid=acme"], "cookie.acme", false),
        (&["a=b", "sid=acme"], "cookie.acme", false),
        (&["a=b,c; sid=acme"], "cookie.acme", false),
        (&["a=b", "c=d; e=f", "g=h; sid=acme; i=j"], "cookie.acme", false),
        (&["sid=acme", "sid=other"], "cookie.acme", true),
        (&["sid=acme; sid=other"], "cookie.acme", true),
        (&["a=b", "c=d"], "none.nobody", false),
    ];
    for (values, tenant, is_doubled) in table {
        let request = lines("cookie", values);
        let (answer, tenants) = sees(&rig, "203.0.113.7", 1, &request);
        assert_eq!((answer.status, tenants), (200, vec![(*tenant).to_owned()]), "{values:?}");
        let (answer, _) = sees(&rig, "203.0.113.7", 2, &request);
        assert_eq!(answer.status, if *is_doubled { 400 } else { 200 }, "{values:?}");
    }
    rig.assert_no_errors_logged();
}

#[test]
fn a_ban_holds_for_a_number_and_for_a_network() {
    let at = json!({"metadata_namespace": "jwt", "key": "id", "type": "NUMBER"});
    let to_metadata = json!({"name": "envoy.filters.http.header_to_metadata", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
        "request_rules": [{"header": "x-number", "on_header_present": at}],
    }});
    let path = ["metadata", "filter_metadata", "jwt", "id"];
    let number = json!([{"property": {"path": path, "type": "number", "as": "user", "trusted": true}}]);
    let text = json!([{"property": {"path": path, "as": "user", "trusted": true}}]);
    let ip = json!([{"client_ip": {"from": "host", "as": "ip"}}]);
    let deny = json!({"overrides": {"user.12345": "deny"}});
    let networks =
        json!({"overrides": {"ip.203.0.113.0/24": "deny", "ip.203.0.113.9/32": "5/d", "ip.2001:db8::/32": "deny"}});
    let rig = rig(&[
        chain(1, vec![to_metadata.clone()], number, deny.clone()),
        chain(2, vec![to_metadata], text, deny),
        chain(3, Vec::new(), ip, networks),
    ]);
    let by_number = |chain, number: &str| {
        let (answer, tenants) = sees(&rig, "192.0.2.1", chain, &lines("x-number", &[number]));
        (answer.status, tenants.join(" "))
    };
    assert_eq!(by_number(1, "12345"), (403, String::new()));
    assert_eq!(by_number(1, "12346"), (200, "user.12346".to_owned()));
    assert_eq!(by_number(1, "0"), (200, "user.0".to_owned()));
    assert_eq!(by_number(1, "-7"), (200, "user.-7".to_owned()));
    assert_eq!(by_number(1, "1.5"), (200, "none.nobody".to_owned()));
    // Without `type` a number is no text.
    assert_eq!(by_number(2, "12345"), (200, "none.nobody".to_owned()));

    let by_address = |address: &str| {
        let (answer, tenants) = sees(&rig, address, 3, &Request::get("/"));
        (answer.status, tenants.join(" "))
    };
    assert_eq!(by_address("203.0.113.7"), (403, String::new()));
    assert_eq!(by_address("203.0.113.255"), (403, String::new()));
    assert_eq!(by_address("203.0.113.9"), (200, "ip.203%2E0%2E113%2E9".to_owned()));
    assert_eq!(by_address("203.0.114.1"), (200, "ip.203%2E0%2E114%2E1".to_owned()));
    assert_eq!(by_address("2001:db8:1:2::3"), (403, String::new()));
    assert_eq!(by_address("2001:db9::3"), (200, "ip.2001%3Adb9%3A%3A".to_owned()));
    rig.assert_no_errors_logged();
}
