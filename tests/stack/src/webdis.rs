//! Webdis, the HTTP face of Redis, with the configuration of `examples/webdis.json`.
//!
//! Its file is JSON and takes no comments, so what it says is explained here. Everything is forbidden but EVAL and EVALSHA
//! (it matches by prefix, so one cannot be had without the other); the boundary that counts is Redis' own, see
//! `lua/users.acl`. `redis_auth` is the password of the user `default`: its array form with a user name does not work in
//! 0.1.9. Each of the `threads` holds `pool_size` connections to Redis. Its log names the key of every GET, so weir
//! sends POST. With `http_basic_auth` in the second entry of `acl` it serves only those who know it and answers 403 to others.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::port::on_free_port;
use crate::process::Process;
use crate::redis::operator;
use crate::render::render;
use crate::{Client, Error, Redis, Scratch, scratch};

#[derive(Default)]
pub struct WebdisOptions<'a> {
    /// `user:password` that a caller has to send as `Authorization: Basic ...`; without it nobody has to.
    pub basic_auth: Option<&'a str>,
}

/// A Webdis server in front of a [`Redis`]. It belongs to the thread that started it.
pub struct Webdis {
    process: Process,
    config: PathBuf,
    log: PathBuf,
    port: u16,
    connections: usize,
    operator: ::redis::Client,
}

impl Webdis {
    /// Starts a server and waits until it answers and all its connections to Redis are logged in.
    ///
    /// # Errors
    /// It does not start or is not ready within 15 s; with its log.
    pub fn start(scratch: &Scratch, redis: &Redis, options: WebdisOptions<'_>) -> Result<Webdis, Error> {
        on_free_port(|port| Webdis::start_on(port, scratch, redis, &options))
    }

    fn start_on(port: u16, scratch: &Scratch, redis: &Redis, options: &WebdisOptions<'_>) -> Result<Webdis, Error> {
        let dir = scratch.part("webdis")?;
        let log = dir.join("log");
        let values = configuration(port, redis, &log, options)?;
        let number = |name: &str| values[name].as_u64().unwrap_or(1) as usize;
        let connections = number("threads") * number("pool_size");
        let config = dir.join("webdis.json");
        scratch::write(&config, &values.to_string())?;
        let mut webdis = Webdis {
            process: spawn(&config, &log)?,
            config,
            log,
            port,
            connections,
            operator: redis.operator_client(),
        };
        webdis.wait_ready()?;
        webdis.wait_connected()?;
        Ok(webdis)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until all connections to Redis are logged in, at most 15 s. For use after [`Redis::restart`]: until then
    /// Webdis answers 503, and it tries again every 100 ms.
    ///
    /// # Errors
    /// The time is over, or Webdis has ended; with its log.
    pub fn wait_connected(&mut self) -> Result<(), Error> {
        let (client, wanted) = (self.operator.clone(), self.connections);
        self.process.wait_until("all connections to Redis logged in", || {
            operator(&client).is_ok_and(|mut connection| {
                let clients: Result<String, _> = ::redis::cmd("CLIENT").arg("LIST").query(&mut connection);
                let logged_in = |line: &&str| line.contains(" user=default ") && !line.contains(" cmd=NULL ");
                clients.is_ok_and(|list| list.lines().filter(logged_in).count() >= wanted)
            })
        })
    }

    /// The number of the process, as /proc has it.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL: connections break, and later ones are refused.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGSTOP: connections stay and get no answer, until [`Webdis::cont`].
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// SIGCONT.
    pub fn cont(&mut self) {
        self.process.cont();
    }

    /// Ends the server, if it still runs, and starts it anew on the same port. Redis may be down meanwhile; where it is
    /// not, [`Webdis::wait_connected`] waits for the connections.
    ///
    /// # Errors
    /// As [`Webdis::start`]; also when another process has taken the port meanwhile.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.kill();
        self.process = spawn(&self.config, &self.log)?;
        self.wait_ready()
    }

    /// All that the server has written.
    pub fn log(&self) -> String {
        self.process.log()
    }

    fn wait_ready(&mut self) -> Result<(), Error> {
        let port = self.port;
        self.process.wait_until("a server that answers HTTP", || {
            // `GET /` is no command: 403, and nothing reaches Redis.
            Client::new(port).get("/", &[]).is_ok()
        })
    }
}

/// The users' file, filled in.
fn configuration(port: u16, redis: &Redis, log: &Path, options: &WebdisOptions<'_>) -> Result<Value, Error> {
    let file = "examples/webdis.json";
    let text = render(
        file,
        include_str!("../../../examples/webdis.json"),
        &[
            ("REDIS_PORT", &redis.port().to_string()),
            ("PASSWORD", redis.password()),
            ("PORT", &port.to_string()),
            ("LOG", &scratch::show(log)),
        ],
    )?;
    let mut values: Value = serde_json::from_str(&text).map_err(|e| Error::new(file, e, "JSON"))?;
    if let Some(user_and_password) = options.basic_auth {
        values["acl"][1]["http_basic_auth"] = user_and_password.into();
    }
    Ok(values)
}

fn spawn(config: &Path, log: &Path) -> Result<Process, Error> {
    let mut command = Command::new("webdis");
    command.arg(config);
    Process::spawn("webdis", command, log)
}
