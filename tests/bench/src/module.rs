//! The module: its size, how long it takes to take in a policy, and what an Envoy with it weighs.

use std::fmt::Write;
use std::time::{Duration, Instant};

use weir_stack::Envoy;

use crate::load::{self, Load, shuffled};
use crate::results::{Configure, Memory, Module, Tenants};
use crate::stack::{Running, Stack, calls, degraded, round};
use crate::variants::{ALL, Filter, LEASE, Limit, NONE, Variant, listeners, policy, wasm};
use crate::{Result, cpu};

/// Limits in the large policy.
const LIMITS: usize = 1_000;

/// Requests that an Envoy has served when its memory is looked at.
const SERVED: u64 = 20_000;

/// New tenants that h2load sends at once.
const AT_ONCE: u64 = 100_000;

pub fn measure(stack: &Stack, rounds: usize, tenants: u64) -> Result<Module> {
    let configure = configure(stack, rounds)?;
    eprintln!("    policies with {LIMITS} limits are in force");
    let ready_ms = ready(stack, rounds)?;
    let memory = memory(stack)?;
    eprintln!("    memory by workers is known");
    Ok(Module {
        bytes: std::fs::metadata(&stack.built.module)?.len(),
        empty_bytes: std::fs::metadata(&stack.built.empty_module)?.len(),
        limits: LIMITS,
        configure,
        ready_ms,
        memory,
        tenants: after_tenants(stack, tenants)?,
    })
}

fn variant(name: &str) -> Result<&'static Variant> {
    ALL.iter().find(|variant| variant.name == name).ok_or_else(|| format!("no variant {name}").into())
}

/// A listener with a policy of so many limits: the default one, and those of single tenants.
fn limits(count: usize) -> Result<String> {
    let small = policy("lease", r#"["x-ratelimit"]"#, r#""100/m""#);
    let mut overrides = String::new();
    for tenant in 1..count {
        let comma = if tenant == 1 { "" } else { ", " };
        write!(overrides, r#"{comma}"user.tenant-{tenant}": "{}/m""#, 100 + tenant)?;
    }
    let text = small.replace(r#", "on_error""#, &format!(r#", "overrides": {{{overrides}}}, "on_error""#));
    listeners(Some(wasm("@MODULE@", if count == 1 { &small } else { &text })), serde_json::json!([]))
}

/// One Envoy, which gets the small policy and the large one in turns.
fn configure(stack: &Stack, rounds: usize) -> Result<Vec<Configure>> {
    let (small, large) = (limits(1)?, limits(LIMITS)?);
    let mut envoy = stack.listening(&large, variant(LEASE)?.filter, 1)?;
    let mut push = |listeners: &str| -> Result<(f64, f64)> {
        let (started, before) = (Instant::now(), cpu::nanoseconds(envoy.id())?);
        envoy.push_listeners(listeners)?;
        let took = started.elapsed();
        let spent = cpu::nanoseconds(envoy.id())? - before;
        envoy.wait_drained()?;
        Ok((round(took.as_secs_f64() * 1000.0), round(spent as f64 / 1e6)))
    };
    let mut all = Vec::new();
    for _ in 0..rounds {
        let ((small_ms, small_cpu_ms), (large_ms, large_cpu_ms)) = (push(&small)?, push(&large)?);
        all.push(Configure { small_ms, large_ms, small_cpu_ms, large_cpu_ms });
    }
    Ok(all)
}

/// How long Envoy takes from its start until its listeners serve.
fn ready(stack: &Stack, rounds: usize) -> Result<Vec<(String, Vec<f64>)>> {
    let weir = variant(LEASE)?.filter;
    let mut cases = Vec::new();
    for variant in ALL.iter().filter(|variant| [NONE, "empty", LEASE].contains(&variant.name)) {
        let text = variant.filter.listeners(Limit::High, &stack.built.empty_module.display().to_string())?;
        cases.push((variant.name.to_owned(), text, variant.filter, Vec::new()));
    }
    cases.push((format!("{LEASE}, {LIMITS} limits"), limits(LIMITS)?, weir, Vec::new()));
    for round in 0..rounds {
        for at in shuffled(cases.len(), round) {
            let (_, text, filter, took) = &mut cases[at];
            let started = Instant::now();
            let envoy = stack.listening(text, *filter, 1)?;
            took.push(started.elapsed().as_millis() as f64);
            drop(envoy);
        }
    }
    Ok(cases.into_iter().map(|(name, _, _, took)| (name, took)).collect())
}

/// Memory of Envoys with one, two and four workers, with and without the module.
fn memory(stack: &Stack) -> Result<Vec<Memory>> {
    let mut all = Vec::new();
    for workers in [1, 2, 4] {
        for name in [NONE, "empty", LEASE] {
            let variant = variant(name)?;
            let running = Running { variant, envoy: stack.envoy(variant.filter, Limit::High, workers)? };
            stack.sample(&running, Load::Hot, SERVED)?;
            all.push(Memory { variant: name.to_owned(), workers, kb: settled(&running.envoy)? });
        }
    }
    Ok(all)
}

/// One Envoy, and new tenants all the time. Each of them is a call to the limiter, and lends a token.
fn after_tenants(stack: &Stack, tenants: u64) -> Result<Vec<Tenants>> {
    let text = limits(1)?;
    let filter = Filter::Weir { mode: "lease", headers: "" };
    let envoy = stack.listening(&text, filter, 1)?;
    let file = stack.scratch.path().join("new-tenants");
    let (mut sent, mut all) = (0, Vec::new());
    let mut tell_at = AT_ONCE;
    while sent < tenants {
        let count = AT_ONCE.min(tenants - sent);
        load::write_new_tenants(&file, sent, count)?;
        load::send_file(envoy.port(), count, &file)?;
        sent += count;
        // After 100,000, 1 million, 10 million, and at the end.
        if sent == tell_at || sent == tenants {
            all.push(Tenants { count: sent, kb: settled(&envoy)? });
            eprintln!("    {} kB after {sent} tenants", settled(&envoy)?);
            tell_at *= 10;
        }
    }
    let calls = calls(&envoy);
    let degraded = degraded(&envoy);
    if degraded > tenants / 1000 || calls < tenants - degraded || !envoy.errors().is_empty() {
        return Err(format!("{calls} calls and {degraded} degraded for {tenants} tenants: {:?}", envoy.errors()).into());
    }
    Ok(all)
}

/// Memory once Envoy has given back what it does at once.
fn settled(envoy: &Envoy) -> Result<u64> {
    std::thread::sleep(Duration::from_millis(500));
    cpu::anonymous_kb(envoy.id())
}
