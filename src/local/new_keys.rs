//! How many keys that a proxy does not know have asked a limiter in this second: a flood of made-up tenants must not
//! become a flood of calls.
//!
//! A small bucket in a value of its own, so that no tenant's entry can take its place.

use super::{Store, update};
use crate::algorithm::{Share, Used};
use crate::clock::Ms;
use crate::policy::Limit;

/// First bytes of the value: ours, and the version of the layout.
const MAGIC: [u8; 8] = *b"weirnew1";

/// The bucket of new keys of one limiter.
#[derive(Debug)]
pub struct NewKeys {
    name: String,
    most: Limit,
}

impl NewKeys {
    /// The bucket of this name, full until shared data says otherwise.
    pub fn new(name: String, most: Limit) -> NewKeys {
        NewKeys { name, most }
    }

    /// Counts one more, if it may ask. Where the count cannot be reached, the limiter is spared.
    pub fn admits(&self, store: &dyn Store, now: Ms) -> bool {
        let share = update(store, &self.name, |found| {
            let before = found.and_then(|bytes| decode(&bytes)).unwrap_or(Used::nothing(now));
            let mut used = before;
            let share = used.take(self.most, now, 1);
            ((used != before).then(|| encode(used)), share)
        });
        matches!(share, Some(Share::Granted(_)))
    }
}

fn encode(used: Used) -> Vec<u8> {
    let numbers = [used.units, used.at.0, checksum(used)];
    MAGIC.into_iter().chain(numbers.into_iter().flat_map(u64::to_le_bytes)).collect()
}

fn decode(bytes: &[u8]) -> Option<Used> {
    let mut rest = bytes.strip_prefix(&MAGIC)?;
    let mut number = || Some(u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?));
    let (used, sum) = (Used { units: number()?, at: Ms(number()?) }, number()?);
    (rest.is_empty() && sum == checksum(used)).then_some(used)
}

/// Enough to tell a torn value; nobody gains by forging one.
fn checksum(used: Used) -> u64 {
    used.units ^ used.at.0.rotate_left(32) ^ u64::from_le_bytes(MAGIC)
}
