//! The tenant of a request.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Request;
use crate::policy::{Missing, Origin, Rule};
use crate::tenant::Tenant;

/// Whose request it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A tenant's.
    Tenant(Tenant),
    /// Nobody's, and the rule wants it refused.
    Refused,
    /// Nobody's, and the rule does not look at it.
    Skipped,
}

/// Names the tenant: the first source that yields a value does.
pub fn identify(rule: &Rule, request: &impl Request) -> Identity {
    for source in &rule.sources {
        if let Some(value) = value(&source.origin, request) {
            return Identity::Tenant(Tenant::new(&source.label, &value, source.storage, &rule.hash_key));
        }
    }
    match &rule.missing {
        Missing::Deny => Identity::Refused,
        Missing::Skip => Identity::Skipped,
        Missing::As(tenant) => Identity::Tenant(tenant.clone()),
    }
}

/// The value of a source; an empty one is none.
fn value<'o>(origin: &'o Origin, request: &impl Request) -> Option<Cow<'o, [u8]>> {
    let value = match origin {
        Origin::Header(name) => Cow::Owned(request.header(name)?),
        Origin::Constant(value) => Cow::Borrowed(value.as_bytes()),
        Origin::Bearer => Cow::Owned(credentials(request, b"bearer")?),
        Origin::BasicUser => Cow::Owned(basic_user(&credentials(request, b"basic")?)?),
    };
    (!value.is_empty()).then_some(value)
}

/// The credentials of `Authorization` with this scheme, which is compared without case (RFC 9110, 11.1).
fn credentials(request: &impl Request, scheme: &[u8]) -> Option<Vec<u8>> {
    let value = request.header("authorization")?;
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (given, rest) = value.split_at_checked(space)?;
    given.eq_ignore_ascii_case(scheme).then(|| rest.trim_ascii().to_vec())
}

/// The user of Basic credentials: what stands before the first colon (RFC 7617, 2).
fn basic_user(credentials: &[u8]) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    let mut user = BASE64.decode(credentials).ok()?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    user.truncate(colon);
    Some(user)
}
