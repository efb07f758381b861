//! What callers may ask over HTTP, and what they get: calls, and how the bridge is.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use weir::limiter::Failure;
use weir::limiter::redis::bridge::{Answer, Call, MAX_CALL, PATH, reply};

use super::redis::Secret;
use super::{Bridge, parts};

/// How long the bytes of a call may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many bytes of calls may be held at once: a thousand of the longest.
const MOST_BYTES: usize = 64 << 20;

pub type Answered = Response<Full<Bytes>>;

/// Who may call, and how much.
pub struct Gate {
    pub bridge: Bridge,
    pub secret: Option<Secret>,
    /// A permit for each part that may wait.
    waiting: Semaphore,
    most_waiting: usize,
    bytes: AtomicUsize,
    pub is_ending: AtomicBool,
}

/// Which questions a listener answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Everything,
    /// How the bridge is.
    State,
}

/// Why a call is not run.
struct No(StatusCode, Failure);

impl Gate {
    pub fn new(bridge: Bridge, secret: Option<Secret>, most_waiting: usize) -> Gate {
        let waiting = Semaphore::new(most_waiting);
        Gate { bridge, secret, waiting, most_waiting, bytes: AtomicUsize::new(0), is_ending: AtomicBool::new(false) }
    }

    fn is_ready(&self) -> bool {
        !self.is_ending.load(Relaxed) && self.bridge.routes.is_ready()
    }

    fn is_known(&self, request: &Request<Incoming>) -> bool {
        let Some(secret) = &self.secret else { return true };
        let sent = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let scheme = sent.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        scheme.is_some_and(|(_, sent)| is_same(sent, secret.0.as_bytes()))
    }
}

/// Answers a request, whatever it is.
pub async fn answer(gate: Arc<Gate>, asks: Asks, request: Request<Incoming>) -> Result<Answered, Infallible> {
    let path = request.uri().path();
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let answered = match path {
        "/healthz" if is_get => state(true, "ok\n"),
        "/readyz" if is_get => match gate.is_ready() {
            true => state(true, "ready\n"),
            false if gate.is_ending.load(Relaxed) => state(false, "ending\n"),
            false => state(false, "no connection to Redis\n"),
        },
        "/metrics" if is_get => {
            let waiting = gate.most_waiting.saturating_sub(gate.waiting.available_permits());
            state(true, gate.bridge.metrics.text(waiting, gate.bytes.load(Relaxed), gate.is_ready()))
        }
        PATH if asks == Asks::Everything => {
            let answered = match call(&gate, request).await {
                Ok(answers) => response(StatusCode::OK, reply(&answers)),
                Err(no) => {
                    gate.bridge.metrics.failed(no.1);
                    refusal(no)
                }
            };
            gate.bridge.metrics.answered(answered.status().as_u16());
            answered
        }
        _ => response(StatusCode::NOT_FOUND, String::new()),
    };
    Ok(answered)
}

async fn call(gate: &Gate, request: Request<Incoming>) -> Result<Vec<Answer>, No> {
    let begun = Instant::now();
    if !gate.is_known(&request) {
        return Err(No(StatusCode::UNAUTHORIZED, Failure::Unauthorized));
    }
    if request.method() != Method::POST {
        return Err(No(StatusCode::METHOD_NOT_ALLOWED, Failure::Refused));
    }
    // Rather now than after all has been read.
    if gate.waiting.available_permits() == 0 {
        return Err(No(StatusCode::SERVICE_UNAVAILABLE, Failure::Overloaded));
    }
    let mut held = Held { gate, bytes: Vec::new() };
    timeout(PATIENCE, held.read(request.into_body()))
        .await
        .map_err(|_| No(StatusCode::REQUEST_TIMEOUT, Failure::Refused))??;
    let call = Call::read(&held.bytes).map_err(|_| No(StatusCode::BAD_REQUEST, Failure::Refused))?;
    let parts = u32::try_from(call.parts.len()).unwrap_or(u32::MAX);
    let overloaded = |_| No(StatusCode::SERVICE_UNAVAILABLE, Failure::Overloaded);
    let _permits = gate.waiting.try_acquire_many(parts).map_err(overloaded)?;
    let deadline = begun.checked_add(Duration::from_millis(call.deadline.0)).unwrap_or(begun);
    Ok(parts::run(&gate.bridge, &call, deadline).await)
}

/// The bytes of one call, which count as long as they are held.
struct Held<'g> {
    gate: &'g Gate,
    bytes: Vec<u8>,
}

impl Held<'_> {
    async fn read(&mut self, mut body: Incoming) -> Result<(), No> {
        let too_long = || No(StatusCode::PAYLOAD_TOO_LARGE, Failure::Refused);
        // Said before it is sent, where it is said at all.
        if usize::try_from(body.size_hint().lower()).map_or(true, |least| least > MAX_CALL) {
            return Err(too_long());
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| No(StatusCode::BAD_REQUEST, Failure::Refused))?;
            let Some(data) = frame.data_ref() else { continue };
            if self.bytes.len().saturating_add(data.len()) > MAX_CALL {
                return Err(too_long());
            }
            let before = self.gate.bytes.fetch_add(data.len(), Relaxed);
            self.bytes.extend_from_slice(data);
            if before.saturating_add(data.len()) > MOST_BYTES {
                return Err(No(StatusCode::SERVICE_UNAVAILABLE, Failure::Overloaded));
            }
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.gate.bytes.fetch_sub(self.bytes.len(), Relaxed);
    }
}

fn refusal(No(status, failure): No) -> Answered {
    let mut answered = response(status, reply([&Answer { number: None, result: Err(failure) }]));
    let header = match status {
        StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
        StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "POST")),
        _ => None,
    };
    if let Some((name, value)) = header {
        answered.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answered
}

fn state(is_fine: bool, text: impl Into<String>) -> Answered {
    response(if is_fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text.into())
}

fn response(status: StatusCode, text: String) -> Answered {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"));
    response
}

/// Whether two secrets are the same, in a time that tells nothing but their lengths.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
