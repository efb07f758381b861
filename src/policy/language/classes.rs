//! The classes of a policy.

use super::Presence::{Default, Required};
use super::Value::{Boolean, Integer, List, True};
use super::texts::{ANY_TEXT, CLASS_NAME, GRPC_NAME, HEADER_NAME, HOST, METHOD, PATH, PROPERTY_PART};
use super::{ANY_NUMBER, Case, Choice, Map, Object, Value, field, object, optional, with_examples};

/// One entry of `classes`.
pub static CLASS: Object = object(
    "class",
    "classes[]",
    "A class of requests. A name may come again: its class is then matched in several ways.",
    &[
        field("class", Value::Text(&CLASS_NAME), Required("write the name of the class"), "Its name."),
        field(
            "match",
            Value::Object(&MATCH),
            Required("write match: {methods: [...], path: ...}"),
            "Which requests are in it: all words must hold.",
        ),
        field(
            "cost",
            Integer(&(1, i64::MAX)),
            Default("1"),
            "What a request takes; at most the burst of each limit that it meets.",
        ),
        field("exempt", Boolean, Default("false"), "No rule looks at its requests."),
    ],
)
.with_cases(&[Case { field: "exempt", is: "true", by_default: false, needs: &[], refuses: &["cost"] }]);

/// `match` of a class.
pub static MATCH: Object = object("match", "classes[].match", "Which requests are in a class: all words must hold.", &[
        with_examples(
            field("methods", List(&super::List { of: Value::Text(&METHOD), least: 1, most: ANY_NUMBER }), optional("any"), "One of these methods."),
            &[r#"["GET", "HEAD"]"#, r#"["POST", "PUT", "PATCH", "DELETE"]"#],
        ),
        with_examples(
            field(
                "path",
                Value::Text(&PATH),
                optional("any"),
                "The path: `{name}` is any one segment, `/v1/**` is `/v1` and all below it.",
            ),
            &[r#""/v1/**""#, r#""/v1/reports/{id}/export""#],
        ),
        with_examples(
            field(
                "path_regex",
                Value::Text(&ANY_TEXT),
                optional("any"),
                "An expression for the whole path, in linear time; only in a module that is built with `--features regex`.",
            ),
            &[r#""/v[0-9]+/users/.*""#],
        ),
        with_examples(
            field(
                "host",
                Value::Text(&HOST),
                optional("any"),
                "The host: a name, or `*.` and a domain, which the domain itself is not.",
            ),
            &[r#""api.example.com""#, r#""*.example.com""#],
        ),
        field(
            "headers",
            Value::Map(&HEADERS),
            optional("any"),
            "What must hold of headers, by name in lower case: `x-beta: {exact: '1'}`.",
        ),
        field(
            "query",
            Value::Map(&QUERY),
            optional("any"),
            "What must hold of parameters of the query, by name: `debug: {present: true}`.",
        ),
        field(
            "grpc",
            Value::Object(&GRPC),
            optional("any"),
            "The gRPC method, by the path `/service/method`; not beside `path`.",
        ),
        field("route_name", Value::Text(&ANY_TEXT), optional("any"), "The name of Envoy's route."),
        field(
            "route_metadata",
            Value::Object(&ROUTE_METADATA),
            optional("any"),
            "What must hold of the metadata of Envoy's route.",
        ),
    ]).with_choice(Choice::SomeNotBoth("path", "grpc"));

static HEADERS: Map = Map { keys: &HEADER_NAME, of: Value::Object(&VALUE), least: 1, most: ANY_NUMBER, needs: None };

static QUERY: Map = Map { keys: &ANY_TEXT, of: Value::Object(&VALUE), least: 1, most: ANY_NUMBER, needs: None };

/// What must hold of a header or a parameter.
pub static VALUE: Object = object(
    "value",
    "classes[].match.headers.NAME, .query.NAME",
    "What must hold of one value: one of these.",
    &[
        field("present", True, optional("as `exact` says"), "It is there, were it empty."),
        field("exact", Value::Text(&ANY_TEXT), optional("as `present` says"), "It is this."),
    ],
)
.with_choice(Choice::One("present", "exact"));

/// `grpc` of a match.
pub static GRPC: Object = object(
    "grpc",
    "classes[].match.grpc",
    "A gRPC method: one word at least.",
    &[
        with_examples(
            field("service", Value::Text(&GRPC_NAME), optional("any"), "The service, with its package."),
            &[r#""shop.v1.Cart""#],
        ),
        with_examples(field("method", Value::Text(&GRPC_NAME), optional("any"), "The method."), &[r#""Get""#]),
    ],
)
.with_choice(Choice::Some);

/// `route_metadata` of a match.
pub static ROUTE_METADATA: Object = object(
    "route_metadata",
    "classes[].match.route_metadata",
    "What must hold of one value of a route's filter metadata.",
    &[
        with_examples(
            field(
                "path",
                List(&super::List { of: Value::Text(&PROPERTY_PART), least: 1, most: ANY_NUMBER }),
                Required("write path: [NAMESPACE, KEY]"),
                "Its namespace and keys.",
            ),
            &[r#"["weir", "class"]"#],
        ),
        field("present", True, optional("as `exact` says"), "It is there."),
        field("exact", Value::Text(&ANY_TEXT), optional("as `present` says"), "It is this."),
    ],
)
.with_choice(Choice::One("present", "exact"));
