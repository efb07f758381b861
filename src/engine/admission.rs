//! A request takes what it needs of all its buckets, or of none.

use std::rc::Rc;

use super::Engine;
use super::plan::{Plan, Receipt, Taken};
use super::tally::{Decided, Tally, add_mark, mark_of, source_of};
use crate::algorithm::{Share, Standing};
use crate::clock::Ms;
use crate::limiter::Failure;
use crate::policy::{LimiterId, Mode, OnError};
use crate::response::{self, Header};
use crate::rules::Ask;
use crate::telemetry::{Effect, Mark, TokenSource};

/// A request that passes, as its stream keeps it until the response has ended: what is to be told, and what was taken
/// for it, so that it can be settled or given back when more is known of it.
#[derive(Debug)]
pub struct Admission {
    /// Under which policy.
    pub plan: Rc<Plan>,
    /// Headers that the response carries.
    pub headers: Vec<Header>,
    /// What was decided, for a client that has shown the secret of the debug header.
    pub told: Option<String>,
    /// What it has taken of each bucket, and from where.
    pub charges: Vec<Charge>,
}

impl Admission {
    /// Sets the headers that a response has to carry, each in the place of any of its name. `sent` reads a header of the
    /// response of the service behind; `ends` says that it has no body.
    pub fn on_response(&self, sent: &dyn Fn(&str) -> Option<Vec<u8>>, ends: bool, set: &dyn Fn(&str, &str)) {
        if !self.headers.is_empty() && !response::is_refused_behind(sent, ends) {
            for (name, value) in response::added(&self.plan.policy, &self.headers, &|name| sent(name).is_some()) {
                set(name, value);
            }
        }
        if let (Some(told), Some(observe)) = (&self.told, &self.plan.policy.observe) {
            // What another weir behind this one has told stays, first: it may be the one that has refused.
            match sent(&observe.debug_header) {
                Some(behind) => {
                    set(&observe.debug_header, &[&String::from_utf8_lossy(&behind), "; ", told].concat());
                }
                None => set(&observe.debug_header, told),
            }
        }
    }
}

/// What a request wants of one bucket, and what it has taken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Which tokens of which bucket.
    pub ask: Ask,
    /// From where this proxy took them; None where the limiter has granted them to the request itself, or nothing was
    /// taken.
    pub receipt: Option<Receipt>,
    pub(super) state: State,
    /// Until when it waits: as long as a request waits for the limiter that has the bucket.
    pub(super) deadline: Ms,
    /// How many calls have asked for it.
    pub(super) asked: u8,
}

impl Charge {
    pub(super) fn new(ask: Ask, deadline: Ms) -> Charge {
        Charge { ask, receipt: None, state: State::Open, deadline, asked: 0 }
    }
}

/// So often a request asks for the same tokens: what is granted may be gone before all it charges is there, and a table that
/// is too small forgets it again and again.
const MOST_ASKED: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has to be taken.
    Open,
    /// The limiter has to be asked.
    Missing,
    /// It stands in line.
    InLine,
    /// The limiter has granted it to this request.
    Granted(Standing),
    /// The limiter has refused it.
    Refused(Share),
    /// The limiter has failed.
    Failed(Failure),
}

/// Whether a request can still wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It can, at each bucket until its deadline there.
    Waits,
    /// A failure has decided it.
    Fails,
}

/// What one bucket has said to a request.
enum Told {
    /// The limiter has granted it to the request, which waited.
    ByLimiter(Share),
    /// This proxy has decided it alone.
    Here(Taken),
    /// It has not spoken yet.
    Nothing,
}

