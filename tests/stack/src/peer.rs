//! One Envoy that plays everything around weir: the service that is protected, and limiters that are slow or wrong.

use serde_json::{Value, json};

use crate::port::ReservedPort;
use crate::proxy::{Proxy, ProxyOptions};
use crate::{Error, Scratch, scratch};

/// The longest body of an [`Answer`], in bytes.
const MAX_BODY: u32 = 1 << 20;

/// What a [`Peer`] plays besides the service that is protected.
#[derive(Default)]
pub struct PeerOptions<'a> {
    /// Headers that the service sets, such as `x-ratelimit-limit: 7`.
    pub upstream_headers: &'a [(&'a str, &'a str)],
    /// Slow ways to a real limiter.
    pub delayed: &'a [Delay],
    /// Limiters that say always the same.
    pub answering: &'a [Answer<'a>],
    /// Ports to which requests are forwarded over HTTP/2, as they come.
    pub over_http2: &'a [u16],
}

/// A listener that holds each request for a time and then forwards it, once.
pub struct Delay {
    /// The port of the real limiter.
    pub to: u16,
    /// Milliseconds.
    pub by_ms: u32,
}

/// A listener that gives one answer to everything.
pub struct Answer<'a> {
    pub status: u16,
    /// At most 1 MiB.
    pub body: &'a str,
}

/// The peers of weir, in one Envoy process. It belongs to the thread that started it.
pub struct Peer {
    proxy: Proxy,
    upstream: ReservedPort,
    delayed: Vec<ReservedPort>,
    answering: Vec<ReservedPort>,
    over_http2: Vec<ReservedPort>,
}

impl Peer {
    /// Starts all listeners and waits until they serve.
    ///
    /// # Errors
    /// Envoy does not start or is not ready within 15 s; with its log.
    pub fn start(scratch: &Scratch, options: PeerOptions<'_>) -> Result<Peer, Error> {
        let reserve =
            |count: usize| -> Result<Vec<ReservedPort>, Error> { (0..count).map(|_| ReservedPort::new()).collect() };
        let upstream = ReservedPort::new()?;
        let delayed = reserve(options.delayed.len())?;
        let answering = reserve(options.answering.len())?;
        let over_http2 = reserve(options.over_http2.len())?;

        let mut listeners = vec![upstream_listener(&upstream, options.upstream_headers)];
        let mut clusters = Vec::new();
        for (index, (port, delay)) in delayed.iter().zip(options.delayed).enumerate() {
            let name = format!("delayed_{index}");
            listeners.push(delayed_listener(&name, port, delay));
            clusters.push(cluster(&name, delay.to));
        }
        for (index, (port, answer)) in answering.iter().zip(options.answering).enumerate() {
            listeners.push(answering_listener(&format!("answering_{index}"), port, answer));
        }
        for (index, (port, to)) in over_http2.iter().zip(options.over_http2).enumerate() {
            let name = format!("over_http2_{index}");
            let route = json!({"match": {"prefix": "/"}, "route": {"cluster": name, "timeout": "0s"}});
            listeners.push(streaming_listener(&name, port, &[], route));
            clusters.push(http2_cluster(&name, *to));
        }
        let config = json!({
            "node": {"id": "peer", "cluster": "peer"},
            "admin": {"address": address(0)},
            "static_resources": {"listeners": listeners, "clusters": clusters},
        });

        let dir = scratch.part("peer")?;
        let bootstrap = dir.join("bootstrap.json");
        scratch::write(&bootstrap, &config.to_string())?;
        let mut proxy = Proxy::start(&ProxyOptions {
            instead: None,
            name: "peer",
            dir: &dir,
            bootstrap: &bootstrap,
            concurrency: 1,
            drain_s: 1,
            env: &[],
        })?;
        let (admin_port, wanted) = (proxy.admin_port(), listeners.len() as u64);
        proxy.process.wait_until("all listeners at work", || {
            let name = "listener_manager.listener_create_success";
            crate::proxy::stats(admin_port, name).get(name) == Some(&wanted)
        })?;
        Ok(Peer { proxy, upstream, delayed, answering, over_http2 })
    }

    /// The service that is protected: 200 and `ok` to everything.
    pub fn upstream_port(&self) -> u16 {
        self.upstream.number()
    }

    /// The listener of `delayed[index]`.
    ///
    /// # Panics
    /// There is none.
    pub fn delayed_limiter_port(&self, index: usize) -> u16 {
        self.delayed[index].number()
    }

    /// The listener of `answering[index]`.
    ///
    /// # Panics
    /// There is none.
    pub fn answering_port(&self, index: usize) -> u16 {
        self.answering[index].number()
    }

