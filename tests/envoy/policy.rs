//! Policies come and go while requests wait, and bad ones do not come.

use std::thread;
use std::time::{Duration, Instant};

use weir_stack::{Client, Listeners, PushError, Request, Response, with_filter};

use crate::rig::{Limiter, Options, Rig, answers, count, of, policy};

const WAITING: usize = 100;

/// Starts [`WAITING`] requests that wait for a slow limiter, replaces the listeners meanwhile, and gives their answers.
fn replace_while_requests_wait(rig: &mut Rig, replace: impl FnOnce(&mut weir_stack::Envoy)) -> Vec<Response> {
    let port = rig.envoys[0].port();
    let waiting = thread::spawn(move || answers(weir_stack::burst(&[port], WAITING, &vec![of("acme"); WAITING])));
    let active = "http.ingress.downstream_rq_active";
    let all_wait = rig.envoys[0].wait_for(Duration::from_secs(5), |envoy| envoy.stat(active) == Some(WAITING as u64));
    assert!(all_wait, "{WAITING} requests wait");
    replace(&mut rig.envoys[0]);
    assert_eq!(rig.envoys[0].stat(active), Some(WAITING as u64), "they have waited through the replacement");
    waiting.join().unwrap()
}

/// Each of the waiting was decided under the policy that it came with, and later ones are under the new one.
fn assert_old_and_new(rig: &Rig, old_answers: &[Response]) {
    assert_eq!((count(old_answers, 200), count(old_answers, 429)), (80, 20));
    assert!(old_answers.iter().all(|answer| answer.header("x-ratelimit-limit") == Some("80")));
    let new = Client::new(rig.envoys[0].port()).send(&of("another")).unwrap();
    assert_eq!((new.status, new.header("x-ratelimit-limit")), (200, Some("60")));
    assert_eq!(rig.degraded(), 0);
    rig.assert_no_errors_logged();
}

#[test]
fn a_policy_pushed_while_requests_wait_leaves_them_their_own() {
    let options = Options { envoys: 1, limiter: Limiter::Delayed(1200), ..Options::default() };
    let mut rig = Rig::start(&policy("80/d", "10s", "deny"), options);
    // The same vm_id and code: a second root in the same VM.
    let old = replace_while_requests_wait(&mut rig, |envoy| {
        envoy.push_policy(&policy("60/d", "10s", "deny")).unwrap();
    });
    assert_old_and_new(&rig, &old);
}

#[test]
fn a_new_vm_pushed_while_requests_wait_leaves_them_the_old_one() {
    let options = Options { envoys: 1, limiter: Limiter::Delayed(1200), ..Options::default() };
    let mut rig = Rig::start(&policy("80/d", "10s", "deny"), options);
    let old = replace_while_requests_wait(&mut rig, |envoy| {
        let listener = listener_file(&policy("60/d", "10s", "deny")).replace("vm_id: weir", "vm_id: weir-2");
        envoy.push_listeners(&listener).unwrap();
    });
    assert_old_and_new(&rig, &old);
}

/// `envoy/listener.yaml` with the filter and a policy written into it, as a user would who discovers no filter.
fn listener_file(policy: &str) -> String {
    let policy = policy.split_whitespace().collect::<Vec<_>>().join(" ");
    with_filter(include_str!("../../envoy/listener.yaml")).replace("@POLICY@", &policy)
}

#[test]
fn a_bad_policy_on_update_is_refused_and_the_one_before_goes_on() {
    let mut rig = Rig::start(&policy("9/d", "2s", "deny"), Options { envoys: 1, ..Options::default() });
    let port = rig.envoys[0].port();
    assert_eq!(Client::new(port).send(&of("acme")).unwrap().header("x-ratelimit-limit"), Some("9"));
    let refused = rig.envoys[0].push_policy(&policy("9/d", "2s", "perhaps"));
    let Err(PushError::Refused(said)) = refused else {
        panic!("Envoy was to refuse the policy: {refused:?}");
    };
    let expected = "rules[0].on_error: a text of 7 bytes is not known here; write one of: allow, deny";
    assert!(said.contains(expected), "{said}");
    let answer = Client::new(port).send(&of("acme")).unwrap();
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("7")));
    // And a good one after it comes into force.
    rig.envoys[0].push_policy(&policy("8/d", "2s", "deny")).unwrap();
    assert_eq!(Client::new(port).send(&of("acme")).unwrap().header("x-ratelimit-limit"), Some("8"));
}