impl<S> Engine<S> {
    /// Takes what a request charges of all its buckets, or of none. None where a limiter has to be asked first.
    /// `marks` are those of rules that charge nothing; they are taken where the request is decided.
    pub(super) fn take_all(
        &mut self,
        plan: &Rc<Plan>,
        charges: &mut [Charge],
        marks: &mut Vec<Mark>,
    ) -> Option<Decided> {
        let mut tally = Tally::default();
        let mut unsure: Vec<(usize, Taken)> = Vec::new();
        // What was held may be gone by the time that another limiter answers: it is asked for again as long as the request
        // waits at all.
        let waits = last_deadline(charges) > self.now.mono;
        for (index, charge) in charges.iter_mut().enumerate().filter(|(_, charge)| !charge.ask.shadow) {
            match self.told_by(plan, charge, waits) {
                Told::ByLimiter(share) => tally_reply(&mut tally, plan, charge, share),
                Told::Here(taken @ (Taken::Missing { .. } | Taken::Probe)) => unsure.push((index, taken)),
                Told::Here(taken) => self.count_in(&mut tally, plan, charge, index, taken),
                Told::Nothing => {}
            }
        }
        self.count_in_unsure(&mut tally, plan, charges, &mut unsure, waits);
        if tally.is_refused() {
            // Nobody is asked any more, and yet what is told is when all of them have it.
            let asks = unsure.iter().filter_map(|(index, _)| Some(&charges.get(*index)?.ask));
            for (ask, share) in asks.filter_map(|ask| Some((ask, plan.expected(ask, self.now.mono)?))) {
                let mark = Mark { source: Some(TokenSource::Known), ..mark_of(plan, ask, Effect::Limited) };
                tally.refused(mark, ask.limit, share);
            }
        }
        let refusal = tally.refusal();
        if refusal.is_some() || tally.is_missing {
            for charge in charges {
                if let Some(receipt) = charge.receipt.take() {
                    plan.put_back(&charge.ask, receipt, self.now.mono);
                }
            }
            return refusal;
        }
        for (index, due) in &tally.due {
            if let Some(charge) = charges.get(*index) {
                self.look_after(plan, &charge.ask, *due);
            }
        }
        self.admitted(plan, charges, marks);
        Some(tally.admission(std::mem::take(marks)))
    }

