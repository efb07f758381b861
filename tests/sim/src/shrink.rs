//! A failing run, cut down until nothing more can be left out.

use std::collections::BTreeSet;

use crate::demand::Listed;
use crate::scenario::{Network, Scenario};
use crate::world::{Outcomes, World};

/// The most runs that are tried.
const TRIES: u32 = 4000;

/// Runs a scenario whose requests are written out.
pub fn run(scenario: &Scenario, log: bool) -> Outcomes {
    World::run(scenario, Box::new(Listed(scenario.arrivals.iter())), false, log)
}

/// The smallest scenario found that still breaks something, whatever it is.
pub fn shrunk(scenario: &Scenario) -> Scenario {
    let mut best = scenario.clone();
    let mut tries = 0;
    loop {
        let before = size(&best);
        for cut in CUTS {
            cut(&mut best, &mut |candidate: &Scenario| {
                tries += 1;
                tries <= TRIES && run(candidate, false).violation.is_some()
            });
        }
        if tries > TRIES || size(&best) == before {
            return best;
        }
    }
}

type Fails<'f> = &'f mut dyn FnMut(&Scenario) -> bool;

const CUTS: [fn(&mut Scenario, Fails); 5] = [cut_end, cut_arrivals, cut_faults, cut_network, cut_costs];

fn size(scenario: &Scenario) -> (usize, usize, usize, u64) {
    let Scenario { arrivals, faults, network, .. } = scenario;
    (arrivals.len(), faults.len(), network.spared.len(), scenario.ends + u64::from(network.is_perfect()))
}

fn keep(best: &mut Scenario, fails: Fails, change: impl FnOnce(&mut Scenario)) -> bool {
    let mut candidate = best.clone();
    change(&mut candidate);
    let still = fails(&candidate);
    if still {
        *best = candidate;
    }
    still
}

/// Nothing after the violation matters.
fn cut_end(best: &mut Scenario, fails: Fails) {
    if let Some(violation) = run(best, false).violation {
        keep(best, fails, |scenario| {
            scenario.ends = violation.at;
            scenario.arrivals.retain(|arrival| arrival.at <= violation.at);
            scenario.faults.retain(|fault| fault.at <= violation.at);
        });
    }
}

/// Leaves out ever smaller pieces.
fn cut_pieces(count: usize, mut leave_out: impl FnMut(std::ops::Range<usize>) -> bool) {
    let (mut count, mut piece) = (count, count.div_ceil(2));
    while piece > 0 {
        let mut at = count.saturating_sub(piece);
        loop {
            let end = (at + piece).min(count);
            if leave_out(at..end) {
                count -= end - at;
            }
            if at == 0 {
                break;
            }
            at = at.saturating_sub(piece);
        }
        piece /= 2;
    }
}

fn cut_arrivals(best: &mut Scenario, fails: Fails) {
    cut_pieces(best.arrivals.len(), |range| keep(best, fails, |scenario| drop(scenario.arrivals.drain(range))));
}

fn cut_faults(best: &mut Scenario, fails: Fails) {
    cut_pieces(best.faults.len(), |range| keep(best, fails, |scenario| drop(scenario.faults.drain(range))));
}

/// What happens to messages: all of a kind at once, then message by message.
fn cut_network(best: &mut Scenario, fails: Fails) {
    let kinds: [fn(&mut Network); 9] = [
        |network| *network = Network { delay: network.delay, ..Network::default() },
        |network| network.slow = 0,
        |network| network.lost_calls = 0,
        |network| network.lost_replies = 0,
        |network| network.doubled_replies = 0,
        |network| network.swapped_replies = 0,
        |network| network.doubled_calls = 0,
        |network| network.refused = 0,
        |network| network.lost_wakes = 0,
    ];
    for kind in kinds {
        keep(best, fails, |scenario| kind(&mut scenario.network));
    }
    if !best.network.is_perfect() {
        let calls = run(best, false).tally.calls as u32;
        for number in (0..calls).filter(|number| !best.network.spared.contains(number)).collect::<BTreeSet<u32>>() {
            keep(best, fails, |scenario| {
                scenario.network.spared.insert(number);
            });
        }
    }
    keep(best, fails, |scenario| scenario.drifts.fill(0));
}

fn cut_costs(best: &mut Scenario, fails: Fails) {
    for number in 0..best.arrivals.len() {
        if best.arrivals[number].cost > 1 && best.costs.contains(&1) {
            keep(best, fails, |scenario| scenario.arrivals[number].cost = 1);
        }
        if best.arrivals[number].patience > 0 {
            keep(best, fails, |scenario| scenario.arrivals[number].patience = 0);
        }
    }
}
