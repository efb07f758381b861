//! The Envoy with weir in it, configured by `envoy/bootstrap.yaml`, `envoy/listener.yaml` and `envoy/filter.yaml`.

mod counts;
mod files;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use counts::{Counts, FILTER, FilterCounts, MANAGER};
pub use files::with_filter;
use files::{LISTENER, bootstrap_text, fill, filter, listener};

use crate::port::ReservedPort;
use crate::proxy::{self, Proxy, ProxyOptions};
use crate::{Error, Response, Scratch, scratch};

/// What Envoy is to listen to.
#[derive(Clone, Copy)]
pub enum Listeners<'a> {
    /// `envoy/listener.yaml`, and `envoy/filter.yaml` with this policy: JSON, or any other text without control characters,
    /// handed on as it is.
    Policy(&'a str),
    /// A whole LDS file that discovers the filter: as [`Listeners::File`], and `@FILTER@` stands for the path of
    /// `envoy/filter.yaml` with this policy.
    Discovering { file: &'a str, policy: &'a str },
    /// A whole LDS file; `@PORT@` and `@MODULE@` stand for [`Envoy::port`] and the module's path. See [`with_filter`].
    File(&'a str),
}

pub struct EnvoyOptions<'a> {
    /// Worker threads.
    pub concurrency: u32,
    /// The path of `weir.wasm`.
    pub module: &'a Path,
    pub listeners: Listeners<'a>,
    pub upstream_port: u16,
    /// Where the cluster `webdis` is.
    pub webdis_port: u16,
    /// Where the cluster `bridge` is.
    pub bridge_port: u16,
    /// Clusters besides those of `envoy/bootstrap.yaml`, each in JSON on one line.
    pub more_clusters: &'a [String],
    /// Environment variables, such as those that a policy names. Nothing but PATH is inherited.
    pub env: &'a [(&'a str, &'a str)],
    /// How many seconds a replaced listener keeps its connections, and the requests on them.
    pub drain_s: u32,
    /// A program that runs Envoy in its place, with the same arguments, and how long it may take to be ready; such as one
    /// that counts instructions.
    pub instead: Option<(&'a Path, Duration)>,
    /// Whether the listeners have to be accepted at the start. Without it an Envoy that refuses them is a running one, too.
    pub expect_ready: bool,
}

impl<'a> EnvoyOptions<'a> {
    /// Webdis and no bridge, two workers, an empty environment, 1 s to drain, and listeners that have to be accepted.
    pub fn new(module: &'a Path, policy_json: &'a str, upstream_port: u16, webdis_port: u16) -> EnvoyOptions<'a> {
        EnvoyOptions {
            concurrency: 2,
            module,
            listeners: Listeners::Policy(policy_json),
            upstream_port,
            webdis_port,
            bridge_port: NOBODY,
            more_clusters: &[],
            env: &[],
            drain_s: 1,
            instead: None,
            expect_ready: true,
        }
    }
}

/// A port that nobody serves: the discard port, which is privileged.
pub const NOBODY: u16 = 9;

