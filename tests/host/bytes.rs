//! Bytes that nobody should send: a String getter of the SDK would panic on them, and one panic is the end of a VM.

use serde_json::json;

use crate::fake::Phase;
use crate::policy::{grants, passed};
use crate::proxy::with_policy;

const ALL: [u8; 255] = {
    let mut bytes = [0; 255];
    let mut at = 0;
    while at < 255 {
        bytes[at] = at as u8 + 1;
        at += 1;
    }
    bytes
};

/// A tenant's value and how it stands in the key, or None where it names nobody.
#[rustfmt::skip]
fn tenants() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    vec![
        ("no UTF-8",                   vec![0xff, 0xfe, b'a'],  "user.%FF%FEa"),
        ("half a character",           vec![0xe2, 0x82],        "user.%E2%82"),
        ("a NUL",                      vec![0],                 "user.%00"),
        ("what ends a hash tag",       b"a}b{c".to_vec(),       "user.a%7Db%7Bc"),
        ("what separates a key",       b"a:b".to_vec(),         "user.a%3Ab"),
        ("what looks like a hash",     b"~00".to_vec(),         "user.%7E00"),
        ("what looks escaped",         b"%41".to_vec(),         "user.%2541"),
        ("a space",                    b" ".to_vec(),           "user.%20"),
        ("64 bytes",                   vec![b'a'; 64],          "user.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ("65 bytes",                   vec![b'a'; 65],          "user.~becd66ba9aa73efdb9dd8998166e8616"),
        ("a million bytes",            vec![0xff; 1_000_000],   "user.~43fa8f8d2eea58d4e9237475ed6529e0"),
        ("all bytes",                  ALL.to_vec(),            "user.~fc59bb28d291538a90f68eaca8bf7127"),
        ("nothing",                    vec![],                  "none.anonymous"),
    ]
}

#[test]
fn any_bytes_can_name_a_tenant() {
    for (name, value, tenant) in tenants() {
        with_policy(&[], |proxy, root| {
            let headers = [(":method", &b"GET"[..]), (":path", b"/v1/items"), ("x-user-id", &value)];
            let stream = proxy.request(root, &headers);
            proxy.run();
            let key = format!("rl:{{{tenant}}}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 1");
            assert_eq!(proxy.asked(), key, "{name}");
            proxy.answer(grants(59, &[1]));
            assert_eq!(proxy.sees(stream), passed(59), "{name}");
        });
    }
}

#[test]
fn credentials_of_any_bytes_are_hashed_or_name_nobody() {
    let changes = [
        ("/hash_secret_env", json!("CANARY_HASH")),
        ("/rules/0/tier", json!({"default": "free"})),
        (
            "/rules/0/key",
            json!([
                {"authorization": {"scheme": "bearer", "as": "token", "trusted": true}},
                {"authorization": {"scheme": "basic", "as": "user", "trusted": true}},
            ]),
        ),
    ];
    #[rustfmt::skip]
    let rows: &[(&[u8], &str)] = &[
        (b"Bearer s3cret\xff",          "none.anonymous"),
        (b"BEARER   s3cret\xff  ",      "none.anonymous"),
        (b"Basic YWxpY2U6\xff",         "none.anonymous"),
        (b"Basic YWxpY2U6cHc=",         "user.~fd7e9288e43ac8b1fd3fc144c2960f93"),
        (b"Basic YWxpY2U6cHc",          "user.~fd7e9288e43ac8b1fd3fc144c2960f93"),
        (b"Basic YWxpY2U=",             "none.anonymous"), // no colon
        (b"Basic OnB3",                 "none.anonymous"), // no user
        (b"Basic ====",                 "none.anonymous"),
        (b"Bearer",                     "none.anonymous"),
        (b"Bearer ",                    "none.anonymous"),
        (b" ",                          "none.anonymous"),
        (b"",                           "none.anonymous"),
        (b"\xff\xff \xff",              "none.anonymous"),
        (&ALL,                          "none.anonymous"),
    ];
    for (value, tenant) in rows {
        with_policy(&changes, |proxy, root| {
            proxy.request(root, &[(":method", &b"GET"[..]), (":path", b"/"), ("authorization", value)]);
            proxy.run();
            let key = format!("rl:{{{tenant}}}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 1");
            assert_eq!(proxy.asked(), key, "{}", value.escape_ascii());
        });
    }
}

