//! The border between the SDK and the fake host: what the SDK exports, and what it imports.
//!
//! No behaviour here: bytes become values and values bytes, in the layout of proxy-wasm ABI 0.2.1.

use std::slice;

use crate::fake::{OK, fake, log};

unsafe extern "C" {
    pub safe fn _initialize();
    pub safe fn proxy_on_context_create(context: u32, root: u32);
    pub safe fn proxy_on_configure(root: u32, size: usize) -> bool;
    pub safe fn proxy_on_tick(root: u32);
    pub safe fn proxy_on_queue_ready(root: u32, queue: u32);
    pub safe fn proxy_on_http_call_response(
        context: u32,
        token: u32,
        headers: usize,
        body_size: usize,
        trailers: usize,
    );
    pub safe fn proxy_on_request_headers(stream: u32, headers: usize, end_of_stream: bool) -> u32;
    pub safe fn proxy_on_response_headers(stream: u32, headers: usize, end_of_stream: bool) -> u32;
    pub safe fn proxy_on_log(stream: u32);
    pub safe fn proxy_on_done(context: u32) -> bool;
    pub safe fn proxy_on_delete(context: u32);
    safe fn proxy_on_memory_allocate(size: usize) -> *mut u8;
}

// SAFETY of everything below: the SDK passes pointers to buffers of the sizes it says, and to places for results.

unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    match data.is_null() {
        true => &[],
        false => unsafe { slice::from_raw_parts(data, size) },
    }
}

unsafe fn text<'a>(data: *const u8, size: usize) -> &'a str {
    str::from_utf8(unsafe { bytes(data, size) }).expect("the SDK sends UTF-8")
}

/// A map as the SDK serializes it: count, sizes, then names and values with a zero after each.
unsafe fn map(data: *const u8, size: usize) -> Vec<(String, String)> {
    let bytes = unsafe { bytes(data, size) };
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
    let count = number(0);
    let mut at = 4 + count * 8;
    let mut take = |size: usize| {
        let part = String::from_utf8(bytes[at..at + size].to_vec()).expect("the SDK sends UTF-8");
        at += size + 1;
        part
    };
    (0..count).map(|index| (take(number(4 + index * 8)), take(number(8 + index * 8)))).collect()
}

