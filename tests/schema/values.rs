//! What the schema says of numbers, durations and texts is what the decoder takes: expressions stand there for what it
//! reckons.

use std::collections::{BTreeMap, BTreeSet};

use weir::policy::Tree;
use weir::policy::language::{Text, Value};

use crate::policies::WORDS;
use crate::sites::{Sites, Step, renamed, replaced, with};
use crate::{Schema, decode, yaml};

/// What stands at the bounds of a value, and next beyond them.
fn bounds(value: &Value) -> Option<(Vec<Tree>, Vec<Tree>)> {
    let text = |text: String| Tree::Text(text);
    Some(match value {
        Value::Integer((from, i64::MAX)) => (vec![Tree::Int(*from)], vec![Tree::Int(from - 1)]),
        Value::Integer((from, to)) => {
            (vec![Tree::Int(*from), Tree::Int(*to)], vec![Tree::Int(from - 1), Tree::Int(to + 1), Tree::Float(1.5)])
        }
        Value::Number(number) => {
            let number = i64::from(*number);
            (vec![Tree::Int(number)], vec![Tree::Int(number - 1), Tree::Int(number + 1)])
        }
        Value::Tenths(from, to) => {
            let (from, to) = (f64::from(*from) / 10.0, f64::from(*to) / 10.0);
            let texts = [from, to, (from + to) / 2.0].map(|part| text(part.to_string()));
            let beyond = [from - 0.0001, to + 0.0001];
            let numbers = [Tree::Float(from), Tree::Float(to)].into_iter().chain(texts).collect();
            let others = beyond.map(Tree::Float).into_iter().chain(beyond.map(|part| text(format!("{part:.4}"))));
            (numbers, others.chain([text(".".to_owned()), text("0.5%".to_owned())]).collect())
        }
        Value::Duration(from, to) => durations(u64::from(*from), u64::from(*to), 1),
        Value::Seconds(from, to) => durations(u64::from(*from) * 1000, u64::from(*to) * 1000, 1000),
        _ => return None,
    })
}

/// Durations in every unit. Between whole seconds nothing is taken where they are wanted.
fn durations(from: u64, to: u64, step: u64) -> (Vec<Tree>, Vec<Tree>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for (unit, size) in [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)] {
        let jump = (step / size).max(1);
        let (least, most) = (from.div_ceil(size).next_multiple_of(jump), to / size / jump * jump);
        let tell = |number: u64| Tree::Text(format!("{number}{unit}"));
        if least <= most {
            let middle = (least + most) / 2 / jump * jump;
            inside.extend([least, most, middle, least + (most - least) / jump / 7 * jump].map(tell));
            inside.push(Tree::Text(format!("00{most}{unit}")));
        }
        if jump > 1 {
            outside.extend([least + 1, most - 1].map(tell));
        }
        outside.extend([least.saturating_sub(jump), most + jump].map(tell));
        outside
            .extend([format!("{least} {unit}"), format!("-{least}{unit}"), format!("{least}.0{unit}")].map(Tree::Text));
    }
    outside.extend(["", "1", "1w", "1us", "s", "99999999999999999999s"].map(|text| Tree::Text(text.to_owned())));
    (inside, outside)
}

#[test]
fn each_bound_is_kept_by_decoder_and_schema_alike() {
    let schema = Schema::made();
    // Which values have been taken somewhere: elsewhere another word may speak against them.
    let mut taken: BTreeMap<String, bool> = BTreeMap::new();
    for text in WORDS {
        let tree = yaml(text);
        for (path, value) in Sites::of(&tree).values {
            let Some((inside, outside)) = bounds(value) else {
                continue;
            };
            let Some(Step::Key(word)) = path.last() else { panic!("{path:?}") };
            for bound in inside {
                let tree = replaced(&tree, &path, bound.clone());
                let (is_decoded, is_valid) = (decode(&tree).is_ok(), schema.takes(&tree));
                assert!(is_valid || !is_decoded, "{path:?}: {bound:?}: {:#?}", schema.against(&tree));
                *taken.entry(format!("{word}: {bound:?}")).or_default() |= is_decoded && is_valid;
            }
            for beyond in outside {
                let tree = replaced(&tree, &path, beyond.clone());
                assert!(decode(&tree).is_err(), "{path:?}: {beyond:?} is decoded");
                assert!(!schema.takes(&tree), "{path:?}: {beyond:?} is valid");
            }
        }
    }
    assert!(taken.len() >= 100, "{}", taken.len());
    let never: Vec<_> = taken.iter().filter(|(_, taken)| !**taken).collect();
    assert!(never.is_empty(), "{never:#?}");
}

