//! Thousands of requests that wait at one worker and are decided together: each is answered once, bystanders notice
//! nothing, and the VM lives.
//!
//! Envoy runs the callbacks of the streams that one callback has finished nested in each other. How many of them its
//! stack bears is looked for here, with a module whose bound is taken away.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_stack::{Client, Envoy, Listeners, Request};

use crate::rig::{Options, Rig, of, policy, trapping_module};

const CROWD: usize = 5000;

/// The longest that anything here may take.
const BOUND: Duration = Duration::from_secs(60);

/// A bystander is answered within this, on a busy machine of two cores.
const BYSTANDER: Duration = Duration::from_secs(5);

/// How long those wait whom nobody answers: long enough for all to come.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What the route does with those who pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Upstream,
    /// Envoy answers by itself, in the callback that resumes the request.
    Itself,
}

/// One Envoy of one worker, in mode exact.
fn rig(limit: &str, timeout: &str, on_error: &str, route: Route) -> Rig {
    let policy = policy(limit, timeout, on_error);
    rig_of(&policy, route, Options { envoys: 1, concurrency: 1, ..Options::default() })
}

fn rig_of(policy: &str, route: Route, options: Options<'_>) -> Rig {
    // A crowd of clients, and Envoy's connections for each of them.
    let (soft, hard) = rlimit::Resource::NOFILE.get().unwrap();
    let needed = 4 * CROWD as u64;
    assert!(hard >= needed, "{needed} open files are needed, and the hard limit is {hard}: see `ulimit -Hn`");
    rlimit::Resource::NOFILE.set(soft.max(needed), hard).unwrap();
    let policy = policy.split_whitespace().collect::<Vec<_>>().join(" ");
    let listener = weir_stack::with_filter(include_str!("../../envoy/listener.yaml")).replace("@POLICY@", &policy);
    let listener = match route {
        Route::Upstream => listener,
        Route::Itself => {
            let (ours, itself) =
                ("route: {cluster: upstream}", "direct_response: {status: 200, body: {inline_string: itself}}");
            assert!(listener.contains(ours));
            listener.replace(ours, itself)
        }
    };
    Rig::listening(Listeners::File(&listener), options)
}

/// Sends the requests, each on a connection of its own, and waits until Envoy has all of them.
fn come(rig: &Rig, requests: &[Request]) -> Vec<TcpStream> {
    let envoy = &rig.envoys[0];
    let come = |request: &Request| {
        let mut connection = Client::connect_raw(envoy.port()).unwrap();
        connection.write_all(&request.encode()).unwrap();
        connection
    };
    let arrived = |envoy: &Envoy| envoy.stat("http.ingress.downstream_rq_total").unwrap_or_default();
    let before = arrived(envoy);
    let connections: Vec<TcpStream> = requests.iter().map(come).collect();
    let all = before + requests.len() as u64;
    assert!(envoy.wait_for(BOUND, |envoy| arrived(envoy) >= all), "{} of {all} have arrived", arrived(envoy));
    connections
}

/// Reads the answer of each, and gives how many there are of each status, in order of the status. Nobody gets two.
fn statuses(connections: Vec<TcpStream>) -> Vec<(u16, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for mut connection in connections {
        connection.set_read_timeout(Some(BOUND)).unwrap();
        let text = whole(&mut connection);
        let status: u16 = text.split(' ').nth(1).unwrap().parse().unwrap();
        connection.set_nonblocking(true).unwrap();
        let more = connection.read(&mut [0; 64]);
        let is_over = matches!(&more, Ok(0)) || matches!(&more, Err(e) if e.kind() == ErrorKind::WouldBlock);
        assert!(is_over, "something came after the answer: {more:?}\n{text}");
        *counts.entry(status).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// One answer with a content-length.
fn whole(connection: &mut TcpStream) -> String {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap_or("0").parse().unwrap() {
                return text;
            }
        }
        let count = connection.read(&mut chunk).unwrap();
        assert!(count > 0, "closed after {text:?}");
        bytes.extend_from_slice(&chunk[..count]);
    }
}

