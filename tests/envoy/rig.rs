//! Redis, Webdis, peers and Envoys of one test, and what is asserted again and again.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_stack::{
    Answer, Bridge, BridgeOptions, Delay, Envoy, EnvoyOptions, Listeners, NOBODY, Outcome, Peer, PeerOptions, Redis,
    RedisOptions, Request, Response, Scratch, Webdis, WebdisOptions, burst,
};

/// Two cores serve one stack well; several at once would only measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Connections that send at once.
pub const CONNECTIONS: usize = 64;

/// What stands between the Envoys and Redis.
pub enum Limiter<'a> {
    /// Webdis.
    Webdis,
    /// Webdis, behind a listener that holds each call for so many milliseconds.
    Delayed(u32),
    /// Something that gives one answer to everything.
    Answering(u16, &'a str),
    /// Nothing listens.
    Absent,
}

pub struct Options<'a> {
    pub envoys: usize,
    pub limiter: Limiter<'a>,
    pub env: &'a [(&'a str, &'a str)],
    pub basic_auth: Option<&'a str>,
    pub upstream_headers: &'a [(&'a str, &'a str)],
    /// The service behind, if it is not the peer.
    pub upstream_port: Option<u16>,
    pub expect_ready: bool,
    pub concurrency: u32,
    pub module: PathBuf,
    /// As [`EnvoyOptions::more_clusters`].
    pub more_clusters: &'a [String],
    /// Redis loses no write that it has answered, whatever ends it.
    pub durable: bool,
    /// `weir bridge` runs, too, for policies that name the cluster `bridge`.
    pub bridge: bool,
}

impl Default for Options<'_> {
    /// Two Envoys of two workers each, with Webdis.
    fn default() -> Self {
        Options {
            envoys: 2,
            limiter: Limiter::Webdis,
            env: &[],
            basic_auth: None,
            upstream_headers: &[],
            upstream_port: None,
            expect_ready: true,
            concurrency: 2,
            module: module(),
            more_clusters: &[],
            durable: false,
            bridge: false,
        }
    }
}

/// Everything that runs for one test. It ends from the front to the back.
pub struct Rig {
    pub envoys: Vec<Envoy>,
    pub peer: Peer,
    pub webdis: Webdis,
    pub bridge: Option<Bridge>,
    pub redis: Redis,
    scratch: Scratch,
    _turn: MutexGuard<'static, ()>,
}

/// The module that traps when it is told to.
pub fn trapping_module() -> PathBuf {
    let module = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/trap/wasm32-wasip1/release/weir.wasm"));
    assert!(module.is_file(), "{} is missing; `make trapping-module` builds it", module.display());
    module
}

/// The tool with the bridge in it.
pub fn tool() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_weir"))
}

pub fn module() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target")), PathBuf::from);
    let module = std::env::var_os("WEIR_MODULE").map(PathBuf::from);
    let module = module.unwrap_or_else(|| target.join("wasm32-wasip1/release/weir.wasm"));
    assert!(module.is_file(), "{} is missing; `make module` builds it", module.display());
    module
}

impl Rig {
    pub fn start(policy: &str, options: Options<'_>) -> Rig {
        Rig::listening(Listeners::Policy(policy), options)
    }

    pub fn listening(listeners: Listeners<'_>, options: Options<'_>) -> Rig {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = Scratch::new().unwrap();
        let durable =
            RedisOptions { appendonly: options.durable, fsync_always: options.durable, ..RedisOptions::default() };
        let redis = Redis::start(&scratch, durable).unwrap();
        let webdis = WebdisOptions { basic_auth: options.basic_auth };
        let webdis = Webdis::start(&scratch, &redis, webdis).unwrap();
        let bridge = options.bridge.then(|| Bridge::start(&scratch, BridgeOptions::new(tool(), &redis)).unwrap());
        let delayed = match options.limiter {
            Limiter::Delayed(by_ms) => vec![Delay { to: webdis.port(), by_ms }],
            _ => Vec::new(),
        };
        let answering = match options.limiter {
            Limiter::Answering(status, body) => vec![Answer { status, body }],
            _ => Vec::new(),
        };
        let upstream_headers = options.upstream_headers;
        let peers = PeerOptions { upstream_headers, delayed: &delayed, answering: &answering, over_http2: &[] };
        let peer = Peer::start(&scratch, peers).unwrap();
        let limiter_port = match options.limiter {
            Limiter::Webdis => webdis.port(),
            Limiter::Delayed(_) => peer.delayed_limiter_port(0),
            Limiter::Answering(..) => peer.answering_port(0),
            Limiter::Absent => NOBODY,
        };
        let envoys = (0..options.envoys)
            .map(|_| {
                let upstream_port = options.upstream_port.unwrap_or(peer.upstream_port());
                let base = EnvoyOptions::new(&options.module, "", upstream_port, limiter_port);
                let Options { env, expect_ready, concurrency, more_clusters, .. } = options;
                let bridge_port = bridge.as_ref().map_or(NOBODY, Bridge::port);
                let base = EnvoyOptions { bridge_port, env, drain_s: 10, ..base };
                let options = EnvoyOptions { listeners, expect_ready, concurrency, more_clusters, ..base };
                Envoy::start(&scratch, options).unwrap()
            })
            .collect();
        Rig { envoys, peer, webdis, bridge, redis, scratch, _turn: turn }
    }

