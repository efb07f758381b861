//! Envoy and Istio: calls belong to the root, a queue wakes it, and shared data is one space for a whole proxy.

mod request;
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

    /// The SDK would copy each name and each value.
    fn header_map(&self) -> Option<Vec<u8>> {
        unsafe extern "C" {
            fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
        }
        let (mut data, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: both pointers are to values that outlive the call.
        let status =
            unsafe { proxy_get_header_map_pairs(MapType::HttpRequestHeaders as u32, &raw mut data, &raw mut size) };
        if status != 0 || data.is_null() {
            return None;
        }
        // SAFETY: the host has had the module allocate so many bytes for it, by the SDK's allocator of vectors, and has
        // filled them; nobody else frees them.
        Some(unsafe { Vec::from_raw_parts(data, size, size) })
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name).ok().flatten()
    }

    fn replace_response_header(&self, name: &str, value: &str) {
        // The map is there: this is called while the response's headers pass.
        let _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value));
    }
}
