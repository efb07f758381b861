//! From a tree to a policy: the top level, and what stands there beside limiters, classes, rules and the response.

use super::language::{PATHS, POLICY, SLASHES, TABLE, VARIABLE};
use super::problem::{Found, Path, Problem};
use super::read::{Fields, Reader};
use super::tree::Tree;
use super::{Environment, Policy, classes, limiters, observe, response, rules};
use crate::path::Paths;
use crate::tenant::HashKey;

pub(super) fn policy(tree: &Tree, environment: Environment) -> Result<Policy, Vec<Problem>> {
    let mut reader = Reader::default();
    let decoded = read_policy(&mut reader, tree, environment);
    match decoded {
        Some(policy) if reader.problems.is_empty() => Ok(policy),
        _ => Err(reader.problems),
    }
}

fn read_policy(reader: &mut Reader, tree: &Tree, environment: Environment) -> Option<Policy> {
    let fields = reader.object(&Path::default(), tree, &POLICY)?;
    version(reader, &fields);
    let namespace = reader.text_of(&fields, "namespace");
    let hash_key = variable(reader, &fields, "hash_secret_env", environment);
    let limiters = limiters::read(reader, &fields, environment);
    let paths = paths(reader, &fields);
    let classes = classes::read(reader, &fields, paths);
    let proxies = reader.if_written(&fields, "proxies", Reader::integer).flatten();
    let table = reader.object_of(&fields, "table", &TABLE);
    let table_entries = table.and_then(|fields| reader.integer(&fields, "entries"));
    let rules = rules::read(reader, &fields, &classes, hash_key.map(HashKey::new), proxies);
    let response = response::read(reader, &fields);
    let observe = observe::read(reader, &fields, environment);
    // In one go, here and below: what is dropped is dropped in one place, and the module is smaller.
    match (namespace, table_entries, limiters, rules, response, observe) {
        (Some(namespace), Some(table_entries), Some(limiters), Some(rules), Some(response), Some(observe)) => {
            let fingerprint = tree.fingerprint();
            Some(Policy { namespace, proxies, table_entries, limiters, classes, rules, response, observe, fingerprint })
        }
        _ => None,
    }
}

/// Which paths are one. A value that could not be read is noted, so the default in its place is never used.
fn paths(reader: &mut Reader, fields: &Fields) -> Paths {
    let mut paths = Paths::default();
    let Some(fields) = reader.object_of(fields, "paths", &PATHS) else {
        return paths;
    };
    if let Some((tree, path)) = fields.get("malformed") {
        const WANTED: &str = "write 400 or default";
        match tree {
            Tree::Int(400) => {}
            Tree::Int(other) => reader.note(&path, Found::Number(*other), "is not known here", WANTED),
            Tree::Text(text) if text == "default" => paths.malformed_is_default = true,
            Tree::Text(text) => reader.note(&path, Found::Text(text.clone()), "is not known here", WANTED),
            _ => reader.wrong_kind(&path, tree, WANTED),
        }
    }
    paths.ignore_trailing_slash = reader.choice(&fields, "trailing_slash", SLASHES).unwrap_or_default();
    paths.ignore_case = reader.flag(&fields, "ignore_case").unwrap_or_default();
    paths.strip_parameters = reader.flag(&fields, "strip_path_parameters").unwrap_or_default();
    paths
}

fn version(reader: &mut Reader, fields: &Fields) {
    if let Some((tree, path)) = reader.needed(fields, "version") {
        match tree {
            Tree::Int(1) => {}
            Tree::Int(other) => reader.note(&path, Found::Number(*other), "is no version", "write version: 1"),
            _ => reader.wrong_kind(&path, tree, "write version: 1"),
        }
    }
}

/// The value of the environment variable that a field names.
pub(super) fn variable(
    reader: &mut Reader,
    fields: &Fields,
    word: &'static str,
    environment: Environment,
) -> Option<String> {
    let (tree, path) = fields.get(word)?;
    let wanted = || ["write ", VARIABLE.wanted].concat();
    let Tree::Text(name) = tree else {
        reader.wrong_kind(&path, tree, wanted());
        return None;
    };
    if !VARIABLE.holds(name) {
        // It may be the secret itself.
        reader.note(&path, Found::Nothing, VARIABLE.wrong, wanted());
        return None;
    }
    let value = environment(name).filter(|value| !value.is_empty());
    if value.is_none() {
        let wanted =
            "set it for the proxy and let the host hand it to the module (Envoy: vm_config.environment_variables)";
        let found = Found::Text(name.to_owned());
        reader.note(&path, found, "is absent or empty in the environment", wanted);
    }
    value
}
