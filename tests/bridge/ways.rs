//! Ways to Redis, and to the bridge: TLS on both sides, a database, sentinels.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use weir::clock::Ms;
use weir::limiter::Failure;
use weir_stack::{Bridge, BridgeOptions, Redis, RedisOptions, Scratch, Sentinel, free_port};

use crate::{Pair, ask, call_of, granted, post, tool, until};

fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).stderr(Stdio::null()).status();
    assert!(done.expect("openssl").success(), "openssl {arguments}");
}

/// An authority, and certificates of it for `localhost` and 127.0.0.1, in files NAME.pem and NAME.key.
fn certificates(folder: &Path, authority: &str, names: &[&str]) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        folder,
        &format!("req -x509 {key} -keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority}"),
    );
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    for name in names {
        openssl(folder, &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {name}.pem -days 2 -extfile names"
            ),
        );
    }
}

#[test]
fn redis_may_be_behind_tls_with_certificates_on_both_sides() {
    let scratch = Scratch::new().unwrap();
    let folder = scratch.path().to_owned();
    certificates(&folder, "ca", &["redis", "bridge"]);
    certificates(&folder, "other", &["stranger"]);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let tls_port = free_port().unwrap();
    let lines = format!(
        "tls-port {tls_port}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients yes\n",
        file("redis.pem"),
        file("redis.key"),
        file("ca.pem")
    );
    let redis = Redis::start(&scratch, RedisOptions { lines: &lines, ..Default::default() }).unwrap();
    let start = |host: &str, more: &[&str]| {
        let plain = BridgeOptions::new(tool(), &redis);
        let arguments = vec!["--redis".to_owned(), format!("rediss://{host}:{tls_port}")];
        Bridge::start(&scratch, BridgeOptions { arguments, expect_ready: false, ..plain }.with(more)).unwrap()
    };
    let (ca, cert, key) = (file("ca.pem"), file("bridge.pem"), file("bridge.key"));
    let own = ["--redis-ca", &ca, "--redis-cert", &cert, "--redis-key", &key];
    for (host, more) in [("127.0.0.1", &own[..]), ("localhost", &[&own[..], &["--resp3"]].concat()[..])] {
        let mut bridge = start(host, more);
        bridge.wait_connected().unwrap();
        assert_eq!(granted(&ask(bridge.port(), "a")), 1);
    }
    // Nobody vouches for Redis, or for the bridge, or it is called by another name.
    let (other, cert, key) = (file("other.pem"), file("stranger.pem"), file("stranger.key"));
    for more in [
        &["--redis-ca", &other, own[2], own[3], own[4], own[5]][..],
        &["--redis-ca", &ca][..],
        &["--redis-ca", &ca, "--redis-cert", &cert, "--redis-key", &key][..],
    ] {
        let bridge = start("127.0.0.1", more);
        assert!(
            until(Duration::from_secs(3), || ask(bridge.port(), "a") == Err(Failure::RedisDown)).is_some(),
            "{more:?}"
        );
        assert!(bridge.log().contains("no connection"), "{}", bridge.log());
    }
}

#[test]
fn callers_may_have_to_speak_tls_and_to_show_a_certificate() {
    let scratch = Scratch::new().unwrap();
    let folder = scratch.path().to_owned();
    certificates(&folder, "ca", &["bridge", "proxy"]);
    certificates(&folder, "other", &["stranger"]);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (file("bridge.pem"), file("bridge.key"), file("ca.pem"));
    let words = ["--tls-cert", &cert, "--tls-key", &key, "--client-ca", &ca];
    let pair = Pair::with(RedisOptions::default(), |options| options.with(&words));
    // One call by TLS, and what came of it.
    let call = |more: &str| {
        let request =
            String::from_utf8(post(&call_of(Ms(900), &["a"])).header("connection", "close").encode()).unwrap();
        let place = format!("s_client -quiet -connect 127.0.0.1:{} -CAfile ca.pem {more}", pair.bridge.port());
        let mut child = Command::new("openssl")
            .args(place.trim().split(' '))
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        use std::io::Write;
        let mut stdin = child.stdin.take().unwrap();
        // Whoever is refused may be gone by now.
        let _ = stdin.write_all(request.as_bytes());
        let output = child.wait_with_output().unwrap();
        drop(stdin);
        String::from_utf8(output.stdout).unwrap()
    };
    let answer = call("-cert proxy.pem -key proxy.key");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\nweir 1\n1 ok 1 "), "{answer}");
    assert_eq!(call(""), "");
    assert_eq!(call("-cert stranger.pem -key stranger.key"), "");
    assert!(weir_stack::Client::new(pair.bridge.port()).get("/healthz", &[]).is_err(), "it speaks without TLS");
}

