//! What must not be said is not said: no credential, tenant or text of a policy in a log, no credential in Redis.

use weir_stack::{Request, Response};

use crate::rig::{Options, Rig, count};

/// In every string that a policy, a client or the environment holds. As long as any of ours, and nothing else's.
const MARKER: &str = "canary_3f0c9d7ab1";

/// A policy with the marker in each of its texts that may be any, and in each name but that of the limiter, which the log
/// says where it fails.
fn marked_policy(on_error: &str) -> String {
    let policy = r#"{
        "version": 1, "namespace": "rl", "hash_secret_env": "WEIR_HASH_SECRET",
        "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "authority": "MARKER.example",
            "timeout": "2s", "auth_env": "WEIR_LIMITER_AUTH"}},
        "classes": [{"class": "MARKER", "match": {"methods": ["POST"], "path": "/MARKER/{MARKER}"}, "cost": 2}],
        "rules": [{"name": "MARKER", "limiter": "main", "mode": "exact",
            "key": [{"header": {"name": "x-MARKER", "as": "key", "secret": true, "trusted": true}},
                    {"authorization": {"scheme": "bearer", "as": "token", "trusted": true}},
                    {"header": {"name": "x-plain", "as": "MARKER", "trusted": true}}],
            "missing": {"as": "MARKER"},
            "tier": {"tenants": {"MARKER.MARKER": "MARKER"}, "default": "other"},
            "limits": {"MARKER": {"MARKER": "7/d", "default": "9/d"}, "other": "5/d"}, "on_error": "ON_ERROR"}],
        "response": {"content_type": "text/MARKER", "body": "MARKER {rule}"}}"#;
    policy.replace("MARKER", MARKER).replace("ON_ERROR", on_error)
}

/// A password that Webdis wants, with the marker in it, as the environment gives it to the module.
fn environment() -> (String, String) {
    let password = format!("weir:{MARKER}");
    let base64: String = match std::process::Command::new("base64")
        .arg("-w0")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
    {
        Ok(mut child) => {
            use std::io::Write;
            child.stdin.take().expect("piped").write_all(password.as_bytes()).unwrap();
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        }
        Err(error) => panic!("base64 of coreutils: {error}"),
    };
    (password, format!("Basic {base64}"))
}

fn assert_unsaid(rig: &Rig, marker: &str) {
    let logs = [("Webdis", rig.webdis.log()), ("Redis", rig.redis.log()), ("the peer", rig.peer.log())];
    let envoys = rig.envoys.iter().map(|envoy| ("Envoy", envoy.log()));
    for (whose, log) in logs.into_iter().chain(envoys) {
        let told: Vec<&str> = log.lines().filter(|line| line.contains(marker)).collect();
        assert_eq!(told, Vec::<&str>::new(), "in the log of {whose}");
    }
}

#[test]
fn a_marker_in_every_string_is_in_no_log_and_no_credential_is_in_redis() {
    let (password, authorization) = environment();
    let env = [("WEIR_HASH_SECRET", MARKER), ("WEIR_LIMITER_AUTH", authorization.as_str())];
    let options = Options { env: &env, basic_auth: Some(&password), ..Options::default() };
    let mut rig = Rig::start(&marked_policy("deny"), options);
    let secret = format!("secret.{MARKER}");
    let requests = |name: &str, value: &str| vec![Request::get(format!("/{MARKER}?{MARKER}")).header(name, value); 8];
    let by_header = rig.send(&requests(&format!("x-{MARKER}"), &secret));
    let by_token = rig.send(&requests("authorization", &format!("bearer {secret}")));
    let by_plain = rig.send(&requests("x-plain", MARKER));
    let by_nothing = rig.send(&requests("x-other", MARKER));
    let admitted = |answers: &[Response]| (count(answers, 200), count(answers, 429));
    assert_eq!(admitted(&by_header), (5, 3));
    assert_eq!(admitted(&by_token), (5, 3));
    assert_eq!(admitted(&by_plain), (8, 0));
    assert_eq!(admitted(&by_nothing), (5, 3));

    let mut operator = rig.redis.operator().unwrap();
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut operator).unwrap();
    keys.sort_unstable();
    // printf %s 'secret.canary_3f0c9d7ab1' | openssl dgst -sha256 -hmac canary_3f0c9d7ab1
    const HASH: &str = "753e506210ca737f826aa8582ec94adc";
    let bucket = |tenant: &str| format!("rl:{{{tenant}}}:{MARKER}:default:86400000:t3");
    let mut expected = [
        bucket(&format!("key.~{HASH}")),
        bucket(&format!("token.~{HASH}")),
        bucket(&format!("{MARKER}.{MARKER}")),
        bucket(&format!("none.{MARKER}")),
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    rig.assert_no_errors_logged();
    assert_unsaid(&rig, MARKER);

    // A limiter that fails is told of in the log, too.
    rig.webdis.kill();
    assert_eq!(count(&rig.send(&requests("x-plain", MARKER)), 503), 8);
    rig.assert_no_errors_logged();
    // So is a policy that is refused.
    rig.envoys[0].push_policy(&marked_policy(MARKER)).unwrap_err();
    assert_unsaid(&rig, MARKER);
}
