//! What it says of itself.

use std::process::Command;

use weir::limiter::Failure;

use crate::{Pair, tool};

#[test]
fn its_help_names_every_way_to_give_a_secret() {
    let help = Command::new(tool()).args(["bridge", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for word in [
        "--listen",
        "--admin",
        "--namespace",
        "--redis",
        "--cluster",
        "--sentinel",
        "--user",
        "--password-file",
        "--resp3",
        "--redis-ca",
        "--redis-cert",
        "--redis-key",
        "--secret-file",
        "--tls-cert",
        "--tls-key",
        "--client-ca",
        "--allow-anyone",
        "--max-waiting",
        "--max-connections",
        "WEIR_BRIDGE_SECRET",
        "WEIR_REDIS_PASSWORD",
        "WEIR_SENTINEL_PASSWORD",
        "/healthz",
        "/readyz",
        "/metrics",
        "SIGTERM",
    ] {
        assert!(help.contains(word), "{word} in\n{help}");
    }
}

/// The first column of a table, by its header; its words in code.
fn column<'t>(page: &'t str, header: &str) -> Vec<&'t str> {
    let lines =
        page.lines().skip_while(|line| !line.starts_with(header)).skip(2).take_while(|line| line.starts_with('|'));
    lines.filter_map(|line| line.split('`').nth(1)).collect()
}

#[test]
fn its_page_tells_what_there_is() {
    let page = include_str!("../../docs/bridge.md");
    let reasons: Vec<&str> = Failure::TOLD.iter().map(|failure| failure.name()).collect();
    assert_eq!(column(page, "| reason |"), reasons);
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    for row in rows.filter(|row| row.ends_with("| no |")) {
        let name = row.split('`').nth(1).unwrap();
        let failure = Failure::TOLD.iter().find(|failure| failure.name() == name).unwrap();
        assert!(failure.has_not_run(), "{name}");
    }
    let help = Command::new(tool()).args(["bridge", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let others = ["--host", "--help"];
    let words = page.split('`').skip(1).step_by(2).flat_map(|code| code.split([' ', ',', '`']));
    for word in words.filter(|word| word.starts_with("--") && !others.contains(word)) {
        assert!(help.contains(word), "{word} is no option");
    }
    let pair = Pair::start();
    let told = pair.bridge.admin("/metrics").unwrap().text();
    let mut metrics: Vec<&str> =
        told.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let mut listed = column(page, "| metric |");
    metrics.sort_unstable();
    listed.sort_unstable();
    assert_eq!(metrics, listed);
    // The example is a call, and that is its answer.
    let blocks: Vec<&str> = page.split("```\n").filter(|block| block.starts_with("weir 1")).collect();
    let [call, answer] = blocks.as_slice() else { panic!("{blocks:?}") };
    let response = pair.call(call);
    assert_eq!((response.status, response.text().as_str()), (200, *answer));
}
