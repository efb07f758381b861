//! The top of a policy: limiters, paths and the response.

use super::Presence::{Default, Optional, Parts, Required};
use super::Value::{Boolean, Duration, Either, Integer, List, Number, Tenths, Word};
use super::classes::CLASS;
use super::rules::RULE;
use super::texts::{ANY_TEXT, HEADER_NAME, HEADER_VALUE, NAME, TOP_PATH, VARIABLE};
use super::{ANY_NUMBER, Map, Object, Value, field, object, with_examples};

pub static POLICY: Object = object(
    "policy",
    "the policy",
    "Who may send how many requests.",
    &[
        field("version", Number(1), Required, "The version of this language."),
        field(
            "namespace",
            Value::Text(&NAME),
            Default(r#""rl""#),
            "First part of every Redis key, metric and queue name.",
        ),
        with_examples(
            field(
                "proxies",
                Integer(1, 100_000),
                Optional("needed where a rule has `mode: local` or `on_error: local`"),
                "Among how many proxies a local share is divided.",
            ),
            &["10"],
        ),
        field(
            "table",
            Value::Object(&TABLE),
            Default(r#"{"entries": 65536}"#),
            "The table that a proxy keeps in shared data.",
        ),
        with_examples(
            field(
                "hash_secret_env",
                Value::Text(&VARIABLE),
                Optional("needed where a source is secret"),
                "Variable of the proxy's environment with the key that hashes secret values, the same on every proxy.",
            ),
            &[r#""WEIR_HASH_SECRET""#],
        ),
        field("limiters", Value::Map(&LIMITERS), Required, "Where tokens come from, by name."),
        field("paths", Value::Object(&PATHS), Parts, "What the servers behind take for one path."),
        field(
            "classes",
            List(&Value::Object(&CLASS), 0, ANY_NUMBER),
            Default("[]"),
            "How requests are sorted: the first that matches wins, and what matches none is in class `default`.",
        ),
        field(
            "rules",
            List(&Value::Object(&RULE), 1, 16),
            Required,
            "What is limited: all are asked, and if one refuses, none takes anything.",
        ),
        field("response", Value::Object(&RESPONSE), Parts, "What clients see."),
        field(
            "observe",
            Value::Object(&OBSERVE),
            Optional("nothing, apart from metrics"),
            "What those who run the proxy see of single decisions.",
        ),
    ],
);

static OBSERVE: Object = object(
    "observe",
    "observe",
    "What those who run the proxy see of single decisions.",
    &[
        with_examples(
            field(
                "secret_env",
                Value::Text(&VARIABLE),
                Optional("needed with `debug_header` and `top_path`"),
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
                Optional("there is none"),
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

static TABLE: Object = object(
    "table",
    "table",
    "The table that a proxy keeps in shared data.",
    &[with_examples(
        field("entries", Integer(64, 16_777_216), Required, "How many tenants a proxy keeps in mind, 145 bytes each."),
        &["65536"],
    )],
);

static LIMITERS: Map = Map { keys: &NAME, of: Value::Object(&LIMITER), least: 1, most: 8, needs: None };

static LIMITER: Object = object(
    "limiter",
    "limiters.NAME",
    "A Redis limiter.",
    &[
        field("transport", Word(&[("webdis", "Redis behind Webdis, its HTTP face")]), Required, "How it is reached."),
        with_examples(
            field("cluster", Value::Text(&HEADER_VALUE), Required, "The cluster in Envoy's configuration."),
            &[r#""webdis""#, r#""outbound|7379||webdis.infra.svc.cluster.local""#],
        ),
        field("authority", Value::Text(&HEADER_VALUE), Optional("the cluster's name"), "`Host` of the calls."),
        field("timeout", Duration(1, 60_000), Default(r#""20ms""#), "How long a request waits."),
        with_examples(
            field(
                "auth_env",
                Value::Text(&VARIABLE),
                Optional("none is sent"),
                "Variable of the proxy's environment whose value is sent as Authorization.",
            ),
            &[r#""WEIR_LIMITER_AUTH""#],
        ),
        field("breaker", Value::Object(&BREAKER), Parts, "When it is left alone."),
        with_examples(
            field(
                "max_new_keys_per_second",
                Integer(1, 1_000_000_000),
                Optional("no cap"),
                "How many keys that the proxy does not know may ask; beyond that `on_error` decides.",
            ),
            &["5000"],
        ),
    ],
);

static BREAKER: Object = object(
    "breaker",
    "limiters.NAME.breaker",
    "When a limiter is left alone.",
    &[
        field(
            "failures",
            Integer(1, i64::MAX),
            Default("5"),
            "After so many failed calls it is left alone, if they are its `share`.",
        ),
        field(
            "share",
            Tenths(0, 10),
            Default("0.5"),
            "The part of all calls that has to fail, too; with 0 `failures` alone decides.",
        ),
        field(
            "within",
            Duration(10, 60_000),
            Default(r#""1s""#),
            "The time, from the first failure on, in which calls are counted.",
        ),
        field(
            "probe_every",
            Duration(10, 60_000),
            Default(r#""200ms""#),
            "How often a limiter that is left alone is asked again.",
        ),
    ],
);

static PATHS: Object = object(
    "paths",
    "paths",
    "What the servers behind take for one path.",
    &[
        field(
            "malformed",
            Either(&[Number(400), Word(&[("default", "the request is in class `default`")])]),
            Default("400"),
            "What a path that has no normal form gets, where a class wants to know the path; `400`: that status.",
        ),
        field("ignore_case", Boolean, Default("false"), "ASCII letters are compared in lower case; write patterns so."),
        field(
            "trailing_slash",
            Word(&[("distinct", "`/a/` is another path than `/a`"), ("ignore", "it is the same")]),
            Default(r#""distinct""#),
            "What a slash at the end means.",
        ),
        field(
            "strip_path_parameters",
            Boolean,
            Default("false"),
            "A segment ends before its first `;`, before dot segments are looked at: `/a/..;/b` is `/b`.",
        ),
    ],
);

static RESPONSE: Object = object(
    "response",
    "response",
    "What clients see.",
    &[
        field("status", Integer(400, 599), Default("429"), "Status of a limited request."),
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
                List(
                    &Word(&[
                        ("x-ratelimit", "`x-ratelimit-limit`, `-remaining` and `-reset`"),
                        ("ratelimit", "`ratelimit-policy` and `ratelimit`, the IETF draft's"),
                    ]),
                    0,
                    ANY_NUMBER,
                ),
                Default(r#"["x-ratelimit"]"#),
                "Families of headers; `[]` for none.",
            ),
            &[r#"["x-ratelimit", "ratelimit"]"#, "[]"],
        ),
        field(
            "reset",
            Word(&[("epoch", "as a moment, in seconds since 1970"), ("seconds", "as a wait")]),
            Default(r#""epoch""#),
            "How `x-ratelimit-reset` is told.",
        ),
        field(
            "upstream_headers",
            Word(&[("replace", "these stand in their place"), ("keep", "a family of theirs stays")]),
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
