//! What the filter reads of a request beside single headers: properties of the host, and all headers at once.

use serde_json::json;

use crate::policy::UNTOUCHED;
use crate::proxy::with_policy;

/// More headers, what the client sees, and what is read.
type Row<'r> = (&'r [(&'r str, &'r str)], &'r str, &'r [&'r str]);

#[test]
fn addresses_properties_and_doubled_headers_are_read_of_the_host() {
    let changes = [
        (
            "/rules/0/key",
            json!([
                {"header": {"name": "x-user-id", "as": "user", "trusted": true, "doubled": "refuse"}},
                {"client_ip": {"from": "host"}},
            ]),
        ),
        (
            "/rules/0/tier",
            json!({
                "sources": [{"property": {"path": ["metadata", "plan"], "trusted": true}}],
                "tenants": {"client_ip.203.0.113.9": "gold"},
                "default": "free",
            }),
        ),
    ];
    with_policy(&changes, |proxy, root| {
        let get = [(":method", "GET"), (":path", "/v1/items")];
        let table: &[Row] = &[
            (
                &[("x-user-id", "a"), ("x-user-id", "b")],
                r#"400 | content-type: application/json | {"error":"doubled","rule":"per-user"}"#,
                &["get_headers", "get_header request content-type"],
            ),
            (
                &[("x-user-id", "a"), (".metadata.plan", "gold")],
                UNTOUCHED,
                &["get_headers", "get_property .metadata.plan"],
            ),
            (&[(".source.address", "203.0.113.9:4711")], UNTOUCHED, &["get_headers", "get_property .source.address"]),
            (
                &[(".source.address", "203.0.113.8:4711"), (".metadata.plan", "gold")],
                UNTOUCHED,
                &["get_headers", "get_property .source.address", "get_property .metadata.plan"],
            ),
        ];
        for (headers, sees, read) in table {
            proxy.trace();
            let stream = proxy.request(root, &[&get, *headers].concat());
            let trace = proxy.trace();
            let values: Vec<&str> = trace
                .iter()
                .map(String::as_str)
                .filter(|call| call.starts_with("get_") && !call.contains(" request :") && !call.contains("time"))
                .collect();
            assert_eq!(values, *read, "{headers:?}");
            assert_eq!(proxy.sees(stream), *sees, "{headers:?}");
        }
    });
}

#[test]
fn cookies_on_several_lines_are_read_and_one_line_costs_one_call() {
    const DOUBLED: &str = r#"400 | content-type: application/json | {"error":"doubled","rule":"per-user"}"#;
    const ONE: &[&str] = &["get_property .request.headers.cookie"];
    const SEVERAL: &[&str] = &["get_property .request.headers.cookie", "get_headers"];
    /// Cookies, whether the one that is wanted is doubled, and what is read where that does not matter.
    type Row<'r> = (&'r [(&'r str, &'r str)], bool, &'r [&'r str]);
    let table: &[Row] = &[
        (&[("cookie", "a=b; sid=acme")], false, ONE),
        (&[("cookie", "a=b"), ("cookie", "sid=acme")], false, SEVERAL),
        (&[("cookie", "a=b,c; sid=acme")], false, SEVERAL),
        (&[("cookie", "sid=acme"), ("cookie", "sid=other")], true, SEVERAL),
    ];
    for refuses in [true, false] {
        let key = match refuses {
            true => json!([{"cookie": {"name": "sid", "trusted": true, "doubled": "refuse"}}]),
            false => json!([{"cookie": {"name": "sid", "trusted": true}}]),
        };
        let changes = [
            ("/rules/0/key", key),
            ("/rules/0/missing", json!("deny")),
            ("/rules/0/tier", json!({"default": "free"})),
            ("/classes", json!([])),
            ("/rules/0/limits", json!({"free": "60/m", "gold": "unlimited"})),
        ];
        with_policy(&changes, |proxy, root| {
            for (headers, is_doubled, read) in table {
                proxy.trace();
                let get: &[(&str, &str)] = &[(":method", "GET"), (":path", "/v1/items")];
                let stream = proxy.request(root, &[get, *headers].concat());
                let trace = proxy.trace();
                let values: Vec<&str> = trace
                    .iter()
                    .map(String::as_str)
                    .filter(|call| call.starts_with("get_") && (call.contains("cookie") || *call == "get_headers"))
                    .collect();
                // Where all headers are looked at in any case, they are read once.
                assert_eq!(values, if refuses { &["get_headers"][..] } else { read }, "{headers:?}");
                assert_eq!(proxy.sees(stream) == DOUBLED, refuses && *is_doubled, "{headers:?}");
            }
        });
    }
}
