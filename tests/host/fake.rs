//! A fake host that behaves as Envoy does, as far as the filter can tell. What the filter does to it is done here; what
//! the world does is in [`crate::proxy`].
//!
//! As in Envoy, a resume or a local reply takes effect after the callback that asked for it; a call belongs to the
//! effective context and is dropped without a word when that goes; a queue wakes the root that registered it last, soon
//! and not at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use crate::space::Space;

pub const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const BAD_ARGUMENT: u32 = 2;
const EMPTY: u32 = 7;
const CAS_MISMATCH: u32 = 8;
const INTERNAL_FAILURE: u32 = 10;

const LOG_ERROR: u32 = 4;
const LOG_CRITICAL: u32 = 5;

const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;
const CALL_HEADERS: u32 = 6;
const CALL_BODY: u32 = 4;

const COUNTER: u32 = 0;
const GAUGE: u32 = 1;
const HISTOGRAM: u32 = 2;
const CONFIGURATION: u32 = 7;

thread_local! {
    static FAKE: RefCell<Fake> = RefCell::default();
}

/// The host of this thread. Never held while the module runs.
pub fn fake<T>(act: impl FnOnce(&mut Fake) -> T) -> T {
    FAKE.with_borrow_mut(act)
}

/// A line of log. The SDK logs panics as critical, those of a test as well, and maybe while the host is held.
pub fn log(level: u32, message: &str) {
    if level == LOG_CRITICAL {
        // The process may be gone after it: past the test harness, which would swallow it.
        let _ = writeln!(std::io::stderr(), "{message}");
    }
    FAKE.with(|host| {
        if let Ok(mut host) = host.try_borrow_mut() {
            host.trace(format!("log {level}"));
            host.log.push((level, message.to_owned()));
        }
    });
}

#[derive(Default)]
pub struct Fake {
    pub now_ms: u64,
    /// Every host call with its main argument.
    pub trace: Vec<String>,
    pub log: Vec<(u32, String)>,
    pub effective: u32,
    pub contexts: u32,
    pub roots: BTreeMap<u32, Root>,
    /// Those that have ended as well.
    pub streams: BTreeMap<u32, Stream>,
    pub calls: BTreeMap<u32, Call>,
    pub tokens: u32,
    /// Of the call whose callback runs.
    pub reply: Option<(Headers, Vec<u8>)>,
    pub configuration: Vec<u8>,
    /// Kinds and names by id; defining a name again gives another id for the same metric.
    pub metrics: Vec<(u32, String)>,
    pub counts: BTreeMap<String, i64>,
    pub after_callback: VecDeque<AfterCallback>,
    /// How many callbacks are under way, each nested in the one before.
    pub nested: usize,
    /// What the outermost of them has asked for so far, and those nested in it, that has callbacks of its own.
    pub finishing: usize,
    /// Of the VM's vm_id, maybe with other VMs.
    pub space: Space,
    /// The number of this VM in it.
    pub vm: u32,
    /// What the filter did that no filter may do.
    pub violations: Vec<String>,
}

pub type Headers = Vec<(String, Vec<u8>)>;

#[derive(Default)]
pub struct Root {
    pub tick_period_ms: u64,
    pub next_tick_ms: u64,
}

pub struct Stream {
    pub phase: Phase,
    pub request: Headers,
    pub response: Headers,
    pub body: String,
    /// What the filter has set, by its name.
    pub filter_state: BTreeMap<String, String>,
    /// The filter has answered it or let it go on after a pause.
    pub finished: bool,
    pub since_ms: u64,
    pub until_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its headers are being looked at.
    Arriving,
    Paused,
    /// The service behind has it.
    Passed,
    /// The filter has answered it.
    Answered,
    /// The client has left.
    Left,
    /// The service behind has answered it.
    Served,
}

/// A call of the filter.
#[derive(Clone, Debug)]
pub struct Call {
    pub token: u32,
    pub owner: u32,
    pub cluster: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub timeout_ms: u32,
    pub sent_ms: u64,
}

