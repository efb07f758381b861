//! The words of the command line, and what they come to.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use weir::policy::language::NAME;

use super::redis::{Access, Address, Place, Secret, TlsFiles};
use super::tls;
use crate::{Stop, input};

const SECRET: &str = "WEIR_BRIDGE_SECRET";
const REDIS_PASSWORD: &str = "WEIR_REDIS_PASSWORD";
const SENTINEL_PASSWORD: &str = "WEIR_SENTINEL_PASSWORD";

const AFTER: &str = "\
Proxies reach it by `transport: bridge` in the policy. Secrets come from files or from the environment, never from the \
command line: WEIR_BRIDGE_SECRET (callers send it as Authorization: Bearer SECRET; here Bearer may stand in front, as it has to \
in the variable that auth_env names in the proxy), WEIR_REDIS_PASSWORD, WEIR_SENTINEL_PASSWORD.

Redis's user needs no more than: -@all +eval +evalsha +get +set +time ~NAMESPACE:*, and in a cluster +cluster|slots \
+asking.

It answers GET /healthz (it runs), /readyz (it has Redis, and is not ending) and /metrics. SIGTERM and SIGINT end it: it \
takes no more connections, and finishes calls for 10 s at most.

Exit code: 0 it was told to end, 2 wrong usage, or it cannot start.";

/// Run the bridge between proxies and Redis: it runs weir's scripts, and nothing else
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Options {
    /// Where it listens, for HTTP/1.1 and HTTP/2
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7390")]
    listen: SocketAddr,

    /// Where it listens for /healthz, /readyz and /metrics alone, without a secret and without TLS
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<SocketAddr>,

    /// A namespace of policies whose keys may be touched; may be given several times
    #[arg(long = "namespace", value_name = "NAME", default_value = "rl")]
    namespaces: Vec<String>,

    /// Where Redis is, such as redis://10.0.0.1:6379 or rediss://redis.internal:6380 for TLS, with /N for database N; with
    /// --cluster some of its nodes, with --sentinel the sentinels
    #[arg(long = "redis", value_name = "URL", default_value = "redis://127.0.0.1:6379")]
    redis: Vec<String>,

    /// Redis is a cluster
    #[arg(long, conflicts_with = "sentinel")]
    cluster: bool,

    /// Sentinels know which Redis is the master of this name
    #[arg(long, value_name = "MASTER")]
    sentinel: Option<String>,

    /// User of Redis
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// A file with the password of Redis's user, in place of WEIR_REDIS_PASSWORD
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    password_file: Option<String>,

    /// User of the sentinels
    #[arg(long, value_name = "NAME", requires = "sentinel")]
    sentinel_user: Option<String>,

    /// A file with the password of the sentinels' user, in place of WEIR_SENTINEL_PASSWORD
    #[arg(long, value_name = "FILE", requires = "sentinel", value_hint = clap::ValueHint::FilePath)]
    sentinel_password_file: Option<String>,

    /// Speak RESP3 to Redis
    #[arg(long)]
    resp3: bool,

    /// Certificates, in PEM, of who may vouch for Redis, in place of the system's
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    redis_ca: Option<String>,

    /// The certificate, in PEM, that is shown to Redis
    #[arg(long, value_name = "FILE", requires = "redis_key", value_hint = clap::ValueHint::FilePath)]
    redis_cert: Option<String>,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "redis_cert", value_hint = clap::ValueHint::FilePath)]
    redis_key: Option<String>,

    /// A file with the secret that callers send, in place of WEIR_BRIDGE_SECRET
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    secret_file: Option<String>,

    /// The certificate, in PEM, that is shown to callers: they then have to speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    tls_cert: Option<String>,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<String>,

    /// Certificates, in PEM, of who may vouch for callers: each then has to show one of its own
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    client_ca: Option<String>,

    /// Listen on an address that is not loopback although anybody may call
    #[arg(long)]
    allow_anyone: bool,

    /// How many parts of calls may wait for Redis; beyond that callers get 503 at once
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_waiting: u32,

    /// How many connections of callers may be open; beyond that they are closed at once
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
}

/// What the command line comes to.
pub struct Settings {
    pub listen: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub namespaces: Vec<String>,
    pub place: Place,
    pub access: Access,
    /// How the sentinels are asked.
    pub sentinels: Access,
    pub secret: Option<Secret>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    pub max_waiting: usize,
    pub max_connections: usize,
}

