//! A Redis server with the access rules of `lua/users.acl`.
//!
//! An ACL file takes no comments, so what it says is explained here. The limiter logs in as `default`, because Webdis 0.1.9
//! can send a password but no user name. That user may run scripts (EVAL, EVALSHA), and the scripts may call GET, SET and
//! TIME, all on keys of one namespace; AUTH needs no rule, since Redis lets everybody try it. Everything else is for
//! `operator`, who is never given to a proxy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::port::on_free_port;
use crate::process::Process;
use crate::render::render;
use crate::{Error, Scratch, scratch};

/// How long an operator's command may take, also against a stopped server.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(2);

pub struct RedisOptions<'a> {
    /// The first part of every key that the limiter may touch.
    pub namespace: &'a str,
    /// Whether writes are kept over [`Redis::kill`] and [`Redis::restart`].
    pub appendonly: bool,
    /// With `appendonly`: each write is on disk before it is answered. Otherwise a write of the last second or two may
    /// be lost.
    pub fsync_always: bool,
    /// More lines of its configuration, such as those of a cluster or of TLS.
    pub lines: &'a str,
}

impl Default for RedisOptions<'_> {
    /// Namespace `rl`, nothing kept.
    fn default() -> Self {
        RedisOptions { namespace: "rl", appendonly: false, fsync_always: false, lines: "" }
    }
}

/// A Redis server. It belongs to the thread that started it.
pub struct Redis {
    process: Process,
    config: PathBuf,
    log: PathBuf,
    port: u16,
    password: String,
    operator_password: String,
    operator: ::redis::Client,
}

impl Redis {
    /// Starts a server and waits until it serves commands.
    ///
    /// # Errors
    /// It does not start or is not ready within 15 s; with its log.
    pub fn start(scratch: &Scratch, options: RedisOptions<'_>) -> Result<Redis, Error> {
        on_free_port(|port| Redis::start_on(port, scratch, &options))
    }

    fn start_on(port: u16, scratch: &Scratch, options: &RedisOptions<'_>) -> Result<Redis, Error> {
        let dir = scratch.part("redis")?;
        let (password, operator_password) = (password()?, password()?);
        let users = render(
            "lua/users.acl",
            include_str!("../../../lua/users.acl"),
            &[("NAMESPACE", options.namespace), ("PASSWORD", &password), ("OPERATOR_PASSWORD", &operator_password)],
        )?;
        let users_file = dir.join("users.acl");
        scratch::write(&users_file, &users)?;
        let config = dir.join("redis.conf");
        let appendonly = if options.appendonly { "yes" } else { "no" };
        let fsync = if options.fsync_always { "always" } else { "everysec" };
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {dir}\naclfile {users}\nsave \"\"\nappendonly {appendonly}\nappendfsync {fsync}\n\
             daemonize no\n{lines}\n",
            lines = options.lines,
            dir = dir.display(),
            users = users_file.display(),
        );
        scratch::write(&config, &text)?;
        let url = format!("redis://operator:{operator_password}@127.0.0.1:{port}");
        let operator = ::redis::Client::open(url).map_err(|e| Error::new("redis", e, "an address of the server"))?;
        let log = dir.join("log");
        let mut redis =
            Redis { process: spawn(&config, &log)?, config, log, port, password, operator_password, operator };
        redis.wait_ready()?;
        Ok(redis)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The password of the user `default`, which Webdis sends.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The password of the user `operator`, for replicas and sentinels.
    pub fn operator_password(&self) -> &str {
        &self.operator_password
    }

    /// Has the operator say something, and gives the answer.
    ///
    /// # Errors
    /// The server does not answer, or with an error.
    pub fn say<T: ::redis::FromRedisValue>(&self, command: &[&str]) -> Result<T, Error> {
        self.ask(command)
    }

    /// A new connection as `operator`, who may do everything. Each of its commands times out after 2 s.
    ///
    /// # Errors
    /// The server is down, stopped or loading.
    pub fn operator(&self) -> Result<::redis::Connection, Error> {
        operator(&self.operator)
    }

    pub(crate) fn operator_client(&self) -> ::redis::Client {
        self.operator.clone()
    }

