//! Bounds and ends: queues that are full, memory that stays, calls that outlive the bridge's will to live.

use std::io::Write;
use std::time::{Duration, Instant};

use weir::clock::Ms;
use weir::limiter::Failure;
use weir_stack::{Client, RedisOptions};

use crate::{Pair, call_of, granted, memory, post, results, told, until};

/// Calls that wait for a Redis that is stopped: so many connections, each with so many parts.
fn waiting(port: u16, connections: usize, parts: usize, deadline: Ms) -> Vec<std::net::TcpStream> {
    let tenants: Vec<String> = (0..parts).map(|at| format!("t{at}")).collect();
    let tenants: Vec<&str> = tenants.iter().map(String::as_str).collect();
    let request = post(&call_of(deadline, &tenants)).encode();
    let call = || {
        let mut connection = Client::connect_raw(port).unwrap();
        connection.write_all(&request).unwrap();
        connection
    };
    (0..connections).map(|_| call()).collect()
}

#[test]
fn beyond_ten_thousand_parts_that_wait_calls_are_refused_at_once_and_memory_stays() {
    let mut pair = Pair::start();
    assert_eq!(granted(&pair.ask("a")), 1);
    let small = memory(pair.bridge.id());
    pair.redis.stop();
    // 156 * 64 = 9984 parts.
    let held = waiting(pair.bridge.port(), 156, 64, Ms(10_000));
    let waits = || pair.bridge.metric("weir_bridge_waiting_parts") == Some(9984.0);
    assert!(until(Duration::from_secs(5), waits).is_some());
    let full = memory(pair.bridge.id());
    let begun = Instant::now();
    for _ in 0..2000 {
        let response = pair.call(&call_of(Ms(10_000), &["a"; 17]));
        assert_eq!((response.status, told(&response)[0].result.clone()), (503, Err(Failure::Overloaded)));
    }
    let took = begun.elapsed();
    let after = memory(pair.bridge.id());
    println!("memory: {small} bytes, {full} with 9984 parts, {after} after 2000 refusals, which took {took:?}");
    assert!(after < full + (4 << 20), "{full} {after}");
    assert!(full < small + (128 << 20), "{small} {full}");
    drop(held);
    pair.redis.cont();
    assert!(until(Duration::from_secs(3), || pair.ask("b").is_ok()).is_some());
    assert!(until(Duration::from_secs(3), || pair.bridge.metric("weir_bridge_waiting_parts") == Some(0.0)).is_some());
    assert_eq!(pair.bridge.metric("weir_bridge_waiting_bytes"), Some(0.0));
}

#[test]
fn the_bound_is_what_it_was_told() {
    let mut pair = Pair::with(RedisOptions::default(), |options| options.with(&["--max-waiting", "2"]));
    assert_eq!(pair.call(&call_of(Ms(900), &["a", "b", "c"])).status, 503);
    assert_eq!(results(&pair.call(&call_of(Ms(900), &["a", "b"]))).len(), 2);
    pair.redis.stop();
    let held = waiting(pair.bridge.port(), 1, 2, Ms(5000));
    assert!(until(Duration::from_secs(2), || pair.call(&call_of(Ms(50), &["a"])).status == 503).is_some());
    drop(held);
    pair.redis.cont();
    assert!(until(Duration::from_secs(3), || pair.ask("a").is_ok()).is_some());
}

#[test]
fn beyond_its_connections_callers_are_turned_away() {
    let pair = Pair::with(RedisOptions::default(), |options| options.with(&["--max-connections", "3"]));
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(pair.bridge.port())).collect();
    for client in &mut clients {
        assert_eq!(client.get("/healthz", &[]).unwrap().status, 200);
    }
    assert!(Client::new(pair.bridge.port()).get("/healthz", &[]).is_err());
    drop(clients);
    let again = || Client::new(pair.bridge.port()).get("/healthz", &[]).is_ok();
    assert!(until(Duration::from_secs(2), again).is_some());
}

#[test]
fn at_the_end_it_finishes_calls_and_takes_no_more() {
    let mut pair = Pair::start();
    assert_eq!(granted(&pair.ask("a")), 1);
    pair.redis.stop();
    let port = pair.bridge.port();
    let call = std::thread::spawn(move || results(&crate::call(port, &call_of(Ms(5000), &["a"]))));
    let waits = || pair.bridge.metric("weir_bridge_waiting_parts") == Some(1.0);
    assert!(until(Duration::from_secs(2), waits).is_some());
    pair.bridge.terminate();
    assert!(until(Duration::from_secs(2), || Client::connect_raw(port).is_err()).is_some());
    assert!(pair.bridge.is_running());
    pair.redis.cont();
    assert_eq!(granted(&call.join().unwrap()[0]), 1);
    assert!(until(Duration::from_secs(2), || !pair.bridge.is_running()).is_some());
    assert!(pair.bridge.log().contains("ending"), "{}", pair.bridge.log());
}

#[test]
fn a_caller_that_leaves_takes_its_call_with_it() {
    let mut pair = Pair::start();
    pair.redis.stop();
    let held = waiting(pair.bridge.port(), 5, 64, Ms(10_000));
    let waits = |parts: f64| pair.bridge.metric("weir_bridge_waiting_parts") == Some(parts);
    assert!(until(Duration::from_secs(2), || waits(320.0)).is_some());
    drop(held);
    assert!(until(Duration::from_secs(2), || waits(0.0)).is_some());
    pair.redis.cont();
}
