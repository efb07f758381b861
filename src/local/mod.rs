//! What a proxy keeps of its own, for all its workers: the table and the breaker, in the host's shared data.
//!
//! Shared data is one space for all filters of a proxy, so every name starts with a prefix made of the namespace and
//! the table's geometry. It may be wiped at any time, and values may be torn or foreign: whatever cannot
//! be read as ours is absent. For what the limiter has said that costs a call; a bucket of the proxy's own is full again.

pub mod breaker;
pub mod lease;
pub mod new_keys;
pub mod table;
pub mod top;

/// Shared data of a host: values by name, each with a number that changes with every write.
pub trait Store: std::fmt::Debug {
    /// The value of a name and its number.
    fn get(&self, name: &str) -> Option<(Vec<u8>, u32)>;

    /// Writes a value where the name is absent ([`Over::Nothing`]) or still has that number.
    ///
    /// # Errors
    /// [`Lost`]: somebody else has written meanwhile.
    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost>;
}

/// What a write may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing: the name must be absent.
    Nothing,
    /// The value of this number.
    This(u32),
}

/// A write came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// A proxy without shared data: nothing is ever there.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl Store for Nowhere {
    fn get(&self, _name: &str) -> Option<(Vec<u8>, u32)> {
        None
    }

    fn put(&self, _name: &str, _value: &[u8], _over: Over) -> Result<(), Lost> {
        Err(Lost)
    }
}

/// How often a write is tried before its caller does without.
const TRIES: u8 = 8;

/// Reads a value, changes it and writes it, until nobody else has written meanwhile. `change` returns what to write,
/// nothing where it may stay, and what it found out. None where all tries were lost.
pub(crate) fn update<T>(
    store: &dyn Store,
    name: &str,
    mut change: impl FnMut(Option<Vec<u8>>) -> (Option<Vec<u8>>, T),
) -> Option<T> {
    for _ in 0..TRIES {
        let found = store.get(name);
        let (value, over) = match found {
            Some((value, number)) => (Some(value), Over::This(number)),
            None => (None, Over::Nothing),
        };
        let (write, outcome) = change(value);
        let Some(write) = write else {
            return Some(outcome);
        };
        if store.put(name, &write, over).is_ok() {
            return Some(outcome);
        }
    }
    None
}
