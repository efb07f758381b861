//! Where it was measured, and with what.

use std::process::Command;

use crate::Result;
use crate::results::Machine;

pub fn machine() -> Result<Machine> {
    let processors = std::fs::read_to_string("/proc/cpuinfo")?;
    let models = || processors.lines().filter_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kb: u64 = memory.split_whitespace().nth(1).ok_or("no MemTotal")?.parse()?;
    let envoy = std::env::var("WEIR_ENVOY")?;
    let versions = [
        ("Linux", std::fs::read_to_string("/proc/sys/kernel/osrelease")?),
        // PATH  version: HASH/VERSION/state/build/TLS library
        ("Envoy", said(&envoy, &["--version"], |text| text.split("version: ").nth(1)?.split('/').nth(1))?),
        (
            "Redis",
            said("redis-server", &["--version"], |text| text.split(' ').find_map(|word| word.strip_prefix("v=")))?,
        ),
        // Asked for its version it would start a server.
        ("Webdis", said("dpkg-query", &["--show", "--showformat=${Version}", "webdis"], |text| Some(text))?),
        ("limitador", locked("limitador")?),
        ("tonic", locked("tonic")?),
        ("proxy-wasm", locked("proxy-wasm")?),
        ("rustc", said("rustc", &["--version"], |text| text.split(' ').nth(1))?),
        ("h2load", said("h2load", &["--version"], |text| text.split('/').nth(1))?),
    ];
    Ok(Machine {
        date: said("date", &["-u", "+%F"], |text| Some(text))?,
        processor: models().next().unwrap_or("unknown").to_owned(),
        processors: models().count(),
        memory_gb: (kb as f64 / f64::from(1 << 20)).round() as u64,
        versions: versions.map(|(name, version)| (name.to_owned(), version.trim().to_owned())).into(),
    })
}

/// The same for figures that do not depend on the machine: when, and with what.
pub fn machine_of_instructions() -> Result<Machine> {
    let envoy = std::env::var("WEIR_ENVOY")?;
    let versions = [
        ("Envoy", said(&envoy, &["--version"], |text| text.split("version: ").nth(1)?.split('/').nth(1))?),
        ("callgrind", said("valgrind", &["--version"], |text| text.strip_prefix("valgrind-"))?),
        ("proxy-wasm", locked("proxy-wasm")?),
        ("rustc", said("rustc", &["--version"], |text| text.split(' ').nth(1))?),
    ];
    Ok(Machine {
        date: said("date", &["-u", "+%F"], |text| Some(text))?,
        versions: versions.map(|(name, version)| (name.to_owned(), version)).into(),
        ..Machine::default()
    })
}

/// What a program says, and of that what matters.
fn said(program: &str, arguments: &[&str], of: impl Fn(&str) -> Option<&str>) -> Result<String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = of(text.trim()).ok_or_else(|| format!("{program} {arguments:?} says {text:?}"))?;
    Ok(version.trim().to_owned())
}

/// The version of a package of this workspace.
fn locked(package: &str) -> Result<String> {
    let start = format!("name = \"{package}\"\nversion = \"");
    let after = include_str!("../Cargo.lock").split(&start).nth(1).ok_or_else(|| format!("{package} is not locked"))?;
    Ok(after.split('"').next().unwrap_or_default().to_owned())
}
