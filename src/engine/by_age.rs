//! A map whose keys only grow, as the numbers of requests and calls do.

use std::collections::VecDeque;

/// Values by their keys, in one list, the oldest first. A tree would cost the module 3 kB for each kind of value; what
/// moves when one is taken out is 16 bytes for each that is younger, or for each that is older if those are fewer.
#[derive(Debug)]
pub(super) struct ByAge<K, V> {
    items: VecDeque<(K, Box<V>)>,
}

impl<K: Copy + Ord, V> ByAge<K, V> {
    pub fn new() -> ByAge<K, V> {
        ByAge { items: VecDeque::new() }
    }

    /// Adds a value whose key is larger than all that there are.
    pub fn insert(&mut self, key: K, value: V) {
        self.items.push_back((key, Box::new(value)));
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.items.get(self.at(key)?).map(|(_, value)| value.as_ref())
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.at(key)?;
        self.items.get_mut(at).map(|(_, value)| value.as_mut())
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.at(key)?;
        self.items.remove(at).map(|(_, value)| *value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.items.iter().map(|(key, value)| (key, value.as_ref()))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.items.iter_mut().map(|(_, value)| value.as_mut())
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn at(&self, key: &K) -> Option<usize> {
        self.items.binary_search_by_key(key, |(key, _)| *key).ok()
    }
}
