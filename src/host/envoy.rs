//! Envoy and Istio.

use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, Bytes, MapType};

use super::Host;
use crate::engine::CallOwner;
use crate::limiter::HttpEnd;

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
