//! Reads values out of a tree and keeps every problem, so that all of them are told at once.
//!
//! Each function returns what it could read, or None after noting the problem: the caller goes on with the rest.

use std::ops::RangeInclusive;

use super::limit;
use super::problem::{Found, Path, Problem, Segment};
use super::tree::Tree;
use crate::clock::Ms;

/// Collects problems while a policy is read.
#[derive(Default)]
pub(super) struct Reader {
    pub problems: Vec<Problem>,
}

/// The fields of one object, all of them known.
pub(super) struct Fields<'t> {
    pub path: Path,
    fields: Vec<(&'static str, &'t Tree)>,
}

/// The words that an object may hold: those that are built, and those of the language that are not yet.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub built: &'static [&'static str],
    pub later: &'static [&'static str],
}

impl<'t> Fields<'t> {
    /// The value of a field and its path.
    #[inline(never)] // It is asked for everywhere, and the module is to be small: likewise below.
    pub fn get(&self, word: &'static str) -> Option<(&'t Tree, Path)> {
        let (_, tree) = self.fields.iter().find(|(name, _)| *name == word)?;
        Some((tree, self.path.word(word)))
    }
}

impl Reader {
    pub fn note(&mut self, path: &Path, found: Found, wrong: &'static str, wanted: impl AsRef<str>) {
        self.note_choices(path, found, wrong, wanted, Vec::new());
    }

    pub fn note_choices(
        &mut self,
        path: &Path,
        found: Found,
        wrong: &'static str,
        wanted: impl AsRef<str>,
        choices: Vec<String>,
    ) {
        self.keep(path, found, wrong, wanted.as_ref(), choices);
    }

    #[inline(never)]
    fn keep(&mut self, path: &Path, found: Found, wrong: &'static str, wanted: &str, choices: Vec<String>) {
        self.problems.push(Problem { path: path.clone(), found, wrong, wanted: wanted.to_owned(), choices });
    }

    /// Notes that a value is of another kind than the one wanted.
    pub fn wrong_kind(&mut self, path: &Path, tree: &Tree, wanted: impl AsRef<str>) {
        self.not_of_kind(path, tree, wanted.as_ref());
    }

    #[inline(never)]
    fn not_of_kind(&mut self, path: &Path, tree: &Tree, wanted: &str) {
        self.note(path, Found::Ours(tree.kind()), "cannot stand here", wanted);
    }

