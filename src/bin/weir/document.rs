//! YAML and JSON, with the place of each node.
//!
//! A policy may stand in a file, or in a text inside one. It must not judge what it reads.

use std::collections::HashMap;
use std::mem::discriminant;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde::de::{Deserialize, IntoDeserializer};
use weir::policy::{Found, NotJson, Path, Problem, Segment, Tree};

/// A place in a file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// One node of a document.
#[derive(Clone, Debug)]
pub struct Node {
    pub at: Place,
    pub value: Value,
    /// How it is written, where it is a plain scalar of YAML: its reader decides what it is.
    plain: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String, Inside),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key of an object.
#[derive(Clone, Debug)]
pub struct Key {
    pub at: Place,
    pub text: String,
}

/// Where the characters of a text stand.
#[derive(Clone, Copy, Debug)]
pub enum Inside {
    /// Its first line there, and each one as far in: a literal block.
    Lines(Place),
    /// On one line, as they are.
    Line(Place),
    /// Escaped or folded: only where it begins is known.
    Somewhere,
}

/// Why a text is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDocument {
    pub at: Place,
    pub message: String,
}

const START: Place = Place { line: 1, column: 1 };

/// Deeper than any policy or configuration, and little enough for every stack.
const MAX_DEPTH: usize = 96;

/// Aliases can make few lines many nodes.
const MAX_NODES: usize = 500_000;

/// Reads all documents of a file. What starts as JSON does is JSON where it can be read so.
pub fn read(text: &str, is_json: bool) -> Result<Vec<Node>, NoDocument> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_json || text.trim_start().starts_with(['{', '[']) {
        match json(text) {
            Ok(node) => return Ok(vec![node]),
            Err(error) if is_json => return Err(error),
            Err(_) => {}
        }
    }
    yaml(text)
}

/// Reads one JSON document.
pub fn json(text: &str) -> Result<Node, NoDocument> {
    let tree = Tree::from_json(text.as_bytes()).map_err(|NotJson { line, column }| NoDocument {
        at: Place { line: line.max(1), column: column.max(1) },
        message: "is no JSON from here on".to_owned(),
    })?;
    Ok(Cursor { rest: text, at: START }.node(&tree))
}

/// Goes through a text that is known to be the JSON of a tree.
struct Cursor<'t> {
    rest: &'t str,
    at: Place,
}

