//! The limiter as its script defines it: what it answers to a call, whenever that is executed.

use std::collections::BTreeMap;

use weir_sim::root::{Acquire, Root};

use crate::fake::Call;

/// Every bucket by its key.
#[derive(Default)]
pub struct Limiter(BTreeMap<String, Root>);

impl Limiter {
    /// Executes a call; gives its reply.
    pub fn execute(&mut self, now_ms: u64, call: &Call) -> String {
        let (key, numbers) = call.key_and_numbers();
        let acquire = Acquire::from_args(&numbers).expect("arguments as they are promised");
        let reply = self.0.entry(key).or_default().acquire(now_ms, &acquire).to_list();
        // The world puts the call's number before it: see `Proxy::reply`.
        let reply = &reply[1..];
        format!("{{\"{}\":{reply:?}}}", call.command())
    }
}
