//! The class of a request, and why it is that one.

use super::{Asking, get, text, words};
use crate::path::Malformed;
use crate::policy::{ClassId, ClassMatch, Tree};
use crate::request::{Class, matching};

/// The class of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSeen {
    /// Its name; None where the request is in none.
    pub name: Option<String>,
    /// Why it is that one.
    pub because: Because,
    /// What it takes from buckets.
    pub charge: Charge,
}

/// Why a request is in its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// This entry of `classes` is the first that matches.
    First {
        /// Its index.
        index: usize,
        /// What it wants, in the words of the policy.
        wants: String,
    },
    /// The policy has no classes.
    NoClasses,
    /// No entry of `classes` matches.
    NoMatch,
    /// An entry wants the path, which is malformed.
    Malformed,
}

/// What a request takes from buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// So many tokens of each.
    Cost(u64),
    /// Nothing: it is exempt, and no rule looks at it.
    Exempt,
    /// Nothing: it is refused before.
    Refused,
}

impl Asking<'_> {
    pub(super) fn class(self, class: Result<Class, Malformed>) -> ClassSeen {
        let classes = &self.policy.classes;
        let because = match matching(classes, self.request) {
            Ok(Some(index)) => {
                let wants = classes.matches.get(index).map(|found| self.wants(found, index)).unwrap_or_default();
                Because::First { index, wants }
            }
            Ok(None) if classes.matches.is_empty() => Because::NoClasses,
            Ok(None) => Because::NoMatch,
            Err(Malformed) => Because::Malformed,
        };
        let name = |class: ClassId| classes.names.get(class.0).cloned();
        let (name, charge) = match class {
            Ok(Class::Charged(class, cost)) => (name(class), Charge::Cost(cost)),
            Ok(Class::Exempt(class)) => (name(class), Charge::Exempt),
            Err(Malformed) => (None, Charge::Refused),
        };
        ClassSeen { name, because, charge }
    }

    /// What a match wants, in its own words.
    fn wants(self, found: &ClassMatch, index: usize) -> String {
        let mut wants = Vec::new();
        if let Some(methods) = &found.methods {
            wants.push(format!("methods {}", methods.join(", ")));
        }
        let written = match get(&self.subject.written, "classes") {
            Some(Tree::List(classes)) => classes.get(index).and_then(|class| get(class, "match")),
            _ => None,
        };
        let word = |key| written.and_then(|written| get(written, key));
        wants.extend(word("path").and_then(text).map(|path| format!("path {path}")));
        wants.extend(word("path_regex").and_then(text).map(|path| format!("path_regex {path}")));
        if let Some(Tree::Map(grpc)) = word("grpc") {
            let pairs = grpc.iter().filter_map(|(key, value)| Some(format!("{key} {}", text(value)?)));
            wants.push(format!("grpc {}", pairs.collect::<Vec<_>>().join(" ")));
        }
        wants.extend(found.conditions.iter().map(words::condition));
        wants.join("; ")
    }
}
