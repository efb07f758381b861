//! A request is counted once, when its headers arrive, whatever Envoy does with it afterwards. With `envoy/patterns.yaml`
//! and `examples/patterns.yaml`, as users get them, in mode exact: each charge is one run of the script.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use weir::algorithm::TOKEN_BUCKET;
use weir_stack::{Client, Envoy, Listeners, Request, Response, with_filter};

use crate::rig::{Options, Rig, of};

/// `envoy/patterns.yaml` with `examples/patterns.yaml` in it.
pub fn patterns() -> String {
    let policy = include_str!("../../examples/patterns.yaml");
    // YAML is not what the module reads; it is written into the file as JSON.
    let policy: serde_json::Value = serde_saphyr::from_str(policy).expect("the example is YAML");
    // The filter stands in the listener, where a test can change it.
    with_filter(include_str!("../../envoy/patterns.yaml")).replace("@POLICY@", &policy.to_string())
}

/// An Envoy with this listener whose Redis knows the script, so that a charge is one run.
pub fn start(listener: &str, options: Options<'_>) -> Rig {
    let rig = Rig::listening(Listeners::File(listener), Options { envoys: 1, bridge: true, ..options });
    let mut operator = rig.redis.operator().unwrap();
    let _: String = redis::cmd("SCRIPT").arg("LOAD").arg(TOKEN_BUCKET.text()).query(&mut operator).unwrap();
    rig
}

fn with_service(listener: &str, upstream_port: u16) -> Rig {
    start(listener, Options { upstream_port: Some(upstream_port), ..Options::default() })
}

fn send(rig: &Rig, request: &Request) -> Response {
    Client::new(rig.envoys[0].port()).send(request).unwrap()
}

/// Asserts that so many requests have been counted, each with a token.
fn assert_charged(rig: &Rig, charges: u64) {
    assert_eq!(rig.redis.script_runs().unwrap(), charges, "runs of the script");
    let rest = send(rig, &of("acme"));
    let left = rest.header("x-ratelimit-remaining").expect("a limit applies");
    assert_eq!(left, (10 - charges - 1).to_string(), "tokens left");
    rig.assert_no_errors_logged();
}

/// A service that the tests write: it gives each request, by its head and its number, an answer, and echoes what comes
/// after an answer with 101. It ends with the process.
pub struct Service {
    pub port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub fn start(answer: fn(&str, usize) -> String) -> Service {
        let (listener, port) = listen();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (mut connection, seen) = (connection.expect("a connection"), seen.clone());
                thread::spawn(move || {
                    let Some(head) = read_until(&mut connection, "\r\n\r\n") else { return };
                    let number = {
                        let mut seen = seen.lock().expect("no service panics");
                        seen.push(head.clone());
                        seen.len()
                    };
                    if head.contains("transfer-encoding: chunked") {
                        read_until(&mut connection, "\r\n0\r\n\r\n");
                    }
                    let answer = answer(&head, number);
                    let _ = connection.write_all(answer.as_bytes());
                    if answer.starts_with("HTTP/1.1 101") {
                        echo(&mut connection);
                    }
                });
            }
        });
        Service { port, heads }
    }

    fn seen(&self) -> Vec<String> {
        self.heads.lock().expect("no service panics").clone()
    }
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

fn echo(connection: &mut TcpStream) {
    let mut bytes = [0; 1024];
    while let Ok(count @ 1..) = connection.read(&mut bytes) {
        let _ = connection.write_all(&bytes[..count]);
    }
}

/// What is read up to this text; nothing where the connection ends before.
fn read_until(connection: &mut TcpStream, end: &str) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        let mut byte = [0];
        connection.read_exact(&mut byte).ok()?;
        read.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&read).to_lowercase())
}

pub fn plain(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: 2\r\n\r\nok")
}

