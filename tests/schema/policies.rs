//! Policies that are looked at.

pub const TWICE: &str = "a field that stands twice is one field to a validator";

pub const NO_JSON: &str = "it is no JSON, so there is nothing to look at";

pub const ENVIRONMENT: &str = "the environment is the proxy's";

pub const OTHER_RULES: &str = "which classes other rules limit for every client depends on their tiers and classes";

/// Bad policies that the schema takes, and why no schema can refuse them.
pub const BEYOND_A_SCHEMA: &[(&str, &str)] = &[
    ("all_of_the_page.yaml", ENVIRONMENT),
    ("auth_value_is_no_header_value.yaml", ENVIRONMENT),
    ("auth_variable_absent.yaml", ENVIRONMENT),
    ("class_twice_in_one.json", TWICE),
    ("cost_above_the_burst.yaml", "a cost of one place against a burst of another"),
    ("cost_above_the_burst_of_one_entry.yaml", "a cost of one place against a burst of another"),
    ("field_twice.json", TWICE),
    ("hash_secret_variable_absent.yaml", ENVIRONMENT),
    ("hash_secret_variable_empty.yaml", ENVIRONMENT),
    ("labels_the_same.yaml", "no two items may have one label, and labels may be left out"),
    ("limit_for_no_class.yaml", "the name of a class stands elsewhere"),
    ("limit_too_large.yaml", "a product of two fields"),
    ("limiter_twice.json", TWICE),
    ("networks_that_no_request_can_be_in.yaml", "what a value can be depends on the source of its label"),
    ("no_json.json", NO_JSON),
    ("no_json_cut_off.json", NO_JSON),
    ("no_json_nested_too_deeply.json", NO_JSON),
    ("overrides_of_no_source.yaml", "the label of a source stands elsewhere"),
    ("path_not_as_the_paths_of_the_policy.yaml", "the normal form depends on `paths`"),
    ("path_regex_without_the_feature.yaml", "it depends on how the module is built"),
    ("routing_twice.json", TWICE),
    ("routing_of_tenants_of_no_form.yaml", "what a value can be depends on the source of its label"),
    ("routing_to_no_limiter.yaml", "the name of a limiter stands elsewhere"),
    ("rule_names_another_limiter.yaml", "the name of a limiter stands elsewhere"),
    ("rules_not_trusted_and_not_limited.yaml", OTHER_RULES),
    ("rules_not_trusted_and_not_limited_by_tier.yaml", OTHER_RULES),
    ("rules_not_trusted_beside_an_address_of_an_unlimited_tier.yaml", OTHER_RULES),
    ("rules_not_trusted_beside_an_address_or_another_header.yaml", OTHER_RULES),
    ("rules_not_trusted_beside_an_address_that_may_be_skipped.yaml", OTHER_RULES),
    ("tenant_of_a_secret_source_twice.json", TWICE),
    ("tenants_not_trusted.yaml", "whether one tier gives more than another is counted"),
    ("tenants_that_no_request_can_be.yaml", "what a value can be depends on the source of its label"),
    ("tier_and_entry_twice.json", TWICE),
    ("tier_unknown.yaml", "the name of a tier stands elsewhere"),
];

