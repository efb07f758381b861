//! Two limiters, each a Redis behind a Webdis of its own: one fails and the other goes on, and buckets are where the policy
//! says.

use weir_stack::{Redis, RedisOptions, Request, Response, Scratch, Webdis, WebdisOptions};

use crate::rig::{Options, Rig, count, of};

/// The limiter `own`, beside that of the rig.
struct Own {
    webdis: Webdis,
    redis: Redis,
    _scratch: Scratch,
}

impl Own {
    fn start() -> Own {
        let scratch = Scratch::new().unwrap();
        let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
        let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default()).unwrap();
        Own { webdis, redis, _scratch: scratch }
    }

    /// Its cluster, as Envoy's bootstrap has it.
    fn cluster(&self) -> String {
        let port = self.webdis.port();
        let address = format!(r#"{{"socket_address": {{"address": "127.0.0.1", "port_value": {port}}}}}"#);
        let endpoints = format!(r#"[{{"lb_endpoints": [{{"endpoint": {{"address": {address}}}}}]}}]"#);
        format!(
            r#"{{"name": "webdis-own", "type": "STATIC", "connect_timeout": "0.25s", "load_assignment": {{"cluster_name": "webdis-own", "endpoints": {endpoints}}}}}"#
        )
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.redis.operator().unwrap()).unwrap();
        keys.sort();
        keys
    }
}

/// Rules by user and by organisation, where a request names one, 200 a day each. `limiter` is where those by user are;
/// those by organisation are at `own`.
fn policy(limiter: &str) -> String {
    let rule = |name: &str, kind: &str, limiter: &str| {
        format!(
            r#"{{"name": "{name}", "key": [{{"header": {{"name": "x-{kind}-id", "as": "{kind}", "trusted": true}}}}],
                "missing": "skip", "mode": "exact", "limits": "200/d", "on_error": "deny", "limiter": {limiter}}}"#
        )
    };
    format!(
        r#"{{"version": 1,
            "limiters": {{
                "main": {{"transport": "webdis", "cluster": "webdis", "timeout": "2s"}},
                "own": {{"transport": "webdis", "cluster": "webdis-own", "timeout": "2s"}}}},
            "rules": [{}, {}]}}"#,
        rule("per-user", "user", limiter),
        rule("per-org", "org", r#""own""#)
    )
}

fn of_org(org: &str) -> Request {
    Request::get("/v1/things").header("x-org-id", org)
}

fn start(policy: &str, own: &Own) -> Rig {
    Rig::start(policy, Options { more_clusters: &[own.cluster()], ..Options::default() })
}

fn assert_unavailable(answer: &Response, rule: &str) {
    let body = format!(r#"{{"error":"limiter_unavailable","rule":"{rule}","retry_after":1}}"#);
    assert_eq!((answer.status, answer.text()), (503, body), "{answer:?}");
}

/// Requests of both kinds in turn.
fn in_turn(count: usize) -> Vec<Request> {
    (0..count).map(|nth| if nth % 2 == 0 { of("acme") } else { of_org("initech") }).collect()
}

fn of_kind(answers: &[Response], kind: usize) -> Vec<Response> {
    answers.iter().skip(kind).step_by(2).cloned().collect()
}

#[test]
fn while_one_limiter_is_dead_the_rules_at_the_other_keep_their_exact_limit() {
    let mut own = Own::start();
    let mut rig = start(&policy(r#""main""#), &own);
    let before = rig.send(&in_turn(100));
    assert_eq!(count(&before, 200), 100);
    // The limiter of users dies: 50 tokens are spent of each bucket.
    rig.webdis.kill();
    let answers = rig.send(&in_turn(400));
    of_kind(&answers, 0).iter().for_each(|answer| assert_unavailable(answer, "per-user"));
    let of_orgs = of_kind(&answers, 1);
    assert_eq!((count(&of_orgs, 200), count(&of_orgs, 429)), (150, 50));
    assert_eq!((rig.counted("breaker_open.main"), rig.counted("breaker_open.own")), (2, 0));
    rig.webdis.restart().unwrap();
    rig.webdis.wait_connected().unwrap();
    // Once its breakers are closed again, its rule goes on where it was; the other way round then.
    let served = |rig: &Rig, request: &dyn Fn(&str) -> Request| {
        rig.envoys[0]
            .wait_for(std::time::Duration::from_secs(10), |_| count(&rig.send(&vec![request("probe"); 16]), 200) == 16)
    };
    assert!(served(&rig, &of), "no recovery");
    let answers = rig.send(&vec![of("acme"); 200]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (150, 50));
    own.webdis.kill();
    let answers =
        rig.send(&(0..200).map(|nth| if nth % 2 == 0 { of("bob") } else { of_org("umbrella") }).collect::<Vec<_>>());
    assert_eq!(count(&of_kind(&answers, 0), 200), 100);
    of_kind(&answers, 1).iter().for_each(|answer| assert_unavailable(answer, "per-org"));
    rig.assert_no_errors_logged();
}

#[test]
fn a_request_that_needs_both_limiters_takes_of_both_or_of_none() {
    let mut own = Own::start();
    let rig = start(&policy(r#""main""#), &own);
    let both = of("acme").header("x-org-id", "initech");
    let answers = rig.send(&vec![both.clone(); 300]);
    // A token that is held where the other refuses waits for the next in its proxy, so a few may be left; never more.
    let admitted = count(&answers, 200);
    assert!((180..=200).contains(&admitted), "{admitted}");
    assert_eq!(count(&answers, 429), 300 - admitted);
    own.webdis.kill();
    rig.send(&vec![of("bob").header("x-org-id", "umbrella"); 64])
        .iter()
        .for_each(|answer| assert_unavailable(answer, "per-org"));
    // What was held of bob's is lent out until it goes back: nobody has it twice.
    let admitted = count(&rig.send(&vec![of("bob"); 300]), 200);
    assert!((136..=200).contains(&admitted), "{admitted}");
    rig.assert_no_errors_logged();
}

#[test]
fn a_whale_has_a_redis_of_its_own() {
    let own = Own::start();
    let rig = start(&policy(r#"{"default": "main", "tenants": {"user.whale": "own"}}"#), &own);
    let requests: Vec<Request> =
        (0..600).map(|nth| if nth % 2 == 0 { of("whale") } else { of(&format!("u{}", nth % 30)) }).collect();
    let answers = rig.send(&requests);
    assert_eq!((count(&of_kind(&answers, 0), 200), count(&of_kind(&answers, 0), 429)), (200, 100));
    assert_eq!(count(&of_kind(&answers, 1), 200), 300);
    let key = |user: &str| format!("rl:{{user.{user}}}:per-user:default:86400000:t3");
    assert_eq!(own.keys(), [key("whale")]);
    let mut others: Vec<String> = (1..30).step_by(2).map(|user| key(&format!("u{user}"))).collect();
    others.sort();
    assert_eq!(rig.keys(), others);
    let calls = |limiter: &str| -> u64 {
        ["ok", "no_script"].iter().map(|end| rig.counted(&format!("limiter_calls.{limiter}.{end}"))).sum()
    };
    assert_eq!([calls("main"), calls("own")], [rig.redis.script_runs().unwrap(), own.redis.script_runs().unwrap()]);
    assert_eq!(rig.degraded(), 0);
    rig.assert_no_errors_logged();
}
