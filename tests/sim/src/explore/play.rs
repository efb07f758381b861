//! What happens.

use weir::clock::{Ms, Now};
use weir::engine::plan::Taken;
use weir::engine::{Arrival, Call, Step, Verdict};
use weir::limiter::HttpEnd;
use weir::response::Answer;

use super::choices::Choice;
use super::state::{Message, SentHash, Small, Waiting};
use crate::clock::START;
use crate::root::Reply;
use crate::wire::{self, Sent};
use crate::world::rule_and_tenant;

impl Small<'_> {
    pub(super) fn apply(&mut self, choice: Choice) {
        self.note(|| format!("{choice:?}"));
        match choice {
            Choice::Arrive { worker, cost } => self.arrive(worker, cost),
            Choice::Reach(number) => self.reach(number),
            Choice::Serve(number) => {
                self.reach(number);
                let message = self.messages.remove(number);
                self.back(message);
            }
            Choice::LoseCall(number) | Choice::LoseReply(number) => {
                self.left.lost -= 1;
                // The worker hears of nothing until the call's own end.
                self.messages[number].lost = true;
            }
            Choice::Back(number) => {
                let message = self.messages.remove(number);
                self.back(message);
            }
            Choice::BackAndAgain(number) => {
                self.left.doubled -= 1;
                let Message { worker, rule, call, ref sent, sent_at, ends, ref reply, .. } = self.messages[number];
                let (sent, reply) = (SentHash(sent.0.clone()), reply.clone());
                let again = Message { worker, rule, call, sent, sent_at, ends, over: true, lost: false, reply };
                let message = std::mem::replace(&mut self.messages[number], again);
                self.back(message);
            }
            Choice::Astray(number) => {
                self.left.astray -= 1;
                self.go_astray(number);
            }
            Choice::Leave(number) => {
                self.left.leave -= 1;
                if let Some(waiting) = self.waiting[number].take() {
                    self.flows[waiting.worker].on_end(waiting.ticket);
                }
            }
            Choice::Wipe(proxy) => {
                self.left.wipe -= 1;
                self.shared[proxy].wipe();
            }
            Choice::Take(worker) => {
                self.left.stall -= 1;
                self.take(worker);
            }
            Choice::PutBack(number) => {
                let (worker, receipt) = self.stalled.remove(number);
                let (ground, now) = (self.ground, self.time().mono);
                let proxy = self.proxy(worker);
                self.plans[proxy].put_back(&ground.asks[0][0], receipt, now);
            }
            Choice::Pass(moment) => self.pass(moment),
        }
        self.check();
    }

    fn go_astray(&mut self, number: usize) {
        self.messages[number].over = true;
        let (worker, call) = (self.messages[number].worker, self.messages[number].call);
        let end = HttpEnd::Answer { status: 200, body: wire::NO_SCRIPT.as_bytes() };
        let now = self.time();
        let steps = self.flows[worker].on_reply(call, end, now);
        self.perform(worker, steps, None);
    }

    fn take(&mut self, worker: usize) {
        let (ground, now) = (self.ground, self.time().mono);
        if let Taken::Granted { receipt, .. } = self.plans[self.proxy(worker)].take(&ground.asks[0][0], now) {
            self.stalled.push((worker, receipt));
        }
    }

    fn time(&self) -> Now {
        let passed = self.now - (self.now * self.ground.case.slow).div_ceil(1_000_000);
        Now { mono: Ms(passed + 1), unix: Ms(START + passed) }
    }

    fn arrive(&mut self, worker: usize, cost: u64) {
        self.left.requests -= 1;
        let number = self.waiting.len() as u32;
        self.waiting.push(None);
        let ground = self.ground;
        let at = ground.case.costs.iter().position(|of| *of == cost).unwrap_or(0);
        let (now, proxy) = (self.time(), self.proxy(worker));
        let (arrival, steps) =
            self.flows[worker].charge(&self.plans[proxy], ground.asks[at].clone(), vec![], number, now);
        match arrival {
            Arrival::Decided(Verdict { answer, .. }) => {
                self.note(|| format!("    {answer:?}"));
                if matches!(answer, Answer::Pass(_)) {
                    self.spend(worker, cost);
                }
            }
            Arrival::Waits(ticket) => {
                self.waiting[number as usize] = Some(Waiting { worker, cost, arrived: self.now, ticket });
            }
        }
        self.perform(worker, steps, None);
    }

    /// `reply`: when the call was sent whose consequence the steps are, which rule it was about, and what it granted.
    fn perform(&mut self, worker: usize, steps: Vec<Step<u32>>, reply: Option<(u64, usize, u64)>) {
        let (mut wake, mut wake_others) = (false, 0);
        let (sent_at, rule, mut granted) = reply.unwrap_or_default();
        let has_one_rule = self.ground.case.modes.len() == 1;
        if !has_one_rule && granted > 0 {
            self.credits.push((worker, rule, granted, self.now + self.ground.timeout));
        }
        for step in steps {
            match step {
                Step::Wake => wake = true,
                Step::WakeOthers(others) => wake_others |= others,
                Step::Count(..) => {}
                Step::Call(call) => self.send(worker, &call),
                Step::Finish(request, Verdict { answer, .. }) => {
                    let Some(waiting) = self.waiting[request as usize].take() else {
                        return self.violate(format!("request {request} is finished, but does not wait"));
                    };
                    self.note(|| format!("    request {request}: {answer:?}"));
                    if !matches!(answer, Answer::Pass(_)) {
                        continue;
                    }
                    // The root has granted so much to those who waited when the call was sent; the rest is spent here.
                    if has_one_rule && waiting.arrived <= sent_at && granted >= waiting.cost {
                        granted -= waiting.cost;
                    } else {
                        self.spend(worker, waiting.cost);
                    }
                }
            }
        }
        let first = self.proxy(worker) * self.ground.case.workers;
        for other in (0..self.ground.case.workers).map(|number| first + number) {
            if (wake && other == worker) || wake_others & (1 << (other - first)) != 0 {
                let now = self.time();
                let steps = self.flows[other].on_wake_by_other(now);
                self.perform(other, steps, None);
            }
        }
    }

    /// A call that leaves a worker.
    fn send(&mut self, worker: usize, call: &Call) {
        let Some((sent, rule)) = Sent::read(&call.http.body).and_then(|sent| {
            let (rule, _) = rule_and_tenant(&sent.key)?;
            Some((sent, rule as usize))
        }) else {
            return self.violate(format!("no call that the script could read: {}", call.http.body));
        };
        let asked = &sent.acquire;
        // Before a call by text another one has reported what there was.
        if !sent.by_text && (asked.want + asked.size + asked.debt > 0 || asked.hold) {
            let holding = &mut self.holdings[worker / self.ground.case.workers][rule];
            let until = START + self.now + asked.short_life_ms();
            holding.report(asked.end, asked.carry, asked.want, until);
        }
        self.messages.push(Message {
            worker,
            rule,
            call: call.id,
            sent: SentHash(sent),
            sent_at: self.now,
            ends: self.now + call.timeout.0,
            over: false,
            lost: false,
            reply: None,
        });
    }

    /// A request has passed on its proxy's own account, but for what was granted to it and counted then.
    fn spend(&mut self, worker: usize, cost: u64) {
        let (proxy, now) = (self.proxy(worker), self.now);
        self.credits.retain(|(.., tokens, until)| *tokens > 0 && *until >= now);
        for rule in 0..self.roots.len() {
            let mut missing = cost;
            for (of, at, tokens, _) in &mut self.credits {
                let taken = if (*of, *at) == (worker, rule) { missing.min(*tokens) } else { 0 };
                *tokens -= taken;
                missing -= taken;
            }
            if let Err(missing) = self.holdings[proxy][rule].spend(missing, START + now) {
                self.violate(format!("proxy {proxy} has spent {missing} tokens that no live lease holds"));
            }
            self.admit(rule, missing);
        }
    }

    fn admit(&mut self, rule: usize, tokens: u64) {
        let at = if self.ground.case.windows { START + self.now } else { self.now };
        if let Err(units) = self.promises[rule].admit(tokens, at) {
            self.violate(format!("{units} units more than {:?} allows were admitted", self.promises[rule].limit));
        }
    }

    fn reach(&mut self, number: usize) {
        let message = &mut self.messages[number];
        let call = &message.sent.0.acquire;
        let rule = message.rule;
        let reply = self.roots[rule].acquire(START + self.now, call);
        let granted = if call.hold { 0 } else { call.cost(&reply.granted) };
        message.reply = Some(Reply { number: 0, ..reply.clone() });
        self.note(|| format!("    {reply:?}"));
        self.admit(rule, granted);
    }

    fn back(&mut self, message: Message) {
        let Some(reply) = &message.reply else { return };
        let (call, in_time) = (&message.sent.0.acquire, !message.over && self.now < message.ends);
        let granted = call.cost(&reply.granted);
        if in_time {
            let held = if call.hold { granted } else { 0 };
            let holding = &mut self.holdings[message.worker / self.ground.case.workers][message.rule];
            if message.sent.0.ends_lease() {
                holding.drop_all();
            }
            holding.replace(call.end, call.carry.min(call.want), reply.end, reply.kept, reply.extra + held);
        }
        let body = wire::body(&Reply { number: call.number, ..reply.clone() }, message.sent.0.by_text);
        let end = HttpEnd::Answer { status: 200, body: body.as_bytes() };
        let now = self.time();
        let steps = self.flows[message.worker].on_reply(message.call, end, now);
        let cause = (in_time && !call.hold).then_some((message.sent_at, message.rule, granted));
        self.perform(message.worker, steps, cause);
    }

    fn pass(&mut self, until: u64) {
        self.left.pass -= 1;
        while self.now < until {
            self.now = self.due().map_or(until, |due| due.min(until));
            for number in 0..self.messages.len() {
                let Message { worker, rule, over, ends, .. } = self.messages[number];
                if !over && ends <= self.now {
                    self.messages[number].over = true;
                    let call = self.messages[number].sent.0.acquire.clone();
                    let proxy = self.proxy(worker);
                    match self.messages[number].sent.0.ends_lease() {
                        true => self.holdings[proxy][rule].drop_all(),
                        false => self.holdings[proxy][rule].drop(call.end, call.carry),
                    }
                }
            }
            self.messages.retain(|message| !(message.over && message.lost));
            for worker in 0..self.flows.len() {
                let now = self.time();
                let steps = self.flows[worker].on_timer(now);
                self.perform(worker, steps, None);
            }
        }
        let timeout = self.ground.timeout;
        if let Some(late) = self.waiting.iter().flatten().find(|waiting| waiting.arrived + timeout <= self.now) {
            let since = late.arrived;
            self.violate(format!("a request of {since} ms still waits"));
        }
    }

    /// What is in a bucket and what is lent are no more than the burst; what proxies hold is lent.
    fn check(&mut self) {
        let clock = START + self.now;
        for rule in 0..self.roots.len() {
            let (root, limit) = (&self.roots[rule], self.ground.limits[rule]);
            if root.expires_at.is_none_or(|at| clock > at) {
                continue;
            }
            let unit = if self.ground.case.windows { i128::from(limit.period_ms) } else { 1 };
            let (used, lent) = (root.used * unit, root.lent());
            let alive: u64 = root.slots.iter().filter(|slot| slot.end > clock).map(|slot| slot.tokens).sum();
            let held: u64 = self.holdings.iter().map(|holdings| holdings[rule].unspent(clock)).sum();
            if used < limit.units(lent) {
                self.violate(format!("{lent} are lent, and only {used} units are used"));
            }
            if held > alive {
                self.violate(format!("proxies hold {held} tokens, and only {alive} are lent"));
            }
        }
    }
}
