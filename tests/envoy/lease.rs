//! Proxies that borrow: whatever the load and whatever breaks, one bucket could have admitted it; almost nothing is left
//! unused; and calls are few.
//!
//! `WEIR_CHAOS=1` runs it for longer and more often.

use std::ops::{Range, RangeInclusive};
use std::thread;
use std::time::{Duration, Instant};

use weir_stack::{Client, Request, burst};

use crate::load::{Limit, Load, Seen, Spread, admitted, assert_in_every_interval, ideally_admitted, under_load};
use crate::rig::{CONNECTIONS, Limiter, Options, Rig, answers, count, of, policy};
use crate::root::{IDLE, Root, assert_root_becomes, root};

fn is_long() -> bool {
    std::env::var_os("WEIR_CHAOS").is_some()
}

/// The mode is left out: leases are what a rule has.
fn lease(limit: Limit) -> String {
    of_mode("", limit)
}

fn of_mode(mode: &str, limit: Limit) -> String {
    policy("@", "2s", "deny").replace(r#""mode": "exact","#, mode).replace(r#""@""#, &limit.json())
}

fn three_envoys() -> Options<'static> {
    Options { envoys: 3, ..Options::default() }
}

/// Asserts that every call was made once and counted.
fn assert_calls_are_counted(rig: &Rig) {
    let counts = || (rig.calls(), rig.redis.script_runs().unwrap());
    let is_equal = |(counted, run)| counted == run;
    rig.envoys[0].wait_for(Duration::from_secs(3), |_| is_equal(counts()));
    let (counted, run) = counts();
    assert_eq!(counted, run, "calls counted and scripts run");
}

/// The longest of the shortest 99 %.
fn p99(seen: &[Seen]) -> Duration {
    let mut took: Vec<Duration> = seen.iter().map(Seen::took).collect();
    took.sort_unstable();
    took[(took.len() * 99).div_ceil(100) - 1]
}

const LIMITS: [Limit; 2] = [Limit::per_second(1000, 1000), Limit::per_second(200, 400)];

/// One load on one tenant: more than the limit for some time, then less.
struct Run {
    seen: Vec<Seen>,
    /// What one bucket would have admitted of it.
    ideal: Vec<bool>,
    /// How many were sent above the limit.
    over: usize,
    calls: u64,
    nearest: u64,
}

impl Run {
    fn of(rig: &mut Rig, limit: Limit, load: Load<'_>, over_ms: u64, below_ms: u64) -> Run {
        let (from, calls) = (rig.redis.time_ms().unwrap(), rig.redis.script_runs().unwrap());
        let mut seen = under_load(rig, load, |_| wait(over_ms));
        let over = seen.len();
        let below = Load { per_second: limit.requests * 7 / 10, ..load };
        seen.extend(under_load(rig, below, |_| wait(below_ms)));
        let (to, calls) = (rig.redis.time_ms().unwrap(), rig.redis.script_runs().unwrap() - calls);
        let (admitted, most) = (admitted(&seen), limit.most_in(to - from));
        assert!(admitted <= most, "{admitted} were admitted, at most {most} may be");
        assert!(seen.iter().all(|seen| matches!(seen.status, 200 | 429)), "nothing fails");
        let nearest = assert_in_every_interval(&seen, |ms| limit.most_in(ms));
        Run { ideal: ideally_admitted(&seen, limit), seen, over, calls, nearest }
    }

    /// Admitted of a part of the requests, to what one bucket would have admitted of them.
    fn use_in(&self, part: Range<usize>) -> f64 {
        let ideal = self.ideal[part.clone()].iter().filter(|fits| **fits).count();
        admitted(&self.seen[part]) as f64 / ideal as f64
    }

    /// Tokens that one bucket would have spent, and nobody has.
    fn unused(&self) -> i64 {
        self.ideal.iter().filter(|fits| **fits).count() as i64 - admitted(&self.seen) as i64
    }
}

