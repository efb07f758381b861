//! The language of a policy as data: every word that may stand in one, with its kind, bounds, default and meaning.
//!
//! The JSON Schema and the tables of the README are made from it, and tests hold it against the decoder: the words, the
//! defaults and the bounds. It must not say how a schema or a table is written. Defaults and examples are JSON.

/// An object of a policy.
pub struct Object {
    /// Its name in the schema.
    pub name: &'static str,
    /// Where it stands in a policy.
    pub place: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What it may hold.
    pub fields: &'static [Field],
    /// What else the value of one field asks for.
    pub cases: &'static [Case],
    /// How many of its fields go together.
    pub choice: Choice,
}

/// One word of an object.
pub struct Field {
    pub word: &'static str,
    pub value: Value,
    pub presence: Presence,
    pub doc: &'static str,
    pub examples: &'static [&'static str],
}

/// Whether a field may be left out, and what that means.
pub enum Presence {
    Required,
    /// It may be left out, with this result.
    Optional(&'static str),
    /// It may be left out, which is the same as this.
    Default(&'static str),
    /// It may be left out, which is the same as an object whose fields are all left out.
    Parts,
}

/// What a value of one field asks of the others.
pub struct Case {
    pub field: &'static str,
    /// The value.
    pub is: &'static str,
    /// Whether this is the value where the field is left out.
    pub by_default: bool,
    /// Fields that cannot be left out then.
    pub needs: &'static [&'static str],
    /// Fields that have no meaning then, even those that are required otherwise.
    pub refuses: &'static [&'static str],
}

/// How many of an object's fields go together.
pub enum Choice {
    /// As each of them says.
    Free,
    /// One of all at least.
    Some,
    /// One of all at least, and of these one at most.
    SomeNotBoth(&'static str, &'static str),
    /// Exactly one of these.
    One(&'static str, &'static str),
}