    /// An object of known words; unknown ones and ones that are not built yet are noted.
    #[inline(never)]
    pub fn object<'t>(&mut self, path: &Path, tree: &'t Tree, words: Words) -> Option<Fields<'t>> {
        let Tree::Map(pairs) = tree else {
            self.wrong_kind(path, tree, format!("write an object with some of: {}", words.built.join(", ")));
            return None;
        };
        let mut fields: Vec<(&'static str, &Tree)> = Vec::new();
        for (key, value) in pairs {
            match words.find(key) {
                Some((word, _)) if fields.iter().any(|(name, _)| *name == word) => {
                    self.note(&path.word(word), Found::Nothing, "stands twice", "write it once");
                }
                Some((word, true)) => fields.push((word, value)),
                Some((word, false)) => self.note(&path.word(word), Found::Nothing, "is not built yet", "leave it out"),
                None => {
                    let wanted = match words.nearest(key) {
                        Some(word) => format!("nearest: {word}"),
                        None => format!("known: {}", words.built.join(", ")),
                    };
                    self.note(path, Found::Field(key.clone()), "", wanted);
                }
            }
        }
        Some(Fields { path: path.clone(), fields })
    }

    /// An object whose keys the user chose, none standing twice.
    #[inline(never)]
    pub fn chosen<'t>(&mut self, path: &Path, tree: &'t Tree, wanted: &str) -> Option<Vec<(&'t str, Path, &'t Tree)>> {
        self.chosen_and_told(path, tree, wanted, &str::to_owned)
    }

    /// The same, where a key may be nothing to tell: `told` gives what people get of it.
    #[inline(never)]
    pub fn chosen_and_told<'t>(
        &mut self,
        path: &Path,
        tree: &'t Tree,
        wanted: &str,
        told: &dyn Fn(&str) -> String,
    ) -> Option<Vec<(&'t str, Path, &'t Tree)>> {
        let Tree::Map(pairs) = tree else {
            self.wrong_kind(path, tree, wanted);
            return None;
        };
        let mut chosen: Vec<(&str, Path, &Tree)> = Vec::new();
        for (position, (key, value)) in pairs.iter().enumerate() {
            let at = path.then(Segment::Chosen(told(key), position));
            if chosen.iter().any(|(name, ..)| name == key) {
                self.note(&at, Found::Nothing, "stands twice", "write it once");
            } else {
                chosen.push((key, at, value));
            }
        }
        Some(chosen)
    }

    /// The items of a list.
    #[inline(never)]
    pub fn list<'t>(
        &mut self,
        path: &Path,
        tree: &'t Tree,
        wanted: &str,
    ) -> Option<std::vec::IntoIter<(Path, &'t Tree)>> {
        let Tree::List(items) = tree else {
            self.wrong_kind(path, tree, wanted);
            return None;
        };
        let items = items.iter().enumerate().map(|(index, item)| (path.then(Segment::Index(index)), item));
        Some(items.collect::<Vec<_>>().into_iter())
    }

    /// The field's value, or the noted problem that it is missing.
    #[inline(never)]
    pub fn needed<'t>(&mut self, fields: &Fields<'t>, word: &'static str, wanted: &str) -> Option<(&'t Tree, Path)> {
        let value = fields.get(word);
        if value.is_none() {
            self.note(&fields.path.word(word), Found::Nothing, "is missing", wanted);
        }
        value
    }

    #[inline(never)]
    pub fn text<'t>(&mut self, path: &Path, tree: &'t Tree, wanted: &str) -> Option<&'t str> {
        let Tree::Text(text) = tree else {
            self.wrong_kind(path, tree, wanted);
            return None;
        };
        Some(text)
    }

    #[inline(never)]
    pub fn boolean(&mut self, path: &Path, tree: &Tree) -> Option<bool> {
        let Tree::Bool(value) = tree else {
            self.wrong_kind(path, tree, "write true or false");
            return None;
        };
        Some(*value)
    }

    /// A boolean that is false where it is left out.
    #[inline(never)]
    pub fn flag(&mut self, fields: &Fields, word: &'static str) -> Option<bool> {
        match fields.get(word) {
            Some((tree, path)) => self.boolean(&path, tree),
            None => Some(false),
        }
    }

    /// An integer of at least 1.
    #[inline(never)]
    pub fn count(&mut self, path: &Path, tree: &Tree) -> Option<u64> {
        match tree {
            Tree::Int(value) if *value >= 1 => u64::try_from(*value).ok(),
            Tree::Int(value) => {
                self.note(path, Found::Number(*value), "is too small", "write an integer of at least 1");
                None
            }
            _ => {
                self.wrong_kind(path, tree, "write an integer of at least 1");
                None
            }
        }
    }

    /// An integer of a range.
    #[inline(never)]
    pub fn integer(&mut self, path: &Path, tree: &Tree, range: RangeInclusive<i64>) -> Option<u64> {
        let wanted = format!("write an integer from {} to {}", range.start(), range.end());
        match tree {
            Tree::Int(value) if range.contains(value) => return u64::try_from(*value).ok(),
            Tree::Int(value) => self.note(path, Found::Number(*value), "is out of range", wanted),
            _ => self.wrong_kind(path, tree, wanted),
        }
        None
    }

    #[inline(never)]
    pub fn duration(&mut self, path: &Path, tree: &Tree, wanted: &str) -> Option<Ms> {
        let text = self.text(path, tree, wanted)?;
        let duration = limit::duration(text);
        if duration.is_none() {
            self.note(path, Found::Text(text.to_owned()), "is no duration", wanted);
        }
        duration
    }

    /// A duration of a range: `wanted` is told of what is no duration, `within` of one that is outside.
    #[inline(never)]
    pub fn duration_within(
        &mut self,
        path: &Path,
        tree: &Tree,
        range: RangeInclusive<Ms>,
        [wanted, within]: [&str; 2],
    ) -> Option<Ms> {
        let duration = self.duration(path, tree, wanted)?;
        if !range.contains(&duration) {
            let found = if let Tree::Text(text) = tree { Found::Text(text.clone()) } else { Found::Nothing };
            self.note(path, found, "is out of range", within);
            return None;
        }
        Some(duration)
    }

    /// A part of 1 in a range, kept to three digits, in thousandths.
    #[inline(never)]
    pub fn thousandths(
        &mut self,
        path: &Path,
        tree: &Tree,
        range: RangeInclusive<f64>,
        outside: &'static str,
        wanted: &str,
    ) -> Option<u16> {
        let (part, found) = match tree {
            Tree::Int(part) => (*part as f64, Found::Number(*part)),
            Tree::Float(part) => (*part, Found::Ours("a number")),
            // Envoy's YAML makes a text of a fraction, where a policy is written out as a Struct.
            Tree::Text(text) => (text.parse().unwrap_or(f64::NAN), Found::Text(text.clone())),
            _ => (f64::NAN, Found::Nothing),
        };
        if range.contains(&part) {
            // From 0.0 to 1000.0: the cast cannot cut anything off.
            return Some((part * 1000.0).round() as u16);
        }
        match part.is_nan() {
            true => self.wrong_kind(path, tree, wanted),
            false => self.note(path, found, outside, wanted),
        }
        None
    }

    /// The name of a header, in lower case, as hosts ask for it.
    #[inline(never)]
    pub fn header_name(&mut self, path: &Path, tree: &Tree, wanted: &str) -> Option<String> {
        let name = self.text(path, tree, wanted)?;
        self.header_text(path, name, wanted)
    }

    /// A text that is the name of a header, in lower case.
    #[inline(never)]
    pub fn header_text(&mut self, path: &Path, name: &str, wanted: &str) -> Option<String> {
        let is_token =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            self.note(path, Found::Text(name.to_owned()), "is no header", wanted);
            return None;
        }
        Some(name.to_owned())
    }

    /// A name: 1 to 32 of `a-z 0-9 _ -`. It stands in Redis keys and metric names.
    #[inline(never)]
    pub fn name(&mut self, path: &Path, text: &str) -> Option<String> {
        if is_name(text) {
            return Some(text.to_owned());
        }
        self.note(path, Found::Text(text.to_owned()), "is no name", "write 1 to 32 of a-z, 0-9, _ and -");
        None
    }

    /// A text that is a name.
    #[inline(never)]
    pub fn name_at(&mut self, path: &Path, tree: &Tree) -> Option<String> {
        let text = self.text(path, tree, "write a name of a-z, 0-9, _ and -")?;
        self.name(path, text)
    }

    /// One of a closed set of words; `later` are words of the language that are not built yet.
    pub fn word<T: Copy>(
        &mut self,
        path: &Path,
        tree: &Tree,
        built: &[(&'static str, T)],
        later: &[&'static str],
    ) -> Option<T> {
        let words: Vec<&str> = built.iter().map(|(word, _)| *word).collect();
        let index = self.one_of(path, tree, &words, later)?;
        built.get(index).map(|(_, value)| *value)
    }

    /// The index of a word.
    #[inline(never)]
    fn one_of(&mut self, path: &Path, tree: &Tree, words: &[&str], later: &[&'static str]) -> Option<usize> {
        let known = words.join(", ");
        let wanted = if words.len() == 1 { format!("write {known}") } else { format!("write one of: {known}") };
        let text = self.text(path, tree, &wanted)?;
        if let Some(index) = words.iter().position(|word| *word == text) {
            return Some(index);
        }
        match later.iter().find(|word| **word == text) {
            Some(word) => self.note(path, Found::Ours(word), "is not built yet", wanted),
            None => self.note(path, Found::Text(text.to_owned()), "is not known here", wanted),
        }
        None
    }
}

impl Words {
    /// The word, and whether it is built.
    fn find(self, text: &str) -> Option<(&'static str, bool)> {
        let in_list = |list: &'static [&'static str]| list.iter().copied().find(|word| *word == text);
        in_list(self.built).map(|word| (word, true)).or_else(|| in_list(self.later).map(|word| (word, false)))
    }

    /// The word that a misspelt one was meant to be.
    fn nearest(self, text: &str) -> Option<&'static str> {
        nearest(text, self.built.iter().chain(self.later).copied())
    }
}

/// Whether a text is 1 to 32 of `a-z 0-9 _ -`.
pub(super) fn is_name(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-')
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
