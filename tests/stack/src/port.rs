//! Free ports on 127.0.0.1.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use crate::Error;

/// How often a server is started on another port because a neighbour was faster.
const TRIES: u32 = 5;

/// Starts something on a free port, and on another one if that was taken in between.
pub(crate) fn on_free_port<T>(mut start: impl FnMut(u16) -> Result<T, Error>) -> Result<T, Error> {
    let mut tried = 0;
    loop {
        tried += 1;
        match start(free_port()?) {
            Err(e) if e.is_address_in_use() && tried < TRIES => {}
            result => return result,
        }
    }
}

/// A port that was free a moment ago.
///
/// # Errors
/// None is.
pub fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| Error::new("127.0.0.1", e, "a free port"))
}

/// A port that is ours as long as this value lives: bound, but never listening.
///
/// Envoy listens with SO_REUSEPORT, so it can share the port with this socket, while nobody else is given it. Without
/// the reservation two Envoys of two tests could share one port in silence, each getting some of the other's requests.
pub(crate) struct ReservedPort {
    socket: Socket,
}

impl ReservedPort {
    pub(crate) fn new() -> Result<ReservedPort, Error> {
        let reserve = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_port(true)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            Ok(socket)
        };
        reserve()
            .map(|socket| ReservedPort { socket })
            .map_err(|e: std::io::Error| Error::new("127.0.0.1", e, "a free port"))
    }

    pub(crate) fn number(&self) -> u16 {
        let address = self.socket.local_addr().ok().and_then(|a| a.as_socket());
        address.expect("a bound IPv4 socket has an address").port()
    }
}
