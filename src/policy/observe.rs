//! `observe`: what a policy shows of its decisions.

use super::decode::variable;
use super::language::OBSERVE;
use super::problem::Found;
use super::read::{Fields, Reader};
use super::{Credential, Environment};

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
    let fields = reader.object(&path, tree, &OBSERVE)?;
    let secret = variable(reader, &fields, "secret_env", environment);
    let filter_state = reader.flag(&fields, "filter_state");
    let debug_header = reader.text_of(&fields, "debug_header");
    let top_path = reader.if_written(&fields, "top_path", Reader::text_of);
    for word in ["debug_header", "top_path"] {
        if let (Some((_, path)), None) = (fields.get(word), fields.get("secret_env")) {
            let wanted = "write secret_env: the variable with the secret that those who ask have to send";
            reader.note(&path, Found::Nothing, "is open to nobody without a secret", wanted);
        }
    }
    let (debug_header, top_path, filter_state) = (debug_header?, top_path?, filter_state?);
    Some(Some(Observe { secret: secret.map(Credential), debug_header, top_path, filter_state }))
}
