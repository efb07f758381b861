//! The top of a policy: what stands beside limiters, classes and rules.

use super::Presence::{Default, Parts, Required};
use super::Value::{Boolean, Either, Integer, List, Number, Tenths, Word};
use super::choices::{FAMILY_WORDS, RESET_WORDS, SLASH_WORDS, UPSTREAM_WORDS};
use super::classes::CLASS;
use super::limiters::LIMITERS;
use super::rules::RULE;
use super::texts::{ANY_TEXT, HEADER_NAME, HEADER_VALUE, NAME, TOP_PATH, VARIABLE};
use super::{ANY_NUMBER, Object, Value, field, object, optional, term, with_examples};

/// A policy.
pub static POLICY: Object = object(
    "policy",
    "the policy",
    "Who may send how many requests.",
    &[
        field("version", Number(1), Required("write version: 1"), "The version of this language."),
        field(
            "namespace",
            Value::Text(&NAME),
            Default(r#""rl""#),
            "First part of every Redis key, metric and queue name.",
        ),
        with_examples(
            field(
                "proxies",
                Integer(&(1, 100_000)),
                optional("needed where a rule has `mode: local` or `on_error: local`"),
                "Among how many proxies a local share is divided.",
            ),
            &["10"],
        ),
        field("table", Value::Object(&TABLE), Parts, "The table that a proxy keeps in shared data."),
        with_examples(
            field(
                "hash_secret_env",
                Value::Text(&VARIABLE),
                optional("needed where a source is secret"),
                "Variable of the proxy's environment with the key that hashes secret values, the same on every proxy.",
            ),
            &[r#""WEIR_HASH_SECRET""#],
        ),
        field(
            "limiters",
            Value::Map(&LIMITERS),
            Required("write limiters: {main: {transport: webdis, cluster: NAME}}"),
            "Where tokens come from, by name.",
        ),
        field("paths", Value::Object(&PATHS), Parts, "What the servers behind take for one path."),
        field(
            "classes",
            List(&super::List { of: Value::Object(&CLASS), least: 0, most: ANY_NUMBER }),
            Default("[]"),
            "How requests are sorted: the first that matches wins, and what matches none is in class `default`.",
        ),
        field(
            "rules",
            List(&super::List { of: Value::Object(&RULE), least: 1, most: 16 }),
            Required("write a list of 1 to 16 rules"),
            "What is limited: all are asked, and if one refuses, none takes anything.",
        ),
        field("response", Value::Object(&RESPONSE), Parts, "What clients see."),
        field(
            "observe",
            Value::Object(&OBSERVE),
            optional("nothing, apart from metrics"),
            "What those who run the proxy see of single decisions.",
        ),
    ],
);

/// `observe`.
pub static OBSERVE: Object = object(
    "observe",
    "observe",
    "What those who run the proxy see of single decisions.",
    &[
        with_examples(
            field(
                "secret_env",
                Value::Text(&VARIABLE),
                optional("needed with `debug_header` and `top_path`"),
                "Variable of the proxy's environment with the secret that they have to send in `debug_header`.",
            ),
            &[r#""WEIR_DEBUG_SECRET""#],
        ),
        field(
            "debug_header",
            Value::Text(&HEADER_NAME),
            Default(r#""x-weir-debug""#),
            "A request that brings the secret in it gets what was decided, and of which bucket, in the same header of \
             its response.",
        ),
        with_examples(
            field(
                "top_path",
                Value::Text(&TOP_PATH),
                optional("there is none"),
                "Where the filter itself tells who comes most and who is refused most, to those who bring the secret.",
            ),
            &[r#""/.weir/top""#],
        ),
        field(
            "filter_state",
            Boolean,
            Default("false"),
            "Each decision is put into Envoy's filter state as `wasm.weir`, for access logs and later filters.",
        ),
    ],
);

/// `table`.
pub static TABLE: Object = object(
    "table",
    "table",
    "The table that a proxy keeps in shared data.",
    &[with_examples(
        field(
            "entries",
            Integer(&(64, 16_777_216)),
            Default("65536"),
            "How many tenants a proxy keeps in mind, 145 bytes each.",
        ),
        &["65536"],
    )],
);

/// `paths`.
pub static PATHS: Object = object(
    "paths",
    "paths",
    "What the servers behind take for one path.",
    &[
        field(
            "malformed",
            Either(&[Number(400), Word(&[term("default", "the request is in class `default`")])]),
            Default("400"),
            "What a path that has no normal form gets, where a class wants to know the path; `400`: that status.",
        ),
        field("ignore_case", Boolean, Default("false"), "ASCII letters are compared in lower case; write patterns so."),
        field("trailing_slash", Word(SLASH_WORDS), Default(r#""distinct""#), "What a slash at the end means."),
        field(
            "strip_path_parameters",
            Boolean,
            Default("false"),
            "A segment ends before its first `;`, before dot segments are looked at: `/a/..;/b` is `/b`.",
        ),
    ],
);

/// `response`.
pub static RESPONSE: Object = object(
    "response",
    "response",
    "What clients see.",
    &[
        field("status", Integer(&(400, 599)), Default("429"), "Status of a limited request."),
        field(
            "content_type",
            Value::Text(&HEADER_VALUE),
            Default(r#""application/json""#),
            "Content type of its body.",
        ),
        field(
            "body",
            Value::Text(&ANY_TEXT),
            Default(r#""{\"error\":\"rate_limited\",\"rule\":\"{rule}\",\"retry_after\":{retry_after}}""#),
            "Its body; `{rule}` and `{retry_after}` are replaced.",
        ),
        with_examples(
            field(
                "headers",
                List(&super::List { of: Word(FAMILY_WORDS), least: 0, most: ANY_NUMBER }),
                Default(r#"["x-ratelimit"]"#),
                "Families of headers; `[]` for none.",
            ),
            &[r#"["x-ratelimit", "ratelimit"]"#, "[]"],
        ),
        field("reset", Word(RESET_WORDS), Default(r#""epoch""#), "How `x-ratelimit-reset` is told."),
        field(
            "upstream_headers",
            Word(UPSTREAM_WORDS),
            Default(r#""replace""#),
            "What becomes of the same headers from the service behind.",
        ),
        field(
            "retry_after_jitter",
            Tenths(0, 10),
            Default("0.1"),
            "Retry-After is longer at random, by whole seconds up to this part of the wait.",
        ),
    ],
);
