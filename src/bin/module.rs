//! The last step of building the module: what is exported and does nothing is taken off, and what only that needed.
//!
//! A host enters the VM for each callback that a module exports, whatever it does there: with the callbacks of bodies
//! exported, once for each chunk of each body. The SDK exports all that there are.

use std::error::Error;
use std::path::Path;

/// The callbacks that weir has an implementation of, and what hosts need to load and run a module.
const KEPT: [&str; 15] = [
    "_initialize",
    "memory",
    "proxy_abi_version_0_2_1",
    "proxy_on_configure",
    "proxy_on_context_create",
    "proxy_on_delete",
    "proxy_on_done",
    "proxy_on_http_call_response",
    "proxy_on_log",
    "proxy_on_memory_allocate",
    "proxy_on_queue_ready",
    "proxy_on_request_headers",
    "proxy_on_response_headers",
    "proxy_on_tick",
    "proxy_on_vm_start",
];

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("say which module: weir-module FILE")?;
    let path = Path::new(&path);
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut module = walrus::Module::from_file(path).map_err(|error| told(&error))?;
    let exported: Vec<String> = module.exports.iter().map(|export| export.name.clone()).collect();
    for name in &KEPT {
        if !exported.iter().any(|export| export == name) {
            return Err(told(&format!("exports no {name}; is this weir's module?")).into());
        }
    }
    for name in exported.iter().filter(|name| !KEPT.contains(&name.as_str())) {
        module.exports.remove(name).map_err(|error| told(&error))?;
    }
    walrus::passes::gc::run(&mut module);
    // Beside it first: cargo has a link to the file that it built.
    let new = path.with_extension("new");
    module.emit_wasm_file(&new).map_err(|error| told(&error))?;
    std::fs::rename(&new, path).map_err(|error| told(&error).into())
}
