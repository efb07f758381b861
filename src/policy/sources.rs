//! The sources of a rule's tenant, and whether their values may be believed.

use super::language::{FROM, KINDS, PROPERTY_PART, REFUSED, SCHEMES, SOURCE, SOURCES, Source as Declared, Value};
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::tree::Tree;
use crate::path::Paths;
use crate::tenant::Storage;

/// Something that a tenant's value is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// First part of the tenant.
    pub label: String,
    /// What is read.
    pub origin: Origin,
    /// Whether the value may be stored as it is.
    pub storage: Storage,
    /// Whether clients cannot make the value up.
    pub trusted: bool,
    /// Whether a request that sends it twice is answered with 400.
    pub refuses_doubled: bool,
}

/// What a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A header, by its lower-case name.
    Header(String),
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// The user of `Authorization: Basic`.
    BasicUser,
    /// A parameter of the query, by its name.
    Query(String),
    /// A cookie, by its name.
    Cookie(String),
    /// The host that the request is for.
    Host,
    /// A segment of the path, counted from 1.
    PathSegment(usize, Paths),
    /// What the host of the module knows, by its path.
    Property(Vec<String>, Kind),
    /// The client's address, an IPv6 one cut to so many bits.
    ClientIp(AddressFrom, u32),
    /// Several values, all of which must be there.
    All(Vec<Source>),
    /// A value that stands in the policy: one bucket for all.
    Constant(String),
}

/// How the bytes of a property are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As they are: in conditions of classes.
    Bytes,
    /// UTF-8 without control characters; all else is none.
    Text,
    /// 8 bytes, a double or an integer, that are an integer below 2^53; written as a decimal.
    Number,
    /// One byte; written as `true` or `false`.
    Bool,
}

/// Where the address of a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFrom {
    /// By the host.
    Host,
    /// By X-Forwarded-For: so many entries before its last one.
    Forwarded(usize),
}

/// The label of tenants that no source named.
pub(super) const NONE: &str = "none";

/// What the sources of a rule may count on, and what is left to be checked of them.
pub(super) struct Setting {
    /// Whether secret values can be hashed.
    pub has_hash_key: bool,
    /// Which paths are one.
    pub paths: Paths,
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
    let (tree, path) = reader.needed(fields, "key")?;
    list(reader, &path, tree, setting, Place::Key, fields.wanted("key"))
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
    let kinds = reader.object(path, tree, &SOURCE)?;
    let mut given = SOURCES.iter().filter_map(|kind| Some((kind, kinds.get(kind.word)?)));
    let Some((kind, (tree, path))) = given.next() else {
        if matches!(tree, Tree::Map(pairs) if pairs.is_empty()) {
            let wanted = ["write one of: ", &SOURCE.words()].concat();
            reader.note(path, Found::Nothing, "names no source", wanted);
        }
        return None;
    };
    if let Some((_, (_, path))) = given.next() {
        let wanted = "write each source as an item of the list";
        reader.note(&path, Found::Nothing, "is a second source in one object", wanted);
        return None;
    }
    let fields = fields_of(reader, &path, tree, kind)?;
    let flag = |reader: &mut Reader, word| match kind.object.field(word) {
        Some(_) => reader.flag(&fields, word),
        None => Some(false),
    };
    let (is_said_trusted, is_said_secret) = (flag(reader, "trusted"), flag(reader, "secret"));
    let label = reader.text_of(&fields, "as")?;
    let refuses_doubled = fields.get("doubled").is_some();
    if refuses_doubled {
        reader.choice(&fields, "doubled", REFUSED);
    }
    let (is_said_trusted, is_said_secret) = (is_said_trusted?, is_said_secret?);
    if let Some(word) = misplaced(&fields, place, is_said_secret) {
        reader.note(&path.word(word), Found::Nothing, "has no meaning here", "leave it out");
    }
    let mut storage = if is_said_secret || kind.is_secret { Storage::Secret } else { Storage::Plain };
    // What clients cannot make up needs no word that says so.
    let mut trusted = is_said_trusted || kind.is_trusted;
    if place != Place::Tier {
        if !trusted {
            setting.untrusted.push(path.clone());
        }
        needs_hash_key(reader, &path, storage, setting.has_hash_key);
    } else if !trusted {
        let wanted = "write trusted: true if something before weir sets or checks this value; a client that can make \
                      it up chooses its tier";
        reader.note(&path, Found::Nothing, "is not trusted", wanted);
    }
    let origin = match kind.word {
        "all" => {
            let parts = parts(reader, &path, &fields, setting, place)?;
            trusted = parts.iter().all(|part| part.trusted);
            if parts.iter().any(|part| part.storage == Storage::Secret) {
                storage = Storage::Secret;
            }
            Origin::All(parts)
        }
        _ => origin(reader, kind.word, &fields, setting.paths)?,
    };
    Some(Source { label, origin, storage, trusted, refuses_doubled })
}