/// Hands bytes over as Envoy does: in memory of the module's, and as a null pointer where there are none.
unsafe fn give(result: Result<Vec<u8>, u32>, data: *mut *mut u8, size: *mut usize) -> u32 {
    let bytes = match result {
        Ok(bytes) => bytes,
        Err(status) => return status,
    };
    unsafe {
        *size = bytes.len();
        if !bytes.is_empty() {
            *data = proxy_on_memory_allocate(bytes.len());
            (*data).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
    OK
}

unsafe fn set(result: Result<u32, u32>, place: *mut u32) -> u32 {
    match result {
        Ok(value) => {
            unsafe { *place = value };
            OK
        }
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_log(level: u32, data: *const u8, size: usize) -> u32 {
    log(level, unsafe { text(data, size) });
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32 {
    let now = fake(|host| host.time());
    unsafe { *time = now };
    OK
}

#[unsafe(no_mangle)]
extern "C" fn proxy_set_tick_period_milliseconds(period: u32) -> u32 {
    fake(|host| host.set_tick_period(period))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_get_buffer_bytes(
    buffer: u32,
    start: usize,
    max: usize,
    data: *mut *mut u8,
    size: *mut usize,
) -> u32 {
    let result = fake(|host| host.buffer(buffer, start, max));
    unsafe { give(result, data, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_get_header_map_value(
    kind: u32,
    key: *const u8,
    key_size: usize,
    data: *mut *mut u8,
    size: *mut usize,
) -> u32 {
    let key = unsafe { text(key, key_size) };
    let result = fake(|host| host.header(kind, key));
    unsafe { give(result, data, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_get_header_map_pairs(kind: u32, data: *mut *mut u8, size: *mut usize) -> u32 {
    let result = fake(|host| host.headers(kind));
    unsafe { give(result, data, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_get_property(
    path: *const u8,
    path_size: usize,
    data: *mut *mut u8,
    size: *mut usize,
) -> u32 {
    let path = unsafe { text(path, path_size) };
    let result = fake(|host| host.property(path));
    unsafe { give(result, data, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_replace_header_map_value(
    kind: u32,
    key: *const u8,
    key_size: usize,
    value: *const u8,
    value_size: usize,
) -> u32 {
    let (key, value) = unsafe { (text(key, key_size), bytes(value, value_size)) };
    fake(|host| host.replace_header(kind, key, value))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_get_shared_data(
    key: *const u8,
    key_size: usize,
    data: *mut *mut u8,
    size: *mut usize,
    number: *mut u32,
) -> u32 {
    let key = unsafe { text(key, key_size) };
    let (value, found) = match fake(|host| host.get_shared_data(key)) {
        Ok((value, found)) => (Ok(value), found),
        Err(status) => (Err(status), 0),
    };
    unsafe {
        *number = found;
        give(value, data, size)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_set_shared_data(
    key: *const u8,
    key_size: usize,
    value: *const u8,
    value_size: usize,
    number: u32,
) -> u32 {
    let (key, value) = unsafe { (text(key, key_size), bytes(value, value_size)) };
    fake(|host| host.set_shared_data(key, value, number))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_register_shared_queue(name: *const u8, size: usize, id: *mut u32) -> u32 {
    let name = unsafe { text(name, size) };
    let result = fake(|host| host.register_queue(name));
    unsafe { set(Ok(result), id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_enqueue_shared_queue(queue: u32, value: *const u8, size: usize) -> u32 {
    let value = unsafe { bytes(value, size) };
    fake(|host| host.enqueue(queue, value))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_dequeue_shared_queue(queue: u32, data: *mut *mut u8, size: *mut usize) -> u32 {
    let result = fake(|host| host.dequeue(queue));
    unsafe { give(result, data, size) }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_continue_stream(kind: u32) -> u32 {
    fake(|host| host.continue_stream(kind))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_send_local_response(
    status: u32,
    _details: *const u8,
    _details_size: usize,
    body: *const u8,
    body_size: usize,
    headers: *const u8,
    headers_size: usize,
    _grpc_status: i32,
) -> u32 {
    let (body, headers) = unsafe { (text(body, body_size), map(headers, headers_size)) };
    fake(|host| host.send_local_response(status, headers, body))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_http_call(
    upstream: *const u8,
    upstream_size: usize,
    headers: *const u8,
    headers_size: usize,
    body: *const u8,
    body_size: usize,
    _trailers: *const u8,
    _trailers_size: usize,
    timeout: u32,
    token: *mut u32,
) -> u32 {
    let (cluster, headers, body) =
        unsafe { (text(upstream, upstream_size), map(headers, headers_size), text(body, body_size)) };
    let result = fake(|host| host.http_call(cluster, headers, body, timeout));
    unsafe { set(result, token) }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_set_effective_context(context: u32) -> u32 {
    fake(|host| host.set_effective_context(context))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_define_metric(kind: u32, name: *const u8, size: usize, id: *mut u32) -> u32 {
    let name = unsafe { text(name, size) };
    let result = fake(|host| host.define_metric(kind, name));
    unsafe { set(Ok(result), id) }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_increment_metric(id: u32, by: i64) -> u32 {
    fake(|host| host.increment_metric(id, by))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_record_metric(id: u32, value: u64) -> u32 {
    fake(|host| host.record_metric(id, value))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_remove_header_map_value(kind: u32, key: *const u8, size: usize) -> u32 {
    let key = unsafe { text(key, size) };
    fake(|host| host.remove_header(kind, key))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, size: usize) -> u32 {
    let (path, value) = unsafe { (text(path, path_size), text(value, size)) };
    fake(|host| host.set_property(path, value))
}

/// What the SDK imports and the filter must not use, for the fake host does not have it.
macro_rules! absent {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> u32 {
                panic!(concat!("the fake host has no ", stringify!($name)))
            }
        )*
    };
}

absent! {
    proxy_add_header_map_value
    proxy_call_foreign_function
    proxy_close_stream
    proxy_done
    proxy_get_log_level
    proxy_get_metric
    proxy_get_status
    proxy_grpc_call
    proxy_grpc_cancel
    proxy_grpc_close
    proxy_grpc_send
    proxy_grpc_stream
    proxy_resolve_shared_queue
    proxy_set_buffer_bytes
    proxy_set_header_map_pairs
}