/// Bystanders go when this does, also where a test fails.
struct EndsBystanders<'a>(&'a AtomicBool);

impl Drop for EndsBystanders<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks again and again for what no rule looks at, until `act` is over. Nobody waits longer than a bystander may.
fn beside_bystanders<T>(rig: &mut Rig, act: impl FnOnce(&mut Rig) -> T) -> T {
    let (port, over) = (rig.envoys[0].port(), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        let ends = EndsBystanders(&over);
        let bystander = scope.spawn(|| {
            let mut client = Client::new(port);
            let (mut asked, mut longest) = (0_u64, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                let since = Instant::now();
                assert_eq!(client.send(&Request::get("/healthz")).unwrap().status, 200);
                longest = longest.max(since.elapsed());
                asked += 1;
                thread::sleep(Duration::from_millis(5));
            }
            (asked, longest)
        });
        let outcome = act(rig);
        drop(ends);
        let (asked, longest) = bystander.join().unwrap();
        println!("    {asked} bystanders, the longest took {longest:?}");
        assert!(longest < BYSTANDER, "a bystander took {longest:?}");
        outcome
    });
    rig.assert_no_errors_logged();
    outcome
}

#[test]
fn a_crowd_of_one_client_is_limited() {
    let mut rig = rig("7/d", "30s", "deny", Route::Upstream);
    let seen = beside_bystanders(&mut rig, |rig| {
        rig.redis.stop();
        let crowd = come(rig, &vec![of("bob"); CROWD]);
        rig.redis.cont();
        statuses(crowd)
    });
    assert_eq!(seen, [(200, 7), (429, CROWD - 7)]);
}

