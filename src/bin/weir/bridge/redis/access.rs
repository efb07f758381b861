//! How a connection to Redis is made: user, password, TLS, protocol.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, TlsCertificates, Value,
};
use weir::limiter::Failure;

use super::reply;
use crate::Stop;

/// How long making a connection may take, with all that is said first.
const CONNECT: Duration = Duration::from_secs(1);

/// A secret that must not be printed.
#[derive(Clone)]
pub struct Secret(pub String);

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// How Redis is entered.
#[derive(Clone)]
pub struct Access {
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub tls: Option<TlsFiles>,
    pub database: i64,
    pub resp3: bool,
}

/// Files in PEM. They are read anew for each connection, so that they can be renewed.
#[derive(Clone)]
pub struct TlsFiles {
    pub ca: Option<String>,
    /// The certificate, and its key.
    pub certificate: Option<(String, String)>,
}

/// Why there is no connection, for the log and for callers.
pub struct NoConnection {
    pub reason: Failure,
    pub text: String,
}

impl Address {
    /// `HOST:PORT`, or `[HOST]:PORT`.
    pub fn read(text: &str) -> Option<Address> {
        let (host, port) = text.rsplit_once(':')?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = inner.is_some() || !host.contains(':');
        let host = inner.unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (is_host && !host.is_empty()).then(|| Address { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Access {
    /// Whether what it names is there.
    pub fn check(&self) -> Result<(), Stop> {
        let nowhere = Address { host: "localhost".to_owned(), port: 1 };
        self.client(&nowhere).map(|_| ()).map_err(|no| Stop(format!("--redis: TLS cannot be spoken: {}", no.text)))
    }

    /// Makes a connection.
    pub async fn connect(&self, address: &Address) -> Result<MultiplexedConnection, NoConnection> {
        let client = self.client(address)?;
        // Every command has a deadline of its own. The buffer holds what is not written yet.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let make = async {
            let made = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut connection = made.map_err(|error| told(&error))?;
            // Redis hangs up on whoever says anything long without having logged in, and then does not say why.
            match connection.send_packed_command(&redis::cmd("PING")).await {
                Ok(Value::ServerError(error)) if reply::failure(error.code()) == Failure::NoAuth => Err(refused()),
                Err(error) if error.code().map(reply::failure) == Some(Failure::NoAuth) => Err(refused()),
                _ => Ok(connection),
            }
        };
        // The library's own time is that of a part of the way.
        let made = tokio::time::timeout(CONNECT, make).await;
        made.unwrap_or_else(|_| Err(no("it does not answer", Failure::RedisDown)))
    }

    fn client(&self, address: &Address) -> Result<Client, NoConnection> {
        let (host, port) = (address.host.clone(), address.port);
        let addr = match self.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        let protocol = if self.resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        // What the library is called is none of Redis's business, and its user may not say it.
        let mut user =
            RedisConnectionInfo::default().set_db(self.database).set_protocol(protocol).set_skip_set_lib_name();
        if let Some(name) = &self.user {
            user = user.set_username(name);
        }
        if let Some(password) = &self.password {
            user = user.set_password(&password.0);
        }
        let info: ConnectionInfo = addr.into_connection_info().map_err(|error| told(&error))?.set_redis_settings(user);
        let client = match &self.tls {
            None => Client::open(info),
            Some(files) => Client::build_with_tls(info, files.read()?),
        };
        client.map_err(|error| told(&error))
    }
}

impl TlsFiles {
    fn read(&self) -> Result<TlsCertificates, NoConnection> {
        let read =
            |file: &String| std::fs::read(file).map_err(|error| no(format!("{file}: {error}"), Failure::RedisDown));
        let client_tls = match &self.certificate {
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            None => None,
        };
        Ok(TlsCertificates { client_tls, root_cert: self.ca.as_ref().map(read).transpose()? })
    }
}

fn no(text: impl Into<String>, reason: Failure) -> NoConnection {
    NoConnection { reason, text: text.into() }
}

/// An error in words that hold no secret.
fn told(error: &RedisError) -> NoConnection {
    let reason = match error.kind() {
        ErrorKind::AuthenticationFailed => Failure::NoAuth,
        _ => error.code().map_or(Failure::RedisDown, reply::failure),
    };
    match reason {
        Failure::NoAuth => refused(),
        _ => no(error.to_string(), reason),
    }
}

/// What Redis said of an attempt to log in stays between the two.
fn refused() -> NoConnection {
    no("it refuses the user or the password, or wants some", Failure::NoAuth)
}