#[test]
fn a_path_of_any_bytes_is_classified_or_malformed() {
    #[rustfmt::skip]
    let rows: &[(&[u8], Phase)] = &[
        (b"/v1/reports/\xff/export",        Phase::Paused),
        (b"/v1/reports/%ff/export",         Phase::Paused),
        (b"/\xe2\x82",                      Phase::Paused),
        (b"/%00",                           Phase::Answered),
        (b"/\x00",                          Phase::Answered),
        (b"/a b",                           Phase::Answered),
        (b"\xff",                           Phase::Answered),
        (b"/%f",                            Phase::Answered),
        (b"/%\xff\xff",                     Phase::Answered),
        (b"http://\xff/\xfe",               Phase::Paused),
        (b"/admin/\xff",                    Phase::Answered),
        (b"/%61dmin/\xff",                  Phase::Answered),
        (b"",                               Phase::Paused),
        (&ALL,                              Phase::Answered),
    ];
    for (path, phase) in rows {
        with_policy(&[], |proxy, root| {
            let stream = proxy.request(root, &[(":method", &b"POST"[..]), (":path", path), ("x-user-id", b"u1")]);
            assert_eq!(proxy.phase(stream), *phase, "{}", path.escape_ascii());
        });
    }
}

#[test]
fn a_path_of_a_million_bytes_is_classified() {
    for unit in [&b"/a"[..], b"/..", b"/%2e%2e", b"/.", b"/\xff", b"%41"] {
        with_policy(&[], |proxy, root| {
            let mut path = b"/".to_vec();
            path.extend(unit.repeat(1_000_000 / unit.len()));
            let stream =
                proxy.request(root, &[(":method", b"GET".to_vec()), (":path", path), ("x-user-id", vec![b'u'])]);
            assert_ne!(proxy.phase(stream), Phase::Passed, "{}", unit.escape_ascii());
        });
    }
}

#[test]
fn a_method_of_any_bytes_is_of_no_class() {
    for method in [&b"\xff"[..], b"", b"\x00", b"OPTIONS\xff", b"options", b" OPTIONS", &ALL] {
        with_policy(&[], |proxy, root| {
            let stream = proxy.request(root, &[(":method", method), (":path", b"/v1/items"), ("x-user-id", b"u1")]);
            assert_eq!(proxy.phase(stream), Phase::Paused, "{}", method.escape_ascii());
        });
    }
}

#[test]
fn a_request_without_any_header_is_limited() {
    with_policy(&[], |proxy, root| {
        let stream = proxy.request::<&[u8]>(root, &[]);
        assert_eq!(proxy.phase(stream), Phase::Paused);
    });
}

#[test]
fn a_header_that_is_sent_twice_is_read_as_its_first_value() {
    with_policy(&[], |proxy, root| {
        proxy.request(root, &[(":method", "GET"), (":path", "/"), ("x-user-id", "u1"), ("x-user-id", "u2")]);
        proxy.run();
        assert_eq!(proxy.asked(), "rl:{user.u1}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 1");
    });
}

#[test]
fn a_reply_of_any_bytes_is_unreadable_and_never_a_grant() {
    let true_reply = grants(59, &[1]).into_bytes();
    for at in 0..true_reply.len() {
        for byte in [0x00, b' ', b'"', b'0', b'9', b'-', b']', 0x80, 0xff] {
            let mut reply = true_reply.clone();
            reply[at] = byte;
            if byte == true_reply[at] || serde_json::from_slice::<serde_json::Value>(&reply).is_ok() {
                continue;
            }
            with_policy(&[], |proxy, root| {
                let stream = proxy.get(root, "u1");
                proxy.run();
                proxy.answer(&reply);
                assert_eq!(proxy.phase(stream), Phase::Answered, "{}", reply.escape_ascii());
                assert_eq!(proxy.counts()["unreadable"], 1, "{}", reply.escape_ascii());
            });
        }
    }
}

#[test]
fn a_reply_as_deep_as_it_may_be_long_is_unreadable() {
    for reply in ["[".repeat(4096), "{\"EVALSHA\":".repeat(372), format!("{{\"EVALSHA\":{}}}", "[".repeat(4000))] {
        with_policy(&[], |proxy, root| {
            proxy.get(root, "u1");
            proxy.run();
            proxy.answer(reply);
            assert_eq!(proxy.counts()["unreadable"], 1);
        });
    }
}
