//! The sources of a rule's tenant, and whether their values may be believed.

use super::problem::{Found, Path};
use super::read::{Fields, Reader, Words};
use super::tree::Tree;
use super::{Origin, Source};
use crate::tenant::Storage;

const SOURCES: Words = Words {
    built: &["header", "authorization", "constant"],
    later: &["query", "cookie", "host", "path_segment", "property", "client_ip", "all"],
};

/// The label of tenants that no source named.
pub(super) const NONE: &str = "none";

pub(super) const HEADER: &str = "write the name of a header in lower case";

/// What the sources of a rule may count on, and what is left to be checked of them.
pub(super) struct Setting {
    /// Whether secret values can be hashed.
    pub has_hash_key: bool,
    /// Whether another rule counts all clients together.
    pub others_count_all: bool,
    /// Where sources stand that may be used only if other rules limit the same requests.
    pub untrusted: Vec<Path>,
}

pub(super) fn read(reader: &mut Reader, fields: &Fields, setting: &mut Setting) -> Option<Vec<Source>> {
    const WANTED: &str = "write a list of sources, such as [{header: {name: x-user-id, trusted: true}}]";
    let (tree, path) = reader.needed(fields, "key", WANTED)?;
    let mut sources: Vec<Source> = Vec::new();
    let mut complete = true;
    for (path, tree) in reader.list(&path, tree, WANTED)? {
        let Some(source) = source(reader, &path, tree, setting) else {
            complete = false;
            continue;
        };
        if sources.iter().any(|other| other.label == source.label) {
            let wanted = "give each source of a rule a label of its own with `as`";
            reader.note(&path, Found::Text(source.label.clone()), "is the label of another source", wanted);
        }
        sources.push(source);
    }
    if complete && sources.is_empty() {
        reader.note(&path, Found::Nothing, "is empty", WANTED);
    }
    complete.then_some(sources)
}

fn source(reader: &mut Reader, path: &Path, tree: &Tree, setting: &mut Setting) -> Option<Source> {
    let kinds = reader.object(path, tree, SOURCES)?;
    let mut given = SOURCES.built.iter().filter_map(|kind| Some((*kind, kinds.get(kind)?)));
    let Some((kind, (tree, path))) = given.next() else {
        if matches!(tree, Tree::Map(pairs) if pairs.is_empty()) {
            reader.note(path, Found::Nothing, "names no source", "write one of: header, authorization, constant");
        }
        return None;
    };
    if let Some((_, (_, path))) = given.next() {
        reader.note(
            &path,
            Found::Nothing,
            "is a second source in one object",
            "write each source as an item of the list",
        );
        return None;
    }
    match kind {
        "header" => header(reader, &path, tree, setting),
        "authorization" => authorization(reader, &path, tree, setting),
        _ => constant(reader, &path, tree),
    }
}

fn header(reader: &mut Reader, path: &Path, tree: &Tree, setting: &mut Setting) -> Option<Source> {
    const WORDS: Words = Words { built: &["name", "as", "trusted", "secret"], later: &["doubled"] };
    let options = Options::read(reader, path, tree, WORDS, "name", HEADER)?;
    let storage = if options.secret { Storage::Secret } else { Storage::Plain };
    client_chosen(reader, path, options.trusted, setting);
    needs_hash_key(reader, path, storage, setting.has_hash_key);
    let (tree, at) = options.main?;
    let name = reader.header_name(&at, tree, HEADER)?;
    Some(Source {
        label: options.label.unwrap_or_else(|| "header".to_owned()),
        origin: Origin::Header(name),
        storage,
        trusted: options.trusted,
    })
}

fn authorization(reader: &mut Reader, path: &Path, tree: &Tree, setting: &mut Setting) -> Option<Source> {
    const WORDS: Words = Words { built: &["scheme", "as", "trusted"], later: &[] };
    let options = Options::read(reader, path, tree, WORDS, "scheme", "write scheme: bearer or scheme: basic")?;
    client_chosen(reader, path, options.trusted, setting);
    needs_hash_key(reader, path, Storage::Secret, setting.has_hash_key);
    let (tree, at) = options.main?;
    let origin = reader.word(&at, tree, &[("bearer", &Origin::Bearer), ("basic", &Origin::BasicUser)], &[])?;
    Some(Source {
        label: options.label.unwrap_or_else(|| "authorization".to_owned()),
        origin: origin.clone(),
        storage: Storage::Secret,
        trusted: options.trusted,
    })
}

fn constant(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Source> {
    const WORDS: Words = Words { built: &["value", "as"], later: &[] };
    const VALUE: &str = "write the value, such as constant: all";
    let options = Options::read(reader, path, tree, WORDS, "value", VALUE)?;
    let (tree, at) = options.main?;
    let value = reader.text(&at, tree, VALUE)?;
    if value.is_empty() {
        reader.note(&at, Found::Nothing, "is empty and would name nobody", VALUE);
        return None;
    }
    Some(Source {
        label: options.label.unwrap_or_else(|| "constant".to_owned()),
        origin: Origin::Constant(value.to_owned()),
        storage: Storage::Plain,
        trusted: true,
    })
}

/// What sources have in common.
struct Options<'t> {
    main: Option<(&'t Tree, Path)>,
    label: Option<String>,
    trusted: bool,
    secret: bool,
}

impl<'t> Options<'t> {
    /// Reads the options of a source; a bare text is short for an object with the main field alone.
    fn read(
        reader: &mut Reader,
        path: &Path,
        tree: &'t Tree,
        words: Words,
        main: &'static str,
        wanted: &str,
    ) -> Option<Options<'t>> {
        if let Tree::Text(_) = tree {
            return Some(Options { main: Some((tree, path.clone())), label: None, trusted: false, secret: false });
        }
        let Tree::Map(_) = tree else {
            reader.wrong_kind(path, tree, wanted);
            return None;
        };
        let fields = reader.object(path, tree, words)?;
        let mut flag = |word| match fields.get(word) {
            Some((tree, path)) => reader.boolean(&path, tree),
            None => Some(false),
        };
        let (trusted, secret) = (flag("trusted"), flag("secret"));
        let label = match fields.get("as") {
            Some((tree, path)) => Some(label(reader, &path, tree)?),
            None => None,
        };
        Some(Options { main: reader.needed(&fields, main, wanted), label, trusted: trusted?, secret: secret? })
    }
}

fn label(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<String> {
    let label = reader.name_at(path, tree)?;
    if label == NONE {
        let wanted = "choose another: none is the label of tenants that no source named";
        reader.note(path, Found::Ours("none"), "is taken", wanted);
        return None;
    }
    Some(label)
}

/// A value that clients make up gives a fresh bucket for each invention, unless a rule that counts all clients together
/// limits the same requests.
fn client_chosen(reader: &mut Reader, path: &Path, trusted: bool, setting: &mut Setting) {
    if trusted {
        return;
    }
    if setting.others_count_all {
        setting.untrusted.push(path.clone());
        return;
    }
    let wanted = "write trusted: true if something before weir sets or checks this value, or add a rule with \
                  key: [{constant: all}]; a client that can make it up gets a fresh bucket for each invention";
    reader.note(path, Found::Nothing, "is not trusted, and no other rule limits the same requests", wanted);
}

fn needs_hash_key(reader: &mut Reader, path: &Path, storage: Storage, has_hash_key: bool) {
    if storage == Storage::Secret && !has_hash_key {
        let wanted = "write hash_secret_env at the top: the name of an environment variable with the key of the hash";
        reader.note(path, Found::Nothing, "is secret, and there is no key to hash it with", wanted);
    }
}
