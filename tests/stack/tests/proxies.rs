//! The Envoys: the peer's listeners, and how new listeners reach the Envoy that runs weir.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_stack::{
    Answer, Client, Delay, Envoy, EnvoyOptions, Listeners, Peer, PeerOptions, PushError, Redis, RedisOptions, Request,
    Scratch, Webdis, WebdisOptions, burst,
};

/// A listener without weir that says `answer`.
fn answering(answer: &str) -> String {
    format!(
        r#"
resources:
  - "@type": type.googleapis.com/envoy.config.listener.v3.Listener
    name: ingress
    address: {{socket_address: {{address: 127.0.0.1, port_value: @PORT@}}}}
    filter_chains:
      - filters:
          - name: envoy.filters.network.http_connection_manager
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              stat_prefix: ingress
              http_filters:
                - name: envoy.filters.http.router
                  typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
              route_config:
                virtual_hosts:
                  - name: all
                    domains: ["*"]
                    routes:
                      - match: {{prefix: /upstream}}
                        route: {{cluster: upstream}}
                      - match: {{prefix: /}}
                        direct_response: {{status: 200, body: {{inline_string: "{answer}"}}}}
"#
    )
}

fn envoy(scratch: &Scratch, file: &str, upstream_port: u16) -> Envoy {
    let started = Instant::now();
    let module = Path::new("absent.wasm");
    let mut options = EnvoyOptions::new(module, "", upstream_port, 1);
    options.listeners = Listeners::File(file);
    let envoy = Envoy::start(scratch, options).unwrap();
    println!("ready after: envoy {:?}", started.elapsed());
    envoy
}

fn ask(port: u16, path: &str) -> String {
    Client::new(port).get(path, &[]).unwrap().text()
}

#[test]
fn the_peer_plays_the_service_and_limiters_that_are_slow_or_wrong() {
    let scratch = Scratch::new().unwrap();
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default()).unwrap();
    let long = "x".repeat(20 * 1024);
    let started = Instant::now();
    let peer = Peer::start(
        &scratch,
        PeerOptions {
            upstream_headers: &[("x-ratelimit-limit", "7")],
            delayed: &[Delay { to: webdis.port(), by_ms: 150 }],
            answering: &[Answer { status: 500, body: "broken" }, Answer { status: 200, body: &long }],
            ..PeerOptions::default()
        },
    )
    .unwrap();
    println!("ready after: peer {:?}", started.elapsed());

    // The same connection serves both, the second with a body.
    let mut client = Client::new(peer.upstream_port());
    let answer = client.get("/any?x", &[("host", b"any.example")]).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("7"));
    let posted = client.request("POST", "/", &[], &[b'x'; 100_000]).unwrap();
    assert_eq!(posted.status, 200);
    assert_eq!(posted.header("connection"), None);
    assert_eq!(peer.upstream_requests(), 2);

    let command = Request::new("POST", "/").body("EVAL/return%201/1/rl%3Ax");
    let started = Instant::now();
    let answer = Client::new(peer.delayed_limiter_port(0)).send(&command);
    assert_eq!(answer.unwrap().text(), "{\"EVAL\":1}");
    assert!(started.elapsed() >= Duration::from_millis(150));
    assert_eq!((peer.delayed_requests(0), redis.script_runs().unwrap()), (1, 1));

    let answer = Client::new(peer.answering_port(0)).send(&command).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (500, "broken"));
    let answer = Client::new(peer.answering_port(1)).send(&command).unwrap();
    assert_eq!((answer.status, answer.text()), (200, long));
    assert_eq!((peer.answered_requests(0), peer.answered_requests(1)), (1, 1));
}

#[test]
fn the_bootstrap_is_valid_and_reaches_the_service() {
    let scratch = Scratch::new().unwrap();
    let peer = Peer::start(&scratch, PeerOptions::default()).unwrap();
    let envoy = envoy(&scratch, &answering("first"), peer.upstream_port());
    assert_eq!(ask(envoy.port(), "/"), "first");
    assert_eq!(ask(envoy.port(), "/upstream"), "ok");
    assert_eq!(envoy.errors(), Vec::<String>::new());
    assert_eq!(envoy.stat("http.ingress.downstream_rq_total"), Some(2));
    assert_eq!(envoy.stat("http.ingress.downstream_rq"), None);
    // Envoy finds nothing to warn of in the files, only that it has no overload limits.
    let ours: Vec<String> = envoy.log().lines().filter(|line| line.contains("][warning]")).map(str::to_owned).collect();
    assert!(ours.iter().all(|line| line.contains("max_connections")), "{ours:#?}");
}

#[test]
fn new_listeners_are_accepted_or_refused() {
    let scratch = Scratch::new().unwrap();
    let mut envoy = envoy(&scratch, &answering("0"), 1);
    for round in 1..=10 {
        envoy.push_listeners(&answering(&round.to_string())).unwrap();
        for _ in 0..10 {
            assert_eq!(ask(envoy.port(), "/"), round.to_string());
        }
    }
    let bad = answering("bad").replace("cluster: upstream", "cluster: absent");
    for refused in [bad.as_str(), "resources: ["] {
        let Err(PushError::Refused(log)) = envoy.push_listeners(refused) else {
            panic!("accepted: {refused}");
        };
        assert!(!log.is_empty());
        assert_eq!(ask(envoy.port(), "/"), "10");
    }
    envoy.push_listeners(&answering("last")).unwrap();
    assert_eq!(ask(envoy.port(), "/"), "last");
}