#[test]
fn however_the_load_moves_one_bucket_could_have_admitted_it_and_uses_hardly_more() {
    let (runs, over_ms, below_ms) = if is_long() { (3, 15_000, 3000) } else { (1, 3500, 1000) };
    println!(
        "    {:<8} {:>10} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>7} {:>7}",
        "load",
        "limit",
        "offered",
        "admitted",
        "use",
        "over",
        "steady",
        "below",
        "unused",
        "r/call",
        "p99 ms",
        "nearest"
    );
    for limit in LIMITS {
        let mut rig = Rig::start(&lease(limit), three_envoys());
        let mut uses = Vec::new();
        for (run, spread) in (0..runs).flat_map(|run| [(run, Spread::Skewed), (run, Spread::Hopping)]) {
            let tenant = format!("{spread:?} {run}");
            let per_second = limit.requests * [200, 150, 175][run % 3] / 100;
            let run = Run::of(&mut rig, limit, Load { tenant: &tenant, per_second, spread }, over_ms, below_ms);
            // From when one bucket would have spent its burst.
            let dry = run.ideal.iter().position(|fits| !fits).expect("more was offered than the limit");
            let all = run.seen.len();
            println!(
                "    {:<8} {:>10} {:>8} {:>8} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {:>7} {:>6.1} {:>7.1} {:>7}",
                format!("{spread:?}"),
                format!("{}/s {}", limit.requests, limit.burst),
                all,
                admitted(&run.seen),
                run.use_in(0..all),
                run.use_in(0..run.over),
                run.use_in(dry..run.over),
                run.use_in(run.over..all),
                run.unused(),
                all as f64 / run.calls as f64,
                p99(&run.seen).as_secs_f64() * 1000.0,
                run.nearest,
            );
            uses.push(run.use_in(0..all));
        }
        let least = uses.iter().copied().fold(f64::MAX, f64::min);
        let largest = uses.iter().copied().fold(f64::MIN, f64::max);
        println!("    {}/s, burst {}: use {least:.3} to {largest:.3}", limit.requests, limit.burst);
        assert!(least >= 0.5, "only {least:.3} of what one bucket admits");
        assert_eq!(rig.degraded(), 0);
        assert_calls_are_counted(&rig);
        rig.assert_no_errors_logged();
    }
}

/// Breaks something under a load of twice the limit, and asserts that one bucket could have admitted what was.
fn assert_bound_holds(name: &str, options: Options<'_>, act: impl FnOnce(&mut Rig)) {
    let limit = LIMITS[0];
    let mut rig = Rig::start(&lease(limit), options);
    let load = Load { tenant: "acme", per_second: 2 * limit.requests, spread: Spread::Hopping };
    let from = rig.redis.time_ms().unwrap();
    let seen = under_load(&mut rig, load, act);
    let most = limit.most_in(rig.redis.time_ms().unwrap() - from);
    let (admitted, nearest) = (admitted(&seen), assert_in_every_interval(&seen, |ms| limit.most_in(ms)));
    println!("    {name}: {admitted} of {} admitted, at most {most} may be, nearest {nearest}", seen.len());
    assert!(admitted <= most, "{admitted} were admitted, at most {most} may be");
    assert!(
        seen.iter().all(|seen| matches!(seen.status, 200 | 429 | 503)),
        "a status that the policy does not ask for"
    );
    rig.assert_no_errors_logged_by_living();
}

