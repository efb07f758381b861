//! The world around the filter: clients, the service behind, the limiter and time, as a test drives them.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Once;
use std::{panic, thread};

use serde_json::Value;

use crate::abi;
use crate::fake::{AfterCallback, Call, Headers, Phase, Root, Stream, fake};
use crate::policy::policy;
use crate::space::Space;

/// 2023-11-14 22:13:20 UTC.
pub const START_MS: u64 = 1_700_000_000_000;

/// What one callback may ask for whose own callbacks Envoy nests in it: a fifth of what its stack bears.
const MOST_IN_A_CALLBACK: usize = 56;

/// Secrets of the proxy's environment.
pub const AUTHORIZATION: &str = "Bearer canary-canary-canary";
pub const HASH_SECRET: &str = "canary-canary-hash-secret";

/// A proxy with one VM, on a thread of its own.
pub struct Proxy {
    /// The host belongs to the thread.
    thread: PhantomData<*const ()>,
}

/// Runs a case in a fresh VM.
pub fn in_vm<T: Send>(case: impl FnOnce(&Proxy) -> T + Send) -> T {
    let result = thread::scope(|scope| scope.spawn(|| in_this_thread(&Space::default(), case)).join());
    result.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Runs a case in a fresh VM of this thread, which must not have had one, with this shared data.
pub fn in_this_thread<T>(space: &Space, case: impl FnOnce(&Proxy) -> T) -> T {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // SAFETY: every case starts here, and nobody reads the environment except through std.
        unsafe {
            std::env::set_var("CANARY_AUTH", AUTHORIZATION);
            std::env::set_var("CANARY_HASH", HASH_SECRET);
            std::env::set_var("CANARY_NO_HEADER", "canary\ncanary");
        }
        // The SDK's logger belongs to the process, and two threads that set it at once would panic.
        abi::_initialize();
    });
    abi::_initialize();
    fake(|host| {
        host.now_ms = START_MS;
        host.vm = space.join();
        host.space = space.clone();
    });
    let result = case(&Proxy { thread: PhantomData });
    let (violations, errors) = fake(|host| (std::mem::take(&mut host.violations), host.take_errors()));
    assert_eq!(violations, Vec::<String>::new());
    assert_eq!(errors, Vec::<String>::new());
    result
}

/// The same with the usual policy and these changes, and its root.
pub fn with_policy<T: Send>(changes: &[(&str, Value)], case: impl FnOnce(&Proxy, u32) -> T + Send) -> T {
    in_vm(|proxy| {
        let root = proxy.root(&policy(changes));
        case(proxy, root)
    })
}

/// Calls into the module in the name of a context, then does what the module has asked for meanwhile.
fn enter<T>(context: u32, callback: impl FnOnce() -> T) -> T {
    fake(|host| host.effective = context);
    fake(|host| {
        if host.nested == 0 {
            host.finishing = 0;
        }
        host.nested += 1;
    });
    let result = callback();
    fake(|host| host.effective = 0);
    after_callback();
    fake(|host| {
        host.nested -= 1;
        if host.nested == 0 && host.finishing > MOST_IN_A_CALLBACK {
            host.violations.push(format!("{} callbacks are nested in one", host.finishing));
        }
    });
    result
}

fn after_callback() {
    while let Some(action) = fake(|host| host.after_callback.pop_front()) {
        match action {
            AfterCallback::Resume(stream) => set_phase(stream, Phase::Passed),
            AfterCallback::FailCall(token) => {
                if let Some(call) = fake(|host| host.calls.remove(&token)) {
                    enter(call.owner, || abi::proxy_on_http_call_response(call.owner, token, 0, 0, 0));
                }
            }
            AfterCallback::Answer(stream) => {
                enter(stream, || abi::proxy_on_response_headers(stream, 1, false));
                end(stream, Phase::Answered);
            }
        }
    }
}

fn set_phase(stream: u32, phase: Phase) {
    fake(|host| host.streams.get_mut(&stream).expect("a stream").phase = phase);
}

