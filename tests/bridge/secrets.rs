//! Who may call.

use std::process::Command;

use weir::clock::Ms;
use weir::limiter::Failure;
use weir_stack::{BridgeOptions, Client, RedisOptions};

use crate::{Pair, call_of, post, told, tool};

#[test]
fn with_a_secret_nobody_else_is_heard() {
    let secret = |options: BridgeOptions| options.with_env("WEIR_BRIDGE_SECRET", "open sesame");
    let pair = Pair::with(RedisOptions::default(), secret);
    let call = call_of(Ms(900), &["a"]);
    let status = |authorization: Option<&str>| {
        let request = authorization.iter().fold(post(&call), |request, value| request.header("authorization", *value));
        let answer = Client::new(pair.bridge.port()).send(&request).unwrap();
        if answer.status == 401 {
            assert_eq!(told(&answer)[0].result, Err(Failure::Unauthorized));
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        answer.status
    };
    assert_eq!(status(Some("Bearer open sesame")), 200);
    assert_eq!(status(Some("bearer open sesame")), 200);
    let others = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer open",
        "Bearer open sesame ",
        "Bearer open sesamE",
        "Basic open sesame",
        "open sesame",
    ];
    for other in others {
        // Spaces at the end are no part of a header's value.
        let wanted = if other.trim_end() == "Bearer open sesame" { 200 } else { 401 };
        assert_eq!(status(Some(other)), wanted, "{other:?}");
    }
    assert_eq!(status(None), 401);
    assert_eq!(pair.bridge.metric("weir_bridge_failures_total{reason=\"unauthorized\"}"), Some(8.0));
    // How it is may be asked by anybody.
    assert_eq!(Client::new(pair.bridge.port()).get("/readyz", &[]).unwrap().status, 200);
}

#[test]
fn a_secret_of_a_file_may_be_the_whole_header() {
    let folder = weir_stack::Scratch::new().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "Bearer s3\n").unwrap();
    let pair = Pair::with(RedisOptions::default(), |options| options.with(&["--secret-file", file.to_str().unwrap()]));
    let request = post(&call_of(Ms(900), &["a"]));
    let client = || Client::new(pair.bridge.port());
    assert_eq!(client().send(&request.clone().header("authorization", "Bearer s3")).unwrap().status, 200);
    assert_eq!(client().send(&request).unwrap().status, 401);
}

/// What a bridge says that does not start.
fn refused(arguments: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = Command::new(tool());
    command.arg("bridge").args(arguments).env_clear().envs(env.iter().copied());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_cannot_be_meant_is_refused_at_the_start() {
    let open = refused(&["--listen", "0.0.0.0:0"], &[]);
    assert_eq!(
        open,
        "error: --listen: 0.0.0.0:0 is not a loopback address, and anybody who reaches it could spend every tenant's \
         tokens; set WEIR_BRIDGE_SECRET or --secret-file, or --client-ca with --tls-cert and --tls-key, or say \
         --allow-anyone\n"
    );
    type Row<'t> = (&'t [&'t str], &'t [(&'t str, &'t str)], &'t str);
    let table: [Row; 13] = [
        (&[], &[("WEIR_BRIDGE_SECRET", "")], "WEIR_BRIDGE_SECRET: holds no secret; write one line of printable ASCII"),
        (&["--secret-file", "/nowhere/s"], &[], "/nowhere/s"),
        (&["--namespace", "RL"], &[], "--namespace: \"RL\""),
        (
            &["--redis", "http://a:1"],
            &[],
            "--redis: \"http://a:1\" is no URL of Redis; write one such as redis://127.0.0.1:6379",
        ),
        (&["--redis", "redis://a:0"], &[], "is no URL of Redis"),
        (&["--redis", "redis://a:1/x"], &[], "is no URL of Redis"),
        (
            &["--redis", "redis://me:hunter2@a:1"],
            &[],
            "a URL holds a user or options; write --user and WEIR_REDIS_PASSWORD",
        ),
        (
            &["--redis", "redis://a:1", "--redis", "redis://b:1"],
            &[],
            "stands several times; say --cluster or --sentinel MASTER, too",
        ),
        (
            &["--redis", "redis://a:1", "--redis", "rediss://b:1", "--cluster"],
            &[],
            "all of them are redis:// or all rediss://",
        ),
        (&["--redis", "redis://a:1/3", "--cluster"], &[], "a cluster has one database alone"),
        (&["--user", "me"], &[], "--user: has no password; set WEIR_REDIS_PASSWORD or --password-file"),
        (&["--redis-ca", "ca.pem"], &[], "--redis-ca: is for TLS; write --redis rediss://HOST:PORT"),
        (&["--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"], &[], "--tls-cert: /nowhere/c"),
    ];
    for (arguments, env, wanted) in table {
        let said = refused(arguments, env);
        assert!(said.contains(wanted) && !said.contains("hunter2"), "{arguments:?}: {said}");
    }
}