#[test]
fn a_crowd_is_limited_in_mode_lease_and_by_two_workers() {
    for concurrency in [1, 2] {
        let policy = policy("7/d", "30s", "deny").replace(r#""exact""#, r#""lease""#);
        let mut rig = rig_of(&policy, Route::Upstream, Options { envoys: 1, concurrency, ..Options::default() });
        let seen = beside_bystanders(&mut rig, |rig| {
            rig.redis.stop();
            let crowd = come(rig, &vec![of("bob"); CROWD]);
            rig.redis.cont();
            statuses(crowd)
        });
        assert_eq!(seen, [(200, 7), (429, CROWD - 7)], "{concurrency} workers");
    }
}

#[test]
fn a_crowd_is_admitted_by_a_service_and_by_a_route_that_answers_itself() {
    for route in [Route::Upstream, Route::Itself] {
        let mut rig = rig("1000000/d", "30s", "deny", route);
        let seen = beside_bystanders(&mut rig, |rig| {
            rig.redis.stop();
            let crowd = come(rig, &vec![of("bob"); CROWD]);
            rig.redis.cont();
            statuses(crowd)
        });
        assert_eq!(seen, [(200, CROWD)], "{route:?}");
    }
}

#[test]
fn a_crowd_whose_limiter_dies_is_decided_by_on_error() {
    for (on_error, status, route) in [("deny", 503, Route::Upstream), ("allow", 200, Route::Itself)] {
        let mut rig = rig("1000000/d", "30s", on_error, route);
        let seen = beside_bystanders(&mut rig, |rig| {
            rig.redis.stop();
            let crowd = come(rig, &vec![of("bob"); CROWD]);
            rig.webdis.kill();
            statuses(crowd)
        });
        assert_eq!(seen, [(status, CROWD)], "{on_error}");
    }
}

#[test]
fn a_crowd_of_tenants_is_decided_at_its_deadline_while_redis_hangs() {
    for (on_error, status, route) in [("deny", 503, Route::Upstream), ("allow", 200, Route::Itself)] {
        let mut rig = rig("1000000/d", &format!("{}s", TIMEOUT.as_secs()), on_error, route);
        let requests: Vec<Request> = (0..CROWD).map(|number| of(&format!("u{}", number / 5))).collect();
        let seen = beside_bystanders(&mut rig, |rig| {
            rig.redis.stop();
            let since = Instant::now();
            let crowd = come(rig, &requests);
            let here = since.elapsed();
            let seen = statuses(crowd);
            let took = since.elapsed();
            println!("    {on_error}: all here after {here:?}, all answered after {took:?}");
            // Nobody before its time, and the last a few turns of the event loop after it.
            assert!(took > TIMEOUT && took < TIMEOUT + here + BYSTANDER, "{took:?}");
            rig.redis.cont();
            seen
        });
        assert_eq!(seen, [(status, CROWD)], "{on_error}");
    }
}

/// Calls that fail in the host's call that makes them: Envoy tells of each when the callback returns, nested.
#[test]
fn a_crowd_of_tenants_whose_calls_fail_at_once_is_decided_by_on_error() {
    let tight = r#"{"name": "CLUSTER", "type": "STATIC", "connect_timeout": "1s",
        "circuit_breakers": {"thresholds": [{"max_connections": 1, "max_pending_requests": 1, "max_requests": 1}]},
        "load_assignment": {"cluster_name": "CLUSTER", "endpoints": [{"lb_endpoints": [ENDPOINT]}]}}"#;
    let tight = tight.split_whitespace().collect::<Vec<_>>().join(" ");
    let endpoint = r#"{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 9}}}}"#;
    let clusters = [
        tight.replace("CLUSTER", "tight").replace("ENDPOINT", endpoint),
        tight.replace("CLUSTER", "empty").replace("ENDPOINT", ""),
    ];
    for (cluster, on_error, status) in [("tight", "deny", 503), ("empty", "deny", 503), ("empty", "allow", 200)] {
        // The breaker stays closed, so that each tenant has a call.
        let to = format!(r#""cluster": "{cluster}", "breaker": {{"failures": 1000000}}"#);
        let policy = policy("1000000/d", "30s", on_error).replace(r#""cluster": "webdis""#, &to);
        let options = Options { envoys: 1, concurrency: 1, more_clusters: &clusters, ..Options::default() };
        let mut rig = rig_of(&policy, Route::Itself, options);
        let requests: Vec<Request> = (0..CROWD).map(|number| of(&format!("u{}", number / 2))).collect();
        let seen = beside_bystanders(&mut rig, |rig| statuses(come(rig, &requests)));
        assert_eq!(seen, [(status, CROWD)], "{cluster}, {on_error}");
    }
}

/// What Envoy bears is at least ten times what one callback finishes, and is not without a bound.
#[test]
fn this_host_bears_ten_times_what_one_callback_finishes_and_not_any_number() {
    for (most, survives) in [(10 * weir::engine::MOST_FINISHED, true), (CROWD, false)] {
        let module = trapping_module();
        let options = Options { envoys: 1, concurrency: 1, module, ..Options::default() };
        let mut rig = rig_of(&policy("7/d", "30s", "deny"), Route::Upstream, options);
        let sets_it = of("alice").header("x-weir-finish-at-once", most.to_string());
        assert_eq!(Client::new(rig.envoys[0].port()).send(&sets_it).unwrap().status, 200);
        rig.redis.stop();
        let crowd = come(&rig, &vec![of("bob"); CROWD]);
        rig.redis.cont();
        let trapped =
            |envoy: &Envoy| envoy.errors().iter().any(|line| line.contains("Maximum call stack size exceeded"));
        if survives {
            assert_eq!(statuses(crowd), [(200, 7), (429, CROWD - 7)]);
            assert!(!trapped(&rig.envoys[0]), "{most} in one callback");
        } else {
            assert!(rig.envoys[0].wait_for(BOUND, trapped), "{most} in one callback, and no trap");
        }
    }
}
