//! Networks in `tenants` and `overrides`: which one an address is in, and that each address keeps a bucket of its own.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::policy::{Policy, Problem};
use weir::request::Refused;
use weir::rules::{Ruling, judge};

use crate::made::{ENVIRONMENT, Sent, key_of, policy_of};

/// What a client at this address gets: how much a minute, and of which bucket.
fn by(policy: &Policy, address: &str) -> String {
    let request = Sent::new(&[(":method", b"GET"), (":path", b"/"), (".source.address", address.as_bytes())]);
    match judge(policy, &request).ruling {
        Ruling::Ask(asks) => format!("{} {}", asks[0].limit.requests(), key_of(policy, &asks[0])),
        Ruling::Refuse(Refused::Forbidden, Some(0)) => "deny".to_owned(),
        Ruling::Pass => "unlimited".to_owned(),
        other => panic!("{other:?}"),
    }
}

const KEY: &str = r#"[{"client_ip": {"from": "host", "ipv6_prefix": 64, "as": "ip"}}]"#;

const TIERS: &str = r#"{"free": "60/m", "gold": "600/m", "dark": "6/m"}"#;

/// What clients get by these entries, the bucket left out.
fn rates(tenants: &str, overrides: &str, addresses: &[&str]) -> Vec<String> {
    let rule = format!(r#", "tier": {{"default": "free", "tenants": {tenants}}}, "overrides": {overrides}"#);
    let policy = policy_of(KEY, TIERS, &rule, "");
    let rate = |address: &&str| by(&policy, address).split(' ').next().unwrap_or_default().to_owned();
    addresses.iter().map(rate).collect()
}

#[wasm_bindgen_test(unsupported = test)]
fn the_longest_network_wins() {
    let tenants = r#"{"ip.0.0.0.0/0": "dark", "ip.10.0.0.0/8": "gold", "ip.10.1.0.0/16": "free", "ip.10.1.2.0/24": "gold",
        "ip.10.1.2.3": "dark", "ip.10.1.2.4/32": "free", "ip.10.1.2.4/31": "dark"}"#;
    let addresses = [
        "10.0.0.0:80",
        "10.255.255.255:80",
        "9.255.255.255:80",
        "11.0.0.0:80",
        "10.1.0.0:80",
        "10.1.255.255:80",
        "10.1.2.0:80",
        "10.1.2.255:80",
        "10.1.2.3:80",
        "10.1.2.4:80",
        "10.1.2.5:80",
        "10.1.2.6:80",
        "0.0.0.0:80",
        "255.255.255.255:80",
        "[::ffff:10.1.2.3]:80",
        "[::]:80",
        "[2001:db8::1]:80",
    ];
    let wanted = "600 600 6 6 60 60 600 600 6 60 6 600 6 6 6 60 60".split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rates(tenants, "{}", &addresses), wanted);
    // In any order of the entries.
    let reversed = r#"{"ip.10.1.2.4/31": "dark", "ip.10.1.2.4/32": "free", "ip.10.1.2.3": "dark", "ip.10.1.2.0/24": "gold",
        "ip.10.1.0.0/16": "free", "ip.10.0.0.0/8": "gold", "ip.0.0.0.0/0": "dark"}"#;
    assert_eq!(rates(reversed, "{}", &addresses), wanted);
}

#[wasm_bindgen_test(unsupported = test)]
fn networks_of_ipv6_are_as_long_as_what_requests_are_cut_to() {
    let tenants = r#"{"ip.::/0": "dark", "ip.2001:db8::/32": "gold", "ip.2001:db8:1::/48": "free", "ip.2001:db8:1:2::/64": "gold",
        "ip.2001:db8:1:3::": "dark"}"#;
    let addresses = [
        "[::1]:80",
        "[2001:db7:ffff::1]:80",
        "[2001:db8::1]:80",
        "[2001:db8:ffff::1]:80",
        "[2001:db9::]:80",
        "[2001:db8:1::1]:80",
        "[2001:db8:1:2:3:4:5:6]:80",
        "[2001:db8:1:3::9]:80",
        "[2001:db8:1:4::]:80",
        "10.0.0.1:80",
    ];
    assert_eq!(rates(tenants, "{}", &addresses).join(" "), "6 6 600 600 6 60 600 6 60 60");
}

