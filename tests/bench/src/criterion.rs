//! The core alone: runs Criterion's benches, and takes over what they have found.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weir_stack::Scratch;

use crate::Result;
use crate::results::Core;
use crate::stack::round;

/// Runs for about so many seconds for each of the benches.
pub fn measure(seconds: f64) -> Result<Vec<Core>> {
    let scratch = Scratch::new()?;
    let bench = Command::new(env!("CARGO"))
        .args(["bench", "--quiet", "--package", "weir-bench-core", "--bench", "core", "--"])
        .args(["--measurement-time", &seconds.to_string(), "--warm-up-time", "1", "--quiet"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CRITERION_HOME", scratch.path())
        .output()?;
    if !bench.status.success() {
        return Err(format!("the benches of the core:\n{}", String::from_utf8_lossy(&bench.stderr)).into());
    }
    let mut all = Vec::new();
    collect(scratch.path(), &mut all)?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// `GROUP/ID/new` has the last run.
fn collect(folder: &Path, all: &mut Vec<Core>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.ends_with("new") {
            let read =
                |name: &str| -> Result<Value> { Ok(serde_json::from_str(&std::fs::read_to_string(path.join(name))?)?) };
            let (id, estimates) = (read("benchmark.json")?, read("estimates.json")?);
            let median = &estimates["median"];
            let ns = |value: &Value| value.as_f64().map(round).ok_or("Criterion's estimates.json has no median");
            all.push(Core {
                name: id["full_id"].as_str().ok_or("Criterion's benchmark.json has no full_id")?.to_owned(),
                ns: ns(&median["point_estimate"])?,
                low_ns: ns(&median["confidence_interval"]["lower_bound"])?,
                high_ns: ns(&median["confidence_interval"]["upper_bound"])?,
            });
        } else if path.is_dir() {
            collect(&path, all)?;
        }
    }
    Ok(())
}
