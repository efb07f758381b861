//! `weir bridge`: stands between proxies and Redis. It runs weir's scripts, by name, on keys inside its namespaces, and
//! nothing else.
//!
//! A call's way: [`http`] (who may ask, and what is a call) -> [`parts`] (each part on its own, to its deadline) ->
//! [`redis`] (which node, and what its reply proves). It keeps no state but connections, and knows no limits: what a call
//! means is the filter's and the script's. What a call says is `weir::limiter::redis::bridge`, which the filter uses, too.

mod http;
mod metrics;
mod options;
mod parts;
mod redis;
mod serve;
mod tls;

use std::sync::Arc;

pub use options::Options;

use crate::{Outcome, Output, Stop};

pub fn run(options: &Options) -> Result<Output, Stop> {
    let settings = options.settings()?;
    // One thread: a Redis is one, too, and whoever needs more starts more bridges.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Stop(format!("the bridge cannot start: {error}")))?;
    runtime.block_on(serve::serve(settings))?;
    Ok(Output { text: String::new(), warnings: Vec::new(), outcome: Outcome::Fine })
}

/// What all calls share.
struct Bridge {
    namespaces: Vec<String>,
    routes: redis::Routes,
    metrics: Arc<metrics::Metrics>,
}

/// A line of the log. It never holds a key, a tenant or a credential.
fn say(text: &str) {
    use std::io::Write;
    // Whoever reads may be gone.
    let _ = writeln!(std::io::stderr().lock(), "weir bridge: {text}");
}
