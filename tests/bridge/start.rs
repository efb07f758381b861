//! What it says of itself.

use std::process::Command;

use crate::tool;

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
