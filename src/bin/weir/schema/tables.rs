//! The tables of docs/reference.md.

use super::json_of;
use super::ranges::{UNITS, of_tenths};
use weir::policy::Tree;
use weir::policy::language::{Case, Field, Object, POLICY, Presence, SOURCES, TEXTS, Text, Value};

/// Tables of every word, in Markdown: one for each object, folded.
pub fn tables() -> String {
    let mut objects = Vec::new();
    let mut names = Vec::new();
    collect(&POLICY, &mut objects, &mut names);
    let mut tables = String::new();
    for object in objects {
        if object.said.name == "limit_object" {
            tables += &folded("limits", "How much, by tier and class.", &forms(&names));
        }
        tables += &folded(object.said.place, object.said.doc, &table(object));
        if object.said.name == "rule" {
            let doc = "Who is limited: each item of the list is an object with one of these words.";
            tables += &folded("rules[].key[], rules[].tier.sources[]", doc, &sources());
        }
    }
    tables + &folded("texts", "What is written in words and has a form.", &forms_of_texts())
}

/// Every object from this one down, in the order in which they are first named, and every named value.
fn collect(
    object: &'static Object,
    objects: &mut Vec<&'static Object>,
    names: &mut Vec<(&'static str, &'static Value)>,
) {
    if objects.iter().any(|known| known.said.name == object.said.name) {
        return;
    }
    objects.push(object);
    for field in object.fields {
        collect_value(&field.value, objects, names);
    }
}

fn collect_value(
    value: &'static Value,
    objects: &mut Vec<&'static Object>,
    names: &mut Vec<(&'static str, &'static Value)>,
) {
    match value {
        Value::Object(object) => collect(object, objects, names),
        Value::List(list) => collect_value(&list.of, objects, names),
        Value::Map(kind) => collect_value(&kind.of, objects, names),
        Value::Either(values) => values.iter().for_each(|value| collect_value(value, objects, names)),
        Value::Named(named) if !names.iter().any(|(known, _)| *known == named.name) => {
            names.push((named.name, named.value));
            collect_value(named.value, objects, names);
        }
        _ => {}
    }
}

