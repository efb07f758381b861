//! The class of a request.

use super::Request;
use crate::path::{self, Malformed};
use crate::policy::{ClassId, ClassMatch, Classes};

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