impl Cursor<'_> {
    fn node(&mut self, tree: &Tree) -> Node {
        self.skip(|letter| letter.is_ascii_whitespace());
        let at = self.at;
        let value = match tree {
            Tree::Null => self.word(Value::Null),
            Tree::Bool(value) => self.word(Value::Bool(*value)),
            Tree::Int(value) => self.word(Value::Int(*value)),
            Tree::Float(value) => self.word(Value::Float(*value)),
            Tree::Text(text) => {
                self.string();
                Value::Text(text.clone(), Inside::Somewhere)
            }
            Tree::List(items) => {
                self.next();
                let items = items.iter().map(|item| {
                    let node = self.node(item);
                    self.separator();
                    node
                });
                let items = items.collect();
                self.close();
                Value::List(items)
            }
            Tree::Map(pairs) => {
                self.next();
                let pairs = pairs.iter().map(|(key, value)| {
                    self.skip(|letter| letter.is_ascii_whitespace());
                    let key = Key { at: self.at, text: key.clone() };
                    self.string();
                    self.skip(|letter| letter.is_ascii_whitespace() || letter == ':');
                    let node = self.node(value);
                    self.separator();
                    (key, node)
                });
                let pairs = pairs.collect();
                self.close();
                Value::Map(pairs)
            }
        };
        Node { at, value, plain: None }
    }

    fn word(&mut self, value: Value) -> Value {
        self.skip(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
        value
    }

    /// Passes a comma, where there is one.
    fn separator(&mut self) {
        self.skip(|letter| letter.is_ascii_whitespace());
        if self.rest.starts_with(',') {
            self.next();
        }
    }

    fn close(&mut self) {
        self.skip(|letter| letter.is_ascii_whitespace());
        self.next();
    }

    fn string(&mut self) {
        self.next();
        while let Some(letter) = self.next() {
            match letter {
                '"' => return,
                '\\' => self.next(),
                _ => None,
            };
        }
    }

    fn skip(&mut self, of: impl Fn(char) -> bool) {
        while self.rest.starts_with(&of) {
            self.next();
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut letters = self.rest.chars();
        let letter = letters.next()?;
        self.rest = letters.as_str();
        self.at = match letter {
            '\n' => Place { line: self.at.line.saturating_add(1), column: 1 },
            _ => Place { column: self.at.column.saturating_add(1), ..self.at },
        };
        Some(letter)
    }
}

/// Reads YAML; documents that hold nothing are left out.
fn yaml(text: &str) -> Result<Vec<Node>, NoDocument> {
    let mut builder = Builder { lines: text.lines().collect(), ..Builder::default() };
    let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| NoDocument {
            at: Place { line: error.marker().line().max(1), column: error.marker().col().saturating_add(1) },
            message: format!("is no YAML from here on: {}", error.info()),
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.documents)
}

/// What is open while a document is read.
enum Open {
    List(Vec<Node>),
    Map(Vec<(Key, Node)>, Option<Key>),
}

#[derive(Default)]
struct Builder<'t> {
    lines: Vec<&'t str>,
    documents: Vec<Node>,
    open: Vec<(Open, Place, usize)>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl Builder<'_> {
    fn take(&mut self, event: Event, span: Span) -> Result<(), NoDocument> {
        let at = Place { line: span.start.line().max(1), column: span.start.col().saturating_add(1) };
        let stop = |message: &str| Err(NoDocument { at, message: message.to_owned() });
        match event {
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return stop("is an alias of what it stands in");
                };
                let (size, depth) = measure(&node);
                self.nodes = self.nodes.saturating_add(size);
                // An alias of an alias of ... is as deep as all of them.
                if self.open.len().saturating_add(depth) > MAX_DEPTH {
                    return stop("is nested too deeply");
                }
                self.put(node, 0);
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.nodes = self.nodes.saturating_add(1);
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                let resolved = tag.as_deref().and_then(|tag| tag.core_suffix()).is_some_and(|tag| tag != "str");
                let value = match is_plain || resolved {
                    true => plain(&text),
                    false => None,
                };
                let inside = self.inside(&text, style, at);
                let plain = is_plain.then(|| text.clone().into_owned());
                let value = value.unwrap_or_else(|| Value::Text(text.into_owned(), inside));
                self.put(Node { at, value, plain }, anchor);
            }
            Event::SequenceStart(_, anchor, _) => self.open.push((Open::List(Vec::new()), at, anchor)),
            Event::MappingStart(_, anchor, _) => self.open.push((Open::Map(Vec::new(), None), at, anchor)),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((open, at, anchor)) = self.open.pop() {
                    self.nodes = self.nodes.saturating_add(1);
                    let value = match open {
                        Open::List(items) => Value::List(items),
                        Open::Map(pairs, _) => Value::Map(pairs),
                    };
                    self.put(Node { at, value, plain: None }, anchor);
                }
            }
            _ => {}
        }
        if self.open.len() > MAX_DEPTH {
            return stop("is nested too deeply");
        }
        if self.nodes > MAX_NODES {
            return stop("is too large");
        }
        Ok(())
    }

    fn put(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None if matches!(node.value, Value::Null) => {}
            None => self.documents.push(node),
            Some((Open::List(items), ..)) => items.push(node),
            Some((Open::Map(pairs, key), ..)) => match key.take() {
                Some(key) => pairs.push((key, node)),
                None => *key = Some(Key { at: node.at, text: node.as_key() }),
            },
        }
    }

    /// Where the characters of a text stand in the file.
    fn inside(&self, text: &str, style: ScalarStyle, at: Place) -> Inside {
        let line = |number: usize| self.lines.get(number.checked_sub(1)?).copied();
        if style == ScalarStyle::Literal {
            let (index, first) = match text.lines().enumerate().find(|(_, line)| !line.trim().is_empty()) {
                Some(found) => found,
                None => return Inside::Somewhere,
            };
            // A block starts behind its `|` or with its first line, by its own line breaks.
            let starts = [at.line, at.line.saturating_add(1)];
            let found = starts.into_iter().find_map(|start| {
                let line = line(start.saturating_add(index))?;
                let is_it = line.trim() == first.trim();
                let column = line.find(first.trim_end()).filter(|_| is_it)?.saturating_add(1);
                Some(Place { line: start, column })
            });
            return found.map_or(Inside::Somewhere, Inside::Lines);
        }
        let quote = usize::from(style != ScalarStyle::Plain);
        let column = at.column.saturating_add(quote);
        let rest = line(at.line).map(|line| line.chars().skip(column.saturating_sub(1)).collect::<String>());
        match rest.is_some_and(|rest| style != ScalarStyle::Folded && rest.starts_with(text)) {
            true => Inside::Line(Place { column, ..at }),
            false => Inside::Somewhere,
        }
    }
}

/// The pairs of an object and those of `<<`, which stand back behind its own.
fn merged(pairs: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
    let (merges, mut pairs): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, _)| key.text == "<<");
    for (_, node) in merges {
        let maps = match node.value {
            Value::List(items) => items,
            _ => vec![node],
        };
        for map in maps {
            if let Value::Map(others) = map.value {
                let new = others.into_iter().filter(|(key, _)| !pairs.iter().any(|(own, _)| own.text == key.text));
                let new: Vec<_> = new.collect();
                pairs.extend(new);
            }
        }
    }
    pairs
}

