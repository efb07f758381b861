//! The tool as its users run it: what it prints, word for word, and its exit codes.
//!
//! Each file tests/cli/NAME.txt is one command and what comes of it. `WEIR_BLESS=1 cargo test --features bridge --test cli`
//! writes them anew; read the difference.
#![allow(clippy::disallowed_methods, reason = "the bans are for the core; this is outside")]

mod check;
mod damage;
mod explain;
mod output;
#[path = "../pages/mod.rs"]
mod pages;
mod render;
mod routing;
mod snapshots;
mod top;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weir::policy::Tree;
use weir_stack::with_filter;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

const SECRET: (&str, &str) = ("WEIR_HASH_SECRET", "hush");

/// What `weir` does, with nothing of this process's environment that it looks at.
fn weir(folder: &Path, args: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).current_dir(folder).env_clear().envs(env.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool starts");
    // It may end without having read anything.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin);
    child.wait_with_output().expect("it ends")
}

fn folder() -> PathBuf {
    Path::new(ROOT).join("tests/cli")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A command line, run by a shell in a folder, and all that came of it.
fn told(line: &str, folder: &Path) -> String {
    let tool = Path::new(env!("CARGO_BIN_EXE_weir")).parent().expect("its folder");
    let output = Command::new("sh")
        .args(["-c", line])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", tool.display()))
        .output()
        .expect("a shell");
    let mut told = text(&output.stdout);
    if !output.stderr.is_empty() {
        told += &format!("--- stderr\n{}", text(&output.stderr));
    }
    format!("$ {line}\n{told}--- exit {}\n", output.status.code().expect("it ends by itself"))
}

/// Compares what was told with the file of that name, or writes the file.
fn compare(name: &str, told: &str) -> Result<(), String> {
    let file = folder().join(name).with_extension("txt");
    if std::env::var_os("WEIR_BLESS").is_some() {
        fs::write(&file, told).expect("a writable folder");
    }
    match fs::read_to_string(&file) {
        Ok(wanted) if wanted == told => Ok(()),
        Ok(wanted) => Err(format!("{}\nwanted:\n{wanted}\ntold:\n{told}", file.display())),
        Err(_) => Err(format!("{} is missing; told:\n{told}", file.display())),
    }
}

/// The files of a folder of tests/policies with one of these extensions.
fn policies(of: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(ROOT).join("tests/policies").join(of)).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)));
    files.sort();
    files
}

/// A directory of this process, for as long as it is used.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a writable directory");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A configuration of envoy/ with its words in at signs replaced.
fn filled(template: &str, policy: &str) -> String {
    let indent =
        template.lines().find(|line| line.trim() == "@POLICY@").map_or(0, |line| line.len() - line.trim().len());
    let policy = policy.trim().replace('\n', &format!("\n{}", " ".repeat(indent)));
    let numbers = ["PORT", "ADMIN_PORT", "UPSTREAM_PORT", "BRIDGE_PORT", "WEBDIS_PORT"];
    let text = numbers.iter().fold(template.to_owned(), |text, name| text.replace(&format!("@{name}@"), "1"));
    text.replace("@MODULE@", "weir.wasm")
        .replace("@LISTENERS@", "listener.yaml")
        .replace("@FILTER@", "filter.yaml")
        .replace("@POLICY@", &policy)
}

/// What stands under a word of an object.
fn get<'t>(tree: &'t Tree, word: &str) -> &'t Tree {
    let Tree::Map(pairs) = tree else { panic!("no object: {tree:?}") };
    &pairs.iter().find(|(key, _)| key == word).unwrap_or_else(|| panic!("no {word} in {tree:?}")).1
}

fn items(tree: &Tree) -> &[Tree] {
    let Tree::List(items) = tree else { panic!("no list: {tree:?}") };
    items
}

fn module() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from);
    let module = std::env::var_os("WEIR_MODULE").map(PathBuf::from);
    let module = module.unwrap_or_else(|| target.join("wasm32-wasip1/release/weir.wasm"));
    assert!(module.is_file(), "{} is missing; `make module` builds it", module.display());
    module
}

/// The filter of envoy/listener.yaml with a policy written out as a Struct.
fn with_struct(policy: &str) -> String {
    let listener = with_filter(include_str!("../../envoy/listener.yaml"));
    let (before, rest) = listener.split_once("                      configuration:\n").expect("its configuration");
    let (_, after) = rest.split_once("                # The router is last").expect("its router");
    let policy: String = policy.lines().map(|line| format!("                          {line}\n")).collect();
    format!(
        "{before}                      configuration:
                        \"@type\": type.googleapis.com/google.protobuf.Struct
                        value:
{policy}                # The router is last{after}"
    )
}

/// Asks again until it is so, and says whether it is.
fn wait_for(mut condition: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        if std::time::Instant::now() >= end {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    true
}
