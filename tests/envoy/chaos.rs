//! Steady load while things break: no request hangs, no status but those that the policy asks for, the limit holds, and
//! it is over soon after. `make chaos` runs all of it for longer and prints one table of what happened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use weir_stack::{Client, Request, burst};

use crate::rig::{Limiter, Options, Rig, answers, of, policy};

/// A bound on hanging: the timeout, a tick, and a busy machine.
const LONGEST: Duration = Duration::from_millis(2000);

/// A bound on recovery.
const RECOVERY: Duration = Duration::from_secs(2);

/// Connections that send without a break, half of them to each Envoy.
const CLIENTS: usize = 8;

/// Each of so many tenants has a limit that this load does not reach in the time of a test.
const TENANTS: usize = 16;

/// What a client saw of one request.
struct Seen {
    at: Instant,
    took: Duration,
    status: u16,
    degraded: bool,
}

/// Whether everything is run, for longer.
fn is_long() -> bool {
    std::env::var_os("WEIR_CHAOS").is_some()
}

/// How long each phase lasts: before, while it is broken, after.
fn phase() -> Duration {
    Duration::from_millis(if is_long() { 4000 } else { 1000 })
}

/// Sends without a break from [`CLIENTS`] connections until `act` is over, and gives what they saw.
fn under_load(rig: &mut Rig, act: impl FnOnce(&mut Rig)) -> Vec<Seen> {
    let ports = rig.ports();
    let over = AtomicBool::new(false);
    let (sender, seen) = mpsc::channel();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (sender, over, port) = (sender.clone(), &over, ports[client % ports.len()]);
            scope.spawn(move || {
                let mut connection = Client::new(port);
                for number in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let request: Request = of(&format!("tenant {}", (number * 7 + client) % TENANTS));
                    let at = Instant::now();
                    // A dead Envoy refuses connections: that is the proxy's failure, not the limiter's.
                    let Ok(answer) = connection.send(&request) else {
                        connection = Client::new(port);
                        thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    let degraded = answer.header("x-ratelimit-limit").is_none();
                    let _ = sender.send(Seen { at, took: at.elapsed(), status: answer.status, degraded });
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        act(rig);
        over.store(true, Ordering::Relaxed);
    });
    drop(sender);
    seen.into_iter().collect()
}

/// What breaks, and how it is mended.
struct Case {
    name: &'static str,
    breaks: fn(&mut Rig),
    mends: fn(&mut Rig),
    /// Whether decisions are degraded meanwhile.
    degrades: bool,
    /// Only in the long form.
    long: bool,
}

fn operator(rig: &Rig, command: &[&str]) {
    let mut connection = rig.redis.operator().unwrap();
    let mut words = redis::cmd(command[0]);
    words.arg(&command[1..]);
    words.exec(&mut connection).unwrap();
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { name: "Redis killed, back empty", breaks: |rig| rig.redis.kill(), mends: |rig| rig.redis.restart().unwrap(), degrades: true, long: false },
    Case { name: "Redis stopped, goes on", breaks: |rig| rig.redis.stop(), mends: |rig| rig.redis.cont(), degrades: true, long: false },
    Case { name: "Redis out of memory", breaks: |rig| operator(rig, &["CONFIG", "SET", "maxmemory", "1"]), mends: |rig| operator(rig, &["CONFIG", "SET", "maxmemory", "0"]), degrades: true, long: false },
    Case { name: "password changed", breaks: change_password, mends: restore_password, degrades: true, long: true },
    Case { name: "scripts flushed", breaks: |rig| operator(rig, &["SCRIPT", "FLUSH"]), mends: |_| {}, degrades: false, long: true },
    Case { name: "Webdis killed", breaks: |rig| rig.webdis.kill(), mends: |rig| rig.webdis.restart().unwrap(), degrades: true, long: false },
    Case { name: "Webdis stopped, goes on", breaks: |rig| rig.webdis.stop(), mends: |rig| rig.webdis.cont(), degrades: true, long: true },
    Case { name: "an Envoy killed", breaks: |rig| rig.envoys[1].kill(), mends: |_| {}, degrades: false, long: true },
];

/// As an operator would: a new password, and connections of the old one are ended.
fn change_password(rig: &mut Rig) {
    operator(rig, &["ACL", "SETUSER", "default", "resetpass", ">another"]);
    operator(rig, &["CLIENT", "KILL", "USER", "default"]);
}

fn restore_password(rig: &mut Rig) {
    let password = format!(">{}", rig.redis.password());
    operator(rig, &["ACL", "SETUSER", "default", "resetpass", &password]);
    // Webdis logs in where it connects, and goes on with a connection that could not.
    rig.webdis.kill();
    rig.webdis.restart().unwrap();
}

#[test]
fn whatever_breaks_no_request_hangs_the_policy_answers_and_it_is_soon_over() {
    println!(
        "    {:<26} {:>8} {:>8} {:>8} {:>10} {:>9}",
        "what", "requests", "decided", "degraded", "longest ms", "over ms"
    );
    for case in CASES.iter().filter(|case| is_long() || !case.long) {
        let mut rig = Rig::start(&policy("1000000/d", "300ms", "deny"), Options::default());
        let mut mended = Instant::now();
        let seen = under_load(&mut rig, |rig| {
            thread::sleep(phase());
            (case.breaks)(rig);
            thread::sleep(phase());
            (case.mends)(rig);
            mended = Instant::now();
            thread::sleep(RECOVERY + phase());
        });
        check(case.name, &seen, mended, case.degrades);
        rig.assert_no_errors_logged_by_living();
    }
}

fn check(name: &str, seen: &[Seen], mended: Instant, degrades: bool) {
    let degraded = seen.iter().filter(|seen| seen.status == 503).count();
    let decided = seen.iter().filter(|seen| seen.status == 200 && !seen.degraded).count();
    let longest = seen.iter().map(|seen| seen.took).max().unwrap_or_default();
    let last = seen.iter().filter(|seen| seen.status == 503).map(|seen| seen.at).max();
    let over = last.and_then(|last| last.checked_duration_since(mended)).unwrap_or_default();
    println!(
        "    {name:<26} {:>8} {decided:>8} {degraded:>8} {:>10} {:>9}",
        seen.len(),
        longest.as_millis(),
        over.as_millis()
    );
    assert_eq!(decided + degraded, seen.len(), "{name}: a status that the policy does not ask for");
    assert!(decided > 100, "{name}: {decided} requests were decided by Redis");
    assert_eq!(degraded > 0, degrades, "{name}: {degraded} degraded");
    assert!(longest < LONGEST, "{name}: a request took {longest:?}");
    assert!(over < RECOVERY, "{name}: still degraded {over:?} after it was mended");
}

#[test]
fn a_slow_limiter_decides_where_it_is_in_time_and_never_makes_a_request_wait_longer() {
    for (delay_ms, in_time) in [(150, true), (300, false), (600, false)] {
        if !is_long() && delay_ms == 300 {
            continue;
        }
        let options = Options { limiter: Limiter::Delayed(delay_ms), ..Options::default() };
        let mut rig = Rig::start(&policy("1000000/d", "300ms", "deny"), options);
        let seen = under_load(&mut rig, |_| thread::sleep(2 * phase()));
        let decided = seen.iter().filter(|seen| seen.status == 200).count();
        let degraded = seen.iter().filter(|seen| seen.status == 503).count();
        let longest = seen.iter().map(|seen| seen.took).max().unwrap_or_default();
        println!(
            "    limiter slow by {delay_ms} ms of 300: {decided} decided, {degraded} degraded, longest {longest:?}"
        );
        assert_eq!(decided + degraded, seen.len());
        assert!(longest < LONGEST, "a request took {longest:?}");
        match in_time {
            true => assert!(decided > degraded, "{decided} decided, {degraded} degraded"),
            false if delay_ms > 300 => assert_eq!(decided, 0, "no answer was in time"),
            false => {}
        }
        rig.assert_no_errors_logged();
    }
}

/// How long a call lasts that nobody answers, with a timeout of 100 ms; and a little more.
const CALL: Duration = Duration::from_millis(1200);

/// Tenants who ask for what they have used up, in each stall.
const EMPTY: usize = 32;

/// Webdis gives the reply of a call whose connection is closed to whichever connection has the number of its socket then.
#[test]
fn after_a_stall_of_redis_no_empty_bucket_admits_by_another_tenants_reply() {
    let limited = policy("7/h", "100ms", "deny")
        .replace(r#""timeout": "100ms""#, r#""timeout": "100ms", "breaker": {"failures": 100000}"#);
    let mut rig = Rig::start(&limited, Options::default());
    let [ours, others] = rig.ports()[..] else { panic!("two Envoys") };
    // Until replies have gone astray, which is a matter of luck.
    let (fewest, most) = if is_long() { (16, 60) } else { (4, 30) };
    let (mut stalls, mut refused, mut failed, mut misdelivered) = (0, 0, 0, 0);
    while stalls < fewest || (misdelivered == 0 && stalls < most) {
        let stall = stalls;
        let empty: Vec<Request> = (0..EMPTY).map(|number| of(&format!("empty {stall} {number}"))).collect();
        for _ in 0..7 {
            let taken = answers(burst(&[others], 8, &empty));
            assert!(taken.iter().all(|answer| answer.status == 200), "{taken:?}");
        }
        let fresh: Vec<Request> = (0..32).map(|number| of(&format!("fresh {stall} {number}"))).collect();
        rig.redis.stop();
        let since = Instant::now();
        let waited = answers(burst(&[ours], fresh.len(), &fresh));
        assert!(waited.iter().all(|answer| answer.status == 503), "{waited:?}");
        thread::sleep(CALL.saturating_sub(since.elapsed()));
        let seen = thread::scope(|scope| {
            let asking = scope.spawn(|| answers(burst(&[ours], empty.len(), &empty)));
            thread::sleep(Duration::from_millis(40));
            rig.redis.cont();
            asking.join().unwrap()
        });
        refused += seen.iter().filter(|answer| answer.status == 429).count();
        failed += seen.iter().filter(|answer| answer.status == 503).count();
        let statuses: Vec<u16> = seen.iter().map(|answer| answer.status).collect();
        assert!(!statuses.contains(&200), "stall {stall}: an empty bucket has admitted: {statuses:?}");
        misdelivered = rig.counted("limiter_calls.main.misdelivered");
        stalls += 1;
    }
    println!("    {stalls} stalls: {refused} refused, {failed} failed, {misdelivered} replies were another call's");
    assert_eq!(refused + failed, EMPTY * stalls, "each is answered, and as the policy says");
    assert!(misdelivered > 0, "no reply went astray, so this has shown nothing");
    rig.assert_no_errors_logged();
}
