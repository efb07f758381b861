//! Redis and Webdis: what the limiter may do, and what becomes of it when one of them fails.

use std::time::{Duration, Instant};

use weir_stack::{Client, Redis, RedisOptions, Request, Response, Scratch, Webdis, WebdisOptions};

struct Limiter {
    webdis: Webdis,
    redis: Redis,
    _scratch: Scratch,
}

fn limiter(redis: RedisOptions, webdis: WebdisOptions) -> Limiter {
    let started = Instant::now();
    let scratch = Scratch::new().unwrap();
    let redis = Redis::start(&scratch, redis).unwrap();
    let redis_took = started.elapsed();
    let webdis = Webdis::start(&scratch, &redis, webdis).unwrap();
    let webdis_took = started.elapsed() - redis_took;
    println!("ready after: redis {redis_took:?}, webdis {webdis_took:?}");
    Limiter { webdis, redis, _scratch: scratch }
}

impl Limiter {
    fn post(&self, command: &str) -> Response {
        Client::new(self.webdis.port()).request("POST", "/", &[], command.as_bytes()).unwrap()
    }
}

/// EVAL of a script on one key, every odd byte percent-encoded.
fn eval(script: &str, key: &str) -> String {
    let encode = |text: &str| -> String {
        let byte = |b: u8| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => char::from(b).to_string(),
            other => format!("%{other:02X}"),
        };
        text.bytes().map(byte).collect()
    };
    format!("EVAL/{}/1/{}", encode(script), encode(key))
}

#[test]
fn the_limiter_runs_scripts_on_its_own_keys_and_nothing_else() {
    let limiter = limiter(RedisOptions::default(), WebdisOptions::default());
    let cases = [
        // command, status, what the body contains
        (eval("return 1", "rl:{a.b}:x"), 200, "{\"EVAL\":1}"),
        (
            eval("redis.call('SET', KEYS[1], 'v', 'PX', 9000) return redis.call('GET', KEYS[1])", "rl:{a.b}:x"),
            200,
            "{\"EVAL\":\"v\"}",
        ),
        (eval("return #redis.call('TIME')", "rl:x"), 200, "{\"EVAL\":2}"),
        (eval("return 1", "other:x"), 200, "[false,\"NOPERM"),
        (eval("return redis.call('GET', 'other:x')", "rl:x"), 200, "[false,\"ERR"),
        (eval("return redis.call('DEL', KEYS[1])", "rl:x"), 200, "[false,\"ERR"),
        (eval("return redis.call('FLUSHALL')", "rl:x"), 200, "[false,\"ERR"),
        ("EVALSHA/0/0".to_owned(), 200, "[false,\"NOSCRIPT"),
        ("FLUSHALL".to_owned(), 403, ""),
        ("GET/rl%3Ax".to_owned(), 403, ""),
        ("CONFIG/GET/dir".to_owned(), 403, ""),
    ];
    for (command, status, part) in &cases {
        let answer = limiter.post(command);
        assert_eq!(answer.status, *status, "{command}: {}", answer.text());
        assert!(answer.text().contains(part), "{command}: {}", answer.text());
    }
    // One of the eight was refused before it ran, another failed; all arrived.
    assert_eq!(limiter.redis.script_runs().unwrap(), 8);
    // Keys are the tenants' own affair.
    assert!(!limiter.webdis.log().contains("a.b"));
}

#[test]
fn redis_itself_refuses_the_limiters_user_everything_else() {
    let scratch = Scratch::new().unwrap();
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let url = format!("redis://:{}@127.0.0.1:{}", redis.password(), redis.port());
    let mut limiter = redis::Client::open(url).unwrap().get_connection().unwrap();
    for command in [
        &["FLUSHALL"][..],
        &["CONFIG", "GET", "dir"],
        &["KEYS", "*"],
        &["DEL", "rl:x"],
        &["GET", "other:x"],
        &["SCRIPT", "FLUSH"],
        &["ACL", "LIST"],
        &["PING"],
    ] {
        let error = redis::cmd(command[0]).arg(&command[1..]).exec(&mut limiter).unwrap_err();
        assert_eq!(error.code(), Some("NOPERM"), "{command:?}: {error}");
    }
    let before = redis.time_ms().unwrap();
    assert!(redis.time_ms().unwrap() >= before && before > 1_700_000_000_000);
}

