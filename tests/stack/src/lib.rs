//! Real Redis, Webdis, bridge and Envoy processes on loopback, for weir's integration tests and its demo.
//!
//! A stack is put together from the back to the front, each part knowing the port of the one behind it:
//!
//! ```no_run
//! use weir_stack::{Client, Envoy, EnvoyOptions, Peer, PeerOptions, Redis, RedisOptions, Scratch, Webdis, WebdisOptions};
//! # fn main() -> Result<(), weir_stack::Error> {
//! let scratch = Scratch::new()?; // first, so that it is dropped last
//! let redis = Redis::start(&scratch, RedisOptions::default())?;
//! let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default())?;
//! let peer = Peer::start(&scratch, PeerOptions::default())?;
//! let policy = r#"{"version": 1}"#;
//! let module = std::path::Path::new("target/wasm32-wasip1/release/weir.wasm");
//! let envoy = Envoy::start(&scratch, EnvoyOptions::new(module, policy, peer.upstream_port(), webdis.port()))?;
//! let answer = Client::new(envoy.port()).get("/", &[("x-user-id", b"acme")])?;
//! assert_eq!(answer.status, 200);
//! # Ok(())
//! # }
//! ```
//!
//! Every process listens on 127.0.0.1 only, on a free port, and ends with the value that stands for it: SIGTERM, a bounded
//! wait, SIGKILL. Nothing stays behind but the scratch directory of a thread that panicked, whose path is then printed.
//!
//! **Processes belong to the thread that started them**: the kernel kills them when that thread ends (PR_SET_PDEATHSIG), so
//! that a killed test leaves nothing running. Start a stack in the thread that outlives its use.
//!
//! This crate knows neither weir nor its policies: a policy is JSON text and the module is a path. What the processes read
//! is made from the files that users get too: `envoy/*.yaml`, `lua/users.acl`, `examples/webdis.json`.

mod bridge;
mod burst;
mod envoy;
mod error;
mod http;
mod peer;
mod port;
mod process;
mod proxy;
mod redis;
mod render;
mod scratch;
mod webdis;

pub use bridge::{Bridge, BridgeOptions};
pub use burst::{Outcome, burst};
pub use envoy::{Envoy, EnvoyOptions, Listeners, NOBODY, PushError, with_filter};
pub use error::Error;
pub use http::{Client, Request, Response};
pub use peer::{Answer, Delay, Peer, PeerOptions};
pub use port::free_port;
pub use redis::{Redis, RedisOptions, Sentinel};
pub use scratch::Scratch;
pub use webdis::{Webdis, WebdisOptions};