#[test]
fn a_bad_policy_at_first_start_answers_500_until_it_is_mended() {
    let options = || Options { envoys: 1, expect_ready: false, ..Options::default() };
    let mut rig = Rig::start(&policy("9 per day", "2s", "deny"), options());
    let port = rig.envoys[0].port();
    assert_eq!(Client::new(port).send(&of("acme")).unwrap().status, 500);
    let log = rig.envoys[0].log();
    assert!(log.contains("rules[0].limits: a text of 9 bytes is no limit"), "{log}");
    rig.envoys[0].push_policy(&policy("9/d", "2s", "deny")).unwrap();
    assert_eq!(Client::new(port).send(&of("acme")).unwrap().status, 200);
    drop(rig);
    // Where the filter stands in the listener, that is not opened.
    let mut rig = Rig::listening(Listeners::File(&listener_file(&policy("9 per day", "2s", "deny"))), options());
    let port = rig.envoys[0].port();
    assert!(Client::new(port).send(&of("acme")).is_err(), "nobody listens");
    rig.envoys[0].push_policy(&policy("9/d", "2s", "deny")).unwrap();
    assert_eq!(Client::new(port).send(&of("acme")).unwrap().status, 200);
}

/// Sends on one connection until it is told something else than 200; gives the status and how
/// long that took.
fn until_refused(client: &mut Client) -> (u16, Duration) {
    let start = Instant::now();
    loop {
        let status = client.send(&of("acme")).unwrap().status;
        if status != 200 || start.elapsed() > Duration::from_secs(5) {
            return (status, start.elapsed());
        }
    }
}

#[test]
fn a_changed_policy_reaches_an_open_connection_and_closes_none() {
    let mut rig = Rig::start(&policy("1000000/m", "2s", "deny"), Options { envoys: 1, ..Options::default() });
    let port = rig.envoys[0].port();
    let connections = |rig: &Rig| rig.envoys[0].stat("http.ingress.downstream_cx_total");
    // More than there are workers, so that each has one.
    let mut clients: Vec<Client> = (0..8).map(|_| Client::new(port)).collect();
    for client in &mut clients {
        assert_eq!(client.send(&of("acme")).unwrap().status, 200);
    }
    let before = connections(&rig);
    for round in 0..3 {
        let pushed = Instant::now();
        rig.envoys[0].push_policy(&policy("deny", "2s", "deny")).unwrap();
        let pushed = pushed.elapsed();
        for client in &mut clients {
            let (status, took) = until_refused(client);
            println!("    round {round}: {status} {took:?} after a push of {pushed:?}");
            assert_eq!(status, 403);
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
        // And back; one that is refused leaves what is in force.
        rig.envoys[0].push_policy(&policy("1000000/m", "2s", "deny")).unwrap();
        assert!(matches!(rig.envoys[0].push_policy(&policy("no", "2s", "deny")), Err(PushError::Refused(_))));
        for client in &mut clients {
            assert_eq!(client.send(&of("acme")).unwrap().status, 200);
        }
    }
    assert_eq!(connections(&rig), before, "the connections are the same");
}

#[test]
fn a_policy_in_the_listener_reaches_an_open_connection_only_when_it_is_drained() {
    // Ten seconds to drain, and a connection that is idle meanwhile: its first request afterwards is under the old policy.
    let listener = |limit: &str| listener_file(&policy(limit, "2s", "deny"));
    let mut rig = Rig::listening(Listeners::File(&listener("1000000/m")), Options { envoys: 1, ..Options::default() });
    let mut old = Client::new(rig.envoys[0].port());
    assert_eq!(old.send(&of("acme")).unwrap().status, 200);
    rig.envoys[0].push_listeners(&listener("deny")).unwrap();
    assert_eq!(Client::new(rig.envoys[0].port()).send(&of("acme")).unwrap().status, 403, "a new connection");
    assert_eq!(old.send(&of("acme")).unwrap().status, 200, "the old one");
}

#[test]
fn two_listeners_with_two_policies_do_not_meet() {
    let mut rig = Rig::start(&policy("9/d", "2s", "deny"), Options { envoys: 1, ..Options::default() });
    let (first, second) = (rig.envoys[0].port(), rig.envoys[0].reserve_port().unwrap());
    let other = policy("7/d", "2s", "deny").replace("per-user", "per-other");
    rig.envoys[0].push_policies(&[(first, &policy("9/d", "2s", "deny")), (second, &other)]).unwrap();
    let all = |port| answers(weir_stack::burst(&[port], 8, &vec![of("acme"); 20]));
    assert_eq!((count(&all(first), 200), count(&all(second), 200)), (9, 7));
    // One goes; the other is still woken, though the queue of the VM may have been the other's.
    rig.envoys[0].push_policies(&[(first, &policy("9/d", "2s", "deny"))]).unwrap();
    let answer = Client::new(first).send(&of("another")).unwrap();
    assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("8")));
    rig.assert_no_errors_logged();
}

