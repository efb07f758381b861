//! A small HTTP/1.1 client for one keep-alive connection to a port of 127.0.0.1.
//!
//! It sends what it is told, byte by byte (odd request targets, header values that are no UTF-8, a header twice), takes any
//! status as an answer, and never sends a request twice.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::Error;

/// How long connecting, sending, and each wait for bytes may take.
const TIMEOUT: Duration = Duration::from_secs(20);
const MAX_HEADERS: usize = 100;

/// One request, sent as it stands.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// The request target: `/path?query`, or anything else that shall be sent in its place.
    pub path: Vec<u8>,
    /// In order. `host` and `content-length` are added where they are missing.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: impl Into<Vec<u8>>) -> Request {
        Request { method: method.to_owned(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn get(path: impl Into<Vec<u8>>) -> Request {
        Request::new("GET", path)
    }

    /// Adds a header; one of the same name stays.
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Request {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    /// The bytes of the request, for a connection of [`Client::connect_raw`].
    pub fn encode(&self) -> Vec<u8> {
        let has = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut bytes = Vec::new();
        bytes.extend_from_slice(self.method.as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(&self.path);
        bytes.extend_from_slice(b" HTTP/1.1\r\n");
        if !has("host") {
            bytes.extend_from_slice(b"host: localhost\r\n");
        }
        let has_length = has("content-length") || has("transfer-encoding");
        if !has_length && (!self.body.is_empty() || self.method == "POST") {
            bytes.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// The answer to a request, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// In order, names in lower case. Bytes that are not UTF-8 are shown as U+FFFD.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The first value of a header; its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(n, _)| n == name)?;
        Some(value)
    }

    /// The body; bytes that are not UTF-8 are shown as U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One connection, opened with the first request and kept. Where the server has closed it between two requests, the
/// second one opens another.
pub struct Client {
    port: u16,
    source: Option<Ipv4Addr>,
    preamble: Vec<u8>,
    connection: Option<TcpStream>,
}

impl Client {
    pub fn new(port: u16) -> Client {
        Client { port, source: None, preamble: Vec::new(), connection: None }
    }

    /// The same with an address of its own, one of 127.0.0.0/8.
    pub fn from_address(self, source: Ipv4Addr) -> Client {
        Client { source: Some(source), ..self }
    }

    /// The same with bytes that each connection starts with, such as a header of the PROXY protocol.
    pub fn with_preamble(self, preamble: impl Into<Vec<u8>>) -> Client {
        Client { preamble: preamble.into(), ..self }
    }

    /// A bare connection, for a client that leaves before its answer.
    ///
    /// # Errors
    /// Nobody listens, or not within 20 s.
    pub fn connect_raw(port: u16) -> Result<TcpStream, Error> {
        Client::new(port).connect()
    }

    fn connect(&self) -> Result<TcpStream, Error> {
        let connect = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            if let Some(source) = self.source {
                socket.bind(&SocketAddr::from((source, 0)).into())?;
            }
            socket.connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)).into(), TIMEOUT)?;
            let mut connection = TcpStream::from(socket);
            connection.set_read_timeout(Some(TIMEOUT))?;
            connection.set_write_timeout(Some(TIMEOUT))?;
            connection.set_nodelay(true)?;
            connection.write_all(&self.preamble)?;
            Ok(connection)
        };
        connect().map_err(|e: std::io::Error| broken(self.port, e, "a connection"))
    }

    /// # Errors
    /// As [`Client::send`].
    pub fn get(&mut self, path: &str, headers: &[(&str, &[u8])]) -> Result<Response, Error> {
        self.request("GET", path, headers, b"")
    }

    /// # Errors
    /// As [`Client::send`].
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<Response, Error> {
        let request = Request::new(method, path).body(body);
        let with_header = |request: Request, (name, value): &(&str, &[u8])| request.header(name, *value);
        self.send(&headers.iter().fold(request, with_header))
    }

    /// Sends the request, once, and waits for the whole answer.
    ///
    /// # Errors
    /// No connection, one that breaks before the end of the answer, 20 s without a byte, or bytes that are not HTTP.
    pub fn send(&mut self, request: &Request) -> Result<Response, Error> {
        // Closed unless this request leaves it at a clean end.
        let mut connection = match self.connection.take().filter(is_open) {
            Some(connection) => connection,
            None => self.connect()?,
        };
        connection.write_all(&request.encode()).map_err(|e| broken(self.port, e, "a request sent"))?;
        let mut reading = Reading { port: self.port, connection: &mut connection, bytes: Vec::new() };
        let (response, keep) = reading.response(&request.method)?;
        if keep && reading.bytes.is_empty() {
            self.connection = Some(connection);
        }
        Ok(response)
    }
}

/// Whether the server has neither closed an idle connection nor sent something unasked.
fn is_open(connection: &TcpStream) -> bool {
    let peek = || {
        connection.set_nonblocking(true)?;
        let seen = connection.peek(&mut [0]);
        connection.set_nonblocking(false)?;
        seen
    };
    peek().is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
}

fn broken(port: u16, found: impl std::fmt::Display, wanted: &str) -> Error {
    Error::new(format!("http://127.0.0.1:{port}"), found, wanted)
}

/// An answer on its way: the connection, and the bytes that have come and are not used yet.
struct Reading<'a> {
    port: u16,
    connection: &'a mut TcpStream,
    bytes: Vec<u8>,
}

