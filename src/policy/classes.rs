//! The classes of a policy.

use super::problem::{Found, Path};
use super::read::{Fields, Reader, Words};
use super::tree::Tree;
use super::{ClassId, ClassMatch, Classes};
use crate::path::{NoPattern, Pattern};

const CLASS: Words = Words { built: &["class", "match", "cost", "exempt"], later: &[] };

const MATCH: Words = Words {
    built: &["methods", "path"],
    later: &["path_regex", "host", "headers", "query", "grpc_service", "grpc_method", "route_name", "route_metadata"],
};

/// The class of requests that match nothing.
pub(super) const DEFAULT: &str = "default";

pub(super) fn read(reader: &mut Reader, fields: &Fields) -> Classes {
    let mut classes = Classes { names: vec![DEFAULT.to_owned()], matches: Vec::new() };
    let items = fields.get("classes").and_then(|(tree, path)| reader.list(&path, tree, "write a list of classes"));
    for (path, tree) in items.into_iter().flatten() {
        if let Some(class_match) = class(reader, &mut classes.names, &path, tree) {
            classes.matches.push(class_match);
        }
    }
    classes
}

fn class(reader: &mut Reader, names: &mut Vec<String>, path: &Path, tree: &Tree) -> Option<ClassMatch> {
    let fields = reader.object(path, tree, CLASS)?;
    let class = reader.needed(&fields, "class", "write the name of the class").and_then(|(tree, path)| {
        let name = reader.name_at(&path, tree)?;
        if name == DEFAULT {
            let wanted = "choose another name: default is what matches nothing";
            reader.note(&path, Found::Ours("default"), "is taken", wanted);
            return None;
        }
        Some(id_of(names, name))
    });
    let cost = match fields.get("cost") {
        Some((tree, path)) => reader.count(&path, tree),
        None => Some(1),
    };
    let exempt = match fields.get("exempt") {
        Some((tree, path)) => reader.boolean(&path, tree),
        None => Some(false),
    };
    if let (Some(true), Some((_, path))) = (exempt, fields.get("cost")) {
        reader.note(&path, Found::Nothing, "has no meaning in a class that is exempt", "leave it out");
    }
    let (tree, path) = reader.needed(&fields, "match", "write match: {methods: [...], path: ...}")?;
    let fields = reader.object(&path, tree, MATCH)?;
    let methods = fields.get("methods").map(|(tree, path)| methods(reader, &path, tree));
    let pattern = fields.get("path").map(|(tree, path)| pattern(reader, &path, tree));
    if matches!(tree, Tree::Map(pairs) if pairs.is_empty()) {
        reader.note(&path, Found::Nothing, "matches every request", "write methods, path or both");
    }
    Some(ClassMatch {
        class: class?,
        methods: methods.flatten(),
        path: pattern.flatten(),
        cost: cost?,
        exempt: exempt?,
    })
}

/// A class may be matched in several ways, so its name may come again.
fn id_of(names: &mut Vec<String>, name: String) -> ClassId {
    let known = names.iter().position(|other| *other == name);
    ClassId(known.unwrap_or_else(|| {
        names.push(name);
        names.len().saturating_sub(1)
    }))
}

fn methods(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Vec<String>> {
    const WANTED: &str = "write methods in capitals, such as [GET, HEAD]";
    let mut methods = Vec::new();
    for (path, item) in reader.list(path, tree, WANTED)? {
        let Some(method) = reader.text(&path, item, WANTED) else {
            continue;
        };
        let capitals = |byte: u8| byte.is_ascii_uppercase() || byte == b'-' || byte == b'_';
        if method.is_empty() || method.len() > 32 || !method.bytes().all(capitals) {
            reader.note(&path, Found::Text(method.to_owned()), "is no method", WANTED);
        } else {
            methods.push(method.to_owned());
        }
    }
    if matches!(tree, Tree::List(items) if items.is_empty()) {
        reader.note(path, Found::Nothing, "is empty and would match nothing", WANTED);
    }
    Some(methods)
}

fn pattern(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Pattern> {
    let text = reader.text(path, tree, "write a path, such as /v1/reports/{id} or /v1/**")?;
    let error = match Pattern::parse(text) {
        Ok(pattern) => return Some(pattern),
        Err(error) => error,
    };
    let found = Found::Text(text.to_owned());
    match error {
        NoPattern::NoPath => {
            reader.note(path, found, "is no path", "start with a slash; escape with %XX what URIs escape")
        }
        NoPattern::NotNormal(normal) => {
            let wrong = "can never match, for paths are compared in normal form";
            reader.note_choices(path, found, wrong, "write it in that form", vec![normal]);
        }
        NoPattern::Star => {
            reader.note(path, found, "has a star in the wrong place", "write {name} for one segment or end with /**")
        }
        NoPattern::Braces => reader.note(path, found, "has braces that are no whole segment", "write /a/{name}/b"),
    }
    None
}
