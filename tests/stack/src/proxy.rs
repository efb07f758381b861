//! One Envoy process and its admin interface: what [`Envoy`](crate::Envoy) and [`Peer`](crate::Peer) have in common.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::Process;
use crate::{Client, Error, Response, scratch};

/// A running Envoy whose admin interface answers.
pub(crate) struct Proxy {
    pub(crate) process: Process,
    admin_port: u16,
}

/// How to start one.
pub(crate) struct ProxyOptions<'a> {
    /// What the errors call it.
    pub(crate) name: &'static str,
    /// A directory of its own.
    pub(crate) dir: &'a Path,
    /// The bootstrap file, whose admin port is 0.
    pub(crate) bootstrap: &'a Path,
    pub(crate) concurrency: u32,
    /// Seconds that replaced listeners keep their connections.
    pub(crate) drain_s: u32,
    /// The environment, apart from PATH.
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// What runs Envoy in its place, and how long that may take to be ready.
    pub(crate) instead: Option<(&'a Path, Duration)>,
}

impl Proxy {
    /// Starts Envoy and waits until it is live: configured, or refusing its first listeners.
    pub(crate) fn start(options: &ProxyOptions<'_>) -> Result<Proxy, Error> {
        let admin_file = options.dir.join("admin-address");
        let mut command = Command::new(options.instead.map_or_else(binary, |(program, _)| program.to_owned()));
        // Envoy's log is its standard error, which reaches the file at once; --log-path would hold lines back for
        // seconds. Without hot restart it leaves nothing in /dev/shm and needs no base id.
        command
            .arg("--disable-hot-restart")
            .arg("--config-path")
            .arg(options.bootstrap)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(["--concurrency", &options.concurrency.to_string()])
            .args(["--drain-time-s", &options.drain_s.to_string()])
            .args(["--drain-strategy", "immediate"])
            .args(["--log-level", "info"])
            // At its start the main component lists all extensions, 60 long lines that nobody looks for.
            .args(["--component-log-level", "main:warning"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(options.env.iter().copied());
        let binary = Path::new(command.get_program());
        if !binary.exists() {
            let found = format!("{} does not exist", binary.display());
            return Err(Error::new(options.name, found, "Envoy there, or where WEIR_ENVOY says"));
        }
        let log = options.dir.join("log");
        let mut process = Process::spawn(options.name, command, &log)?;
        if let Some((_, patience)) = options.instead {
            process.be_patient(patience);
        }
        let mut admin_port = 0;
        process.wait_until("an admin interface that answers /ready with 200", || {
            admin_port = read_port(&admin_file).unwrap_or_default();
            admin_port != 0 && Client::new(admin_port).get("/ready", &[]).is_ok_and(|answer| answer.status == 200)
        })?;
        Ok(Proxy { process, admin_port })
    }

    pub(crate) fn admin_port(&self) -> u16 {
        self.admin_port
    }

    pub(crate) fn admin(&self, path: &str) -> Result<Response, Error> {
        Client::new(self.admin_port).get(path, &[])
    }

    pub(crate) fn stat(&self, name: &str) -> Option<u64> {
        self.stats(name).remove(name)
    }

    pub(crate) fn stats(&self, prefix: &str) -> BTreeMap<String, u64> {
        stats(self.admin_port, prefix)
    }
}

/// The counters and gauges whose names start with `prefix`; none where Envoy does not answer.
pub(crate) fn stats(admin_port: u16, prefix: &str) -> BTreeMap<String, u64> {
    let path = format!("/stats?filter=%5E{}", as_pattern(prefix));
    let Ok(answer) = Client::new(admin_port).get(&path, &[]) else {
        return BTreeMap::new();
    };
    // `name: 7`; a histogram has text for a value, and is left out.
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(": ")?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    answer.text().lines().filter_map(value).collect()
}

/// A pattern, percent-encoded, that matches just this text.
fn as_pattern(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        other => format!("%5C%{other:02X}"),
    };
    text.bytes().map(escaped).collect()
}

fn read_port(admin_file: &Path) -> Option<u16> {
    let address = std::fs::read_to_string(admin_file).ok()?;
    address.trim().rsplit_once(':')?.1.parse().ok()
}

/// The Envoy to run: `WEIR_ENVOY`, else the one that the workspace has installed for itself.
pub(crate) fn binary() -> PathBuf {
    match std::env::var_os("WEIR_ENVOY") {
        Some(path) => path.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/envoy/bin/envoy"),
    }
}

/// Writes a configuration beside its final place and moves it there, which is what Envoy waits for.
pub(crate) fn move_into_place(path: &Path, text: &str) -> Result<(), Error> {
    let new = path.with_extension("new");
    scratch::write(&new, text)?;
    std::fs::rename(&new, path).map_err(|e| Error::new(scratch::show(path), e, "the new file in its place"))
}
