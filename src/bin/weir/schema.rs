//! The JSON Schema of a policy, and the tables of its words, both made from [`super::language`].
//!
//! What a schema cannot say is left to the decoder: names that must stand elsewhere, costs that must fit a burst, and
//! most of what may be trusted. It refuses no policy that the decoder takes, but for fractions that are written as
//! texts with an exponent or a sign.

use super::language::{Case, Choice, Field, Map, Object, POLICY, Place, Presence, SOURCES, Source, TEXTS, Text, Value};
use weir::policy::Tree;

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

/// Tables of every word, in Markdown: one for each object, folded.
pub fn tables() -> String {
    let mut objects = Vec::new();
    let mut names = Vec::new();
    collect(&POLICY, &mut objects, &mut names);
    let mut tables = String::new();
    for object in objects {
        if object.name == "limit_object" {
            tables += &folded("limits", "How much, by tier and class.", &forms(&names));
        }
        tables += &folded(object.place, object.doc, &table(object));
        if object.name == "rule" {
            let doc = "Who is limited: each item of the list is an object with one of these words.";
            tables += &folded("rules[].key[], rules[].tier.sources[]", doc, &sources());
        }
    }
    tables + &folded("texts", "What is written in words and has a form.", &forms_of_texts())
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
        if !object.doc.is_empty() {
            keywords.push(("description", text(object.doc)));
        }
        let properties: Vec<_> =
            object.fields.iter().map(|field| (field.word, map(self.field(object, field)))).collect();
        keywords.push(("properties", map(properties)));
        let is_required = |field: &&Field| matches!(field.presence, Presence::Required);
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
                keywords.push(("not", map([("required", texts([one, other]))])));
            }
            Choice::One(one, other) => {
                let alone = |word| map([("required", texts([word]))]);
                keywords.push(("oneOf", Tree::List(vec![alone(one), alone(other)])));
            }
        }
        let mut all: Vec<Tree> = object.cases.iter().map(|case| conditional(object, case)).collect();
        all.extend(self.across(object));
        if !all.is_empty() {
            keywords.push(("allOf", Tree::List(all)));
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
            Value::Number(number) => vec![("const", Tree::Int(*number))],
            Value::Integer(from, to) => {
                let mut keywords = vec![("type", text("integer")), ("minimum", Tree::Int(*from))];
                if *to < i64::MAX {
                    keywords.push(("maximum", Tree::Int(*to)));
                }
                keywords
            }
            Value::Tenths(from, to) => {
                let number = [("type", text("number")), ("minimum", of_tenths(*from)), ("maximum", of_tenths(*to))];
                let wanted = format!("write a number from {}", said_tenths(*from, *to));
                any_of([map(number), map(patterned(tenths_pattern(*from, *to), wanted))])
            }
            Value::Duration(from, to) => duration(*from, *to, "one integer and ms, s, m, h or d"),
            Value::Seconds(from, to) => {
                duration(from.saturating_mul(1000), to.saturating_mul(1000), "one integer and s, m, h or d")
            }
            Value::Word(words) => vec![("enum", texts(words.iter().map(|(word, _)| *word)))],
            Value::Text(kind) if kind.pattern.is_empty() => vec![("type", text("string"))],
            Value::Text(kind) => self.named(kind.name, |_| text_of(kind)),
            Value::Limit => {
                let wanted = "write requests/period with s, m, h or d, such as 10/m".to_owned();
                let mut keywords = patterned(limit_pattern(), wanted);
                keywords.push(("examples", texts(["60/m"])));
                keywords
            }
            Value::Object(object) => self.named(object.name, |defs| defs.object(object)),
            Value::List(of, least, most) => {
                let mut keywords = vec![("type", text("array")), ("items", map(self.value(of)))];
                bounds(&mut keywords, "minItems", *least, "maxItems", *most);
                keywords
            }
            Value::Map(kind) => self.map_of(kind),
            Value::Either(values) => any_of(values.iter().map(|value| map(self.value(value))).collect::<Vec<_>>()),
            Value::Named(name, value) => self.named(name, |defs| defs.value(value)),
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
                let all = Tree::List(vec![map(defs.source(Place::Key)), map(defs.trusted())]);
                let plain = || map([("properties", map([("secret", map([("const", Tree::Bool(false))]))]))]);
                let of_all = map(in_all(map([("additionalProperties", plain())])));
                let all_of = map([("allOf", Tree::List(vec![of_all, without(&["as"])]))]);
                let of_others = map([("allOf", Tree::List(vec![plain(), without(&["as"])]))]);
                vec![("allOf", all), ("properties", map([("all", all_of)])), ("additionalProperties", of_others)]
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
                ("properties", map([("trusted", map([("const", Tree::Bool(true))]))])),
                ("required", texts(["trusted"])),
            ];
            vec![("properties", map(kinds)), ("additionalProperties", map(trusted))]
        })
    }

    /// What the words of an object ask of words that stand deeper, or the other way round.
    fn across(&mut self, object: &Object) -> Vec<Tree> {
        match object.name {
            "policy" => self.across_policy(),
            "rule" => vec![
                // Without tiers there is one limit, or the one tier `default`.
                when(
                    map([("not", map([("required", texts(["tier"]))]))]),
                    map([("properties", map([("limits", map([("propertyNames", one_tier())]))]))]),
                ),
                // A burst of 1 cannot be lent.
                when(
                    is_by_default("mode", "lease"),
                    map([("properties", map([("limits", self.lent()), ("overrides", self.lent())]))]),
                ),
            ],
            "client_ip" => vec![when(
                // The peer itself is not in the header.
                map([
                    ("properties", map([("peer_appended", map([("const", Tree::Bool(false))]))])),
                    ("required", texts(["peer_appended"])),
                ]),
                map([("properties", map([("trusted_hops", map([("minimum", Tree::Int(1))]))]))]),
            )],
            _ => Vec::new(),
        }
    }

    fn across_policy(&mut self) -> Vec<Tree> {
        let secret = map(self.named("secret_source", |_| secret_source()));
        let is =
            |word, value| map([("properties", map([(word, map([("const", value)]))])), ("required", texts([word]))]);
        let has_secret = map([
            ("properties", map([("key", map([("type", text("array")), ("contains", secret)]))])),
            ("required", texts(["key"])),
        ]);
        let local = [is("mode", text("local")), is("on_error", text("local"))];
        // Such a rule counts every client, whatever it sends, and can refuse it.
        let of_all = Tree::List(["constant", "client_ip"].map(|word| map([("required", texts([word]))])).to_vec());
        let first = map([("type", text("array")), ("prefixItems", Tree::List(vec![map([("anyOf", of_all)])]))]);
        let with_first = map([
            (
                "properties",
                map([("key", map([("allOf", Tree::List(vec![first, map([("minItems", Tree::Int(1))])]))]))]),
            ),
            ("required", texts(["key"])),
        ]);
        let counts_all =
            map([("allOf", Tree::List(vec![with_first, map([("not", is("shadow_mode", Tree::Bool(true)))])]))]);
        let trusted = map([("items", map(self.trusted()))]);
        let all_trusted = map([("properties", map([("key", trusted)]))]);
        vec![
            when(some_rule(has_secret), map([("required", texts(["hash_secret_env"]))])),
            when(some_rule(map(any_of(local))), map([("required", texts(["proxies"]))])),
            when(
                map([("not", some_rule(counts_all))]),
                map([("properties", map([("rules", map([("items", all_trusted)]))]))]),
            ),
        ]
    }

    /// Limits of which a part can be lent. Items of a list do not refer to the whole: editors that complete lists would
    /// go round in circles.
    fn lent(&mut self) -> Tree {
        let limit = map(self.named("lent_limit", |_| {
            let two = |word| map([(word, map([("minimum", Tree::Int(2))]))]);
            let no_burst = map([("not", map([("required", texts(["burst"]))]))]);
            let wanted = "raise the burst to at least 2, or write mode: exact; a burst of 1 cannot be lent";
            vec![
                ("pattern", text("^(?!0*1/[smhd]$)")),
                ("patternErrorMessage", text(wanted)),
                ("properties", two("burst")),
                ("if", no_burst),
                ("then", map([("properties", two("requests"))])),
            ]
        }));
        let keywords = self.named("lent", |_| {
            let all_of = Tree::List(vec![limit.clone()]);
            vec![("allOf", all_of), ("items", limit), ("additionalProperties", refers("lent"))]
        });
        map(keywords)
    }
}

