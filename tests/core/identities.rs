//! Where a tenant's value is read from, what a client can send there, and what is read for it.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::request::Refused;
use weir::rules::{Ruling, judge};

use crate::addresses::{CASES, HOST, forwarded};
use crate::made::{Sent, policy_of};

type Headers<'h> = [(&'h str, &'h [u8])];

/// The tenant of the bucket that is asked, or the name of the ruling.
fn who(key: &str, headers: &Headers) -> String {
    who_with(key, "", headers)
}

fn who_with(key: &str, top: &str, headers: &Headers) -> String {
    let policy = policy_of(key, r#""60/m""#, "", top);
    match judge(&policy, &Sent::new(headers)).ruling {
        Ruling::Ask(asks) => asks.first().map(|ask| ask.bucket.tenant.as_str().to_owned()).unwrap_or_default(),
        Ruling::Refuse(refused, _) => format!("{refused:?}").to_lowercase(),
        Ruling::Pass => "pass".to_owned(),
    }
}

/// A path, or a header, and the tenant.
type Rows<'r> = &'r [(&'r [u8], &'r str)];

const NOBODY: &str = "none.anonymous";

#[wasm_bindgen_test(unsupported = test)]
fn a_header_of_any_bytes_is_one_tenant() {
    let key = r#"[{"header": {"name": "x-user", "trusted": true}}]"#;
    let long = [b'a'; 65];
    let longest = [b'a'; 60_000];
    let rows: Rows = &[
        (b"acme", "header.acme"),
        (b"", NOBODY),
        (b" ", "header.%20"),
        (b"a,b", "header.a%2Cb"),
        (b"\xff\x00", "header.%FF%00"),
        (&long, "header.~a51013b279a056e7ead7a1eedcbae2d3"),
        (&longest, "header.~2e8a62eeda32d1ebbbba3bd85e5acc60"),
    ];
    for (value, wanted) in rows {
        let found = who(key, &[("x-user", value)]);
        // Of the longest it counts that it is hashed.
        let found = if value.len() > 1000 { found.get(..8).unwrap_or_default().to_owned() } else { found };
        let wanted = if value.len() > 1000 { "header.~" } else { wanted };
        assert_eq!(found, wanted, "{} bytes", value.len());
    }
    assert_eq!(who(key, &[]), NOBODY);
    assert_eq!(who(key, &[("x-user", b"first"), ("x-user", b"second")]), "header.first");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_parameter_of_the_query_is_decoded_as_forms_are() {
    let rows: Rows = &[
        (b"/?key=acme", "query.acme"),
        (b"/?a=b&key=acme&c", "query.acme"),
        (b"/?key=a&key=b", "query.a"),
        (b"/?%6bey=acme", "query.acme"),
        (b"/?%6Bey=%61c%6De", "query.acme"),
        (b"/?key=a+b", "query.a%20b"),
        (b"/?key=a%20b", "query.a%20b"),
        (b"/?key=a%2Bb", "query.a%2Bb"),
        (b"/?key=a=b", "query.a%3Db"),
        (b"/?key=a;b", "query.a%3Bb"),
        (b"/?key=%", "query.%25"),
        (b"/?key=%4", "query.%254"),
        (b"/?key=%zz", "query.%25zz"),
        (b"/?key=%25", "query.%25"),
        (b"/?key=%00", "query.%00"),
        (b"/?key=\xff", "query.%FF"),
        (b"/?key=%FF", "query.%FF"),
        (b"/?x?key=acme", NOBODY),
        (b"/?x#&key=acme", NOBODY),
        (b"/#?key=acme", "query.acme"),
        (b"/?key=acme#x", "query.acme"),
        (b"/?Key=acme", NOBODY),
        (b"/?key", NOBODY),
        (b"/?key=", NOBODY),
        (b"/?key&key=acme", NOBODY),
        (b"/?", NOBODY),
        (b"/", NOBODY),
        (b"", NOBODY),
        (b"*", NOBODY),
        (b"/%zz?key=acme", "query.acme"),
        (b"http://h/?key=acme", "query.acme"),
    ];
    for (path, wanted) in rows {
        let wanted = if path.starts_with(b"/#") { NOBODY } else { wanted };
        let found = who(r#"[{"query": {"name": "key", "trusted": true}}]"#, &[(":path", path)]);
        assert_eq!(found, *wanted, "{}", path.escape_ascii());
    }
    assert_eq!(who(r#"[{"query": {"name": "key", "trusted": true}}]"#, &[]), NOBODY);
    let long = format!("/?key={}", "%61".repeat(65));
    let found = who(r#"[{"query": {"name": "key", "trusted": true}}]"#, &[(":path", long.as_bytes())]);
    assert_eq!(found, "query.~a51013b279a056e7ead7a1eedcbae2d3");
    let secret = r#"[{"query": {"name": "key", "as": "key", "secret": true, "trusted": true}}]"#;
    assert_eq!(who(secret, &[(":path", b"/?key=k1")]), "key.~c08d7bc803407e268b963d84dab029b1");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_cookie_is_found_among_others() {
    let rows: Rows = &[
        (b"sid=acme", "cookie.acme"),
        (b"a=b; sid=acme; c=d", "cookie.acme"),
        (b"a=b;sid=acme", "cookie.acme"),
        (b"  sid  =  acme  ", "cookie.acme"),
        (b"sid=\"acme\"", "cookie.acme"),
        (b"sid=\"acme", "cookie.%22acme"),
        (b"sid=\"", "cookie.%22"),
        (b"sid=\"\"", NOBODY),
        (b"sid=a=b", "cookie.a%3Db"),
        (b"sid=a%20b", "cookie.a%2520b"),
        (b"sid=a; sid=b", "cookie.a"),
        (b"SID=acme", NOBODY),
        (b"xsid=acme", NOBODY),
        (b"sid", NOBODY),
        (b"sid=", NOBODY),
        (b"", NOBODY),
        (b";;=;", NOBODY),
        (b"sid=\xff\x00", "cookie.%FF%00"),
    ];
    for (sent, wanted) in rows {
        let found = who(r#"[{"cookie": {"name": "sid", "trusted": true}}]"#, &[("cookie", sent)]);
        assert_eq!(found, *wanted, "{}", sent.escape_ascii());
    }
    assert_eq!(who(r#"[{"cookie": {"name": "sid", "trusted": true}}]"#, &[]), NOBODY);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_host_has_one_spelling() {
    let rows: Rows = &[
        (b"example.com", "host.example%2Ecom"),
        (b"EXAMPLE.com", "host.example%2Ecom"),
        (b"example.com:443", "host.example%2Ecom"),
        (b"example.com.", "host.example%2Ecom"),
        (b"example.com.:80", "host.example%2Ecom"),
        (b"localhost", "host.localhost"),
        (b"127.0.0.1:80", "host.127%2E0%2E0%2E1"),
        (b"[::1]", "host.%5B%3A%3A1%5D"),
        (b"[::1]:80", "host.%5B%3A%3A1%5D"),
        (b"[::1].:80", "host.%5B%3A%3A1%5D"),
        (b"[0:0::0:1]", "host.%5B%3A%3A1%5D"),
        (b"::1", "host.%5B%3A%3A1%5D"),
        (b"[2001:DB8:0::1]:443", "host.%5B2001%3Adb8%3A%3A1%5D"),
        (b"[::FFFF:192.0.2.1]", "host.%5B%3A%3Affff%3A192%2E0%2E2%2E1%5D"),
        (b"[V1.X]:80", "host.%5Bv1%2Ex%5D"),
        (b"example.com..", "host.example%2Ecom"),
        (b"Example.com...:443", "host.example%2Ecom"),
        (b"example.com:", "host.example%2Ecom"),
        (b"example.com:80:80", "host.example%2Ecom"),
        (b"...", NOBODY),
        (b":80", NOBODY),
        (b".", NOBODY),
        (b"", NOBODY),
        (b"\xff", "host.%FF"),
    ];
    for (sent, wanted) in rows {
        let found = who(r#"[{"host": {"trusted": true}}]"#, &[(":authority", sent)]);
        assert_eq!(found, *wanted, "{}", sent.escape_ascii());
    }
    assert_eq!(who(r#"[{"host": {"trusted": true}}]"#, &[]), NOBODY);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_segment_is_of_the_path_in_normal_form() {
    let second = r#"[{"path_segment": {"index": 2, "as": "org", "trusted": true}}]"#;
    let lower = r#", "paths": {"ignore_case": true, "strip_path_parameters": true, "malformed": "default"}"#;
    let rows: &[(&[u8], &str, &str)] = &[
        (b"/v1/acme", "org.acme", "org.acme"),
        (b"/v1/acme/x", "org.acme", "org.acme"),
        (b"/v1//acme", "org.acme", "org.acme"),
        (b"/v1/./%61cme?x", "org.acme", "org.acme"),
        (b"/v1/x/../acme", "org.acme", "org.acme"),
        (b"http://h/v1/acme", "org.acme", "org.acme"),
        (b"/v1/Acme", "org.Acme", "org.acme"),
        (b"/v1/acme;a=b/x", "org.acme%3Ba%3Db", "org.acme"),
        (b"/v1/a%2fb", "org.a%252Fb", "org.a%252Fb"),
        (b"/v1", NOBODY, NOBODY),
        (b"/v1/", NOBODY, NOBODY),
        (b"/", NOBODY, NOBODY),
        (b"*", NOBODY, NOBODY),
        (b"", NOBODY, NOBODY),
        (b"/v1/%zz", "malformed", NOBODY),
        (b"/v1/a b", "malformed", NOBODY),
        (b"v1/acme", "malformed", NOBODY),
    ];
    for (path, wanted, wanted_lower) in rows {
        assert_eq!(who(second, &[(":path", path)]), *wanted, "{}", path.escape_ascii());
        assert_eq!(who_with(second, lower, &[(":path", path)]), *wanted_lower, "{}", path.escape_ascii());
    }
    assert_eq!(who(second, &[]), NOBODY);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_property_is_what_the_host_says() {
    let key =
        r#"[{"property": {"path": ["metadata", "filter_metadata", "a.b", "sub"], "as": "user", "trusted": true}}]"#;
    const NAME: &str = ".metadata.filter_metadata.a.b.sub";
    let rows: Rows = &[(b"acme", "user.acme"), (b"", NOBODY), (b"\xff\x00", NOBODY)];
    for (value, wanted) in rows {
        assert_eq!(who(key, &[(NAME, value)]), *wanted);
    }
    assert_eq!(who(key, &[]), NOBODY);
}

#[wasm_bindgen_test(unsupported = test)]
fn all_of_several_values_are_joined_or_there_is_none() {
    let key = r#"[{"all": [{"header": {"name": "a", "trusted": true}}, {"header": {"name": "b", "trusted": true}}]}]"#;
    let rows: &[(&Headers, &str)] = &[
        (&[("a", b"x"), ("b", b"y")], "all.x%2Cy"),
        // Parts cannot run into each other.
        (&[("a", b"x,y"), ("b", b"z")], "all.x%252Cy%2Cz"),
        (&[("a", b"x"), ("b", b"y,z")], "all.x%2Cy%252Cz"),
        (&[("a", b"x")], NOBODY),
        (&[("b", b"x")], NOBODY),
        (&[("a", b""), ("b", b"x")], NOBODY),
        (&[("a", b"x"), ("b", b"")], NOBODY),
        (&[], NOBODY),
    ];
    for (headers, wanted) in rows {
        assert_eq!(who(key, headers), *wanted, "{headers:?}");
    }
    let secret = key.replace(r#""b", "#, r#""b", "secret": true, "#);
    let hashed = who(&secret, &[("a", b"x"), ("b", b"y")]);
    assert!(hashed.starts_with("all.~") && hashed.len() == 37, "{hashed}");
    // A tenant of the policy is written as the values are joined.
    let tier = r#", "overrides": {"all.x,y": "deny"}"#;
    let policy = policy_of(key, r#""60/m""#, tier, "");
    assert_eq!(
        judge(&policy, &Sent::new(&[("a", b"x"), ("b", b"y")])).ruling,
        Ruling::Refuse(Refused::Forbidden, Some(0))
    );
    assert!(matches!(judge(&policy, &Sent::new(&[("a", b"x"), ("b", b"z")])).ruling, Ruling::Ask(_)));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_value_that_is_sent_twice_may_be_refused() {
    let key = |source: &str, doubled: &str| {
        let main = if source == "authorization" { r#""scheme": "bearer""# } else { r#""name": "a""# };
        format!(r#"[{{"{source}": {{{main}, "trusted": true {doubled}}}}}]"#)
    };
    const REFUSE: &str = r#", "doubled": "refuse""#;
    let table: &[(&str, &Headers, bool)] = &[
        ("header", &[("a", b"x"), ("a", b"y")], true),
        ("header", &[("a", b"x"), ("a", b"x")], true),
        ("header", &[("a", b"x"), ("b", b"x")], false),
        ("header", &[], false),
        ("authorization", &[("authorization", b"Bearer x"), ("authorization", b"Bearer y")], true),
        ("authorization", &[("authorization", b"Bearer x")], false),
        ("query", &[(":path", b"/?a=x&a=y")], true),
        ("query", &[(":path", b"/?a=x&%61=y")], true),
        ("query", &[(":path", b"/?a=x&b=y")], false),
        ("cookie", &[("cookie", b"a=x; a=y")], true),
        ("cookie", &[("cookie", b"a=x; b=y")], false),
    ];
    for (source, headers, is_doubled) in table {
        let refused = who(&key(source, REFUSE), headers) == "doubled";
        assert_eq!(refused, *is_doubled, "{source} {headers:?}");
        assert_ne!(who(&key(source, ""), headers), "doubled");
        // A shadow rule never refuses.
        let shadow = policy_of(&key(source, REFUSE), r#""60/m""#, r#", "shadow_mode": true"#, "");
        assert!(matches!(judge(&shadow, &Sent::new(headers)).ruling, Ruling::Pass | Ruling::Ask(_)));
    }
    // An empty first value hides no second one.
    assert_eq!(who(&key("header", REFUSE), &[("a", b""), ("a", b"y")]), "doubled");
    assert_eq!(who(&key("query", REFUSE), &[(":path", b"/?a&a=y")]), "doubled");
}

#[wasm_bindgen_test(unsupported = test)]
fn the_clients_address_is_told_by_whoever_can_be_believed() {
    for (before, manager, peer, sent, source, safe, wanted) in CASES {
        let forwarded = forwarded(*manager, peer, sent);
        let mut headers: Vec<(&str, &[u8])> = vec![(".source.address", source.as_bytes())];
        if !forwarded.is_empty() {
            headers.push(("x-forwarded-for", forwarded.as_bytes()));
        }
        let policy = policy_of(&format!(r#"[{{"client_ip": {safe}}}]"#), r#""60/m""#, "", "");
        let sent = Sent::new(&headers);
        let Ruling::Ask(asks) = judge(&policy, &sent).ruling else { panic!("{before}") };
        let tenant = match *wanted {
            "" => NOBODY.to_owned(),
            address => format!("client_ip.{}", weir::percent::escape(address.as_bytes())),
        };
        let told = asks.first().map(|ask| ask.bucket.tenant.as_str()).unwrap_or_default();
        assert_eq!(told, tenant, "{before}, {safe}");
        // One value is read, never both.
        let read = if *safe == HOST { ".source.address" } else { "x-forwarded-for" };
        assert_eq!(sent.read(), [read]);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn an_address_has_one_spelling_or_is_none() {
    let table: &[(&str, &str)] = &[
        ("203.0.113.7", "203.0.113.7"),
        (" 203.0.113.7\t", "203.0.113.7"),
        ("203.0.113.7:80", "203.0.113.7"),
        ("203.0.113.7:", "203.0.113.7"),
        ("203.0.113.7:x", ""),
        ("203.0.113.7:80:80", ""),
        ("203.0.113.07", ""),
        ("203.0.113", ""),
        ("203.0.113.256", ""),
        ("3405803783", ""),
        ("0xcb.0.113.7", ""),
        ("203.0.113.7%eth0", ""),
        ("[203.0.113.7]", ""),
        ("[203.0.113.7]:80", ""),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("::ffff:cb00:7107", "203.0.113.7"),
        ("0:0:0:0:0:FFFF:203.0.113.7", "203.0.113.7"),
        ("[::ffff:203.0.113.7]:80", "203.0.113.7"),
        ("::ffff:203.0.113.7%eth0", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]443", ""),
        ("[2001:db8::1]:x", ""),
        ("[2001:db8::1", ""),
        ("2001:db8::1]", ""),
        ("[]", ""),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:80", "fe80::1"),
        ("fe80::1%", "fe80::1"),
        ("::", "::"),
        ("::1", "::1"),
        ("1::2::3", ""),
        ("12345::1", ""),
        ("g::1", ""),
        (":", ""),
        ("", ""),
        ("unknown", ""),
        ("_hidden", ""),
        ("example.com", ""),
        ("\u{e9}", ""),
    ];
    let key = r#"[{"client_ip": {"from": "host", "ipv6_prefix": 128, "as": "ip"}}]"#;
    for (text, wanted) in table {
        let tenant = match *wanted {
            "" => NOBODY.to_owned(),
            address => format!("ip.{}", weir::percent::escape(address.as_bytes())),
        };
        assert_eq!(who(key, &[(".source.address", text.as_bytes())]), tenant, "{text}");
    }
    assert_eq!(who(key, &[(".source.address", b"\xff")]), NOBODY);
    for (prefix, wanted) in [
        (1, "8000::"),
        (32, "ffff:eeee::"),
        (64, "ffff:eeee:dddd:cccc::"),
        (127, "ffff:eeee:dddd:cccc:bbbb:aaaa:9999:8886"),
    ] {
        let key = format!(r#"[{{"client_ip": {{"from": "host", "ipv6_prefix": {prefix}, "as": "ip"}}}}]"#);
        let found = who(&key, &[(".source.address", b"ffff:eeee:dddd:cccc:bbbb:aaaa:9999:8887")]);
        assert_eq!(found, format!("ip.{}", weir::percent::escape(wanted.as_bytes())));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_several_sources_and_rules_ask_for_is_read_once() {
    let key = r#"[{"client_ip": {"from": "host"}}]"#;
    let plan = r#""tier": {"default": "free", "sources": [{"property": {"path": ["plan"], "trusted": true}}], "tenants": {"user.acme": "gold"}}"#;
    let rules = format!(
        r#", "classes": [{{"class": "a", "match": {{"methods": ["GET"], "headers": {{"x-a": {{"exact": "1"}}}}}}}},
            {{"class": "b", "match": {{"headers": {{"x-a": {{"exact": "2"}}}}, "query": {{"q": {{"present": true}}}}}}}}],
        "rules": [
            {{"name": "ip", "key": {key}, "limits": "100/s", "on_error": "allow"}},
            {{"name": "ip2", "key": {key}, "limits": "100/s", "on_error": "allow"}},
            {{"name": "user", "key": [{{"header": {{"name": "x-user", "as": "user", "trusted": true}}}}], {plan},
              "limits": {{"free": "60/m", "gold": "600/m"}}, "on_error": "allow"}},
            {{"name": "user2", "key": [{{"header": {{"name": "x-user", "as": "user", "trusted": true, "doubled": "refuse"}}}}], {plan},
              "limits": {{"free": "60/m", "gold": "600/m"}}, "on_error": "allow"}}]"#
    );
    let policy = crate::made::policy(&format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis"}}}} {rules}}}"#
    ));
    let table: &[(&str, &Headers, &[&str])] = &[
        // The path only for the query, the tier only of those whom the policy does not name.
        ("GET", &[("x-user", b"joe")], &[":method", "x-a", ".source.address", "x-user", ".plan", "all"]),
        ("GET", &[("x-a", b"1"), ("x-user", b"acme")], &[":method", "x-a", ".source.address", "x-user", "all"]),
        ("POST", &[("x-a", b"2")], &[":method", "x-a", ":path", ".source.address", "x-user", ".plan"]),
    ];
    for (method, headers, wanted) in table {
        let mut all: Vec<(&str, &[u8])> = vec![(":method", method.as_bytes()), (":path", b"/")];
        all.extend(headers.iter().copied());
        let sent = Sent::new(&all);
        judge(&policy, &sent);
        assert_eq!(sent.read(), *wanted, "{method} {headers:?}");
    }
}
