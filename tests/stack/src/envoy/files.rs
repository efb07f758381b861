//! What an Envoy reads, made from the files of `envoy/`.

use std::path::Path;

use crate::render::render;
use crate::{Error, scratch};

pub(super) const LISTENER: &str = include_str!("../../../../envoy/listener.yaml");

pub(super) fn bootstrap_text(listeners: &Path, upstream: u16, bridge: u16, webdis: u16) -> Result<String, Error> {
    render(
        "envoy/bootstrap.yaml",
        include_str!("../../../../envoy/bootstrap.yaml"),
        &[
            ("ADMIN_PORT", "0"),
            ("LISTENERS", &scratch::show(listeners)),
            ("UPSTREAM_PORT", &upstream.to_string()),
            ("BRIDGE_PORT", &bridge.to_string()),
            ("WEBDIS_PORT", &webdis.to_string()),
        ],
    )
}

/// A file of listeners that discover the filter, with the filter written out in its place: `envoy/filter.yaml`, whose
/// `@MODULE@` and `@POLICY@` are still to be replaced. Policies in listeners reach new connections alone.
///
/// # Panics
/// The file does not discover the filter as those of `envoy/` do.
pub fn with_filter(listeners: &str) -> String {
    let filter = include_str!("../../../../envoy/filter.yaml");
    let (_, config) = filter.split_once("\n    typed_config:\n").expect("the filter");
    let (before, rest) = listeners.split_once("                - name: weir\n").expect("a filter of this name");
    let (_, after) = rest.split_once("envoy.extensions.filters.http.wasm.v3.Wasm]\n").expect("its discovery");
    let config: String = config.lines().map(|line| format!("              {line}\n")).collect();
    format!("{before}                - name: weir\n                  typed_config:\n{config}{after}")
}

pub(super) fn listener(port: u16, module: &str, policy: &str) -> Result<String, Error> {
    let policy = block(&with_filter(LISTENER), policy);
    let values = [("PORT", &*port.to_string()), ("MODULE", module), ("POLICY", &policy)];
    render("envoy/listener.yaml", &with_filter(LISTENER), &values)
}

pub(super) fn filter(module: &str, policy: &str) -> Result<String, Error> {
    let template = include_str!("../../../../envoy/filter.yaml");
    render("envoy/filter.yaml", template, &[("MODULE", module), ("POLICY", &block(template, policy))])
}

/// A policy as a YAML block in the place of a template: the text as it is, each line indented as far as the first.
fn block(template: &str, policy: &str) -> String {
    let indented = template.lines().find(|line| line.trim() == "@POLICY@");
    let indent = indented.map_or(0, |line| line.len() - line.trim_start().len());
    policy.trim().replace('\n', &format!("\n{}", " ".repeat(indent)))
}

pub(super) fn fill(listeners: &str, port: u16, module: &str, filter: &Path) -> Result<String, Error> {
    let values = [("PORT", &*port.to_string()), ("MODULE", module), ("FILTER", &*scratch::show(filter))];
    render("the listeners", listeners, &values)
}
