//! The pages in `examples/`: each with the policy and the listener that users get, and the requests of the page.
//!
//! What a token takes to come back is minutes in all of them, so no count here depends on how fast a test runs.

mod grpc;
mod jwt;
mod quotas;

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use weir_stack::{Client, Listeners, Request, Response};

use crate::rig::{Options, Rig};

/// The secret that the pages hash with.
const ENV: &[(&str, &str)] = &[("WEIR_HASH_SECRET", "example")];

fn read(file: &str) -> String {
    let path = format!("{}/examples/{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The policy of an example, as JSON.
fn policy(name: &str) -> String {
    let policy: Value = serde_saphyr::from_str(&read(&format!("{name}/policy.yaml"))).expect("YAML");
    policy.to_string()
}

/// The listener of an example.
fn listener(name: &str) -> String {
    read(&format!("{name}/envoy.yaml"))
}

/// What runs for a page.
struct Page {
    rig: Rig,
    started: Instant,
}

/// Envoys with `envoy/listener.yaml`.
fn start(name: &str, envoys: usize) -> Page {
    let rig = Rig::start(&policy(name), Options { envoys, env: ENV, bridge: true, ..Options::default() });
    Page { rig, started: Instant::now() }
}

/// An Envoy with a listener of the examples, which discovers the filter with the policy of that example.
fn start_with(listener: &str, name: &str) -> Page {
    let listeners = Listeners::Discovering { file: listener, policy: &policy(name) };
    let rig = Rig::listening(listeners, Options { envoys: 1, env: ENV, bridge: true, ..Options::default() });
    Page { rig, started: Instant::now() }
}

impl Page {
    /// A client with the address 127.0.0.x.
    fn from(&self, address: u8) -> Caller<'_> {
        Caller { page: self, address: Ipv4Addr::new(127, 0, 0, address) }
    }

    /// The keys in Redis.
    fn keys(&self) -> Vec<String> {
        self.rig.keys()
    }

    /// Asserts a wait of so many seconds, of which some have passed, and to which jitter adds a tenth at most.
    fn assert_wait(&self, seconds: u64, told: u64) {
        let passed = self.started.elapsed().as_secs() + 1;
        assert!(
            (seconds.saturating_sub(passed)..=seconds + seconds / 10 + 1).contains(&told),
            "{told} s, of {seconds} s"
        );
    }
}

struct Caller<'p> {
    page: &'p Page,
    address: Ipv4Addr,
}

impl Caller<'_> {
    fn send(&self, request: &Request) -> Response {
        let mut client = Client::new(self.page.rig.envoys[0].port()).from_address(self.address);
        client.send(request).unwrap()
    }

    /// Sends a request so many times, and all pass.
    fn passes(&self, request: &Request, times: usize) {
        for time in 1..=times {
            let answer = self.send(request);
            assert_eq!((answer.status, answer.text().as_str()), (200, "ok"), "{time}: {answer:?}");
        }
    }

    /// Sends a request that this rule limits: a token of it comes back after so many seconds.
    fn is_limited(&self, request: &Request, rule: &str, seconds: u64) {
        let answer = self.send(request);
        let retry_after: u64 = answer.header("retry-after").expect("a wait").parse().expect("seconds");
        let body = format!(r#"{{"error":"rate_limited","rule":"{rule}","retry_after":{retry_after}}}"#);
        assert_eq!((answer.status, answer.text()), (429, body));
        self.page.assert_wait(seconds, retry_after);
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }

    /// Sends a request that is refused once and for all.
    fn is_refused(&self, request: &Request, status: u16, body: &str) {
        let answer = self.send(request);
        assert_eq!((answer.status, answer.text().as_str(), answer.header("retry-after")), (status, body, None));
    }
}

/// The limit that an answer tells, and what is left of it.
fn told(answer: &Response) -> (u16, Option<&str>, Option<&str>) {
    (answer.status, answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining"))
}

/// What the shell prints for a block of a page and a line more.
fn shell(page: &str, part: &str, line: &str) -> String {
    let page = read(page);
    let mut blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.contains(part)).unwrap_or_else(|| panic!("no block with {part}"));
    let shell = Command::new("sh").args(["-c", &format!("{block}\n{line}")]).output().expect("a shell");
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
    String::from_utf8(shell.stdout).expect("text").trim().to_owned()
}

