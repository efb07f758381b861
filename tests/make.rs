//! What `make` needs it installs, or it says what to type: tried with programs that only look like rustup, cargo and the
//! rest, on a path where nothing else is.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What the recipes use of the system itself, which is there wherever make is.
const SYSTEM: [&str; 10] = ["bash", "sed", "tr", "grep", "uname", "dirname", "id", "mkdir", "cat", "env"];

/// What says that a component or a target is there, by its file in the fake toolchain.
const RUSTUP: &str = r#"#!/bin/bash
echo "rustup $*" >>"$FAKE/log"
case "$*" in
  "component list"*) ls "$FAKE/components" ;;
  "target list"*) ls "$FAKE/targets" ;;
  *"component add "*) touch "$FAKE/components/$4" ;;
  *"target add "*) touch "$FAKE/targets/$4" ;;
  *"toolchain install "*) touch "$FAKE/components/"{rustc,clippy,rustfmt} ;;
  "run "*) echo /toolchain ;;
esac
"#;

const RUSTC: &str = "#!/bin/bash\necho /toolchain\n";

const ELSEWHERE: &str = "#!/bin/bash\necho /usr\n";

/// A machine as `make` sees it.
struct Machine {
    folder: PathBuf,
}

impl Machine {
    /// One with rustup and its toolchain, without the wasm targets, and with all that is not Rust.
    fn new() -> Machine {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-make-{}-{number}", std::process::id()));
        let machine = Machine { folder };
        for name in ["bin", "components", "targets", "home"] {
            fs::create_dir_all(machine.folder.join(name)).expect("a folder");
        }
        for name in ["rustc", "clippy", "rustfmt"] {
            fs::write(machine.folder.join("components").join(name), "").expect("a file");
        }
        for name in SYSTEM.iter().chain(&["ls", "touch"]) {
            let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
            let found = found.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("no {name}"));
            symlink(found, machine.folder.join("bin").join(name)).expect("a link");
        }
        machine.has("rustup", RUSTUP);
        machine.has("rustc", RUSTC);
        machine.has("cargo", &format!("#!/bin/bash\necho 'cargo {} (0 2026-01-01)'\n", channel()));
        for name in ["cc", "c++", "node", "redis-server", "webdis", "python3", "openssl", "script"] {
            machine.has(name, "#!/bin/bash\n");
        }
        machine
    }

    fn has(&self, name: &str, text: &str) {
        let path = self.folder.join("bin").join(name);
        fs::write(&path, text).expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    }

    fn lacks(&self, name: &str) {
        fs::remove_file(self.folder.join("bin").join(name)).expect("it was there");
    }

    fn make_with(&self, target: &str, env: &[(&str, &str)]) -> Output {
        let make = ["/usr/bin/make", "/bin/make"].into_iter().find(|path| Path::new(path).exists()).expect("make");
        let mut command = Command::new(make);
        command.arg(target).current_dir(ROOT).env_clear();
        command.env("PATH", self.folder.join("bin")).env("FAKE", &self.folder).env("HOME", self.folder.join("home"));
        command.env("RUSTUP_AUTO_INSTALL", "0").envs(env.iter().copied()).output().expect("make runs")
    }

    /// What make says where it fails.
    fn refuses(&self, target: &str, env: &[(&str, &str)]) -> String {
        let output = self.make_with(target, env);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success(), "{said}");
        said
    }

    /// What rustup was told to do, where make succeeds.
    fn installs(&self) -> Vec<String> {
        let output = self.make_with("test-packages", &[]);
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        let log = fs::read_to_string(self.folder.join("log")).expect("rustup was asked");
        let log = log.lines().filter(|line| line.starts_with("rustup --quiet"));
        log.map(|line| line.replace("rustup --quiet ", "")).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What rust-toolchain.toml names.
fn channel() -> String {
    let toolchain = include_str!("../rust-toolchain.toml");
    let line = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).expect("a channel");
    line.trim_matches('"').to_owned()
}

#[test]
fn targets_are_installed_by_name_where_rustup_installs_nothing_by_itself() {
    let machine = Machine::new();
    let channel = channel();
    let added =
        ["wasm32-wasip1", "wasm32-unknown-unknown"].map(|name| format!("target add {name} --toolchain {channel}"));
    assert_eq!(machine.installs(), added);
    // Where they are, nothing is installed again.
    fs::remove_file(machine.folder.join("log")).expect("a log");
    assert_eq!(machine.installs(), Vec::<String>::new());
}