/// The fields of a source; a bare value is short for an object with the main field alone.
fn fields_of<'t>(reader: &mut Reader, path: &Path, tree: &'t Tree, kind: &'static Declared) -> Option<Fields<'t>> {
    if matches!(tree, Tree::Map(_)) {
        return reader.object(path, tree, &kind.object);
    }
    let main = kind.main.and_then(|main| kind.object.field(main));
    let wanted = match (main, main.map(|main| &main.value), tree) {
        (Some(main), Some(Value::Text(_) | Value::Word(_)), Tree::Text(_))
        | (Some(main), Some(Value::Integer(..)), Tree::Int(_))
        | (Some(main), Some(Value::List(..) | Value::Sources(_)), Tree::List(_)) => {
            return Some(Fields::short(path.clone(), &kind.object, main.word, tree));
        }
        (Some(main), ..) => Fields::none(path.clone(), &kind.object).wanted(main.word),
        (None, ..) => "write host: {trusted: true} or host: {}",
    };
    reader.wrong_kind(path, tree, wanted);
    None
}

/// A word that has no meaning where a source stands: several in one have one label, and tiers are no tenants.
fn misplaced(fields: &Fields, place: Place, is_secret: bool) -> Option<&'static str> {
    match place {
        Place::Key => None,
        Place::Tier if is_secret => Some("secret"),
        Place::Part | Place::Tier => fields.get("as").map(|_| "as"),
    }
}

/// The sources of `all`.
fn parts(
    reader: &mut Reader,
    path: &Path,
    fields: &Fields,
    setting: &mut Setting,
    place: Place,
) -> Option<Vec<Source>> {
    let (tree, at) = reader.needed(fields, "sources")?;
    if place == Place::Part {
        reader.note(path, Found::Nothing, "stands in another one", "write its sources into that one");
        return None;
    }
    let part = if place == Place::Tier { Place::Tier } else { Place::Part };
    list(reader, &at, tree, setting, part, fields.wanted("sources"))
}

/// What a source reads, but for `all`.
fn origin(reader: &mut Reader, word: &str, fields: &Fields, paths: Paths) -> Option<Origin> {
    Some(match word {
        "header" => Origin::Header(reader.text_of(fields, "name")?),
        "authorization" => match reader.choice(fields, "scheme", SCHEMES)? {
            true => Origin::Bearer,
            false => Origin::BasicUser,
        },
        "query" => Origin::Query(reader.text_of(fields, "name")?),
        "cookie" => Origin::Cookie(reader.text_of(fields, "name")?),
        "host" => Origin::Host,
        "path_segment" => {
            let index = reader.integer(fields, "index")?;
            Origin::PathSegment(usize::try_from(index).ok()?, paths)
        }
        "property" => {
            let kind = reader.choice(fields, "type", KINDS);
            let (tree, at) = reader.needed(fields, "path")?;
            Origin::Property(property(reader, &at, tree)?, kind?)
        }
        "client_ip" => client_ip(reader, fields)?,
        _ => Origin::Constant(reader.text_of(fields, "value")?),
    })
}

/// The path of a property of the host.
pub(super) fn property(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<Vec<String>> {
    const PROPERTY: &str = "write path: [..], the parts of the property's name";
    let mut parts = Vec::new();
    let mut complete = true;
    for (path, tree) in reader.list(path, tree, PROPERTY)? {
        match reader.formed(&path, tree, &PROPERTY_PART) {
            Some(text) => parts.push(text.to_owned()),
            None => complete = false,
        }
    }
    if complete && parts.is_empty() {
        reader.note(path, Found::Nothing, "is empty", PROPERTY);
        return None;
    }
    complete.then_some(parts)
}

fn client_ip(reader: &mut Reader, fields: &Fields) -> Option<Origin> {
    let is_forwarded = reader.choice(fields, "from", FROM)?;
    let prefix = reader.integer(fields, "ipv6_prefix");
    let from = if is_forwarded {
        forwarded(reader, fields)?
    } else {
        for word in ["peer_appended", "trusted_hops"] {
            if let Some((_, path)) = fields.get(word) {
                reader.note(&path, Found::Nothing, "has no meaning with from: host", "leave it out");
            }
        }
        AddressFrom::Host
    };
    Some(Origin::ClientIp(from, u32::try_from(prefix?).ok()?))
}

/// Which entry of X-Forwarded-For is the client's.
fn forwarded(reader: &mut Reader, fields: &Fields) -> Option<AddressFrom> {
    const APPENDED: &str = "write whether the host has added the peer's address to the header already: true for \
                            Envoy with use_remote_address: true, else false";
    const HOPS: &str = "write trusted_hops: N, how many proxies of yours stand before the peer's address";
    for (word, wanted) in [("peer_appended", APPENDED), ("trusted_hops", HOPS)] {
        if fields.get(word).is_none() {
            reader.note(&fields.path.word(word), Found::Nothing, "is missing", wanted);
        }
    }
    let (appended, hops) = (reader.flag(fields, "peer_appended"), reader.integer(fields, "trusted_hops"));
    let (appended, hops) = (appended?, usize::try_from(hops?).ok()?);
    if !appended && hops == 0 {
        let wanted = "write from: host, or trusted_hops of at least 1";
        let path = fields.path.word("trusted_hops");
        reader.note(&path, Found::Number(0), "means the peer, which is not in the header", wanted);
        return None;
    }
    Some(AddressFrom::Forwarded(if appended { hops } else { hops.saturating_sub(1) }))
}

fn needs_hash_key(reader: &mut Reader, path: &Path, storage: Storage, has_hash_key: bool) {
    if storage == Storage::Secret && !has_hash_key {
        let wanted = "write hash_secret_env at the top: the name of an environment variable with the key of the hash";
        reader.note(path, Found::Nothing, "is secret, and there is no key to hash it with", wanted);
    }
}