/// A plain scalar as Envoy reads it (yaml-cpp, and Envoy's own rule for numbers); None where it is a text.
fn plain_for_envoy(text: &str) -> Option<Value> {
    if let "" | "~" | "null" | "Null" | "NULL" = text {
        return Some(Value::Null);
    }
    let is_word = |word: &str| {
        let (first, rest) = word.split_at(1);
        text == word || text == word.to_ascii_uppercase() || text == first.to_ascii_uppercase() + rest
    };
    for (words, value) in [(["true", "yes", "on", "y"], true), (["false", "no", "off", "n"], false)] {
        if words.into_iter().any(is_word) {
            return Some(Value::Bool(value));
        }
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, radix) = match (digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")), digits) {
        (Some(hex), _) => (hex, 16),
        (None, digits) if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        (None, digits) => (digits, 10),
    };
    // Rust would take a second sign.
    let number = digits.starts_with(|letter: char| letter.is_ascii_hexdigit()).then_some(digits)?;
    let number = i64::from_str_radix(number, radix).ok()?;
    let number = if text.starts_with('-') { number.checked_neg()? } else { number };
    Some(match i32::try_from(number) {
        Ok(_) => Value::Int(number),
        Err(_) => Value::Text(number.to_string(), Inside::Somewhere),
    })
}

/// A plain scalar by the core schema of YAML 1.2; None where it is a text.
fn plain(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let radix = |prefix, radix| text.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok());
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(Value::Int(number));
    }
    // Rust reads words such as `inf` as numbers, too; YAML has dots before them, and no policy has any of them.
    let is_number = text.starts_with(|letter: char| letter.is_ascii_digit() || "+-.".contains(letter))
        && text.contains(|letter: char| letter.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if !is_number {
        return None;
    }
    if let Ok(number) = text.parse() {
        return Some(Value::Int(number));
    }
    let number: f64 = text.parse().ok()?;
    // An integer where it is one: as the core reads it.
    let read: Result<Tree, serde::de::value::Error> = Tree::deserialize(number.into_deserializer());
    Some(match read {
        Ok(Tree::Int(number)) => Value::Int(number),
        _ => Value::Float(number),
    })
}

/// How many nodes a node is, and how deep they nest.
fn measure(node: &Node) -> (usize, usize) {
    let children: Vec<&Node> = match &node.value {
        Value::List(items) => items.iter().collect(),
        Value::Map(pairs) => pairs.iter().map(|(_, node)| node).collect(),
        _ => Vec::new(),
    };
    let of_children = children.into_iter().map(measure);
    let (size, depth) = of_children
        .fold((0, 0), |(size, depth): (usize, usize), (more, deep)| (size.saturating_add(more), depth.max(deep)));
    (size.saturating_add(1), depth.saturating_add(1))
}

