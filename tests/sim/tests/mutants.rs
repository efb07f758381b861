//! Breaks the code on purpose, one rule at a time: the simulator must notice each.
//!
//! All mutants are built into one copy of the sources, and the environment says which of them is alive. Each names the
//! rule of the design that it leaves out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to break the code.
struct Mutant {
    breaks: &'static str,
    parts: &'static [Part],
}

/// A piece of a file, and what stands there instead while the mutant is alive. The piece is marked in some text around
/// it, by which it is found however its lines are broken, and is an expression or whole statements.
struct Part {
    file: &'static str,
    find: &'static str,
    replace: &'static str,
}

const ROOT: &str = "tests/sim/src/root.rs";
const WINDOW: &str = "tests/sim/src/root/window.rs";
const ACQUIRE: &str = "src/algorithm/acquire.rs";
const LEASE: &str = "src/local/lease.rs";
const TABLE: &str = "src/local/table.rs";
const LENDING: &str = "src/engine/plan/lending.rs";
const ADMISSION: &str = "src/engine/admission.rs";
const CALLS: &str = "src/engine/calls.rs";
const WEBDIS: &str = "src/limiter/redis/webdis.rs";

const fn mutant(breaks: &'static str, parts: &'static [Part]) -> Mutant {
    Mutant { breaks, parts }
}

macro_rules! part {
    ($file:expr, $find:expr, $replace:expr) => {
        &[Part { file: $file, find: $find, replace: $replace }]
    };
}

