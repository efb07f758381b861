//! `sim`: runs seeds, replays one, explores small cases, prints figures. `sim help` says how.

use std::process::ExitCode;

use weir_sim::scenario::Scenario;
use weir_sim::shrink::{run, shrunk};
use weir_sim::{explore, model};

const HELP: &str = "\
sim SEEDS=n [FROM=m] [JOBS=j] [SECONDS=s]   run seeds m to m+n-1, or for so long; tell, cut down and log the first that fails
sim SEED=n                        run one seed with a log
sim explore [DEPTH=d] [SECONDS=s] [CASE=name]   try every order in small cases
sim model [CALLS=c] [SECONDS=s] [CASE=name]    the same for the root alone, with proxies that keep the rules
sim figures [OUT=folder] [CASE=name]            measure large cases; plots go to the folder";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| {
        let prefix = format!("{name}=");
        arguments.iter().find_map(|argument| argument.strip_prefix(&prefix)).map(str::to_owned)
    };
    let number = |name: &str| text(name).and_then(|value| value.replace('_', "").parse::<u64>().ok());
    let wants = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_well = if let Some(seed) = number("SEED") {
        one(seed)
    } else if let Some(seeds) = number("SEEDS") {
        many(number("FROM").unwrap_or(0), seeds, number("JOBS").unwrap_or(1), number("SECONDS"))
    } else if wants("explore") {
        explore::all(number("DEPTH").map(|depth| depth as usize), number("SECONDS"), text("CASE").as_deref())
    } else if wants("model") {
        model::all(number("CALLS").map(|calls| calls as u8), number("SECONDS"), text("CASE").as_deref())
    } else if wants("figures") {
        figures(text("OUT").as_deref(), text("CASE").as_deref())
    } else {
        println!("{HELP}");
        wants("help")
    };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "figures")]
fn figures(out: Option<&str>, case: Option<&str>) -> bool {
    weir_sim::figures::all(out, case)
}

#[cfg(not(feature = "figures"))]
fn figures(_out: Option<&str>, _case: Option<&str>) -> bool {
    println!("build it with --features figures");
    false
}

/// Runs one seed and tells everything that happens.
fn one(seed: u64) -> bool {
    let scenario = Scenario::short(seed);
    tell(&scenario);
    let outcomes = run(&scenario, true);
    outcomes.log.iter().for_each(|line| println!("{line}"));
    println!("{:?}", outcomes.tally);
    let Some(violation) = outcomes.violation else {
        return true;
    };
    println!("seed {seed} is BROKEN at {} us: {}", violation.at, violation.what);
    tell_small(&scenario);
    false
}

fn tell(scenario: &Scenario) {
    let Scenario { arrivals, network, .. } = scenario;
    let brief = Scenario { arrivals: Vec::new(), network: network.clone(), ..scenario.clone() };
    println!("{brief:?}, {} requests", arrivals.len());
}

/// Cuts a failing scenario down, and tells what happens in the rest.
fn tell_small(scenario: &Scenario) {
    let small = shrunk(scenario);
    println!("\ncut down:");
    tell(&small);
    run(&small, true).log.iter().for_each(|line| println!("{line}"));
}

/// Runs many seeds, in as many threads as are wanted; the result does not depend on them.
fn many(from: u64, seeds: u64, jobs: u64, seconds: Option<u64>) -> bool {
    let watch = explore::Watch::new(seconds);
    let failed: Option<u64> = std::thread::scope(|scope| {
        let watch = &watch;
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || share(from, seeds, job, jobs, watch))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("a thread that runs seeds")).min()
    });
    let Some(seed) = failed else {
        return true;
    };
    let scenario = Scenario::short(seed);
    let violation = run(&scenario, false).violation.expect("a seed that failed fails again");
    println!("\nseed {seed} is BROKEN at {} us: {}\nreplay it with SEED={seed}", violation.at, violation.what);
    tell_small(&scenario);
    false
}

/// One thread's share of the seeds. Returns the first that fails.
fn share(from: u64, seeds: u64, job: u64, jobs: u64, watch: &explore::Watch) -> Option<u64> {
    let mut sums = [0u64; 6];
    let mut done = 0;
    for seed in (from + job..from + seeds).step_by(jobs as usize) {
        let outcomes = run(&Scenario::short(seed), false);
        if outcomes.violation.is_some() {
            return Some(seed);
        }
        let tally = outcomes.tally;
        let of = [tally.requests, tally.admitted, tally.refused, tally.failed, tally.waited, tally.calls];
        sums.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
        done += 1;
        if watch.is_over() {
            break;
        }
        if job == 0 && done % 20_000 == 0 {
            println!("about {} of {seeds} seeds, {:.0} s", done * jobs, watch.seconds());
        }
    }
    let [requests, admitted, refused, failed, waited, calls] = sums;
    println!(
        "{done} seeds: {requests} requests, {admitted} tokens admitted, {refused} refused, {failed} failed, {waited} \
         waited, {calls} calls; {:.1} s",
        watch.seconds()
    );
    None
}
