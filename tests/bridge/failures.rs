//! Each failure of Redis by its own name, and what becomes of calls when Redis is killed, stopped, or comes back.

use std::time::{Duration, Instant};

use weir::clock::Ms;
use weir::limiter::Failure;
use weir_stack::{BridgeOptions, Redis, RedisOptions, Scratch};

use crate::{Pair, call_of, granted, results, tool, until};

/// Recovery, once Redis answers again.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn each_error_of_redis_has_its_name() {
    let pair = Pair::start();
    assert_eq!(granted(&pair.ask("a")), 1);
    let say = |command: &[&str]| pair.redis.say::<redis::Value>(command).unwrap();
    say(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(pair.ask("a"), Err(Failure::OutOfMemory));
    say(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(granted(&pair.ask("a")), 1);
    say(&["ACL", "SETUSER", "default", "-evalsha"]);
    assert_eq!(pair.ask("a"), Err(Failure::NoPermission));
    say(&["ACL", "SETUSER", "default", "+evalsha", "resetkeys", "~other:*"]);
    assert_eq!(pair.ask("a"), Err(Failure::NoPermission));
    say(&["ACL", "SETUSER", "default", "resetkeys", "~rl:*"]);
    // A replica of nobody whom it reaches.
    say(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(pair.ask("a"), Err(Failure::ReadOnly));
    say(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    assert_eq!(pair.ask("a"), Err(Failure::MasterDown));
    say(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(granted(&pair.ask("a")), 1);
    say(&["SET", &crate::key("odd"), "x"]);
    assert_eq!(pair.ask("odd"), Err(Failure::BadKey));
    // A write that fails takes nothing, and the next part of the same call is another's.
    let answers = results(&pair.call(&call_of(Ms(900), &["odd", "a", "odd", "b"])));
    assert_eq!((answers[0].clone(), answers[2].clone()), (Err(Failure::BadKey), Err(Failure::BadKey)));
    assert_eq!((granted(&answers[1]), granted(&answers[3])), (1, 1));
    let counted = |reason: &str| pair.bridge.metric(&format!("weir_bridge_failures_total{{reason=\"{reason}\"}}"));
    let reasons = ["oom", "noperm", "readonly", "masterdown", "bad_key", "redis"];
    assert_eq!(reasons.map(counted), [Some(1.0), Some(2.0), Some(1.0), Some(1.0), Some(3.0), Some(0.0)]);
}

#[test]
fn a_script_of_others_that_runs_for_long_is_busy() {
    let pair = Pair::start();
    assert_eq!(granted(&pair.ask("a")), 1);
    pair.redis.say::<redis::Value>(&["CONFIG", "SET", "busy-reply-threshold", "50"]).unwrap();
    let mut operator = pair.redis.operator().unwrap();
    let (begun, hung) = (
        Instant::now(),
        std::thread::spawn(move || {
            redis::cmd("EVAL").arg("while true do end").arg(0).query::<redis::Value>(&mut operator)
        }),
    );
    assert!(until(SOON, || pair.ask("a") == Err(Failure::Busy)).is_some());
    pair.redis.say::<redis::Value>(&["SCRIPT", "KILL"]).unwrap();
    assert!(hung.join().unwrap().is_err());
    assert!(until(SOON, || pair.ask("a").is_ok()).is_some(), "{:?}", begun.elapsed());
}

#[test]
fn a_redis_that_reads_its_file_is_loading() {
    let mut pair = Pair::with(RedisOptions { appendonly: true, ..Default::default() }, |options| options);
    // Enough to read for a while, and then read slowly.
    let fill = "for at = 1, 200000 do redis.call('SET', 'x:' .. at, string.rep('v', 100)) end";
    pair.redis.say::<redis::Value>(&["EVAL", fill, "0"]).unwrap();
    pair.redis.say::<redis::Value>(&["CONFIG", "SET", "key-load-delay", "-50"]).ok();
    pair.redis.kill();
    let bridge = pair.bridge.port();
    let (stop, seen) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), std::sync::mpsc::channel());
    let (stopped, sender) = (stop.clone(), seen.0);
    let asking = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let _ = sender.send(crate::ask(bridge, "a"));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    pair.redis.restart().unwrap();
    assert!(until(SOON, || pair.ask("a").is_ok()).is_some());
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    asking.join().unwrap();
    let failures: Vec<Failure> = seen.1.iter().filter_map(Result::err).collect();
    assert!(failures.contains(&Failure::RedisDown), "{failures:?}");
    // It reads in pieces, and answers in between.
    let known = [Failure::RedisDown, Failure::RedisLost, Failure::Loading, Failure::Late];
    assert!(failures.iter().all(|failure| known.contains(failure)), "{failures:?}");
    assert!(failures.contains(&Failure::Loading), "{failures:?}");
}

#[test]
fn a_wrong_password_and_a_user_that_there_is_not_are_noauth() {
    let scratch = Scratch::new().unwrap();
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let right = BridgeOptions::new(tool(), &redis);
    let arguments = right.arguments.clone();
    let with = |more: &[&str], password: Option<&str>| {
        let env =
            password.map(|password| ("WEIR_REDIS_PASSWORD".to_owned(), password.to_owned())).into_iter().collect();
        let options = BridgeOptions { arguments: arguments.clone(), env, expect_ready: false, tool: tool().to_owned() };
        weir_stack::Bridge::start(&scratch, options.with(more)).unwrap()
    };
    for (more, password) in [
        (&[][..], Some("wrong")),
        (&["--user", "nobody"][..], Some(redis.password())),
        (&["--resp3"][..], Some("wrong")),
        (&[][..], None),
    ] {
        let bridge = with(more, password);
        let is_noauth = || crate::ask(bridge.port(), "a") == Err(Failure::NoAuth);
        assert!(until(SOON, is_noauth).is_some(), "{more:?} {:?}", crate::ask(bridge.port(), "a"));
        assert!(!bridge.log().contains(redis.password()));
    }
    redis
        .say::<redis::Value>(&[
            "ACL", "SETUSER", "weir", "on", ">s3", "~rl:*", "-@all", "+eval", "+evalsha", "+get", "+set", "+time",
        ])
        .unwrap();
    for more in [&["--user", "weir"][..], &["--user", "weir", "--resp3"][..]] {
        let mut bridge = with(more, Some("s3"));
        bridge.wait_connected().unwrap();
        assert_eq!(granted(&crate::ask(bridge.port(), "a")), 1);
    }
}

#[test]
fn a_redis_that_is_killed_fails_calls_at_once_and_is_served_again_when_it_is_back() {
    let mut pair = Pair::start();
    assert_eq!(granted(&pair.ask("a")), 1);
    pair.redis.kill();
    let begun = Instant::now();
    assert!(until(SOON, || pair.ask("a") == Err(Failure::RedisDown)).is_some());
    for _ in 0..50 {
        assert_eq!(pair.ask("a"), Err(Failure::RedisDown));
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "it waits for what is not there: {:?}", begun.elapsed());
    assert_eq!(pair.bridge.admin("/readyz").unwrap().status, 503);
    pair.redis.restart().unwrap();
    let back = until(SOON, || pair.ask("a").is_ok());
    println!("killed: served again after {back:?}");
    assert!(back.is_some());
    assert!(pair.bridge.metric("weir_bridge_redis_losses_total") >= Some(1.0));
    // It came back without the script, which was sent again with its text.
    assert_eq!(granted(&pair.ask("b")), 1);
}

#[test]
fn a_redis_that_is_stopped_makes_calls_late_and_no_later_than_they_may_be() {
    let mut pair = Pair::start();
    assert_eq!(granted(&pair.ask("a")), 1);
    pair.redis.stop();
    let begun = Instant::now();
    let answers = results(&pair.call(&call_of(Ms(200), &["a", "b"])));
    let took = begun.elapsed();
    assert_eq!(answers, [Err(Failure::Late), Err(Failure::Late)]);
    assert!((Duration::from_millis(200)..Duration::from_millis(600)).contains(&took), "{took:?}");
    // It hangs for so long that its connection is given up.
    assert!(until(Duration::from_secs(5), || pair.ask("a") == Err(Failure::RedisDown)).is_some());
    pair.redis.cont();
    let back = until(SOON, || pair.ask("a").is_ok());
    println!("stopped: served again after {back:?}");
    assert!(back.is_some());
}

#[test]
fn a_script_that_redis_forgets_is_brought_again() {
    let pair = Pair::start();
    for _ in 0..3 {
        assert_eq!(granted(&pair.ask("a")), 1);
        pair.redis.say::<redis::Value>(&["SCRIPT", "FLUSH"]).unwrap();
    }
    let tenants: Vec<String> = (0..64).map(|at| format!("t{at}")).collect();
    let tenants: Vec<&str> = tenants.iter().map(String::as_str).collect();
    let before = pair.redis.script_runs().unwrap();
    let answers = results(&pair.call(&call_of(Ms(900), &tenants)));
    assert_eq!(answers.iter().map(granted).sum::<i64>(), 64);
    // Each asked once and was told NOSCRIPT; one brought the text, and the others asked again.
    assert_eq!(pair.redis.script_runs().unwrap() - before, 128);
}

#[test]
fn a_server_that_hangs_up_is_not_hurried() {
    let scratch = Scratch::new().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, connections) = std::sync::mpsc::channel();
    // It says that all is well, and hangs up.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = std::io::Write::write_all(&mut stream, b"+PONG\r\n");
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    let arguments = vec!["--redis".to_owned(), format!("redis://127.0.0.1:{port}")];
    let options = BridgeOptions { tool: tool().to_owned(), arguments, env: Vec::new(), expect_ready: false };
    let bridge = weir_stack::Bridge::start(&scratch, options).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        assert!(crate::ask(bridge.port(), "a").is_err());
    }
    let count = connections.try_iter().count();
    assert!((3..30).contains(&count), "{count} connections");
    assert!(bridge.log().lines().count() < 70, "{}", bridge.log());
}

