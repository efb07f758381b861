//! The workers of a proxy, and how one wakes another: by the queue of each, whose numbers stand in shared data.

use proxy_wasm::hostcalls;

use super::shared_data::SharedData;
use crate::local::{Store, update};

/// Where they stand.
const NAME: &str = "weir.workers";

/// First bytes of the value: ours, and the version of the layout.
const MAGIC: [u8; 8] = *b"weirwrk1";

/// What a worker says who wakes itself.
pub(super) const BY_ITSELF: u8 = b'w';

/// What a worker says who wakes others: the call that they wait for is over.
pub(super) const BY_OTHER: u8 = b'o';

/// So many workers can be told apart; of more, those that came last.
const MOST: usize = 32;

/// The value: how many have come, and the queue of each of the last.
struct Workers {
    count: u32,
    queues: Vec<u32>,
}

/// Notes the queue of a worker. Gives its number, the one it had before if it had one; None where shared data cannot be
/// had, and then it is woken by its tick.
pub(super) fn join(known: Option<u32>, queue: u32) -> Option<u32> {
    update(&SharedData, NAME, |found| {
        let mut workers =
            found.as_deref().and_then(Workers::decode).unwrap_or(Workers { count: 0, queues: vec![0; MOST] });
        let worker = known.unwrap_or(workers.count);
        if known.is_none() {
            workers.count = workers.count.wrapping_add(1);
        }
        if let Some(place) = workers.queues.get_mut(place(worker)) {
            *place = queue;
        }
        (Some(workers.encode()), worker)
    })
}

/// Wakes workers, a bit for each.
pub(super) fn wake(others: u32) {
    let workers = SharedData.get(NAME).and_then(|(bytes, _)| Workers::decode(&bytes));
    for (bit, queue) in workers.iter().flat_map(|workers| workers.queues.iter().enumerate()) {
        if others & 1_u32.rotate_left(u32::try_from(bit).unwrap_or_default()) != 0 {
            // One that has gone meanwhile does not mind; one that is not reached wakes by its tick.
            let _ = hostcalls::enqueue_shared_queue(*queue, Some(&[BY_OTHER]));
        }
    }
}

fn place(worker: u32) -> usize {
    usize::try_from(worker).unwrap_or_default() % MOST
}

impl Workers {
    fn encode(&self) -> Vec<u8> {
        let numbers = std::iter::once(self.count).chain(self.queues.iter().copied());
        MAGIC.into_iter().chain(numbers.flat_map(u32::to_le_bytes)).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Workers> {
        let numbers = bytes.strip_prefix(&MAGIC)?.chunks_exact(4);
        let mut numbers = numbers.filter_map(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)));
        let count = numbers.next()?;
        let queues: Vec<u32> = numbers.collect();
        (queues.len() == MOST).then_some(Workers { count, queues })
    }
}
