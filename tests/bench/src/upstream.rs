//! The service behind the proxies: two bytes for everything. It is part of the bench, so its time is not counted.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::Result;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";

/// Serves until the bench ends, on the port that it gives.
pub fn start() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || serve(connection));
        }
    });
    Ok(port)
}

/// Envoy has one request at a time on a connection, and those of a bench have no body.
fn serve(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let length = connection.read(&mut part)?;
        if length == 0 {
            return Ok(());
        }
        request.extend_from_slice(&part[..length]);
        if request.ends_with(b"\r\n\r\n") {
            connection.write_all(ANSWER)?;
            request.clear();
        }
    }
}
