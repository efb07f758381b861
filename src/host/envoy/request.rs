//! What Envoy tells of the request of the current context. Only byte getters: a String getter panics on bytes that are not
//! UTF-8.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{Bytes, MapType};

use super::Envoy;
use crate::request::Request;

impl Request for Envoy {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
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

    fn is_doubled(&self, name: &str) -> bool {
        let headers = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
        headers.iter().filter(|(other, _)| other == name).nth(1).is_some()
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        hostcalls::get_property(path.to_vec()).ok().flatten()
    }
}