#[test]
fn under_load_redis_is_killed_and_stopped_and_nothing_hangs_nor_grows() {
    let mut pair = Pair::start();
    assert_eq!(granted(&pair.ask("a")), 1);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let port = pair.bridge.port();
    let load: Vec<_> = (0..32)
        .map(|at| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut client = weir_stack::Client::new(port);
                let (mut calls, mut longest) = (0_u64, Duration::ZERO);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let tenants = [format!("t{at}"), format!("u{}", calls % 100)];
                    let begun = Instant::now();
                    let body = call_of(Ms(300), &tenants.each_ref().map(String::as_str));
                    let response = client.send(&crate::post(&body)).unwrap();
                    assert_eq!((response.status, results(&response).len()), (200, 2));
                    longest = longest.max(begun.elapsed());
                    calls += 1;
                }
                (calls, longest)
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let before = crate::memory(pair.bridge.id());
    let mut most = before;
    for turn in 0..6 {
        if turn % 2 == 0 {
            pair.redis.kill()
        } else {
            pair.redis.stop()
        }
        std::thread::sleep(Duration::from_millis(if turn == 1 { 2500 } else { 700 }));
        most = most.max(crate::memory(pair.bridge.id()));
        if turn % 2 == 0 {
            pair.redis.restart().unwrap()
        } else {
            pair.redis.cont()
        }
        let back = until(SOON, || pair.ask("later").is_ok());
        println!("turn {turn}: served again after {back:?}");
        assert!(back.is_some(), "{}", pair.bridge.log());
        most = most.max(crate::memory(pair.bridge.id()));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let all: Vec<(u64, Duration)> = load.into_iter().map(|load| load.join().unwrap()).collect();
    let (calls, longest) =
        all.iter().fold((0, Duration::ZERO), |(calls, most), (own, longest)| (calls + own, most.max(*longest)));
    println!("{calls} calls, the longest took {longest:?}; memory {before} bytes at first, {most} at most");
    assert!(longest < Duration::from_millis(1500), "{longest:?}");
    assert!(most < before + (32 << 20), "{before} {most}");
}