    /// Starts a way to the first Envoy that speaks HTTP/2 to it.
    pub fn over_http2(&self) -> Peer {
        let to = [self.envoys[0].port()];
        Peer::start(&self.scratch, PeerOptions { over_http2: &to, ..PeerOptions::default() }).unwrap()
    }

    pub fn ports(&self) -> Vec<u16> {
        self.envoys.iter().map(Envoy::port).collect()
    }

    /// Sends requests at once over [`CONNECTIONS`] connections to all Envoys.
    pub fn send(&self, requests: &[Request]) -> Vec<Response> {
        answers(burst(&self.ports(), CONNECTIONS, requests))
    }

    /// A counter of the module, over all Envoys.
    pub fn counted(&self, name: &str) -> u64 {
        let name = format!("wasmcustom.weir.rl.{name}");
        self.envoys.iter().filter_map(|envoy| envoy.stat(&name)).sum()
    }

    /// Requests that on_error has decided, by whatever reason.
    pub fn degraded(&self) -> u64 {
        self.all_counted("degraded_decisions.")
    }

    /// Calls of the limiter that have ended, however they did.
    pub fn calls(&self) -> u64 {
        self.all_counted("limiter_calls.")
    }

    fn all_counted(&self, prefix: &str) -> u64 {
        let prefix = format!("wasmcustom.weir.rl.{prefix}");
        let all = self.envoys.iter().flat_map(|envoy| envoy.stats(&prefix));
        all.map(|(_, count)| count).sum()
    }

    /// The keys that stand in Redis, in order.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.redis.operator().unwrap()).unwrap();
        keys.sort();
        keys
    }

    /// Takes all keys out of Redis.
    pub fn forget_keys(&self) {
        redis::cmd("FLUSHDB").exec(&mut self.redis.operator().unwrap()).unwrap();
    }

    pub fn assert_no_errors_logged(&self) {
        for envoy in &self.envoys {
            assert_eq!(envoy.errors(), Vec::<String>::new(), "an Envoy has logged errors");
        }
    }
}

impl Rig {
    /// As [`Rig::assert_no_errors_logged`], for the Envoys that have not been killed.
    pub fn assert_no_errors_logged_by_living(&mut self) {
        self.envoys.retain_mut(Envoy::is_running);
        self.assert_no_errors_logged();
    }
}

/// The answers of a burst, every request having one.
pub fn answers(outcomes: Vec<Outcome>) -> Vec<Response> {
    outcomes.into_iter().map(|outcome| outcome.result.unwrap()).collect()
}

/// How many answers have this status.
pub fn count(answers: &[Response], status: u16) -> u64 {
    answers.iter().filter(|answer| answer.status == status).count() as u64
}

/// A request of a tenant of [`policy`].
pub fn of(tenant: &str) -> Request {
    Request::get("/v1/things").header("x-user-id", tenant)
}

/// A policy whose tenants have one limit, and what a request gets when the limiter fails.
pub fn policy(limit: &str, timeout: &str, on_error: &str) -> String {
    format!(
        r#"{{"version": 1,
            "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis", "timeout": "{timeout}"}}}},
            "classes": [
                {{"class": "health", "match": {{"path": "/healthz"}}, "exempt": true}},
                {{"class": "export", "match": {{"methods": ["POST"], "path": "/v1/reports/{{id}}/export"}}, "cost": 7}}],
            "rules": [{{"name": "per-user", "key": [{{"header": {{"name": "x-user-id", "as": "user", "trusted": true}}}}],
                "mode": "exact", "limits": "{limit}", "on_error": "{on_error}"}}]}}"#
    )
}
