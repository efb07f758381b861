//! Envoy and Istio: calls belong to the root, a queue wakes it, and shared data is one space for a whole proxy.

mod shared_data;
mod workers;

use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, Bytes, MapType, Status};

use super::{Host, Woken};
use crate::engine::{Call, CallOwner};
use crate::limiter::{Failure, HttpEnd};
use crate::local::Store;
use shared_data::SharedData;

/// Envoy, whose roots may call at any time and may finish every stream of their VM.
pub(super) struct Envoy;

impl Host for Envoy {
    fn call_owner(&self) -> CallOwner {
        CallOwner::Root
    }

    /// By WASI, which Envoy answers with its steady clock. The SDK has the wall's clock only.
    #[cfg(target_os = "wasi")]
    fn monotonic(&self) -> Option<Duration> {
        #[link(wasm_import_module = "wasi_snapshot_preview1")]
        unsafe extern "C" {
            fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> i32;
        }
        const MONOTONIC: u32 = 1;
        const PRECISION: u64 = 1000;
        let mut nanoseconds = 0;
        // SAFETY: the pointer is to a u64 that outlives the call.
        let status = unsafe { clock_time_get(MONOTONIC, PRECISION, &raw mut nanoseconds) };
        (status == 0 && nanoseconds > 0).then_some(Duration::from_nanos(nanoseconds))
    }

    #[cfg(not(target_os = "wasi"))]
    fn monotonic(&self) -> Option<Duration> {
        None
    }

    fn store(&self) -> Rc<dyn Store> {
        Rc::new(SharedData)
    }

    fn take_conflicts(&self) -> u64 {
        shared_data::take_conflicts()
    }

    fn join(&self, queue: &str, worker: Option<u32>) -> Option<(u32, Option<u32>)> {
        let queue = hostcalls::register_shared_queue(queue).ok()?;
        Some((queue, workers::join(worker, queue)))
    }

    fn wake(&self, queue: u32) {
        // Where this fails, the next tick makes up for it.
        let _ = hostcalls::enqueue_shared_queue(queue, Some(&[workers::BY_ITSELF]));
    }

    fn wake_others(&self, others: u32) {
        workers::wake(others);
    }

    fn woken(&self, queue: u32) -> Option<Woken> {
        let mut from = Vec::new();
        while let Ok(Some(message)) = hostcalls::dequeue_shared_queue(queue) {
            from.extend(message);
        }
        // Nothing is there where the callback before has taken all: it has done the work, too.
        let by_other = from.contains(&workers::BY_OTHER);
        (!from.is_empty()).then_some(if by_other { Woken::ByOther } else { Woken::ByItself })
    }

    fn dispatch(&self, call: &Call) -> Result<u32, Failure> {
        let limiter = call.plan.policy.limiters.get(call.limiter);
        let mut headers = vec![
            (":method", "POST"),
            (":path", call.http.path),
            (":authority", limiter.authority.as_str()),
            ("content-type", call.http.content_type),
        ];
        if let Some(credential) = &limiter.authorization {
            headers.push(("authorization", credential.0.as_str()));
        }
        let body = Some(call.http.body.as_bytes());
        let timeout = Duration::from_millis(call.timeout.0);
        let called = hostcalls::dispatch_http_call(&limiter.cluster, headers, body, Vec::new(), timeout);
        called.map_err(|status| match status {
            Status::BadArgument => Failure::UnknownCluster,
            _ => Failure::Unreachable,
        })
    }

    /// A call that failed (timeout, reset, no host) ends without headers, or with Envoy's own 503 or 504.
    fn call_end<'b>(&self, headers: usize, body_size: usize, max_reply: usize, body: &'b mut Bytes) -> HttpEnd<'b> {
        if headers == 0 {
            return HttpEnd::NoAnswer;
        }
        let status = hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, ":status").ok().flatten();
        let status = status.and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok());
        let Some(status) = status else {
            return HttpEnd::NoAnswer;
        };
        if body_size > max_reply {
            return HttpEnd::Oversized;
        }
        if body_size > 0 {
            *body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, body_size)
                .ok()
                .flatten()
                .unwrap_or_default();
        }
        HttpEnd::Answer { status, body }
    }

    fn authority(&self) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, ":authority").ok().flatten()
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name).ok().flatten()
    }

    /// A header's value is that of its first line, and as a property that of all lines, joined by commas: without one
    /// there is one line, and all headers need not be copied.
    fn cookies(&self) -> Option<Vec<u8>> {
        let joined = hostcalls::get_property(vec!["request", "headers", "cookie"]).ok().flatten()?;
        if !joined.contains(&b',') {
            return Some(joined);
        }
        let headers = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
        let lines: Vec<Bytes> =
            headers.into_iter().filter(|(name, _)| name == "cookie").map(|(_, line)| line).collect();
        Some(lines.join(b"; ".as_slice()))
    }

    fn replace_response_header(&self, name: &str, value: &str) {
        // The map is there: this is called while the response's headers pass.
        let _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value));
    }
}