fn end(stream: u32, phase: Phase) {
    enter(stream, || abi::proxy_on_log(stream));
    assert!(enter(stream, || abi::proxy_on_done(stream)), "a stream waits for nothing");
    enter(stream, || abi::proxy_on_delete(stream));
    set_phase(stream, phase);
    fake(|host| host.forget_calls_of(stream));
}

impl Proxy {
    /// A root with a policy that must be good.
    pub fn root(&self, policy: &Value) -> u32 {
        let root = self.root_without_policy();
        assert!(self.configure(root, policy.to_string()), "{:?}", fake(|host| host.take_errors()));
        root
    }

    pub fn root_without_policy(&self) -> u32 {
        let root = fake(|host| {
            host.contexts += 1;
            host.roots.insert(host.contexts, Root::default());
            host.contexts
        });
        enter(root, || abi::proxy_on_context_create(root, 0));
        root
    }

    pub fn configure(&self, root: u32, policy: impl Into<Vec<u8>>) -> bool {
        let policy = policy.into();
        let size = policy.len();
        fake(|host| host.configuration = policy);
        enter(root, || abi::proxy_on_configure(root, size))
    }

    /// A root goes: its listener was removed, or its policy was replaced and its last stream has ended.
    pub fn drop_root(&self, root: u32) {
        assert!(enter(root, || abi::proxy_on_done(root)), "a root waits for nothing");
        enter(root, || abi::proxy_on_delete(root));
        fake(|host| {
            host.roots.remove(&root);
            host.forget_calls_of(root);
        });
    }

    /// A request arrives.
    pub fn request<V: AsRef<[u8]>>(&self, root: u32, headers: &[(&str, V)]) -> u32 {
        let request: Headers =
            headers.iter().map(|(name, value)| (name.to_string(), value.as_ref().to_vec())).collect();
        let count = request.len();
        let stream = fake(|host| {
            host.contexts += 1;
            let stream = Stream {
                phase: Phase::Arriving,
                request,
                response: Vec::new(),
                body: String::new(),
                filter_state: BTreeMap::new(),
                finished: false,
                since_ms: host.now_ms,
                until_ms: None,
            };
            host.streams.insert(host.contexts, stream);
            host.contexts
        });
        enter(stream, || abi::proxy_on_context_create(stream, root));
        enter(stream, || {
            let action = abi::proxy_on_request_headers(stream, count, true);
            set_phase(stream, if action == 0 { Phase::Passed } else { Phase::Paused });
        });
        stream
    }

    /// A GET of a user.
    pub fn get(&self, root: u32, user: &str) -> u32 {
        self.request(root, &[(":method", "GET"), (":path", "/v1/items"), ("x-user-id", user)])
    }