#[test]
fn a_database_is_chosen_by_its_number() {
    let scratch = Scratch::new().unwrap();
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    redis.say::<redis::Value>(&["ACL", "SETUSER", "default", "+select"]).unwrap();
    let options = BridgeOptions::new(tool(), &redis);
    let arguments = vec!["--redis".to_owned(), format!("redis://127.0.0.1:{}/3", redis.port())];
    let bridge = Bridge::start(&scratch, BridgeOptions { arguments, ..options }).unwrap();
    assert_eq!(granted(&ask(bridge.port(), "a")), 1);
    let keyspace: String = redis.say(&["INFO", "keyspace"]).unwrap();
    assert!(keyspace.contains("db3:keys=1,") && !keyspace.contains("db0:"), "{keyspace}");
}

#[test]
fn sentinels_name_the_master_and_another_one_when_it_is_gone() {
    let scratch = Scratch::new().unwrap();
    let mut first = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let second = Redis::start(&scratch, RedisOptions::default()).unwrap();
    // Both know the same users.
    let say = |redis: &Redis, command: &[&str]| redis.say::<redis::Value>(command).unwrap();
    let password = format!(">{}", first.operator_password());
    say(&second, &["ACL", "SETUSER", "operator", &password]);
    say(&second, &["ACL", "SETUSER", "default", &format!(">{}", first.password())]);
    for redis in [&first, &second] {
        say(redis, &["CONFIG", "SET", "masteruser", "operator"]);
        say(redis, &["CONFIG", "SET", "masterauth", first.operator_password()]);
    }
    say(&second, &["REPLICAOF", "127.0.0.1", &first.port().to_string()]);
    let linked = || second.say::<String>(&["INFO", "replication"]).unwrap().contains("master_link_status:up");
    assert!(until(Duration::from_secs(10), linked).is_some());
    let sentinel = Sentinel::start(&scratch, &first).unwrap();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", sentinel.port())).unwrap();
    let mut asking = client.get_connection().unwrap();
    let mut replicas = || {
        let known: Vec<redis::Value> = redis::cmd("SENTINEL").arg("REPLICAS").arg("main").query(&mut asking).unwrap();
        known.len()
    };
    assert!(until(Duration::from_secs(15), || replicas() == 1).is_some());
    let options = BridgeOptions::new(tool(), &first);
    let place = format!("redis://127.0.0.1:1,redis://127.0.0.1:{}", sentinel.port());
    let arguments: Vec<String> = place.split(',').flat_map(|url| ["--redis".to_owned(), url.to_owned()]).collect();
    let options = BridgeOptions { arguments, ..options }.with(&["--sentinel", "main"]);
    let bridge = Bridge::start(&scratch, options).unwrap();
    assert_eq!(granted(&ask(bridge.port(), "a")), 1);
    first.kill();
    let failed_over = || second.say::<String>(&["INFO", "replication"]).is_ok_and(|told| told.contains("role:master"));
    assert!(until(Duration::from_secs(20), failed_over).is_some());
    let back = until(Duration::from_secs(2), || ask(bridge.port(), "a").is_ok());
    println!("sentinels: served again {back:?} after the replica became master");
    assert!(back.is_some(), "{}", bridge.log());
}