#[test]
fn a_killed_redis_answers_503_and_comes_back_empty() {
    let mut limiter = limiter(RedisOptions::default(), WebdisOptions::default());
    limiter.post(&eval("return redis.call('SET', KEYS[1], 1)", "rl:x"));
    limiter.redis.kill();
    // Webdis needs a moment to see that its connections are gone.
    let end = Instant::now() + Duration::from_secs(5);
    while limiter.post(&eval("return 1", "rl:x")).status != 503 {
        assert!(Instant::now() < end);
    }
    assert!(limiter.redis.operator().is_err());

    limiter.redis.restart().unwrap();
    limiter.webdis.wait_connected().unwrap();
    assert_eq!(limiter.redis.script_runs().unwrap(), 0);
    let kept = limiter.post(&eval("return redis.call('GET', KEYS[1])", "rl:x"));
    assert_eq!(kept.text(), "{\"EVAL\":null}");
}

#[test]
fn a_redis_that_appends_keeps_its_keys() {
    let options = RedisOptions { namespace: "eu-1", appendonly: true, ..RedisOptions::default() };
    let mut limiter = limiter(options, WebdisOptions::default());
    limiter.post(&eval("return redis.call('SET', KEYS[1], 1)", "eu-1:x"));
    limiter.redis.restart().unwrap();
    limiter.webdis.wait_connected().unwrap();
    let kept = limiter.post(&eval("return redis.call('GET', KEYS[1])", "eu-1:x"));
    assert_eq!(kept.text(), "{\"EVAL\":\"1\"}");
}

#[test]
fn a_stopped_redis_answers_when_it_goes_on() {
    let mut limiter = limiter(RedisOptions::default(), WebdisOptions::default());
    limiter.redis.stop();
    let port = limiter.webdis.port();
    let waiting = std::thread::spawn(move || {
        let command = Request::new("POST", "/").body(eval("return 1", "rl:x"));
        Client::new(port).send(&command)
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished());
    limiter.redis.cont();
    assert_eq!(waiting.join().unwrap().unwrap().text(), "{\"EVAL\":1}");
}

#[test]
fn a_killed_webdis_refuses_connections_until_it_is_restarted() {
    let mut limiter = limiter(RedisOptions::default(), WebdisOptions::default());
    let mut client = Client::new(limiter.webdis.port());
    let command = Request::new("POST", "/").body(eval("return 1", "rl:x"));
    assert_eq!(client.send(&command).unwrap().status, 200);
    limiter.webdis.kill();
    assert!(client.send(&command).is_err());
    limiter.webdis.restart().unwrap();
    limiter.webdis.wait_connected().unwrap();
    assert_eq!(client.send(&command).unwrap().text(), "{\"EVAL\":1}");
}

#[test]
fn basic_authentication_can_be_demanded() {
    let options = WebdisOptions { basic_auth: Some("weir:secret") };
    let limiter = limiter(RedisOptions::default(), options);
    let command = Request::new("POST", "/").body(eval("return 1", "rl:x"));
    let with = |authorization: &str| {
        let command = command.clone().header("authorization", authorization);
        Client::new(limiter.webdis.port()).send(&command).unwrap()
    };
    assert_eq!(limiter.post(&eval("return 1", "rl:x")).status, 403);
    assert_eq!(with("Basic d2VpcjpXUk9ORw==").status, 403);
    assert_eq!(with("Basic d2VpcjpzZWNyZXQ=").status, 200);
}

#[test]
fn nothing_is_left_behind() {
    let limiter = limiter(RedisOptions::default(), WebdisOptions::default());
    let path = limiter._scratch.path().to_owned();
    let (redis, webdis) = (limiter.redis.port(), limiter.webdis.port());
    assert!(path.exists());
    drop(limiter);
    assert!(!path.exists());
    assert!(Client::connect_raw(redis).is_err());
    assert!(Client::connect_raw(webdis).is_err());
}
