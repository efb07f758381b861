//! Many classes are found as if they were tried one after the other.

use std::collections::BTreeSet;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::path::Pattern;
use weir::policy::ClassId;
use weir::request::{Class, classify};
use weir::trie::Trie;

use crate::made::{Random, Sent, policy_of, rounds};

#[wasm_bindgen_test(unsupported = test)]
fn a_trie_finds_what_each_pattern_matches() {
    let mut random = Random::seeded(11);
    let parts = ["/a", "/b", "/ab", "/{x}", "/{y}", "/c"];
    for _ in 0..rounds(2_000) {
        let mut patterns = Vec::new();
        let mut trie = Trie::default();
        for number in 0..random.below(20) as usize {
            let mut text = random.joined(&parts, 4);
            text += random.pick(&["", "", "/**", "/"]);
            if let Ok(pattern) = Pattern::parse(&text) {
                trie.add(&pattern, number);
                patterns.push((number, pattern));
            }
        }
        for _ in 0..20 {
            // No normal form is empty.
            let path =
                random.pick(&["/", "*", "/a"]).to_owned() + &random.joined(&["/a", "/b", "/ab", "/c", "/d", "/"], 4);
            let wanted: Vec<usize> =
                patterns.iter().filter(|(_, pattern)| pattern.matches(&path)).map(|(number, _)| *number).collect();
            assert_eq!(trie.find(&path), wanted, "{path} {patterns:?}");
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_first_class_wins_and_no_value_is_read_that_a_list_would_not_read() {
    let mut random = Random::seeded(12);
    for _ in 0..rounds(1_000) {
        let mut classes = Vec::new();
        for _ in 0..random.below(8) {
            let methods = random.pick(&[None, None, Some("GET"), Some("POST")]);
            let path = random.pick(&[None, Some("/a"), Some("/{x}"), Some("/**"), Some("/a/b")]);
            let header = random.pick(&[None, None, Some("x-a"), Some("x-b")]);
            if methods.is_some() || path.is_some() || header.is_some() {
                classes.push((methods, path, header));
            }
        }
        let written: Vec<String> = classes
            .iter()
            .enumerate()
            .map(|(number, (method, path, header))| {
                let mut fields = Vec::new();
                fields.extend(method.map(|method| format!(r#""methods": ["{method}"]"#)));
                fields.extend(path.map(|path| format!(r#""path": "{path}""#)));
                fields.extend(header.map(|header| format!(r#""headers": {{"{header}": {{"present": true}}}}"#)));
                format!(r#"{{"class": "c{number}", "match": {{{}}}}}"#, fields.join(", "))
            })
            .collect();
        let policy = policy_of(
            r#"[{"constant": "all"}]"#,
            r#""60/m""#,
            "",
            &format!(r#", "classes": [{}]"#, written.join(", ")),
        );
        for _ in 0..8 {
            let method = random.pick(&["GET", "POST", "PUT"]);
            let path = random.pick(&["/", "/a", "/b", "/a/b", "/%", "*"]);
            let header = random.pick(&["x-a", "x-b", "x-c"]);
            let sent = Sent::to(method, path, &[(header, "1")]);
            let found = classify(&policy.classes, &sent);
            // One after the other.
            let mut read: Vec<&str> = Vec::new();
            let mut note = |name| {
                if !read.contains(&name) {
                    read.push(name);
                }
            };
            let mut wanted = Ok(Class::Charged(ClassId(0), 1));
            for (number, (wanted_method, wanted_path, wanted_header)) in classes.iter().enumerate() {
                if let Some(wanted) = wanted_method {
                    note(":method");
                    if *wanted != method {
                        continue;
                    }
                }
                if let Some(wanted_path) = wanted_path {
                    note(":path");
                    if path == "/%" {
                        wanted = Err(weir::path::Malformed);
                        break;
                    }
                    if !Pattern::parse(wanted_path).expect("a pattern").matches(path) {
                        continue;
                    }
                }
                if let Some(wanted) = wanted_header {
                    note(*wanted);
                    if *wanted != header {
                        continue;
                    }
                }
                wanted = Ok(Class::Charged(ClassId(number + 1), 1));
                break;
            }
            assert_eq!(found, wanted, "{method} {path} {header} {written:?}");
            // Paths that do not match ask for nothing more, so it may be less.
            let told = sent.read();
            assert!(
                told.iter().all(|name| read.contains(&name.as_str())),
                "{told:?} {read:?} {method} {path} {header} {written:?}"
            );
            assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), told.len(), "{told:?}");
        }
    }
}
