//! A state of a case: the root, its clock, and proxies that keep the rules.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::{Budget, Case};
use crate::check::{Limit, Promise};
use crate::clock::START;
use crate::root::{Acquire, Algorithm, Reply, Root, Run};

/// A call ends after so long without a reply.
const TIMEOUT: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Ask for so many tokens for those who wait, and want so many.
    Ask {
        proxy: usize,
        waiting: u64,
        hold: bool,
        want: u64,
    },
    Spend(usize),
    Reach(usize),
    Back(usize),
    Lose(usize),
    Pass(u64),
    ClockBack(u64),
    ClockForth,
    Lower,
}

#[derive(Clone, Debug, Default, Hash)]
struct Proxy {
    /// Its lease: id, what it is counted with, what is unspent, and when it may not be spent any more.
    end: u64,
    size: u64,
    tokens: u64,
    expires: u64,
    call: Option<Call>,
}

#[derive(Clone, Debug, Hash)]
struct Call {
    acquire: Acquire,
    sent: u64,
    /// Tokens spent of what was reported, since it was sent.
    spent: u64,
    lost: bool,
    reply: Option<Reply>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) now: u64,
    /// How far the root's clock is behind.
    behind: u64,
    /// The bucket's time, by which the promise is kept: rule 9. The last that the root's clock has told it, and how long
    /// has passed by it.
    told: u64,
    passed: u64,
    pub(super) root: Root,
    proxies: Vec<Proxy>,
    /// Calls whose proxies have given up, and which may still reach the root.
    adrift: Vec<Acquire>,
    limit: Limit,
    promise: Promise,
    pub(super) left: Budget,
    pub(super) broken: Option<String>,
}

impl State {
    pub(super) fn new(case: &Case) -> State {
        let is_window = case.algorithm == Algorithm::FixedWindow;
        State {
            now: 0,
            behind: 0,
            told: 0,
            passed: 0,
            root: Root::default(),
            proxies: vec![Proxy::default(); case.proxies],
            adrift: Vec::new(),
            limit: case.limit,
            promise: Promise::of(case.limit, is_window),
            left: case.budget,
            broken: None,
        }
    }

    fn clock(&self) -> u64 {
        START + self.now - self.behind
    }

    pub(super) fn choices(&self, case: &Case) -> Vec<Choice> {
        let mut choices = Vec::new();
        for (number, proxy) in self.proxies.iter().enumerate() {
            if proxy.tokens > 0 && self.now < proxy.expires {
                choices.push(Choice::Spend(number));
            }
            match &proxy.call {
                Some(call) if call.lost => {}
                Some(Call { reply: Some(_), .. }) => {
                    choices.push(Choice::Back(number));
                    if self.left.lost > 0 {
                        choices.push(Choice::Lose(number));
                    }
                }
                Some(_) => {
                    choices.push(Choice::Reach(number));
                    if self.left.lost > 0 {
                        choices.push(Choice::Lose(number));
                    }
                }
                None if self.left.calls > 0 => {
                    let held = if self.now < proxy.expires { proxy.tokens } else { 0 };
                    for (waiting, hold, want) in [
                        (1, false, held),
                        (1, true, held),
                        (2, true, held),
                        (1, true, 0),
                        (0, false, 0),
                        (0, false, held + 2),
                    ] {
                        // A call that neither asks nor has anything to close is none.
                        // Where the root's clock goes forward, leases end early.
                        let may_lend = case.budget.forth == 0;
                        if (waiting + want > 0 || proxy.size > 0) && (may_lend || !hold) {
                            choices.push(Choice::Ask { proxy: number, waiting, hold, want });
                        }
                    }
                    // Those that have done nothing yet are all the same.
                    if proxy.size == 0 && proxy.end == 0 {
                        break;
                    }
                }
                None => {}
            }
        }
        if self.left.pass > 0 {
            choices.extend(self.moments().into_iter().map(Choice::Pass));
        }
        if self.left.back > 0 && self.root.expires_at.is_some() {
            // Within a second, beyond it, and by so much that a lease would end after more than two of its lives.
            choices.extend([900, 1500, 5000].map(Choice::ClockBack));
        }
        if self.left.forth > 0 && self.behind > 0 {
            choices.push(Choice::ClockForth);
        }
        if case.changed.is_some_and(|limit| limit != self.limit) {
            choices.push(Choice::Lower);
        }
        choices
    }