/// How the end of a body is known.
enum Length {
    Bytes(usize),
    Chunks,
    UntilClosed,
}

impl Reading<'_> {
    /// The next final answer, and whether the connection can serve another request.
    fn response(&mut self, method: &str) -> Result<(Response, bool), Error> {
        let (status, headers) = loop {
            let (status, headers) = self.head()?;
            if status >= 200 {
                break (status, headers);
            }
        };
        let mut response = Response { status, headers, body: Vec::new() };
        let length = self.length(method, &response)?;
        let mut keep = !response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        response.body = match length {
            Length::Bytes(count) => self.take(count)?,
            Length::Chunks => self.chunks()?,
            Length::UntilClosed => {
                keep = false;
                while self.more()? > 0 {}
                std::mem::take(&mut self.bytes)
            }
        };
        Ok((response, keep))
    }

    fn head(&mut self) -> Result<(u16, Vec<(String, String)>), Error> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut head = httparse::Response::new(&mut headers);
            let parsed = head.parse(&self.bytes).map_err(|e| broken(self.port, e, "the head of an HTTP answer"))?;
            if let httparse::Status::Complete(end) = parsed {
                let status = head.code.unwrap_or_default();
                let lossy = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                let headers = head.headers.iter().map(|h| (h.name.to_ascii_lowercase(), lossy(h.value))).collect();
                self.bytes.drain(..end);
                return Ok((status, headers));
            }
            self.need_more("the head of an answer")?;
        }
    }

    fn length(&self, method: &str, response: &Response) -> Result<Length, Error> {
        if method == "HEAD" || matches!(response.status, 204 | 304) {
            return Ok(Length::Bytes(0));
        }
        if response.header("transfer-encoding").is_some() {
            return Ok(Length::Chunks);
        }
        match response.header("content-length") {
            None => Ok(Length::UntilClosed),
            Some(text) => text
                .parse()
                .map(Length::Bytes)
                .map_err(|_| broken(self.port, format!("content-length {text:?}"), "a number of bytes")),
        }
    }

    fn chunks(&mut self) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        loop {
            let parsed = httparse::parse_chunk_size(&self.bytes)
                .map_err(|_| broken(self.port, "bad bytes", "the size of a chunk"))?;
            let httparse::Status::Complete((end, size)) = parsed else {
                self.need_more("a chunk")?;
                continue;
            };
            self.bytes.drain(..end);
            body.extend(self.take(size as usize)?);
            // After the last chunk there could be trailers; no server here sends any.
            if self.take(2)? != b"\r\n" {
                return Err(broken(self.port, "other bytes", "the end of a chunk"));
            }
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, Error> {
        while self.bytes.len() < count {
            self.need_more("the rest of a body")?;
        }
        let rest = self.bytes.split_off(count);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }

    fn need_more(&mut self, wanted: &str) -> Result<(), Error> {
        match self.more()? {
            0 => Err(broken(self.port, "the connection was closed", wanted)),
            _ => Ok(()),
        }
    }

    /// Waits for bytes; none means that the connection was closed.
    fn more(&mut self) -> Result<usize, Error> {
        let mut buffer = [0; 16 * 1024];
        let count = self.connection.read(&mut buffer).map_err(|e| broken(self.port, e, "an answer"))?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}
