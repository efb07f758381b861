//! The classes of a policy.

use super::language::{CLASS, GRPC, GRPC_NAME, HEADER_NAME, MATCH, METHOD, ROUTE_METADATA, VALUE};
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::sources::property;
use super::tree::Tree;
use super::{Kind as PropertyKind, Origin};
use crate::path::{NoPattern, Paths, Pattern, Regex};
use crate::request::normal_host;
use crate::trie::Trie;

/// The class of a request: an index into [`Classes::names`]; 0 is the class `default`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassId(pub usize);

/// The ordered list of class matches and the names that they use.
#[derive(Clone, Debug)]
pub struct Classes {
    /// Names by [`ClassId`]; the first is `default`.
    pub names: Vec<String>,
    /// In the order of the policy: the first that matches wins.
    pub matches: Vec<ClassMatch>,
    /// Which paths are one.
    pub paths: Paths,
    /// How the matches that a request may meet are found among many.
    pub index: ClassIndex,
}

/// Indices into [`Classes::matches`], each list in ascending order.
#[derive(Clone, Debug, Default)]
pub struct ClassIndex {
    /// The matches that have a path.
    pub by_path: Trie,
    /// The others.
    pub without_path: Vec<usize>,
    /// By method, the first match that needs the path of such a request.
    pub first_by_method: Vec<(String, usize)>,
    /// The first that needs the path of a request with any other method.
    pub first_by_other: Option<usize>,
    /// The first of all that have a path.
    pub first: Option<usize>,
}

/// One entry of `classes`.
#[derive(Clone, Debug)]
pub struct ClassMatch {
    /// The class of a request that matches.
    pub class: ClassId,
    /// Methods, any of which matches; None matches all.
    pub methods: Option<Vec<String>>,
    /// The path; None matches all.
    pub path: Option<Pattern>,
    /// What the whole path has to match as well.
    pub regex: Option<Regex>,
    /// What else must hold, all of it.
    pub conditions: Vec<Condition>,
    /// What a request takes from a bucket.
    pub cost: u64,
    /// No rule looks at the request.
    pub exempt: bool,
}

/// What must hold of one value of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which value.
    pub origin: Origin,
    /// What it has to be; None where it only has to be there. A host may be `*.` and what it ends in.
    pub exact: Option<String>,
}

/// The class of requests that match nothing.
pub(super) const DEFAULT: &str = "default";

pub(super) fn read(reader: &mut Reader, fields: &Fields, paths: Paths) -> Classes {
    let names = vec![DEFAULT.to_owned()];
    let mut classes = Classes { names, matches: Vec::new(), paths, index: ClassIndex::default() };
    let items = fields.get("classes").and_then(|(tree, path)| reader.list(&path, tree, "write a list of classes"));
    for (path, tree) in items.into_iter().flatten() {
        if let Some(class_match) = class(reader, &mut classes.names, &path, tree, paths) {
            classes.matches.push(class_match);
        }
    }
    classes.index = index(&classes.matches);
    classes
}

fn index(matches: &[ClassMatch]) -> ClassIndex {
    let mut index = ClassIndex::default();
    for (number, class_match) in matches.iter().enumerate() {
        let Some(pattern) = &class_match.path else {
            index.without_path.push(number);
            continue;
        };
        index.by_path.add(pattern, number);
        index.first.get_or_insert(number);
        if class_match.methods.is_none() {
            index.first_by_other.get_or_insert(number);
        }
        for method in class_match.methods.iter().flatten() {
            if !index.first_by_method.iter().any(|(known, _)| known == method) {
                let first = index.first_by_other.unwrap_or(number);
                index.first_by_method.push((method.clone(), first));
            }
        }
    }
    index
}

fn class(reader: &mut Reader, names: &mut Vec<String>, path: &Path, tree: &Tree, paths: Paths) -> Option<ClassMatch> {
    let fields = reader.object(path, tree, &CLASS)?;
    let class = reader.text_of(&fields, "class").map(|name| id_of(names, name));
    let cost = reader.integer(&fields, "cost");
    let exempt = reader.flag(&fields, "exempt");
    if let (Some(true), Some((_, path))) = (exempt, fields.get("cost")) {
        reader.note(&path, Found::Nothing, "has no meaning in a class that is exempt", "leave it out");
    }
    let (tree, path) = reader.needed(&fields, "match")?;
    let fields = reader.object(&path, tree, &MATCH)?;
    let methods = fields.get("methods").map(|(tree, path)| methods(reader, &path, tree));
    let mut pattern = fields.get("path").map(|(tree, path)| {
        let text = reader.text(&path, tree, "write a path, such as /v1/reports/{id} or /v1/**")?;
        pattern(reader, &path, text, paths)
    });
    if let Some((tree, path)) = fields.get("grpc") {
        if pattern.is_some() {
            reader.note(&path, Found::Nothing, "has no meaning beside path", "leave one of them out");
        }
        pattern = Some(grpc(reader, &path, tree, paths));
    }
    let regex = fields.get("path_regex").and_then(|(tree, path)| regex(reader, &path, tree));
    let conditions = conditions(reader, &fields);
    if matches!(tree, Tree::Map(pairs) if pairs.is_empty()) {
        reader.note(&path, Found::Nothing, "matches every request", "write methods, path or another word");
    }
    match (class, cost, exempt) {
        (Some(class), Some(cost), Some(exempt)) => {
            let (methods, path) = (methods.flatten(), pattern.flatten());
            Some(ClassMatch { class, methods, path, regex, conditions, cost, exempt })
        }
        _ => None,
    }
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
        methods.extend(reader.formed(&path, item, &METHOD).map(str::to_owned));
    }
    if matches!(tree, Tree::List(items) if items.is_empty()) {
        reader.note(path, Found::Nothing, "is empty and would match nothing", WANTED);
    }
    Some(methods)
}