    /// What Redis TIME says, in milliseconds since 1970.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn time_ms(&self) -> Result<u64, Error> {
        let (seconds, micros): (u64, u64) = self.ask(&["TIME"])?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// How many EVAL and EVALSHA have arrived since the server was started or restarted: executed, failed (an unknown
    /// script) and refused ones, whoever sent them.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn script_runs(&self) -> Result<u64, Error> {
        let info: String = self.ask(&["INFO", "commandstats"])?;
        // cmdstat_eval:calls=4,usec=220,usec_per_call=55.00,rejected_calls=1,failed_calls=1; failed ones are in calls.
        let count = |line: &str| -> u64 {
            line.split(',')
                .filter_map(|field| field.split_once('='))
                .filter(|(name, _)| matches!(*name, "calls" | "rejected_calls"))
                .filter_map(|(_, number)| number.trim().parse::<u64>().ok())
                .sum()
        };
        Ok(info
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_"))
            .filter_map(|line| line.split_once(':'))
            .filter(|(command, _)| matches!(*command, "eval" | "evalsha"))
            .map(|(_, fields)| count(fields))
            .sum())
    }

    fn ask<T: ::redis::FromRedisValue>(&self, command: &[&str]) -> Result<T, Error> {
        let mut cmd = ::redis::Cmd::new();
        for word in command {
            cmd.arg(*word);
        }
        cmd.query(&mut self.operator()?).map_err(|e| Error::new(format!("redis {}", command.join(" ")), e, "its reply"))
    }

    /// The number of the process, as /proc has it.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL: connections break, and later ones are refused.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGSTOP: connections stay and get no answer, until [`Redis::cont`].
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// SIGCONT.
    pub fn cont(&mut self) {
        self.process.cont();
    }

    /// Ends the server, if it still runs, and starts it anew with the same port and passwords: empty, unless
    /// `appendonly` was set, and always without the scripts that it knew.
    ///
    /// # Errors
    /// As [`Redis::start`]; also when another process has taken the port meanwhile.
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
        let client = self.operator.clone();
        self.process.wait_until("a server that answers PING", || {
            // While it loads its file Redis answers LOADING, which is an error here.
            operator(&client).is_ok_and(|mut connection| ::redis::cmd("PING").exec(&mut connection).is_ok())
        })
    }
}

/// A sentinel that watches one Redis, as the master `main`. It belongs to the thread that started it.
pub struct Sentinel {
    process: Process,
    port: u16,
}

impl Sentinel {
    /// Starts one that alone decides that the master is down, after a second. It asks for no password.
    ///
    /// # Errors
    /// It does not start or is not ready within 15 s; with its log.
    pub fn start(scratch: &Scratch, master: &Redis) -> Result<Sentinel, Error> {
        on_free_port(|port| {
            let dir = scratch.part("sentinel")?;
            let config = dir.join("sentinel.conf");
            let text = format!(
                "bind 127.0.0.1\nport {port}\ndir {dir}\ndaemonize no\nsentinel monitor main 127.0.0.1 {master_port} 1\n\
                 sentinel auth-user main operator\nsentinel auth-pass main {password}\n\
                 sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n",
                dir = dir.display(),
                master_port = master.port,
                password = master.operator_password,
            );
            scratch::write(&config, &text)?;
            let mut command = Command::new("redis-server");
            command.arg(&config).arg("--sentinel");
            let mut sentinel = Sentinel { process: Process::spawn("sentinel", command, &dir.join("log"))?, port };
            let client = ::redis::Client::open(format!("redis://127.0.0.1:{port}"));
            let client = client.map_err(|e| Error::new("sentinel", e, "an address of the server"))?;
            sentinel.process.wait_until("a sentinel that answers PING", || {
                operator(&client).is_ok_and(|mut connection| ::redis::cmd("PING").exec(&mut connection).is_ok())
            })?;
            Ok(sentinel)
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

fn spawn(config: &Path, log: &Path) -> Result<Process, Error> {
    let mut command = Command::new("redis-server");
    command.arg(config);
    Process::spawn("redis", command, log)
}

pub(crate) fn operator(client: &::redis::Client) -> Result<::redis::Connection, Error> {
    let connect = || {
        let connection = client.get_connection_with_timeout(OPERATOR_TIMEOUT)?;
        connection.set_read_timeout(Some(OPERATOR_TIMEOUT))?;
        connection.set_write_timeout(Some(OPERATOR_TIMEOUT))?;
        Ok(connection)
    };
    connect().map_err(|e: ::redis::RedisError| Error::new("redis", e, "a connection as the user operator"))
}

/// 128 random bits in hex.
fn password() -> Result<String, Error> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| Error::new("/dev/urandom", e, "16 random bytes"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
