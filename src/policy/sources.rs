//! The sources of a rule's tenant, and whether their values may be believed.

use super::problem::{Found, Path};
use super::read::{Fields, Reader, Words};
use super::tree::Tree;
use super::{AddressFrom, Kind as PropertyKind, Origin, Source};
use crate::path::Paths;
use crate::tenant::Storage;

const SOURCES: Words = Words {
    built: &[
        "header",
        "authorization",
        "query",
        "cookie",
        "host",
        "path_segment",
        "property",
        "client_ip",
        "constant",
        "all",
    ],
    later: &[],
};

/// How a kind of source is written.
struct Kind {
    words: Words,
    /// The field that a bare value is short for, of this kind (0: text, 1: integer, 2: list), and what to write there.
    main: Option<(&'static str, u8, &'static str)>,
}

const fn kind(main: &'static str, short: u8, wanted: &'static str, words: &'static [&'static str]) -> Kind {
    Kind { words: Words { built: words, later: &[] }, main: Some((main, short, wanted)) }
}

const VALUE: &str = "write the value, such as constant: all";

const NAME: &str = "write the name";

const PROPERTY: &str = "write path: [..], the parts of the property's name";

const PARTS: &str = "write a list of sources, such as all: [{header: ...}, {path_segment: 1}]";

fn kind_of(word: &str) -> Kind {
    match word {
        "header" => kind("name", 0, HEADER, &["name", "as", "trusted", "secret", "doubled"]),
        "authorization" => {
            kind("scheme", 0, "write scheme: bearer or scheme: basic", &["scheme", "as", "trusted", "doubled"])
        }
        "query" | "cookie" => kind("name", 0, NAME, &["name", "as", "trusted", "secret", "doubled"]),
        "path_segment" => kind("index", 1, "write index: N, 1 for the first", &["index", "as", "trusted"]),
        "property" => kind("path", 2, PROPERTY, &["path", "as", "trusted", "secret", "type"]),
        "client_ip" => kind(
            "from",
            0,
            "write from: host, or from: x_forwarded_for",
            &["from", "as", "peer_appended", "trusted_hops", "ipv6_prefix"],
        ),
        "constant" => kind("value", 0, VALUE, &["value", "as"]),
        "all" => kind("sources", 2, PARTS, &["sources", "as"]),
        _ => Kind { words: Words { built: &["as", "trusted"], later: &[] }, main: None },
    }
}

/// The label of tenants that no source named.
pub(super) const NONE: &str = "none";

pub(super) const HEADER: &str = "write the name of a header in lower case";

/// What the sources of a rule may count on, and what is left to be checked of them.
pub(super) struct Setting {
    /// Whether secret values can be hashed.
    pub has_hash_key: bool,
    /// Which paths are one.
    pub paths: Paths,
    /// Whether another rule counts all clients together.
    pub others_count_all: bool,
    /// Where sources stand that may be used only if other rules limit the same requests.
    pub untrusted: Vec<Path>,
}

/// Where a source stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the key of a rule.
    Key,
    /// In `all`.
    Part,
    /// In `tier`.
    Tier,
}

/// The sources of the key of a rule.
pub(super) fn read(reader: &mut Reader, fields: &Fields, setting: &mut Setting) -> Option<Vec<Source>> {
    const WANTED: &str = "write a list of sources, such as [{header: {name: x-user-id, trusted: true}}]";
    let (tree, path) = reader.needed(fields, "key", WANTED)?;
    list(reader, &path, tree, setting, Place::Key, WANTED)
}

/// A list of sources.
pub(super) fn list(
    reader: &mut Reader,
    path: &Path,
    tree: &Tree,
    setting: &mut Setting,
    place: Place,
    wanted: &str,
) -> Option<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    let mut complete = true;
    for (path, tree) in reader.list(path, tree, wanted)? {
        let Some(source) = source(reader, &path, tree, setting, place) else {
            complete = false;
            continue;
        };
        if place == Place::Key && sources.iter().any(|other| other.label == source.label) {
            let wanted = "give each source of a rule a label of its own with `as`";
            reader.note(&path, Found::Text(source.label.clone()), "is the label of another source", wanted);
        }
        sources.push(source);
    }
    if complete && sources.is_empty() {
        reader.note(path, Found::Nothing, "is empty", wanted);
    }
    complete.then_some(sources)
}

