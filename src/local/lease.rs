//! The proxy's side of a lease: tokens that the limiter has lent it, and when it asks for more.
//!
//! All workers of a proxy share one lease a bucket, and one call about it is out at a time. Whatever happens, an unspent
//! token here is one that the limiter still counts as lent: that is what keeps the limit exact. The limiter's side is
//! in the scripts of `lua/`; why each step is as it is stands in docs/leases.md.

use crate::algorithm::{Lent, Limit, Offer, Terms, Used};
use crate::clock::Ms;

/// A proxy asks ahead when its tokens last for less than this.
const AHEAD: Ms = Ms(20);

/// What a proxy wants to hold: what it spends in this time.
const WANTED_FOR: Ms = Ms(10_000);

/// A lease of which nothing is spent for this long goes back, unless it is small.
const IDLE: Ms = Ms(5_000);

/// Large leases live this long at least, so that a call can come back before they end.
const SHORT_LIFE: Ms = Ms(3_000);

/// Clocks run at the same rate but for this part of the time.
const DRIFT: u64 = 1_000;

/// What a proxy holds of a bucket, and what it knows of its own demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Unspent tokens.
    pub tokens: u64,
    /// What it is counted with.
    pub size: u64,
    /// Its id, by the clock of the limiter; 0 where there is none.
    pub end: u64,
    /// From then on nothing of it may be spent.
    pub expires: Ms,
    /// When the call about it that is out is over, whatever has become of it; 0 where none is out.
    pub call_ends: Ms,
    /// Counts calls, so that what was taken before one is not put back after it. A new entry starts anywhere, so that what was
    /// taken from one that has been forgotten is not put back, either.
    pub turn: u32,
    /// Workers that wait for that call, a bit for each.
    pub waiting: u32,
    /// Tokens spent since.
    pub spent: u64,
    /// Since when spending is measured.
    pub since: Ms,
    /// Tokens spent in a thousand seconds, as measured before.
    pub rate: u64,
    /// How many tokens it wanted last.
    pub wanted: u64,
    /// Until then the limiter is not asked for costs of so many tokens.
    pub quiet_until: Ms,
    /// The least cost that was denied.
    pub quiet_cost: u64,
    /// The last call was denied something.
    pub denied: bool,
}

/// A time in which no call has begun or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    turn: u32,
    call_ends: Ms,
}

/// What a proxy wants of a bucket, apart from what those who wait need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// More, by demand.
    Borrow,
    /// The same, for one that waits with this cost: the limiter may have it only together with what is at hand.
    BorrowFor(u64),
    /// What it has.
    Keep,
    /// Nothing.
    GiveBack,
}

impl Lease {
    /// Tokens that may be spent now.
    pub fn at_hand(&self, now: Ms) -> u64 {
        if now < self.expires { self.tokens } else { 0 }
    }

    /// Spends the cost of one request, if it is at hand.
    pub fn spend(&mut self, now: Ms, cost: u64) -> bool {
        let Some(rest) = self.at_hand(now).checked_sub(cost) else {
            return false;
        };
        self.tokens = rest;
        self.spent = self.spent.saturating_add(cost);
        true
    }

    /// When it is, as calls count.
    pub fn moment(&self) -> Moment {
        Moment { turn: self.turn, call_ends: self.call_ends }
    }

    /// Puts back what was spent at this moment. Where a call has begun or ended since, the limiter has taken it for
    /// spent, and it stays so.
    pub fn put_back(&mut self, spent: Moment, cost: u64) {
        if self.moment() == spent {
            self.tokens = self.tokens.saturating_add(cost);
            self.spent = self.spent.saturating_sub(cost);
        }
    }

    /// How long the limiter is not to be asked for such a cost; None where it may be asked.
    pub fn quiet_for(&self, now: Ms, cost: u64) -> Option<Ms> {
        (now < self.quiet_until && cost >= self.quiet_cost).then(|| self.quiet_until - now)
    }

    /// Whether it is time to ask for more before the tokens run out. A demand that needs less than a token in that time
    /// may as well never come again.
    pub fn runs_out(&self, now: Ms) -> bool {
        let needed = self.rate_now(now).saturating_mul(AHEAD.0) / 1_000_000;
        let is_free = self.call_ends <= now && self.quiet_for(now, u64::MAX).is_none();
        is_free && needed >= 1 && self.at_hand(now) < needed
    }

    /// Starts the one call about it that may be out. None while another is out, which this worker then waits for.
    ///
    /// `ends` is when the call is over at the latest.
    pub fn open_call(
        &mut self,
        limit: Limit,
        terms: Terms,
        wish: Wish,
        worker: u32,
        now: Ms,
        ends: Ms,
    ) -> Option<Offer> {
        if self.call_ends > now {
            self.waiting |= worker;
            return None;
        }
        if self.call_ends > Ms(0) {
            // Nobody has said how the last call ended. The limiter may have taken off what was reported then.
            self.lose_call();
        }
        let carry = self.at_hand(now);
        let want = match wish {
            Wish::Borrow | Wish::BorrowFor(_) => self.want(limit, terms, now),
            Wish::Keep => carry,
            Wish::GiveBack => 0,
        };
        (self.spent, self.since) = (0, now);
        let offer = Offer { want, end: self.end, size: self.size, carry, debt: 0 };
        // What is not wanted any more may be another's as soon as the limiter reads this.
        self.tokens = carry.min(want);
        // Should the answer be lost, the new lease that the limiter has opened lives at least this long: in the slot that it
        // was put into, which another tier with shorter lives may have opened.
        self.expires = self.expires.min(now + margin(SHORT_LIFE.min(terms.life)));
        self.call_ends = ends;
        Some(offer)
    }

