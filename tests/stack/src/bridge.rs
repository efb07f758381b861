//! `weir bridge`, the limiter's face of weir's own, started as its users start it.
//!
//! This crate does not build it: the tool's path is given, as the module's is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::port::on_free_port;
use crate::process::Process;
use crate::{Client, Error, Redis, Response, Scratch};

pub struct BridgeOptions {
    /// The path of `weir`, built with its feature `bridge`.
    pub tool: PathBuf,
    /// What stands behind `weir bridge`, but where it listens.
    pub arguments: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Whether it has to have Redis at the start.
    pub expect_ready: bool,
}

impl BridgeOptions {
    /// In front of a Redis, with the user that the limiter has there.
    pub fn new(tool: &Path, redis: &Redis) -> BridgeOptions {
        BridgeOptions {
            tool: tool.to_owned(),
            arguments: vec!["--redis".to_owned(), format!("redis://127.0.0.1:{}", redis.port())],
            env: vec![("WEIR_REDIS_PASSWORD".to_owned(), redis.password().to_owned())],
            expect_ready: true,
        }
    }

    /// The same with more words.
    pub fn with(mut self, arguments: &[&str]) -> BridgeOptions {
        self.arguments.extend(arguments.iter().map(|word| (*word).to_owned()));
        self
    }

    /// The same with a variable.
    pub fn with_env(mut self, name: &str, value: &str) -> BridgeOptions {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running bridge. It belongs to the thread that started it.
pub struct Bridge {
    process: Process,
    options: BridgeOptions,
    log: PathBuf,
    port: u16,
    admin_port: u16,
}

impl Bridge {
    /// Starts it and waits until it answers, and, where that is expected, has Redis.
    ///
    /// # Errors
    /// Not so within 15 s; with its log.
    pub fn start(scratch: &Scratch, options: BridgeOptions) -> Result<Bridge, Error> {
        let log = scratch.part("bridge")?.join("log");
        let (process, port, admin_port) = on_free_port(|port| {
            on_free_port(|admin_port| Ok((spawn(&options, port, admin_port, &log)?, port, admin_port)))
        })?;
        let mut bridge = Bridge { process, options, log, port, admin_port };
        bridge.wait()?;
        Ok(bridge)
    }

    /// Where calls go.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of the process, as /proc has it.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it answers to a GET at its second listener, such as `/readyz` or `/metrics`.
    ///
    /// # Errors
    /// It does not answer.
    pub fn admin(&self, path: &str) -> Result<Response, Error> {
        Client::new(self.admin_port).get(path, &[])
    }

    /// A number of `/metrics`, by its name and labels as they stand there.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.admin("/metrics").ok()?.text();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// SIGTERM: it finishes its calls and ends.
    pub fn terminate(&mut self) {
        self.process.terminate();
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// SIGKILL: connections break, and later ones are refused.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGSTOP: connections stay and get no answer, until [`Bridge::cont`].
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// SIGCONT.
    pub fn cont(&mut self) {
        self.process.cont();
    }

    /// Ends it, if it still runs, and starts it anew on the same ports.
    ///
    /// # Errors
    /// As [`Bridge::start`]; also when another process has taken a port meanwhile.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.kill();
        self.process = spawn(&self.options, self.port, self.admin_port, &self.log)?;
        self.wait()
    }

    /// All that it has written.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until it has Redis, for use after [`Redis::restart`]. At most 15 s.
    ///
    /// # Errors
    /// The time is over, or it has ended; with its log.
    pub fn wait_connected(&mut self) -> Result<(), Error> {
        let port = self.admin_port;
        self.process.wait_until("a bridge that has Redis", || is_fine(port, "/readyz"))
    }

    fn wait(&mut self) -> Result<(), Error> {
        let port = self.admin_port;
        self.process.wait_until("a bridge that answers /healthz", || is_fine(port, "/healthz"))?;
        if self.options.expect_ready { self.wait_connected() } else { Ok(()) }
    }
}

fn is_fine(port: u16, path: &str) -> bool {
    Client::new(port).get(path, &[]).is_ok_and(|answer| answer.status == 200)
}

fn spawn(options: &BridgeOptions, port: u16, admin_port: u16, log: &Path) -> Result<Process, Error> {
    let mut command = Command::new(&options.tool);
    command.args(["bridge", "--listen", &format!("127.0.0.1:{port}"), "--admin", &format!("127.0.0.1:{admin_port}")]);
    command.args(&options.arguments).env_clear().envs(options.env.iter().map(|(name, value)| (name, value)));
    Process::spawn("bridge", command, log)
}