fn folded(place: &str, doc: &str, table: &str) -> String {
    let places: Vec<_> = place.split(", ").map(|place| format!("<code>{place}</code>")).collect();
    format!("<details><summary>{}: {doc}</summary>\n\n{table}\n</details>\n\n", places.join(", "))
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn head(cells: &[&str]) -> String {
    row(cells) + &row(&vec!["---"; cells.len()])
}

fn table(object: &Object) -> String {
    let mut table = head(&["field", "value", "default", "what it means"]);
    for field in object.fields {
        let (value, default) = (said(&field.value), default(object, field));
        table += &row(&[&code(field.word), &value, &default, &meaning(object, field, false)]);
    }
    table
}

/// What the values are that stand in several places.
fn forms(names: &[(&'static str, &'static Value)]) -> String {
    let mut table = head(&["", "is"]);
    for (name, value) in names {
        table += &row(&[&spaced(name), &said(value)]);
    }
    table
}

/// What texts have to be.
fn forms_of_texts() -> String {
    let mut table = head(&["", "write"]);
    for kind in TEXTS {
        table += &row(&[&spaced(kind.name), kind.wanted]);
    }
    table
}

/// The kinds of sources, and then their fields.
fn sources() -> String {
    let mut kinds = head(&["source", "main field", "also", "its value", "where there is none, or it is odd"]);
    let mut fields: Vec<(Vec<String>, Vec<&str>)> = Vec::new();
    for source in &SOURCES {
        let is_main = |field: &&Field| Some(field.word) == source.main;
        let also: Vec<_> =
            source.object.fields.iter().filter(|field| !is_main(field)).map(|field| code(field.word)).collect();
        let main = source.main.map(code).unwrap_or_default();
        kinds += &row(&[&code(source.word), &main, &also.join(" "), source.doc, source.odd]);
        for field in source.object.fields {
            let mut default = default(&source.object, field);
            if default == code(source.word) {
                default = "the source's word".to_owned();
            }
            let cells = vec![code(field.word), said(&field.value), default, meaning(&source.object, field, false)];
            match fields.iter_mut().find(|(known, _)| *known == cells) {
                Some((_, of)) => of.push(source.word),
                None => fields.push((cells, vec![source.word])),
            }
        }
    }
    let mut table = head(&["field", "of", "value", "default", "what it means"]);
    for (cells, of) in &fields {
        let of = if of.len() == SOURCES.len() { "all".to_owned() } else { of.join(", ") };
        if let [word, value, default, meaning] = cells.as_slice() {
            table += &row(&[word, &of, value, default, meaning]);
        }
    }
    format!("{kinds}\n{table}")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// What may stand somewhere, in words.
fn said(value: &Value) -> String {
    match value {
        Value::Boolean => "`true`, `false`".to_owned(),
        Value::True => "`true`".to_owned(),
        Value::Number(number) => code(&number.to_string()),
        Value::Integer((from, i64::MAX)) => format!("an integer from {from}"),
        Value::Integer((from, to)) => format!("{from} to {to}"),
        Value::Tenths(from, to) => said_tenths(i64::from(*from), i64::from(*to)),
        Value::Duration(from, to) => {
            format!("{} to {}", said_duration(u64::from(*from)), said_duration(u64::from(*to)))
        }
        Value::Seconds(from, to) => {
            let of = |seconds: &u32| said_duration(u64::from(*seconds).saturating_mul(1000));
            format!("{} to {}", of(from), of(to))
        }
        Value::Word(words) => words.iter().map(|term| code(term.word)).collect::<Vec<_>>().join(", "),
        Value::Text(kind) => said_text(kind),
        Value::Limit => "`requests/period` with s, m, h or d, such as `60/m`".to_owned(),
        Value::Object(object) if object.said.name == "limit_object" => "an object, as under `limit`".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::List(list) => format!("a list{}: {}", said_count(list.least, list.most), said(&list.of)),
        Value::Map(kind) => {
            let needs = kind.needs.map(|word| format!(", {} among them", code(word))).unwrap_or_default();
            format!(
                "an object{}{needs}: {} → {}",
                said_count(kind.least, kind.most),
                said_text(kind.keys),
                said(&kind.of)
            )
        }
        Value::Either(values) => values.iter().map(said).collect::<Vec<_>>().join(", or "),
        Value::Named(named) => format!("*{}*", spaced(named.name)),
        Value::Sources(_) => "a list of sources, not empty".to_owned(),
    }
}

fn said_text(kind: &Text) -> String {
    if kind.pattern.is_empty() { "a text".to_owned() } else { format!("*{}*", spaced(kind.name)) }
}

fn said_count(least: usize, most: usize) -> String {
    match (least, most) {
        (0, usize::MAX) => String::new(),
        (_, usize::MAX) => ", not empty".to_owned(),
        (least, most) if least == most => format!(" of {least}"),
        (least, most) => format!(" of {least} to {most}"),
    }
}

pub(super) fn said_tenths(from: i64, to: i64) -> String {
    format!("{} to {}", flow(&of_tenths(from)), flow(&of_tenths(to)))
}

pub(super) fn said_duration(ms: u64) -> String {
    let whole = UNITS.iter().rev().find(|(_, size)| ms.is_multiple_of(*size));
    whole.map(|(unit, size)| format!("{}{unit}", ms / size)).unwrap_or_default()
}

fn default(object: &Object, field: &Field) -> String {
    let needs = object.cases.iter().find(|case| case.needs.contains(&field.word));
    match (&field.presence, needs) {
        (_, Some(case)) => format!("needed with {}", said_case(case)),
        (Presence::Required(_), _) => "needed".to_owned(),
        (Presence::Optional(told), _) => told.0.to_owned(),
        (Presence::Default(json), _) => code(&flow(&json_of(json))),
        (Presence::Parts, _) => "that of its words".to_owned(),
    }
}

fn said_case(case: &Case) -> String {
    code(&format!("{}: {}", case.field, flow(&json_of(case.is))))
}

/// What a field means: its words, and where it may stand.
pub(super) fn meaning(object: &Object, field: &Field, with_default: bool) -> String {
    let mut meaning = field.doc.to_owned();
    let mut words = Vec::new();
    said_words(&field.value, &mut words);
    if !words.is_empty() {
        let words: Vec<_> = words.iter().map(|(word, means)| format!("{}: {means}", code(word))).collect();
        meaning += &format!(" {}.", words.join("; "));
    }
    let refusing: Vec<&Case> = object.cases.iter().filter(|case| case.refuses.contains(&field.word)).collect();
    let of_the_same = object.cases.iter().filter(|case| !case.refuses.contains(&field.word));
    let taking: Vec<&Case> = of_the_same.collect();
    match (refusing.as_slice(), taking.as_slice()) {
        ([], _) => {}
        ([_, _, ..], [taking]) => meaning += &format!(" Only with {}.", said_case(taking)),
        (refusing, _) => {
            let cases: Vec<_> = refusing.iter().map(|case| said_case(case)).collect();
            meaning += &format!(" Not with {}.", cases.join(", "));
        }
    }
    if let (true, Presence::Optional(told)) = (with_default, &field.presence)
        && !told.0.is_empty()
    {
        meaning += &match told.0.strip_prefix("needed") {
            Some(rest) => format!(" Needed{rest}."),
            None => format!(" Left out: {}.", told.0),
        };
    }
    meaning
}

fn said_words(value: &Value, words: &mut Vec<(&'static str, &'static str)>) {
    match value {
        Value::Word(of) => words.extend(of.iter().map(|term| (term.word, term.means))),
        Value::List(list) => said_words(&list.of, words),
        Value::Either(values) => values.iter().for_each(|value| said_words(value, words)),
        _ => {}
    }
}

/// A value as YAML writes it in a line.
fn flow(tree: &Tree) -> String {
    match tree {
        Tree::Null => "~".to_owned(),
        Tree::Bool(value) => value.to_string(),
        Tree::Int(value) => value.to_string(),
        Tree::Float(value) => value.to_string(),
        Tree::Text(text) if text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter)) => {
            text.clone()
        }
        Tree::Text(text) => format!("'{text}'"),
        Tree::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Tree::Map(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}: {}", flow(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}
