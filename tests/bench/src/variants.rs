//! What is compared: the same Envoy and the same request, with one filter or another before the router.

use serde_json::{Value, json};

use crate::Result;

/// One way to limit.
pub struct Variant {
    /// Its name in results.json.
    pub name: &'static str,
    pub title: &'static str,
    pub filter: Filter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    None,
    Empty,
    NativeLocal,
    Weir {
        mode: &'static str,
        /// The families of headers in answers.
        headers: &'static str,
    },
    NativeGlobal(Counters),
}

/// Where limitador counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counters {
    Memory,
    Redis,
}

const fn weir(name: &'static str, title: &'static str, mode: &'static str, headers: &'static str) -> Variant {
    Variant { name, title, filter: Filter::Weir { mode, headers } }
}

const X_RATELIMIT: &str = r#"["x-ratelimit"]"#;

pub const NONE: &str = "none";
pub const LEASE: &str = "weir-lease";
pub const LEASE_BARE: &str = "weir-lease-bare";
pub const EXACT: &str = "weir-exact";
pub const GLOBAL_REDIS: &str = "global-redis";

pub const ALL: [Variant; 10] = [
    Variant { name: NONE, title: "no filter", filter: Filter::None },
    Variant { name: "empty", title: "an empty wasm filter", filter: Filter::Empty },
    Variant { name: "native-local", title: "native local_ratelimit", filter: Filter::NativeLocal },
    weir("weir-local", "weir, local", "local", X_RATELIMIT),
    weir("weir-async", "weir, async", "async", X_RATELIMIT),
    weir(LEASE_BARE, "weir, lease, no headers", "lease", "[]"),
    weir(LEASE, "weir, lease", "lease", X_RATELIMIT),
    weir(EXACT, "weir, exact", "exact", X_RATELIMIT),
    Variant {
        name: "global-memory",
        title: "native global + limitador in memory",
        filter: Filter::NativeGlobal(Counters::Memory),
    },
    Variant {
        name: GLOBAL_REDIS,
        title: "native global + limitador in Redis",
        filter: Filter::NativeGlobal(Counters::Redis),
    },
];

/// How much is let through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Far more than a bench sends: what is measured is the way, not the refusal.
    High,
    /// 10 a day, to see that the filter is one.
    Ten,
}

/// The largest wait for a limiter. All of a bench's requests shall be decided by it, also where it is overloaded.
pub const TIMEOUT: &str = "1s";

/// The policy of a variant of weir, beside the defaults as small as it gets. The tenant is the second part of the path.
pub fn policy(mode: &str, headers: &str, limits: &str) -> String {
    let (proxies, on_error) = match mode {
        "local" => (r#""proxies": 1,"#, ""),
        _ => ("", r#", "on_error": "allow""#),
    };
    format!(
        r#"{{"version": 1, {proxies}
            "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis", "timeout": "{TIMEOUT}"}}}},
            "rules": [{{"name": "per-user", "key": [{{"path_segment": {{"index": 2, "as": "user", "trusted": true}}}}],
                "mode": "{mode}", "limits": {limits} {on_error}}}],
            "response": {{"headers": {headers}}}}}"#
    )
}

impl Filter {
    /// The file of listeners; the ports and modules are filled in by the crate that starts Envoy.
    pub fn listeners(self, limit: Limit, empty_module: &str) -> Result<String> {
        let filter = match self {
            Filter::None => None,
            Filter::Empty => Some(wasm(empty_module, "")),
            Filter::NativeLocal => Some(native_local(limit)),
            Filter::Weir { mode, headers } => {
                let limits = match limit {
                    Limit::High => r#"{"requests": 1000000, "per": "1s"}"#,
                    Limit::Ten => r#""10/d""#,
                };
                Some(wasm("@MODULE@", &policy(mode, headers, limits)))
            }
            Filter::NativeGlobal(_) => Some(native_global(limit)),
        };
        let limits = match self {
            Filter::NativeGlobal(_) => {
                json!([{"actions": [{"request_headers": {"header_name": ":path", "descriptor_key": "tenant"}}]}])
            }
            _ => json!([]),
        };
        listeners(filter, limits)
    }
}

/// A listener of `envoy/listener.yaml`'s kind with this filter before the router.
pub fn listeners(filter: Option<Value>, rate_limits: Value) -> Result<String> {
    let router = json!({"name": "envoy.filters.http.router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}});
    let filters: Vec<Value> = filter.into_iter().chain([router]).collect();
    let manager = json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "use_remote_address": true,
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "upstream", "rate_limits": rate_limits}}]}]},
    }});
    let listener = json!({"resources": [{
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "ingress",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": "@PORT@"}},
        "filter_chains": [{"filters": [manager]}],
    }]});
    // A number, which no place can be in JSON.
    Ok(serde_json::to_string(&listener)?.replace(r#""@PORT@""#, "@PORT@"))
}

/// A wasm filter as in `envoy/listener.yaml`.
pub fn wasm(module: &str, configuration: &str) -> Value {
    json!({"name": "weir", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
        "config": {
            "name": "weir",
            "failure_policy": "FAIL_RELOAD",
            "reload_config": {"backoff": {"base_interval": "0.1s"}},
            "vm_config": {
                "vm_id": "weir",
                "runtime": "envoy.wasm.runtime.v8",
                "code": {"local": {"filename": module}},
            },
            "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": configuration,
            },
        },
    }})
}

fn native_local(limit: Limit) -> Value {
    let (tokens, interval) = match limit {
        Limit::High => (1_000_000_000, "1s"),
        Limit::Ten => (10, "86400s"),
    };
    let always = json!({"default_value": {"numerator": 100}});
    json!({"name": "envoy.filters.http.local_ratelimit", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "bench",
        "token_bucket": {"max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": interval},
        "filter_enabled": always,
        "filter_enforced": always,
    }})
}

fn native_global(limit: Limit) -> Value {
    let domain = match limit {
        Limit::High => "bench",
        Limit::Ten => "check",
    };
    json!({"name": "envoy.filters.http.ratelimit", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": domain,
        "timeout": TIMEOUT,
        "failure_mode_deny": false,
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "rls"}},
        },
    }})
}

/// The cluster of the rate limit service.
pub fn rls_cluster(port: u16) -> String {
    json!({
        "name": "rls",
        "type": "STATIC",
        "connect_timeout": "1s",
        "circuit_breakers": {"thresholds": [{"max_pending_requests": 65536, "max_requests": 65536}]},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }},
        "load_assignment": {"cluster_name": "rls", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}]}]},
    })
    .to_string()
}
