//! Workers: their lives, their plans, their ticks and how they wake one another.

use std::collections::BTreeMap;
use std::rc::Rc;

use weir::clock::{Clock, Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{CallOwner, Engine, Step};

use super::{Event, Proxy, Spot, Worker, World};

impl World<'_> {
    /// A worker starts to live, with the newest policy.
    pub(super) fn born(&mut self, spot: Spot) -> Worker {
        let plan = self.plan(spot.proxy, self.limit);
        let period = Engine::<u32>::timer_period(&plan.policy).0 * 1000;
        let first = self.now + self.chance.below(period);
        self.at(first, Event::Tick(spot));
        let mut flow = Engine::new(CallOwner::Root, self.chance.draw(), u32::from(spot.worker));
        // Accounts are kept of decisions, so each is told in the callback that makes it.
        flow.finish_at_most(usize::MAX);
        Worker { life: spot.life, flow, plan, limit: self.limit, clock: Clock::default(), asks: BTreeMap::new() }
    }

    pub(super) fn plan(&mut self, proxy: u16, limit: usize) -> Rc<Plan> {
        let policy = self.policies[limit].get_or_insert_with(|| self.scenario.policy(limit)).clone();
        self.plans += 1;
        let random = (self.chance.draw(), self.chance.draw());
        let shared = self.proxies[usize::from(proxy)].shared.clone();
        Rc::new(Plan::new(self.plans, policy, Rc::new(shared), random))
    }

    pub(super) fn worker(&mut self, spot: Spot) -> Option<&mut Worker> {
        let proxy = &mut self.proxies[usize::from(spot.proxy)];
        let worker = proxy.workers.get_mut(usize::from(spot.worker))?;
        (proxy.up && worker.life == spot.life).then_some(worker)
    }

    /// What a worker's clock says.
    pub(super) fn time(&mut self, spot: Spot) -> Now {
        let proxy = &mut self.proxies[usize::from(spot.proxy)];
        proxy.workers[usize::from(spot.worker)].clock.read(Ms(proxy.clock.ms(self.now)))
    }

    /// Tells a flow something and performs what it wants. `reply`: of which call the steps are the consequence.
    pub(super) fn drive(
        &mut self,
        spot: Spot,
        reply: Option<(u32, bool)>,
        tell: impl FnOnce(&mut Engine<u32>, Now) -> Vec<Step<u32>>,
    ) {
        if self.worker(spot).is_none() {
            return;
        }
        let now = self.time(spot);
        let worker = &mut self.proxies[usize::from(spot.proxy)].workers[usize::from(spot.worker)];
        let steps = tell(&mut worker.flow, now);
        if !steps.is_empty() || reply.is_some() {
            self.perform(spot, steps, reply);
        }
    }

    pub(super) fn tick(&mut self, spot: Spot) {
        let now = self.time(spot);
        let Some(worker) = self.worker(spot) else {
            return;
        };
        let plan = worker.plan.clone();
        plan.refresh(now.mono);
        self.drive(spot, None, |flow, now| flow.on_timer(now));
        self.at(self.now + Engine::<u32>::timer_period(&plan.policy).0 * 1000, Event::Tick(spot));
    }

    pub(super) fn wake(&mut self, spot: Spot) {
        let soon = self.chance.below(50);
        if !self.chance.thousandths(self.scenario.network.lost_wakes) {
            self.at(self.now + soon, Event::Woken(spot));
        }
    }

    pub(super) fn wake_others(&mut self, spot: Spot, others: u32) {
        for worker in 0..self.scenario.workers {
            if others & (1 << worker) != 0 {
                let life = self.proxies[usize::from(spot.proxy)].workers[usize::from(worker)].life;
                self.wake(Spot { worker, life, ..spot });
            }
        }
    }

    pub(super) fn die(&mut self, proxy: u16, worker: u16) {
        let dead = &mut self.proxies[usize::from(proxy)].workers[usize::from(worker)];
        let spot = Spot { proxy, worker, life: dead.life + 1 };
        for waiting in &mut self.waiting {
            if waiting.is_some_and(|waiting| (waiting.spot.proxy, waiting.spot.worker) == (proxy, worker)) {
                *waiting = None;
            }
        }
        let worker = self.born(spot);
        self.proxies[usize::from(proxy)].workers[usize::from(spot.worker)] = worker;
    }

    pub(super) fn revive(&mut self, proxy: u16) {
        self.proxies[usize::from(proxy)].up = true;
        (0..self.scenario.workers).for_each(|worker| self.die(proxy, worker));
    }

    pub(super) fn new_plan(&mut self, spot: Spot, limit: usize) {
        if self.worker(spot).is_none() || limit != self.limit {
            return;
        }
        let plan = self.plan(spot.proxy, limit);
        if let Some(worker) = self.worker(spot) {
            // As the host does: after a wipe the two plans may have tables of their own.
            std::mem::replace(&mut worker.plan, plan).retire();
            worker.limit = limit;
            worker.asks.clear();
        }
    }
}

pub(super) fn lives(proxies: &[Proxy], spot: Spot) -> bool {
    let proxy = &proxies[usize::from(spot.proxy)];
    proxy.up && proxy.workers[usize::from(spot.worker)].life == spot.life
}
