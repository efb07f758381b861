//! Reads JSON, with the place of each node.

use weir::policy::{NotJson, Tree};

use crate::document::{Inside, Key, NoDocument, Node, Place, Value};

const START: Place = Place { line: 1, column: 1 };

/// Reads one JSON document.
pub fn read(text: &str) -> Result<Node, NoDocument> {
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
        Node::new(at, value)
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
