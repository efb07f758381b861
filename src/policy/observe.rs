//! `observe`: what a policy shows of its decisions.

use super::decode::variable;
use super::problem::{Found, Path};
use super::read::{Fields, Reader, Words};
use super::tree::Tree;
use super::{Credential, Environment};

const OBSERVE: Words = Words { built: &["secret_env", "debug_header", "top_path", "filter_state"], later: &[] };

/// What is shown of decisions, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observe {
    /// Who sends it may see what is decided of single requests and tenants; None where nobody may.
    pub secret: Option<Credential>,
    /// The header of a request that the secret is sent in, and of the response that tells of the decision.
    pub debug_header: String,
    /// The path at which the filter itself tells who is limited most, and who is busiest.
    pub top_path: Option<String>,
    /// Whether each decision is put where access logs and later filters can read it.
    pub filter_state: bool,
}

pub(super) fn read(reader: &mut Reader, fields: &Fields, environment: Environment) -> Option<Option<Observe>> {
    let Some((tree, path)) = fields.get("observe") else {
        return Some(None);
    };
    let fields = reader.object(&path, tree, OBSERVE)?;
    let secret = variable(reader, &fields, "secret_env", environment);
    let filter_state = reader.flag(&fields, "filter_state");
    let debug_header = match fields.get("debug_header") {
        Some((tree, path)) => reader.header_name(&path, tree, "write the name of a header, such as x-weir-debug"),
        None => Some("x-weir-debug".to_owned()),
    };
    let top_path = match fields.get("top_path") {
        Some((tree, path)) => top_path(reader, &path, tree).map(Some),
        None => Some(None),
    };
    for word in ["debug_header", "top_path"] {
        if let (Some((_, path)), None) = (fields.get(word), fields.get("secret_env")) {
            let wanted = "write secret_env: the variable with the secret that those who ask have to send";
            reader.note(&path, Found::Nothing, "is open to nobody without a secret", wanted);
        }
    }
    let (debug_header, top_path, filter_state) = (debug_header?, top_path?, filter_state?);
    Some(Some(Observe { secret: secret.map(Credential), debug_header, top_path, filter_state }))
}

/// A path as it is sent, without a query.
fn top_path(reader: &mut Reader, path: &Path, tree: &Tree) -> Option<String> {
    const WANTED: &str = "write a path that the service behind does not have, such as /.weir/top";
    let text = reader.text(path, tree, WANTED)?;
    let is_path = text.len() > 1
        && text.starts_with('/')
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#'));
    if !is_path {
        reader.note(path, Found::Text(text.to_owned()), "is no path that can be the filter's own", WANTED);
        return None;
    }
    Some(text.to_owned())
}
