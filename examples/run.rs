//! `make run`: two real Envoys share one limit through a real Redis, on loopback, while you look.
//!
//! Starts Redis, `weir bridge`, a small service and two Envoys with the module, sends a burst as two tenants of two tiers, prints
//! who got what, and stays up until Ctrl-C. Meanwhile edits of the policy take effect. With `ONCE=1` it ends by itself.
//! With `EXAMPLE=jwt` it runs what the page `examples/jwt.md` speaks of, and sends nothing.
#![allow(clippy::disallowed_methods, reason = "the bans are for the core; this is outside")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use weir::policy::{Policy, Tree};
use weir_stack::{
    Bridge, BridgeOptions, Envoy, EnvoyOptions, Listeners, NOBODY, Outcome, Peer, PeerOptions, PushError, Redis,
    RedisOptions, Request, Response, Scratch, burst,
};

/// Who sends how many requests: one of each tier.
const TENANTS: [(&str, &str, usize); 2] = [("acme", "gold", 30), ("bob", "free", 12)];

const CONNECTIONS: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let once = std::env::var_os("ONCE").is_some();
    let stop = stop_signal()?;
    let example = std::env::var("EXAMPLE").ok();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example.as_deref().unwrap_or_default());
    let policy_file = folder.join("policy.yaml");
    let listener = match example {
        Some(_) => std::fs::read_to_string(folder.join("envoy.yaml")).ok(),
        None => None,
    };
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from);
    let module = target.join("wasm32-wasip1/release/weir.wasm");

    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/debug/weir");

    let policy = check(&policy_file).map_err(|problems| problems.join("\n"))?;
    let started = Instant::now();
    step("starting Redis, weir bridge, a service and two Envoys on free ports of 127.0.0.1");
    let scratch = Scratch::new()?;
    let redis = Redis::start(&scratch, RedisOptions::default())?;
    let secrets = secrets();
    let mut options = BridgeOptions::new(&tool, &redis);
    // The bridge wants what the policy's auth_env sends.
    if let Some((_, secret)) = secrets.iter().find(|(name, _)| *name == "WEIR_LIMITER_AUTH") {
        options = options.with_env("WEIR_BRIDGE_SECRET", secret);
    }
    let bridge = Bridge::start(&scratch, options)?;
    let peer = Peer::start(&scratch, PeerOptions::default())?;
    let env: Vec<(&str, &str)> = secrets.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let start = || {
        let options = EnvoyOptions::new(&module, &policy, peer.upstream_port(), NOBODY);
        let options = EnvoyOptions { bridge_port: bridge.port(), ..options };
        let discovering = |file| Listeners::Discovering { file, policy: &policy };
        let listeners = listener.as_deref().map_or(options.listeners, discovering);
        Envoy::start(&scratch, EnvoyOptions { env: &env, listeners, ..options })
    };
    let mut envoys = [start()?, start()?];
    step(&format!("ready after {:.1} s", started.elapsed().as_secs_f64()));

    if example.is_none() {
        send_burst(&envoys, &redis)?;
    }
    if once {
        return Ok(());
    }
    match example {
        Some(example) => say_what_to_try_of(&example, &envoys, &policy_file),
        None => say_what_to_try(&envoys, &policy_file),
    }
    follow(&policy_file, &mut envoys, &stop);
    step("stopping");
    Ok(())
}

/// Receives when the user (Ctrl-C) or the system wants the demo to end.
fn stop_signal() -> Result<Receiver<()>, ctrlc::Error> {
    let (sender, receiver) = channel();
    ctrlc::set_handler(move || {
        // The receiver is gone where the demo is ending already.
        let _ = sender.send(());
    })?;
    Ok(receiver)
}

/// The variables that `envoy/filter.yaml` hands to the module, as far as they are set.
fn secrets() -> Vec<(&'static str, String)> {
    let value = |name| Some((name, std::env::var(name).ok()?));
    ["WEIR_HASH_SECRET", "WEIR_LIMITER_AUTH"].into_iter().filter_map(value).collect()
}

fn step(text: &str) {
    println!("==> {text}");
}

/// Reads and checks a policy; gives it as JSON, or its problems.
fn check(file: &Path) -> Result<String, Vec<String>> {
    let text = std::fs::read_to_string(file).map_err(|error| vec![format!("{}: {error}", file.display())])?;
    let tree: Tree = serde_saphyr::from_str(&text).map_err(|error| vec![format!("{}: {error}", file.display())])?;
    match Policy::from_tree(&tree, &|name| std::env::var(name).ok()) {
        Ok(_) => serde_json::to_string(&tree).map_err(|error| vec![error.to_string()]),
        Err(problems) => Err(problems.iter().map(|problem| problem.for_people().to_string()).collect()),
    }
}