fn wait(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

#[test]
fn a_redis_that_is_killed_and_has_lost_no_write_admits_nothing_twice() {
    assert_bound_holds("Redis killed, writes kept", Options { durable: true, ..three_envoys() }, |rig| {
        for _ in 0..if is_long() { 4 } else { 1 } {
            wait(1000);
            rig.redis.kill();
            wait(400);
            rig.redis.restart().unwrap();
            rig.webdis.wait_connected().unwrap();
            wait(1500);
        }
    });
}

#[test]
fn scripts_that_are_flushed_under_load_add_nothing() {
    assert_bound_holds("scripts flushed", three_envoys(), |rig| {
        let mut operator = rig.redis.operator().unwrap();
        for _ in 0..if is_long() { 200 } else { 40 } {
            redis::cmd("SCRIPT").arg("FLUSH").exec(&mut operator).unwrap();
            wait(50);
        }
        assert_eq!(rig.degraded(), 0, "nobody notices");
    });
}

#[test]
fn an_envoy_that_dies_takes_its_leases_along_and_adds_nothing() {
    assert_bound_holds("an Envoy killed", three_envoys(), |rig| {
        wait(1200);
        rig.envoys[0].kill();
        wait(if is_long() { 8000 } else { 2500 });
    });
}

/// What is lent under the old limit may still be spent. The root counts it against the new burst before it grants
/// anything: so in an interval either nothing was granted, and what was lent was spent, or the new limit holds.
#[test]
fn a_lowered_limit_holds_from_then_on_but_for_what_is_lent_already() {
    let (old, new) = (LIMITS[0], Limit::per_second(100, 100));
    let mut rig = Rig::start(&lease(old), three_envoys());
    let load = |per_second| Load { tenant: "acme", per_second, spread: Spread::Hopping };
    let before = under_load(&mut rig, load(700), |rig| {
        wait(1500);
        for envoy in &mut rig.envoys {
            envoy.push_policy(&lease(new)).unwrap();
        }
        // Calls under the old limit end.
        wait(200);
    });
    assert_in_every_interval(&before, |ms| old.most_in(ms));
    let Root { lent, .. } = root(&rig, "user.acme", "per-user", old);
    let after = under_load(&mut rig, load(500), |_| wait(if is_long() { 8000 } else { 4000 }));
    let at_first = after.iter().take(200).filter(|seen| seen.status == 200).count();
    println!(
        "    a lowered limit: {lent} lent, {at_first} of the first 200 and {} of {} admitted",
        admitted(&after),
        after.len()
    );
    assert_in_every_interval(&after, |ms| lent.max(new.most_in(ms)));
    rig.assert_no_errors_logged();
}

#[test]
fn a_warm_tenant_far_below_its_limit_costs_almost_no_calls() {
    let rig = Rig::start(&lease(Limit::per_second(100_000, 100_000)), three_envoys());
    assert_eq!(count(&rig.send(&vec![of("acme"); 200]), 200), 200);
    let before = rig.redis.script_runs().unwrap();
    let outcomes = burst(&rig.ports(), CONNECTIONS, &vec![of("acme"); 1000]);
    let mut took: Vec<Duration> = outcomes.iter().map(|outcome| outcome.took).collect();
    took.sort_unstable();
    assert_eq!(count(&answers(outcomes), 200), 1000);
    let calls = rig.redis.script_runs().unwrap() - before;
    println!("    {calls} calls for 1,000 requests; took {:?}, p99 {:?}", took[500], took[989]);
    assert!(calls <= 50, "{calls} calls for 1,000 requests");
    assert_calls_are_counted(&rig);
    rig.assert_no_errors_logged();
}

#[test]
fn both_workers_share_the_one_call_that_opens_a_lease() {
    let options = Options { envoys: 1, limiter: Limiter::Delayed(1000), ..Options::default() };
    let timeout = lease(Limit::per_second(100_000, 100_000)).replace(r#""timeout": "2s""#, r#""timeout": "10s""#);
    let rig = Rig::start(&timeout, options);
    let port = rig.envoys[0].port();
    // Redis learns the script.
    assert_eq!(Client::new(port).send(&of("another")).unwrap().status, 200);
    let before = rig.peer.delayed_requests(0);
    let calls = || rig.peer.delayed_requests(0) - before;
    let active = || rig.envoys[0].stat("http.ingress.downstream_rq_active");
    let waiting = thread::spawn(move || answers(burst(&[port], CONNECTIONS, &vec![of("acme"); CONNECTIONS])));
    let all_wait = rig.envoys[0].wait_for(Duration::from_secs(5), |_| active() == Some(CONNECTIONS as u64));
    assert!(all_wait, "{CONNECTIONS} requests wait, at both workers");
    assert_eq!((calls(), active()), (1, Some(CONNECTIONS as u64)), "calls while all of them wait");
    let waiting = waiting.join().unwrap();
    let others: Vec<_> = waiting.iter().filter(|answer| answer.status != 200).map(|answer| answer.text()).collect();
    assert_eq!((count(&waiting, 200), others), (CONNECTIONS as u64, vec![]));
    println!("    {} calls for {CONNECTIONS} requests at once at a cold key", calls());
    // The rest of the one worker, then of the other, and one ahead of need.
    assert!(calls() <= 4, "{} calls", calls());
    rig.assert_no_errors_logged();
}

/// Each Envoy spends first, from what the limiter has told it once: before it hears of the others, one burst each.
#[test]
fn where_tokens_are_spent_first_the_first_waits_and_nobody_else_and_the_root_learns_of_all_of_it() {
    let limit = Limit::per_day(500);
    let policy = of_mode(r#""mode": "async", "sync_interval": "100ms","#, limit);
    let mut rig = Rig::start(&policy, Options { limiter: Limiter::Delayed(500), ..three_envoys() });
    // The first request in each Envoy waits until the limiter has said what there is.
    let firsts = answers(rig.ports().iter().flat_map(|port| burst(&[*port], 1, &[of("acme")])).collect());
    assert_eq!(count(&firsts, 200), 3);
    let mut all = 3;
    for round in 1..=3_u8 {
        let load = Load { tenant: "acme", per_second: 1500, spread: Spread::Hopping };
        let seen = under_load(&mut rig, load, |_| wait(1000));
        let (admitted, slowest) = (admitted(&seen), p99(&seen));
        println!("    async, round {round}: {admitted} of {} admitted, p99 {slowest:?}", seen.len());
        assert!(slowest < Duration::from_millis(200), "p99 {slowest:?} with a limiter that takes 500 ms");
        all += admitted;
        assert!(all <= 3 * limit.burst, "{all} were admitted, one burst in each Envoy may be");
        assert!(round < 3 || admitted == 0, "all have heard that nothing is left, and {admitted} were admitted");
        // Nothing was asked for, so there is no lease; debts make the bucket negative.
        let left = limit.burst as i64 - all as i64;
        assert_root_becomes(&rig, "user.acme", "per-user", limit, left..=left);
    }
    assert_eq!(rig.degraded(), 0);
    assert_calls_are_counted(&rig);
    rig.assert_no_errors_logged();
}

/// Sends until so many are admitted, which must not take long, and then some more. Gives how many were.
fn assert_admits(rig: &Rig, ports: &[u16], request: &Request, wanted: RangeInclusive<u64>) -> u64 {
    let since = Instant::now();
    let send = |count: usize| answers(burst(ports, 16, &vec![request.clone(); count]));
    let mut admitted = 0;
    while admitted < *wanted.start() && since.elapsed() < IDLE {
        admitted += count(&send(50), 200);
        wait(50);
    }
    println!("    {admitted} of {wanted:?} admitted after {:?}", since.elapsed());
    let last = send(50);
    admitted += count(&last, 200);
    let refused = last.iter().find(|answer| answer.status != 200);
    assert!(wanted.contains(&admitted), "{admitted} admitted, {wanted:?} wanted; refused: {refused:?}");
    assert_eq!(rig.degraded(), 0);
    admitted
}

/// Rules for each user, which lends, and for everybody, which is exact.
fn two_rules(per_user: &str, everybody: &str) -> String {
    let per_user = policy(per_user, "2s", "deny").replace(r#""mode": "exact","#, "");
    let second = format!(
        r#"}}, {{"name": "everybody", "key": [{{"constant": "all"}}], "mode": "exact", "limits": "{everybody}",
            "on_error": "deny"}}]}}"#
    );
    format!("{}{second}", per_user.strip_suffix("}]}").expect("the end of the rules"))
}