#[test]
fn a_policy_written_out_as_yaml_in_envoys_configuration_is_read() {
    // A Struct reaches the module in protobuf's wire format, and Envoy's YAML makes texts of fractions.
    let policy = r#"
                          version: 1
                          limiters: {main: {transport: webdis, cluster: webdis, timeout: 2s}}
                          rules:
                            - name: per-user
                              key: [{header: {name: x-user-id, as: user, trusted: true}}]
                              tier: {tenants: {user.acme: gold}, default: free}
                              mode: exact
                              limits: {free: 5/d, gold: {requests: 20, per: 1d, burst: 10}}
                              on_error: deny
                          response: {reset: seconds, retry_after_jitter: 0.0}"#;
    let listener = with_filter(include_str!("../../envoy/listener.yaml"));
    let (before, after) = listener
        .split_once("                        \"@type\": type.googleapis.com/google.protobuf.StringValue")
        .unwrap();
    let (_, after) = after.split_once("@POLICY@").unwrap();
    let head =
        "                        \"@type\": type.googleapis.com/google.protobuf.Struct\n                        value:";
    let listener = format!("{before}{head}{policy}{after}");
    let rig = Rig::listening(Listeners::File(&listener), Options { envoys: 1, ..Options::default() });
    let answer = rig.send(&[of("acme")]).remove(0);
    let told = |name| answer.header(name);
    assert_eq!((answer.status, told("x-ratelimit-limit"), told("x-ratelimit-remaining")), (200, Some("10"), Some("9")));
    assert_eq!(told("x-ratelimit-reset"), Some("4320"));
    let others = rig.send(&vec![of("bob"); 6]);
    assert_eq!((count(&others, 200), count(&others, 429)), (5, 1));
    rig.assert_no_errors_logged();
}

#[test]
fn bytes_that_are_no_text_are_a_tenant_like_any_other() {
    let rig = Rig::start(&policy("9/d", "2s", "deny"), Options { envoys: 1, ..Options::default() });
    let odd = Request::get("/%ff?%fe").header("x-user-id", b"\xff\xfe\x80 \xc3".to_vec());
    let answers = rig.send(&vec![odd; 12]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (9, 3));
    let mut operator = rig.redis.operator().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut operator).unwrap();
    assert_eq!(keys, ["rl:{user.%FF%FE%80%20%C3}:per-user:default:86400000:t3"]);
    rig.assert_no_errors_logged();
}

#[test]
fn two_versions_of_a_policy_on_one_bucket_admit_no_more_than_the_larger_one() {
    // A rollout: one Envoy has the new limit already.
    let mut rig = Rig::start(&policy("20/d", "2s", "deny"), Options::default());
    rig.envoys[1].push_policy(&policy("50/d", "2s", "deny")).unwrap();
    let ports = rig.ports();
    let admitted =
        |port: u16, sent: usize| count(&answers(weir_stack::burst(&[port], 8, &vec![of("acme"); sent])), 200);
    // What was used counts under either limit, and moves nothing of the other's.
    assert_eq!(admitted(ports[1], 10), 10);
    assert_eq!(admitted(ports[0], 15), 10, "10 of the smaller limit's 20 were used");
    assert_eq!(admitted(ports[1], 40), 30, "20 of the larger limit's 50 were used");
    rig.assert_no_errors_logged();
}
