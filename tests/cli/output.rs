//! What all commands have in common: colours, terminals, completions and the manual.

use crate::{folder, text, weir};

#[test]
fn no_character_of_a_file_reaches_a_terminal_as_a_command() {
    let policy = "version: 1\nlimiters: {main: {transport: webdis, cluster: webdis, \"\\e[2J\": 1}}\nrules: []\n";
    let said = text(&weir(&folder(), &["check", "-"], &[("CLICOLOR_FORCE", "1")], policy.as_bytes()).stdout);
    assert!(said.contains("unknown field") && !said.contains("\u{1b}[2J"), "{said:?}");
}

#[test]
fn colours_are_for_terminals() {
    let check = |env: &[(&str, &str)]| text(&weir(&folder(), &["check", "errors.yaml"], env, b"").stdout);
    let plain = check(&[]);
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let coloured = check(&[("CLICOLOR_FORCE", "1")]);
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m"), "{coloured:?}");
    assert_eq!(check(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), plain);
}

#[test]
fn completions_and_the_manual_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&weir(&folder(), &["completions", shell], &[], b"").stdout);
        for word in ["check", "explain", "render", "top", "deny-warnings", "secret-file", "every"] {
            assert!(script.contains(word), "{word} in the completions for {shell}");
        }
    }
    let manual = text(&weir(&folder(), &["man"], &[], b"").stdout);
    for word in [".TH weir 1", "weir\\-check", "weir\\-explain", "weir\\-render", "weir\\-top", "Exit code"] {
        assert!(manual.contains(word), "{word} in the manual\n{manual}");
    }
}
