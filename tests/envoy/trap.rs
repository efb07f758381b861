//! The module traps, which it never should: what clients see under each failure_policy of Envoy, and that what the
//! proxy keeps stays sound.

use std::time::{Duration, Instant};

use weir_stack::{Client, Listeners};

use crate::rig::{Options, Rig, of, policy, trapping_module};

/// One worker under a failure policy, with a local limit of 20 a day.
fn rig(failure_policy: &str) -> Rig {
    let local = policy("20/d", "2s", "deny")
        .replace(r#", "on_error": "deny""#, "")
        .replace(r#""exact""#, r#""local""#)
        .replace(r#""version": 1,"#, r#""version": 1, "proxies": 1,"#);
    let local = local.split_whitespace().collect::<Vec<_>>().join(" ");
    let listener = weir_stack::with_filter(include_str!("../../envoy/listener.yaml"))
        .replace("@POLICY@", &local)
        .replace("failure_policy: FAIL_RELOAD", &format!("failure_policy: {failure_policy}"));
    let options = Options { envoys: 1, concurrency: 1, module: trapping_module(), ..Options::default() };
    Rig::listening(Listeners::File(&listener), options)
}

/// The status and the remaining tokens that a client sees.
fn ask(rig: &Rig) -> (u16, Option<String>) {
    let answer = Client::new(rig.envoys[0].port()).send(&of("acme")).unwrap();
    (answer.status, answer.header("x-ratelimit-remaining").map(str::to_owned))
}

fn trap(rig: &Rig) -> u16 {
    Client::new(rig.envoys[0].port()).send(&of("acme").header("x-weir-trap", "1")).unwrap().status
}

fn left(tokens: u64) -> (u16, Option<String>) {
    (200, Some(tokens.to_string()))
}

#[test]
fn under_fail_reload_a_moment_fails_and_the_table_is_as_it_was() {
    let rig = rig("FAIL_RELOAD");
    assert_eq!(ask(&rig), left(19));
    assert_eq!(trap(&rig), 503);
    let since = Instant::now();
    let next = loop {
        let seen = ask(&rig);
        if seen.0 == 200 {
            break seen;
        }
        assert_eq!(seen, (503, None));
        // The backoff of envoy/listener.yaml is 0.1 s.
        assert!(since.elapsed() < Duration::from_secs(2), "no new VM after 2 s");
    };
    println!("FAIL_RELOAD: {:?} until the new VM", since.elapsed());
    assert_eq!(next, left(18), "the bucket in shared data has outlived the VM");
}

#[test]
fn under_fail_closed_every_request_fails_from_then_on() {
    let rig = rig("FAIL_CLOSED");
    assert_eq!(ask(&rig), left(19));
    assert_eq!(trap(&rig), 503);
    assert_eq!([ask(&rig), ask(&rig)], [(503, None), (503, None)]);
}

#[test]
fn under_fail_open_every_request_passes_unlimited_from_then_on() {
    let rig = rig("FAIL_OPEN");
    assert_eq!(ask(&rig), left(19));
    trap(&rig);
    for _ in 0..30 {
        assert_eq!(ask(&rig), (200, None));
    }
}
