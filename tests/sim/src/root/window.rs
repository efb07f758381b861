//! The root of a fixed window, as `lua/fixed_window.lua` keeps it. What it shares with the bucket is what the scripts share.
//!
//! Its safety rules are those of leases, but for the refill, in whose place windows begin:
//! W1: a window begins where the key's time passes a border, never by a clock that was set back.
//! W2: where it begins, what was lent beyond the border and is not back is used, also where that lease has ended since.
//! W3: no lease is told to live longer than what is left of its window.

use super::{Acquire, EXACT, Kind, Reply, Root};

impl Root {
    pub(super) fn acquire_window(&mut self, clock: u64, call: &Acquire) -> Reply {
        let before = self.time;
        // Rule 9, as for a bucket.
        let now = if before > clock + 1000 { self.set_back(clock, call) } else { clock.max(before) };
        // W1.
        let begins = call.window_begin(now) > before;
        if begins {
            // W2.
            let out = self.lent_beyond(call.window_begin(now));
            self.used = call.units(out);
        }
        self.roll(now);
        let taken = self.take_off(call);
        // Rule 2: only what was taken off is carried on or given back.
        let carry = call.carry.min(taken);
        let kept = carry.min(call.want);
        self.give_back(carry - kept, kept, call);
        self.used = (self.used + call.units(call.debt)).min(EXACT - 1);

        let left = call.window_begin(now) + call.period_ms - now;
        let whole = self.level(call) + call.units(self.lent() + kept);
        let rich = whole > call.capacity() - call.units(call.lend);
        let granted: Vec<u64> = call.runs.iter().map(|&run| self.grant(run, call)).collect();
        let all = granted.iter().zip(&call.runs).all(|(&granted, run)| granted == run.count);
        let (extra, limited) = if all { self.extra_of_window(left, rich, kept, call) } else { (0, false) };
        self.used += call.units(extra);

        // Rule 1, as for a bucket.
        let held = if call.hold { call.cost(&granted) } else { 0 };
        let size = kept + extra + held;
        let (end, valid_ms) = match size {
            0 => (0, 0),
            _ => self.open_slot(size, Kind::Long, left, now),
        };
        // W3.
        let valid_ms = valid_ms.min(left);

        self.slots.retain(|slot| slot.tokens > 0);
        self.time = now;
        // Rule 10: until every window is over in which a lease may be spent, and a second.
        let last = self.slots.iter().map(|slot| slot.end - 1).max().unwrap_or(now).max(now);
        self.expires_at = Some(call.window_begin(last) + call.period_ms + 1000);
        Reply {
            number: call.number,
            level: self.level(call).try_into().expect("levels are below 2^53"),
            reset_ms: left,
            end,
            valid_ms,
            kept,
            extra,
            limited,
            granted,
        }
    }

    fn lent_beyond(&self, border: u64) -> u64 {
        self.slots.iter().filter(|slot| slot.end > border).map(|slot| slot.tokens).sum()
    }

    /// New tokens for the caller's lease, and whether they are fewer than wanted because the window is scarce.
    fn extra_of_window(&self, left: u64, rich: bool, kept: u64, call: &Acquire) -> (u64, bool) {
        if call.want <= kept {
            return (0, false);
        }
        // What is wanted for 10 s, of which the window may have less.
        let share = (left as f64 / 10000.0).min(1.0);
        let wanted = (call.want as f64 * share).ceil() as i128 - i128::from(kept);
        // Rule 4: no more than is there; a quarter of it.
        let room = match rich {
            true => self.level(call).min(call.units(call.lend) - call.units(self.lent() + kept)),
            false => self.level(call),
        };
        if rich && call.burst < 64 {
            return (0, false);
        }
        let extra = wanted.min(room.max(0) / 4).max(0);
        (extra as u64, !rich && extra < wanted)
    }
}

impl Acquire {
    /// When the window of a moment has begun.
    pub fn window_begin(&self, moment: u64) -> u64 {
        (moment - self.offset_ms) / self.period_ms * self.period_ms + self.offset_ms
    }
}
