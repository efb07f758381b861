//! Load on one tenant, what its clients saw, and whether one bucket could have admitted that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use weir_stack::Client;

use crate::rig::{Rig, of};

/// Connections to each Envoy.
const CLIENTS: usize = 24;

/// How long an Envoy stays the hot one.
const HOP: Duration = Duration::from_millis(500);

/// A limit, as a policy has it.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub requests: u64,
    pub per_ms: u64,
    pub burst: u64,
}

impl Limit {
    pub const fn per_second(requests: u64, burst: u64) -> Limit {
        Limit { requests, per_ms: 1000, burst }
    }

    pub const fn per_day(requests: u64) -> Limit {
        Limit { requests, per_ms: 86_400_000, burst: requests }
    }

    /// As it stands in a policy.
    pub fn json(self) -> String {
        format!(r#"{{"requests": {}, "per": "{}s", "burst": {}}}"#, self.requests, self.per_ms / 1000, self.burst)
    }

    /// Tokens that come back in this time.
    pub fn refilled(self, ms: u64) -> u64 {
        self.requests * ms / self.per_ms
    }

    /// What may be admitted in any interval of this length.
    pub fn most_in(self, ms: u64) -> u64 {
        self.burst + self.refilled(ms)
    }
}

/// Which Envoys the requests go to.
#[derive(Clone, Copy, Debug)]
pub enum Spread {
    /// 80 % of them to the first one.
    Skewed,
    /// 80 % of them to one, which is another one each [`HOP`].
    Hopping,
}

impl Spread {
    fn envoy_of(self, number: u64, elapsed: Duration, envoys: usize) -> usize {
        let hot = match self {
            Spread::Skewed => 0,
            Spread::Hopping => (elapsed.as_millis() / HOP.as_millis()) as usize,
        };
        // Of ten requests in a row eight, in no order, go to the hot one.
        let other = [0, 0, 0, 1, 0, 0, 0, 0, 2, 0][(number % 10) as usize];
        (hot + other) % envoys
    }
}

/// Requests of one tenant at a steady rate.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    pub tenant: &'a str,
    pub per_second: u64,
    pub spread: Spread,
}

/// What a client saw of one request.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub sent: Instant,
    pub answered: Instant,
    pub status: u16,
}

impl Seen {
    pub fn took(&self) -> Duration {
        self.answered - self.sent
    }
}

/// Sends a load until `act` is over, and gives what its clients saw, in the order in which they sent.
pub fn under_load(rig: &mut Rig, load: Load<'_>, act: impl FnOnce(&mut Rig)) -> Vec<Seen> {
    let ports = rig.ports();
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, seen) = mpsc::channel();
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let (sender, next, over, ports) = (sender.clone(), &next, &over, &ports);
            scope.spawn(move || {
                let mut clients: Vec<Client> = ports.iter().map(|port| Client::new(*port)).collect();
                let request = of(load.tenant);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let due = start + Duration::from_nanos(number * 1_000_000_000 / load.per_second);
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let envoy = load.spread.envoy_of(number, start.elapsed(), ports.len());
                    let sent = Instant::now();
                    // A dead Envoy refuses connections: nobody is admitted.
                    if let Ok(answer) = clients[envoy].send(&request) {
                        let _ = sender.send(Seen { sent, answered: Instant::now(), status: answer.status });
                    }
                }
            });
        }
        act(rig);
        over.store(true, Ordering::Relaxed);
    });
    drop(sender);
    let mut seen: Vec<Seen> = seen.into_iter().collect();
    seen.sort_by_key(|seen| seen.sent);
    seen
}

/// How many have been admitted.
pub fn admitted(seen: &[Seen]) -> u64 {
    seen.iter().filter(|seen| seen.status == 200).count() as u64
}

/// What one full bucket would have admitted of the same requests.
pub fn ideally_admitted(seen: &[Seen], limit: Limit) -> Vec<bool> {
    let (capacity, token) = (limit.burst * limit.per_ms * 1000, limit.per_ms * 1000);
    let (mut level, mut at) = (capacity, seen.first().map(|seen| seen.sent));
    let take = |seen: &Seen| {
        let micros = at.replace(seen.sent).map_or(0, |at| (seen.sent - at).as_micros() as u64);
        level = (level + micros * limit.requests).min(capacity);
        let fits = level >= token;
        level -= if fits { token } else { 0 };
        fits
    };
    seen.iter().map(take).collect()
}

/// Asserts that in no interval more was admitted than `most` says of one of so many milliseconds, and gives how much
/// more there could have been in the one that comes next to it.
///
/// Somebody is admitted after sending and before the answer. So from the sending of one to the answer of another there
/// are at least all those who sent and were answered between: no order of what happened excuses more.
pub fn assert_in_every_interval(seen: &[Seen], most: impl Fn(u64) -> u64) -> u64 {
    // Redis counts whole milliseconds, of which an interval may touch one more than it lasts.
    let ms = |span: Duration| span.as_micros().div_ceil(1000) as u64 + 1;
    let mut admitted: Vec<Seen> = seen.iter().filter(|seen| seen.status == 200).copied().collect();
    admitted.sort_by_key(|seen| seen.sent);
    let (mut answers, mut nearest): (Vec<Instant>, u64) = (Vec::new(), u64::MAX);
    for first in admitted.iter().rev() {
        let at = answers.partition_point(|answered| *answered <= first.answered);
        answers.insert(at, first.answered);
        for (before, last) in answers.iter().enumerate().skip(at) {
            let (count, span) = (before as u64 + 1, ms(*last - first.sent));
            let most = most(span);
            assert!(count <= most, "{count} were admitted in {span} ms, at most {most} may be");
            nearest = nearest.min(most - count);
        }
    }
    nearest
}