#[test]
fn a_toolchain_that_is_missing_is_installed_with_its_targets() {
    let machine = Machine::new();
    fs::remove_dir_all(machine.folder.join("components")).expect("a folder");
    fs::create_dir_all(machine.folder.join("components")).expect("a folder");
    let first = machine.installs().remove(0);
    assert_eq!(first, format!("toolchain install {} --profile minimal", channel()));
}

#[test]
fn without_rustup_make_says_what_to_type() {
    let machine = Machine::new();
    machine.lacks("rustup");
    let said = machine.refuses("toolchain", &[]);
    assert!(said.contains("missing: rustup"), "{said}");
    assert!(said.contains("\n  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"), "{said}");
    // Installed, and not on the path.
    let cargo = machine.folder.join("home/.cargo/bin");
    fs::create_dir_all(&cargo).expect("a folder");
    symlink("/bin/true", cargo.join("rustup")).expect("a link");
    let said = machine.refuses("toolchain", &[]);
    assert!(said.contains("\n  export PATH=\"$HOME/.cargo/bin:$PATH\"\n"), "{said}");
}

#[test]
fn another_cargo_before_that_of_rustup_is_refused_with_what_to_type() {
    let machine = Machine::new();
    machine.has("rustc", ELSEWHERE);
    let said = machine.refuses("toolchain", &[]);
    assert!(said.contains("cargo and rustc are not those of Rust"), "{said}");
    let line = format!("\n  export PATH=\"{}:$PATH\"\n", machine.folder.join("bin").display());
    assert!(said.contains(&line), "{said}");
    let said = machine.refuses("toolchain", &[("RUSTUP_TOOLCHAIN", "stable")]);
    assert!(said.contains("\n  unset RUSTUP_TOOLCHAIN\n"), "{said}");
    machine.has("rustc", RUSTC);
    machine.has("cargo", "#!/bin/bash\necho 'cargo 1.70.0'\n");
    assert!(machine.refuses("toolchain", &[]).contains("cargo and rustc are not those of Rust"));
}

#[test]
fn each_program_that_is_missing_is_named_with_its_package() {
    let programs = [
        ("cc", "build-essential"),
        ("c++", "build-essential"),
        ("node", "nodejs"),
        ("redis-server", "redis-server"),
        ("webdis", "webdis"),
        ("python3", "python3-venv"),
        ("openssl", "openssl"),
        ("script", "bsdutils"),
    ];
    for (program, package) in programs {
        let machine = Machine::new();
        machine.lacks(program);
        // No apt-get here.
        let said = machine.refuses("test-packages", &[]);
        assert!(said.contains(&format!("missing: {program}")), "{program}: {said}");
        assert!(said.contains(&format!("(on Debian the packages are {package})")), "{program}: {said}");
        // With it, and nobody who may install.
        machine.has("apt-get", "#!/bin/bash\n");
        machine.has("id", "#!/bin/bash\necho 1000\n");
        let said = machine.refuses("test-packages", &[]);
        assert!(said.contains("\n  apt-get install "), "{program}: {said}");
        assert!(said.contains(package), "{program}: {said}");
        // With sudo it is installed.
        machine.has("sudo", "#!/bin/bash\necho \"sudo $*\" >>\"$FAKE/log\"\n");
        let output = machine.make_with("test-packages", &[]);
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stdout));
        let log = fs::read_to_string(machine.folder.join("log")).expect("a log");
        let line = format!("sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {package}");
        assert!(log.contains(&line), "{program}: {log}");
    }
}

#[test]
fn an_installation_that_fails_says_what_is_missing() {
    let machine = Machine::new();
    machine.lacks("webdis");
    machine.has("id", "#!/bin/bash\necho 0\n");
    machine.has("apt-get", "#!/bin/bash\nexit 100\n");
    let said = machine.refuses("packages", &[]);
    assert!(said.contains("missing: webdis\napt-get could not install them"), "{said}");
}

#[test]
fn the_readme_names_the_packages_that_make_installs() {
    let makefile = include_str!("../Makefile");
    for name in ["APT", "TEST_APT"] {
        let start = format!("{name} := ");
        let packages = makefile.lines().find_map(|line| line.strip_prefix(&start)).expect("a list of packages");
        assert!(include_str!("../README.md").contains(&format!("`{packages}`")), "{packages}");
    }
}
