//! Envoy's shared data, as a store of the core.

use std::cell::Cell;

use proxy_wasm::hostcalls;

use crate::local::{Lost, Over, Store};

/// Shared data of a vm_id.
#[derive(Debug)]
pub(super) struct SharedData;

thread_local! {
    static CONFLICTS: Cell<u64> = const { Cell::new(0) };
}

/// How many writes of this VM have come too late since this was asked last.
pub(super) fn take_conflicts() -> u64 {
    CONFLICTS.take()
}

/// A number that no value has: Envoy stores where the name is absent, whatever the number, and else finds it wrong.
/// Without a number it would overwrite what another worker has stored meanwhile.
const ABSENT: u32 = u32::MAX;

impl Store for SharedData {
    fn get(&self, name: &str) -> Option<(Vec<u8>, u32)> {
        match hostcalls::get_shared_data(name) {
            // The SDK gives an empty value as none. It is there all the same, and only its number replaces it.
            Ok((value, Some(number))) => Some((value.unwrap_or_default(), number)),
            _ => None,
        }
    }

    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost> {
        let number = match over {
            Over::Nothing => ABSENT,
            Over::This(number) => number,
        };
        hostcalls::set_shared_data(name, Some(value), Some(number)).map_err(|_| {
            CONFLICTS.set(CONFLICTS.get().saturating_add(1));
            Lost
        })
    }
}
