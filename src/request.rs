//! What is read of a request: its class and its tenant.
//!
//! Each value that is read costs a call to the host, so nothing is read that the policy does not ask for. Values are
//! bytes: a client may send any.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::path::{self, Malformed};
use crate::policy::{ClassId, ClassMatch, Classes, Missing, Origin, Rule};
use crate::tenant::Tenant;

/// A request, as far as it is asked for.
pub trait Request {
    /// The value of a header by its lower-case name, `:method` and `:path` among them. The first one of several.
    fn header(&self, name: &str) -> Option<Vec<u8>>;
}

/// How a request is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No rule looks at it.
    Exempt,
    /// It is in this class and takes this much from a bucket.
    Charged(ClassId, u64),
}

/// Sorts a request: the first match of the policy wins, and a request that matches none is in class `default`.
///
/// # Errors
/// [`Malformed`] where a match needs the path and the path is none.
pub fn classify(classes: &Classes, request: &impl Request) -> Result<Class, Malformed> {
    let mut read = Read { request, method: None, path: None };
    for class_match in &classes.matches {
        if read.matches(class_match)? {
            return Ok(match class_match.exempt {
                true => Class::Exempt,
                false => Class::Charged(class_match.class, class_match.cost),
            });
        }
    }
    Ok(Class::Charged(ClassId::default(), 1))
}

/// What has been read so far, each value at most once.
struct Read<'r, R> {
    request: &'r R,
    method: Option<Option<Vec<u8>>>,
    path: Option<Option<String>>,
}

impl<R: Request> Read<'_, R> {
    fn matches(&mut self, class_match: &ClassMatch) -> Result<bool, Malformed> {
        if let Some(methods) = &class_match.methods {
            let method = self.method.get_or_insert_with(|| self.request.header(":method"));
            let method = method.as_deref().unwrap_or_default();
            if !methods.iter().any(|wanted| wanted.as_bytes() == method) {
                return Ok(false);
            }
        }
        let Some(pattern) = &class_match.path else {
            return Ok(true);
        };
        if self.path.is_none() {
            // CONNECT has no path; it matches no pattern.
            let sent = self.request.header(":path").filter(|path| !path.is_empty());
            self.path = Some(sent.map(|path| path::normalise(&path)).transpose()?);
        }
        let path = self.path.as_ref().and_then(Option::as_ref);
        Ok(path.is_some_and(|path| pattern.matches(path)))
    }
}

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
