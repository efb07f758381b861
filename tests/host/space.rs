//! Shared data and queues as Envoy has them: one space for all VMs of a vm_id, on whatever threads they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// A space; clones are the same one.
#[derive(Clone, Default)]
pub struct Space(Arc<Mutex<Data>>);

#[derive(Default)]
struct Data {
    values: BTreeMap<String, (Vec<u8>, u32)>,
    /// The last number that was given away; they start at 1, in one row for all keys.
    number: u32,
    /// By part: how many of the next writes come too late.
    late: BTreeMap<String, u32>,
    /// By part: reads, writes that came in time, and writes that were too late.
    calls: BTreeMap<String, [u64; 3]>,
    vms: u32,
    /// By id less one.
    queues: Vec<Queue>,
    /// Wake-ups that are on their way: VM, root and queue.
    wakeups: VecDeque<(u32, u32, u32)>,
}

struct Queue {
    name: String,
    /// Whom it wakes: VM and root.
    wakes: (u32, u32),
    items: VecDeque<Vec<u8>>,
}

impl Data {
    fn store(&mut self, key: &str, value: &[u8]) {
        self.number += 1;
        self.values.insert(key.to_owned(), (value.to_vec(), self.number));
    }
}

impl Space {
    /// What a key is for: `seed`, `breaker`, or `table` for any of the sets, whose number hangs on the seed.
    pub fn part(key: &str) -> &str {
        let mut parts = key.split('.').skip(4);
        match (parts.next(), parts.next()) {
            (Some(part @ ("seed" | "breaker" | "new_keys")), _) => part,
            (Some(_), Some(set)) if u64::from_str_radix(set, 16).is_ok() => "table",
            _ => key,
        }
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.0.lock().expect("no VM has died in it")
    }

    pub fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        let mut data = self.data();
        data.calls.entry(Self::part(key).to_owned()).or_default()[0] += 1;
        data.values.get(key).cloned()
    }

    /// Whether it was stored: where the key is absent, where its number is that one, and always for the number 0.
    pub fn set(&self, key: &str, value: &[u8], number: u32) -> bool {
        let mut data = self.data();
        if let Some(late) = data.late.get_mut(Self::part(key)).filter(|late| **late > 0) {
            *late -= 1;
            // Somebody else has just written: the same, or something empty that was not there.
            let theirs = data.values.get(key).map(|(value, _)| value.clone()).unwrap_or_default();
            data.store(key, &theirs);
        }
        let in_time = number == 0 || data.values.get(key).is_none_or(|(_, found)| *found == number);
        if in_time {
            data.store(key, value);
        }
        data.calls.entry(Self::part(key).to_owned()).or_default()[if in_time { 1 } else { 2 }] += 1;
        in_time
    }

    /// All is lost, as when the host restarts; numbers go on.
    pub fn wipe(&self) {
        self.data().values.clear();
    }

    /// Changes the values of a part, as nobody should; returns how many.
    pub fn corrupt(&self, part: &str, mut corrupt: impl FnMut(&mut Vec<u8>)) -> usize {
        let mut data = self.data();
        let mut count = 0;
        for (_, (value, _)) in data.values.iter_mut().filter(|(key, _)| Self::part(key) == part) {
            corrupt(value);
            count += 1;
        }
        count
    }

    /// The next writes to a part come too late.
    pub fn lose(&self, part: &str, writes: u32) {
        self.data().late.insert(part.to_owned(), writes);
    }

    /// Reads of a part, writes that came in time, and writes that were too late.
    pub fn calls(&self, part: &str) -> [u64; 3] {
        self.data().calls.get(part).copied().unwrap_or_default()
    }

    /// A VM comes; its number.
    pub fn join(&self) -> u32 {
        let mut data = self.data();
        data.vms += 1;
        data.vms
    }

    /// The id of the queue of this name, which wakes this root of this VM from now on.
    pub fn register_queue(&self, name: &str, vm: u32, root: u32) -> u32 {
        let mut data = self.data();
        let at = data.queues.iter().position(|queue| queue.name == name).unwrap_or(data.queues.len());
        if at == data.queues.len() {
            data.queues.push(Queue { name: name.to_owned(), wakes: (vm, root), items: VecDeque::new() });
        }
        data.queues[at].wakes = (vm, root);
        at as u32 + 1
    }

    /// Whom it wakes: soon, and not at once. None where there is no such queue.
    pub fn enqueue(&self, queue: u32, value: &[u8]) -> Option<u32> {
        let mut data = self.data();
        let found = data.queues.get_mut(queue.checked_sub(1)? as usize)?;
        found.items.push_back(value.to_vec());
        let (vm, root) = found.wakes;
        data.wakeups.push_back((vm, root, queue));
        Some(vm)
    }

    /// None where there is no such queue; None in it where it is empty.
    pub fn dequeue(&self, queue: u32) -> Option<Option<Vec<u8>>> {
        let mut data = self.data();
        let found = data.queues.get_mut(queue.checked_sub(1)? as usize)?;
        Some(found.items.pop_front())
    }

    /// Takes the next wake-up of a VM: root and queue.
    pub fn take_wakeup(&self, vm: u32) -> Option<(u32, u32)> {
        let mut data = self.data();
        let at = data.wakeups.iter().position(|(of, ..)| *of == vm)?;
        data.wakeups.remove(at).map(|(_, root, queue)| (root, queue))
    }

    pub fn queue_names(&self, vm: u32) -> Vec<String> {
        let data = self.data();
        data.queues.iter().filter(|queue| queue.wakes.0 == vm).map(|queue| queue.name.clone()).collect()
    }

    /// Everything that is there.
    pub fn values(&self) -> BTreeMap<String, Vec<u8>> {
        self.data().values.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }
}
