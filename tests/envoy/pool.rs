//! What a proxy decides alone: keys that are dry, local buckets, and a limiter that is to be left alone.

use std::time::{Duration, Instant};

use weir_stack::{Client, Envoy, Request, Response, burst};

use crate::rig::{CONNECTIONS, Limiter, Options, Rig, answers, count, of, policy};

#[test]
fn envoy_gives_a_steady_clock() {
    let rig = Rig::start(&policy("9/d", "2s", "deny"), one_envoy());
    let log = rig.envoys[0].log();
    assert!(log.contains("is in force, timed by the host's steady clock"), "{log}");
}

fn one_envoy() -> Options<'static> {
    Options { envoys: 1, ..Options::default() }
}

/// The same policy with more words at its top, in its limiter, or others in its rule.
fn with(policy: &str, top: &str, limiter: &str) -> String {
    policy
        .replace(r#""version": 1,"#, &format!(r#""version": 1, {top}"#))
        .replace(r#""transport": "webdis","#, &format!(r#""transport": "webdis", {limiter}"#))
}

fn local(limit: &str, proxies: u64) -> String {
    let policy = policy(limit, "2s", "deny").replace(r#", "on_error": "deny""#, "").replace(r#""exact""#, r#""local""#);
    with(&policy, &format!(r#""proxies": {proxies},"#), "")
}

#[test]
fn an_attack_on_a_dry_key_costs_redis_almost_nothing() {
    let rig = Rig::start(&policy("50/d", "2s", "deny"), Options::default());
    assert_eq!(count(&rig.send(&vec![of("acme"); 200]), 200), 50);
    let before = rig.redis.script_runs().unwrap();
    let refused = rig.send(&vec![of("acme"); 2000]);
    assert_eq!(count(&refused, 429), 2000);
    assert_eq!(rig.redis.script_runs().unwrap(), before, "both Envoys know that the bucket is dry");
    assert!(refused.iter().all(|answer| answer.header("x-ratelimit-remaining") == Some("0")));
    // Another tenant is not concerned.
    assert_eq!(count(&rig.send(&vec![of("bob"); 10]), 200), 10);
    rig.assert_no_errors_logged();
}

#[test]
fn a_local_bucket_is_one_for_both_workers_and_asks_nobody() {
    // 500 among 2 proxies is 250 in each.
    let mut rig = Rig::start(&local("500/d", 2), one_envoy());
    rig.webdis.kill();
    let answers = rig.send(&vec![of("acme"); 800]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (250, 550));
    assert_eq!(rig.redis.script_runs().unwrap(), 0);
    rig.assert_no_errors_logged();
}

#[test]
fn many_tenants_that_are_touched_at_once_by_both_workers_lose_no_token() {
    let rig = Rig::start(&local("14/d", 2), one_envoy());
    let tenants: Vec<String> = (0..100).map(|number| format!("tenant {number}")).collect();
    let requests: Vec<Request> = (0..2000).map(|number| of(&tenants[number / 20])).collect();
    let answers = rig.send(&requests);
    for (number, tenant) in tenants.iter().enumerate() {
        let own: Vec<Response> = answers[number * 20..][..20].to_vec();
        assert_eq!((count(&own, 200), count(&own, 429)), (7, 13), "{tenant}");
    }
    rig.assert_no_errors_logged();
}

#[test]
fn while_the_limiter_is_away_a_local_bucket_is_the_limit_and_then_redis_is_again() {
    let policy = with(&policy("500/d", "2s", "local"), r#""proxies": 2,"#, "");
    let mut rig = Rig::start(&policy, Options::default());
    assert_eq!(count(&rig.send(&vec![of("acme"); 100]), 200), 100);
    rig.webdis.kill();
    let answers = rig.send(&vec![of("acme"); 1000]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (500, 500), "250 in each Envoy");
    rig.webdis.restart().unwrap();
    wait_for_limiter(&rig);
    // What the local buckets have admitted is not charged to Redis' bucket: 400 are left in it.
    let answers = rig.send(&vec![of("acme"); 1000]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (400, 600));
    rig.assert_no_errors_logged();
}

/// Waits until all workers ask the limiter again: no decision is degraded any more. At most 2 s.
fn wait_for_limiter(rig: &Rig) {
    let since = Instant::now();
    loop {
        let before = rig.degraded();
        burst(&rig.ports(), 32, &vec![of("somebody else"); 32]);
        if rig.degraded() == before {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(2), "decisions are still degraded");
    }
}

#[test]
fn an_open_breaker_decides_at_once_and_probes_now_and_then() {
    let breaker = r#""breaker": {"failures": 5, "within": "10s", "probe_every": "1s"},"#;
    let options = Options { limiter: Limiter::Delayed(5000), ..one_envoy() };
    let rig = Rig::start(&with(&policy("500/d", "300ms", "deny"), "", breaker), options);
    // Each of these waits and fails.
    let tenants: Vec<Request> = (0..8).map(|number| of(&format!("tenant {number}"))).collect();
    assert_eq!(count(&rig.send(&tenants), 503), 8);
    std::thread::sleep(Duration::from_millis(100)); // a tick of the other worker
    let outcomes = burst(&rig.ports(), CONNECTIONS, &vec![of("acme"); 400]);
    let quick = outcomes.iter().filter(|outcome| outcome.took < Duration::from_millis(250)).count();
    assert_eq!(count(&answers(outcomes), 503), 400);
    // One probe at a time may have waited, with whoever joined it.
    assert!(quick >= 380, "{quick} of 400 were decided without a wait");
    assert!(rig.counted("degraded_decisions.per-user.breaker") >= 380);
    assert!(rig.peer.delayed_requests(0) <= 12, "{} calls", rig.peer.delayed_requests(0));
    rig.assert_no_errors_logged();
}

#[test]
fn new_keys_are_capped() {
    let cap = r#""max_new_keys_per_second": 20,"#;
    let rig = Rig::start(&with(&policy("50/d", "2s", "deny"), "", cap), one_envoy());
    let from = Instant::now();
    let invented: Vec<Request> = (0..1000).map(|number| of(&format!("invented {number}"))).collect();
    let answers = rig.send(&invented);
    let passed = count(&answers, 200);
    // 20 at once, and 20 a second.
    let most = 20 + 20 * (from.elapsed().as_secs() + 1);
    assert!((20..=most).contains(&passed), "{passed} new keys, at most {most}");
    assert_eq!(rig.counted("degraded_decisions.per-user.new_keys"), 1000 - passed);
    // A key that is known is not new.
    let known = invented.iter().zip(&answers).find(|(_, answer)| answer.status == 200).map(|(request, _)| request);
    let again = rig.send(&vec![known.expect("one has passed").clone(); 10]);
    assert_eq!(count(&again, 200), 10);
    rig.assert_no_errors_logged();
}

#[test]
fn a_lowered_limit_and_a_raised_one_hold_with_the_next_request() {
    let mut rig = Rig::start(&policy("20/d", "2s", "deny"), one_envoy());
    let ask = |rig: &Rig, count: usize| rig.send(&vec![of("acme"); count]);
    assert_eq!(count(&ask(&rig, 30), 200), 20);
    // Known to be dry under the old limit; a raised one has its room at once, so Redis is asked and says so.
    let before = rig.redis.script_runs().unwrap();
    rig.envoys[0].push_policy(&policy("40/d", "2s", "deny")).unwrap();
    let answer = ask(&rig, 1).remove(0);
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("40")));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("19"));
    assert_eq!(rig.redis.script_runs().unwrap(), before + 1);
    rig.envoys[0].push_policy(&policy("unlimited", "2s", "deny")).unwrap();
    assert_eq!(ask(&rig, 1).remove(0).status, 200);
    rig.envoys[0].push_policy(&policy("deny", "2s", "deny")).unwrap();
    assert_eq!(ask(&rig, 1).remove(0).status, 403);
    rig.assert_no_errors_logged();
}

#[test]
fn what_was_used_of_a_local_bucket_counts_under_another_limit() {
    let mut rig = Rig::start(&local("500/d", 2), one_envoy());
    let ask = |rig: &Rig, count: usize| rig.send(&vec![of("acme"); count]);
    assert_eq!(count(&ask(&rig, 100), 200), 100);
    // The new share is 50, and 100 are used.
    rig.envoys[0].push_policy(&local("100/d", 2)).unwrap();
    assert_eq!(count(&ask(&rig, 100), 200), 0);
    // A rollout that goes back finds the 150 that were left of 250.
    rig.envoys[0].push_policy(&local("500/d", 2)).unwrap();
    assert_eq!(count(&ask(&rig, 200), 200), 150);
    rig.assert_no_errors_logged();
}

#[test]
fn two_rule_sets_in_one_envoy_share_nothing_and_one_rule_set_shares_its_bucket() {
    let mut rig = Rig::start(&local("20/d", 1), one_envoy());
    let first = rig.envoys[0].port();
    let (second, third) = (rig.envoys[0].reserve_port().unwrap(), rig.envoys[0].reserve_port().unwrap());
    let other = local("20/d", 1).replace("per-user", "per-other");
    rig.envoys[0].push_policies(&[(first, &local("20/d", 1)), (second, &other), (third, &local("20/d", 1))]).unwrap();
    let admitted = |port| count(&answers(burst(&[port], 8, &vec![of("acme"); 15])), 200);
    assert_eq!([admitted(first), admitted(second), admitted(third)], [15, 15, 5]);
    rig.assert_no_errors_logged();
}

#[test]
fn a_new_vm_finds_an_empty_table_and_admits_nothing_twice() {
    let mut rig = Rig::start(&policy("50/d", "2s", "deny"), one_envoy());
    assert_eq!(count(&rig.send(&vec![of("acme"); 80]), 200), 50);
    let text = policy("50/d", "2s", "deny").split_whitespace().collect::<Vec<_>>().join(" ");
    let listener = weir_stack::with_filter(include_str!("../../envoy/listener.yaml")).replace("@POLICY@", &text);
    rig.envoys[0].push_listeners(&listener.replace("vm_id: weir", "vm_id: weir-2")).unwrap();
    let before = rig.redis.script_runs().unwrap();
    let port = rig.envoys[0].port();
    assert_eq!(count(&answers(burst(&[port], 4, &vec![of("acme"); 40])), 429), 40);
    assert!(rig.redis.script_runs().unwrap() > before, "the new VM knows nothing and asks");
    rig.assert_no_errors_logged();
}

#[test]
fn what_is_spent_first_is_not_forgotten_by_a_table_that_is_too_small() {
    // 64 entries, and nothing is settled while the test runs.
    let policy = policy("9/d", "2s", "deny").replace(r#""exact""#, r#""async", "sync_interval": "60s""#);
    let rig = Rig::start(&with(&policy, r#""table": {"entries": 64},"#, ""), one_envoy());
    let mut admitted = 0;
    for round in 0..4 {
        admitted += count(&rig.send(&vec![of("acme"); 5]), 200);
        let others: Vec<Request> = (0..200).map(|number| of(&format!("tenant {round}-{number}"))).collect();
        // Those for whom there is no room are decided by Redis.
        assert_eq!(count(&rig.send(&others), 200), 200);
    }
    assert_eq!(admitted, 9, "of 20");
    assert_eq!(rig.degraded(), 0);
    assert!(rig.redis.script_runs().unwrap() > 700, "most tenants are not known here");
    rig.assert_no_errors_logged();
}

/// Kilobytes that an Envoy has allocated.
fn allocated_kb(envoy: &Envoy) -> u64 {
    envoy.stat("server.memory_allocated").expect("a gauge of Envoy") / 1024
}

/// How many tenants come; `make chaos` sends more.
fn tenants() -> usize {
    std::env::var("WEIR_TENANTS").map_or(100_000, |text| text.parse().expect("WEIR_TENANTS is a number"))
}

#[test]
fn memory_is_bounded_whatever_number_of_tenants_comes() {
    const AT_ONCE: usize = 4000;
    let policy = local("20/d", 1).replace(r#""version": 1,"#, r#""version": 1, "table": {"entries": 1024},"#);
    let rig = Rig::start(&policy, one_envoy());
    let send = |from: usize, to: usize| {
        let requests: Vec<Request> = (from..to).map(|number| of(&format!("tenant {number}"))).collect();
        assert_eq!(count(&rig.send(&requests), 200), (to - from) as u64);
    };
    send(0, AT_ONCE);
    let warm = allocated_kb(&rig.envoys[0]);
    let tenants = tenants();
    for from in (AT_ONCE..tenants).step_by(AT_ONCE) {
        send(from, tenants.min(from + AT_ONCE));
        if from.is_multiple_of(1_000_000) {
            println!("    {} kB after {from} tenants", allocated_kb(&rig.envoys[0]));
        }
    }
    let after = allocated_kb(&rig.envoys[0]);
    println!("    {warm} kB after {AT_ONCE} tenants, {after} kB after {tenants}");
    // A hundred thousand tenants of a name each in shared data would be some twenty megabytes.
    assert!(after < warm + 8 * 1024, "{warm} kB after {AT_ONCE} tenants, {after} kB after {tenants}");
    let last = of(&format!("tenant {}", tenants - 1));
    let answer = Client::new(rig.envoys[0].port()).send(&last).unwrap();
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("18"));
}
