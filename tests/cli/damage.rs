//! Files that are damaged, nested without end, or no text at all.

use std::fs;

use crate::{SECRET, folder, policies, text, weir};

/// Damages a text in one of several ways.
fn damaged(text: &[u8], chance: u64) -> Vec<u8> {
    let mut bytes = text.to_vec();
    let at = (chance as usize).wrapping_mul(7919) % bytes.len();
    match chance % 6 {
        0 => bytes.truncate(at),
        1 => bytes[at] = b"{}[]:,&*\"'|>-#\t\n"[at % 16],
        2 => bytes[at] ^= 1 << (at % 8),
        3 => drop(bytes.drain(at..(at + 40).min(text.len()))),
        4 => bytes.splice(at..at, text[..at.min(200)].to_vec()).for_each(drop),
        _ => bytes.splice(at..at, b"[[[[[[[[[[{{{{{{{{\xf0\x9f\x98\x80 - - - ? :".to_vec()).for_each(drop),
    }
    bytes
}

/// Files that are cut, changed and nested without end.
fn damaged_files() -> Vec<Vec<u8>> {
    let mut files = policies("good", &["yaml"]);
    files.extend(
        fs::read_dir(folder())
            .expect("tests/cli")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json")),
    );
    let deep = ["[".repeat(100_000), "{\"a\":".repeat(100_000), "- ".repeat(50_000), "a: &a [*a]\n".to_owned()];
    let bomb: String = (1..30).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1)).collect();
    let chain: String = (1..50_000).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
    let whole = deep.into_iter().chain([format!("a0: &a0 []\n{chain}")]).chain([
        format!("a0: &a0 [x, x]\n{bomb}"),
        String::new(),
        "\u{feff}".to_owned(),
    ]);
    let mut inputs: Vec<Vec<u8>> = whole.map(String::into_bytes).collect();
    for (number, file) in files.iter().enumerate() {
        let text = fs::read(file).expect("a file");
        inputs.extend((0..12).map(|turn| damaged(&text, (number * 12 + turn) as u64)));
    }
    inputs
}

/// What check says of a file is told by its exit code, too.
fn assert_checked(input: &[u8]) {
    let output = weir(&folder(), &["check", "-"], &[SECRET], input);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let errors = out.lines().filter(|line| line.contains(": error: ")).count();
    let input = input.escape_ascii();
    match output.status.code() {
        Some(0) => assert!(errors == 0 && out.contains(": no errors, ") && err.is_empty(), "{out}{err}\n{input}"),
        Some(1) => assert!(errors > 0 && !out.contains(": no errors, ") && err.is_empty(), "{out}{err}\n{input}"),
        code => {
            assert_eq!(
                (code, out.as_str(), err.as_str()),
                (Some(2), "", "error: <stdin>: is no text in UTF-8\n"),
                "{input}"
            );
        }
    }
}

/// The same of explain, which explains a policy or says what hinders it.
fn assert_explained(input: &[u8]) {
    let args = ["explain", "-", "--policy", "1", "--request", "GET /v1/x?a=1"];
    let output = weir(&folder(), &args, &[SECRET], input);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let input = input.escape_ascii();
    match output.status.code() {
        Some(0) => assert!(out.starts_with("GET /v1/x?a=1\n  policy ") && err.is_empty(), "{out}{err}\n{input}"),
        Some(1) => assert!(out.contains(": error: ") && err.is_empty(), "{out}{err}\n{input}"),
        code => {
            assert_eq!((code, out.as_str()), (Some(2), ""), "{input}");
            assert!(err.starts_with("error: "), "{err}\n{input}");
        }
    }
}

#[test]
fn a_damaged_file_is_answered_in_words_and_by_the_exit_code_that_says_the_same() {
    for input in damaged_files() {
        assert_checked(&input);
        assert_explained(&input);
    }
}