impl Options {
    pub fn settings(&self) -> Result<Settings, Stop> {
        for namespace in &self.namespaces {
            if !NAME.holds(namespace) {
                return Err(Stop(format!("--namespace: {namespace:?} {}; write {}", NAME.wrong, NAME.wanted)));
            }
        }
        let bearer = |secret: Secret| Secret(secret.0.strip_prefix("Bearer ").map(str::to_owned).unwrap_or(secret.0));
        let secret = secret(SECRET, "--secret-file", self.secret_file.as_deref())?.map(bearer);
        let is_open = secret.is_none() && self.client_ca.is_none();
        if is_open && !self.listen.ip().is_loopback() && !self.allow_anyone {
            return Err(Stop(format!(
                "--listen: {} is not a loopback address, and anybody who reaches it could spend every tenant's tokens; \
                 set {SECRET} or --secret-file, or --client-ca with --tls-cert and --tls-key, or say --allow-anyone",
                self.listen
            )));
        }
        let (addresses, is_tls, database) = self.addresses()?;
        let place = match (&self.sentinel, addresses.as_slice()) {
            (Some(master), _) => Place::Sentinels { addresses, master: master.clone() },
            (None, _) if self.cluster => Place::Cluster(addresses),
            (None, [only]) => Place::One(only.clone()),
            (None, _) => {
                return Err(Stop("--redis: stands several times; say --cluster or --sentinel MASTER, too".to_owned()));
            }
        };
        if database != 0 && self.cluster {
            return Err(Stop("--redis: a cluster has one database alone; leave /N out".to_owned()));
        }
        let access = self.access(is_tls, database)?;
        let sentinels = Access {
            user: self.sentinel_user.clone(),
            password: secret_of_sentinels(self)?,
            database: 0,
            ..access.clone()
        };
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(tls::server(cert, key, self.client_ca.as_deref())?),
            _ => None,
        };
        let many = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Settings {
            listen: self.listen,
            admin: self.admin,
            namespaces: self.namespaces.clone(),
            place,
            access,
            sentinels,
            secret,
            tls,
            max_waiting: many(self.max_waiting),
            max_connections: many(self.max_connections),
        })
    }

    fn access(&self, is_tls: bool, database: i64) -> Result<Access, Stop> {
        let password = secret(REDIS_PASSWORD, "--password-file", self.password_file.as_deref())?;
        if self.user.is_some() && password.is_none() {
            return Err(Stop(format!("--user: has no password; set {REDIS_PASSWORD} or --password-file")));
        }
        let files = [("--redis-ca", &self.redis_ca), ("--redis-cert", &self.redis_cert)];
        if let (false, Some((word, _))) = (is_tls, files.into_iter().find(|(_, file)| file.is_some())) {
            return Err(Stop(format!("{word}: is for TLS; write --redis rediss://HOST:PORT")));
        }
        let tls = is_tls.then(|| TlsFiles {
            ca: self.redis_ca.clone(),
            certificate: self.redis_cert.clone().zip(self.redis_key.clone()),
        });
        let access = Access { user: self.user.clone(), password, tls, database, resp3: self.resp3 };
        // Now, rather than in a log that nobody reads.
        access.check()?;
        Ok(access)
    }

    /// Where Redis or its sentinels are, whether by TLS, and the database.
    fn addresses(&self) -> Result<(Vec<Address>, bool, i64), Stop> {
        let mut all: Vec<(Address, bool, i64)> = Vec::new();
        for url in &self.redis {
            all.push(address(url)?);
        }
        let alike = |(_, tls, database): &(Address, bool, i64)| (*tls, *database);
        let Some((is_tls, database)) = all.first().map(alike) else {
            return Err(Stop("--redis: write where Redis is, such as redis://127.0.0.1:6379".to_owned()));
        };
        if all.iter().any(|one| alike(one) != (is_tls, database)) {
            return Err(Stop("--redis: all of them are redis:// or all rediss://, with one database".to_owned()));
        }
        Ok((all.into_iter().map(|(address, ..)| address).collect(), is_tls, database))
    }
}

fn secret_of_sentinels(options: &Options) -> Result<Option<Secret>, Stop> {
    match options.sentinel {
        Some(_) => secret(SENTINEL_PASSWORD, "--sentinel-password-file", options.sentinel_password_file.as_deref()),
        None => Ok(None),
    }
}

/// `redis://HOST:PORT/N`, or `rediss`.
fn address(url: &str) -> Result<(Address, bool, i64), Stop> {
    const SUCH_AS: &str = "write one such as redis://127.0.0.1:6379, or rediss:// for TLS";
    if url.contains('@') || url.contains('?') {
        // It may hold a password.
        return Err(Stop(format!(
            "--redis: a URL holds a user or options; write --user and {REDIS_PASSWORD} or --password-file instead"
        )));
    }
    let no = || Stop(format!("--redis: {url:?} is no URL of Redis; {SUCH_AS}"));
    let (scheme, rest) = url.split_once("://").ok_or_else(no)?;
    let is_tls = match scheme {
        "redis" => false,
        "rediss" => true,
        _ => return Err(no()),
    };
    let (place, database) = match rest.split_once('/') {
        None | Some((_, "")) => (rest.trim_end_matches('/'), 0),
        Some((place, number)) => {
            (place, number.parse().ok().filter(|number| (0..=1_000_000).contains(number)).ok_or_else(no)?)
        }
    };
    let address = Address::read(place).or_else(|| Address::read(&format!("{place}:6379"))).ok_or_else(no)?;
    Ok((address, is_tls, database))
}

/// A secret of a file or of the environment; none where neither is named.
fn secret(variable: &str, word: &str, file: Option<&str>) -> Result<Option<Secret>, Stop> {
    let (place, text) = match file {
        Some(file) => (format!("{word}: {file}"), input::file(file)?),
        None => match std::env::var(variable) {
            Ok(text) => (variable.to_owned(), text),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(_) => return Err(Stop(format!("{variable}: is no text; write one line of printable ASCII"))),
        },
    };
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || !secret.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(Stop(format!("{place}: holds no secret; write one line of printable ASCII")));
    }
    Ok(Some(Secret(secret.to_owned())))
}
