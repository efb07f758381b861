//! A listener whose filter chains are put together by a test, where that of `envoy/listener.yaml` is not enough.
//!
//! Connections start with a header of the PROXY protocol (version 1), as from a TCP load balancer: it names the peer,
//! which may then have any address, and its destination port chooses the chain.

use serde_json::{Value, json};
use weir_stack::Client;

/// The filter with a policy.
pub fn weir(name: &str, policy: &Value) -> Value {
    json!({"name": name, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
        "config": {
            "name": name,
            "vm_config": {
                "vm_id": "weir",
                "runtime": "envoy.wasm.runtime.v8",
                "code": {"local": {"filename": "@MODULE@"}},
                "environment_variables": {"host_env_keys": ["WEIR_HASH_SECRET"]},
            },
            "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": policy.to_string(),
            },
        },
    }})
}

/// A connection manager with these words of its own, these filters before the router, and these routes.
pub fn manager(words: Value, filters: Vec<Value>, routes: Value) -> Value {
    let router = json!({"name": "envoy.filters.http.router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
    }});
    let filters: Vec<Value> = filters.into_iter().chain([router]).collect();
    let mut config = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
    });
    let words = words.as_object().expect("words").clone();
    config.as_object_mut().expect("an object").extend(words);
    json!([{"name": "envoy.filters.network.http_connection_manager", "typed_config": config}])
}

/// A file with one listener of these chains.
pub fn listener(chains: &[Value]) -> String {
    let inspector = |name: &str, kind: &str, words: Value| {
        let mut config = json!({"@type": format!("type.googleapis.com/envoy.extensions.filters.listener.{kind}")});
        config.as_object_mut().expect("an object").extend(words.as_object().expect("words").clone());
        json!({"name": format!("envoy.filters.listener.{name}"), "typed_config": config})
    };
    let address = json!({"socket_address": {"address": "127.0.0.1", "port_value": "@PORT@"}});
    let without = json!({"allow_requests_without_proxy_protocol": true});
    let file = json!({"resources": [{
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "ingress",
        "address": address,
        "listener_filters": [
            inspector("proxy_protocol", "proxy_protocol.v3.ProxyProtocol", without),
            inspector("tls_inspector", "tls_inspector.v3.TlsInspector", json!({})),
        ],
        "filter_chains": chains,
    }]});
    file.to_string()
}

/// A client with this address, in the eyes of the chain.
pub fn client(port: u16, address: &str, chain: u16) -> Client {
    let header = match address.contains(':') {
        true => format!("PROXY TCP6 {address} ::1 4711 {chain}\r\n"),
        false => format!("PROXY TCP4 {address} 127.0.0.1 4711 {chain}\r\n"),
    };
    Client::new(port).with_preamble(header)
}