fn source(reader: &mut Reader, path: &Path, tree: &Tree, setting: &mut Setting, place: Place) -> Option<Source> {
    let kinds = reader.object(path, tree, SOURCES)?;
    let mut given = SOURCES.built.iter().filter_map(|kind| Some((*kind, kinds.get(kind)?)));
    let Some((word, (tree, path))) = given.next() else {
        if matches!(tree, Tree::Map(pairs) if pairs.is_empty()) {
            let wanted = format!("write one of: {}", SOURCES.built.join(", "));
            reader.note(path, Found::Nothing, "names no source", wanted);
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
    let kind = kind_of(word);
    let options = Options::read(reader, &path, tree, &kind)?;
    let misplaced = match place {
        Place::Key => None,
        Place::Part => options.label.as_ref().map(|_| "as"),
        Place::Tier if options.secret => Some("secret"),
        Place::Tier => options.label.as_ref().map(|_| "as"),
    };
    if let Some(word) = misplaced {
        reader.note(&path.word(word), Found::Nothing, "has no meaning here", "leave it out");
    }
    let mut storage = if options.secret || word == "authorization" { Storage::Secret } else { Storage::Plain };
    // What clients cannot make up needs no word that says so.
    let mut trusted = options.trusted || matches!(word, "client_ip" | "constant" | "all");
    if place != Place::Tier {
        client_chosen(reader, &path, trusted, setting);
        needs_hash_key(reader, &path, storage, setting.has_hash_key);
    } else if !trusted {
        let wanted = "write trusted: true if something before weir sets or checks this value; a client that can make \
                      it up chooses its tier";
        reader.note(&path, Found::Nothing, "is not trusted", wanted);
    }
    let origin = match (word, &options.main) {
        ("client_ip", main) => client_ip(reader, &path, main.as_ref(), options.fields.as_ref())?,
        (_, None) if kind.main.is_some() => return None,
        (_, None) => Origin::Host,
        ("all", Some((tree, at))) => {
            if place == Place::Part {
                reader.note(&path, Found::Nothing, "stands in another one", "write its sources into that one");
                return None;
            }
            let part = if place == Place::Tier { Place::Tier } else { Place::Part };
            let parts = list(reader, at, tree, setting, part, PARTS)?;
            trusted = parts.iter().all(|part| part.trusted);
            if parts.iter().any(|part| part.storage == Storage::Secret) {
                storage = Storage::Secret;
            }
            Origin::All(parts)
        }
        (_, Some((tree, at))) => origin(reader, word, at, tree, setting.paths, options.kind)?,
    };
    Some(Source {
        label: options.label.unwrap_or_else(|| word.to_owned()),
        origin,
        storage,
        trusted,
        refuses_doubled: options.refuses_doubled,
    })
}

/// What a source reads that its main field says in full.
fn origin(reader: &mut Reader, word: &str, at: &Path, tree: &Tree, paths: Paths, kind: PropertyKind) -> Option<Origin> {
    Some(match word {
        "header" => Origin::Header(reader.header_name(at, tree, HEADER)?),
        "authorization" => match reader.word(at, tree, &[("bearer", true), ("basic", false)], &[])? {
            true => Origin::Bearer,
            false => Origin::BasicUser,
        },
        "query" => Origin::Query(not_empty(reader, at, tree, NAME)?),
        "cookie" => Origin::Cookie(not_empty(reader, at, tree, NAME)?),
        "path_segment" => {
            let index = reader.integer(at, tree, 1..=64)?;
            Origin::PathSegment(usize::try_from(index).ok()?, paths)
        }
        "property" => Origin::Property(property(reader, at, tree)?, kind),
        _ => Origin::Constant(not_empty(reader, at, tree, VALUE)?),
    })
}

fn not_empty(reader: &mut Reader, path: &Path, tree: &Tree, wanted: &str) -> Option<String> {
    let text = reader.text(path, tree, wanted)?;
    if text.is_empty() {
        reader.note(path, Found::Nothing, "is empty and would name nobody", wanted);
        return None;
    }
    Some(text.to_owned())
}

/// The path of a property of the host.
pub(super) fn property(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut complete = true;
    for (path, tree) in reader.list(path, tree, PROPERTY)? {
        match reader.text(&path, tree, PROPERTY) {
            // Hosts are asked with NULs between the parts.
            Some(text) if !text.is_empty() && !text.contains('\0') => parts.push(text.to_owned()),
            Some(text) => {
                reader.note(&path, Found::Text(text.to_owned()), "is no part of a property's name", PROPERTY);
                complete = false;
            }
            None => complete = false,
        }
    }
    if complete && parts.is_empty() {
        reader.note(path, Found::Nothing, "is empty", PROPERTY);
        return None;
    }
    complete.then_some(parts)
}

fn client_ip(
    reader: &mut Reader,
    base: &Path,
    main: Option<&(&Tree, Path)>,
    fields: Option<&Fields>,
) -> Option<Origin> {
    let (tree, at) = main?;
    let is_forwarded = reader.word(at, tree, &[("host", false), ("x_forwarded_for", true)], &[])?;
    let field = |word| fields.and_then(|fields| fields.get(word));
    let prefix = match field("ipv6_prefix") {
        Some((tree, path)) => reader.integer(&path, tree, 1..=128),
        None => Some(64),
    };
    let from = if is_forwarded {
        const APPENDED: &str = "write whether the host has added the peer's address to the header already: true for \
                                Envoy with use_remote_address: true, else false";
        const HOPS: &str = "write trusted_hops: N, how many proxies of yours stand before the peer's address";
        let appended = match field("peer_appended") {
            Some((tree, path)) => reader.boolean(&path, tree),
            None => {
                reader.note(&base.word("peer_appended"), Found::Nothing, "is missing", APPENDED);
                None
            }
        };
        let hops = match field("trusted_hops") {
            Some((tree, path)) => reader.integer(&path, tree, 0..=32),
            None => {
                reader.note(&base.word("trusted_hops"), Found::Nothing, "is missing", HOPS);
                None
            }
        };
        let (appended, hops) = (appended?, usize::try_from(hops?).ok()?);
        if !appended && hops == 0 {
            let wanted = "write from: host, or trusted_hops of at least 1";
            reader.note(
                &base.word("trusted_hops"),
                Found::Number(0),
                "means the peer, which is not in the header",
                wanted,
            );
            return None;
        }
        AddressFrom::Forwarded(if appended { hops } else { hops.saturating_sub(1) })
    } else {
        for word in ["peer_appended", "trusted_hops"] {
            if let Some((_, path)) = field(word) {
                reader.note(&path, Found::Nothing, "has no meaning with from: host", "leave it out");
            }
        }
        AddressFrom::Host
    };
    Some(Origin::ClientIp(from, u32::try_from(prefix?).ok()?))
}

/// What sources have in common.
struct Options<'t> {
    main: Option<(&'t Tree, Path)>,
    /// None where the short form is written.
    fields: Option<Fields<'t>>,
    label: Option<String>,
    trusted: bool,
    secret: bool,
    refuses_doubled: bool,
    kind: PropertyKind,
}

impl<'t> Options<'t> {
    /// Reads the options of a source; a bare value is short for an object with the main field alone.
    fn read(reader: &mut Reader, path: &Path, tree: &'t Tree, kind: &Kind) -> Option<Options<'t>> {
        let mut options = Options {
            main: None,
            fields: None,
            label: None,
            trusted: false,
            secret: false,
            refuses_doubled: false,
            kind: PropertyKind::Text,
        };
        match (tree, kind.main) {
            (Tree::Map(_), _) => {}
            (Tree::Text(_), Some((_, 0, _))) | (Tree::Int(_), Some((_, 1, _))) | (Tree::List(_), Some((_, 2, _))) => {
                options.main = Some((tree, path.clone()));
                return Some(options);
            }
            (_, main) => {
                reader.wrong_kind(path, tree, main.map_or("write host: {trusted: true} or host: {}", |main| main.2));
                return None;
            }
        }
        let fields = reader.object(path, tree, kind.words)?;
        let (trusted, secret) = (reader.flag(&fields, "trusted"), reader.flag(&fields, "secret"));
        if let Some((tree, path)) = fields.get("as") {
            options.label = Some(label(reader, &path, tree)?);
        }
        if let Some((tree, path)) = fields.get("doubled") {
            reader.word(&path, tree, &[("refuse", ())], &[]);
            options.refuses_doubled = true;
        }
        if let Some((tree, path)) = fields.get("type") {
            let kinds = [("text", PropertyKind::Text), ("number", PropertyKind::Number), ("bool", PropertyKind::Bool)];
            options.kind = reader.word(&path, tree, &kinds, &[])?;
        }
        options.main = kind.main.and_then(|(main, _, wanted)| reader.needed(&fields, main, wanted));
        (options.trusted, options.secret, options.fields) = (trusted?, secret?, Some(fields));
        Some(options)
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
    let wanted = "write trusted: true if something before weir sets or checks this value, or add a rule \
                  keyed by client_ip or constant; a client that can make it up gets a fresh bucket for each invention";
    reader.note(path, Found::Nothing, "is not trusted, and no other rule limits the same requests", wanted);
}

fn needs_hash_key(reader: &mut Reader, path: &Path, storage: Storage, has_hash_key: bool) {
    if storage == Storage::Secret && !has_hash_key {
        let wanted = "write hash_secret_env at the top: the name of an environment variable with the key of the hash";
        reader.note(path, Found::Nothing, "is secret, and there is no key to hash it with", wanted);
    }
}