#[wasm_bindgen_test(unsupported = test)]
fn overrides_win_over_tiers_and_the_longest_within_each() {
    let tenants =
        r#"{"ip.10.1.2.3": "gold", "ip.10.1.0.0/16": "dark", "ip.192.0.2.0/24": "gold", "ip.198.51.100.0/24": "gold"}"#;
    let overrides = r#"{"ip.10.0.0.0/8": "deny", "ip.10.2.0.0/16": "unlimited", "ip.10.2.0.1": "7/m", "ip.192.0.2.0/24": "8/m",
        "ip.192.0.2.1": "deny"}"#;
    let addresses = [
        "10.1.2.3:80",
        "10.1.2.4:80",
        "10.3.0.1:80",
        "10.2.0.2:80",
        "10.2.0.1:80",
        "192.0.2.2:80",
        "192.0.2.1:80",
        "198.51.100.7:80",
        "203.0.113.7:80",
    ];
    let found = rates(tenants, overrides, &addresses).join(" ");
    assert_eq!(found, "deny deny deny unlimited 7 8 deny 600 60");
}

#[wasm_bindgen_test(unsupported = test)]
fn each_address_of_a_network_has_a_bucket_of_its_own() {
    let policy =
        policy_of(KEY, r#""60/m""#, r#", "overrides": {"ip.10.0.0.0/8": "7/m", "ip.2001:db8::/32": "8/m"}"#, "");
    assert_eq!(by(&policy, "10.0.0.1:80"), "7 rl:{ip.10%2E0%2E0%2E1}:per-key:default:60000:t3");
    assert_eq!(by(&policy, "10.0.0.2:80"), "7 rl:{ip.10%2E0%2E0%2E2}:per-key:default:60000:t3");
    assert_eq!(by(&policy, "[2001:db8:1::7]:80"), "8 rl:{ip.2001%3Adb8%3A1%3A%3A}:per-key:default:60000:t3");
    assert_eq!(by(&policy, "[2001:db8:2::7]:80"), "8 rl:{ip.2001%3Adb8%3A2%3A%3A}:per-key:default:60000:t3");
    assert_eq!(by(&policy, "11.0.0.1:80"), "60 rl:{ip.11%2E0%2E0%2E1}:per-key:default:60000:t3");
    assert_eq!(by(&policy, "/var/run/envoy.sock"), "60 rl:{none.anonymous}:per-key:default:60000:t3");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_network_is_of_one_source() {
    let key = r#"[{"header": {"name": "x-user", "as": "user", "trusted": true}},
        {"client_ip": {"from": "x_forwarded_for", "peer_appended": true, "trusted_hops": 0, "as": "chain"}},
        {"client_ip": {"from": "host", "as": "peer"}}]"#;
    let policy =
        policy_of(key, r#""60/m""#, r#", "overrides": {"peer.10.0.0.0/8": "7/m", "chain.10.0.0.0/8": "8/m"}"#, "");
    let rate = |headers: &[(&str, &[u8])]| match judge(&policy, &Sent::new(headers)).ruling {
        Ruling::Ask(asks) => asks[0].limit.requests(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rate(&[("x-user", b"10.0.0.1"), (".source.address", b"10.0.0.1:80")]), 60);
    assert_eq!(rate(&[(".source.address", b"10.0.0.1:80")]), 7);
    assert_eq!(rate(&[("x-forwarded-for", b"10.0.0.1"), (".source.address", b"10.0.0.1:80")]), 8);
    assert_eq!(rate(&[("x-forwarded-for", b"11.0.0.1"), (".source.address", b"10.0.0.1:80")]), 60);
}

/// What people are told of a policy whose guard by address is this and that has another rule by an untrusted header.
fn told_of(overrides: &str) -> Vec<String> {
    let json = format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis"}}}}, "rules": [
            {{"name": "guard", "key": {KEY}, "limits": "60/m", "overrides": {overrides}, "on_error": "deny"}},
            {{"name": "user", "key": [{{"header": "x-user"}}], "limits": "60/m", "on_error": "deny"}}]}}"#
    );
    let told = |problems: Vec<Problem>| problems.iter().map(|problem| problem.for_people().to_string()).collect();
    Policy::from_host(json.as_bytes(), ENVIRONMENT).map_or_else(told, |_| Vec::new())
}

#[wasm_bindgen_test(unsupported = test)]
fn a_guard_that_lets_all_addresses_pass_counts_nobody() {
    assert_eq!(told_of(r#"{"ip.10.0.0.0/8": "unlimited", "ip.0.0.0.0/0": "deny"}"#), [""; 0]);
    for all in ["0.0.0.0/0", "::/0"] {
        let told = told_of(&format!(r#"{{"ip.{all}": "unlimited"}}"#));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("rules[1].key[0].header: is not trusted, and no other rule limits all"),
            "{told:?}"
        );
    }
}
