//! What is wrong with bad policies, word for word, and what a log is not told.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use weir::policy::{Policy, Tree};

use crate::{ENVIRONMENT, POLICIES, decode, files, good};

#[test]
fn every_bad_policy_is_refused_with_exactly_these_messages() {
    #[expect(clippy::disallowed_methods, reason = "a test is no core")]
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let mut policies = files("bad", &["yaml", "json"]);
    if cfg!(feature = "regex") {
        policies.retain(|path| !path.ends_with("path_regex_without_the_feature.yaml"));
    }
    assert!(policies.len() >= 60, "{}", policies.len());
    for path in policies {
        let Err(problems) = decode(&path) else {
            wrong.push(format!("{}: is accepted", path.display()));
            continue;
        };
        assert!(!problems.is_empty(), "{}: is refused without a word", path.display());
        let mut told = String::new();
        for problem in &problems {
            told += &format!("{}\n", problem.for_people());
        }
        told += "--- log\n";
        for problem in &problems {
            told += &format!("{}\n", problem.for_log());
        }
        let text = path.with_extension("txt");
        if bless {
            fs::write(&text, &told).expect("a writable folder");
        }
        match fs::read_to_string(&text) {
            Ok(wanted) if wanted == told => {}
            Ok(wanted) => wrong.push(format!("{}\nwanted:\n{wanted}told:\n{told}", text.display())),
            Err(_) => wrong.push(format!("{} is missing; told:\n{told}", text.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_pairs();
}

/// Each bad policy has its file of messages, and each such file its policy.
fn assert_pairs() {
    let stems = |extensions: &[&str]| -> Vec<String> {
        let stem = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
        files("bad", extensions).iter().map(stem).collect()
    };
    let policies = stems(&["yaml", "json"]);
    let messages = stems(&["txt"]);
    let alone: Vec<_> = messages.iter().filter(|name| !policies.contains(name)).collect();
    assert!(alone.is_empty(), "messages without a policy: {alone:?}");
    let alone: Vec<_> = policies.iter().filter(|name| !messages.contains(name)).collect();
    assert!(alone.is_empty(), "policies without messages: {alone:?}");
    assert_eq!(policies.iter().collect::<BTreeSet<_>>().len(), policies.len(), "a name stands for two policies");
    let all = fs::read_dir(format!("{POLICIES}/bad")).expect("the folder is there").count();
    assert_eq!(all, policies.len() + messages.len(), "a file is neither a policy nor its messages");
}

/// Puts `marker` in place of the text or key that is the `nth` of a tree; false where there are fewer.
fn mark(tree: &mut Tree, nth: &mut usize, marker: &str) -> bool {
    let mut mark_text = |text: &mut String| {
        let found = *nth == 0;
        if found {
            *text = marker.to_owned();
        }
        *nth = nth.wrapping_sub(1);
        found
    };
    match tree {
        Tree::Text(text) => mark_text(text),
        Tree::List(items) => items.iter_mut().any(|item| mark(item, nth, marker)),
        Tree::Map(pairs) => pairs.iter_mut().any(|(key, value)| {
            let mut mark_key = |key: &mut String| {
                let found = *nth == 0;
                if found {
                    *key = marker.to_owned();
                }
                *nth = nth.wrapping_sub(1);
                found
            };
            mark_key(key) || mark(value, nth, marker)
        }),
        Tree::Null | Tree::Bool(_) | Tree::Int(_) | Tree::Float(_) => false,
    }
}

#[test]
fn no_text_and_no_key_of_a_user_is_told_to_a_log() {
    // No name, a name, a tenant, the value of no secret, a path, and a limit that is too long to be told.
    let markers = [
        "Marker Of A User",
        "marker-of-a-user",
        "user.marker-of-a-user",
        "/marker-of-a-user/*",
        "1/markerofauseralone",
    ];
    let mut decoded = 0;
    for path in files("bad", &["yaml", "json"]).into_iter().chain(files("good", &["yaml"])) {
        let text = fs::read_to_string(&path).expect("a readable policy");
        let Ok(whole) = serde_saphyr::from_str::<Tree>(&text) else {
            continue;
        };
        for marker in markers {
            for nth in 0.. {
                let mut tree = whole.clone();
                if !mark(&mut tree, &mut nth.clone(), marker) {
                    break;
                }
                decoded += 1;
                for problem in Policy::from_tree(&tree, ENVIRONMENT).err().unwrap_or_default() {
                    let told = problem.for_log().to_string();
                    assert!(!told.to_lowercase().contains("marker"), "{}, text {nth}: {told}", path.display());
                }
            }
        }
    }
    assert!(decoded > 5_000, "{decoded}");
}

#[test]
fn no_value_of_a_secret_is_told_to_anybody() {
    for path in files("bad", &["yaml", "json"]) {
        for problem in decode(&path).err().unwrap_or_default() {
            for told in [problem.for_people().to_string(), problem.for_log().to_string()] {
                assert!(!told.contains("hunter2"), "{}: {told}", path.display());
            }
        }
    }
    let policy = format!("{:?}", good("everything"));
    assert!(!policy.contains("\"secret\""), "{policy}");
}