    /// The call has brought a lease. Gives the workers that wait for it.
    pub fn renew(&mut self, lent: &Lent, sent: Ms, now: Ms) -> u32 {
        // What was spent since the call was sent is part of what it carries on.
        let carried = self.at_hand(now).min(lent.kept);
        self.tokens = carried.saturating_add(lent.extra).saturating_add(lent.held);
        (self.size, self.end) = (lent.size(), lent.end);
        self.expires = sent + margin(lent.valid);
        self.close_call()
    }

    /// The call has certainly not been executed: all is as before, but for a lease that it did not name, since a call
    /// before it may have closed that. Gives the workers that wait for it.
    pub fn cancel_call(&mut self, offer: Offer) -> u32 {
        self.spent = self.spent.saturating_add(offer.debt);
        if offer.end != self.end {
            return self.lose_call();
        }
        self.tokens = self.tokens.saturating_add(offer.carry.saturating_sub(offer.want));
        self.close_call()
    }

    /// Nobody knows whether the call has been executed: nothing is left that the limiter surely counts. Gives the
    /// workers that wait for it.
    pub fn lose_call(&mut self) -> u32 {
        (self.tokens, self.size, self.end, self.expires) = (0, 0, 0, Ms(0));
        self.close_call()
    }

    fn close_call(&mut self) -> u32 {
        self.call_ends = Ms(0);
        self.turn = self.turn.wrapping_add(1);
        std::mem::take(&mut self.waiting)
    }

    /// Waiting requests got tokens of their own.
    pub fn was_granted(&mut self, tokens: u64) {
        self.spent = self.spent.saturating_add(tokens);
        self.denied = false;
    }

    /// The limiter has denied such a cost, which fits after `retry_after`, or as soon as another proxy gives back what it
    /// does not need. Until about then it is not asked again.
    pub fn was_denied(&mut self, limit: Limit, cost: u64, retry_after: Ms, now: Ms, random: u64) {
        let pace = limit.pace();
        let pace = if self.denied { pace.times(2).min(Ms(1000)) } else { pace };
        self.denied = true;
        self.be_quiet(retry_after.min(IDLE).max(pace), cost, now, random);
    }

    /// The limiter has lent less than was wanted, and has little: it is not asked until it has some again.
    pub fn was_limited(&mut self, limit: Limit, used: Used, now: Ms, random: u64) {
        if let Some(wait) = limit.scarce_for(used) {
            self.be_quiet(wait, 1, now, random);
        }
    }

    /// Longer at random by up to a half, but a second at most, so that proxies do not ask together.
    fn be_quiet(&mut self, wait: Ms, cost: u64, now: Ms, random: u64) {
        let most = Ms(wait.0 / 2).min(Ms(1000));
        let longer = Ms(random.checked_rem(most.0.saturating_add(1)).unwrap_or_default());
        (self.quiet_until, self.quiet_cost) = (now + wait + longer, cost);
    }

    /// How long nothing may be spent of it until it goes back; None where it stays until it ends. Giving small leases
    /// back would cost two calls for each request of a tenant that comes seldom.
    pub fn goes_back_after(&self, limit: Limit, terms: Terms, root_is_low: bool) -> Option<Ms> {
        if root_is_low {
            return Some(limit.pace());
        }
        if self.size > limit.small_lease() { Some(IDLE) } else { limit.small_lease_stays(terms.life) }
    }

    /// Tokens spent in a thousand seconds: as measured, or as it looks now, where that is more.
    fn rate_now(&self, now: Ms) -> u64 {
        self.rate.max(rate(self.spent, now - self.since))
    }

    /// By demand, but at most four times the last; and never so little that a call buys nothing.
    fn want(&mut self, limit: Limit, terms: Terms, now: Ms) -> u64 {
        if self.since > Ms(0) {
            self.rate = self.rate.saturating_add(rate(self.spent, now - self.since)) / 2;
        }
        let spent_in = |time: Ms| self.rate.saturating_mul(time.0) / 1_000_000;
        let least = limit.least_lease();
        let want = spent_in(WANTED_FOR).max(spent_in(terms.life).min(limit.small_lease())).max(least);
        self.wanted = want.min(self.wanted.saturating_mul(4).max(least));
        self.wanted
    }
}

/// Less than this is no time to measure a rate in: two requests that happen to come together are no demand.
const SHORTEST: Ms = Ms(100);

fn rate(spent: u64, time: Ms) -> u64 {
    spent.saturating_mul(1_000_000).checked_div(time.max(SHORTEST).0).unwrap_or_default()
}

/// A time as another clock may count it: shorter by its drift.
fn margin(time: Ms) -> Ms {
    time - Ms(time.0 / DRIFT) - Ms(1)
}