    /// Counts in the buckets whose limiter has to be asked, until one decides the request: no probe of a limiter that is
    /// left alone, and no place of a new key, is spent on a request that nobody is asked for. Keeps those that were not
    /// decided here.
    fn count_in_unsure(
        &mut self,
        tally: &mut Tally,
        plan: &Plan,
        charges: &mut [Charge],
        unsure: &mut Vec<(usize, Taken)>,
        waits: bool,
    ) {
        let now = self.now.mono;
        let is_barred =
            |index: usize| charges.get(index).is_some_and(|charge| plan.is_barred(charge.ask.bucket.limiter, now));
        // Those that may not be asked come first, and last those that are spent at once as a probe.
        let (barred, others): (Vec<_>, Vec<_>) = std::mem::take(unsure).into_iter().partition(|(at, _)| is_barred(*at));
        let (probing, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, taken)| *taken == Taken::Probe);
        let mut probes: Vec<LimiterId> = Vec::new();
        for (index, mut taken) in barred.into_iter().chain(others).chain(probing) {
            let Some(charge) = charges.get_mut(index) else {
                continue;
            };
            if taken == Taken::Probe && tally.is_missing {
                // What it took would be put back until the others have answered, and the probe would be none.
                charge.state = State::Open;
            } else if !tally.is_decided() {
                // All that a request asks of one limiter is one probe.
                let limiter = charge.ask.bucket.limiter;
                let (is_open, is_in_probe) = (plan.is_open(limiter), probes.contains(&limiter));
                let random = self.random();
                taken = plan.may_ask(&charge.ask, taken, is_in_probe, now, random);
                taken = self.unless_it_cannot_wait(plan, charge, taken, waits);
                if is_open && !matches!(taken, Taken::Failed(_)) {
                    probes.push(limiter);
                }
                self.count_in(tally, plan, charge, index, taken);
            }
            if matches!(taken, Taken::Missing { .. } | Taken::Probe) {
                unsure.push((index, taken));
            }
        }
    }

    /// What a bucket has said already, or what this proxy can say in its place.
    fn told_by(&mut self, plan: &Plan, charge: &Charge, waits: bool) -> Told {
        match charge.state {
            State::Granted(standing) => Told::ByLimiter(Share::Granted(standing)),
            State::Refused(share) => Told::ByLimiter(share),
            State::Failed(failure) => Told::Here(Taken::Failed(failure)),
            State::InLine => Told::Nothing,
            State::Open | State::Missing => {
                if charge.ask.asks_limiter() && plan.is_left_alone(&charge.ask.bucket, self.now.mono) {
                    return Told::Here(Taken::Failed(Failure::BadKey));
                }
                let taken = plan.take(&charge.ask, self.now.mono);
                Told::Here(self.unless_it_cannot_wait(plan, charge, taken, waits))
            }
        }
    }

    /// A limiter is not asked by a request that cannot wait for its answer, nor for a key that is left alone.
    fn unless_it_cannot_wait(&self, plan: &Plan, charge: &Charge, taken: Taken, waits: bool) -> Taken {
        match taken {
            Taken::Missing { .. } if plan.is_left_alone(&charge.ask.bucket, self.now.mono) => {
                Taken::Failed(Failure::BadKey)
            }
            Taken::Missing { .. } if !waits || charge.asked >= MOST_ASKED => Taken::Failed(Failure::Timeout),
            taken => taken,
        }
    }

    /// Counts in what this proxy gives a request of one bucket. Where its limiter has failed, `on_error` decides.
    fn count_in(&self, tally: &mut Tally, plan: &Plan, charge: &mut Charge, index: usize, taken: Taken) {
        let mut mark = mark_of(plan, &charge.ask, Effect::Allowed);
        let tells = tells(plan, &charge.ask);
        let taken = match taken {
            Taken::Failed(failure) => {
                mark.degraded = Some(failure);
                plan.on_error(&charge.ask, failure, self.now.mono)
            }
            taken => Some(taken),
        };
        match taken {
            // It passes uncounted, and so is no repetition of anything should it be sent again.
            None => {
                charge.ask.repeat = None;
                tally.granted(mark, None, tells);
            }
            Some(Taken::Granted { limit, standing, receipt, due }) => {
                mark.source = Some(source_of(receipt));
                tally.granted(mark, Some((limit, standing)), tells);
                charge.receipt = Some(receipt);
                tally.due.extend(due.map(|due| (index, due)));
            }
            Some(Taken::Refused { limit, share }) => {
                let is_own = mark.degraded.is_some() || charge.ask.mode == Mode::Local;
                mark.source = Some(if is_own { TokenSource::Local } else { TokenSource::Known });
                tally.refused(mark, limit, share);
            }
            Some(Taken::Failed(failure)) => tally.failed(mark, charge.ask.bucket.limiter, failure),
            Some(Taken::Missing { .. } | Taken::Probe) => {
                charge.state = State::Missing;
                tally.is_missing = true;
            }
        }
    }

    /// What follows where a request passes: shadow rules count it, and it is known should it be sent again.
    fn admitted(&mut self, plan: &Rc<Plan>, charges: &[Charge], marks: &mut Vec<Mark>) {
        let now = self.now.mono;
        for charge in charges {
            let mut is_charged = true;
            if charge.ask.shadow {
                let random = self.random();
                let taken = plan.may_ask(&charge.ask, plan.take(&charge.ask, now), false, now, random);
                is_charged = matches!(taken, Taken::Granted { .. });
                let mut mark = mark_of(plan, &charge.ask, Effect::Allowed);
                match taken {
                    Taken::Granted { due, receipt, .. } => {
                        mark.source = Some(source_of(receipt));
                        if let Some(due) = due {
                            self.look_after(plan, &charge.ask, due);
                        }
                    }
                    Taken::Refused { .. } => mark.effect = Effect::Shadow,
                    Taken::Failed(_) | Taken::Missing { .. } | Taken::Probe => {}
                }
                add_mark(marks, mark);
            }
            if let Some(repeat) = charge.ask.repeat.as_ref().filter(|_| is_charged) {
                plan.remember(repeat, now);
            }
        }
    }
}

/// Counts in what the limiter has said to a request that waited.
fn tally_reply(tally: &mut Tally, plan: &Plan, charge: &Charge, share: Share) {
    let mark = Mark { source: Some(TokenSource::Limiter), ..mark_of(plan, &charge.ask, Effect::Allowed) };
    match share {
        Share::Granted(standing) => tally.granted(mark, Some((charge.ask.limit, standing)), tells(plan, &charge.ask)),
        Share::Refused { .. } => tally.refused(mark, charge.ask.limit, share),
    }
}

/// Whether clients are told how the buckets of a rule stand.
fn tells(plan: &Plan, ask: &Ask) -> bool {
    plan.policy.rules.get(ask.rule).is_some_and(|rule| rule.headers)
}

/// Until when a request waits at all.
pub(super) fn last_deadline(charges: &[Charge]) -> Ms {
    let asks = |charge: &&Charge| !charge.ask.shadow && charge.ask.mode != Mode::Local;
    charges.iter().filter(asks).map(|charge| charge.deadline).max().unwrap_or_default()
}

/// Whether a failure has to be answered at once, whatever other buckets say.
pub(super) fn is_final(ask: &Ask) -> bool {
    ask.on_error == OnError::Deny
}