    pub fn gets(&self, root: u32, user: &str, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.get(root, user)).collect()
    }

    /// The client goes away.
    pub fn leave(&self, stream: u32) {
        end(stream, Phase::Left);
    }

    pub fn phase(&self, stream: u32) -> Phase {
        fake(|host| host.streams[&stream].phase)
    }

    pub fn phases(&self, streams: &[u32]) -> Vec<Phase> {
        streams.iter().map(|stream| self.phase(*stream)).collect()
    }

    /// The service behind answers a request that has passed.
    pub fn serve(&self, stream: u32) {
        assert_eq!(self.phase(stream), Phase::Passed);
        self.serve_with(stream, &[(":status", "200"), ("server", "upstream"), ("x-ratelimit-limit", "7")], false);
    }

    /// The same with these headers; `ends` where they are all of it, as with a refusal of gRPC.
    pub fn serve_with(&self, stream: u32, upstream: &[(&str, &str)], ends: bool) {
        assert_eq!(self.phase(stream), Phase::Passed);
        fake(|host| {
            let stream = host.streams.get_mut(&stream).expect("a stream");
            stream.response =
                upstream.iter().map(|(name, value)| (name.to_string(), value.as_bytes().into())).collect();
            stream.body = if ends { String::new() } else { "hello".to_owned() };
        });
        enter(stream, || abi::proxy_on_response_headers(stream, upstream.len(), ends));
        end(stream, Phase::Served);
    }

    /// What the client sees in the end, in one line; a request that has passed is served first.
    pub fn sees(&self, stream: u32) -> String {
        match self.phase(stream) {
            Phase::Passed => self.serve(stream),
            Phase::Answered | Phase::Served => {}
            other => return format!("{other:?}"),
        }
        fake(|host| {
            let stream = &host.streams[&stream];
            let mut line: Vec<String> = Vec::new();
            for (name, value) in &stream.response {
                let value = str::from_utf8(value).expect("the filter sends UTF-8");
                line.push(if name == ":status" { value.to_owned() } else { format!("{name}: {value}") });
            }
            line.push(stream.body.clone());
            line.join(" | ")
        })
    }

    /// Delivers the wake-ups that are on their way.
    pub fn run(&self) {
        while let Some((root, queue)) = fake(|host| host.space.take_wakeup(host.vm)) {
            if fake(|host| host.roots.contains_key(&root)) {
                enter(root, || abi::proxy_on_queue_ready(root, queue));
            }
        }
    }

    /// The calls that are out, in order.
    pub fn calls(&self) -> Vec<Call> {
        fake(|host| host.calls.values().cloned().collect())
    }

    pub fn call_count(&self) -> usize {
        self.calls().len()
    }

    /// How many requests wait.
    pub fn paused(&self) -> usize {
        fake(|host| host.streams.values().filter(|stream| stream.phase == Phase::Paused).count())
    }

    /// The only call that is out.
    pub fn call(&self) -> Call {
        let mut calls = self.calls();
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.remove(0)
    }

    /// What the only call that is out asks for: key, limit, runs.
    pub fn asked(&self) -> String {
        self.call().asks()
    }

    /// The limiter answers the only call that is out.
    pub fn answer(&self, body: impl AsRef<[u8]>) {
        self.reply(&self.call(), "200", body);
    }

    /// The same for one of them. A verdict gets the number of the call.
    pub fn reply(&self, call: &Call, status: impl AsRef<[u8]>, body: impl AsRef<[u8]>) {
        self.misdeliver(call, status, call.numbered(body.as_ref()));
    }

    /// A call gets this reply, whosever it is.
    pub fn misdeliver(&self, call: &Call, status: impl AsRef<[u8]>, body: impl AsRef<[u8]>) {
        let headers = vec![(":status".to_owned(), status.as_ref().to_vec())];
        self.end_call(call, headers, body.as_ref());
    }

    /// A call fails: its callback has no headers.
    pub fn reset(&self, call: &Call) {
        self.end_call(call, Vec::new(), b"");
    }

    fn end_call(&self, call: &Call, headers: Headers, body: &[u8]) {
        if fake(|host| host.calls.remove(&call.token)).is_none() {
            return;
        }
        let count = headers.len();
        fake(|host| host.reply = (count > 0).then(|| (headers, body.to_vec())));
        enter(call.owner, || abi::proxy_on_http_call_response(call.owner, call.token, count, body.len(), 0));
        fake(|host| host.reply = None);
    }

    /// The host forgets to end the calls that are out.
    pub fn keep_calls_for_ever(&self) {
        fake(|host| host.calls.values_mut().for_each(|call| call.timeout_ms = u32::MAX));
    }

    /// A tick, whatever the time.
    pub fn tick(&self, root: u32) {
        enter(root, || abi::proxy_on_tick(root));
    }

    /// Time passes: ticks, then the ends of calls, each at its moment.
    pub fn advance(&self, ms: u64) {
        let until = fake(|host| host.now_ms) + ms;
        loop {
            let tick = fake(|host| {
                let ticking = host.roots.iter().filter(|(_, root)| root.tick_period_ms > 0);
                ticking.map(|(id, root)| (root.next_tick_ms, *id)).min()
            });
            let end = self.calls().into_iter().min_by_key(Call::ends_ms);
            let tick = tick.filter(|(at, _)| *at <= until);
            let end = end.filter(|call| call.ends_ms() <= until);
            match (tick, end) {
                (Some((at, root)), end) if end.as_ref().is_none_or(|call| at <= call.ends_ms()) => {
                    fake(|host| host.now_ms = at);
                    self.tick(root);
                    fake(|host| {
                        if let Some(root) = host.roots.get_mut(&root) {
                            root.next_tick_ms = at + root.tick_period_ms;
                        }
                    });
                }
                (_, Some(call)) => {
                    fake(|host| host.now_ms = call.ends_ms());
                    self.reset(&call);
                }
                _ => break,
            }
            self.run();
        }
        fake(|host| host.now_ms = until);
    }

    /// Somebody sets the clock.
    pub fn set_clock(&self, ms: u64) {
        fake(|host| {
            for root in host.roots.values_mut() {
                root.next_tick_ms = ms + root.next_tick_ms.saturating_sub(host.now_ms);
            }
            host.now_ms = ms;
        });
    }

    /// The metrics that were counted up or recorded, by their names without `weir.rl.`: a counter's sum, a gauge's last
    /// value, the values of a histogram added up.
    pub fn metrics(&self) -> BTreeMap<String, i64> {
        let inside = |(name, value): (&String, &i64)| (name.replacen("weir.rl.", "", 1), *value);
        fake(|host| host.counts.iter().map(inside).collect())
    }

    /// How many calls were begun, and how many requests `on_error` has decided, by its reason, as the metrics tell.
    pub fn counts(&self) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for (name, count) in self.metrics() {
            if let Some(reason) = name.strip_prefix("degraded_decisions.").and_then(|name| name.split('.').nth(1)) {
                *counts.entry(reason.to_owned()).or_default() += count;
            }
        }
        let calls = fake(|host| i64::from(host.tokens));
        counts.extend((calls > 0).then(|| ("calls".to_owned(), calls)));
        counts
    }

    /// The host calls since this was last asked.
    pub fn trace(&self) -> Vec<String> {
        fake(|host| std::mem::take(&mut host.trace))
    }

    pub fn log(&self) -> Vec<String> {
        fake(|host| host.log.iter().map(|(_, message)| message.clone()).collect())
    }

    /// What was logged as an error, which a case has to take.
    pub fn take_errors(&self) -> Vec<String> {
        fake(|host| host.take_errors())
    }

    /// The shared data of this VM.
    pub fn space(&self) -> Space {
        fake(|host| host.space.clone())
    }

    pub fn queue_names(&self) -> Vec<String> {
        fake(|host| host.space.queue_names(host.vm))
    }
}

