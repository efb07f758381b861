//! A cluster of three masters: keys go where their slots are, and follow them.

use std::time::Duration;

use weir::clock::Ms;
use weir::limiter::Failure;
use weir_stack::{Bridge, BridgeOptions, Redis, RedisOptions, Scratch, free_port};

use crate::{ask, call, call_of, granted, key, results, tool, until};

struct Cluster {
    bridge: Bridge,
    nodes: Vec<Redis>,
    _scratch: Scratch,
}

fn say(redis: &Redis, command: &[&str]) -> redis::Value {
    redis.say(command).unwrap()
}

/// Three masters, each with a third of the slots.
fn cluster(resp3: bool) -> Cluster {
    let scratch = Scratch::new().unwrap();
    let start = |_| {
        let bus = free_port().unwrap();
        let lines = format!("cluster-enabled yes\ncluster-port {bus}\ncluster-node-timeout 1000\n");
        (Redis::start(&scratch, RedisOptions { lines: &lines, ..Default::default() }).unwrap(), bus)
    };
    let nodes: Vec<(Redis, u16)> = (0..3).map(start).collect();
    let password = format!(">{}", nodes[0].0.password());
    for (at, (node, _)) in nodes.iter().enumerate() {
        say(node, &["ACL", "SETUSER", "default", &password, "+cluster|slots", "+asking"]);
        let [first, last] = [at * 5461, if at == 2 { 16_383 } else { at * 5461 + 5460 }].map(|slot| slot.to_string());
        say(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        for (other, bus) in nodes.iter().skip(at + 1) {
            say(node, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus.to_string()]);
        }
    }
    let is_whole = |node: &Redis| {
        let told: String = node.say(&["CLUSTER", "INFO"]).unwrap();
        told.contains("cluster_state:ok") && told.contains("cluster_known_nodes:3")
    };
    assert!(until(Duration::from_secs(20), || nodes.iter().all(|(node, _)| is_whole(node))).is_some());
    let nodes: Vec<Redis> = nodes.into_iter().map(|(node, _)| node).collect();
    let options = BridgeOptions::new(tool(), &nodes[0]).with(&["--cluster"]);
    let options = if resp3 { options.with(&["--resp3"]) } else { options };
    let bridge = Bridge::start(&scratch, options).unwrap();
    Cluster { bridge, nodes, _scratch: scratch }
}

impl Cluster {
    fn slot(&self, tenant: &str) -> i64 {
        self.nodes[0].say(&["CLUSTER", "KEYSLOT", &key(tenant)]).unwrap()
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].say(&["CLUSTER", "MYID"]).unwrap()
    }

    /// A tenant whose slot is at a node.
    fn tenant_at(&self, node: usize) -> String {
        let is_there = |tenant: &String| (self.slot(tenant) / 5461).min(2) as usize == node;
        (0..).map(|at| format!("n{at}")).find(is_there).unwrap()
    }
}

#[test]
fn parts_go_to_their_nodes_and_come_back_in_order() {
    for resp3 in [false, true] {
        let cluster = cluster(resp3);
        let tenants: Vec<String> = (0..60).map(|at| format!("t{at}")).collect();
        let tenants: Vec<&str> = tenants.iter().map(String::as_str).collect();
        let answers = results(&call(cluster.bridge.port(), &call_of(Ms(900), &tenants)));
        assert_eq!(answers.iter().map(granted).sum::<i64>(), 60);
        let sizes: Vec<i64> = cluster.nodes.iter().map(|node| node.say(&["DBSIZE"]).unwrap()).collect();
        assert!(sizes.iter().all(|size| *size > 5), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<i64>(), 60);
    }
}

#[test]
fn a_slot_that_moves_is_followed_and_nobody_is_charged_twice() {
    let cluster = cluster(false);
    let tenant = cluster.tenant_at(0);
    let (port, slot) = (cluster.bridge.port(), cluster.slot(&tenant).to_string());
    let left = |expected: i64| {
        let reply = ask(port, &tenant).unwrap();
        assert_eq!(reply[1].div_euclid(3_600_000), expected, "{reply:?}");
    };
    left(99);
    let (from, to) = (cluster.id(0), cluster.id(1));
    say(&cluster.nodes[1], &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    say(&cluster.nodes[0], &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    left(98); // the key is there still
    let node = &cluster.nodes[1];
    let (port_to, password) = (node.port().to_string(), node.operator_password().to_owned());
    let migrate = ["MIGRATE", "127.0.0.1", &port_to, &key(&tenant), "0", "5000", "AUTH2", "operator", &password];
    say(&cluster.nodes[0], &migrate);
    left(97); // ASK
    left(96);
    for node in &cluster.nodes {
        say(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }
    left(95); // MOVED
    left(94);
    // A whole slot that the bridge has not heard of, with calls that know the old place.
    assert_eq!(cluster.bridge.metric("weir_bridge_failures_total{reason=\"redis\"}"), Some(0.0));
}

#[test]
fn a_node_that_is_gone_fails_its_own_parts_alone() {
    let mut cluster = cluster(false);
    let tenants = [0, 1, 2].map(|node| cluster.tenant_at(node));
    let tenants = tenants.each_ref().map(String::as_str);
    // The others go on without it.
    for node in &cluster.nodes {
        say(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let port = cluster.bridge.port();
    assert!(results(&call(port, &call_of(Ms(900), &tenants))).iter().all(Result::is_ok));
    cluster.nodes[2].kill();
    let outcome = || results(&call(port, &call_of(Ms(900), &tenants)));
    let is_down = || matches!(outcome().as_slice(), [Ok(_), Ok(_), Err(Failure::RedisDown)]);
    assert!(until(Duration::from_secs(5), is_down).is_some(), "{:?}", outcome());
    cluster.nodes[2].restart().unwrap();
    // A node that comes back has users of its file; the cluster takes a moment to believe in it.
    let password = format!(">{}", cluster.nodes[0].password());
    say(&cluster.nodes[2], &["ACL", "SETUSER", "default", &password, "+cluster|slots", "+asking"]);
    let is_back = || outcome().iter().all(Result::is_ok);
    let back = until(Duration::from_secs(10), is_back);
    println!("cluster: whole again after {back:?}");
    assert!(back.is_some(), "{:?}\n{}", outcome(), cluster.bridge.log());
}

#[test]
fn a_cluster_that_does_not_serve_a_slot_is_down() {
    let cluster = cluster(false);
    let tenant = cluster.tenant_at(1);
    let slot = cluster.slot(&tenant).to_string();
    for node in &cluster.nodes {
        say(node, &["CLUSTER", "DELSLOTS", &slot]);
    }
    let is_down = || ask(cluster.bridge.port(), &tenant) == Err(Failure::ClusterDown);
    assert!(until(Duration::from_secs(5), is_down).is_some(), "{:?}", ask(cluster.bridge.port(), &tenant));
}