#[test]
fn a_connection_keeps_the_old_listener_until_it_is_drained() {
    let scratch = Scratch::new().unwrap();
    let mut envoy = envoy(&scratch, &answering("old"), 1);
    let mut client = Client::new(envoy.port());
    assert_eq!(client.get("/", &[]).unwrap().text(), "old");
    envoy.push_listeners(&answering("new")).unwrap();
    assert_eq!(ask(envoy.port(), "/"), "new");
    let started = Instant::now();
    envoy.wait_drained().unwrap();
    println!("drained after {:?}", started.elapsed());
    // The client sees that its connection is gone and opens another.
    assert_eq!(client.get("/", &[]).unwrap().text(), "new");
}

#[test]
fn refused_first_listeners_leave_an_envoy_that_takes_better_ones() {
    let scratch = Scratch::new().unwrap();
    let bad = answering("bad").replace("cluster: upstream", "cluster: absent");
    let mut options = EnvoyOptions::new(Path::new("absent.wasm"), "", 1, 1);
    options.listeners = Listeners::File(&bad);
    options.expect_ready = false;
    let mut envoy = Envoy::start(&scratch, options).unwrap();
    assert!(envoy.is_running());
    assert!(Client::new(envoy.port()).get("/", &[]).is_err());
    envoy.push_listeners(&answering("good")).unwrap();
    assert_eq!(ask(envoy.port(), "/"), "good");
    envoy.kill();
    assert!(!envoy.is_running());
}

/// A policy is JSON, and the file is YAML: every byte has to arrive. The module is absent, so Envoy refuses the listener,
/// and shows what it has refused.
#[test]
fn the_text_of_a_policy_survives_yaml() {
    let strings: Vec<String> =
        ["", "# no comment", "a: b", "*a", "&a", "%", "a\tb\nc\\\"", "é\u{1f600}", "@PORT@ \"@type\""]
            .iter()
            .map(|text| text.to_string())
            .chain(["\u{7f}\u{85}\u{2028}\u{feff}".to_owned(), "x".repeat(5000)])
            .collect();
    let policy = json!({"n": [1.5, 1e15, 4503599627370496u64], "x".repeat(2000): "a long key", "strings": strings});
    let on_one_line = policy.to_string();
    let on_many = serde_json::to_string_pretty(&policy).unwrap();
    let odd = "{\"a\": 1, \"a\": 1e3,\n\n\n # \"\\ud83d\\ude00\\/\": \n---\n\t]";
    let scratch = Scratch::new().unwrap();
    let mut options = EnvoyOptions::new(Path::new("absent.wasm"), "", 1, 1);
    options.expect_ready = false;
    let mut envoy = Envoy::start(&scratch, options).unwrap();
    for text in [on_one_line.as_str(), &on_many, odd] {
        let Err(PushError::Refused(log)) = envoy.push_policies(&[(envoy.port(), text)]) else {
            panic!("accepted without a module");
        };
        assert!(log.contains("absent.wasm"), "{log}");
        let dump: Value = serde_json::from_str(&ask(envoy.admin_port(), "/config_dump")).unwrap();
        let refused = find(&dump, "failed_configuration").expect("a refused listener");
        assert_eq!(find(refused, "configuration").unwrap()["value"], *text);
    }
}

fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(name).or_else(|| map.values().find_map(|inner| find(inner, name))),
        Value::Array(items) => items.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

#[test]
fn a_burst_uses_all_connections_and_ports_and_keeps_the_order() {
    let scratch = Scratch::new().unwrap();
    let peer =
        Peer::start(&scratch, PeerOptions { answering: &[Answer { status: 429, body: "" }], ..Default::default() })
            .unwrap();
    let ports = [peer.upstream_port(), peer.answering_port(0)];
    let requests: Vec<Request> =
        (0..200).map(|n| Request::get(format!("/{n}")).header("x-odd", [0xff, 0xfe])).collect();
    let outcomes = burst(&ports, 8, &requests);
    assert_eq!(outcomes.len(), 200);
    let count = |status: u16| {
        let is = |o: &&weir_stack::Outcome| o.result.as_ref().is_ok_and(|r| r.status == status);
        outcomes.iter().filter(is).count() as u64
    };
    assert_eq!((count(200), count(429)), (peer.upstream_requests(), peer.answered_requests(0)));
    assert_eq!(count(200) + count(429), 200);
    assert!(count(200) > 0 && count(429) > 0);
}

/// What a killed test leaves: nothing.
#[test]
fn processes_end_with_the_thread_that_started_them() {
    let (redis, peer, _scratch) = std::thread::spawn(|| {
        let scratch = Scratch::new().unwrap();
        let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
        let peer = Peer::start(&scratch, PeerOptions::default()).unwrap();
        (redis, peer, scratch)
    })
    .join()
    .unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    for port in [redis.port(), peer.upstream_port()] {
        while Client::connect_raw(port).is_ok() {
            assert!(Instant::now() < end, "port {port} is still served");
        }
    }
}

#[test]
fn a_process_that_does_not_start_says_why() {
    let scratch = Scratch::new().unwrap();
    let mut options = EnvoyOptions::new(Path::new("absent.wasm"), "", 1, 1);
    options.listeners = Listeners::File("resources: [");
    let error = Envoy::start(&scratch, options).err().unwrap().to_string();
    assert!(error.starts_with("envoy: it has refused them; wanted listeners that it accepts"), "{error}");
    assert!(error.contains("listener.yaml"), "{error}");
}