    /// What the bucket's time is now. It stands still while the root's clock is behind it.
    fn time(&self) -> u64 {
        if self.promise.window.is_some() {
            // Its own, which a call may find ahead.
            return self.clock();
        }
        if self.told == 0 { 0 } else { self.passed + self.clock().saturating_sub(self.told) }
    }

    /// A call tells the bucket the root's clock: where that is behind by more than a second, time goes on from there.
    fn tell(&mut self) {
        let clock = self.clock();
        self.passed = self.time();
        if self.told < clock || self.told > clock + 1000 {
            self.told = clock;
        }
    }

    fn moments(&self) -> Vec<u64> {
        let clock = self.clock();
        let token = self.limit.period_ms.div_ceil(self.limit.requests);
        let mut moments = vec![self.now + token];
        let ends = self.root.slots.iter().map(|slot| slot.end);
        for end in ends.chain(self.root.expires_at.map(|at| at + 1)) {
            if end > clock {
                moments.extend([self.now + (end - clock) - 1, self.now + (end - clock)]);
            }
        }
        if self.promise.window.is_some() {
            let left = self.limit.period_ms - clock % self.limit.period_ms;
            moments.extend([self.now + left - 1, self.now + left]);
        }
        moments.extend(self.proxies.iter().filter_map(|proxy| Some(proxy.call.as_ref()?.sent + TIMEOUT)));
        moments.retain(|moment| *moment > self.now);
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    pub(super) fn apply(&mut self, choice: Choice, case: &Case) {
        match choice {
            Choice::Ask { proxy, waiting, hold, want } => self.ask(proxy, waiting, hold, want, case),
            Choice::Spend(number) => {
                let proxy = &mut self.proxies[number];
                proxy.tokens -= 1;
                if let Some(call) = &mut proxy.call {
                    call.spent += 1;
                }
                self.admit(1);
            }
            Choice::Reach(number) => {
                let clock = self.clock();
                self.tell();
                if let Some(call) = &mut self.proxies[number].call {
                    let reply = self.root.acquire(clock, &call.acquire);
                    let granted = if call.acquire.hold { 0 } else { call.acquire.cost(&reply.granted) };
                    call.reply = Some(reply);
                    let (used, lent) = (self.root.used, call.acquire.units(self.root.lent()));
                    if used < lent {
                        self.broken.get_or_insert(format!("{lent} units are lent, and only {used} are used"));
                    }
                    self.admit(granted);
                }
            }
            Choice::Back(number) => self.back(number),
            Choice::Lose(number) => {
                self.left.lost -= 1;
                if let Some(call) = &mut self.proxies[number].call {
                    call.lost = true;
                }
            }
            Choice::Pass(moment) => self.pass(moment),
            Choice::ClockBack(ms) => {
                self.left.back -= 1;
                self.behind += ms;
            }
            Choice::ClockForth => {
                self.left.forth -= 1;
                self.behind = 0;
            }
            Choice::Lower => {
                let limit = case.changed.unwrap_or(self.limit);
                // What was lent under the old limit counts as used under the new one, and may still be spent.
                let clock = self.clock();
                let alive = self.root.slots.iter().filter(|slot| slot.end > clock);
                let lent: u64 = alive.map(|slot| slot.tokens).sum();
                self.promise.change(limit, self.time());
                let (level, ..) = self.promise.state();
                self.promise.forgive(limit.units(lent) - level);
                self.limit = limit;
                // Calls under the old limit would go by it; how many of them are out is not what this is about.
                let out = self.proxies.iter_mut().filter_map(|proxy| Some(&mut proxy.call.as_mut()?.acquire));
                for acquire in out.chain(&mut self.adrift) {
                    (acquire.requests, acquire.burst) = (limit.requests, limit.burst);
                }
            }
        }
        self.check();
    }

    fn ask(&mut self, number: usize, waiting: u64, hold: bool, want: u64, case: &Case) {
        self.left.calls -= 1;
        let (now, limit) = (self.now, self.limit);
        let proxy = &mut self.proxies[number];
        let alive = now < proxy.expires;
        let carry = if alive { proxy.tokens } else { 0 };
        let runs = if waiting > 0 { vec![Run { cost: 1, count: waiting }] } else { Vec::new() };
        let acquire = Acquire {
            algorithm: case.algorithm,
            offset_ms: 0,
            requests: limit.requests,
            period_ms: limit.period_ms,
            burst: limit.burst,
            life_ms: case.life_ms,
            lend: limit.burst,
            want,
            end: proxy.end,
            size: proxy.size,
            carry,
            hold,
            debt: 0,
            number: 0,
            runs,
        };
        // What is not wanted any more is not spent while the call is out. Rule 6: nor is anything after the shorter life.
        proxy.tokens = carry.min(want);
        let short = case.life_ms.min((3 * limit.period_ms * limit.burst).div_ceil(limit.requests).max(3000));
        // Of a window nothing comes back before its end, whatever has become of a call.
        proxy.expires = if self.promise.window.is_some() { proxy.expires } else { proxy.expires.min(now + short) };
        proxy.call = Some(Call { acquire, sent: now, spent: 0, lost: false, reply: None });
    }

    fn back(&mut self, number: usize) {
        let proxy = &mut self.proxies[number];
        let Some(Call { acquire, sent, spent, reply: Some(reply), .. }) = proxy.call.take() else { return };
        let held = if acquire.hold { acquire.cost(&reply.granted) } else { 0 };
        proxy.tokens = reply.kept.saturating_sub(spent) + reply.extra + held;
        proxy.size = reply.kept + reply.extra + held;
        (proxy.end, proxy.expires) = (reply.end, sent + reply.valid_ms);
    }

    fn pass(&mut self, until: u64) {
        self.left.pass -= 1;
        self.now = until;
        for proxy in &mut self.proxies {
            if let Some(call) = proxy.call.take_if(|call| call.sent + TIMEOUT <= until) {
                // Unknown outcome: all is dropped. What is still on its way arrives after that.
                if !call.lost && call.reply.is_none() {
                    self.adrift.push(call.acquire);
                }
                (proxy.tokens, proxy.size, proxy.end, proxy.expires) = (0, 0, 0, 0);
            }
        }
        for acquire in std::mem::take(&mut self.adrift) {
            self.tell();
            let reply = self.root.acquire(self.clock(), &acquire);
            let granted = if acquire.hold { 0 } else { acquire.cost(&reply.granted) };
            self.admit(granted);
        }
    }

    fn admit(&mut self, tokens: u64) {
        if let Err(units) = self.promise.admit(tokens, self.time()) {
            self.broken.get_or_insert(format!("{units} units more than {:?} allows were admitted", self.limit));
        }
    }

    fn check(&mut self) {
        let clock = self.clock();
        if self.root.expires_at.is_none_or(|at| clock > at) {
            return;
        }
        let at = clock.max(self.root.time);
        let alive: u64 = self.root.slots.iter().filter(|slot| slot.end > at).map(|slot| slot.tokens).sum();
        let proxies = self.proxies.iter();
        let held: u64 = proxies.filter(|proxy| self.now < proxy.expires).map(|proxy| proxy.tokens).sum();
        if held > alive {
            self.broken.get_or_insert(format!("proxies hold {held} tokens, and only {alive} are lent"));
        }
    }

    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, self.behind, self.told, self.passed, &self.root, &self.proxies, &self.adrift).hash(&mut hasher);
        (self.limit, self.promise.state(), self.left).hash(&mut hasher);
        hasher.finish()
    }
}