impl Node {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.pair(key).map(|(_, node)| node)
    }

    fn pair(&self, key: &str) -> Option<&(Key, Node)> {
        self.pairs().iter().find(|(known, _)| known.text == key)
    }

    /// The value at the end of a way of keys.
    pub fn at(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    pub fn pairs(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(pairs) => pairs,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text, _) => Some(text),
            _ => None,
        }
    }

    fn as_key(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(text, _) => text.clone(),
            // No object that is read here has such keys.
            Value::List(_) | Value::Map(_) => String::new(),
        }
    }

    /// As most readers of YAML take it: with what `<<` merges.
    pub fn with_merges(mut self) -> Node {
        self.plain = None;
        self.value = match self.value {
            Value::List(items) => Value::List(items.into_iter().map(Node::with_merges).collect()),
            Value::Map(pairs) => {
                Value::Map(merged(pairs).into_iter().map(|(key, node)| (key, node.with_merges())).collect())
            }
            value => value,
        };
        self
    }

    /// As Envoy takes it, which knows no `<<`, takes words such as `on` for booleans, and makes texts of fractions and of
    /// large numbers.
    pub fn as_envoy_reads(mut self) -> Node {
        let plain = self.plain.take();
        self.value = match (self.value, plain) {
            (Value::List(items), _) => Value::List(items.into_iter().map(Node::as_envoy_reads).collect()),
            (Value::Map(pairs), _) => {
                Value::Map(pairs.into_iter().map(|(key, node)| (key, node.as_envoy_reads())).collect())
            }
            (value, None) => value,
            (value, Some(text)) => {
                let inside = Inside::Line(self.at);
                let read = plain_for_envoy(&text).unwrap_or_else(|| Value::Text(text.clone(), inside));
                self.plain = (discriminant(&read) != discriminant(&value)).then_some(text);
                read
            }
        };
        self
    }

    /// What is to be said of a value that Envoy takes for another thing than most readers do.
    fn as_envoy_says(&self) -> Option<String> {
        let (plain, kind) = (self.plain.as_ref()?, self.tree().kind());
        let wanted = match self.value {
            Value::Bool(_) => "put it in quotes",
            _ => "write an integer below 2147483648 without a fraction, or the policy as JSON in a StringValue",
        };
        Some(format!(" (Envoy's YAML takes {plain} for {kind}; {wanted})"))
    }

    /// The same without places.
    pub fn tree(&self) -> Tree {
        match &self.value {
            Value::Null => Tree::Null,
            Value::Bool(value) => Tree::Bool(*value),
            Value::Int(value) => Tree::Int(*value),
            Value::Float(value) => Tree::Float(*value),
            Value::Text(text, _) => Tree::Text(text.clone()),
            Value::List(items) => Tree::List(items.iter().map(Node::tree).collect()),
            Value::Map(pairs) => Tree::Map(pairs.iter().map(|(key, node)| (key.text.clone(), node.tree())).collect()),
        }
    }

    /// The JSON that a text of this node is, its places being those in the file.
    pub fn embedded(&self) -> Result<Node, NoDocument> {
        let Value::Text(text, inside) = &self.value else {
            return Err(NoDocument { at: self.at, message: "is no text".to_owned() });
        };
        let place = |at: Place| match inside {
            Inside::Lines(first) => Place {
                line: first.line.saturating_add(at.line).saturating_sub(1),
                column: first.column.saturating_add(at.column).saturating_sub(1),
            },
            Inside::Line(first) if at.line == 1 => {
                Place { column: first.column.saturating_add(at.column).saturating_sub(1), ..*first }
            }
            Inside::Line(_) | Inside::Somewhere => self.at,
        };
        match json(text) {
            Ok(mut node) => {
                node.move_to(&place);
                Ok(node)
            }
            Err(error) => Err(NoDocument { at: place(error.at), ..error }),
        }
    }

    fn move_to(&mut self, place: &dyn Fn(Place) -> Place) {
        self.at = place(self.at);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.move_to(place)),
            Value::Map(pairs) => {
                for (key, node) in pairs {
                    key.at = place(key.at);
                    node.move_to(place);
                }
            }
            _ => {}
        }
    }

    /// Where a path of a policy leads to, or, where something is missing, what it is missing from.
    pub fn place(&self, path: &Path) -> Place {
        self.follow(path).0
    }

    /// What is wrong by a problem, for people, without its path.
    pub fn message_of(&self, problem: &Problem) -> String {
        let hint = match &problem.found {
            // Other readers have merged it before.
            Found::Field(name) if name == "<<" => Some(" (Envoy's YAML merges no keys)".to_owned()),
            _ => self.follow(&problem.path).1.and_then(Node::as_envoy_says),
        };
        problem.message() + &hint.unwrap_or_default()
    }

    /// Where the thing stands that a problem is about.
    pub fn place_of(&self, problem: &Problem) -> Place {
        let (at, node) = self.follow(&problem.path);
        if let (Found::Field(name), Some(node)) = (&problem.found, node) {
            return node.pair(name).map_or(at, |(key, _)| key.at);
        }
        let steps = problem.path.steps();
        if problem.wrong == "stands twice"
            && let Some((Segment::Word(word), before)) = steps.split_last()
            && let Some(parent) = before.iter().try_fold(self, |node, step| node.child(step).map(|(_, node)| node))
        {
            let second = parent.pairs().iter().filter(|(key, _)| key.text == *word).nth(1);
            return second.map_or(at, |(key, _)| key.at);
        }
        at
    }

    /// What a path leads to, as far as it goes: the value, or, where there is none, the key of what it is missing from.
    fn follow(&self, path: &Path) -> (Place, Option<&Node>) {
        let (mut node, mut key) = (self, self.at);
        for step in path.steps() {
            match node.child(step) {
                Some((at, child)) => (node, key) = (child, at),
                None => return (key, None),
            }
        }
        // Of a value on lines of its own the key is told, which is where one looks.
        let at = match &node.value {
            Value::Map(_) | Value::List(_) if node.at.line != key.line => key,
            _ => node.at,
        };
        (at, Some(node))
    }

    fn child(&self, step: &Segment) -> Option<(Place, &Node)> {
        match step {
            Segment::Word(word) => self.pair(word).map(|(key, node)| (key.at, node)),
            Segment::Index(index) => self.items().get(*index).map(|node| (node.at, node)),
            Segment::Chosen(_, position) => self.pairs().get(*position).map(|(key, node)| (key.at, node)),
        }
    }
}
