//! What an object needs, and what has no meaning in it, is so for the decoder and the schema alike.

use std::collections::{BTreeMap, BTreeSet};

use weir::policy::Tree;
use weir::policy::language::{Presence, Value};

use crate::policies::WORDS;
use crate::sites::{Sites, Step, at, json, objects, replaced, with};
use crate::{Schema, decode, good, yaml};

#[test]
fn what_is_required_is_refused_without_and_what_is_optional_is_not() {
    let schema = Schema::made();
    let mut fields = BTreeSet::new();
    for (name, tree) in good() {
        for (path, object) in Sites::of(&tree).objects {
            for field in object.fields {
                let without = with(&tree, &path, field.word, None);
                if without == tree {
                    continue;
                }
                let is_taken = schema.takes(&without);
                match decode(&without) {
                    Ok(_) => {
                        assert!(is_taken, "{name}, {path:?}, {}: {:#?}", field.word, schema.against(&without));
                        let is_required = matches!(field.presence, Presence::Required(_));
                        assert!(!is_required, "{name}, {path:?}: {} is not required", field.word);
                        fields.insert((object.said.name, field.word));
                    }
                    Err(_) if matches!(field.presence, Presence::Required(_)) => {
                        assert!(!is_taken, "{name}, {path:?}: {} is required", field.word);
                        fields.insert((object.said.name, field.word));
                    }
                    Err(_) => {}
                }
            }
        }
    }
    // What cannot be left out alone, or stands in a module of another build.
    let needs_another = [
        ("client_ip", "peer_appended"),
        ("client_ip", "trusted_hops"),
        ("match", "path_regex"),
        ("observe", "secret_env"),
        ("policy", "hash_secret_env"),
        ("policy", "proxies"),
        ("route_metadata", "exact"),
        ("route_metadata", "present"),
        ("value", "exact"),
        ("value", "present"),
    ];
    assert_eq!(every_field().difference(&fields).copied().collect::<Vec<_>>(), needs_another);
}

fn every_field() -> BTreeSet<(&'static str, &'static str)> {
    objects().iter().flat_map(|object| object.fields.iter().map(|field| (object.said.name, field.word))).collect()
}

#[test]
fn each_word_of_a_closed_set_is_taken_somewhere() {
    let schema = Schema::made();
    let mut taken: BTreeMap<(String, &str), bool> = BTreeMap::new();
    for text in WORDS {
        let tree = yaml(text);
        for (path, value) in Sites::of(&tree).values {
            let Value::Word(terms) = value else {
                continue;
            };
            let key = path.iter().rev().find_map(|step| match step {
                Step::Key(key) => Some(key.clone()),
                Step::Item(_) => None,
            });
            for term in *terms {
                let tree = replaced(&tree, &path, Tree::Text(term.word.to_owned()));
                let (is_decoded, is_valid) = (decode(&tree).is_ok(), schema.takes(&tree));
                assert!(is_valid || !is_decoded, "{path:?}: {}: {:#?}", term.word, schema.against(&tree));
                *taken.entry((key.clone().expect("a key"), term.word)).or_default() |= is_decoded && is_valid;
            }
        }
    }
    assert!(taken.len() >= 30, "{}", taken.len());
    let never: Vec<_> = taken.into_iter().filter(|(_, taken)| !taken).map(|(word, _)| word).collect();
    // It needs two words more, so it cannot stand alone.
    assert_eq!(never, [("client_ip".to_owned(), "x_forwarded_for")]);
}

#[test]
fn a_word_in_the_wrong_place_is_refused_by_both() {
    let schema = Schema::made();
    // A value that stands somewhere for each field.
    let trees: Vec<Tree> = WORDS.iter().map(|text| yaml(text)).collect();
    let mut values: BTreeMap<(&str, &str), Tree> = BTreeMap::new();
    for tree in &trees {
        for (path, object) in Sites::of(tree).objects {
            if let Tree::Map(pairs) = at(&mut tree.clone(), &path) {
                for (key, value) in pairs {
                    let word = object.fields.iter().find(|field| field.word == key).expect("a field").word;
                    values.insert((object.said.name, word), value.clone());
                }
            }
        }
    }
    let mut looked_at = 0;
    for tree in &trees {
        for (path, object) in Sites::of(tree).objects {
            for case in object.cases {
                // As the case is, with what it needs and without what it refuses.
                let mut right = with(tree, &path, case.field, Some(json(case.is)));
                for field in object.fields.iter().filter(|field| field.word != case.field) {
                    let is_needed = case.needs.contains(&field.word) || matches!(field.presence, Presence::Required(_));
                    if case.refuses.contains(&field.word)
                        || object.cases.iter().any(|other| other.refuses.contains(&field.word) && !is_needed)
                    {
                        right = with(&right, &path, field.word, None);
                    } else if is_needed {
                        right = with(&right, &path, field.word, values.get(&(object.said.name, field.word)).cloned());
                    }
                }
                if decode(&right).is_err() {
                    continue;
                }
                assert!(schema.takes(&right), "{path:?}, {}: {:#?}", case.is, schema.against(&right));
                for word in case.refuses {
                    let wrong = with(&right, &path, word, values.get(&(object.said.name, word)).cloned());
                    assert_ne!(wrong, right, "{path:?}, {word}");
                    assert!(decode(&wrong).is_err(), "{path:?}, {}: {word} is decoded", case.is);
                    assert!(!schema.takes(&wrong), "{path:?}, {}: {word} is valid", case.is);
                    looked_at += 1;
                }
                for word in case.needs {
                    let wrong = with(&right, &path, word, None);
                    assert!(decode(&wrong).is_err(), "{path:?}, {}: without {word} it is decoded", case.is);
                    assert!(!schema.takes(&wrong), "{path:?}, {}: without {word} it is valid", case.is);
                    looked_at += 1;
                }
            }
        }
    }
    assert!(looked_at >= 20, "{looked_at}");
}
