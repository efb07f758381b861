//! Who the client is in a real Envoy: the table of the core, by what is sent to it.

use serde_json::{Value, json};
use weir::percent::escape;
use weir_stack::{Listeners, Request};

use crate::addresses::{CASES, EDGE, HOST, INNER, INNER_TWO, Manager, ONE_HOP, TWO_HOPS, forwarded};
use crate::listener::{client, listener, manager, weir};
use crate::rig::{Options, Rig};

/// The rules by the words of the policy, and two that tell what Envoy has made of a request.
fn policy() -> Value {
    let words = [HOST, EDGE, ONE_HOP, TWO_HOPS, INNER, INNER_TWO];
    let rule = |name: String, source: Value| {
        let limits = "1000/d";
        json!({"name": name, "key": [source], "mode": "exact", "limits": limits, "on_error": "deny"})
    };
    let parsed = |words: &str| -> Value { serde_json::from_str(words).expect("words of a policy") };
    let by_words = words.iter().map(|words| rule(name(words), json!({"client_ip": parsed(words)})));
    let told = [
        rule("source".to_owned(), json!({"property": {"path": ["source", "address"], "trusted": true}})),
        rule("forwarded".to_owned(), json!({"header": {"name": "x-forwarded-for", "trusted": true}})),
    ];
    let rules: Vec<Value> = by_words.chain(told).collect();
    let limiters = json!({"main": {"transport": "webdis", "cluster": "webdis", "timeout": "10s"}});
    json!({"version": 1, "limiters": limiters, "rules": rules})
}

/// The rule of words: their letters and digits.
fn name(words: &str) -> String {
    let letters = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit();
    words.replace("x_forwarded_for", "").replace("peer_appended", "").chars().filter(letters).collect()
}

/// The chain of a manager, by its port.
fn chain(of: Manager) -> u16 {
    match of {
        Manager::Edge(hops) => 1000 + hops,
        Manager::Inner(hops) => 2000 + hops,
        Manager::Other => unreachable!("it is not sent"),
    }
}

#[test]
fn the_clients_address_in_a_real_envoy_is_the_one_of_the_table() {
    let (policy, mut managers) = (policy(), Vec::new());
    let of_envoy = CASES.iter().filter(|case| case.1 != Manager::Other);
    for (_, manager, ..) in of_envoy.clone() {
        if !managers.contains(manager) {
            managers.push(*manager);
        }
    }
    let chains: Vec<Value> = managers
        .iter()
        .map(|of| {
            let words = match of {
                Manager::Edge(hops) => json!({"use_remote_address": true, "xff_num_trusted_hops": hops}),
                Manager::Inner(hops) => json!({"use_remote_address": false, "xff_num_trusted_hops": hops}),
                Manager::Other => unreachable!("it is not sent"),
            };
            let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]);
            json!({
                "name": format!("{of:?}"),
                "filter_chain_match": {"destination_port": chain(*of)},
                "filters": manager(words, vec![weir("weir", &policy)], routes),
            })
        })
        .collect();
    let listener = listener(&chains);
    let rig = Rig::listening(Listeners::File(&listener), Options { envoys: 1, ..Options::default() });
    let mut rows = 0;
    for (before, of, peer, sent, source, safe, wanted) in of_envoy {
        rig.forget_keys();
        let lines = sent.split('\n').filter(|line| !line.is_empty());
        let request = lines.fold(Request::get("/"), |request, line| request.header("x-forwarded-for", line));
        let answer = client(rig.envoys[0].port(), peer, chain(*of)).send(&request).unwrap();
        assert_eq!(answer.status, 200, "{before}");
        let told = |label: &str, value: &str| match value {
            "" => "none.anonymous".to_owned(),
            value => format!("{label}.{}", escape(value.as_bytes())),
        };
        let tenants = |rule: &str| -> Vec<String> {
            let end = format!("}}:{rule}:default:86400000:t3");
            let tenant = |key: String| Some(key.strip_prefix("rl:{")?.strip_suffix(&end)?.to_owned());
            rig.keys().into_iter().filter_map(tenant).collect()
        };
        let found = [tenants(&name(safe)), tenants("source"), tenants("forwarded")];
        let wanted = [told("client_ip", wanted), told("property", source), told("header", &forwarded(*of, peer, sent))];
        assert_eq!(found, wanted.map(|tenant| vec![tenant]), "{before}, {of:?}, {peer} {sent:?}, {safe}");
        rows += 1;
    }
    assert!(rows >= 40, "{rows}");
    rig.assert_no_errors_logged();
}
