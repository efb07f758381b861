//! Redis behind `weir bridge`: the same limits, over HTTP/2 and HTTP/1.1, and what clients get when a part of it is away.

use std::time::{Duration, Instant};

use weir_stack::{Client, Request};

use crate::rig::{CONNECTIONS, Options, Rig, answers, count, of, policy};

/// How long after the end of a failure decisions may still be the failure's.
const RECOVERY: Duration = Duration::from_secs(2);

fn bridged(options: Options<'_>) -> Options<'_> {
    Options { bridge: true, ..options }
}

/// The policy of other tests, with the bridge for a limiter.
fn of_mode(limit: &str, timeout: &str, on_error: &str, mode: &str) -> String {
    policy(limit, timeout, on_error)
        .replace(r#""transport": "webdis", "cluster": "webdis""#, r#""transport": "bridge", "cluster": "bridge""#)
        .replace(r#""mode": "exact""#, &format!(r#""mode": "{mode}""#))
}

fn exact(limit: &str, timeout: &str, on_error: &str) -> String {
    of_mode(limit, timeout, on_error, "exact")
}

#[test]
fn two_envoys_share_one_limit_exactly() {
    let rig = Rig::start(&exact("500/d", "2s", "deny"), bridged(Options::default()));
    let answers = rig.send(&vec![of("acme"); 1500]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (500, 1000));
    assert_eq!(rig.degraded(), 0);
    // The first call found a Redis without the script; the bridge brought it, and no proxy was told.
    assert_eq!(rig.counted("limiter_calls.main.ok"), rig.calls());
    let bridge = rig.bridge.as_ref().unwrap();
    assert_eq!(bridge.metric("weir_bridge_parts_total"), Some(rig.calls() as f64));
    let connections: u64 =
        rig.envoys.iter().filter_map(|envoy| envoy.stat("cluster.bridge.upstream_cx_http2_total")).sum();
    assert!((1..=6).contains(&connections), "{connections} connections of HTTP/2");
    assert_eq!(rig.keys(), ["rl:{user.acme}:per-user:default:86400000:t3"]);
    rig.assert_no_errors_logged();
}

#[test]
fn leases_hold_the_limit_with_few_calls() {
    let rig = Rig::start(&of_mode("2000/d", "2s", "deny", "lease"), bridged(Options::default()));
    let answers = rig.send(&vec![of("acme"); 3000]);
    let admitted = count(&answers, 200);
    assert!((1900..=2000).contains(&admitted), "{admitted}");
    assert_eq!(count(&answers, 429), 3000 - admitted);
    assert_eq!((rig.degraded(), rig.counted("limiter_calls.main.ok")), (0, rig.calls()));
    println!("{} calls for 3000 requests", rig.calls());
    assert!(rig.calls() < 1500, "{}", rig.calls());
    rig.assert_no_errors_logged();
}

#[test]
fn it_speaks_http_1_as_well_and_wants_its_secret() {
    let policy = exact("100/d", "2s", "deny")
        .replace(r#""cluster": "bridge""#, r#""cluster": "bridge1", "auth_env": "WEIR_LIMITER_AUTH""#);
    for (secret, admitted) in [("Bearer open", 100), ("Bearer shut", 0)] {
        let scratch = weir_stack::Scratch::new().unwrap();
        let redis = weir_stack::Redis::start(&scratch, weir_stack::RedisOptions::default()).unwrap();
        let options = weir_stack::BridgeOptions::new(crate::rig::tool(), &redis).with_env("WEIR_BRIDGE_SECRET", "open");
        let bridge = weir_stack::Bridge::start(&scratch, options).unwrap();
        let cluster = format!(
            r#"{{"name": "bridge1", "type": "STATIC", "connect_timeout": "0.25s", "load_assignment": {{"cluster_name": "bridge1",
                "endpoints": [{{"lb_endpoints": [{{"endpoint": {{"address": {{"socket_address":
                {{"address": "127.0.0.1", "port_value": {}}}}}}}}}]}}]}}}}"#,
            bridge.port()
        )
        .replace('\n', " ");
        let env = [("WEIR_LIMITER_AUTH", secret)];
        let options = Options { envoys: 1, env: &env, more_clusters: &[cluster], ..Options::default() };
        let rig = Rig::start(&policy, options);
        let answers = rig.send(&vec![of("acme"); 200]);
        assert_eq!(count(&answers, 200), admitted);
        if admitted == 0 {
            assert_eq!(count(&answers, 503), 200);
            assert!(rig.counted("degraded_decisions.per-user.unauthorized") > 0);
        }
        rig.assert_no_errors_logged();
    }
}

