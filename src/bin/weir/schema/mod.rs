//! The JSON Schema of a policy, and the tables of its words, both made from [`weir::policy::language`].
//!
//! What a schema cannot say is left to the decoder: names that must stand elsewhere, costs that must fit a burst, and
//! most of what may be trusted. It refuses no policy that the decoder takes, but for fractions that are written as
//! texts with an exponent or a sign, and for `all` inside `all` of a tier.

mod across;
mod ranges;
mod tables;

use ranges::{duration, limit_pattern, of_tenths, tenths_pattern};
pub use tables::tables;
use tables::{meaning, said_tenths};

use weir::policy::Tree;
use weir::policy::language::{Case, Choice, Field, Map, Object, POLICY, Place, Presence, SOURCES, Source, Text, Value};

/// The schema, draft 2020-12, indented.
pub fn json() -> String {
    let mut defs = Defs::default();
    let mut schema =
        vec![("$schema", text("https://json-schema.org/draft/2020-12/schema")), ("title", text("A policy of weir"))];
    schema.extend(defs.object(&POLICY));
    schema.push(("$defs", Tree::Map(defs.0)));
    let mut json = serde_json::to_string_pretty(&map(schema)).unwrap_or_default();
    json.push('\n');
    json
}

/// Keywords and their values.
type Keywords = Vec<(&'static str, Tree)>;

fn text(text: impl Into<String>) -> Tree {
    Tree::Text(text.into())
}

fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Tree {
    Tree::List(texts.into_iter().map(text).collect())
}

fn map<K: Into<String>>(pairs: impl IntoIterator<Item = (K, Tree)>) -> Tree {
    Tree::Map(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn integer(count: usize) -> Tree {
    Tree::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn json_of(text: &str) -> Tree {
    Tree::from_json(text.as_bytes()).unwrap_or(Tree::Null)
}

fn reference(name: &str) -> Tree {
    text(format!("#/$defs/{name}"))
}

fn refers(name: &str) -> Tree {
    map([("$ref", reference(name))])
}

/// The definitions that the schema has so far, in the order in which they are first named.
#[derive(Default)]
struct Defs(Vec<(String, Tree)>);

impl Defs {
    /// A reference to a definition, which is made when it is named for the first time.
    fn named(&mut self, name: &str, make: impl FnOnce(&mut Defs) -> Keywords) -> Keywords {
        if !self.0.iter().any(|(known, _)| known == name) {
            let place = self.0.len();
            self.0.push((name.to_owned(), Tree::Null));
            let made = map(make(self));
            if let Some((_, definition)) = self.0.get_mut(place) {
                *definition = made;
            }
        }
        vec![("$ref", reference(name))]
    }

    fn object(&mut self, object: &'static Object) -> Keywords {
        let mut keywords = vec![("type", text("object"))];
        if !object.said.doc.is_empty() {
            keywords.push(("description", text(object.said.doc)));
        }
        let properties: Vec<_> =
            object.fields.iter().map(|field| (field.word, map(self.field(object, field)))).collect();
        keywords.push(("properties", map(properties)));
        let is_required = |field: &&Field| matches!(field.presence, Presence::Required(_));
        let is_refused = |word: &str| object.cases.iter().any(|case| case.refuses.contains(&word));
        let required = object.fields.iter().filter(is_required).map(|field| field.word);
        let required: Vec<_> = required.filter(|word| !is_refused(word)).collect();
        if !required.is_empty() {
            keywords.push(("required", texts(required)));
        }
        keywords.push(("additionalProperties", Tree::Bool(false)));
        match object.choice {
            Choice::Free => {}
            Choice::Some => keywords.push(("minProperties", Tree::Int(1))),
            Choice::SomeNotBoth(one, other) => {
                keywords.push(("minProperties", Tree::Int(1)));
                keywords.push(("not", needs([one, other])));
            }
            Choice::One(one, other) => {
                keywords.push(("oneOf", Tree::List(vec![needs([one]), needs([other])])));
            }
        }
        let mut all: Vec<Tree> = object.cases.iter().map(|case| conditional(object, case)).collect();
        all.extend(self.across(object));
        if !all.is_empty() {
            keywords.extend(all_of(all));
        }
        keywords
    }

    fn field(&mut self, object: &'static Object, field: &'static Field) -> Keywords {
        let mut keywords = self.value(&field.value);
        // What is said of the field wins over what is said of its kind.
        keywords.retain(|(keyword, _)| *keyword != "description");
        keywords.insert(0, ("description", text(meaning(object, field, true))));
        if let Presence::Default(json) = field.presence {
            keywords.push(("default", json_of(json)));
        }
        if !field.examples.is_empty() {
            keywords.push(("examples", Tree::List(field.examples.iter().map(|json| json_of(json)).collect())));
        }
        keywords
    }

    fn value(&mut self, value: &'static Value) -> Keywords {
        match value {
            Value::Boolean => vec![("type", text("boolean"))],
            Value::True => vec![("const", Tree::Bool(true))],
            Value::Number(number) => vec![("const", Tree::Int(i64::from(*number)))],
            Value::Integer((from, to)) => {
                let mut keywords = vec![("type", text("integer")), ("minimum", Tree::Int(*from))];
                if *to < i64::MAX {
                    keywords.push(("maximum", Tree::Int(*to)));
                }
                keywords
            }
            Value::Tenths(from, to) => {
                let (from, to) = (&i64::from(*from), &i64::from(*to));
                let number = [("type", text("number")), ("minimum", of_tenths(*from)), ("maximum", of_tenths(*to))];
                let wanted = format!("write a number from {}", said_tenths(*from, *to));
                any_of([map(number), map(patterned(tenths_pattern(*from, *to), wanted))])
            }
            Value::Duration(from, to) => duration(u64::from(*from), u64::from(*to), "one integer and ms, s, m, h or d"),
            Value::Seconds(from, to) => duration(
                u64::from(*from).saturating_mul(1000),
                u64::from(*to).saturating_mul(1000),
                "one integer and s, m, h or d",
            ),
            Value::Word(words) => vec![("enum", texts(words.iter().map(|term| term.word)))],
            Value::Text(kind) if kind.pattern.is_empty() => vec![("type", text("string"))],
            Value::Text(kind) => self.named(kind.name, |_| text_of(kind)),
            Value::Limit => {
                let wanted = "write requests/period with s, m, h or d, such as 10/m".to_owned();
                let mut keywords = patterned(limit_pattern(), wanted);
                keywords.push(("examples", texts(["60/m"])));
                keywords
            }
            Value::Object(object) => self.named(object.said.name, |defs| defs.object(object)),
            Value::List(list) => {
                let mut keywords = vec![("type", text("array")), ("items", map(self.value(&list.of)))];
                bounds(&mut keywords, "minItems", list.least, "maxItems", list.most);
                keywords
            }
            Value::Map(kind) => self.map_of(kind),
            Value::Either(values) => any_of(values.iter().map(|value| map(self.value(value))).collect::<Vec<_>>()),
            Value::Named(named) => self.named(named.name, |defs| defs.value(named.value)),
            Value::Sources(place) => {
                let item = self.source(*place);
                vec![("type", text("array")), ("items", map(item)), ("minItems", Tree::Int(1))]
            }
        }
    }

    fn map_of(&mut self, kind: &'static Map) -> Keywords {
        let mut keywords = vec![("type", text("object"))];
        if !kind.keys.pattern.is_empty() {
            let keys = self.named(kind.keys.name, |_| text_of(kind.keys));
            keywords.push(("propertyNames", map(keys)));
        }
        let of = map(self.value(&kind.of));
        if let Some(word) = kind.needs {
            keywords.push(("properties", map([(word, of.clone())])));
            keywords.push(("required", texts([word])));
        }
        keywords.push(("additionalProperties", of));
        bounds(&mut keywords, "minProperties", kind.least, "maxProperties", kind.most);
        keywords
    }

    /// An item of a list of sources.
    fn source(&mut self, place: Place) -> Keywords {
        match place {
            Place::Key => self.named("source", |defs| {
                let kinds: Vec<_> = SOURCES.iter().map(|source| (source.word, map(defs.kind(source)))).collect();
                vec![
                    ("type", text("object")),
                    ("description", text("A source of the tenant's name.")),
                    ("properties", map(kinds)),
                    ("additionalProperties", Tree::Bool(false)),
                    ("minProperties", Tree::Int(1)),
                    ("maxProperties", Tree::Int(1)),
                ]
            }),
            // Several in one have one label, and do not stand in another one.
            Place::Part => self.named("part_source", |defs| {
                let mut keywords = defs.source(Place::Key);
                keywords.push(("properties", map([("all", Tree::Bool(false))])));
                keywords.push(("additionalProperties", without(&["as"])));
                keywords
            }),
            // Tiers are no tenants: they have no label and are not hashed.
            Place::Tier => self.named("tier_source", |defs| {
                let plain = || of_field("secret", constant(Tree::Bool(false)));
                let parts = map(in_all(map([("additionalProperties", plain())])));
                let mut keywords = all_of([map(defs.source(Place::Key)), map(defs.trusted())]);
                keywords.push(("properties", map([("all", map(all_of([parts, without(&["as"])])))])));
                keywords.push(("additionalProperties", map(all_of([plain(), without(&["as"])]))));
                keywords
            }),
        }
    }

    /// One kind of source: an object, or its main field alone.
    fn kind(&mut self, source: &'static Source) -> Keywords {
        let object = self.named(&format!("{}_source", source.word), |defs| defs.object(&source.object));
        let mut keywords = match short(source) {
            Some(Short::Words(words)) => any_of([map([("enum", texts(words))]), map(object)]),
            Some(Short::Value(value)) => any_of([map(self.value(value)), map(object)]),
            None => object,
        };
        let is_odd = if source.odd.is_empty() { String::new() } else { format!(" ({})", source.odd) };
        keywords.insert(0, ("description", text(format!("Its value: {}{is_odd}.", source.doc))));
        keywords
    }

    /// A source whose value no client can make up.
    fn trusted(&mut self) -> Keywords {
        self.named("trusted_source", |_| {
            let by_nature = SOURCES.iter().filter(|source| source.is_trusted);
            let kinds = by_nature.map(|source| match source.word {
                "all" => ("all", map(in_all(refers("trusted_source")))),
                word => (word, Tree::Bool(true)),
            });
            let wanted = "write trusted: true if something before weir sets or checks this value, or add a rule keyed \
                          by client_ip or constant";
            let trusted = vec![
                ("type", text("object")),
                ("errorMessage", text(wanted)),
                ("properties", map([("trusted", constant(Tree::Bool(true)))])),
                ("required", texts(["trusted"])),
            ];
            vec![("properties", map(kinds)), ("additionalProperties", map(trusted))]
        })
    }
}

fn any_of(choices: impl IntoIterator<Item = Tree>) -> Keywords {
    vec![("anyOf", Tree::List(choices.into_iter().collect()))]
}

fn all_of(schemas: impl IntoIterator<Item = Tree>) -> Keywords {
    vec![("allOf", Tree::List(schemas.into_iter().collect()))]
}

fn constant(value: Tree) -> Tree {
    map([("const", value)])
}

fn needs<'w>(words: impl IntoIterator<Item = &'w str>) -> Tree {
    map([("required", texts(words))])
}

/// Holds of an object whose field is like this, or is left out.
fn of_field(word: &str, of: Tree) -> Tree {
    map([("properties", map([(word, of)]))])
}

/// Holds of an object whose field is there and like this.
fn has(word: &str, of: Tree) -> Tree {
    map([("properties", map([(word, of)])), ("required", texts([word]))])
}

/// Holds of the sources of `all`, in either spelling.
fn in_all(items: Tree) -> Keywords {
    let sources = map([("items", items.clone())]);
    vec![("items", items), ("properties", map([("sources", sources)]))]
}

/// An object, if it is one, without these fields.
fn without(words: &[&str]) -> Tree {
    map([("properties", map(words.iter().map(|word| (*word, Tree::Bool(false)))))])
}

/// What a bare value of a source may be.
enum Short {
    Words(Vec<&'static str>),
    Value(&'static Value),
}

fn short(source: &'static Source) -> Option<Short> {
    let main = source.object.fields.iter().find(|field| Some(field.word) == source.main)?;
    Some(match &main.value {
        // A word that needs another field cannot stand alone.
        Value::Word(words) => {
            let needs = |word: &str| {
                let mut cases = source.object.cases.iter();
                cases.any(|case| json_of(case.is) == text(word) && !case.needs.is_empty())
            };
            Short::Words(words.iter().map(|term| term.word).filter(|word| !needs(word)).collect())
        }
        value => Short::Value(value),
    })
}

fn conditional(object: &Object, case: &Case) -> Tree {
    let is = constant(json_of(case.is));
    let condition = if case.by_default { of_field(case.field, is) } else { has(case.field, is) };
    let mut then = Keywords::new();
    if !case.needs.is_empty() {
        then.push(("required", texts(case.needs.iter().copied())));
    }
    if !case.refuses.is_empty() {
        then.push(("properties", map(case.refuses.iter().map(|word| (*word, Tree::Bool(false))))));
    }
    let mut keywords = vec![("if", condition), ("then", map(then))];
    let is_required = |field: &&Field| matches!(field.presence, Presence::Required(_));
    let words = object.fields.iter().filter(is_required).map(|field| field.word);
    let otherwise: Vec<_> = words.filter(|word| case.refuses.contains(word)).collect();
    if !otherwise.is_empty() {
        keywords.push(("else", needs(otherwise)));
    }
    map(keywords)
}

fn bounds(keywords: &mut Keywords, min: &'static str, least: usize, max: &'static str, most: usize) {
    if least > 0 {
        keywords.push((min, integer(least)));
    }
    if most < usize::MAX {
        keywords.push((max, integer(most)));
    }
}

fn patterned(pattern: String, wanted: String) -> Keywords {
    vec![("type", text("string")), ("pattern", text(pattern)), ("patternErrorMessage", text(wanted))]
}

fn text_of(kind: &Text) -> Keywords {
    let mut keywords = patterned(kind.pattern.to_owned(), format!("write {}", kind.wanted));
    if !kind.except.is_empty() {
        keywords.push(("not", map([("enum", texts(kind.except.iter().copied()))])));
    }
    keywords
}
