//! Shared data of a proxy, in memory: for the simulator, and for all other tests of the core.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use weir::local::{Lost, Over, Store};
use weir::random::GOLDEN_GAMMA;

/// Clones are other workers' hands on the same data.
#[derive(Clone, Debug, Default)]
pub struct Shared(Rc<RefCell<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    /// By name, with their numbers. The hash has no seed, so that runs repeat.
    values: HashMap<String, (Vec<u8>, u32), BuildHasherDefault<Quick>>,
    /// The number of the last write: none is given twice.
    number: u32,
    /// So many puts more come too late.
    lost: u32,
    gets: u64,
    puts: u64,
}

impl Inside {
    fn write(&mut self, name: &str, value: &[u8]) {
        self.number += 1;
        match self.values.get_mut(name) {
            Some((found, number)) => {
                found.clear();
                found.extend_from_slice(value);
                *number = self.number;
            }
            None => {
                self.values.insert(name.to_owned(), (value.to_vec(), self.number));
            }
        }
    }
}

impl Shared {
    /// The next puts come too late, as if another worker had written meanwhile.
    pub fn lose(&self, puts: u32) {
        self.0.borrow_mut().lost = puts;
    }

    /// Whether the next put comes too late.
    pub fn loses(&self) -> bool {
        self.0.borrow().lost > 0
    }

    /// All is gone.
    pub fn wipe(&self) {
        self.0.borrow_mut().values.clear();
    }

    /// Somebody who is not asked writes.
    pub fn set(&self, name: &str, value: &[u8]) {
        self.0.borrow_mut().write(name, value);
    }

    /// Somebody who is not asked removes it.
    pub fn remove(&self, name: &str) {
        self.0.borrow_mut().values.remove(name);
    }

    pub fn value(&self, name: &str) -> Option<Vec<u8>> {
        self.0.borrow().values.get(name).map(|(value, _)| value.clone())
    }

    /// All that is there: by name, with the numbers.
    pub fn values(&self) -> BTreeMap<String, (Vec<u8>, u32)> {
        self.0.borrow().values.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.values().into_keys().collect()
    }

    /// Bytes of all values, their names apart.
    pub fn bytes(&self) -> usize {
        self.0.borrow().values.values().map(|(value, _)| value.len()).sum()
    }

    /// How often it was read and written.
    pub fn uses(&self) -> [u64; 2] {
        let inside = self.0.borrow();
        [inside.gets, inside.puts]
    }

    /// Feeds what is there to a hash, in an order that does not depend on the map's.
    pub fn digest(&self) -> u64 {
        let inside = self.0.borrow();
        inside.values.iter().fold(0, |sum: u64, (name, (value, _))| {
            let mut hasher = Quick::default();
            hasher.write(name.as_bytes());
            hasher.write(value);
            sum.wrapping_add(hasher.finish())
        })
    }
}

impl Store for Shared {
    fn get(&self, name: &str) -> Option<(Vec<u8>, u32)> {
        let mut inside = self.0.borrow_mut();
        inside.gets += 1;
        inside.values.get(name).cloned()
    }

    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost> {
        let mut inside = self.0.borrow_mut();
        inside.puts += 1;
        if inside.lost > 0 {
            inside.lost -= 1;
            if let Some(value) = inside.values.get(name).map(|(value, _)| value.clone()) {
                inside.write(name, &value);
            }
            return Err(Lost);
        }
        match (inside.values.get(name), over) {
            (None, Over::Nothing) => {}
            (Some((_, number)), Over::This(of)) if *number == of => {}
            _ => return Err(Lost),
        }
        inside.write(name, value);
        Ok(())
    }
}

/// Eight bytes at a time, multiplied and folded: nobody chooses names against a simulator.
#[derive(Default)]
pub struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        for word in words.iter().chain([&last]) {
            let folded =
                u128::from(self.0 ^ u64::from_le_bytes(*word) ^ 0x2545_f491_4f6c_dd1d) * u128::from(GOLDEN_GAMMA);
            self.0 = (folded as u64) ^ (folded >> 64) as u64;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