pub enum AfterCallback {
    Resume(u32),
    Answer(u32),
    /// A call that has failed in the call of the host that made it.
    FailCall(u32),
}

impl Stream {
    /// Whether the module has a context for it.
    fn lives(&self) -> bool {
        matches!(self.phase, Phase::Arriving | Phase::Paused | Phase::Passed)
    }
}

impl Fake {
    /// Takes what was logged at error or above.
    pub fn take_errors(&mut self) -> Vec<String> {
        let errors = self.log.extract_if(.., |(level, _)| *level >= LOG_ERROR);
        errors.map(|(_, message)| message).collect()
    }

    pub fn time(&mut self) -> u64 {
        self.trace("get_current_time");
        self.now_ms * 1_000_000
    }

    pub fn set_tick_period(&mut self, period: u32) -> u32 {
        self.trace(format!("set_tick_period {period}"));
        let (now, effective) = (self.now_ms, self.effective);
        match self.roots.get_mut(&effective) {
            Some(root) => {
                root.tick_period_ms = period.into();
                root.next_tick_ms = now + u64::from(period);
            }
            None => self.violation("a tick for a context that is no root"),
        }
        OK
    }

    pub fn buffer(&mut self, buffer: u32, start: usize, max: usize) -> Result<Vec<u8>, u32> {
        let (name, bytes) = match buffer {
            CONFIGURATION => ("configuration", Some(&self.configuration)),
            CALL_BODY => ("call body", self.reply.as_ref().map(|(_, body)| body)),
            _ => ("other", None),
        };
        let bytes = bytes.cloned().ok_or(NOT_FOUND);
        self.trace(format!("get_buffer {name}"));
        let bytes = bytes?;
        let end = start.saturating_add(max).min(bytes.len());
        bytes.get(start..end).map(<[u8]>::to_vec).ok_or(BAD_ARGUMENT)
    }

