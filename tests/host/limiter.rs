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
        let asks = call.asks();
        let (key, numbers) = asks.split_once(' ').expect("a key and numbers");
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().expect("a number")).collect();
        let acquire = Acquire::from_args(&numbers).expect("arguments as they are promised");
        let reply = self.0.entry(key.to_owned()).or_default().acquire(now_ms, &acquire).to_list();
        format!("{{\"{}\":{reply:?}}}", call.command())
    }
}