fn any_of(choices: impl IntoIterator<Item = Tree>) -> Keywords {
    vec![("anyOf", Tree::List(choices.into_iter().collect()))]
}

fn when(condition: Tree, then: Tree) -> Tree {
    map([("if", condition), ("then", then)])
}

/// Holds of a policy of which some rule is like this.
fn some_rule(rule: Tree) -> Tree {
    map([
        ("properties", map([("rules", map([("type", text("array")), ("contains", rule)]))])),
        ("required", texts(["rules"])),
    ])
}

/// Holds where a field has a value, or is left out.
fn is_by_default(word: &'static str, value: &str) -> Tree {
    map([("properties", map([(word, map([("const", text(value))]))]))])
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

/// The keys that limits can have without tiers: those of a limit, or of the one tier.
fn one_tier() -> Tree {
    map([("enum", texts(["requests", "per", "burst", "default"]))])
}

fn secret_source() -> Keywords {
    let mut choices = Vec::new();
    for source in &SOURCES {
        let has_secret = source.object.fields.iter().any(|field| field.word == "secret");
        let secret = match source.word {
            word if source.is_secret => map([("required", texts([word]))]),
            "all" => {
                let list = map([("type", text("array")), ("contains", refers("secret_source"))]);
                let object = map([
                    ("type", text("object")),
                    ("properties", map([("sources", list.clone())])),
                    ("required", texts(["sources"])),
                ]);
                map([("properties", map([("all", map(any_of([list, object])))])), ("required", texts(["all"]))])
            }
            word if has_secret => {
                let secret = map([
                    ("type", text("object")),
                    ("properties", map([("secret", map([("const", Tree::Bool(true))]))])),
                    ("required", texts(["secret"])),
                ]);
                map([("properties", map([(word, secret)])), ("required", texts([word]))])
            }
            _ => continue,
        };
        choices.push(secret);
    }
    let mut keywords = any_of(choices);
    keywords.insert(0, ("type", text("object")));
    keywords
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
            Short::Words(words.iter().map(|(word, _)| *word).filter(|word| !needs(word)).collect())
        }
        value => Short::Value(value),
    })
}