    /// The listener of `over_http2[index]`, for clients that speak HTTP/1.1.
    ///
    /// # Panics
    /// There is none.
    pub fn over_http2_port(&self, index: usize) -> u16 {
        self.over_http2[index].number()
    }

    /// How many requests the service has seen.
    pub fn upstream_requests(&self) -> u64 {
        self.requests("upstream")
    }

    /// How many requests `delayed[index]` has seen, held ones included.
    pub fn delayed_requests(&self, index: usize) -> u64 {
        self.requests(&format!("delayed_{index}"))
    }

    /// How many requests `answering[index]` has seen.
    pub fn answered_requests(&self, index: usize) -> u64 {
        self.requests(&format!("answering_{index}"))
    }

    fn requests(&self, listener: &str) -> u64 {
        self.proxy.stat(&format!("http.{listener}.downstream_rq_total")).unwrap_or_default()
    }

    /// All that this Envoy has logged.
    pub fn log(&self) -> String {
        self.proxy.process.log()
    }

    /// SIGKILL: the service and the stand-ins are gone.
    pub fn kill(&mut self) {
        self.proxy.process.kill();
    }

    /// SIGSTOP: connections stay and get no answer, until [`Peer::cont`].
    pub fn stop(&mut self) {
        self.proxy.process.stop();
    }

    /// SIGCONT.
    pub fn cont(&mut self) {
        self.proxy.process.cont();
    }
}

fn upstream_listener(port: &ReservedPort, headers: &[(&str, &str)]) -> Value {
    let status = headers.iter().find(|(name, _)| *name == ":status");
    let status: u16 = status.map_or(200, |(_, status)| status.parse().expect("a status"));
    let headers: Vec<Value> = headers
        .iter()
        .filter(|(name, _)| *name != ":status")
        .map(|(name, value)| json!({"header": {"key": name, "value": value}}))
        .collect();
    listener(
        "upstream",
        port,
        &[],
        json!({
            "match": {"prefix": "/"},
            "direct_response": {"status": status, "body": {"inline_string": "ok"}},
            "response_headers_to_add": headers,
        }),
    )
}

fn delayed_listener(name: &str, port: &ReservedPort, delay: &Delay) -> Value {
    let fault = json!({
        "name": "envoy.filters.http.fault",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "delay": {
                "fixed_delay": format!("{}.{:03}s", delay.by_ms / 1000, delay.by_ms % 1000),
                "percentage": {"numerator": 100},
            },
        },
    });
    listener(
        name,
        port,
        &[fault],
        json!({
            "match": {"prefix": "/"},
            "route": {"cluster": name, "timeout": "0s"},
        }),
    )
}

fn answering_listener(name: &str, port: &ReservedPort, answer: &Answer<'_>) -> Value {
    listener(
        name,
        port,
        &[],
        json!({
            "match": {"prefix": "/"},
            "direct_response": {"status": answer.status, "body": {"inline_string": answer.body}},
        }),
    )
}

/// A listener with one route, which first takes in the whole request: Envoy closes a connection on which it has answered
/// before the end of the request.
fn listener(name: &str, port: &ReservedPort, filters: &[Value], route: Value) -> Value {
    let buffer = json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 1 << 24,
        },
    });
    let filters: Vec<Value> = std::iter::once(&buffer).chain(filters).cloned().collect();
    streaming_listener(name, port, &filters, route)
}

/// A listener with one route, which forwards bodies as they come.
fn streaming_listener(name: &str, port: &ReservedPort, filters: &[Value], route: Value) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        },
    });
    let filters: Vec<&Value> = filters.iter().chain([&router]).collect();
    json!({
        "name": name,
        "address": address(port.number()),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": name,
                "generate_request_id": false,
                "http_filters": filters,
                "route_config": {
                    "max_direct_response_body_size_bytes": MAX_BODY,
                    "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
                },
            },
        }]}],
    })
}

fn cluster(name: &str, port: u16) -> Value {
    const MANY: u32 = 65536;
    json!({
        "name": name,
        "connect_timeout": "1s",
        "circuit_breakers": {"thresholds": [
            {"max_connections": MANY, "max_pending_requests": MANY, "max_requests": MANY},
        ]},
        "load_assignment": {"cluster_name": name, "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": address(port)}}]},
        ]},
    })
}

fn http2_cluster(name: &str, port: u16) -> Value {
    let mut cluster = cluster(name, port);
    cluster["typed_extension_protocol_options"] = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        },
    });
    cluster
}

fn address(port: u16) -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": port}})
}