    pub fn header(&mut self, map: u32, name: &str) -> Result<Vec<u8>, u32> {
        let stream = self.streams.get(&self.effective);
        let (map, headers) = match map {
            REQUEST_HEADERS => (
                "request",
                stream.filter(|stream| matches!(stream.phase, Phase::Arriving | Phase::Paused)).map(|s| &s.request),
            ),
            RESPONSE_HEADERS => ("response", stream.map(|stream| &stream.response)),
            CALL_HEADERS => ("call", self.reply.as_ref().map(|(headers, _)| headers)),
            _ => ("other", None),
        };
        let found = headers
            .ok_or(BAD_ARGUMENT)
            .map(|headers| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()));
        self.trace(format!("get_header {map} {name}"));
        found?.ok_or(NOT_FOUND)
    }

    /// All request headers in the ABI's own format: how many, the sizes of each, and each with a NUL behind it.
    pub fn headers(&mut self, map: u32) -> Result<Vec<u8>, u32> {
        self.trace("get_headers".to_owned());
        let stream = self.streams.get(&self.effective).filter(|stream| stream.phase == Phase::Arriving);
        let headers = &stream.filter(|_| map == REQUEST_HEADERS).ok_or(BAD_ARGUMENT)?.request;
        let size = |length: usize| u32::try_from(length).expect("a size").to_le_bytes();
        let mut bytes = size(headers.len()).to_vec();
        for (name, value) in headers {
            bytes.extend([size(name.len()), size(value.len())].concat());
        }
        for (name, value) in headers {
            bytes.extend([name.as_bytes(), b"\0", value, b"\0"].concat());
        }
        Ok(bytes)
    }

    /// What a test sent as a header with the name of the property, its parts joined by dots, after a dot.
    pub fn property(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let name = format!(".{}", path.trim_end_matches('\0').replace('\0', "."));
        self.trace(format!("get_property {name}"));
        let stream = self.streams.get(&self.effective).ok_or(BAD_ARGUMENT)?;
        if let Some(header) = name.strip_prefix(".request.headers.") {
            // All lines, joined by commas, whatever the header.
            let lines = stream.request.iter().filter(|(other, _)| other == header);
            let lines: Vec<&[u8]> = lines.map(|(_, value)| value.as_slice()).collect();
            return if lines.is_empty() { Err(NOT_FOUND) } else { Ok(lines.join(b",".as_slice())) };
        }
        let found = stream.request.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.clone()).ok_or(NOT_FOUND)
    }

    pub fn replace_header(&mut self, map: u32, name: &str, value: &[u8]) -> u32 {
        self.trace(format!("replace_header {name}"));
        match self.streams.get_mut(&self.effective) {
            Some(stream) if map == RESPONSE_HEADERS && stream.lives() => {
                stream.response.retain(|(other, _)| other != name);
                stream.response.push((name.to_owned(), value.to_vec()));
                OK
            }
            _ => BAD_ARGUMENT,
        }
    }

    pub fn register_queue(&mut self, name: &str) -> u32 {
        self.trace("register_queue");
        let root = self.effective;
        if !self.roots.contains_key(&root) {
            self.violation("a queue for a context that is no root");
        }
        self.space.register_queue(name, self.vm, root)
    }

    pub fn enqueue(&mut self, queue: u32, value: &[u8]) -> u32 {
        let woken = self.space.enqueue(queue, value);
        let whose = if woken.is_none_or(|vm| vm == self.vm) { "" } else { " of another worker" };
        self.trace(format!("enqueue{whose}"));
        if woken.is_some() { OK } else { NOT_FOUND }
    }

    pub fn dequeue(&mut self, queue: u32) -> Result<Vec<u8>, u32> {
        self.trace("dequeue");
        self.space.dequeue(queue).ok_or(NOT_FOUND)?.ok_or(EMPTY)
    }

    pub fn get_shared_data(&mut self, key: &str) -> Result<(Vec<u8>, u32), u32> {
        self.trace(format!("get_shared_data {}", Space::part(key)));
        self.space.get(key).ok_or(NOT_FOUND)
    }

    pub fn set_shared_data(&mut self, key: &str, value: &[u8], number: u32) -> u32 {
        self.trace(format!("set_shared_data {}", Space::part(key)));
        if number == 0 {
            self.violation("shared data is overwritten, whoever has written it");
        }
        if self.space.set(key, value, number) { OK } else { CAS_MISMATCH }
    }

    pub fn continue_stream(&mut self, kind: u32) -> u32 {
        self.trace("continue_stream");
        if self.finish_effective(&[Phase::Paused], "resumed") && kind == 0 {
            self.afterwards(AfterCallback::Resume(self.effective));
        }
        OK
    }

    pub fn send_local_response(&mut self, status: u32, headers: Vec<(String, String)>, body: &str) -> u32 {
        self.trace(format!("send_local_response {status}"));
        if self.streams.get(&self.effective).is_some_and(|stream| stream.finished) {
            return BAD_ARGUMENT;
        }
        if self.finish_effective(&[Phase::Arriving, Phase::Paused], "answered")
            && let Some(stream) = self.streams.get_mut(&self.effective)
        {
            stream.response = vec![(":status".to_owned(), status.to_string().into_bytes())];
            stream.response.extend(headers.into_iter().map(|(name, value)| (name, value.into_bytes())));
            stream.body = body.to_owned();
            self.afterwards(AfterCallback::Answer(self.effective));
        }
        OK
    }

    fn afterwards(&mut self, action: AfterCallback) {
        self.finishing += 1;
        self.after_callback.push_back(action);
    }

    /// Envoy drops in silence what a filter does to the wrong context or at the wrong time; here it is a violation.
    fn finish_effective(&mut self, phases: &[Phase], what: &str) -> bool {
        let (effective, now) = (self.effective, self.now_ms);
        match self.streams.get_mut(&effective) {
            Some(stream) if phases.contains(&stream.phase) && !stream.finished => {
                stream.finished = true;
                stream.until_ms = Some(now);
                true
            }
            Some(stream) => {
                let violation = format!("{what} while {:?}, finished: {}", stream.phase, stream.finished);
                self.violation(violation);
                false
            }
            None => {
                self.violation(format!("{what} in the name of no stream"));
                false
            }
        }
    }

    pub fn http_call(
        &mut self,
        cluster: &str,
        headers: Vec<(String, String)>,
        body: &str,
        timeout_ms: u32,
    ) -> Result<u32, u32> {
        self.trace(format!("http_call {cluster}"));
        for needed in [":method", ":path", ":authority"] {
            if !headers.iter().any(|(name, _)| name == needed) {
                return Err(BAD_ARGUMENT);
            }
        }
        match cluster {
            "webdis" | "webdis-big" | "overloaded" => {}
            "no-hosts" => return Err(INTERNAL_FAILURE),
            _ => return Err(BAD_ARGUMENT),
        }
        if timeout_ms == 0 {
            self.violation("a call that may last for ever");
        }
        self.tokens += 1;
        let (token, owner, sent_ms) = (self.tokens, self.effective, self.now_ms);
        let (cluster, body) = (cluster.to_owned(), body.to_owned());
        if cluster == "overloaded" {
            self.afterwards(AfterCallback::FailCall(token));
        }
        self.calls.insert(token, Call { token, owner, cluster, headers, body, timeout_ms, sent_ms });
        Ok(token)
    }

    pub fn set_effective_context(&mut self, context: u32) -> u32 {
        self.trace(format!("set_effective_context {context}"));
        if !self.roots.contains_key(&context) && !self.streams.get(&context).is_some_and(Stream::lives) {
            return BAD_ARGUMENT;
        }
        self.effective = context;
        OK
    }

    pub fn define_metric(&mut self, kind: u32, name: &str) -> u32 {
        self.trace(format!("define_metric {name}"));
        if self.metrics.iter().any(|(of, other)| other == name && *of != kind) {
            self.violation(format!("{name} is defined as two kinds of metric"));
        }
        self.metrics.push((kind, name.to_owned()));
        self.metrics.len() as u32 - 1
    }

    pub fn increment_metric(&mut self, id: u32, by: i64) -> u32 {
        let Some((kind, name)) = self.metrics.get(id as usize).cloned() else {
            return NOT_FOUND;
        };
        self.trace(format!("increment_metric {name}"));
        if kind != COUNTER {
            self.violation(format!("{name} is incremented and no counter"));
        }
        *self.counts.entry(name).or_default() += by;
        OK
    }

    pub fn record_metric(&mut self, id: u32, value: u64) -> u32 {
        let Some((kind, name)) = self.metrics.get(id as usize).cloned() else {
            return NOT_FOUND;
        };
        self.trace(format!("record_metric {name}"));
        let value = i64::try_from(value).expect("a value");
        match kind {
            GAUGE => *self.counts.entry(name).or_default() = value,
            HISTOGRAM => *self.counts.entry(name).or_default() += value,
            _ => self.violation(format!("{name} is recorded and a counter")),
        }
        OK
    }

    pub fn remove_header(&mut self, map: u32, name: &str) -> u32 {
        self.trace(format!("remove_header {name}"));
        match self.streams.get_mut(&self.effective) {
            Some(stream) if map == REQUEST_HEADERS && stream.phase == Phase::Arriving => {
                stream.request.retain(|(other, _)| other != name);
                OK
            }
            _ => BAD_ARGUMENT,
        }
    }

    /// Sets what later filters and access logs read.
    pub fn set_property(&mut self, path: &str, value: &str) -> u32 {
        let name = path.trim_end_matches('\0').replace('\0', ".");
        self.trace(format!("set_property {name}"));
        match self.streams.get_mut(&self.effective) {
            Some(stream) if stream.lives() => {
                stream.filter_state.insert(name, value.to_owned());
                OK
            }
            _ => BAD_ARGUMENT,
        }
    }

    /// A context has gone, and its calls with it.
    pub fn forget_calls_of(&mut self, context: u32) {
        self.calls.retain(|_, call| call.owner != context);
    }

    fn trace(&mut self, call: impl Into<String>) {
        self.trace.push(call.into());
    }

    fn violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }
}
