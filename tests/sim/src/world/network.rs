//! Calls on their way to the limiter, and replies on their way back.

use weir::engine::Call;
use weir::limiter::{Failure, HttpEnd};

use super::asking::rule_and_tenant;
use super::workers::lives;
use super::{Bucket, Event, Message, Spot, World, note};
use crate::scenario::Way;
use crate::wire::{self, Sent};

impl World<'_> {
    pub(super) fn send(&mut self, spot: Spot, call: Call) {
        let (number, timeout) = (self.message, call.timeout.0 * 1000);
        self.message += 1;
        self.tally.calls += 1;
        let Some((sent, bucket)) = Sent::read(&call.http.body).and_then(|sent| {
            let (rule, tenant) = rule_and_tenant(&sent.key)?;
            Some((sent, rule * self.scenario.buckets + tenant))
        }) else {
            return self.violate(format!("no call that the script could read: {}", call.http.body));
        };
        note!(self, "proxy {} calls ({number}): {sent:?}", spot.proxy);
        if self.scenario.modes.len() == 1 {
            self.asks_for(spot, call.plan.id, bucket, number, &sent.acquire);
        }
        self.report(spot, bucket, &sent);
        let turn = self.proxies[usize::from(spot.proxy)].holdings.get(&bucket).map_or(0, |holding| holding.turn);
        let way = self.scenario.network.way(self.scenario.seed, number);
        let (until, replies_only) = self.proxies[usize::from(spot.proxy)].partition;
        let cut = self.now < until;
        let (lost, reply_lost) = (way.call_lost || (cut && !replies_only), way.reply_lost || cut);
        let way = Way { call_lost: lost, reply_lost, ..way };
        let (sent_at, ends) = (self.now, self.now + timeout);
        let message = Message {
            spot,
            id: call.id,
            sent,
            bucket,
            sent_at,
            turn,
            ends,
            way,
            over: false,
            replies: [None, None],
            events: 0,
        };
        self.messages.insert(number, message);
        if way.refused {
            return self.later(number, self.now, Event::GiveUp(number));
        }
        if !lost {
            self.later(number, self.now + way.to, Event::Reach(number, false));
            if let Some(after) = way.call_again {
                self.later(number, self.now + way.to + after, Event::Reach(number, true));
            }
        }
        // Where the reply comes in time, the host has nothing to give up; and where it comes late, not every host does.
        let is_late = self.now + way.to + way.back >= ends;
        if lost || reply_lost || (is_late && number % 2 == 0) {
            self.later(number, ends, Event::GiveUp(number));
        }
    }

    /// A call that is about the proxy's lease tells what the proxy has of it.
    fn report(&mut self, spot: Spot, bucket: u32, sent: &Sent) {
        let asked = &sent.acquire;
        let is_about_lease = asked.want + asked.size + asked.debt > 0 || asked.hold;
        if !is_about_lease {
            return;
        }
        // What it does not want any more it must not spend while the call is out. Rule 6: nor anything after the
        // shortest time for which a lease is given, for nobody may ever hear of the new one.
        let until = self.limiter.time(self.now).0 + asked.short_life_ms();
        let proxy = &mut self.proxies[usize::from(spot.proxy)];
        let holding = proxy.holdings.entry(bucket).or_default();
        // Where it cannot be told what a request took from its lease, what is held is an upper bound.
        let is_loose = proxy.wiped || self.buckets[bucket as usize].is_loose;
        if sent.by_text {
            // The first of two calls has reported it.
            holding.turn += 1;
        } else if is_loose {
            holding.drop(asked.end, asked.carry.saturating_sub(asked.want));
        } else {
            holding.report(asked.end, asked.carry, asked.want, until);
        }
    }

    /// The limiter executes a call.
    pub(super) fn reach(&mut self, number: u32, again: bool) {
        let (_, now) = self.limiter.time(self.now);
        let Some(message) = self.messages.get_mut(&number) else { return };
        let (bucket, call, by_text) = (message.bucket, message.sent.acquire.clone(), message.sent.by_text);
        let reply = if self.now < self.limiter.read_only_until {
            (wire::read_only(by_text), None)
        } else if !by_text && !self.limiter.knows_script {
            (wire::NO_SCRIPT.to_owned(), None)
        } else {
            self.limiter.knows_script = true;
            if self.scenario.windows.is_some() {
                let Bucket { promise, ever, ideal, .. } = &mut self.buckets[bucket as usize];
                [promise, ever, ideal].into_iter().for_each(|promise| promise.window = Some(call.offset_ms));
            }
            let reply = self.limiter.acquire(self.now, bucket, &call);
            note!(self, "the limiter executes {number}: {reply:?}");
            let body = wire::body(&reply, by_text);
            self.past.truncate(15);
            self.past.push_front((number, body.clone()));
            (body, Some(reply))
        };
        let executed = reply.1.clone();
        let (way, replies) = (message.way, &mut message.replies);
        replies[usize::from(again)] = Some(reply);
        // Where the first found no script, the same was asked again by text.
        if again && call.size > 0 {
            self.strict = false;
            self.forgive(bucket, |promise| promise.limit.units(2 * call.size));
        }
        if let Some(reply) = executed {
            let granted = call.cost(&reply.granted);
            // What is carried on and not kept goes back; where a lease is not counted any more, nothing does.
            let back = if reply.kept == call.want { call.carry.saturating_sub(reply.kept) } else { 0 };
            self.buckets[bucket as usize].out += i128::from(granted + reply.extra) - i128::from(back);
            self.admit(bucket, if call.hold { 0 } else { granted }, now);
            self.check_root(bucket);
        }
        if !way.reply_lost {
            self.later(number, self.now + way.back, Event::Back(number, again));
            if let Some(after) = way.reply_again {
                self.later(number, self.now + way.back + after, Event::Back(number, again));
            }
        }
        self.done(number);
    }

    /// A reply reaches the worker that called; or again; or too late.
    pub(super) fn back(&mut self, number: u32, again: bool) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let (spot, id, bucket) = (message.spot, message.id, message.bucket);
        // A clock that was set back ends calls later.
        let in_time = self.now < message.ends + self.proxies[usize::from(spot.proxy)].lag;
        let first = !std::mem::replace(&mut message.over, true);
        let Some((body, reply)) = message.replies[usize::from(again)].clone() else { return self.done(number) };
        let swapped = message.way.swapped.filter(|_| first);
        let (body, reply) = match swapped {
            Some(which) => (self.another_reply(number, which), None),
            None => (body, reply),
        };
        // Where a worker has died, its proxy goes on as if no reply had come.
        if first && in_time && lives(&self.proxies, spot) {
            let sent = &self.messages[&number].sent;
            let (call, by_text, ends_lease) = (sent.acquire.clone(), sent.by_text, sent.ends_lease());
            let proxy = &mut self.proxies[usize::from(spot.proxy)];
            let can_write = !proxy.shared.loses();
            // A proxy that was wiped may have a table from before, too, whose leases go on.
            let is_loose = proxy.wiped || self.buckets[bucket as usize].is_loose;
            let holding = proxy.holdings.entry(bucket).or_default();
            if ends_lease && !is_loose && (reply.is_some() || can_write) {
                holding.drop_all();
            }
            match &reply {
                Some(reply) => {
                    let held = if call.hold { call.cost(&reply.granted) } else { 0 };
                    holding.replace(call.end, call.carry.min(call.want), reply.end, reply.kept, reply.extra + held);
                }
                // The same is asked again, by text.
                None if body == wire::NO_SCRIPT && !by_text => {}
                None if can_write => holding.drop(call.end, call.carry),
                None => {}
            }
        }
        note!(self, "the reply to {number} is back at {}{}", spot.proxy, if first { "" } else { ", once more" });
        let end = HttpEnd::Answer { status: 200, body: body.as_bytes() };
        // A reply that is doubled or late is told, too: the flow must not mind.
        let cause = (first && in_time && swapped.is_none()).then_some((number, again));
        self.drive(spot, cause, |flow, now| flow.on_reply(id, end, now));
        self.check_held(bucket);
        self.done(number);
    }

    pub(super) fn give_up(&mut self, number: u32) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let (spot, id, bucket, refused) = (message.spot, message.id, message.bucket, message.way.refused);
        let (sent_at, turn) = (message.sent_at, message.turn);
        // Nor does a table hear of it that cannot be written.
        let is_told = lives(&self.proxies, spot) && !self.proxies[usize::from(spot.proxy)].shared.loses();
        if !std::mem::replace(&mut message.over, true) {
            let (end, carry) = (message.sent.acquire.end, message.sent.acquire.carry);
            let ends_lease = message.sent.ends_lease();
            let want = message.sent.acquire.want;
            let until = self.limiter.clock.ms(sent_at) + message.sent.acquire.short_life_ms();
            // Where nobody can be told, the rest is spent until the next call, but for what is not counted for long.
            let is_loose = self.proxies[usize::from(spot.proxy)].wiped || self.buckets[bucket as usize].is_loose;
            if let Some(holding) = self.proxies[usize::from(spot.proxy)].holdings.get_mut(&bucket) {
                let is_last = holding.turn == turn;
                match refused {
                    _ if !is_last => {}
                    _ if ends_lease && (is_told && !is_loose) => holding.drop_all(),
                    // One that never began has changed nothing.
                    true => holding.restore(end, until, carry.saturating_sub(want)),
                    // Two leases of a proxy that was wiped may have one end.
                    false if is_told && !is_loose => holding.drop(end, carry),
                    false => {}
                }
            }
            note!(self, "call {number} of {} has no answer", spot.proxy);
            let end = if refused { HttpEnd::NotStarted(Failure::Unreachable) } else { HttpEnd::NoAnswer };
            self.drive(spot, None, |flow, now| flow.on_reply(id, end, now));
        }
        self.done(number);
    }

    /// An event that names a message, which is kept until then.
    fn later(&mut self, number: u32, at: u64, event: Event) {
        if let Some(message) = self.messages.get_mut(&number) {
            message.events += 1;
            self.at(at, event);
        }
    }

    fn done(&mut self, number: u32) {
        if let Some(message) = self.messages.get_mut(&number) {
            message.events -= 1;
            if message.events == 0 {
                self.messages.remove(&number);
            }
        }
    }

    /// What comes to this call instead of its own reply: what another one was answered, or an error that another one may
    /// have met.
    fn another_reply(&self, number: u32, which: u64) -> String {
        let by_text = which & 1 == 1;
        let others = self.past.iter().filter(|(other, _)| *other != number).map(|(_, body)| body);
        let others: Vec<&String> = others.collect();
        match which % 7 {
            0 => wire::NO_SCRIPT.to_owned(),
            1 => wire::read_only(by_text),
            2 => wire::bad_key(by_text, which),
            _ if !others.is_empty() => others[(which / 7) as usize % others.len()].clone(),
            _ => wire::NO_SCRIPT.to_owned(),
        }
    }
}