#[test]
fn a_megabyte_of_body_is_counted_once_and_arrives_whole() {
    let rig = start(&patterns(), Options::default());
    let request = Request::new("POST", "/upload").header("x-user-id", "acme").body(vec![b'x'; 1 << 20]);
    let answer = send(&rig, &request);
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("9")));
    assert_eq!(rig.peer.upstream_requests(), 1);
    let sent = rig.envoys[0].stat("cluster.upstream.upstream_cx_tx_bytes_total").unwrap();
    assert!((1 << 20..(1 << 20) + 4096).contains(&sent), "{sent} bytes went to the service");
    assert_charged(&rig, 1);
}

#[test]
fn three_retries_are_one_charge() {
    let service = Service::start(|_, number| match number {
        ..=3 => plain("503 Service Unavailable", ""),
        _ => plain("200 OK", ""),
    });
    let rig = with_service(&patterns(), service.port);
    let answer = send(&rig, &of("acme"));
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("9")));
    assert_eq!(service.seen().len(), 4, "the service was asked again three times");
    assert_charged(&rig, 1);
}

/// A service that sends `/old` on to `/new`.
fn redirecting() -> Service {
    Service::start(|head, _| match head.starts_with("get /old ") {
        true => plain("302 Found", "location: http://localhost/new\r\n"),
        false => plain("200 OK", ""),
    })
}

#[test]
fn an_internal_redirect_is_one_charge_by_its_route() {
    let service = redirecting();
    let rig = with_service(&patterns(), service.port);
    let answer = send(&rig, &Request::get("/old").header("x-user-id", "acme"));
    assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()), "the client does not see the redirect");
    // The filters are made anew for the second pass, and weir, which knows what is left, is not among them.
    assert_eq!(answer.header("x-ratelimit-remaining"), None);
    let seen = service.seen();
    assert!(
        seen[1].starts_with("get /new ") && seen[1].contains("x-envoy-original-url: http://localhost/old"),
        "{seen:?}"
    );
    assert_charged(&rig, 1);
}

#[test]
fn a_client_cannot_take_the_route_of_redirects() {
    let rig = start(&patterns(), Options::default());
    let forged = of("acme").header("x-envoy-original-url", "http://localhost/old");
    assert_eq!(send(&rig, &forged).header("x-ratelimit-remaining"), Some("9"));
    assert_charged(&rig, 1);
}

#[test]
fn an_internal_redirect_without_that_route_is_two_charges() {
    // Envoy makes a new stream of it, with new filters, which have no way to know of the old ones.
    let listener = patterns().replace("name: x-envoy-original-url", "name: x-never-sent");
    let rig = with_service(&listener, redirecting().port);
    let answer = send(&rig, &Request::get("/old").header("x-user-id", "acme"));
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("8")));
    assert_charged(&rig, 2);
}

#[test]
fn an_internal_redirect_to_another_path_is_no_repetition_of_its_request_id() {
    // It has the x-request-id of the first pass, but not its path: a key that pays for one path pays for no other.
    let keep = r#""on_error":"deny","idempotency":{"header":"x-request-id","keep":"10s"}"#;
    let listener = patterns().replace("name: x-envoy-original-url", "name: x-never-sent");
    let listener = listener.replace(r#""on_error":"deny""#, keep);
    assert!(listener.contains("idempotency"));
    let rig = with_service(&listener, redirecting().port);
    let answer = send(&rig, &Request::get("/old").header("x-user-id", "acme"));
    assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()));
    assert_eq!(rig.redis.script_runs().unwrap(), 2, "two charges");
    // Envoy gives each request from outside an id of its own, whatever the client has sent.
    let same = || Request::get("/new").header("x-user-id", "acme").header("x-request-id", "7");
    assert_eq!(send(&rig, &same()).header("x-ratelimit-remaining"), Some("7"));
    assert_eq!(send(&rig, &same()).header("x-ratelimit-remaining"), Some("6"));
    assert_charged(&rig, 4);
}

#[test]
fn a_route_without_weir_is_not_counted() {
    let rig = start(&patterns(), Options::default());
    for _ in 0..12 {
        let answer = send(&rig, &Request::get("/status").header("x-user-id", "acme"));
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None));
    }
    assert_charged(&rig, 0);
}

