//! What a request is answered by the state of its buckets: the core's own flow, over buckets that are made up here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::When;
use crate::clock::{Ms, Now};
use crate::engine::plan::Plan;
use crate::engine::{Arrival, CallOwner, Engine};
use crate::local::{Lost, Over, Store};
use crate::policy::{Mode, Policy};
use crate::response::{Answer, Outcome, answer};
use crate::rules::Ask;

/// Shared data of a proxy of one worker.
#[derive(Debug, Default)]
struct Shared(RefCell<BTreeMap<String, (Vec<u8>, u32)>>);

impl Store for Shared {
    fn get(&self, name: &str) -> Option<(Vec<u8>, u32)> {
        self.0.borrow().get(name).cloned()
    }

    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost> {
        let mut values = self.0.borrow_mut();
        let number = values.get(name).map(|(_, number)| *number);
        let next = match (number, over) {
            (None, Over::Nothing) => 1,
            (Some(number), Over::This(wanted)) if number == wanted => number.wrapping_add(1),
            _ => return Err(Lost),
        };
        values.insert(name.to_owned(), (value.to_vec(), next));
        Ok(())
    }
}

/// When all its buckets are full, and when one of them is empty: what the request gets then. Moments are told from 0.
pub fn answers(policy: &Policy, asks: &[Ask]) -> Vec<(When, Answer)> {
    let asks: Vec<Ask> = asks.iter().filter(|ask| !ask.shadow).map(here).collect();
    if asks.is_empty() {
        return vec![(When::Always, answer(policy, &Outcome::Pass, Ms(0), 0))];
    }
    let mut told = Vec::new();
    told.extend(arrive(policy, None, &asks).map(|answer| (When::Full, answer)));
    for ask in &asks {
        let rule = policy.rules.get(ask.rule).map(|rule| rule.name.clone()).unwrap_or_default();
        let is_one_of_several = asks.iter().filter(|other| other.rule == ask.rule).count() > 1;
        let when =
            When::Empty { rule, per: is_one_of_several.then(|| ask.limit.period()), algorithm: ask.limit.algorithm() };
        told.extend(arrive(policy, Some(ask), &asks).map(|answer| (when, answer)));
    }
    told
}

/// The same bucket, kept here: how its limit answers is the same wherever its tokens are.
fn here(ask: &Ask) -> Ask {
    let own = match ask.mode {
        Mode::Local => ask.own,
        _ => Some(ask.limit),
    };
    Ask { mode: Mode::Local, own, repeat: None, ..ask.clone() }
}

/// What a request gets, after one that has taken all of a bucket.
fn arrive(policy: &Policy, emptied: Option<&Ask>, asks: &[Ask]) -> Option<Answer> {
    let mut policy = Policy { table_entries: 4096, ..policy.clone() };
    // A wait is told without what is added to it at random.
    policy.response.retry_after_jitter = 0;
    let plan = Rc::new(Plan::new(1, policy, Rc::new(Shared::default()), (1, 2)));
    let mut flow: Engine<()> = Engine::new(CallOwner::Root, 0, 0);
    // Long after the start of time, so that nothing lies before it.
    let now = Now { mono: Ms(1 << 40), unix: Ms(0) };
    if let Some(ask) = emptied {
        let all = ask.own.map_or(ask.cost, |own| own.burst());
        flow.charge(&plan, vec![Ask { cost: all, ..ask.clone() }], Vec::new(), (), now);
    }
    match flow.charge(&plan, asks.to_vec(), Vec::new(), (), now) {
        (Arrival::Decided(verdict), _) => Some(verdict.answer),
        (Arrival::Waits(_), _) => None,
    }
}
