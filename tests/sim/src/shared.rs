//! Shared data of a proxy, in memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use weir::local::{Lost, Over, Store};

/// Clones are other workers' hands on the same data.
#[derive(Clone, Debug, Default)]
pub struct Shared(Rc<RefCell<Values>>);

#[derive(Debug, Default)]
struct Values {
    /// By name, with their numbers, which start from 1. The hash has no seed, so that runs repeat.
    values: HashMap<String, (Vec<u8>, u32), BuildHasherDefault<Quick>>,
    /// So many puts more come too late.
    lost: u32,
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

    pub fn bytes(&self) -> usize {
        self.0.borrow().values.iter().map(|(name, (value, _))| name.len() + value.len()).sum()
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
        self.0.borrow().values.get(name).cloned()
    }

    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost> {
        let mut inside = self.0.borrow_mut();
        if inside.lost > 0 {
            inside.lost -= 1;
            if let Some((_, number)) = inside.values.get_mut(name) {
                *number += 1;
            }
            return Err(Lost);
        }
        match (inside.values.get_mut(name), over) {
            (None, Over::Nothing) => {
                inside.values.insert(name.to_owned(), (value.to_vec(), 1));
            }
            (Some((found, number)), Over::This(of)) if *number == of => {
                found.clear();
                found.extend_from_slice(value);
                *number += 1;
            }
            _ => return Err(Lost),
        }
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
            let folded = u128::from(self.0 ^ u64::from_le_bytes(*word) ^ 0x2545_f491_4f6c_dd1d)
                * u128::from(0x9e37_79b9_7f4a_7c15_u64);
            self.0 = (folded as u64) ^ (folded >> 64) as u64;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
