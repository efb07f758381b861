//! A document that was read: its nodes, each with its place, and the way to them by the paths of a policy.
//!
//! A policy may stand in a file, or in a text inside one. It must not judge what it holds.

use std::mem::discriminant;

use weir::policy::{Found, Path, Problem, Segment, Tree};

use crate::{json, scalar};

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
    pub plain: Option<String>,
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

impl Node {
    /// One that is no plain scalar of YAML.
    pub fn new(at: Place, value: Value) -> Node {
        Node { at, value, plain: None }
    }

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

    /// What it is as the key of an object.
    pub fn as_key(&self) -> String {
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
    pub fn for_envoy(mut self) -> Node {
        let plain = self.plain.take();
        self.value = match (self.value, plain) {
            (Value::List(items), _) => Value::List(items.into_iter().map(Node::for_envoy).collect()),
            (Value::Map(pairs), _) => {
                Value::Map(pairs.into_iter().map(|(key, node)| (key, node.for_envoy())).collect())
            }
            (value, None) => value,
            (value, Some(text)) => {
                let inside = Inside::Line(self.at);
                let read = scalar::for_envoy(&text).unwrap_or_else(|| Value::Text(text.clone(), inside));
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
        match json::read(text) {
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
            Found::Field { name, .. } if name == "<<" => Some(" (Envoy's YAML merges no keys)".to_owned()),
            _ => self.follow(&problem.path).1.and_then(Node::as_envoy_says),
        };
        problem.message() + &hint.unwrap_or_default()
    }

    /// Where the thing stands that a problem is about.
    pub fn place_of(&self, problem: &Problem) -> Place {
        let (at, node) = self.follow(&problem.path);
        if let (Found::Field { name, .. }, Some(node)) = (&problem.found, node) {
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
