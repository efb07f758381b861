//! The sources of a tenant, and of its tier.

use super::Presence::{Default, Required};
use super::Value::{Boolean, Integer, List, Sources, Word};
use super::choices::{FROM_WORDS, KIND_WORDS, REFUSED_WORDS, SCHEME_WORDS};
use super::texts::{HEADER_NAME, LABEL, NOT_EMPTY, PROPERTY_PART};
use super::{ANY_NUMBER, Case, Field, Object, Place, Source, Value, field, object, optional, with_examples};

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
    Word(REFUSED_WORDS),
    optional("the first value counts"),
    "What happens where a request sends it twice.",
);

/// An object of a source.
const fn source(word: &'static str, fields: &'static [Field]) -> Object {
    object(word, "", "", fields)
}

/// The kinds of sources.
pub static SOURCES: [Source; 10] = [
    Source {
        word: "header",
        main: Some("name"),
        object: source(
            "header",
            &[
                field("name", Value::Text(&HEADER_NAME), Required("write the name of a header in lower case"), "The name of the header."),
                label(r#""header""#),
                TRUSTED,
                SECRET,
                DOUBLED,
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "as sent, the first of several; where Envoy joins several by commas, see docs/policy.md",
        #[cfg(feature = "cli")]
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
                    Word(SCHEME_WORDS),
                    Required("write scheme: bearer or scheme: basic"),
                    "What is read of Authorization.",
                ),
                label(r#""authorization""#),
                TRUSTED,
                DOUBLED,
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "the one token after `Bearer`, of a JWT without padding, or the user; always secret",
        #[cfg(feature = "cli")]
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
                field("name", Value::Text(&NOT_EMPTY), Required("write the name"), "The name of the parameter."),
                label(r#""query""#),
                TRUSTED,
                SECRET,
                DOUBLED,
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "name and value decoded as forms are: `%XX`, `+` is a space; the first of several",
        #[cfg(feature = "cli")]
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
                field("name", Value::Text(&NOT_EMPTY), Required("write the name"), "The name of the cookie."),
                label(r#""cookie""#),
                TRUSTED,
                SECRET,
                DOUBLED,
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "without spaces and quotes around it, not decoded; the first of several, on whatever lines they stand",
        #[cfg(feature = "cli")]
        odd: "",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "host",
        main: None,
        object: source("host", &[label(r#""host""#), TRUSTED]),
        #[cfg(feature = "cli")]
        doc: "lower case, no port, no dots at the end, an IPv6 address in brackets as RFC 5952 writes it",
        #[cfg(feature = "cli")]
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
                field("index", Integer(&(1, 64)), Required("write index: N, 1 for the first"), "Which segment, 1 for the first."),
                label(r#""path_segment""#),
                TRUSTED,
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "the segment of the path in normal form",
        #[cfg(feature = "cli")]
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
                        List(&super::List { of: Value::Text(&PROPERTY_PART), least: 1, most: ANY_NUMBER }),
                        Required("write path: [..], the parts of the property's name"),
                        "The parts of the name of a property of Envoy.",
                    ),
                    &[r#"["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", "payload", "sub"]"#],
                ),
                label(r#""property""#),
                TRUSTED,
                SECRET,
                field(
                    "type",
                    Word(KIND_WORDS),
                    Default(r#""text""#),
                    "What it is; a value that is anything else is none.",
                ),
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "a text as the host gives it; numbers and booleans by `type`, written as `12345` and `true`",
        #[cfg(feature = "cli")]
        odd: "not of its `type`, such as a number or an object without one: nothing",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "client_ip",
        main: Some("from"),
        object: object("client_ip", "", "", &[
                field(
                    "from",
                    Word(FROM_WORDS),
                    Required("write from: host, or from: x_forwarded_for"),
                    "Where the address of the client is told.",
                ),
                label(r#""client_ip""#),
                field(
                    "peer_appended",
                    Boolean,
                    optional(""),
                    "Whether the host has added the peer's address to the header already.",
                ),
                field(
                    "trusted_hops",
                    Integer(&(0, 32)),
                    optional(""),
                    "How many proxies of yours stand before the peer's address; 1 at least with `peer_appended: false`.",
                ),
                field("ipv6_prefix", Integer(&(1, 128)), Default("64"), "How many bits of an IPv6 address count."),
            ]).with_cases(&[
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
            ]),
        #[cfg(feature = "cli")]
        doc: "the address as RFC 5952 writes it; IPv6 cut to `ipv6_prefix` bits",
        #[cfg(feature = "cli")]
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
                with_examples(field("value", Value::Text(&NOT_EMPTY), Required("write the value, such as constant: all"), "The value itself."), &[r#""all""#]),
                label(r#""constant""#),
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "what stands there: one bucket for all",
        #[cfg(feature = "cli")]
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
                field("sources", Sources(Place::Part), Required("write a list of sources, such as all: [{header: ...}, {path_segment: 1}]"), "The sources whose values are joined."),
                label(r#""all""#),
            ],
        ),
        #[cfg(feature = "cli")]
        doc: "each value percent-encoded, joined by commas: `all.acme,7`",
        #[cfg(feature = "cli")]
        odd: "one yields nothing: nothing",
        is_trusted: true,
        is_secret: false,
    },
];

/// One item of a list of sources: one of its words.
pub static SOURCE: Object = object(
    "source",
    "",
    "",
    &[
        kind(&SOURCES[0]),
        kind(&SOURCES[1]),
        kind(&SOURCES[2]),
        kind(&SOURCES[3]),
        kind(&SOURCES[4]),
        kind(&SOURCES[5]),
        kind(&SOURCES[6]),
        kind(&SOURCES[7]),
        kind(&SOURCES[8]),
        kind(&SOURCES[9]),
    ],
);

const fn kind(source: &'static Source) -> Field {
    field(source.word, Value::Object(&source.object), optional(""), "")
}
