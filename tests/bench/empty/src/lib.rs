//! The filter that does nothing: what any module costs, whatever it does.

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

proxy_wasm::main! {{
    proxy_wasm::set_http_context(|_, _| Box::new(Empty));
}}

struct Empty;

impl Context for Empty {}

impl HttpContext for Empty {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        Action::Continue
    }
}
