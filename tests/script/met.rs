//! What the histories met, so that a generator that has become tame fails the test.

use std::collections::BTreeMap;

use weir_sim::root::{EXACT, Kind, Slot};

use super::history::{History, Step};

#[derive(Debug, Default)]
pub struct Met(BTreeMap<&'static str, usize>);

impl Met {
    pub fn note(&mut self, history: &History) {
        for step in &history.steps {
            self.note_step(step);
            self.add("spent", step.spent.len());
        }
        for pair in history.steps.windows(2) {
            self.add("clock back", usize::from(pair[1].clock < pair[0].clock));
            self.add("limit changed", usize::from(pair[1].limit != pair[0].limit));
        }
    }

    /// A promise that was nearly used up: at most a tenth was left.
    pub fn note_tight(&mut self, moments: usize) {
        self.add("limit nearly used", moments);
    }

    fn add(&mut self, name: &'static str, times: usize) {
        *self.0.entry(name).or_default() += times;
    }

    fn note_step(&mut self, step: &Step) {
        let Step { before, call, reply, after, .. } = step;
        let granted = call.cost(&reply.granted);
        let held = if call.hold { granted } else { 0 };
        let is_alive = |slot: &&Slot| slot.end > after.time;
        let counted = before.slots.iter().filter(is_alive).find(|slot| slot.end == call.end).map(|slot| slot.tokens);
        let taken = counted.unwrap_or(0).min(call.size);
        let carry = call.carry.min(taken);
        let lease = after.slots.iter().find(|slot| slot.end == reply.end);
        let is_new = |slot: &&Slot| before.slots.iter().all(|old| old.end != slot.end);
        let kind = lease.map(|slot| slot.kind);
        let beside = |slot: &Slot| after.slots.iter().filter(|other| other.kind == slot.kind).count() == 2;
        let whole_before =
            i128::from(reply.level) + call.units(granted + reply.extra) + call.units(after.lent() - reply.extra - held);
        let rich = whole_before > call.capacity() - call.units(call.lend);
        let cut = |&(&granted, count): &(&u64, u64)| 0 < granted && granted < count;
        let runs = || reply.granted.iter().zip(call.runs.iter().map(|run| run.count));
        let all = runs().all(|(&granted, count)| granted == count);
        let rows = [
            ("step", true),
            ("key missing", step.missing),
            ("late", step.late),
            ("late, of a lease that is counted", step.late && taken > 0),
            ("granted", granted > 0),
            ("refused", !all),
            ("refused, wants more", !all && call.want > reply.kept),
            ("run cut", runs().any(|run| cut(&run))),
            ("level over 2^52", after.level(call) > EXACT / 2),
            ("level just under 2^53", after.level(call) > EXACT - EXACT / 1000),
            ("level negative", after.level(call) < 0),
            ("used over 2^52", after.used > EXACT / 2),
            ("used just under 2^53", after.used > EXACT - EXACT / 1000),
            ("rich, lends", rich && reply.extra > 0),
            ("rich, wants, lends nothing", rich && all && call.want > reply.kept && reply.extra == 0),
            ("scarce, lends all that is wanted", !rich && reply.extra > 0 && !reply.limited),
            ("scarce, lends some", reply.extra > 0 && reply.limited),
            ("scarce, lends nothing", reply.extra == 0 && reply.limited),
            ("kept all", carry > 0 && reply.kept == carry),
            ("kept some", 0 < reply.kept && reply.kept < carry),
            ("gave back all", carry > 0 && reply.kept == 0),
            ("reported a lease that is over", call.end > 0 && call.size > 0 && counted.is_none()),
            ("reported more than is counted", counted.is_some_and(|counted| counted < call.size)),
            ("reported more unspent than taken", taken > 0 && call.carry > taken),
            ("long", kind == Some(Kind::Long)),
            ("short", kind == Some(Kind::Short)),
            ("opened a slot", lease.as_ref().is_some_and(is_new)),
            ("opened a slot beside one of its kind", lease.as_ref().is_some_and(|slot| is_new(slot) && beside(slot))),
            ("joined a slot", lease.is_some_and(|slot| slot.tokens > reply.kept + reply.extra + held)),
            ("four slots", after.slots.len() == 4),
            ("slot ended with tokens", before.slots.iter().any(|slot| slot.end <= after.time)),
            ("slot ended just now", before.slots.iter().any(|slot| slot.end == after.time)),
            ("slot emptied", taken > 0 && after.slots.iter().all(|slot| slot.end != call.end)),
            ("held", held > 0),
            ("debt", call.debt > 0),
            ("expiry past 2^53", after.expires_at > Some(EXACT as u64)),
            ("expiry by what is lent", expires_by_lent(step)),
            ("lent over the burst", call.units(after.lent()) > call.capacity()),
        ];
        for (name, met) in rows {
            self.add(name, usize::from(met));
        }
    }

    pub fn assert_wild(&self) {
        println!("{:#?}", self.0);
        let wanted = |name| match name {
            "step" => 100_000,
            "granted" | "refused" | "spent" => 20_000,
            "four slots" => 20,
            "late, of a lease that is counted" | "lent over the burst" => 50,
            "reported more than is counted" | "reported more unspent than taken" => 100,
            _ => 500,
        };
        for (&name, &times) in &self.0 {
            assert!(times >= wanted(name), "{name}: only {times}");
        }
    }
}

/// The lent tokens need longer to come back than the level needs to be full.
fn expires_by_lent(step: &Step) -> bool {
    let expiry = step.after.expires_at.expect("a call stores the bucket") - step.clock;
    let behind = step.after.time - step.clock;
    expiry > behind + step.reply.reset_ms + 1000
}
