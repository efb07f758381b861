//! What a policy makes of one request, and why: data, from which the tool prints and a page could draw.
//!
//! Nothing is decided here: the rooms before this one sort requests, name tenants, find limits and write answers; this
//! one asks them, and tells. It reads no file and no environment. It must not know where its reader looks: at a command
//! line, a terminal or a page.

mod answer;
mod buckets;
mod class;
mod limiter;
mod note;
mod request;
mod rule;
pub mod words;

pub use answer::{AnswerSeen, HeaderSeen, When};
pub use class::{Because, Charge, ClassSeen};
pub use limiter::{LimiterBecause, LimiterSeen};
pub use note::Note;
pub use request::{Described, Undescribed};
pub use rule::{BucketSeen, OnFailure, RepeatSeen, RuleResult, RuleSeen, SourceSeen, TierBecause, TierSeen};

use crate::path::Malformed;
use crate::policy::{Environment, Policy, Problem, Tree};
use crate::request::{Class, Request, classify};
use request::Arrived;

/// What a policy makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Tells the policy from others: see [`Tree::fingerprint`].
    pub fingerprint: u32,
    /// The path in the form in which it is compared.
    pub path: PathSeen,
    /// The class of the request.
    pub class: ClassSeen,
    /// What each rule makes of it, in the order of the policy; none where no rule looks at it.
    pub rules: Vec<RuleSeen>,
    /// What the client gets, by the state of the buckets.
    pub answers: Vec<AnswerSeen>,
    /// What one should know beside that.
    pub notes: Vec<Note>,
}

/// A path, as the policy reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathSeen {
    /// There is none.
    Absent,
    /// Its normal form.
    Normal(String),
    /// It is malformed, and by `paths.malformed` the request is in class `default`.
    MalformedIsDefault,
    /// It is malformed: the request is refused where something wants the path.
    Malformed,
}

/// A policy that requests are explained by.
#[derive(Clone, Debug)]
pub struct Subject {
    policy: Policy,
    /// The same in the words of its author.
    written: Tree,
    /// The variable of the hash's key, where nobody has told the key.
    unknown_hash_key: Option<String>,
}

impl Subject {
    /// Decodes a policy as it is handed to the module: see [`Tree::from_host`]. A variable that `environment` does not know
    /// is taken to be set; hashes that hang on it are not told.
    ///
    /// # Errors
    /// As [`Policy::from_host`].
    pub fn from_host(bytes: &[u8], environment: Environment) -> Result<Subject, Vec<Problem>> {
        match Tree::from_host(bytes) {
            Ok(tree) => Subject::from_tree(tree, environment),
            // It is refused there, too, in words.
            Err(_) => Err(Policy::from_host(bytes, environment).err().unwrap_or_default()),
        }
    }

    /// The same from whatever a policy was read.
    ///
    /// # Errors
    /// As [`Policy::from_tree`].
    pub fn from_tree(written: Tree, environment: Environment) -> Result<Subject, Vec<Problem>> {
        let policy = Policy::from_tree(&written, &|name| environment(name).or_else(|| Some("set".to_owned())))?;
        let hash_key = get(&written, "hash_secret_env").and_then(text);
        let unknown_hash_key = hash_key.filter(|name| environment(name).is_none()).map(str::to_owned);
        Ok(Subject { policy, written, unknown_hash_key })
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What the policy makes of a request.
    pub fn explain(&self, request: &Described) -> Explanation {
        let asking = Asking { subject: self, policy: &self.policy, request: &Arrived::new(request, &self.policy) };
        let class = classify(&self.policy.classes, asking.request);
        let rules = match class {
            Ok(Class::Charged(class, _)) => {
                self.policy.rules.iter().enumerate().map(|(index, rule)| asking.rule(index, rule, class)).collect()
            }
            Ok(Class::Exempt(_)) | Err(Malformed) => Vec::new(),
        };
        Explanation {
            fingerprint: self.policy.fingerprint,
            path: asking.path(),
            class: asking.class(class),
            rules,
            answers: asking.answers(),
            notes: asking.notes(),
        }
    }
}

/// What asks the other rooms about one request.
#[derive(Clone, Copy)]
struct Asking<'a> {
    subject: &'a Subject,
    policy: &'a Policy,
    request: &'a Arrived,
}

impl Asking<'_> {
    fn path(self) -> PathSeen {
        let paths = self.policy.classes.paths;
        match self.request.header(":path").filter(|path| !path.is_empty()).map(|path| paths.normalise(&path)) {
            None => PathSeen::Absent,
            Some(Ok(path)) => PathSeen::Normal(path),
            Some(Err(Malformed)) if paths.malformed_is_default => PathSeen::MalformedIsDefault,
            Some(Err(Malformed)) => PathSeen::Malformed,
        }
    }

    /// A tenant or a key, without a hash that is made with a key nobody has told.
    fn masked(self, text: &str) -> String {
        let Some(name) = &self.subject.unknown_hash_key else {
            return text.to_owned();
        };
        match text.split_once(".~") {
            Some((before, after)) => {
                let rest = after.trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
                format!("{before}.~<hash: set {name}>{rest}")
            }
            None => text.to_owned(),
        }
    }
}

/// The value of a key.
fn get<'t>(tree: &'t Tree, key: &str) -> Option<&'t Tree> {
    match tree {
        Tree::Map(pairs) => pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value),
        _ => None,
    }
}

fn text(tree: &Tree) -> Option<&str> {
    match tree {
        Tree::Text(text) => Some(text),
        _ => None,
    }
}
