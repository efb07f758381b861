//! What is read of a request: its class and its tenant.
//!
//! Each value that is read costs a call to the host, so nothing is read that the policy does not ask for, and nothing
//! twice. Values are bytes: a client may send any.

mod address;
mod class;
mod credentials;
mod identity;
mod wanted;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

pub use class::{Class, classify};
pub use identity::{Refused, identify};
pub use wanted::headers_wanted;
pub(crate) use {class::class_of, identity::tenant_of, identity::tier_of};

use crate::path::{Malformed, Paths};
use crate::policy::Observe;

/// A request, as far as it is asked for.
pub trait Request {
    /// The value of a header by its lower-case name, `:method` and `:path` among them. The first one of several.
    fn header(&self, name: &str) -> Option<Vec<u8>>;

    /// Which host the request is for, as its client has written it.
    fn authority(&self) -> Option<Vec<u8>> {
        self.header(":authority")
    }

    /// What all lines of `cookie` say, joined by `; ` (RFC 9113, 8.2.3): one line may stand on several.
    fn cookies(&self) -> Option<Vec<u8>> {
        self.header("cookie")
    }

    /// Whether a header was sent more than once.
    fn is_doubled(&self, name: &str) -> bool;

    /// What the host knows of the request under this path.
    fn property(&self, path: &[&str]) -> Option<Vec<u8>>;
}

/// Whether a request sends the secret of those who may see decisions. The time that it takes does not tell how much of
/// a wrong one is right.
pub fn shows_secret(observe: &Observe, request: &dyn Request) -> bool {
    let Some(secret) = &observe.secret else {
        return false;
    };
    let sent = request.header(&observe.debug_header).unwrap_or_default();
    let differing = secret.0.bytes().zip(&sent).fold(0, |differing, (wanted, sent)| differing | (wanted ^ sent));
    sent.len() == secret.0.len() && differing == 0
}

/// Whether a request is for the path at which the filter itself tells who comes most.
pub fn asks_for_top(observe: &Observe, request: &dyn Request) -> bool {
    let path = request.header(":path").unwrap_or_default();
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    observe.top_path.as_ref().is_some_and(|top_path| top_path.as_bytes() == path)
}

/// What has been read of a request so far, each value at most once.
pub(crate) struct Reading<'r> {
    request: &'r dyn Request,
    headers: RefCell<Vec<(&'r str, Known)>>,
    /// By their paths, each part after a NUL.
    properties: RefCell<Vec<(String, Known)>>,
    path: OnceCell<Result<Option<String>, Malformed>>,
}

type Known = Option<Rc<[u8]>>;

impl<'r> Reading<'r> {
    pub fn new(request: &'r dyn Request) -> Reading<'r> {
        Reading { request, headers: RefCell::default(), properties: RefCell::default(), path: OnceCell::new() }
    }

    pub fn header(&self, name: &'r str) -> Known {
        once(&self.headers, name, &|| match name {
            "cookie" => self.request.cookies(),
            ":authority" => self.request.authority(),
            _ => self.request.header(name),
        })
    }

    pub fn property(&self, path: &[&str]) -> Known {
        let mut name = String::new();
        for part in path {
            name.extend(["\0", part]);
        }
        once(&self.properties, name, &|| self.request.property(path))
    }

    pub fn is_doubled(&self, name: &str) -> bool {
        self.request.is_doubled(name)
    }

    /// The path in normal form; None where there is none, as with CONNECT.
    pub fn path(&self, paths: Paths) -> Result<Option<&str>, Malformed> {
        let path = self.path.get_or_init(|| {
            let sent = self.header(":path").filter(|path| !path.is_empty());
            sent.map(|path| paths.normalise(&path)).transpose()
        });
        path.as_ref().map(Option::as_deref).map_err(|malformed| *malformed)
    }
}

/// A value that has been read under this name, or that is read now.
fn once<N: PartialEq>(known: &RefCell<Vec<(N, Known)>>, name: N, read: &dyn Fn() -> Option<Vec<u8>>) -> Known {
    let mut known = known.borrow_mut();
    if let Some((_, value)) = known.iter().find(|(other, _)| *other == name) {
        return value.clone();
    }
    let value: Known = read().map(Rc::from);
    known.push((name, value.clone()));
    value
}

// For the room that tells people why.
#[cfg(feature = "explain")]
pub use {class::matching, identity::value_of};
