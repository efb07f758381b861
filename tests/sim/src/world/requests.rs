//! Requests: they arrive, wait, leave, and have their answers.

use weir::engine::{Arrival as Outcome, Engine, Step, Verdict};
use weir::response::Answer;

use super::asking::asks;
use super::{Credit, Event, Spot, Waiting, World, note};
use crate::root::Acquire;
use crate::scenario::Arrival;

impl World<'_> {
    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let Arrival { proxy, worker, bucket, cost, tier, patience, .. } = arrival;
        let proxy_now = &self.proxies[usize::from(proxy)];
        if !proxy_now.up {
            return;
        }
        let spot = Spot { proxy, worker, life: proxy_now.workers[usize::from(worker)].life };
        let now = self.time(spot);
        let request = self.free.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() as u32 - 1
        });
        self.tally.requests += 1;
        let here = self.limiter.time(self.now).1;
        let asked = self.scenario.asked(bucket);
        let fits = asked.clone().all(|root| self.buckets[root as usize].ideal.clone().take(cost, here));
        asked.for_each(|root| self.buckets[root as usize].ideal.take_if(fits, cost, here));
        self.tally.ideal += if fits { cost } else { 0 };
        let worker = &mut self.proxies[usize::from(proxy)].workers[usize::from(worker)];
        let plan = worker.plan.clone();
        let fresh = || asks(&plan.policy, self.scenario, bucket, cost, tier);
        let asks = worker.asks.entry((bucket, cost, tier)).or_insert_with(fresh).clone();
        let limit = (asks[0].limit.requests(), asks[0].limit.burst());
        let (outcome, steps) = worker.flow.charge(&plan, asks, vec![], request, now);
        match outcome {
            Outcome::Decided(Verdict { answer, .. }) => {
                note!(self, "request {request} for {cost} of {bucket} at {proxy}: {}", told(&answer));
                self.forget(request);
                if self.answered(bucket, cost, &answer) {
                    self.scenario.asked(bucket).for_each(|root| self.spend(proxy, root, cost));
                }
            }
            Outcome::Waits(ticket) => {
                note!(self, "request {request} for {cost} of {bucket} at {proxy} waits");
                self.tally.waited += 1;
                self.waiting[request as usize] =
                    Some(Waiting { spot, bucket, cost, arrived: self.now, ticket, plan: plan.id, limit, call: None });
                if patience > 0 {
                    self.at(self.now + u64::from(patience), Event::Leave(request));
                }
            }
        }
        self.perform(spot, steps, None);
    }

    pub(super) fn leave(&mut self, request: u32) {
        let Some(waiting) = self.waiting[request as usize].take() else {
            return;
        };
        note!(self, "request {request} leaves");
        if let Some(worker) = self.worker(waiting.spot) {
            worker.flow.on_end(waiting.ticket);
        }
        self.forget(request);
    }

    pub(super) fn perform(&mut self, spot: Spot, steps: Vec<Step<u32>>, reply: Option<(u32, bool)>) {
        // What the root has granted to those for whom this call asked; the rest is spent here.
        let granted = reply.and_then(|(number, again)| {
            let message = self.messages.get(&number)?;
            let (_, reply) = message.replies[usize::from(again)].as_ref()?;
            let call = &message.sent.acquire;
            let granted = if call.hold { 0 } else { call.cost(&reply.as_ref()?.granted) };
            Some((number, granted))
        });
        let (number, mut granted) = granted.unwrap_or((u32::MAX, 0));
        let has_one_rule = self.scenario.modes.len() == 1;
        if !has_one_rule && granted > 0 {
            // Each of those has its answer by its deadline.
            let until = self.now + (self.scenario.timeout_ms + 60) * 1000;
            let bucket = self.messages[&number].bucket;
            self.credits.push(Credit { spot, bucket, tokens: granted, until });
            self.buckets[bucket as usize].is_loose = true;
        }
        for step in steps {
            match step {
                Step::Wake => self.wake(spot),
                Step::WakeOthers(others) => self.wake_others(spot, others),
                Step::Call(call) => self.send(spot, call),
                Step::Finish(request, Verdict { answer, .. }) => {
                    let Some((bucket, cost, call)) = self.finish(spot, request, &answer) else { continue };
                    if has_one_rule && call == Some(number) && granted >= cost {
                        granted -= cost;
                        self.buckets[bucket as usize].got += i128::from(cost);
                        continue;
                    }
                    for root in self.scenario.asked(bucket) {
                        let credit = self.credit(spot, root, cost);
                        self.buckets[root as usize].got += i128::from(credit);
                        if cost > credit {
                            self.spend(spot.proxy, root, cost - credit);
                        }
                    }
                }
                Step::Count(..) => {}
            }
        }
    }

    /// The number of a request may be used again, where not all can be kept.
    fn forget(&mut self, request: u32) {
        if self.is_long {
            self.free.push(request);
        }
    }

    /// A call asks for the first of those who wait in the same line, apart from those for whom another call asks.
    pub(super) fn asks_for(&mut self, spot: Spot, plan: u64, bucket: u32, number: u32, call: &Acquire) {
        let messages = &self.messages;
        let is_out = |call: u32| messages.get(&call).is_some_and(|message| !message.over);
        let in_line = |waiting: &&mut Waiting| {
            (waiting.spot, waiting.plan, waiting.bucket) == (spot, plan, bucket)
                && waiting.limit == (call.requests, call.burst)
                && !waiting.call.is_some_and(is_out)
        };
        let mut line: Vec<&mut Waiting> = self.waiting.iter_mut().flatten().filter(in_line).collect();
        line.sort_by_key(|waiting| waiting.arrived);
        let requests: u64 = call.runs.iter().map(|run| run.count).sum();
        line.into_iter().take(requests as usize).for_each(|waiting| waiting.call = Some(number));
    }

    /// How much of a cost the root has granted to those who wait for several buckets.
    fn credit(&mut self, spot: Spot, bucket: u32, cost: u64) -> u64 {
        let (now, mut missing) = (self.now, cost);
        self.credits.retain(|credit| credit.until >= now && credit.tokens > 0);
        for credit in self.credits.iter_mut().filter(|credit| (credit.spot, credit.bucket) == (spot, bucket)) {
            let taken = missing.min(credit.tokens);
            credit.tokens -= taken;
            missing -= taken;
        }
        cost - missing
    }

    /// A request that waited has its answer. Returns what it took, if it may pass.
    fn finish(&mut self, spot: Spot, request: u32, answer: &Answer) -> Option<(u32, u64, Option<u32>)> {
        let Some(waiting) = self.waiting[request as usize].take() else {
            self.violate(format!("request {request} is finished, but does not wait"));
            return None;
        };
        note!(self, "request {request} at {}: {}", spot.proxy, told(answer));
        let Waiting { bucket, cost, arrived, call, .. } = waiting;
        let tick = Engine::<u32>::timer_period(&self.proxies[usize::from(spot.proxy)].workers[0].plan.policy).0;
        let most = (self.scenario.timeout_ms + tick) * 1001 + 2000 + self.proxies[usize::from(spot.proxy)].lag;
        if self.now > arrived + most {
            self.violate(format!("request {request} waited {} us, at most {most} are allowed", self.now - arrived));
        }
        self.forget(request);
        self.answered(bucket, cost, answer).then_some((bucket, cost, call))
    }

    /// Counts an answer. Returns whether the request passes.
    fn answered(&mut self, bucket: u32, cost: u64, answer: &Answer) -> bool {
        match answer {
            Answer::Pass(_) => {
                self.tally.admitted += cost;
                self.unstrand(bucket);
                return true;
            }
            Answer::Refuse(refusal) if refusal.status == 503 => self.tally.failed += 1,
            Answer::Refuse(_) => {
                self.tally.refused += 1;
                self.strand(bucket, cost);
            }
        }
        false
    }
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Pass(_) => "passes".to_owned(),
        Answer::Refuse(refusal) => format!("is refused with {}", refusal.status),
    }
}
