//! The log: what stands in a policy, in a request or in the environment never does. Every string of the policy below
//! holds the word `canary`, and so does everything that is sent.

use serde_json::{Map, Value, json};

use crate::fake::{Phase, fake};
use crate::policy::{NOSCRIPT, grants};
use crate::proxy::{AUTHORIZATION, Proxy, in_vm};

/// A marker that stands where the language lets users write what they like.
const CANARY: &str = "canary-canary-canary-canary-0001";

fn canary_policy() -> Value {
    json!({
        "version": 1,
        "namespace": CANARY,
        "hash_secret_env": "CANARY_HASH",
        "limiters": {CANARY: {
            "transport": "webdis", "cluster": "webdis", "authority": CANARY, "timeout": "20ms", "auth_env": "CANARY_AUTH",
        }},
        "classes": [
            {"class": "canary-exempt", "match": {"path": "/canary/exempt/**"}, "exempt": true},
            {"class": "canary-write", "match": {"methods": ["CANARY"], "path": "/canary/{canary}"}, "cost": 2},
        ],
        "rules": [{
            "name": CANARY,
            "limiter": CANARY,
            "key": [
                {"header": {"name": "x-canary", "as": "canary-plain", "trusted": true}},
                {"header": {"name": "x-canary-secret", "as": "canary-secret", "trusted": true, "secret": true}},
                {"authorization": {"scheme": "bearer", "as": "canary-bearer", "trusted": true}},
                {"constant": {"value": "canary constant", "as": "canary-constant"}},
            ],
            "missing": {"as": "canary-missing"},
            "tier": {"tenants": {"canary-plain.canary": "canary-gold"}, "default": "canary-free"},
            "mode": "exact",
            "limits": {
                "canary-free": {"default": "60/m", "canary-write": {"requests": 5, "per": "1s"}},
                "canary-gold": {"default": "deny"},
            },
            "on_error": "deny",
        }],
        "response": {"content_type": CANARY, "body": CANARY, "retry_after_jitter": 0},
    })
}

/// Fails if anything that was logged holds a canary; forgets the log, errors as well.
fn no_canary(proxy: &Proxy, of: &str) {
    for line in proxy.log() {
        assert!(!line.to_lowercase().contains("canary"), "{of}: {line}");
    }
    fake(|host| host.log.clear());
}

#[test]
fn nothing_of_a_policy_a_request_or_a_failure_is_logged_but_the_name_of_a_limiter() {
    // Which limiter has failed is told by its name, as metrics tell it.
    let mut policy = canary_policy();
    policy["limiters"] = json!({"main": policy["limiters"][CANARY]});
    policy["rules"][0]["limiter"] = json!("main");
    in_vm(|proxy| {
        let root = proxy.root(&policy);
        let ends: [fn(&Proxy); 8] = [
            |proxy| proxy.answer(grants(0, &[0])),
            |proxy| proxy.answer(grants(59, &[1])),
            |proxy| proxy.answer("canary"),
            |proxy| proxy.answer(r#"{"EVALSHA":[false,"ERR canary"]}"#),
            |proxy| proxy.answer(NOSCRIPT),
            |proxy| proxy.reply(&proxy.call(), "500", "canary"),
            |proxy| proxy.reset(&proxy.call()),
            |proxy| proxy.advance(1000),
        ];
        let requests: [&[(&str, &str)]; 6] = [
            &[(":method", "GET"), (":path", "/canary?canary"), ("x-canary", "canary-1")],
            &[(":method", "GET"), (":path", "/canary"), ("x-canary-secret", "canary")],
            &[(":method", "GET"), (":path", "/canary"), ("authorization", AUTHORIZATION)],
            &[(":method", "GET"), (":path", "/canary")],
            &[(":method", "GET"), (":path", "/canary"), ("x-canary", "canary")],
            &[(":method", "GET"), (":path", "canary/%zz"), ("x-canary", "canary")],
        ];
        for request in requests {
            for end in ends {
                let stream = proxy.request(root, request);
                proxy.run();
                if proxy.phase(stream) == Phase::Paused {
                    end(proxy);
                    // The script is asked for again, and times out.
                    proxy.advance(11_000);
                }
                proxy.sees(stream);
            }
        }
        assert!(proxy.log().len() > 10, "warnings, each ten seconds after the one before");
        no_canary(proxy, "requests");
    });
}

#[test]
fn nothing_of_a_policy_that_is_cut_off_anywhere_is_logged() {
    in_vm(|proxy| {
        let text = canary_policy().to_string();
        let root = proxy.root_without_policy();
        for end in 0..text.len() {
            assert!(!proxy.configure(root, &text[..end]));
            no_canary(proxy, &text[..end]);
        }
    });
}

#[test]
fn nothing_of_a_policy_that_is_wrong_anywhere_is_logged() {
    let good = canary_policy();
    let (mut refused, mut total) = (0, 0);
    in_vm(|proxy| {
        let root = proxy.root_without_policy();
        for bad in variants(&good) {
            total += 1;
            if !proxy.configure(root, bad.to_string()) {
                refused += 1;
            }
            no_canary(proxy, &bad.to_string());
        }
    });
    assert!(refused > 500 && total > refused, "{refused} of {total} were refused");
}

#[test]
fn the_value_of_a_variable_that_is_no_header_is_not_logged() {
    in_vm(|proxy| {
        let root = proxy.root_without_policy();
        for name in ["CANARY_NO_HEADER", "CANARY_ABSENT", "canary", "1CANARY", "CANARY=canary", ""] {
            let mut policy = canary_policy();
            policy["limiters"][CANARY]["auth_env"] = json!(name);
            assert!(!proxy.configure(root, policy.to_string()), "{name}");
            assert!(proxy.log().len() >= 2, "{name}");
            no_canary(proxy, name);
        }
    });
}

/// The value with one thing changed, for each thing in it and each way to change it.
fn variants(value: &Value) -> Vec<Value> {
    let instead = [
        json!("canary!"),
        json!("Canary/canary"),
        json!("canary.canary"),
        json!(7),
        json!(-1),
        json!(0.5),
        json!(true),
        json!(null),
        json!([]),
        json!({}),
        json!(["canary"]),
        // A short word of small letters, where a limit is wanted, is told as it stands: it could be one.
        json!({"canary": "canary!"}),
    ];
    let mut variants: Vec<Value> = instead.into();
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let with = |item| {
                    let mut items = items.clone();
                    items[at] = item;
                    Value::Array(items)
                };
                variants.extend(self::variants(item).into_iter().map(with));
                variants.push(Value::Array([items.clone(), vec![item.clone()]].concat()));
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let with = |name: &str, value| {
                    let mut fields: Map<String, Value> = fields.clone();
                    fields.insert(name.to_owned(), value);
                    Value::Object(fields)
                };
                variants.extend(self::variants(value).into_iter().map(|value| with(name, value)));
                let mut without = fields.clone();
                without.remove(name);
                variants.push(Value::Object(without.clone()));
                without.insert(format!("{name}canary"), value.clone());
                variants.push(Value::Object(without));
                variants.push(with("canary!", value.clone()));
            }
        }
        _ => {}
    }
    variants
}