/// Where its number stands in a call.
const NUMBER: usize = 15;

impl Call {
    fn ends_ms(&self) -> u64 {
        self.sent_ms + u64::from(self.timeout_ms)
    }

    /// The arguments of the command after the script and the number of keys, but for the call's own number, decoded,
    /// with a space between.
    pub fn asks(&self) -> String {
        let mut parts = self.parts();
        parts.remove(NUMBER);
        parts[3..].join(" ")
    }

    /// What it carries so that its reply is known.
    pub fn number(&self) -> u64 {
        self.parts()[NUMBER].parse().expect("a number")
    }

    /// The key and all numbers that follow it.
    pub fn key_and_numbers(&self) -> (String, Vec<u64>) {
        let parts = self.parts();
        (parts[3].clone(), parts[4..].iter().map(|number| number.parse().expect("a number")).collect())
    }

    /// A reply of the script to this call: one that holds numbers, with the call's own before them.
    pub fn numbered(&self, body: &[u8]) -> Vec<u8> {
        for command in ["EVALSHA", "EVAL"] {
            let start = format!("{{\"{command}\":[").into_bytes();
            if let Some(rest) = body.strip_prefix(&start[..])
                && rest.first().is_some_and(|first| first.is_ascii_digit() || *first == b'-')
            {
                return [&start, format!("{},", self.number()).as_bytes(), rest].concat();
            }
        }
        body.to_vec()
    }

    pub fn command(&self) -> String {
        self.parts()[0].clone()
    }

    pub fn script(&self) -> String {
        self.parts()[1].clone()
    }

    fn parts(&self) -> Vec<String> {
        self.body.split('/').map(decoded).collect()
    }
}

fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part;
    while let Some((plain, escaped)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let (digits, after) = escaped.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("two hex digits"));
        rest = after;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).expect("UTF-8")
}