#[rustfmt::skip]
const MUTANTS: &[Mutant] = &[
    // The root.
    mutant("rule 1: a lease is counted with a token less than it has",
           part!(ROOT, "None => self.slots.push(Slot { kind, tokens: «size», end }),", "size - 1")),
    mutant("rule 1: what is carried on is not counted", part!(ROOT, "let size = «kept» + extra + held;", "0")),
    mutant("rule 1: what is held is not counted", part!(ROOT, "let size = kept + extra + «held»;", "0")),
    mutant("rule 2: carried on although it is not counted any more",
           &[Part { file: ROOT, find: "let carry = call.carry.min(«taken»);", replace: "u64::MAX" },
             Part { file: ROOT, find: "(self.used - call.units(back)).max(«least»)", replace: "i128::MIN" }]),
    mutant("rule 2: more comes back than was counted",
           part!(ROOT, "self.give_back(«carry - kept», kept, call);", "call.size - kept.min(call.size)")),
    mutant("rule 3: the refill is not capped by what is lent",
           part!(ROOT, "let least = «call.units(self.lent())»;\n        self.used", "0")),
    mutant("rule 3: rolls before it refills",
           part!(ROOT, "«self.refill(now, call);\n        self.roll(now);»", "self.roll(now); self.refill(now, call);")),
    mutant("rule 4: grants a token that is not there",
           part!(ROOT, "let fits = cost <= «self.level(call)»;", "self.level(call) + call.units(1)")),
    mutant("rule 4: lends what is not there",
           part!(ROOT, "let extra = «wanted.min(quarter(self.level(call))).max(0)»;", "wanted.max(0)")),
    mutant("rule 5: a lease is over a millisecond early in the root",
           part!(ROOT, "self.slots.retain(|slot| «slot.end > now»);", "slot.end > now + 1")),
    mutant("rule 7: an end is moved after it was told",
           part!(ROOT, "Some(slot) => «slot.tokens += size»,", "slot.tokens += size; slot.end -= 1;")),
    mutant("rule 7: a lowered burst takes no notice of what is lent",
           &[Part { file: ROOT, find: "(self.used - gained).max(«least»)", replace: "least.min(call.capacity())" },
             Part { file: ROOT, find: "(self.used - call.units(back)).max(«least»)", replace: "least.min(call.capacity())" }]),
    mutant("a change of limit keeps the level, not what was used",
           part!(ROOT, "«self.refill(now, call);\n        self.roll(now);»",
                 "self.refill(now, call); self.roll(now); self.used = self.used.min(call.capacity());")),
    mutant("a lease ends before its time where the clock was set back",
           part!(ROOT, "self.slots[at].end = self.unused(«two_lives.max(clock + (end - self.time))»);", "clock + 1")),
    mutant("what comes back in the time by which the clock was set back comes back once more",
           part!(ROOT, "«self.time = clock;»\n        clock", "self.time = clock.min(2 * clock - self.time);")),
    mutant("rule 8: a lease is taken off twice",
           part!(ROOT, "slot.tokens -= «taken»;", "slot.tokens.min(2 * taken)")),
    mutant("rule 8: another lease is taken off",
           part!(ROOT, ".find(|slot| «slot.end == call.end»)", "slot.end >= call.end")),
    mutant("rule 9: what comes back while the clock is behind by a second at most comes back twice",
           part!(ROOT, "let now = «clock.max(self.time)»;", "self.time = self.time.min(clock); clock")),
    mutant("rule 10: the key is gone before its leases are over",
           part!(ROOT, "Some(clock + «self.expiry_ms(clock, call)»);", "call.wait(self.used)")),
    // The root of a window.
    mutant("window: one begins where the clock is set back",
           part!(WINDOW, "let begins = «call.window_begin(now) > before»;", "call.window_begin(now) != call.window_begin(before)")),
    mutant("window: one begins a millisecond early",
           part!(WINDOW, "let begins = «call.window_begin(now) > before»;", "call.window_begin(now + 1) > before")),
    mutant("window: what is lent beyond its beginning is forgotten",
           part!(WINDOW, "let out = «self.lent_beyond(call.window_begin(now))»;", "0")),
    mutant("window: what is lent beyond its beginning is forgotten when it ends",
           part!(WINDOW, "let out = «self.lent_beyond(call.window_begin(now))»;", "self.lent_beyond(now)")),
    mutant("window: what is lent is forgotten where the clock is set back",
           part!(WINDOW, "if before > clock + 1000 { «self.set_back(clock, call)» }", "{ self.slots.clear(); clock }")),
    mutant("window: a lease is carried on although the clock was set back",
           part!(ROOT, "_ if self.algorithm == Algorithm::FixedWindow => «0»,", "self.period_ms")),
    mutant("window: lends what is not there",
           part!(WINDOW, "let extra = «wanted.min(room.max(0) / 4).max(0)»;", "wanted.max(0)")),
    mutant("window: what is held is not counted", part!(WINDOW, "let size = kept + extra + «held»;", "0")),
    mutant("window: a lease lives on in the next one",
           &[Part { file: WINDOW, find: "let valid_ms = «valid_ms.min(left)»;", replace: "valid_ms + 1000" },
             Part { file: ACQUIRE, find: "let ends_in_time = «window_left == Ms(0) || lent.valid <= window_left»;", replace: "true" }]),
    mutant("window: the key is gone before it is over",
           part!(WINDOW, "self.expires_at = Some(«call.window_begin(last) + call.period_ms + 1000»);", "clock + 1")),
    // The proxy.
    mutant("rule 1: what was granted to one who has left is pooled",
           part!(CALLS, "self.close(plan, ask, lending, LendingEnd::Answered(«said»))",
                 "let mut more = acquired.clone();
                  let left = call.group.iter().zip(shares).filter(|((ticket, _), share)| {
                      matches!(share, Share::Granted(_)) && !self.waiters.get(ticket).is_some()
                  });
                  more.lent.held += left.map(|((_, cost), _)| *cost).sum::<u64>();
                  Said { acquired: &*Box::leak(Box::new(more)), ..said }")),
    mutant("rule 1: what was granted to those who wait is pooled, too",
           part!(LENDING, "let waiting = «entry.lease.renew(&said.acquired.lent, said.sent, now)»;",
                 "let waiting = entry.lease.renew(&said.acquired.lent, said.sent, now);
                  entry.lease.tokens += said.granted;
                  waiting")),
    mutant("rule 2: more is kept than the root has kept",
           part!(LEASE, "let carried = «self.at_hand(now).min(lent.kept)»;", "self.at_hand(now)")),
    mutant("rule 2: what goes back is spent while the call is out",
           part!(LEASE, "self.tokens = «carry.min(want)»;", "carry")),
    mutant("rule 2: what is spent while the call is out comes back with the reply",
           part!(LEASE, "let carried = «self.at_hand(now).min(lent.kept)»;", "lent.kept")),
    mutant("rule 5: a lease lives from when the reply comes", part!(LEASE, "self.expires = «sent» + margin(lent.valid);", "now")),
    mutant("rule 5: no margin for clocks that drift", part!(LEASE, "«time - Ms(time.0 / DRIFT) - Ms(1)»", "time")),
    mutant("rule 5: spent after the end", part!(LEASE, "if «now < self.expires» { self.tokens }", "true")),
    mutant("rule 6: while a call is out, the old lease lives on",
           part!(LEASE, "self.expires = «self.expires.min(now + margin(SHORT_LIFE.min(terms.life)))»;", "self.expires")),
    mutant("rule 6: after a lost call all is kept",
           part!(LEASE, "«(self.tokens, self.size, self.end, self.expires) = (0, 0, 0, Ms(0));»", "")),
    mutant("rule 6: a reply after the call's own end is used", part!(CALLS, "let end = if «self.now.mono < call.ends» { end }", "true")),
    mutant("rule 8: the old lease is reported again after a lost call",
           part!(LEASE, "«(self.tokens, self.size, self.end, self.expires) = (0, 0, 0, Ms(0));»",
                 "(self.tokens, self.expires) = (0, Ms(0));")),
    mutant("two calls about one lease are out",
           &[Part { file: LEASE, find: "if «self.call_ends > now» {", replace: "false" },
             Part { file: LEASE, find: "if «self.call_ends > Ms(0)» {", replace: "false" }]),
    mutant("a reply renews a lease that has gone on without it",
           &[Part { file: LENDING, find: "if «entry.lease.moment() != call.moment» {\n                return Closed", replace: "false" },
             Part { file: CALLS, find: "let end = if «self.now.mono < call.ends» { end }", replace: "true" }]),
    mutant("new tokens are counted twice",
           part!(LEASE, "self.tokens = carried.saturating_add(«lent.extra»).saturating_add(lent.held);", "2 * lent.extra")),
    mutant("a call that never began gives everything back",
           part!(LEASE, "self.tokens.saturating_add(«offer.carry.saturating_sub(offer.want)»)", "offer.carry")),
    mutant("what another rule has refused stays spent",
           part!(ADMISSION, "«plan.put_back(&charge.ask, receipt, self.now.mono);»", "")),
    mutant("what is held passes, too", part!(CALLS, "Share::Granted(_) if «call.asked.hold» =>", "false")),
    // Replies that belong to other calls.
    mutant("swapped: another call's reply is believed",
           part!(WEBDIS, "(Some(number), _) if «u64::try_from(number) != Ok(asked.number)» =>", "false")),
    mutant("swapped: all calls have one number", part!(CALLS, "out.asked.number = «self.random() >> NOT_EXACT_BITS»;", "0")),
    mutant("swapped: an error without a number proves that this call has not run",
           part!(CALLS, "let is_certain = «matches!(end, HttpEnd::NotStarted(_))»;",
                 "matches!(end, HttpEnd::NotStarted(_)) || failure == Failure::Redis")),
    mutant("swapped: a call whose reply was another's has not run",
           part!(CALLS, "let is_certain = «matches!(end, HttpEnd::NotStarted(_))»;",
                 "matches!(end, HttpEnd::NotStarted(_)) || failure == Failure::Misdelivered")),
    mutant("swapped: the second try names the lease that the first may have closed",
           part!(CALLS, "again.asked.offer = «Offer { want: want.saturating_sub(carry), debt, ..Offer::default() }»;",
                 "again.asked.offer")),
    mutant("swapped: the second try never began, and the lease that the first may have closed lives on",
           part!(LEASE, "if «offer.end != self.end» {\n            return self.lose_call();", "false")),
    mutant("a new entry starts with the same turn as the one before it",
           part!(TABLE, "let turn = «u32::try_from(self.births.get() >> 32).unwrap_or_default()»;", "0")),
    mutant("async: nothing is settled", part!(LENDING, "offer.debt = «unsettled»;", "0")),
];

/// What a mutant is looked for with, in this order.
const HUNTS: &[&[&str]] = &[
    &["SEEDS=1500"],
    &["explore", "DEPTH=4"],
    &["explore", "DEPTH=10", "CASE=put back"],
    &["model", "CALLS=2"],
    &["model", "CALLS=3", "CASE=back and forth"],
    &["explore", "DEPTH=6", "CASE=lease: 2 proxies, no losses"],
    &["model", "CALLS=3", "CASE=whose clock"],
    // Where a late reply meets a clock between its end and the next tick: rare.
    &["SEEDS=100", "FROM=38600"],
    &["SEEDS=30000", "FROM=1500"],
];

#[test]
fn every_mutant_finds_its_place_in_the_sources() {
    let (_, lost) = places(&sources());
    assert!(lost.is_empty(), "name these places anew in tests/sim/tests/mutants.rs:\n{}", lost.join("\n"));
}

#[test]
#[ignore = "takes minutes: make mutants, and make test-sim, a part of make test"]
#[expect(clippy::disallowed_methods, reason = "MUTANT=words runs those mutants alone whose names have these words")]
fn every_rule_that_is_left_out_is_noticed() {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    write(&scratch.join("work"));
    build(&scratch);
    let wanted = std::env::var("MUTANT").unwrap_or_default();
    let mut alive = Vec::new();
    for (number, mutant) in (1..).zip(MUTANTS).filter(|(_, mutant)| mutant.breaks.contains(&wanted)) {
        match HUNTS.iter().find_map(|hunt| caught(&scratch, number, hunt)) {
            Some(how) => println!("{}\n    {how}", mutant.breaks),
            None => {
                println!("{}\n    NOT NOTICED", mutant.breaks);
                alive.push(mutant.breaks);
            }
        }
    }
    assert_eq!(caught(&scratch, 0, HUNTS[0]), None, "without a mutant there is nothing to notice");
    assert_eq!(alive, Vec::<&str>::new(), "nobody has noticed these");
}

/// What the simulator is built from.
fn sources() -> BTreeMap<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = BTreeMap::new();
    for path in ["Cargo.toml", "Cargo.lock", "src", "lua", "tests/sim/Cargo.toml", "tests/sim/src", "tests/stack"] {
        read(&from, Path::new(path), &mut texts);
    }
    // Cargo wants to see each test that the manifest names.
    let manifest = texts[Path::new("Cargo.toml")].clone();
    for test in manifest.split("[[test]]\nname = \"").skip(1) {
        let name = test.split('"').next().expect("a name");
        let files = [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")];
        let file = files.iter().find(|file| from.join(file).exists()).expect("a test's file");
        read(&from, Path::new(file), &mut texts);
    }
    texts
}

/// Where the pieces are, and what stands there instead, by the number of its mutant; and what has no place, in words.
type Places = BTreeMap<(&'static str, usize, usize), String>;

fn places(texts: &BTreeMap<PathBuf, String>) -> (Places, Vec<String>) {
    let (mut places, mut lost) = (Places::new(), Vec::new());
    for (number, mutant) in (1..).zip(MUTANTS) {
        for Part { file, find, replace } in mutant.parts {
            match texts.get(Path::new(file)).ok_or_else(|| "no such file".to_owned()).and_then(|text| place(text, find))
            {
                Ok((from, to)) => {
                    places.entry((*file, from, to)).or_default().push_str(&format!("{number} => {{ {replace} }} "));
                }
                Err(why) => lost.push(format!("{:?}: {find:?} in {file}: {why}", mutant.breaks)),
            }
        }
    }
    let all: Vec<_> = places.keys().collect();
    let overlap = |pair: &&[&(&'static str, usize, usize)]| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2;
    for pair in all.windows(2).filter(overlap) {
        lost.push(format!("{}: the pieces at bytes {} and {} overlap", pair[0].0, pair[0].1, pair[1].1));
    }
    (places, lost)
}

/// Where the marked piece of a text stands that stands once. How lines are broken does not matter.
fn place(text: &str, find: &str) -> Result<(usize, usize), String> {
    let dense = |text: &str| text.split_whitespace().collect::<String>();
    let (before, rest) = find.split_once('«').ok_or("no «")?;
    let (piece, after) = rest.split_once('»').ok_or("no »")?;
    let (before, piece, after) = (dense(before), dense(piece), dense(after));
    let (around, dense_text) = ([&*before, &piece, &after].concat(), dense(text));
    let found: Vec<usize> = dense_text.match_indices(&around).map(|(at, _)| at).collect();
    let [at] = found[..] else { return Err(format!("it stands {} times and must stand once", found.len())) };
    // Back to where the first and the last byte of the piece stand among the spaces.
    let is_dense = |(at, letter): (usize, char)| (!letter.is_whitespace()).then_some((at, letter.len_utf8()));
    let bytes = text.char_indices().filter_map(is_dense).flat_map(|(at, length)| at..at + length);
    let bytes: Vec<usize> = bytes.collect();
    let (first, last) = (at + before.len(), at + before.len() + piece.len() - 1);
    Ok((bytes[first], bytes[last] + 1))
}

/// Writes the sources with all mutants in them.
fn write(to: &Path) {
    let mut texts = sources();
    let (places, lost) = places(&texts);
    assert_eq!(lost, Vec::<String>::new());
    // From the last piece of a file to the first, so that places stay.
    for ((file, from, until), arms) in places.iter().rev() {
        let name = if [ROOT, WINDOW].contains(file) { "weir::mutant" } else { "crate::mutant" };
        let text = texts.get_mut(Path::new(file)).expect("a file");
        let piece = &text[*from..*until];
        let choice = format!("match {name}() {{ {arms} _ => {{ {piece} }} }}");
        text.replace_range(*from..*until, &choice);
    }
    texts.get_mut(Path::new("src/lib.rs")).expect("a file").push_str(ALIVE);
    for folder in ["src", "lua", "tests"] {
        forget_strays(&to.join(folder), Path::new(folder), &texts);
    }
    for (path, text) in texts {
        let path = to.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        // What is the same is left alone, so that cargo builds only what has changed.
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            std::fs::write(path, text).expect("a copy");
        }
    }
}

/// Removes what an earlier run has left of files that are gone.
fn forget_strays(full: &Path, path: &Path, texts: &BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(full).into_iter().flatten() {
        let entry = entry.expect("an entry");
        let path = path.join(entry.file_name());
        if entry.path().is_dir() {
            forget_strays(&entry.path(), &path, texts);
        } else if !texts.contains_key(&path) {
            std::fs::remove_file(entry.path()).expect("a file that can be removed");
        }
    }
}

/// Says which mutant is alive.
const ALIVE: &str = r#"
pub fn mutant() -> u32 {
    static ALIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *ALIVE.get_or_init(|| std::env::var("WEIR_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0))
}
"#;

fn read(from: &Path, path: &Path, texts: &mut BTreeMap<PathBuf, String>) {
    let full = from.join(path);
    if !full.is_dir() {
        texts.insert(path.to_owned(), std::fs::read_to_string(full).expect("a text"));
        return;
    }
    for entry in std::fs::read_dir(full).expect("a folder") {
        read(from, &path.join(entry.expect("an entry").file_name()), texts);
    }
}

fn build(scratch: &Path) {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--profile", "sim", "--package", "weir-sim", "--bin", "sim"])
        .current_dir(scratch.join("work"))
        .env("CARGO_TARGET_DIR", scratch.join("target"))
        .env("RUSTFLAGS", "--cap-lints=allow")
        .status();
    assert!(status.expect("cargo").success(), "mutants must build");
}

/// How a mutant is caught: what the simulator says of it; None where it finds nothing wrong.
fn caught(scratch: &Path, mutant: u32, hunt: &[&str]) -> Option<String> {
    let run = Command::new(scratch.join("target/sim/sim"))
        .args(hunt)
        .env("WEIR_MUTANT", mutant.to_string())
        .output()
        .expect("the simulator");
    if run.status.success() {
        return None;
    }
    let told = [run.stdout, run.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    let line = told.lines().find(|line| line.contains("BROKEN") || line.contains("panicked")).unwrap_or("it failed");
    Some(format!("{}: {line}", hunt.join(" ")))
}
