//! A state of a case.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use weir::engine::plan::{Plan, Receipt};
use weir::engine::{CallId, CallOwner, Engine, Ticket};
use weir::policy::Policy;
use weir::rules::Ask;

use super::{Budget, Case};
use crate::check::{Holding, Limit, Promise};
use crate::root::{Acquire, Reply, Root};
use crate::scenario::{Limits, Network, Scenario};
use crate::shared::Shared;
use crate::wire::Sent;
use crate::world::asks;

#[derive(Hash)]
pub(super) struct Message {
    pub(super) worker: usize,
    pub(super) rule: usize,
    pub(super) call: CallId,
    pub(super) sent: SentHash,
    pub(super) sent_at: u64,
    pub(super) ends: u64,
    /// The flow has been told how it ended.
    pub(super) over: bool,
    /// Nothing of it will arrive any more.
    pub(super) lost: bool,
    pub(super) reply: Option<Reply>,
}

pub(super) struct SentHash(pub(super) Sent);

impl Hash for SentHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A call's number is of no other meaning than that its reply has it.
        Acquire { number: 0, ..self.0.acquire.clone() }.hash(state);
        self.0.by_text.hash(state);
    }
}

pub(super) struct Waiting {
    pub(super) worker: usize,
    pub(super) cost: u64,
    pub(super) arrived: u64,
    pub(super) ticket: Ticket,
}

/// A state of a case.
pub(super) struct Small<'c> {
    pub(super) ground: &'c Ground,
    pub(super) now: u64,
    pub(super) shared: Vec<Shared>,
    /// What a proxy keeps that has done nothing.
    pub(super) bytes_at_first: usize,
    /// Of each proxy.
    pub(super) plans: Vec<Rc<Plan>>,
    pub(super) flows: Vec<Engine<u32>>,
    /// Of each rule.
    pub(super) roots: Vec<Root>,
    pub(super) promises: Vec<Promise>,
    pub(super) messages: Vec<Message>,
    pub(super) waiting: Vec<Option<Waiting>>,
    /// Of each proxy, of each rule.
    pub(super) holdings: Vec<Vec<Holding>>,
    /// Where there are several rules: a worker, a rule, what was granted there to those who wait for other rules, too,
    /// and until when they wait.
    pub(super) credits: Vec<(usize, usize, u64, u64)>,
    /// Who has taken tokens to put them back, and where from.
    pub(super) stalled: Vec<(usize, Receipt)>,
    pub(super) left: Budget,
    pub(super) violation: Option<String>,
    pub(super) log: Option<Vec<String>>,
}

/// What all states of a case share.
pub(super) struct Ground {
    pub(super) case: Case,
    pub(super) policy: Policy,
    pub(super) asks: Vec<Vec<Ask>>,
    pub(super) timeout: u64,
    pub(super) limits: Vec<Limit>,
}

impl Ground {
    pub(super) fn new(case: Case) -> Ground {
        let scenario = Scenario {
            seed: 0,
            modes: case.modes.clone(),
            proxies: 1,
            workers: 1,
            buckets: 1,
            limits: Limits(vec![case.limit]),
            windows: case.windows.then_some(false),
            tiers: false,
            costs: case.costs.clone(),
            timeout_ms: 100,
            table_entries: 64,
            // The breaker stays closed, so that a plan keeps nothing from one play to the next.
            breaker_failures: 1_000_000,
            network: Network::default(),
            arrivals: Vec::new(),
            faults: Vec::new(),
            drifts: vec![0; 2],
            ends: 0,
            counts_from: 0,
        };
        let policy = scenario.policy(0);
        let asks = case.costs.iter().map(|cost| asks(&policy, &scenario, 0, *cost, 0)).collect();
        let limits = (0..).zip(&case.modes).map(|(rule, _)| scenario.limit(rule, 0)).collect();
        // Deadlines by a slow clock are a little later.
        let timeout = scenario.timeout_ms + case.slow.div_ceil(450);
        Ground { case, policy, asks, timeout, limits }
    }
}

impl<'c> Small<'c> {
    pub(super) fn new(ground: &'c Ground, log: bool) -> Small<'c> {
        let case = &ground.case;
        let shared: Vec<Shared> = (0..case.proxies).map(|_| Shared::default()).collect();
        let plan = |shared: &Shared| Rc::new(Plan::new(1, ground.policy.clone(), Rc::new(shared.clone()), (1, 2)));
        let plans = shared.iter().map(plan).collect();
        let bytes_at_first = shared.first().map_or(0, Shared::bytes);
        let workers = 0..case.proxies * case.workers;
        let flow = |worker: usize| Engine::new(CallOwner::Root, worker as u64, (worker % case.workers) as u32);
        Small {
            now: 0,
            flows: workers.map(flow).collect(),
            plans,
            bytes_at_first,
            shared,
            roots: vec![Root::default(); case.modes.len()],
            promises: ground.limits.iter().map(|limit| Promise::of(*limit, case.windows)).collect(),
            messages: Vec::new(),
            waiting: Vec::new(),
            holdings: vec![vec![Holding::default(); case.modes.len()]; case.proxies],
            credits: Vec::new(),
            stalled: Vec::new(),
            left: case.budget,
            violation: None,
            log: log.then(Vec::new),
            ground,
        }
    }

    pub(super) fn proxy(&self, worker: usize) -> usize {
        worker / self.ground.case.workers
    }

    pub(super) fn note(&mut self, told: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>6} ms  {}", self.now, told()));
        }
    }

    pub(super) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, &self.roots, &self.messages, &self.holdings, &self.credits, self.left).hash(&mut hasher);
        self.promises.iter().for_each(|promise| promise.state().hash(&mut hasher));
        for waiting in self.waiting.iter().flatten() {
            (waiting.worker, waiting.cost, waiting.arrived).hash(&mut hasher);
        }
        for (worker, receipt) in &self.stalled {
            (worker, format!("{receipt:?}")).hash(&mut hasher);
        }
        for shared in &self.shared {
            shared.digest().hash(&mut hasher);
        }
        hasher.finish()
    }
}
