//! What Envoy counts of its listeners and of the filter that it discovers.

use std::collections::BTreeMap;

pub(super) const MANAGER: &str = "listener_manager.";

/// What Envoy counts of the filter that `envoy/listener.yaml` discovers.
pub(super) const FILTER: &str = "extension_config_discovery.http_filter.weir.";

/// Envoy's counts of what became of a filter that it discovers.
#[derive(Default)]
pub(super) struct FilterCounts {
    pub(super) accepted: u64,
    pub(super) refused: u64,
}

impl FilterCounts {
    pub(super) fn of(stats: &BTreeMap<String, u64>) -> FilterCounts {
        let count = |name: &str| stats.get(&format!("{FILTER}{name}")).copied().unwrap_or_default();
        FilterCounts {
            accepted: count("update_success"),
            // Rejected: read, but not accepted. Failed: not even read.
            refused: count("update_rejected") + count("update_failure"),
        }
    }
}

/// Envoy's counts of what became of its listeners.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    /// Listeners added or modified.
    pub(super) changes: u64,
    /// The same, once for each worker that has the change.
    pub(super) served: u64,
    pub(super) warming: u64,
}

impl Counts {
    pub(super) fn of(stats: &BTreeMap<String, u64>) -> Counts {
        let count = |name: &str| {
            let name = format!("{MANAGER}{name}");
            stats.get(&name).copied().unwrap_or_default()
        };
        Counts {
            accepted: count("lds.update_success"),
            // Rejected: read, but not accepted. Failed: not even read.
            refused: count("lds.update_rejected") + count("lds.update_failure"),
            changes: count("listener_added") + count("listener_modified"),
            served: count("listener_create_success"),
            warming: count("total_listeners_warming"),
        }
    }
}