#[test]
fn failures_of_redis_keep_their_names_up_to_the_filter() {
    let rig = Rig::start(&exact("9/d", "500ms", "deny"), bridged(Options { envoys: 1, ..Options::default() }));
    let mut client = Client::new(rig.envoys[0].port());
    assert_eq!(client.send(&of("acme")).unwrap().status, 200);
    let say = |command: &[&str]| rig.redis.say::<redis::Value>(command).unwrap();
    say(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(client.send(&of("acme")).unwrap().status, 503);
    say(&["CONFIG", "SET", "maxmemory", "0"]);
    say(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(client.send(&of("acme")).unwrap().status, 503);
    say(&["REPLICAOF", "NO", "ONE"]);
    say(&["SET", "rl:{user.odd}:per-user:default:86400000:t3", "x"]);
    assert_eq!(client.send(&of("odd")).unwrap().status, 503);
    assert_eq!(client.send(&of("acme")).unwrap().status, 200);
    let counted = |reason: &str| rig.counted(&format!("degraded_decisions.per-user.{reason}"));
    assert_eq!(["oom", "readonly", "bad_key"].map(counted), [1, 1, 1]);
    assert_eq!(rig.degraded(), 3);
    rig.assert_no_errors_logged();
}

/// Requests one after the other until one passes that the limiter has decided.
fn recovered(rig: &Rig) -> Option<Duration> {
    let begun = Instant::now();
    let mut client = Client::new(rig.envoys[0].port());
    while begun.elapsed() < RECOVERY {
        let answer = client.send(&of("later")).unwrap();
        if answer.header("x-ratelimit-remaining").is_some() {
            return Some(begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

#[test]
fn under_load_redis_and_the_bridge_are_killed_and_stopped_and_nothing_hangs() {
    let mut rig =
        Rig::start(&exact("1000000/d", "200ms", "allow"), bridged(Options { envoys: 1, ..Options::default() }));
    let requests: Vec<Request> = (0..2000).map(|number| of(&format!("t{}", number % 50))).collect();
    let ports = rig.ports();
    type Act = fn(&mut Rig);
    let breaks: [(&str, Act, Act); 4] = [
        ("redis killed", |rig| rig.redis.kill(), |rig| rig.redis.restart().unwrap()),
        ("redis stopped", |rig| rig.redis.stop(), |rig| rig.redis.cont()),
        (
            "bridge killed",
            |rig| rig.bridge.as_mut().unwrap().kill(),
            |rig| rig.bridge.as_mut().unwrap().restart().unwrap(),
        ),
        ("bridge stopped", |rig| rig.bridge.as_mut().unwrap().stop(), |rig| rig.bridge.as_mut().unwrap().cont()),
    ];
    for (name, breaks, mends) in breaks {
        let (ports, load) = (ports.clone(), requests.clone());
        let load = std::thread::spawn(move || weir_stack::burst(&ports, CONNECTIONS, &load));
        std::thread::sleep(Duration::from_millis(30));
        breaks(&mut rig);
        let begun = Instant::now();
        let all = answers(load.join().unwrap());
        assert_eq!(count(&all, 200), 2000, "{name}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{name}: {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(500));
        mends(&mut rig);
        let back = recovered(&rig);
        println!("{name}: load over after {:?}, decided by the limiter again {back:?} after its end", begun.elapsed());
        assert!(back.is_some(), "{name}\n{}", rig.bridge.as_ref().unwrap().log());
    }
}
