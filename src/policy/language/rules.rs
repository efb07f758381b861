//! The rules of a policy, and their limits.

use super::Presence::{Default, Parts, Required};
use super::Value::{Boolean, Duration, Either, Integer, List, Named, Seconds, Sources, Tenths, Word};
use super::choices::{ALGORITHM_WORDS, MODE_WORDS, ON_ERROR_WORDS};
use super::texts::{ENTRY_NAME, HEADER_NAME, NAME, TENANT};
use super::{ANY_NUMBER, Case, Map, Object, Place, Value, field, object, optional, term, with_examples};

/// One of `rules`.
pub static RULE: Object = object(
    "rule",
    "rules[]",
    "What is limited, and how.",
    &[
        with_examples(
            field(
                "name",
                Value::Text(&NAME),
                Required("write the name of the rule"),
                "Its name, which no other rule has; it stands in Redis keys.",
            ),
            &[r#""per-user""#],
        ),
        field(
            "limiter",
            Either(&[Value::Text(&NAME), Value::Object(&ROUTING)]),
            optional("the only one; needed where there are several, but with `mode: local`"),
            "The limiter that has its buckets, or which one has whose.",
        ),
        with_examples(
            field(
                "key",
                Sources(Place::Key),
                Required("write a list of sources, such as [{header: {name: x-user-id, trusted: true}}]"),
                "Who is limited: the first source that yields a value names the tenant.",
            ),
            &[
                r#"[{"header": {"name": "x-user-id", "as": "user", "trusted": true}}]"#,
                r#"[{"client_ip": {"from": "host"}}]"#,
            ],
        ),
        field(
            "missing",
            Either(&[
                Word(&[term("deny", "the request is refused with 403"), term("skip", "the rule does not look at it")]),
                Value::Object(&MISSING),
            ]),
            Default(r#"{"as": "anonymous"}"#),
            "What happens where no source yields a value.",
        ),
        field(
            "tier",
            Value::Object(&TIER),
            optional("`limits` has no tiers, or the one tier `default`"),
            "Which tenants have which limits.",
        ),
        field(
            "algorithm",
            Word(ALGORITHM_WORDS),
            Default(r#""token_bucket""#),
            "How it is counted, where a limit does not say another one.",
        ),
        field(
            "spread",
            Boolean,
            Default("false"),
            "Windows of each key begin later, by a part of `per` that is the key's own.",
        ),
        field("mode", Word(MODE_WORDS), Default(r#""lease""#), "Where its tokens are."),
        field("lease", Value::Object(&LEASE), Parts, "How a proxy borrows."),
        field(
            "sync_interval",
            Duration(10, 60_000),
            Default(r#""1s""#),
            "How often a proxy tells Redis what it has spent.",
        ),
        with_examples(
            field(
                "limits",
                Named(&super::Named { name: "limits", value: &LIMITS }),
                Required("write a limit such as 100/m, or limits by tier"),
                "How much: one limit, or limits by tier (the keys that `tier` names) and class.",
            ),
            &[r#""100/m""#],
        ),
        field(
            "on_error",
            Word(ON_ERROR_WORDS),
            optional("needed but with `mode: local`, which has no limiter that could fail"),
            "What a request gets when the limiter fails. There is no default: choose.",
        ),
        field(
            "overrides",
            Value::Map(&OVERRIDES),
            Default("{}"),
            "Limits of single tenants or of each in a network, as in `limits`, without tiers; they win over the tier.",
        ),
        field("shadow_mode", Boolean, Default("false"), "It counts what it would refuse, and refuses nothing."),
        field(
            "idempotency",
            Value::Object(&IDEMPOTENCY),
            optional("each takes"),
            "A request that is sent again takes nothing again.",
        ),
        field(
            "headers",
            Boolean,
            Default("true"),
            "Whether the families of `response.headers` tell its buckets; Retry-After is told in any case.",
        ),
    ],
)
.with_cases(&[
    Case { field: "mode", is: r#""exact""#, by_default: false, needs: &[], refuses: &["lease", "sync_interval"] },
    Case { field: "mode", is: r#""lease""#, by_default: true, needs: &[], refuses: &["sync_interval"] },
    Case { field: "mode", is: r#""async""#, by_default: false, needs: &[], refuses: &["lease"] },
    Case { field: "mode", is: r#""local""#, by_default: false, needs: &[], refuses: &["lease", "sync_interval"] },
    Case { field: "algorithm", is: r#""token_bucket""#, by_default: true, needs: &[], refuses: &["spread"] },
]);

/// `limiter` of a rule, where it is more than a name.
pub static ROUTING: Object = object(
    "routing",
    "rules[].limiter",
    "Which limiter has whose buckets: the one of `tenants`, else that of `tiers`, else the default.",
    &[
        field(
            "default",
            Value::Text(&NAME),
            optional("the only one; needed where there are several, but with `mode: local`"),
            "For all others.",
        ),
        field(
            "tiers",
            Value::Map(&LIMITERS_OF_TIERS),
            Default("{}"),
            "For tenants by tier, such as `gold: big`; a tenant with `overrides` is in none.",
        ),
        field(
            "tenants",
            Value::Map(&TENANTS),
            Default("{}"),
            "For single tenants, such as `user.whale: own`, or for each in a network, written as in `tier.tenants`; they need no limits of their own.",
        ),
    ],
);

static LIMITERS_OF_TIERS: Map =
    Map { keys: &ENTRY_NAME, of: Value::Text(&NAME), least: 0, most: ANY_NUMBER, needs: None };

/// `missing` of a rule, where it is an object.
pub static MISSING: Object = object(
    "missing",
    "rules[].missing",
    "Requests that name no tenant share the bucket of one.",
    &[with_examples(
        field("as", Value::Text(&NAME), Required("write {as: NAME}"), "The tenant is `none.` and this."),
        &[r#""anonymous""#],
    )],
);

/// `tier` of a rule.
pub static TIER: Object = object(
    "tier",
    "rules[].tier",
    "Which tenants have which limits.",
    &[
        with_examples(
            field(
                "sources",
                Sources(Place::Tier),
                optional("none is asked"),
                "The first that yields a value names the tier; each must be trusted.",
            ),
            &[r#"[{"header": {"name": "x-plan", "trusted": true}}]"#],
        ),
        field(
            "tenants",
            Value::Map(&TENANTS),
            Default("{}"),
            "The tier of single tenants, such as `user.acme: gold`, or of all in a network, such as `client_ip.10.0.0.0/8: gold`; wins over the sources.",
        ),
        field(
            "default",
            Value::Text(&NAME),
            Required("write the tier of tenants that no entry names"),
            "The tier of everyone else: a key of `limits`.",
        ),
    ],
);

static TENANTS: Map = Map { keys: &TENANT, of: Value::Text(&NAME), least: 0, most: ANY_NUMBER, needs: None };

static OVERRIDES: Map = Map {
    keys: &TENANT,
    of: Named(&super::Named { name: "tier_limits", value: &TIER_LIMITS }),
    least: 0,
    most: ANY_NUMBER,
    needs: None,
};

/// `lease` of a rule.
pub static LEASE: Object = object(
    "lease",
    "rules[].lease",
    "How a proxy borrows.",
    &[
        field("life", Duration(1000, 3_600_000), Default(r#""300s""#), "How long a small lease lives at least."),
        field("lend", Tenths(1, 9), Default("0.5"), "The part of the burst that may be lent freely."),
    ],
);

/// `idempotency` of a rule.
pub static IDEMPOTENCY: Object = object(
    "idempotency",
    "rules[].idempotency",
    "How a request that is sent again is known.",
    &[
        with_examples(
            field(
                "header",
                Value::Text(&HEADER_NAME),
                Required("write the header that names a request, such as idempotency-key"),
                "The header that names a request.",
            ),
            &[r#""idempotency-key""#, r#""x-request-id""#],
        ),
        field("keep", Duration(1000, 86_400_000), Default(r#""10m""#), "For how long it is known."),
    ],
);

/// By tier; an object with `requests` is a limit.
static LIMITS: Value = Either(&[Named(&super::Named { name: "entry", value: &ENTRY }), Value::Map(&BY_TIER)]);

static BY_TIER: Map = Map {
    keys: &ENTRY_NAME,
    of: Named(&super::Named { name: "tier_limits", value: &TIER_LIMITS }),
    least: 1,
    most: ANY_NUMBER,
    needs: None,
};

/// By class.
static TIER_LIMITS: Value = Either(&[Named(&super::Named { name: "entry", value: &ENTRY }), Value::Map(&BY_CLASS)]);

static BY_CLASS: Map = Map {
    keys: &ENTRY_NAME,
    of: Named(&super::Named { name: "entry", value: &ENTRY }),
    least: 1,
    most: ANY_NUMBER,
    needs: Some("default"),
};

static ENTRY: Value = Either(&[
    Named(&super::Named { name: "limit", value: &ONE_LIMIT }),
    LIST,
    Word(&[term("deny", "403"), term("unlimited", "no limit")]),
]);

/// Several limits: each may cost a request a call.
pub const LIST: Value =
    List(&super::List { of: Named(&super::Named { name: "limit", value: &ONE_LIMIT }), least: 1, most: 4 });

static ONE_LIMIT: Value = Either(&[Value::Limit, Value::Object(&LIMIT)]);

/// Levels of a bucket are exact in a double: burst x period in milliseconds, and requests, stay below 2^53.
pub static LIMIT: Object = object(
    "limit_object",
    "limit",
    "So many requests per period, and at most so many at once; burst × `per` in milliseconds stays below 2^53.",
    &[
        field(
            "requests",
            Integer(&(1, 9_007_199_254_740_991)),
            Required("write how many requests per period"),
            "How many come back per period, or are in a window.",
        ),
        with_examples(
            field(
                "per",
                Seconds(1, 2_678_400),
                Required("write one integer and s, m, h or d, such as 1m"),
                "The period, in whole seconds.",
            ),
            &[r#""1m""#, r#""1h""#],
        ),
        field(
            "burst",
            Integer(&(1, 9_007_199_254_740)),
            optional("as `requests`"),
            "How many at once; with `mode: lease` 2 at least. A window has none.",
        ),
        field("algorithm", Word(ALGORITHM_WORDS), optional("as the rule says"), "How it is counted."),
        field("spread", Boolean, optional("as the rule says"), "As in the rule."),
    ],
)
.with_cases(&[
    Case { field: "algorithm", is: r#""token_bucket""#, by_default: false, needs: &[], refuses: &["spread"] },
    Case { field: "algorithm", is: r#""fixed_window""#, by_default: false, needs: &[], refuses: &["burst"] },
]);