/// What may stand somewhere.
pub enum Value {
    Boolean,
    /// Nothing but `true`.
    True,
    /// Exactly this number.
    Number(i64),
    /// An integer from .. to; without an upper bound where that is [`i64::MAX`].
    Integer(i64, i64),
    /// A number from .. to, in tenths. Envoy's YAML makes a text of a fraction, so a text of it is taken as well.
    Tenths(i64, i64),
    /// A duration from .. to, in milliseconds.
    Duration(u64, u64),
    /// A duration in whole seconds, from .. to.
    Seconds(u64, u64),
    /// One of these words, each with its meaning.
    Word(&'static [(&'static str, &'static str)]),
    Text(&'static Text),
    /// `requests/period`.
    Limit,
    Object(&'static Object),
    /// A list of so many at least and at most.
    List(&'static Value, usize, usize),
    Map(&'static Map),
    Either(&'static [Value]),
    /// A value that stands in several places, by its name in the schema.
    Named(&'static str, &'static Value),
    /// A list of [`SOURCES`], at least one.
    Sources(Place),
}

/// An object whose keys the user chooses.
pub struct Map {
    pub keys: &'static Text,
    pub of: Value,
    pub least: usize,
    pub most: usize,
    /// A key that must be there.
    pub needs: Option<&'static str>,
}

/// What a text must be.
pub struct Text {
    /// Its name in the schema.
    pub name: &'static str,
    /// What to write, in words that follow "write".
    pub wanted: &'static str,
    /// A regular expression of ECMA-262; every text where it is empty.
    pub pattern: &'static str,
    /// Words that are taken.
    pub except: &'static [&'static str],
}

/// Where a list of sources stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the key of a rule.
    Key,
    /// In `all`.
    Part,
    /// In `tier`.
    Tier,
}

/// Something that a tenant's value is read from.
pub struct Source {
    pub word: &'static str,
    /// The field that a bare value is short for.
    pub main: Option<&'static str>,
    /// Its fields.
    pub object: Object,
    /// What its value is.
    pub doc: &'static str,
    /// Where there is no value, or it is odd.
    pub odd: &'static str,
    /// Whether clients cannot make the value up, whatever is written.
    pub is_trusted: bool,
    /// Whether it is hashed, whatever is written.
    pub is_secret: bool,
}

const ANY_NUMBER: usize = usize::MAX;

pub static NAME: Text =
    Text { name: "name", wanted: "1 to 32 of a-z, 0-9, _ and -", pattern: "^[a-z0-9_-]{1,32}$", except: &[] };

static CLASS_NAME: Text = Text {
    name: "class_name",
    wanted: "1 to 32 of a-z, 0-9, _ and -, but not default",
    pattern: NAME.pattern,
    except: &["default"],
};

static LABEL: Text = Text {
    name: "label",
    wanted: "1 to 32 of a-z, 0-9, _ and -, but not none",
    pattern: NAME.pattern,
    except: &["none"],
};

/// Keys of objects in which a limit could stand as well: one of its words makes a limit of them.
static ENTRY_NAME: Text = Text {
    name: "entry_name",
    wanted: "1 to 32 of a-z, 0-9, _ and -, but no word of a limit",
    pattern: NAME.pattern,
    except: &["requests", "per", "burst"],
};

static VARIABLE: Text = Text {
    name: "variable",
    wanted: "the name of an environment variable, of A-Z, a-z, 0-9 and _, without a digit at the start",
    pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
    except: &[],
};

static HEADER_NAME: Text = Text {
    name: "header_name",
    wanted: "the name of a header in lower case",
    pattern: "^[a-z0-9!#$%&'*+.^_`|~-]+$",
    except: &[],
};

static HEADER_VALUE: Text = Text {
    name: "header_value",
    wanted: "visible ASCII, and spaces inside",
    pattern: "^[!-~]([ -~]*[!-~])?$",
    except: &[],
};

static METHOD: Text =
    Text { name: "method", wanted: "a method in capitals, 32 bytes at most", pattern: "^[A-Z_-]{1,32}$", except: &[] };

/// What is normal without a look at `paths`. Escapes are those of bytes that are not unreserved, and not of NUL.
static PATH: Text = Text {
    name: "path",
    wanted: "a path in normal form; {name} is one segment, /** at the end all below",
    pattern: concat!(
        r"^(?=/)(?:/(?:\{[A-Za-z0-9_]+\}|(?!\.{1,2}(?:/|$))(?:[A-Za-z0-9._~:@!$&'()+,;=-]",
        r"|%(?:0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-DF]|[89A-F][0-9A-F]))+))*(?:/|/\*\*)?$"
    ),
    except: &[],
};

static HOST: Text = Text {
    name: "host_name",
    wanted: "a name in lower case without a port, such as api.example.com or *.example.com",
    pattern: r"^(\*\.)?(\[.*\]|[a-z0-9._-]*[a-z0-9_-])$",
    except: &[],
};

static GRPC_NAME: Text = Text {
    name: "grpc_name",
    wanted: "a name of gRPC, such as shop.v1.Cart or Get",
    pattern: "^[A-Za-z0-9._]+$",
    except: &[".", ".."],
};

static NOT_EMPTY: Text =
    Text { name: "not_empty", wanted: "a text that is not empty", pattern: r"^[\s\S]", except: &[] };

static PROPERTY_PART: Text = Text {
    name: "property_part",
    wanted: "a part of a property's name, not empty and without NUL",
    pattern: r"^[^\x00]+$",
    except: &[],
};

static TENANT: Text = Text {
    name: "tenant",
    wanted: "label.value, such as user.acme; label.~HASH for a secret source",
    pattern: r"^(?!none\.)[a-z0-9_-]{1,32}\.[\s\S]|^none\.[a-z0-9_-]{1,32}$",
    except: &[],
};

/// Those that have a form.
pub static TEXTS: [&Text; 14] = [
    &NAME,
    &CLASS_NAME,
    &LABEL,
    &ENTRY_NAME,
    &TENANT,
    &VARIABLE,
    &HEADER_NAME,
    &HEADER_VALUE,
    &METHOD,
    &PATH,
    &HOST,
    &GRPC_NAME,
    &PROPERTY_PART,
    &NOT_EMPTY,
];

static ANY_TEXT: Text = Text { name: "text", wanted: "a text", pattern: "", except: &[] };

/// A field without examples. Those of objects stand in its meaning, for editors offer them without a name.
const fn field(word: &'static str, value: Value, presence: Presence, doc: &'static str) -> Field {
    Field { word, value, presence, doc, examples: &[] }
}

const fn with_examples(field: Field, examples: &'static [&'static str]) -> Field {
    let Field { word, value, presence, doc, .. } = field;
    Field { word, value, presence, doc, examples }
}

/// An object without cases.
const fn object(name: &'static str, place: &'static str, doc: &'static str, fields: &'static [Field]) -> Object {
    Object { name, place, doc, fields, cases: &[], choice: Choice::Free }
}

use Presence::{Default, Optional, Parts, Required};
use Value::{Boolean, Duration, Either, Integer, List, Named, Number, Seconds, Sources, Tenths, True, Word};

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
        field("limiters", Value::Map(&LIMITERS), Required, "Where tokens come from: exactly one, by its name."),
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

static LIMITERS: Map = Map { keys: &NAME, of: Value::Object(&LIMITER), least: 1, most: 1, needs: None };

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
        field("failures", Integer(1, i64::MAX), Default("5"), "After so many failed calls it is left alone."),
        field("within", Duration(10, 60_000), Default(r#""1s""#), "The time within which they fail."),
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

static CLASS: Object = Object {
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

static RULE: Object = Object {
    name: "rule",
    place: "rules[]",
    doc: "What is limited, and how.",
    fields: &[
        with_examples(
            field("name", Value::Text(&NAME), Required, "Its name, which no other rule has; it stands in Redis keys."),
            &[r#""per-user""#],
        ),
        field("limiter", Value::Text(&NAME), Optional("the only one"), "The limiter that it asks."),
        with_examples(
            field(
                "key",
                Sources(Place::Key),
                Required,
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
                Word(&[("deny", "the request is refused with 403"), ("skip", "the rule does not look at it")]),
                Value::Object(&MISSING),
            ]),
            Default(r#"{"as": "anonymous"}"#),
            "What happens where no source yields a value.",
        ),
        field(
            "tier",
            Value::Object(&TIER),
            Optional("`limits` has no tiers, or the one tier `default`"),
            "Which tenants have which limits.",
        ),
        field(
            "algorithm",
            Word(&[("token_bucket", "the only one")]),
            Default(r#""token_bucket""#),
            "How it is counted.",
        ),
        field(
            "mode",
            Word(&[
                ("exact", "Redis grants every request"),
                ("lease", "Redis lends tokens to proxies and counts what is lent"),
                ("async", "a proxy spends first and tells Redis later"),
                ("local", "each proxy has its share and asks nobody"),
            ]),
            Default(r#""lease""#),
            "Where its tokens are.",
        ),
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
                Named("limits", &LIMITS),
                Required,
                "How much: one limit, or limits by tier (the keys that `tier` names) and class.",
            ),
            &[r#""100/m""#],
        ),
        field(
            "on_error",
            Word(&[
                ("allow", "it passes"),
                ("deny", "503 with Retry-After"),
                ("local", "the proxy's own bucket decides"),
            ]),
            Required,
            "What a request gets when the limiter fails. There is no default: choose.",
        ),
        field(
            "overrides",
            Value::Map(&OVERRIDES),
            Default("{}"),
            "Limits of single tenants, as in `limits`, without tiers; they win over the tier.",
        ),
        field("shadow_mode", Boolean, Default("false"), "It counts what it would refuse, and refuses nothing."),
        field(
            "idempotency",
            Value::Object(&IDEMPOTENCY),
            Optional("each takes"),
            "A request that is sent again takes nothing again.",
        ),
    ],
    cases: &[
        Case { field: "mode", is: r#""exact""#, by_default: false, needs: &[], refuses: &["lease", "sync_interval"] },
        Case { field: "mode", is: r#""lease""#, by_default: true, needs: &[], refuses: &["sync_interval"] },
        Case { field: "mode", is: r#""async""#, by_default: false, needs: &[], refuses: &["lease"] },
        Case {
            field: "mode",
            is: r#""local""#,
            by_default: false,
            needs: &[],
            refuses: &["lease", "sync_interval", "on_error"],
        },
    ],
    choice: Choice::Free,
};

static MISSING: Object = object(
    "missing",
    "rules[].missing",
    "Requests that name no tenant share the bucket of one.",
    &[with_examples(field("as", Value::Text(&NAME), Required, "The tenant is `none.` and this."), &[r#""anonymous""#])],
);

static TIER: Object = object(
    "tier",
    "rules[].tier",
    "Which tenants have which limits.",
    &[
        with_examples(
            field(
                "sources",
                Sources(Place::Tier),
                Optional("none is asked"),
                "The first that yields a value names the tier; each must be trusted.",
            ),
            &[r#"[{"header": {"name": "x-plan", "trusted": true}}]"#],
        ),
        field(
            "tenants",
            Value::Map(&TENANTS),
            Default("{}"),
            "The tier of single tenants, such as `user.acme: gold`; wins over the sources.",
        ),
        field("default", Value::Text(&NAME), Required, "The tier of everyone else: a key of `limits`."),
    ],
);

static TENANTS: Map = Map { keys: &TENANT, of: Value::Text(&NAME), least: 0, most: ANY_NUMBER, needs: None };

static OVERRIDES: Map =
    Map { keys: &TENANT, of: Named("tier_limits", &TIER_LIMITS), least: 0, most: ANY_NUMBER, needs: None };

static LEASE: Object = object(
    "lease",
    "rules[].lease",
    "How a proxy borrows.",
    &[
        field("life", Duration(1000, 3_600_000), Default(r#""300s""#), "How long a small lease lives at least."),
        field("lend", Tenths(1, 9), Default("0.5"), "The part of the burst that may be lent freely."),
    ],
);

static IDEMPOTENCY: Object = object(
    "idempotency",
    "rules[].idempotency",
    "How a request that is sent again is known.",
    &[
        with_examples(
            field("header", Value::Text(&HEADER_NAME), Required, "The header that names a request."),
            &[r#""idempotency-key""#, r#""x-request-id""#],
        ),
        field("keep", Duration(1000, 86_400_000), Default(r#""10m""#), "For how long it is known."),
    ],
);

/// By tier; an object with a word of a limit is a limit.
static LIMITS: Value = Either(&[Named("entry", &ENTRY), Value::Map(&BY_TIER)]);

static BY_TIER: Map =
    Map { keys: &ENTRY_NAME, of: Named("tier_limits", &TIER_LIMITS), least: 1, most: ANY_NUMBER, needs: None };

/// By class.
static TIER_LIMITS: Value = Either(&[Named("entry", &ENTRY), Value::Map(&BY_CLASS)]);

static BY_CLASS: Map =
    Map { keys: &ENTRY_NAME, of: Named("entry", &ENTRY), least: 1, most: ANY_NUMBER, needs: Some("default") };

static ENTRY: Value = Either(&[
    Named("limit", &ONE_LIMIT),
    List(&Named("limit", &ONE_LIMIT), 1, 4),
    Word(&[("deny", "403"), ("unlimited", "no limit")]),
]);

static ONE_LIMIT: Value = Either(&[Value::Limit, Value::Object(&LIMIT)]);

/// Levels of a bucket are exact in a double: burst x period in milliseconds, and requests, stay below 2^53.
static LIMIT: Object = object(
    "limit_object",
    "limit",
    "So many requests per period, and at most so many at once; burst × `per` in milliseconds stays below 2^53.",
    &[
        field("requests", Integer(1, 9_007_199_254_740_991), Required, "How many come back per period."),
        with_examples(
            field("per", Seconds(1, 2_678_400), Required, "The period, in whole seconds."),
            &[r#""1m""#, r#""1h""#],
        ),
        field(
            "burst",
            Integer(1, 9_007_199_254_740),
            Optional("as `requests`"),
            "How many at once; with `mode: lease` 2 at least.",
        ),
    ],
);

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
        doc: "as sent, the first of several",
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
        doc: "the token, or the user; always secret",
        odd: "another scheme, no base64, no colon: nothing",
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
        doc: "without spaces and quotes around it, not decoded; the first of several",
        odd: "",
        is_trusted: false,
        is_secret: false,
    },
    Source {
        word: "host",
        main: None,
        object: source("host", &[label(r#""host""#), TRUSTED]),
        doc: "lower case, no port, no dot at the end",
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
            ],
        ),
        doc: "the bytes that the host gives; a number is 8 bytes",
        odd: "",
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
            "Retry-After is longer by at most this part, at random.",
        ),
    ],
);