#[test]
fn each_limit_is_as_large_as_both_say() {
    let schema = Schema::made();
    let tree = yaml(WORDS[1]);
    let rule = [Step::Key("rules".to_owned()), Step::Item(0)];
    for mode in ["exact", "lease"] {
        let least = if mode == "lease" { 2 } else { 1 };
        let tree = with(&tree, &rule, "mode", Some(Tree::Text(mode.to_owned())));
        for (unit, ms) in [("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000_u64)] {
            for (burst, is_taken) in [(0, false), (least - 1, false), (least, true)] {
                for text in [
                    format!("{{requests: {burst}, per: 1{unit}}}"),
                    format!("{{requests: 5, per: 1{unit}, burst: {burst}}}"),
                    format!("{{default: {{requests: {burst}, per: 1{unit}}}}}"),
                    format!("{{default: {{default: [5/s, {{requests: {burst}, per: 2{unit}}}]}}}}"),
                ] {
                    let tree = with(&tree, &rule, "limits", Some(yaml(&text)));
                    assert_eq!((decode(&tree).is_ok(), schema.takes(&tree)), (is_taken, is_taken), "{mode}, {text}");
                }
            }
            let most = ((1 << 53) - 1) / ms;
            for (requests, is_taken) in [(0, false), (least - 1, false), (least, true), (most, true), (most + 1, false)]
            {
                for text in [format!("{requests}/{unit}"), format!("0{requests}/{unit}")] {
                    let tree = with(&tree, &rule, "limits", Some(Tree::Text(text.clone())));
                    assert_eq!((decode(&tree).is_ok(), schema.takes(&tree)), (is_taken, is_taken), "{mode}, {text}");
                }
            }
        }
    }
}

/// Texts of every kind, good and bad.
const TEXTS: [&str; 92] = [
    "",
    " ",
    "a",
    "A",
    "z9",
    "_-0",
    "a b",
    " a",
    "a ",
    "é",
    "a\n",
    "\u{0}",
    "a\u{0}b",
    "1",
    "1A",
    "A1",
    "_A",
    "A-B",
    "default",
    "none",
    "requests",
    "per",
    "burst",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "GET",
    "get",
    "M-SEARCH",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "x-user-id",
    "X-User-Id",
    ":path",
    "a:b",
    "a,b",
    "!#$%&'*+-.^_`|~",
    "text/plain; charset=utf-8",
    "\"a\"",
    "a\tb",
    "/",
    "//",
    "/a",
    "/a/",
    "//a",
    "/a//b",
    "a/b",
    "/a/b/",
    "/.",
    "/..",
    "/...",
    "/.a",
    "/..a",
    "/a/../b",
    "/a/./b",
    "/a/..",
    "/a?b",
    "/a#b",
    "/a b",
    "/é",
    "/%7e",
    "/%7E",
    "/%7B",
    "/%2F",
    "/%2f",
    "/%2D",
    "/%41",
    "/%00",
    "/%0A",
    "/%C3%A9",
    "/%",
    "/%zz",
    "/a%3A",
    "/a:@!$&'()+,;=-._~",
    "/[",
    "/a|b",
    "/{a}",
    "/{a_1}/b",
    "/{}",
    "/{a-b}",
    "/a{b}",
    "/**",
    "/a/**",
    "//**",
    "/a/**/b",
    "/*",
    "/a*",
    "*.a.b",
    "*",
    "a.b.",
    "a.b:80",
    "[::1]",
    "[",
];

#[test]
fn each_kind_of_text_is_read_by_decoder_and_schema_alike() {
    let schema = Schema::made();
    // Where a name has to stand elsewhere, too, the decoder refuses more: for each kind there is a place where it
    // does not.
    let mut differing: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut probe = |kind: &'static Text, place: &str, of: &dyn Fn(&str) -> Tree| {
        let mut differs = BTreeSet::new();
        for text in TEXTS.iter().chain(&["none.a", "none.A", "user.a", "user.", "user", "none."]) {
            let tree = of(text);
            let (is_decoded, is_valid) = (decode(&tree).is_ok(), schema.takes(&tree));
            assert!(is_valid || !is_decoded, "{place}: {text:?} is decoded: {:#?}", schema.against(&tree));
            if is_decoded != is_valid {
                differs.insert((*text).to_owned());
            }
        }
        let known = differing.entry(kind.name).or_insert_with(|| differs.clone());
        known.retain(|text| differs.contains(text));
    };
    for text in WORDS {
        let tree = yaml(text);
        let sites = Sites::of(&tree);
        for (path, value) in &sites.values {
            if let Value::Text(kind) = value {
                probe(kind, &format!("{path:?}"), &|text| replaced(&tree, path, Tree::Text(text.to_owned())));
            }
        }
        for (path, kind) in &sites.keys {
            probe(kind, &format!("{path:?}"), &|text| renamed(&tree, path, text));
        }
    }
    let differing: BTreeMap<_, _> = differing.into_iter().filter(|(_, texts)| !texts.is_empty()).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}