/// Policies with every word of the language, and few tenants: what is printed of a plan has an order then.
pub const WORDS: [&str; 3] = [
    r#"
version: 1
namespace: words
proxies: 10
table: {entries: 1000}
hash_secret_env: WEIR_HASH_SECRET
limiters:
  main:
    transport: webdis
    cluster: webdis
    authority: other
    timeout: 1s
    auth_env: WEIR_AUTH
    breaker: {failures: 3, share: 0.25, within: 2s, probe_every: 10ms}
    max_new_keys_per_second: 500
paths: {malformed: default, ignore_case: false, trailing_slash: distinct, strip_path_parameters: false}
classes:
  - {class: health, match: {path: /healthz}, exempt: true}
  - class: a
    match:
      methods: [GET]
      path: /a
      host: a.b
      headers: {x: {present: true}, x-b: {exact: z}}
      query: {q: {exact: v}, r: {present: true}}
      route_name: r
      route_metadata: {path: [weir, class], exact: x}
    cost: 2
  - {class: g, match: {methods: [POST], grpc: {service: s, method: m}}, exempt: false}
  - {class: g, match: {route_metadata: {path: [weir], present: true}}}
rules:
  - {name: everybody, key: [{constant: all}], mode: exact, limits: 1000/s, on_error: allow}
  - name: full
    limiter: main
    key:
      - header: {name: x-user, as: user, trusted: true, secret: false, doubled: refuse}
      - authorization: {scheme: bearer, as: bearer, trusted: false, doubled: refuse}
      - query: {name: q, as: q, trusted: false, secret: true, doubled: refuse}
      - cookie: {name: c, as: c, trusted: true, secret: true, doubled: refuse}
      - host: {as: h, trusted: true}
      - path_segment: {index: 2, as: s, trusted: true}
      - property: {path: [a, b], as: p, trusted: true, secret: true, type: number}
      - client_ip: {from: host, as: ip, ipv6_prefix: 56}
      - client_ip: {from: x_forwarded_for, as: forwarded, peer_appended: true, trusted_hops: 1, ipv6_prefix: 56}
      - constant: {value: rest, as: rest}
      - all: {sources: [{header: {name: x-org, secret: true}}, {path_segment: 1}, {host: {}}], as: two}
    missing: {as: nobody}
    tier:
      sources: [{header: {name: x-plan, trusted: true}}, {all: [{host: {trusted: true}}]}]
      tenants: {user.acme: gold}
      default: free
    algorithm: token_bucket
    mode: lease
    lease: {life: 60s, lend: 0.4}
    limits:
      free: {default: {requests: 600, per: 1s, burst: 100}, a: [10/s, 60/m]}
      gold: 1000/m
    on_error: local
    shadow_mode: true
    idempotency: {header: x-id, keep: 1h}
    headers: false
  - name: later
    key: [{header: {name: x, as: user, trusted: true}}, {header: {name: x-a, as: a, trusted: true}}]
    missing: deny
    mode: async
    sync_interval: 2s
    limits: {requests: 600, per: 1s, burst: 100}
    overrides: {user.big: {default: unlimited, a: 10/m}}
    on_error: deny
  - {name: share, key: [{client_ip: host}], mode: local, limits: 100/m}
  - name: windows
    key: [{client_ip: host}]
    algorithm: fixed_window
    spread: true
    limits: {requests: 100, per: 1m, algorithm: fixed_window, spread: false}
    on_error: allow
response:
  status: 503
  content_type: text/plain
  body: "no"
  headers: [ratelimit]
  reset: seconds
  upstream_headers: keep
  retry_after_jitter: 0.2
observe: {secret_env: WEIR_HASH_SECRET, debug_header: x-why, top_path: /.weir/top, filter_state: true}
"#,
    r#"
version: 1
limiters: {main: {transport: webdis, cluster: webdis}}
classes:
  - {class: a, match: {path: /a}}
  - {class: h, match: {host: a.b}}
  - {class: v, match: {headers: {x: {exact: a}}}}
rules:
  - name: per-user
    key: [{header: {name: x-user-id, trusted: true}}]
    tier: {default: default}
    limits: 100/m
    on_error: allow
  - name: per-ip
    key: [{client_ip: {from: x_forwarded_for, peer_appended: true, trusted_hops: 1}}]
    mode: exact
    limits: {default: {requests: 600, per: 1s, burst: 100}}
    overrides: {none.anonymous: deny}
    on_error: allow
  - {name: later, key: [{constant: all}], mode: async, limits: 100/m, on_error: allow}
"#,
    r#"
version: 1
limiters: {main: {transport: webdis, cluster: webdis}, big: {transport: webdis, cluster: big}}
rules:
  - name: per-user
    limiter: {default: main, tiers: {gold: big}, tenants: {user.whale: big}}
    key: [{header: {name: x-user-id, as: user, trusted: true}}]
    tier: {default: free}
    limits: {free: 100/m, gold: 1000/m}
    on_error: allow
"#,
];