/// What must hold of a request beside its method and path. What could not be read is noted.
fn conditions(reader: &mut Reader, fields: &Fields) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if let Some((tree, path)) = fields.get("host")
        && let Some(host) = host(reader, &path, tree)
    {
        conditions.push(Condition { origin: Origin::Host, exact: Some(host) });
    }
    for word in ["headers", "query"] {
        let Some((tree, path)) = fields.get(word) else {
            continue;
        };
        const WANTED: &str = "write NAME: {present: true} or NAME: {exact: VALUE}";
        for (name, path, tree) in reader.chosen(&path, tree, WANTED).into_iter().flatten() {
            let origin = match word {
                "headers" => reader.of_form(&path, name, &HEADER_NAME).then(|| Origin::Header(name.to_owned())),
                _ => Some(Origin::Query(name.to_owned())),
            };
            let wanted = reader.object(&path, tree, &VALUE).and_then(|fields| wanted(reader, &fields));
            if let (Some(origin), Some(exact)) = (origin, wanted) {
                conditions.push(Condition { origin, exact });
            }
        }
        if matches!(tree, Tree::Map(pairs) if pairs.is_empty()) {
            reader.note(&path, Found::Nothing, "is empty and would match every request", WANTED);
        }
    }
    let xds =
        |parts: &[&str]| Origin::Property(parts.iter().map(|part| (*part).to_owned()).collect(), PropertyKind::Bytes);
    if let Some((tree, path)) = fields.get("route_name")
        && let Some(name) = reader.text(&path, tree, "write the name of a route")
    {
        conditions.push(Condition { origin: xds(&["xds", "route_name"]), exact: Some(name.to_owned()) });
    }
    if let Some((tree, path)) = fields.get("route_metadata")
        && let Some(fields) = reader.object(&path, tree, &ROUTE_METADATA)
    {
        let exact = wanted(reader, &fields);
        let path = reader.needed(&fields, "path").and_then(|(tree, path)| property(reader, &path, tree));
        if let (Some(path), Some(exact)) = (path, exact) {
            let mut parts = vec!["xds", "route_metadata", "filter_metadata"];
            parts.extend(path.iter().map(String::as_str));
            conditions.push(Condition { origin: xds(&parts), exact });
        }
    }
    conditions
}

/// `{present: true}` or `{exact: VALUE}`.
fn wanted(reader: &mut Reader, fields: &Fields) -> Option<Option<String>> {
    const WANTED: &str = "write {present: true} or {exact: VALUE}";
    match (fields.get("present"), fields.get("exact")) {
        (Some((Tree::Bool(true), _)), None) => Some(None),
        (None, Some((tree, path))) => Some(Some(reader.text(&path, tree, WANTED)?.to_owned())),
        _ => {
            reader.note(&fields.path, Found::Nothing, "has to be either present or exact", WANTED);
            None
        }
    }
}

/// A host as requests are compared; `*.` stands for any part before.
fn host(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<String> {
    const WANTED: &str = "write a name in lower case without a port and dots at the end, such as api.example.com or \
                          *.example.com, or an IPv6 address in brackets as RFC 5952 writes it";
    let text = reader.text(path, tree, WANTED)?;
    let (star, name) = text.strip_prefix("*.").map_or(("", text), |name| ("*.", name));
    let right = normal_host(name);
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    let is_host = match right.starts_with('[') {
        true => star.is_empty() && right.ends_with(']'),
        false => !right.is_empty() && right.bytes().all(is_of_name),
    };
    if is_host && right == name {
        return Some(text.to_owned());
    }
    let choice = is_host.then(|| [star, &right].concat());
    reader.note_choices(path, Found::Text(text.to_owned()), "is no host", WANTED, choice.as_deref());
    None
}

/// The path of a gRPC method: `/service/method`, whatever the content type, so that no spelling escapes.
fn grpc(reader: &mut Reader, path: &Path, tree: &Tree, paths: Paths) -> Option<Pattern> {
    let fields = reader.object(path, tree, &GRPC)?;
    let mut text = String::new();
    for field in GRPC.fields {
        text.push('/');
        match fields.get(field.word) {
            Some((tree, path)) => text.push_str(reader.formed(&path, tree, &GRPC_NAME)?),
            None => text.push_str("{any}"),
        }
    }
    if text == "/{any}/{any}" {
        reader.note(path, Found::Nothing, "is empty", "write service, method or both");
        return None;
    }
    if paths.ignore_case {
        text.make_ascii_lowercase();
    }
    pattern(reader, path, &text, paths)
}

/// An expression for the whole path.
fn regex(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Regex> {
    const WANTED: &str = "write an expression for the whole path, such as /v[0-9]+/users/.*";
    let text = reader.text(path, tree, WANTED)?;
    if !cfg!(feature = "regex") {
        let wanted = "write path, or build the module with --features regex, which makes it larger by an eighth";
        reader.note(path, Found::Nothing, "is not in this module", wanted);
        return None;
    }
    let regex = Regex::parse(text);
    if regex.is_none() {
        reader.note(path, Found::Text(text.to_owned()), "is no expression, or is too large", WANTED);
    }
    regex
}

fn pattern(reader: &mut Reader, path: &Path, text: &str, paths: Paths) -> Option<Pattern> {
    let error = match Pattern::parse_for(text, paths) {
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
            reader.note_choices(path, found, wrong, "write it in that form", [normal.as_str()]);
        }
        NoPattern::Star => {
            reader.note(path, found, "has a star in the wrong place", "write {name} for one segment or end with /**")
        }
        NoPattern::Braces => reader.note(path, found, "has braces that are no whole segment", "write /a/{name}/b"),
    }
    None
}
