//! What is wrong with a policy: where, what was found, what was wanted; told to people or to a log.
//!
//! People get the text that they wrote. A log gets none of it: keys that users chose stand there by position, texts
//! by length, for a policy names tenants and a log is read by many.

use std::fmt::{self, Display, Write};
use std::rc::Rc;

use super::language::Object;

/// One step from the root of a policy towards a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A word of the policy's language.
    Word(&'static str),
    /// An item of a list, counted from 0.
    Index(usize),
    /// A key that the user chose (a tier, a class, a tenant ...) and its position among its siblings.
    Chosen(String, usize),
}

/// The way from the root of a policy to a value: the last step, and the way to it. Paths are made and dropped at every
/// field of a policy, which has to be little code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Option<Rc<(Path, Segment)>>);

impl Path {
    /// This path and one step more.
    #[inline(never)]
    pub fn then(&self, segment: Segment) -> Path {
        Path(Some(Rc::new((self.clone(), segment))))
    }

    /// This path and one word more.
    #[inline(never)]
    pub fn word(&self, word: &'static str) -> Path {
        self.then(Segment::Word(word))
    }

    /// Its steps, from the root.
    #[cfg(feature = "cli")]
    pub fn steps(&self) -> Vec<&Segment> {
        let mut steps = Vec::new();
        let mut path = self;
        while let Some(step) = &path.0 {
            steps.push(&step.1);
            path = &step.0;
        }
        steps.reverse();
        steps
    }

    fn write(&self, f: &mut impl Write, to: Reader) -> fmt::Result {
        let Some(step) = &self.0 else {
            return f.write_str("policy");
        };
        let (before, segment) = &**step;
        let dot = if before.0.is_none() { "" } else { "." };
        if before.0.is_some() {
            before.write(f, to)?;
        }
        match (segment, to) {
            (Segment::Word(word), _) => write!(f, "{dot}{word}"),
            (Segment::Index(index), _) => write!(f, "[{index}]"),
            (Segment::Chosen(name, _), Reader::Person) => write!(f, "{dot}{name}"),
            (Segment::Chosen(_, position), Reader::Log) => write!(f, "{dot}#{position}"),
        }
    }
}

#[cfg(feature = "cli")]
impl Display for Path {
    /// For the one who wrote the policy.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.write(f, Reader::Person)
    }
}

/// What was found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing worth saying, or nothing that may be said.
    Nothing,
    /// A text; a log gets its length.
    Text(String),
    /// A text where a limit was wanted; a log gets it where it is short and can be nothing else.
    LimitText(String),
    /// An unknown field of an object; a log gets its length.
    Field {
        /// As it is written.
        name: String,
        /// What the object may hold.
        of: &'static Object,
    },
    /// A number.
    Number(i64),
    /// A word of the policy's language, or a description in our own words.
    Ours(&'static str),
}

/// One thing that is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub path: Path,
    /// What stands there.
    pub found: Found,
    /// What is wrong with it, in our words.
    pub wrong: &'static str,
    /// What to write instead, in our words; may be empty.
    pub wanted: String,
    /// What could stand there, as far as that is a user's text; told to people only, after `wanted`.
    pub choices: Vec<String>,
}

#[derive(Clone, Copy)]
enum Reader {
    Person,
    Log,
}

impl Problem {
    /// What is wrong, for the one who wrote the policy, without the path.
    #[cfg(feature = "cli")]
    pub fn message(&self) -> String {
        let whole = self.for_people().to_string();
        let path = format!("{}: ", self.path);
        whole.strip_prefix(&path).map(str::to_owned).unwrap_or(whole)
    }

    /// For the one who wrote the policy.
    pub fn for_people(&self) -> impl Display + '_ {
        ForPeople(self)
    }

    /// For a log: the same without anything that a user may want to keep.
    pub fn for_log(&self) -> impl Display + '_ {
        ForLog(self)
    }
}

/// The module tells nobody but its log, so what is told here alone is not in it.
struct ForPeople<'p>(&'p Problem);

impl Display for ForPeople<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let ForPeople(problem) = self;
        problem.path.write(f, Reader::Person)?;
        f.write_str(": ")?;
        let mut wanted = problem.wanted.clone();
        match &problem.found {
            Found::Nothing => {}
            Found::Text(text) | Found::LimitText(text) => write!(f, "{text:?} ")?,
            Found::Field { name, of } => {
                write!(f, "unknown field {name:?}")?;
                let words = of.fields.iter().map(|field| field.word);
                if let Some(word) = nearest(name, words) {
                    wanted = format!("nearest: {word}");
                }
            }
            Found::Number(number) => write!(f, "{number} ")?,
            Found::Ours(words) => write!(f, "{words} ")?,
        }
        write!(f, "{}", problem.wrong)?;
        if !wanted.is_empty() {
            write!(f, "; {wanted}")?;
        }
        match problem.choices.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", problem.choices.join(", ")),
        }
    }
}

struct ForLog<'p>(&'p Problem);

impl Display for ForLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let ForLog(problem) = self;
        problem.path.write(f, Reader::Log)?;
        f.write_str(": ")?;
        match &problem.found {
            Found::Nothing => {}
            Found::LimitText(text) if can_only_be_a_limit(text) => write!(f, "{text:?} ")?,
            Found::Text(text) | Found::LimitText(text) => write!(f, "a text of {} ", bytes(text.len()))?,
            Found::Field { name, .. } => write!(f, "unknown field ({})", bytes(name.len()))?,
            Found::Number(number) => write!(f, "{number} ")?,
            Found::Ours(words) => write!(f, "{words} ")?,
        }
        f.write_str(problem.wrong)?;
        match problem.wanted.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", problem.wanted),
        }
    }
}

/// What is told of a text in place of the text.
pub(super) fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

/// A short text that starts as a limit does; a word may be the name of something.
fn can_only_be_a_limit(text: &str) -> bool {
    text.len() <= 16
        && text.starts_with(|letter: char| letter.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'/')
}

/// The candidate within a third of the text's length in edits, the nearest first.
fn nearest<'c>(text: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let allowed = text.len().div_ceil(3);
    candidates
        .map(|candidate| (edits(text, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, in bytes, by the usual row.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, byte) in from.bytes().enumerate() {
        let mut diagonal = above;
        let mut left = above.saturating_add(1);
        let mut next = vec![left];
        for (other, up) in to.bytes().zip(row.iter().skip(1)) {
            let change = diagonal.saturating_add(usize::from(byte != other));
            left = change.min(left.saturating_add(1)).min(up.saturating_add(1));
            diagonal = *up;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