fn send_burst(envoys: &[Envoy; 2], redis: &Redis) -> Result<(), Box<dyn Error>> {
    let requests: Vec<Request> = (0..)
        .map(|turn| TENANTS.iter().filter(move |(_, _, count)| turn < *count))
        .take(TENANTS.iter().map(|(_, _, count)| *count).max().unwrap_or_default())
        .flat_map(|tenants| tenants.map(|(tenant, ..)| Request::get("/").header("x-user-id", *tenant)))
        .collect();
    step(&format!("sending {} requests over {CONNECTIONS} connections to both Envoys", requests.len()));
    let before = redis.script_runs()?;
    let outcomes = burst(&envoys.each_ref().map(Envoy::port), CONNECTIONS, &requests);
    let calls = redis.script_runs()? - before;

    println!("\n    tenant       tier   sent   200   429   other");
    for (tenant, tier, sent) in TENANTS {
        let counts = statuses(&requests, &outcomes, tenant);
        let of = |status: u16| counts.get(&status).copied().unwrap_or_default();
        let other = sent - of(200) - of(429);
        println!("    user.{tenant:<7} {tier:<6} {sent:>4}  {:>4}  {:>4}  {other:>6}", of(200), of(429));
    }
    println!("\n    Redis calls: {calls} for {} requests; those that wait for one bucket share a call", requests.len());
    let answers = || outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
    for status in [200, 429] {
        if let Some(answer) = answers().find(|answer| answer.status == status) {
            show(answer);
        }
    }
    Ok(())
}

/// How many answers of each status a tenant got; 0 stands for none at all.
fn statuses(requests: &[Request], outcomes: &[Outcome], tenant: &str) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for (request, outcome) in requests.iter().zip(outcomes) {
        if request.headers.iter().any(|(_, value)| value == tenant.as_bytes()) {
            let status = outcome.result.as_ref().map_or(0, |answer| answer.status);
            *counts.entry(status).or_default() += 1;
        }
    }
    counts
}

fn show(answer: &Response) {
    println!("\n    HTTP {}", answer.status);
    let told = |name: &str| name.starts_with("x-ratelimit") || name == "retry-after" || name == "content-type";
    for (name, value) in answer.headers.iter().filter(|(name, _)| told(name)) {
        println!("    {name}: {value}");
    }
    println!("    {}", answer.text().trim_end());
}

fn say_what_to_try(envoys: &[Envoy; 2], policy_file: &Path) {
    let [first, second] = envoys.each_ref().map(Envoy::port);
    println!("\n==> the Envoys stay up until Ctrl-C; try");
    println!("    curl -i -H 'x-user-id: carol' http://127.0.0.1:{first}/");
    println!("    curl -i -H 'x-user-id: carol' http://127.0.0.1:{second}/");
    println!("    curl -i -H 'x-user-id: acme' -X POST http://127.0.0.1:{first}/v1/reports/7/export");
    println!("    curl -s http://127.0.0.1:{}/stats?filter=wasmcustom", envoys[0].admin_port());
    println!("==> or edit the policy, which takes effect when it is saved:\n    {}", policy_file.display());
}

fn say_what_to_try_of(example: &str, envoys: &[Envoy; 2], policy_file: &Path) {
    println!("\n==> the Envoys stay up until Ctrl-C; try what examples/{example}.md says, in another shell, after");
    println!("    PORT={}", envoys[0].port());
    println!("==> or edit the policy, which takes effect when it is saved:\n    {}", policy_file.display());
}

/// Puts each new version of the policy in force, until the demo is to end.
fn follow(policy_file: &PathBuf, envoys: &mut [Envoy; 2], stop: &Receiver<()>) {
    let read = || std::fs::read_to_string(policy_file).ok();
    let mut known = read();
    while stop.recv_timeout(Duration::from_millis(300)) == Err(RecvTimeoutError::Timeout) {
        let text = read();
        // An editor may replace the file: for a moment there is none.
        if text.is_none() || text == known {
            continue;
        }
        known = text;
        match check(policy_file) {
            Ok(policy) => push(&policy, envoys),
            Err(problems) => {
                step("the policy is not valid; the one before stays in force");
                problems.iter().for_each(|problem| println!("    {problem}"));
            }
        }
    }
}

fn push(policy: &str, envoys: &mut [Envoy; 2]) {
    for (number, envoy) in envoys.iter_mut().enumerate() {
        let number = number + 1;
        match envoy.push_policy(policy) {
            Ok(()) => step(&format!("Envoy {number} has the new policy")),
            Err(PushError::Refused(log)) => step(&format!("Envoy {number} has refused the policy:\n{log}")),
            Err(PushError::Failed(error)) => step(&format!("Envoy {number}: {error}")),
        }
    }
}
