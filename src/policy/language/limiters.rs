//! Where tokens come from.

use super::Presence::{Default, Parts, Required};
use super::Value::{Duration, Integer, Tenths, Word};
use super::choices::TRANSPORT_WORDS;
use super::texts::{HEADER_VALUE, NAME, VARIABLE};
use super::{Map, Object, Value, field, object, optional, with_examples};

pub(super) static LIMITERS: Map = Map { keys: &NAME, of: Value::Object(&LIMITER), least: 1, most: 8, needs: None };

/// See its own words.
pub static LIMITER: Object = object(
    "limiter",
    "limiters.NAME",
    "A Redis limiter.",
    &[
        field("transport", Word(TRANSPORT_WORDS), Required("write transport: bridge, or webdis"), "How it is reached."),
        with_examples(
            field(
                "cluster",
                Value::Text(&HEADER_VALUE),
                Required("write the host's name for the limiter"),
                "The cluster in Envoy's configuration.",
            ),
            &[r#""bridge""#, r#""outbound|7379||bridge.infra.svc.cluster.local""#],
        ),
        field("authority", Value::Text(&HEADER_VALUE), optional("the cluster's name"), "`Host` of the calls."),
        field("timeout", Duration(1, 60_000), Default(r#""20ms""#), "How long a request waits."),
        with_examples(
            field(
                "auth_env",
                Value::Text(&VARIABLE),
                optional("none is sent"),
                "Variable of the proxy's environment whose value is sent as Authorization, such as `Bearer SECRET` to a bridge.",
            ),
            &[r#""WEIR_LIMITER_AUTH""#],
        ),
        field("breaker", Value::Object(&BREAKER), Parts, "When it is left alone."),
        with_examples(
            field(
                "max_new_keys_per_second",
                Integer(&(1, 1_000_000_000)),
                optional("no cap"),
                "How many keys that the proxy does not know may ask; beyond that `on_error` decides.",
            ),
            &["5000"],
        ),
    ],
);

/// See its own words.
pub static BREAKER: Object = object(
    "breaker",
    "limiters.NAME.breaker",
    "When a limiter is left alone.",
    &[
        field(
            "failures",
            Integer(&(1, i64::MAX)),
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