fn conditional(object: &Object, case: &Case) -> Tree {
    let mut condition = vec![("properties", map([(case.field, map([("const", json_of(case.is))]))]))];
    if !case.by_default {
        condition.push(("required", texts([case.field])));
    }
    let mut then = Keywords::new();
    if !case.needs.is_empty() {
        then.push(("required", texts(case.needs.iter().copied())));
    }
    if !case.refuses.is_empty() {
        then.push(("properties", map(case.refuses.iter().map(|word| (*word, Tree::Bool(false))))));
    }
    let mut keywords = vec![("if", map(condition)), ("then", map(then))];
    let is_required = |field: &&Field| matches!(field.presence, Presence::Required);
    let words = object.fields.iter().filter(is_required).map(|field| field.word);
    let otherwise: Vec<_> = words.filter(|word| case.refuses.contains(word)).collect();
    if !otherwise.is_empty() {
        keywords.push(("else", map([("required", texts(otherwise))])));
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

/// Units of a duration, in milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

fn duration(from: u64, to: u64, wanted: &str) -> Keywords {
    let whole_seconds = !wanted.contains("ms");
    let mut units = Vec::new();
    for (unit, size) in UNITS {
        // Whole seconds may be written in milliseconds.
        let (size, zeros) = if whole_seconds && size == 1 { (1000, "000") } else { (size, "") };
        let (least, most) = (from.div_ceil(size), to / size);
        if least <= most {
            units.push(format!("{}{zeros}{unit}", integers(least, most)));
        }
    }
    let said = format!("write {wanted}, from {} to {}", said_duration(from), said_duration(to));
    patterned(format!("^0*(?:{})$", units.join("|")), said)
}

/// Requests of a text are its burst, too: times the period in milliseconds it stays below 2^53.
fn limit_pattern() -> String {
    let per = |(unit, size): (&str, u64)| format!("{}/{unit}", integers(1, ((1 << 53) - 1) / size));
    let units: Vec<_> = UNITS.into_iter().skip(1).map(per).collect();
    format!("^0*(?:{})$", units.join("|"))
}

/// An expression for the integers of a range, without zeros at the start. Both are at least 1.
fn integers(from: u64, to: u64) -> String {
    let mut ranges = Vec::new();
    let mut from = from;
    while from <= to {
        // Those with as many digits as the first.
        let nines = 10_u64.saturating_pow(from.to_string().len().try_into().unwrap_or(u32::MAX)) - 1;
        let last = to.min(nines);
        same_length("", &from.to_string(), &last.to_string(), &mut ranges);
        from = last + 1;
    }
    format!("(?:{})", ranges.join("|"))
}

/// The integers of a range whose ends have as many digits, after some digits that all have.
fn same_length(before: &str, from: &str, to: &str, ranges: &mut Vec<String>) {
    let (Some(first), Some(last)) = (from.chars().next(), to.chars().next()) else {
        ranges.push(before.to_owned());
        return;
    };
    let (rest_of_first, rest_of_last) = (&from[1..], &to[1..]);
    let any = match rest_of_first.len() {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        digits => format!("[0-9]{{{digits}}}"),
    };
    let (is_low, is_high) =
        (rest_of_first.chars().all(|digit| digit == '0'), rest_of_last.chars().all(|digit| digit == '9'));
    if first == last && !(is_low && is_high) {
        return same_length(&format!("{before}{first}"), rest_of_first, rest_of_last, ranges);
    }
    let digit = |from: char, by: i8| char::from((from as u8).wrapping_add_signed(by));
    let whole_from = if is_low { first } else { digit(first, 1) };
    let whole_to = if is_high { last } else { digit(last, -1) };
    if !is_low {
        same_length(&format!("{before}{first}"), rest_of_first, &"9".repeat(rest_of_first.len()), ranges);
    }
    if whole_from == whole_to {
        ranges.push(format!("{before}{whole_from}{any}"));
    } else if whole_from < whole_to {
        ranges.push(format!("{before}[{whole_from}-{whole_to}]{any}"));
    }
    if !is_high {
        same_length(&format!("{before}{last}"), &"0".repeat(rest_of_last.len()), rest_of_last, ranges);
    }
}

fn of_tenths(tenths: i64) -> Tree {
    if tenths % 10 == 0 { Tree::Int(tenths / 10) } else { Tree::Float(tenths as f64 / 10.0) }
}

/// The same range as a text: a fraction without sign and exponent.
fn tenths_pattern(from: i64, to: i64) -> String {
    let mut choices = Vec::new();
    if from == 0 {
        choices.push(r"0+\.?".to_owned());
    }
    if to == 10 {
        choices.push(format!(r"0*\.[{from}-9][0-9]*"));
        choices.push(r"0*1(?:\.0*)?".to_owned());
    } else {
        choices.push(format!(r"0*\.(?:[{from}-{}][0-9]*|{to}0*)", to - 1));
    }
    format!("^(?:{})$", choices.join("|"))
}

/// Every object from this one down, in the order in which they are first named, and every named value.
fn collect(
    object: &'static Object,
    objects: &mut Vec<&'static Object>,
    names: &mut Vec<(&'static str, &'static Value)>,
) {
    if objects.iter().any(|known| known.name == object.name) {
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
        Value::List(of, ..) => collect_value(of, objects, names),
        Value::Map(kind) => collect_value(&kind.of, objects, names),
        Value::Either(values) => values.iter().for_each(|value| collect_value(value, objects, names)),
        Value::Named(name, value) if !names.iter().any(|(known, _)| known == name) => {
            names.push((name, value));
            collect_value(value, objects, names);
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
        Value::Integer(from, i64::MAX) => format!("an integer from {from}"),
        Value::Integer(from, to) => format!("{from} to {to}"),
        Value::Tenths(from, to) => said_tenths(*from, *to),
        Value::Duration(from, to) => format!("{} to {}", said_duration(*from), said_duration(*to)),
        Value::Seconds(from, to) => {
            format!("{} to {}", said_duration(from.saturating_mul(1000)), said_duration(to.saturating_mul(1000)))
        }
        Value::Word(words) => words.iter().map(|(word, _)| code(word)).collect::<Vec<_>>().join(", "),
        Value::Text(kind) => said_text(kind),
        Value::Limit => "`requests/period` with s, m, h or d, such as `60/m`".to_owned(),
        Value::Object(object) if object.name == "limit_object" => "an object, as under `limit`".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::List(of, least, most) => format!("a list{}: {}", said_count(*least, *most), said(of)),
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
        Value::Named(name, _) => format!("*{}*", spaced(name)),
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

fn said_tenths(from: i64, to: i64) -> String {
    format!("{} to {}", flow(&of_tenths(from)), flow(&of_tenths(to)))
}

fn said_duration(ms: u64) -> String {
    let whole = UNITS.iter().rev().find(|(_, size)| ms.is_multiple_of(*size));
    whole.map(|(unit, size)| format!("{}{unit}", ms / size)).unwrap_or_default()
}

fn default(object: &Object, field: &Field) -> String {
    let needs = object.cases.iter().find(|case| case.needs.contains(&field.word));
    match (&field.presence, needs) {
        (_, Some(case)) => format!("needed with {}", said_case(case)),
        (Presence::Required, _) => "needed".to_owned(),
        (Presence::Optional(result), _) => (*result).to_owned(),
        (Presence::Default(json), _) => code(&flow(&json_of(json))),
        (Presence::Parts, _) => "that of its words".to_owned(),
    }
}

fn said_case(case: &Case) -> String {
    code(&format!("{}: {}", case.field, flow(&json_of(case.is))))
}

/// What a field means: its words, and where it may stand.
fn meaning(object: &Object, field: &Field, with_default: bool) -> String {
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
    if let (true, Presence::Optional(result)) = (with_default, &field.presence)
        && !result.is_empty()
    {
        meaning += &match result.strip_prefix("needed") {
            Some(rest) => format!(" Needed{rest}."),
            None => format!(" Left out: {result}."),
        };
    }
    meaning
}

fn said_words(value: &Value, words: &mut Vec<(&'static str, &'static str)>) {
    match value {
        Value::Word(of) => words.extend(*of),
        Value::List(of, ..) => said_words(of, words),
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
