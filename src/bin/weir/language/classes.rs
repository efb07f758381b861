//! The classes of a policy.

use super::Presence::{Default, Optional, Required};
use super::Value::{Boolean, Integer, List, True};
use super::texts::{ANY_TEXT, CLASS_NAME, GRPC_NAME, HEADER_NAME, HOST, METHOD, PATH, PROPERTY_PART};
use super::{ANY_NUMBER, Case, Choice, Map, Object, Value, field, with_examples};

pub static CLASS: Object = Object {
    name: "class",
    place: "classes[]",
    doc: "A class of requests. A name may come again: its class is then matched in several ways.",
    fields: &[
        field("class", Value::Text(&CLASS_NAME), Required, "Its name."),
        field("match", Value::Object(&MATCH), Required, "Which requests are in it: all words must hold."),
        field(
            "cost",
            Integer(1, i64::MAX),
            Default("1"),
            "What a request takes; at most the burst of each limit that it meets.",
        ),
        field("exempt", Boolean, Default("false"), "No rule looks at its requests."),
    ],
    cases: &[Case { field: "exempt", is: "true", by_default: false, needs: &[], refuses: &["cost"] }],
    choice: Choice::Free,
};

static MATCH: Object = Object {
    name: "match",
    place: "classes[].match",
    doc: "Which requests are in a class: all words must hold.",
    fields: &[
        with_examples(
            field("methods", List(&Value::Text(&METHOD), 1, ANY_NUMBER), Optional("any"), "One of these methods."),
            &[r#"["GET", "HEAD"]"#, r#"["POST", "PUT", "PATCH", "DELETE"]"#],
        ),
        with_examples(
            field(
                "path",
                Value::Text(&PATH),
                Optional("any"),
                "The path: `{name}` is any one segment, `/v1/**` is `/v1` and all below it.",
            ),
            &[r#""/v1/**""#, r#""/v1/reports/{id}/export""#],
        ),
        with_examples(
            field(
                "path_regex",
                Value::Text(&ANY_TEXT),
                Optional("any"),
                "An expression for the whole path, in linear time; only in a module that is built with `--features regex`.",
            ),
            &[r#""/v[0-9]+/users/.*""#],
        ),
        with_examples(
            field(
                "host",
                Value::Text(&HOST),
                Optional("any"),
                "The host: a name, or `*.` and a domain, which the domain itself is not.",
            ),
            &[r#""api.example.com""#, r#""*.example.com""#],
        ),
        field(
            "headers",
            Value::Map(&HEADERS),
            Optional("any"),
            "What must hold of headers, by name in lower case: `x-beta: {exact: '1'}`.",
        ),
        field(
            "query",
            Value::Map(&QUERY),
            Optional("any"),
            "What must hold of parameters of the query, by name: `debug: {present: true}`.",
        ),
        field(
            "grpc",
            Value::Object(&GRPC),
            Optional("any"),
            "The gRPC method, by the path `/service/method`; not beside `path`.",
        ),
        field("route_name", Value::Text(&ANY_TEXT), Optional("any"), "The name of Envoy's route."),
        field(
            "route_metadata",
            Value::Object(&ROUTE_METADATA),
            Optional("any"),
            "What must hold of the metadata of Envoy's route.",
        ),
    ],
    cases: &[],
    choice: Choice::SomeNotBoth("path", "grpc"),
};

static HEADERS: Map = Map { keys: &HEADER_NAME, of: Value::Object(&VALUE), least: 1, most: ANY_NUMBER, needs: None };

static QUERY: Map = Map { keys: &ANY_TEXT, of: Value::Object(&VALUE), least: 1, most: ANY_NUMBER, needs: None };

static VALUE: Object = Object {
    name: "value",
    place: "classes[].match.headers.NAME, .query.NAME",
    doc: "What must hold of one value: one of these.",
    fields: &[
        field("present", True, Optional("as `exact` says"), "It is there, were it empty."),
        field("exact", Value::Text(&ANY_TEXT), Optional("as `present` says"), "It is this."),
    ],
    cases: &[],
    choice: Choice::One("present", "exact"),
};

static GRPC: Object = Object {
    name: "grpc",
    place: "classes[].match.grpc",
    doc: "A gRPC method: one word at least.",
    fields: &[
        with_examples(
            field("service", Value::Text(&GRPC_NAME), Optional("any"), "The service, with its package."),
            &[r#""shop.v1.Cart""#],
        ),
        with_examples(field("method", Value::Text(&GRPC_NAME), Optional("any"), "The method."), &[r#""Get""#]),
    ],
    cases: &[],
    choice: Choice::Some,
};

static ROUTE_METADATA: Object = Object {
    name: "route_metadata",
    place: "classes[].match.route_metadata",
    doc: "What must hold of one value of a route's filter metadata.",
    fields: &[
        with_examples(
            field("path", List(&Value::Text(&PROPERTY_PART), 1, ANY_NUMBER), Required, "Its namespace and keys."),
            &[r#"["weir", "class"]"#],
        ),
        field("present", True, Optional("as `exact` says"), "It is there."),
        field("exact", Value::Text(&ANY_TEXT), Optional("as `present` says"), "It is this."),
    ],
    cases: &[],
    choice: Choice::One("present", "exact"),
};