#[test]
fn a_request_that_one_rule_refuses_takes_nothing_of_the_other() {
    let rig = Rig::start(&two_rules("500/d", "300/d"), Options { envoys: 1, concurrency: 1, ..Options::default() });
    assert_admits(&rig, &rig.ports(), &of("acme"), 300..=300);
    assert_eq!(count(&rig.send(&vec![of("acme"); 500]), 429), 500);
    assert_root_becomes(&rig, "constant.all", "everybody", Limit::per_day(300), 0..=0);
    assert_root_becomes(&rig, "user.acme", "per-user", Limit::per_day(500), 200..=200);
    rig.assert_no_errors_logged();
}

/// Between taking a token and putting it back, a call of the other worker may come: then the token stays spent.
#[test]
fn of_two_workers_and_two_rules_refused_requests_cost_hardly_a_token() {
    let rig = Rig::start(&two_rules("100/d", "1000/d"), Options { envoys: 1, ..Options::default() });
    let mut all = 0;
    for tenant in ["acme", "bob", "carol"] {
        all += assert_admits(&rig, &rig.ports(), &of(tenant), 95..=100);
        assert_eq!(count(&rig.send(&vec![of(tenant); 300]), 429), 300);
    }
    let left = 1000 - all as i64;
    assert_root_becomes(&rig, "constant.all", "everybody", Limit::per_day(1000), left - 5..=left);
    rig.assert_no_errors_logged();
}

#[test]
fn an_idle_lease_goes_back_and_another_envoy_gets_it() {
    let limit = Limit::per_day(1000);
    let rig = Rig::start(&lease(limit), Options::default());
    let [first, second] = rig.ports()[..] else { panic!("two Envoys") };
    assert_eq!(count(&answers(burst(&[first], 16, &vec![of("acme"); 300])), 200), 300);
    let lent = root(&rig, "user.acme", "per-user", limit).lent;
    println!("    {lent} lent to an Envoy that goes idle");
    assert!(lent > 0, "it holds a lease");
    assert_admits(&rig, &[second], &of("acme"), 700..=700);
    assert_root_becomes(&rig, "user.acme", "per-user", limit, 0..=0);
    rig.assert_no_errors_logged();
}
