//! Breaks the code on purpose, one rule at a time: the simulator must notice each.
//!
//! A mutant is a copy of the sources in which one piece of text is replaced, built and run on its own. Each names the
//! rule of the design that it leaves out.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to break the code.
struct Mutant {
    breaks: &'static str,
    file: &'static str,
    find: &'static str,
    replace: &'static str,
}

const ROOT: &str = "tests/sim/src/root.rs";

/// (WAITS FOR THE CORE: rules 1 to 6 in the proxy, in src/pool/lease.rs, src/plan.rs and src/flow.rs.)
const MUTANTS: &[Mutant] = &[
    Mutant {
        breaks: "rule 1: a lease is counted with a token less than it has",
        file: ROOT,
        find: "None => self.slots.push(Slot { kind, tokens: size, end }),",
        replace: "None => self.slots.push(Slot { kind, tokens: size - 1, end }),",
    },
    Mutant {
        breaks: "rule 1: what is carried on is not counted",
        file: ROOT,
        find: "let size = kept + extra + held;",
        replace: "let size = extra + held;",
    },
    Mutant {
        breaks: "rule 2: carried on although it is not counted any more",
        file: ROOT,
        find: "let carry = call.carry.min(taken);",
        replace: "let carry = call.carry + 0 * taken;",
    },
    Mutant {
        breaks: "rule 3: the refill is not capped by what is lent",
        file: ROOT,
        find: "let top = call.capacity() - call.units(self.lent());\n        self.level = (level",
        replace: "let top = call.capacity();\n        self.level = (level",
    },
    Mutant {
        breaks: "rule 3: rolls before it refills",
        file: ROOT,
        find: "self.refill(now, call);\n        self.roll(now);",
        replace: "self.roll(now);\n        self.refill(now, call);",
    },
    Mutant {
        breaks: "rule 4: grants a token that is not there",
        file: ROOT,
        find: "let fits = cost <= self.level;",
        replace: "let fits = cost <= self.level + call.units(1);",
    },
    Mutant {
        breaks: "rule 4: lends what is not there",
        file: ROOT,
        find: "let extra = wanted.min(quarter(self.level)).max(0);",
        replace: "let extra = wanted.max(quarter(self.level)).max(0);",
    },
    Mutant {
        breaks: "rule 5: a lease is over a millisecond early in the root",
        file: ROOT,
        find: "self.slots.retain(|slot| slot.end > now);",
        replace: "self.slots.retain(|slot| slot.end > now + 1);",
    },
    Mutant {
        breaks: "rule 7: an end is moved after it was told",
        file: ROOT,
        find: "Some(slot) => slot.tokens += size,",
        replace: "Some(slot) => { slot.tokens += size; slot.end -= 1; }",
    },
    Mutant {
        breaks: "rule 7: a lowered burst takes no notice of what is lent",
        file: ROOT,
        find: "self.level = (level + gained).min(top).max(call.lowest());",
        replace: "self.level = (level + gained).min(top.max(0)).max(call.lowest());",
    },
    Mutant {
        breaks: "rule 8: a lease is taken off twice",
        file: ROOT,
        find: "slot.tokens -= taken;",
        replace: "slot.tokens -= slot.tokens.min(2 * taken);",
    },
    Mutant {
        breaks: "rule 8: another lease is taken off",
        file: ROOT,
        find: ".find(|slot| slot.end == call.end)",
        replace: ".find(|slot| slot.end >= call.end)",
    },
    Mutant {
        breaks: "rule 9: the bucket's time goes back with the clock",
        file: ROOT,
        find: "let now = clock.max(self.time);",
        replace: "let now = clock; self.time = self.time.min(now);",
    },
    Mutant {
        breaks: "rule 10: the key is gone before its leases are over",
        file: ROOT,
        find: "self.expires_at = Some(clock + self.expiry_ms(clock, call));",
        replace: "self.expires_at = Some(clock + call.wait(call.capacity() - self.level));",
    },
];

/// What a mutant is looked for with, in this order.
const HUNTS: &[&[&str]] = &[&["model", "SECONDS=10"], &["SEEDS=3000", "SECONDS=20"], &["explore", "SECONDS=5"]];

#[test]
#[ignore = "takes minutes: make mutants"]
fn every_rule_that_is_left_out_is_noticed() {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut alive = Vec::new();
    for mutant in MUTANTS {
        for path in ["Cargo.toml", "Cargo.lock", "src", "lua", "tests/sim", "tests/stack"] {
            copy(&from.join(path), &scratch.join("work").join(path));
        }
        let file = scratch.join("work").join(mutant.file);
        let text = std::fs::read_to_string(&file).expect("a source file");
        assert_eq!(
            text.matches(mutant.find).count(),
            1,
            "{}: {:?} must stand once in {}",
            mutant.breaks,
            mutant.find,
            mutant.file
        );
        std::fs::write(&file, text.replace(mutant.find, mutant.replace)).expect("a mutant");
        build(&scratch);
        match HUNTS.iter().find_map(|hunt| caught(&scratch, hunt)) {
            Some(how) => println!("{}\n    {how}", mutant.breaks),
            None => alive.push(mutant.breaks),
        }
    }
    assert_eq!(alive, Vec::<&str>::new(), "nobody has noticed these");
}

fn build(scratch: &Path) {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--package", "weir-sim", "--bin", "sim"])
        .current_dir(scratch.join("work"))
        .env("CARGO_TARGET_DIR", scratch.join("target"))
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "--cap-lints=allow")
        .status();
    assert!(status.expect("cargo").success(), "a mutant must build");
}

/// How a mutant is caught: what the simulator says of it; None where it finds nothing wrong.
fn caught(scratch: &Path, hunt: &[&str]) -> Option<String> {
    let run = Command::new(scratch.join("target/debug/sim")).args(hunt).output().expect("the simulator");
    if run.status.success() {
        return None;
    }
    let told = [run.stdout, run.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    let line = told.lines().find(|line| line.contains("BROKEN") || line.contains("panicked")).unwrap_or("it failed");
    Some(format!("{}: {line}", hunt.join(" ")))
}

/// Copies a file or a folder, but leaves what is the same alone, so that cargo builds only what has changed.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).expect("a folder");
        for entry in std::fs::read_dir(from).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            copy(&from.join(&name), &to.join(&name));
        }
        return;
    }
    let bytes = std::fs::read(from).expect("a file");
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    if std::fs::read(to).ok().as_ref() != Some(&bytes) {
        std::fs::write(to, bytes).expect("a copy");
    }
}