fn with_key(key: &str) -> Request {
    Request::get("/v1/things").header("x-api-key", key)
}

#[test]
fn api_keys_have_plans_and_invented_ones_do_not_escape() {
    let page = start("api-keys", 1);
    let hash = shell("api-keys.md", "openssl", "");
    assert!(read("api-keys/policy.yaml").contains(&format!(" {hash}: gold")), "{hash}");
    // Two plans.
    page.from(2).passes(&with_key("gold-key-1"), 100);
    page.from(2).is_limited(&with_key("gold-key-1"), "per-key", 864);
    page.from(3).passes(&with_key("free-key-1"), 10);
    page.from(3).is_limited(&with_key("free-key-1"), "per-key", 8640);
    // A key is a key, wherever it comes from.
    page.from(4).is_limited(&with_key("free-key-1"), "per-key", 8640);
    let answer = page.from(3).send(&with_key("free-key-2"));
    assert_eq!(told(&answer), (200, Some("10"), Some("9")), "a new key, and the address has more left");
    // Keys that are made up, a fresh bucket each: the address has a limit of its own.
    for number in 0..60 {
        page.from(5).passes(&with_key(&format!("invented-{number}")), 2);
    }
    page.from(5).is_limited(&with_key("invented-60"), "per-ip", 720);
    page.from(5).is_limited(&with_key("gold-key-2"), "per-ip", 720);
    // No key, and two.
    page.from(6).is_refused(&Request::get("/v1/things"), 403, r#"{"error":"forbidden","rule":"per-key"}"#);
    let two = with_key("free-key-3").header("x-api-key", "gold-key-1");
    page.from(6).is_refused(&two, 400, r#"{"error":"doubled","rule":"per-key"}"#);
    // No key stands in Redis.
    let keys = page.keys();
    assert!(keys.contains(&format!("rl:{{{hash}}}:per-key:default:86400000:t3")), "{keys:?}");
    assert!(!keys.iter().any(|key| key.contains("gold-key") || key.contains("invented")), "{keys:?}");
    page.rig.assert_no_errors_logged();
}

#[test]
fn api_keys_that_envoy_checks_name_the_client() {
    let page = start_with(&listener("api-keys-checked"), "api-keys-checked");
    page.from(2).passes(&with_key("gold-key-1"), 100);
    page.from(2).is_limited(&with_key("gold-key-1"), "per-client", 864);
    let spoofing = with_key("free-key-1").header("x-client-id", "acme");
    assert_eq!(told(&page.from(2).send(&spoofing)), (200, Some("10"), Some("9")), "bob's, whatever he says");
    let keys = page.keys();
    assert_eq!(
        keys,
        ["rl:{client.acme}:per-client:default:86400000:t3", "rl:{client.bob}:per-client:default:86400000:t3"]
    );
    for unknown in [with_key("invented"), Request::get("/").header("x-client-id", "acme")] {
        assert_eq!(page.from(2).send(&unknown).status, 401);
    }
    assert_eq!(page.keys(), keys, "what Envoy refuses costs nobody anything");
    page.rig.assert_no_errors_logged();
}

fn as_user(user_and_password: &str) -> Request {
    Request::get("/").header("authorization", format!("Basic {user_and_password}"))
}

/// alice:wonderland
const ALICE: &str = "YWxpY2U6d29uZGVybGFuZA==";
/// alice:guess
const GUESS: &str = "YWxpY2U6Z3Vlc3M=";

#[test]
fn anonymous_users_are_their_address_and_signed_in_ones_their_name() {
    let mut page = start_with(&listener("per-ip"), "per-ip");
    let anonymous = Request::get("/");
    page.from(2).passes(&anonymous, 10);
    page.from(2).is_limited(&anonymous, "per-ip", 360);
    assert_eq!(told(&page.from(3).send(&anonymous)), (200, Some("10"), Some("9")), "another address");
    // What a client says of itself gets it nowhere.
    for spoofed in ["x-forwarded-for", "x-real-ip", "forwarded", "x-user-id", "x-envoy-external-address"] {
        page.from(2).is_limited(&Request::get("/").header(spoofed, "198.51.100.1"), "per-ip", 360);
    }
    // Who signs in leaves the queue of the address, and is one user everywhere.
    page.from(2).passes(&as_user(ALICE), 20);
    page.from(3).passes(&as_user(ALICE).header("x-user-id", "bob"), 10);
    page.from(4).is_limited(&as_user(ALICE), "per-user", 120);
    assert_eq!(page.from(4).send(&as_user(GUESS)).status, 401, "Envoy refuses it before weir");
    let wanted = [
        "rl:{ip.127%2E0%2E0%2E2}:per-ip:default:3600000:t3",
        "rl:{ip.127%2E0%2E0%2E3}:per-ip:default:3600000:t3",
        "rl:{user.alice}:per-user:signed-in:3600000:t3",
    ];
    assert_eq!(page.keys(), wanted);
    // What the page warns of: a header that a route takes off has been read by then ...
    let (kept, at_router) = ("{remove: x-none}", "request_headers_to_remove: [x-user-id]\n                    routes:");
    let late = listener("per-ip").replace("{remove: x-user-id}", kept).replace("routes:", at_router);
    page.rig.envoys[0].push_listeners(&late).unwrap();
    let spoofed = Request::get("/").header("x-user-id", "bob").header("x-forwarded-for", "198.51.100.1");
    assert_eq!(told(&page.from(2).send(&spoofed)), (200, Some("30"), Some("29")), "as bob");
    // ... and a client's own word for its address is believed.
    let open = listener("per-ip").replace("use_remote_address: true", "use_remote_address: false");
    page.rig.envoys[0].push_listeners(&open).unwrap();
    assert_eq!(told(&page.from(2).send(&spoofed)), (200, Some("10"), Some("9")), "as 198.51.100.1");
    page.rig.assert_no_errors_logged();
}

#[test]
fn behind_a_load_balancer_the_address_is_the_one_it_appends() {
    let behind = listener("per-ip").replace("xff_num_trusted_hops: 0", "xff_num_trusted_hops: 1");
    let page = start_with(&behind, "per-ip");
    let appended = |chain: &str| Request::get("/").header("x-forwarded-for", chain.to_owned());
    // The balancer is 127.0.0.9 for all. A network has one bucket, however many addresses it uses.
    for host in 1..=10 {
        page.from(9).passes(&appended(&format!("198.51.100.{host}, 2001:db8:1:2:{host}::{host}")), 1);
    }
    page.from(9).is_limited(&appended("2001:db8:1:2:ffff:ffff:ffff:ffff"), "per-ip", 360);
    assert_eq!(told(&page.from(9).send(&appended("2001:db8:1:3::1"))), (200, Some("10"), Some("9")));
    assert_eq!(told(&page.from(9).send(&appended("2001:db8:1:2::1, 203.0.113.7"))), (200, Some("10"), Some("9")));
    let wanted = [
        "rl:{ip.2001%3Adb8%3A1%3A2%3A%3A}:per-ip:default:3600000:t3",
        "rl:{ip.2001%3Adb8%3A1%3A3%3A%3A}:per-ip:default:3600000:t3",
        "rl:{ip.203%2E0%2E113%2E7}:per-ip:default:3600000:t3",
    ];
    assert_eq!(page.keys(), wanted);
    page.rig.assert_no_errors_logged();
}

fn attempt(account: &str) -> Request {
    let output = Command::new("sh").args(["-c", &format!("printf %s '{account}:guess' | openssl base64 -A")]).output();
    let credentials = String::from_utf8(output.expect("openssl").stdout).unwrap();
    Request::new("POST", "/login").header("authorization", format!("Basic {credentials}"))
}

#[test]
fn attempts_to_sign_in_are_few_by_account_by_address_and_in_all() {
    let mut page = start("login", 2);
    let (ann, bob, carl) = (attempt("ann"), attempt("bob"), attempt("carl"));
    let form = Request::new("POST", "/login").body("user=ann&password=guess");
    // One account from one address.
    page.from(2).passes(&ann, 5);
    page.from(2).is_limited(&ann, "login-account-and-ip", 720);
    // One address and many accounts; what is refused takes nothing.
    page.from(2).passes(&bob, 4);
    page.from(2).passes(&form, 1);
    page.from(2).is_limited(&carl, "login-ip", 360);
    page.from(2).is_limited(&form, "login-ip", 360);
    // One account from many addresses: 20 a day.
    for address in 3..=5 {
        page.from(address).passes(&ann, 5);
    }
    page.from(6).is_limited(&ann, "login-account", 4320);
    // Other spellings of the path are the same class, other methods and paths are not.
    let spelled = |path: &str| Request { path: path.into(), ..form.clone() };
    for path in ["/login/", "//login", "/%6cogin", "/a/../login", "/login?next=/", "/oauth/token"] {
        page.from(7).passes(&spelled(path), 1);
    }
    page.from(7).passes(&form, 4);
    page.from(7).is_limited(&spelled("/./login"), "login-ip", 360);
    page.from(7).passes(&Request::get("/login"), 20);
    page.from(7).passes(&Request::new("POST", "/things"), 20);
    // Each spelling of a name is an account, though the one of another is used up.
    page.from(6).passes(&attempt("Ann"), 1);
    // Many accounts from many addresses: 36 were let in so far, and 50 are in all.
    for number in 0..14 {
        page.from(20 + number).passes(&attempt(&format!("account-{number}")), 1);
    }
    page.from(40).is_limited(&form, "login-all", 72);
    let keys = page.keys();
    assert!(!keys.iter().any(|key| key.contains("ann") || key.contains("bob")), "accounts are hashed: {keys:?}");
    page.rig.assert_no_errors_logged();
    // The limiter is gone: nobody gets in by a proxy that knows nothing yet, and everything else goes on.
    page.rig.bridge.as_mut().expect("a bridge").kill();
    let mut other = Client::new(page.rig.envoys[1].port());
    let answer = other.send(&attempt("dora")).unwrap();
    let body = r#"{"error":"limiter_unavailable","rule":"login-account-and-ip","retry_after":1}"#;
    assert_eq!((answer.status, answer.text().as_str(), answer.header("retry-after")), (503, body, Some("1")));
    assert_eq!(other.send(&Request::get("/login")).unwrap().status, 200);
}

#[test]
fn exports_cost_more_and_are_not_charged_twice() {
    let page = start("exports", 2);
    let of = |token: &str, request: Request| request.header("authorization", format!("Bearer {token}"));
    let export = |token: &str, key: &str| {
        of(token, Request::new("POST", "/v1/reports/7/export").header("idempotency-key", key.to_owned()))
    };
    let preview = of("t1", Request::get("/v1/reports/7/preview"));
    let client = page.from(2);
    assert_eq!(told(&client.send(&export("t1", "a"))), (200, Some("20"), Some("10")));
    // Sent again after its answer was lost.
    client.passes(&export("t1", "a"), 3);
    assert_eq!(told(&client.send(&preview)), (200, Some("20"), Some("9")), "what was sent again took nothing");
    // Ten are needed and nine are left: one comes back in three minutes.
    client.is_limited(&export("t1", "b"), "per-token", 180);
    client.passes(&preview, 9);
    client.is_limited(&preview, "per-token", 180);
    assert_eq!(told(&client.send(&of("t1", Request::get("/v1/reports/7")))), (200, Some("300"), Some("299")));
    // An hour later: the bucket of the hour is full again, and this proxy has never heard of the token.
    let hour: Vec<String> = page.keys().into_iter().filter(|key| key.contains(":per-token:export:3600000:")).collect();
    redis::cmd("DEL").arg(&hour).exec(&mut page.rig.redis.operator().unwrap()).unwrap();
    let mut other = Client::new(page.rig.envoys[1].port());
    assert_eq!(told(&other.send(&export("t1", "b")).unwrap()), (200, Some("30"), Some("0")), "the day's is used up");
    let refused = other.send(&export("t1", "c")).unwrap();
    assert_eq!(told(&refused), (429, Some("30"), Some("0")));
    let retry_after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    page.assert_wait(28_800, retry_after);
    // Tokens that are made up: an address has ten exports an hour.
    for number in 0..10 {
        page.from(3).passes(&export(&format!("invented-{number}"), ""), 1);
    }
    page.from(3).is_limited(&export("invented-10", ""), "per-ip", 360);
    page.rig.assert_no_errors_logged();
}
