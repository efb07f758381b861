//! Reads files: YAML and JSON, one document or several.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use crate::document::{Inside, Key, NoDocument, Node, Place, Value};
use crate::{json, scalar};

/// Deeper than any policy or configuration, and little enough for every stack.
const MAX_DEPTH: usize = 96;

/// Aliases can make few lines many nodes.
const MAX_NODES: usize = 500_000;

/// Reads all documents of a file. What starts as JSON does is JSON where it can be read so.
pub fn read(text: &str, is_json: bool) -> Result<Vec<Node>, NoDocument> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_json || text.trim_start().starts_with(['{', '[']) {
        match json::read(text) {
            Ok(node) => return Ok(vec![node]),
            Err(error) if is_json => return Err(error),
            Err(_) => {}
        }
    }
    yaml(text)
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
                    true => scalar::core(&text),
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
                    self.put(Node::new(at, value), anchor);
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