/// Opens a tunnel, sends through it, and gives the head of the answer.
fn tunnel(rig: &Rig, opening: &Request) -> String {
    let mut connection = Client::connect_raw(rig.envoys[0].port()).unwrap();
    connection.write_all(&opening.encode()).unwrap();
    let head = read_until(&mut connection, "\r\n\r\n").expect("an answer");
    if head.starts_with("http/1.1 101") || head.starts_with("http/1.1 200") {
        for frame in ["one", "two", "three"] {
            connection.write_all(frame.as_bytes()).unwrap();
            assert_eq!(read_until(&mut connection, frame).as_deref(), Some(frame), "it is echoed");
        }
    }
    head
}

#[test]
fn a_websocket_is_counted_when_it_is_opened() {
    let service = Service::start(|head, _| match head.contains("upgrade: websocket") {
        true => "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n".to_owned(),
        false => plain("200 OK", ""),
    });
    let rig = with_service(&patterns(), service.port);
    let opening = Request::get("/chat")
        .header("x-user-id", "acme")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let head = tunnel(&rig, &opening);
    assert!(head.starts_with("http/1.1 101") && head.contains("x-ratelimit-remaining: 9"), "{head}");
    assert_charged(&rig, 1);
    // And one that is limited is not opened.
    for _ in 0..8 {
        assert_eq!(send(&rig, &of("acme")).status, 200);
    }
    let head = tunnel(&rig, &opening);
    assert!(head.starts_with("http/1.1 429") && head.contains("retry-after: "), "{head}");
    rig.assert_no_errors_logged();
}

#[test]
fn a_connect_is_counted_when_it_is_opened() {
    let (listener, port) = listen();
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::spawn(|| echo(&mut connection.expect("a connection")));
        }
    });
    let rig = with_service(&patterns(), port);
    let opening =
        Request::new("CONNECT", "example.com:443").header("host", "example.com:443").header("x-user-id", "acme");
    for left in (0..10).rev() {
        let head = tunnel(&rig, &opening);
        assert!(
            head.starts_with("http/1.1 200") && head.contains(&format!("x-ratelimit-remaining: {left}\r")),
            "{head}"
        );
    }
    assert_eq!(rig.redis.script_runs().unwrap(), 10);
    let head = tunnel(&rig, &opening);
    assert!(head.starts_with("http/1.1 429"), "{head}");
    rig.assert_no_errors_logged();
}

#[test]
fn a_stream_of_grpc_is_counted_when_it_is_opened() {
    let service = Service::start(|_, _| plain("200 OK", "content-type: application/grpc\r\ngrpc-status: 0\r\n"));
    let rig = with_service(&patterns(), service.port);
    let front = rig.over_http2();
    let mut connection = Client::connect_raw(front.over_http2_port(0)).unwrap();
    let head = Request::new("POST", "/pkg.Service/Stream")
        .header("x-user-id", "acme")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("transfer-encoding", "chunked");
    connection.write_all(&head.encode()).unwrap();
    let message = |connection: &mut TcpStream| {
        // A message of three bytes in one chunk.
        connection.write_all(b"8\r\n\0\0\0\0\x03abc\r\n").unwrap();
        thread::sleep(Duration::from_millis(20));
    };
    message(&mut connection);
    let arrives = |envoy: &Envoy| envoy.wait_for(Duration::from_secs(5), |_| service.seen().len() == 1);
    assert!(arrives(&rig.envoys[0]), "the service has the stream while it is open");
    assert_eq!(rig.redis.script_runs().unwrap(), 1);
    for _ in 0..20 {
        message(&mut connection);
    }
    connection.write_all(b"0\r\n\r\n").unwrap();
    let answer = read_until(&mut connection, "\r\n\r\n").expect("an answer");
    assert!(answer.starts_with("http/1.1 200") && answer.contains("grpc-status: 0"), "{answer}");
    assert!(answer.contains("x-ratelimit-remaining: 9"), "{answer}");
    assert_eq!(rig.envoys[0].stat("http.ingress.downstream_cx_http2_total"), Some(1), "it was HTTP/2");
    assert_charged(&rig, 1);
}