/// Why new listeners are not in force.
#[derive(Debug)]
pub enum PushError {
    /// Envoy has refused them, and the old ones go on. The text is what it logged meanwhile.
    Refused(String),
    /// Anything else.
    Failed(Error),
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Refused(log) => write!(f, "Envoy has refused the listeners:\n{log}"),
            PushError::Failed(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for PushError {}

impl From<Error> for PushError {
    fn from(e: Error) -> Self {
        PushError::Failed(e)
    }
}

/// An Envoy that runs weir. It belongs to the thread that started it.
pub struct Envoy {
    proxy: Proxy,
    listeners_file: PathBuf,
    filter_file: PathBuf,
    /// The listeners in force discover the filter.
    discovers: bool,
    module: String,
    concurrency: u32,
    port: ReservedPort,
    more_ports: Vec<ReservedPort>,
}

impl Envoy {
    /// Starts Envoy and waits until all workers serve the listeners (or, without `expect_ready`, have been told of none).
    ///
    /// # Errors
    /// It does not start, does not become ready within 15 s, or refuses the listeners; with its log.
    pub fn start(scratch: &Scratch, options: EnvoyOptions<'_>) -> Result<Envoy, Error> {
        let dir = scratch.part("envoy")?;
        let port = ReservedPort::new()?;
        // Directories of their own: Envoy wakes up for each move into them.
        let directory = |name: &str| {
            let path = dir.join(name);
            let made = std::fs::create_dir(&path);
            made.map(|()| path.clone()).map_err(|e| Error::new(scratch::show(&path), e, "a new directory"))
        };
        let listeners_file = directory("listeners")?.join("listener.yaml");
        let filter_file = directory("filter")?.join("filter.yaml");
        let module =
            std::path::absolute(options.module).map_err(|e| Error::new("the module's path", e, "an absolute path"))?;
        let module = scratch::show(&module);
        let (file, policy) = match options.listeners {
            Listeners::Policy(policy) => (LISTENER, Some(policy)),
            Listeners::Discovering { file, policy } => (file, Some(policy)),
            Listeners::File(file) => (file, None),
        };
        if let Some(policy) = policy {
            scratch::write(&filter_file, &filter(&module, policy)?)?;
        }
        scratch::write(&listeners_file, &fill(file, port.number(), &module, &filter_file)?)?;
        let bootstrap = dir.join("bootstrap.yaml");
        let mut text =
            bootstrap_text(&listeners_file, options.upstream_port, options.bridge_port, options.webdis_port)?;
        // The file ends with its list of clusters.
        text.extend(options.more_clusters.iter().map(|cluster| format!("    - {cluster}\n")));
        scratch::write(&bootstrap, &text)?;
        let proxy = Proxy::start(&ProxyOptions {
            name: "envoy",
            dir: &dir,
            bootstrap: &bootstrap,
            concurrency: options.concurrency,
            drain_s: options.drain_s,
            env: options.env,
            instead: options.instead,
        })?;
        let mut envoy = Envoy {
            proxy,
            listeners_file,
            filter_file,
            discovers: policy.is_some(),
            module,
            concurrency: options.concurrency,
            port,
            more_ports: Vec::new(),
        };
        let wanted = "an answer to the first listeners, and all workers at work";
        let mut accepted = envoy.wait_answer(&Counts::default(), wanted)?;
        if envoy.discovers {
            accepted &= envoy.wait_filter(&FilterCounts::default(), "an answer to the first filter")?;
        }
        if options.expect_ready && !accepted {
            return Err(envoy.proxy.process.error("it has refused them", "listeners that it accepts"));
        }
        Ok(envoy)
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The number of the process, as /proc has it.
    pub fn id(&self) -> u32 {
        self.proxy.process.id()
    }

    /// One more port that is this Envoy's as long as it lives, for [`Envoy::push_policies`] or a file of your own.
    ///
    /// # Errors
    /// None is free.
    pub fn reserve_port(&mut self) -> Result<u16, Error> {
        let port = ReservedPort::new()?;
        let number = port.number();
        self.more_ports.push(port);
        Ok(number)
    }

    /// Replaces the policy, as JSON: where the filter is discovered, for all connections. Where it stands in the listener,
    /// all workers have it for new connections, and old ones keep the old one until they are drained: see
    /// [`Envoy::wait_drained`].
    ///
    /// # Errors
    /// [`PushError::Refused`] when Envoy refuses it; otherwise no answer within 15 s.
    pub fn push_policy(&mut self, policy_json: &str) -> Result<(), PushError> {
        if !self.discovers {
            return self.push_policies(&[(self.port(), policy_json)]);
        }
        let before = FilterCounts::of(&self.proxy.stats(FILTER));
        let log_before = self.log().len();
        let text = filter(&self.module, policy_json)?;
        proxy::move_into_place(&self.filter_file, &text)?;
        if self.wait_filter(&before, "an answer to the new filter")? {
            return Ok(());
        }
        Err(self.refused(log_before))
    }

    /// Replaces all listeners by one for each port and policy, each with the filter in it. They share one `vm_id`.
    ///
    /// # Errors
    /// As [`Envoy::push_policy`].
    pub fn push_policies(&mut self, policies: &[(u16, &str)]) -> Result<(), PushError> {
        let mut file = String::new();
        for (port, policy_json) in policies {
            let text = listener(*port, &self.module, policy_json)?;
            let entry = text.split_once("\nresources:\n").map(|(_, entry)| entry);
            file.push_str(if file.is_empty() { &text } else { entry.unwrap_or_default() });
        }
        self.push(&file)?;
        self.discovers = false;
        Ok(())
    }

    /// Replaces the LDS file; `@PORT@`, `@MODULE@` and `@FILTER@` stand for [`Envoy::port`], the module's path and that of
    /// the filter that was discovered first.
    ///
    /// # Errors
    /// As [`Envoy::push_policy`].
    pub fn push_listeners(&mut self, file: &str) -> Result<(), PushError> {
        let text = fill(file, self.port(), &self.module, &self.filter_file)?;
        self.push(&text)?;
        self.discovers = file.contains("@FILTER@");
        Ok(())
    }

    fn push(&mut self, text: &str) -> Result<(), PushError> {
        let before = Counts::of(&self.proxy.stats(MANAGER));
        let log_before = self.log().len();
        proxy::move_into_place(&self.listeners_file, text)?;
        let wanted = "an answer to the new listeners, and all workers at work";
        if self.wait_answer(&before, wanted)? {
            return Ok(());
        }
        Err(self.refused(log_before))
    }

    /// What Envoy has logged since.
    fn refused(&self, log_before: usize) -> PushError {
        let log = self.log();
        let said = log[log_before..].lines().filter(|line| !line.contains("][info]"));
        PushError::Refused(said.collect::<Vec<_>>().join("\n"))
    }

    /// Waits for Envoy's answer to a filter that it discovers; true if it accepts it, and then all workers have it.
    fn wait_filter(&mut self, before: &FilterCounts, wanted: &str) -> Result<bool, Error> {
        let admin_port = self.proxy.admin_port();
        let mut now = FilterCounts::default();
        self.proxy.process.wait_until(wanted, || {
            now = FilterCounts::of(&proxy::stats(admin_port, FILTER));
            now.accepted > before.accepted || now.refused > before.refused
        })?;
        // Workers take it in their next turns; Envoy has no count of those that have.
        std::thread::sleep(Duration::from_millis(100));
        Ok(now.accepted > before.accepted)
    }

    /// Waits for Envoy's answer to listeners; true if it accepts them, and then all workers have them.
    fn wait_answer(&mut self, before: &Counts, wanted: &str) -> Result<bool, Error> {
        let (admin_port, workers) = (self.proxy.admin_port(), u64::from(self.concurrency));
        let mut accepted = false;
        self.proxy.process.wait_until(wanted, || {
            let now = Counts::of(&proxy::stats(admin_port, MANAGER));
            accepted = now.accepted > before.accepted;
            let refused = now.refused > before.refused;
            refused || (accepted && now.served == now.changes * workers && now.warming == 0)
        })?;
        Ok(accepted)
    }

    /// Waits until no replaced listener is left, and with it no connection and no request that had an old policy. Takes
    /// as long as `drain_s` says.
    ///
    /// # Errors
    /// Not so after 15 s.
    pub fn wait_drained(&mut self) -> Result<(), Error> {
        let admin_port = self.proxy.admin_port();
        self.proxy.process.wait_until("no listener and no filter chain that drains", || {
            let stats = proxy::stats(admin_port, MANAGER);
            let zero = |name: &str| stats.get(name) == Some(&0);
            zero("listener_manager.total_listeners_draining") && zero("listener_manager.total_filter_chains_draining")
        })
    }

    /// All that Envoy has logged.
    pub fn log(&self) -> String {
        self.proxy.process.log()
    }

    /// The lines of the log at level error or critical.
    pub fn errors(&self) -> Vec<String> {
        let is_error = |line: &&str| line.contains("][error][") || line.contains("][critical][");
        self.log().lines().filter(is_error).map(str::to_owned).collect()
    }

    /// The value of a counter or gauge; none if Envoy does not have it (yet) or does not answer.
    pub fn stat(&self, name: &str) -> Option<u64> {
        self.proxy.stat(name)
    }

    /// All counters and gauges whose names start with `prefix`.
    pub fn stats(&self, prefix: &str) -> BTreeMap<String, u64> {
        self.proxy.stats(prefix)
    }

    pub fn admin_port(&self) -> u16 {
        self.proxy.admin_port()
    }

    /// What the admin interface answers to a GET, such as `/config_dump` or `/stats/prometheus`.
    ///
    /// # Errors
    /// Envoy does not answer.
    pub fn admin(&self, path: &str) -> Result<Response, Error> {
        self.proxy.admin(path)
    }

    pub fn is_running(&mut self) -> bool {
        self.proxy.process.is_running()
    }

    /// Waits until `condition` holds, for at most `bound`, and says whether it does; looks every 5 ms.
    pub fn wait_for(&self, bound: Duration, mut condition: impl FnMut(&Envoy) -> bool) -> bool {
        let end = Instant::now() + bound;
        while !condition(self) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// SIGKILL: what this proxy had leased is lost.
    pub fn kill(&mut self) {
        self.proxy.process.kill();
    }
}
