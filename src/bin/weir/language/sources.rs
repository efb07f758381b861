//! The sources of a tenant, and of its tier.

use super::Presence::{Default, Optional, Required};
use super::Value::{Boolean, Integer, List, Sources, Word};
use super::texts::{HEADER_NAME, LABEL, NOT_EMPTY, PROPERTY_PART};
use super::{ANY_NUMBER, Case, Choice, Field, Object, Place, Source, Value, field, object, with_examples};

const AS: &str = "Its label: the first part of the tenant, `label.value`, and of no other source of the rule.";

const fn label(default: &'static str) -> Field {
    field("as", Value::Text(&LABEL), Default(default), AS)
}

const TRUSTED: Field = field(
    "trusted",
    Boolean,
    Default("false"),
    "Something before weir sets or checks the value, so that no client can make it up.",
);

const SECRET: Field = field("secret", Boolean, Default("false"), "The value is hashed before it leaves the module.");

const DOUBLED: Field = field(
    "doubled",
    Word(&[("refuse", "a request that sends it twice is answered with 400")]),
    Optional("the first value counts"),
    "What happens where a request sends it twice.",
);

const fn source(word: &'static str, fields: &'static [Field]) -> Object {
    object(word, "", "", fields)
}

pub static SOURCES: [Source; 10] = [
    Source {
        word: "header",
        main: Some("name"),
        object: source(
            "header",
            &[
                field("name", Value::Text(&HEADER_NAME), Required, "The name of the header."),
                label(r#""header""#),
                TRUSTED,
                SECRET,
                DOUBLED,
            ],
        ),
        doc: "as sent, the first of several; where Envoy joins several by commas, see above",
        odd: "absent or empty: nothing",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "authorization",
        main: Some("scheme"),
        object: source(
            "authorization",
            &[
                field(
                    "scheme",
                    Word(&[("bearer", "the token"), ("basic", "the user")]),
                    Required,
                    "What is read of Authorization.",
                ),
                label(r#""authorization""#),
                TRUSTED,
                DOUBLED,
            ],
        ),
        doc: "the one token after `Bearer`, of a JWT without padding, or the user; always secret",
        odd: "another scheme, a comma or more than one token, no base64, no colon: nothing",
        is_trusted: false,
        is_secret: true,
    },
    Source {
        word: "query",
        main: Some("name"),
        object: source(
            "query",
            &[
                field("name", Value::Text(&NOT_EMPTY), Required, "The name of the parameter."),
                label(r#""query""#),
                TRUSTED,
                SECRET,
                DOUBLED,
            ],
        ),
        doc: "name and value decoded as forms are: `%XX`, `+` is a space; the first of several",
        odd: "a `%` that starts no escape stays",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "cookie",
        main: Some("name"),
        object: source(
            "cookie",
            &[
                field("name", Value::Text(&NOT_EMPTY), Required, "The name of the cookie."),
                label(r#""cookie""#),
                TRUSTED,
                SECRET,
                DOUBLED,
            ],
        ),
        doc: "without spaces and quotes around it, not decoded; the first of several, on whatever lines they stand",
        odd: "",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "host",
        main: None,
        object: source("host", &[label(r#""host""#), TRUSTED]),
        doc: "lower case, no port, no dots at the end, an IPv6 address in brackets as RFC 5952 writes it",
        odd: "",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "path_segment",
        main: Some("index"),
        object: source(
            "path_segment",
            &[
                field("index", Integer(1, 64), Required, "Which segment, 1 for the first."),
                label(r#""path_segment""#),
                TRUSTED,
            ],
        ),
        doc: "the segment of the path in normal form",
        odd: "too few segments: nothing; malformed: as `paths.malformed`",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "property",
        main: Some("path"),
        object: source(
            "property",
            &[
                with_examples(
                    field(
                        "path",
                        List(&Value::Text(&PROPERTY_PART), 1, ANY_NUMBER),
                        Required,
                        "The parts of the name of a property of Envoy.",
                    ),
                    &[r#"["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#],
                ),
                label(r#""property""#),
                TRUSTED,
                SECRET,
                field(
                    "type",
                    Word(&[
                        ("text", "UTF-8 without control characters"),
                        ("number", "an integer below 2^53, as a decimal"),
                        ("bool", "true or false"),
                    ]),
                    Default(r#""text""#),
                    "What it is; a value that is anything else is none.",
                ),
            ],
        ),
        doc: "a text as the host gives it; numbers and booleans by `type`, written as `12345` and `true`",
        odd: "not of its `type`, such as a number or an object without one: nothing",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "client_ip",
        main: Some("from"),
        object: Object {
            name: "client_ip",
            place: "",
            doc: "",
            fields: &[
                field(
                    "from",
                    Word(&[("host", "the address that Envoy has settled on"), ("x_forwarded_for", "that header")]),
                    Required,
                    "Where the address of the client is told.",
                ),
                label(r#""client_ip""#),
                field(
                    "peer_appended",
                    Boolean,
                    Optional(""),
                    "Whether the host has added the peer's address to the header already.",
                ),
                field(
                    "trusted_hops",
                    Integer(0, 32),
                    Optional(""),
                    "How many proxies of yours stand before the peer's address; 1 at least with `peer_appended: false`.",
                ),
                field("ipv6_prefix", Integer(1, 128), Default("64"), "How many bits of an IPv6 address count."),
            ],
            cases: &[
                Case {
                    field: "from",
                    is: r#""host""#,
                    by_default: false,
                    needs: &[],
                    refuses: &["peer_appended", "trusted_hops"],
                },
                Case {
                    field: "from",
                    is: r#""x_forwarded_for""#,
                    by_default: false,
                    needs: &["peer_appended", "trusted_hops"],
                    refuses: &[],
                },
            ],
            choice: Choice::Free,
        },
        doc: "the address as RFC 5952 writes it; IPv6 cut to `ipv6_prefix` bits",
        odd: "no address, or a chain that is too short: nothing",
        is_trusted: true,
        is_secret: false,
    },
    Source {
        word: "constant",
        main: Some("value"),
        object: source(
            "constant",
            &[
                with_examples(field("value", Value::Text(&NOT_EMPTY), Required, "The value itself."), &[r#""all""#]),
                label(r#""constant""#),
            ],
        ),
        doc: "what stands there: one bucket for all",
        odd: "",
        is_trusted: true,
        is_secret: false,
    },
    Source {
        word: "all",
        main: Some("sources"),
        object: source(
            "all",
            &[
                field("sources", Sources(Place::Part), Required, "The sources whose values are joined."),
                label(r#""all""#),
            ],
        ),
        doc: "each value percent-encoded, joined by commas: `all.acme,7`",
        odd: "one yields nothing: nothing",
        is_trusted: true,
        is_secret: false,
    },
];
