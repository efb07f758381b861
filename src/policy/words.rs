//! Reads the words of an object as the language declares them: what may be left out is then what it says there, and
//! numbers, durations and words are those that stand there.

use std::borrow::Cow;

use super::language::{Object, Presence, Term, Value};
use super::limit;
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::tree::Tree;
use crate::clock::Ms;

/// A value and how it is declared.
type Declared<'t> = (Cow<'t, Tree>, Path, &'static Value);

impl Reader {
    /// The value of a word, or what it is where it is left out. None where that is nothing; where the word may not be left
    /// out, it is noted.
    #[inline(never)]
    fn declared<'t>(&mut self, fields: &Fields<'t>, word: &'static str) -> Option<Declared<'t>> {
        let field = fields.object.field(word)?;
        if let Some((tree, path)) = fields.get(word) {
            return Some((Cow::Borrowed(tree), path, &field.value));
        }
        let path = fields.path.word(word);
        match field.presence {
            Presence::Default(json) => {
                let default = Tree::from_json(json.as_bytes()).ok()?;
                Some((Cow::Owned(default), path, &field.value))
            }
            Presence::Required(wanted) => {
                self.note(&path, Found::Nothing, "is missing", wanted);
                None
            }
            Presence::Optional(_) | Presence::Parts => None,
        }
    }

    /// A word that is left out is nothing; one that is written is read.
    pub fn if_written<T>(
        &mut self,
        fields: &Fields,
        word: &'static str,
        read: impl FnOnce(&mut Reader, &Fields, &'static str) -> Option<T>,
    ) -> Option<Option<T>> {
        match fields.get(word) {
            Some(_) => read(self, fields, word).map(Some),
            None => Some(None),
        }
    }

    /// The field's value, or the noted problem that it is missing.
    #[inline(never)]
    pub fn needed<'t>(&mut self, fields: &Fields<'t>, word: &'static str) -> Option<(&'t Tree, Path)> {
        match self.declared(fields, word)? {
            (Cow::Borrowed(tree), path, _) => Some((tree, path)),
            // What has a default is not needed.
            (Cow::Owned(_), ..) => None,
        }
    }

    /// The object under a word; without one, an object of which everything is left out.
    pub fn object_of<'t>(
        &mut self,
        fields: &Fields<'t>,
        word: &'static str,
        object: &'static Object,
    ) -> Option<Fields<'t>> {
        match fields.get(word) {
            Some((tree, path)) => self.object(&path, tree, object),
            None => Some(Fields::none(fields.path.word(word), object)),
        }
    }

    /// `true` or `false`.
    pub fn flag(&mut self, fields: &Fields, word: &'static str) -> Option<bool> {
        let (tree, path, _) = self.declared(fields, word)?;
        self.boolean(&path, &tree)
    }

    /// An integer of the word's range.
    #[inline(never)]
    pub fn integer(&mut self, fields: &Fields, word: &'static str) -> Option<u64> {
        let (tree, path, value) = self.declared(fields, word)?;
        let Value::Integer(&(from, to)) = *value else {
            return None;
        };
        let wanted = match to {
            i64::MAX => format!("write an integer of at least {from}"),
            _ => format!("write an integer from {from} to {to}"),
        };
        match *tree {
            Tree::Int(value) if (from..=to).contains(&value) => return u64::try_from(value).ok(),
            Tree::Int(value) => self.note(&path, Found::Number(value), "is out of range", wanted),
            _ => self.wrong_kind(&path, &tree, wanted),
        }
        None
    }

    /// A duration of the word's range.
    #[inline(never)]
    pub fn duration(&mut self, fields: &Fields, word: &'static str) -> Option<Ms> {
        let (tree, path, value) = self.declared(fields, word)?;
        let (units, from, to) = match *value {
            Value::Duration(from, to) => ("ms, s, m, h", u64::from(from), u64::from(to)),
            Value::Seconds(from, to) => ("s, m, h", Ms(1000).times(from.into()).0, Ms(1000).times(to.into()).0),
            _ => return None,
        };
        let (least, most) = (limit::told(Ms(from)), limit::told(Ms(to)));
        let wanted = format!("write one integer and {units} or d, from {least} to {most}");
        let Tree::Text(text) = &*tree else {
            self.wrong_kind(&path, &tree, wanted);
            return None;
        };
        match limit::duration(text) {
            Some(duration) if (from..=to).contains(&duration.0) => return Some(duration),
            Some(_) => self.note(&path, Found::Text(text.clone()), "is out of range", wanted),
            None => self.note(&path, Found::Text(text.clone()), "is no duration", wanted),
        }
        None
    }

    /// A part of 1 in the word's range, kept to three digits, in thousandths.
    #[inline(never)]
    pub fn part(&mut self, fields: &Fields, word: &'static str) -> Option<u16> {
        let (tree, path, value) = self.declared(fields, word)?;
        let Value::Tenths(from, to) = *value else {
            return None;
        };
        // A float that is told would be 10 kB of module.
        let wanted = format!("write a part from {}.{} to {}.{}", from / 10, from % 10, to / 10, to % 10);
        let (from, to) = (f64::from(from) / 10.0, f64::from(to) / 10.0);
        let (part, found) = match &*tree {
            Tree::Int(part) => (*part as f64, Found::Number(*part)),
            Tree::Float(part) => (*part, Found::Ours("a number")),
            // Envoy's YAML makes a text of a fraction, where a policy is written out as a Struct.
            Tree::Text(text) => (text.parse().unwrap_or(f64::NAN), Found::Text(text.clone())),
            _ => (f64::NAN, Found::Nothing),
        };
        if (from..=to).contains(&part) {
            // From 0.0 to 1000.0: the cast cannot cut anything off.
            return Some((part * 1000.0).round() as u16);
        }
        match part.is_nan() {
            true => self.wrong_kind(&path, &tree, wanted),
            false => self.note(&path, found, "is out of range", wanted),
        }
        None
    }

    /// A text of the word's form.
    #[inline(never)]
    pub fn text_of(&mut self, fields: &Fields, word: &'static str) -> Option<String> {
        let (tree, path, value) = self.declared(fields, word)?;
        let Value::Text(form) = value else {
            return None;
        };
        self.formed(&path, &tree, form).map(str::to_owned)
    }

    /// One of the word's closed set, which `values` are of.
    pub fn choice<T: Copy>(&mut self, fields: &Fields, word: &'static str, values: &[T]) -> Option<T> {
        let (tree, path, value) = self.declared(fields, word)?;
        self.term(&path, &tree, value).and_then(|index| values.get(index).copied())
    }

    /// The index of a word in a closed set.
    #[inline(never)]
    pub fn term(&mut self, path: &Path, tree: &Tree, value: &Value) -> Option<usize> {
        let Value::Word(terms) = value else {
            return None;
        };
        let wanted = match terms {
            [only] => ["write ", only.word].concat(),
            _ => ["write one of: ", &words(terms)].concat(),
        };
        let Tree::Text(text) = tree else {
            self.wrong_kind(path, tree, wanted);
            return None;
        };
        let index = terms.iter().position(|term| term.word == text);
        if index.is_none() {
            self.note(path, Found::Text(text.clone()), "is not known here", wanted);
        }
        index
    }

    /// A list of as many as the word says; None where it is left out.
    #[inline(never)]
    pub fn items<'t>(&mut self, fields: &Fields<'t>, word: &'static str) -> Option<Vec<(Path, &'t Tree)>> {
        let (tree, path) = self.needed(fields, word)?;
        let items: Vec<_> = self.list(&path, tree, fields.wanted(word))?.collect();
        match fields.object.field(word).map(|field| &field.value) {
            Some(Value::List(list)) if !self.is_as_many(&path, items.len(), list.least, list.most) => None,
            _ => Some(items),
        }
    }

    /// Looks at the value of a word, or at what it is where it is left out.
    pub fn with(&mut self, fields: &Fields, word: &'static str, look: &mut dyn FnMut(&mut Reader, &Path, &Tree)) {
        if let Some((tree, path, _)) = self.declared(fields, word) {
            look(self, &path, &tree);
        }
    }

    /// Looks at each item of a list, or of the one that the word is where it is left out.
    pub fn each(
        &mut self,
        fields: &Fields,
        word: &'static str,
        wanted: &str,
        look: &mut dyn FnMut(&mut Reader, &Path, &Tree),
    ) -> Option<()> {
        let (tree, path, _) = self.declared(fields, word)?;
        for (path, item) in self.list(&path, &tree, wanted)? {
            look(self, &path, item);
        }
        Some(())
    }

    /// Notes that there are fewer, or more.
    #[inline(never)]
    pub fn is_as_many(&mut self, path: &Path, count: usize, least: usize, most: usize) -> bool {
        let is_right = (least..=most).contains(&count);
        if !is_right {
            let found = Found::Number(i64::try_from(count).unwrap_or(i64::MAX));
            let wrong = if count < least { "are too few" } else { "are too many" };
            self.note(path, found, wrong, format!("write {least} to {most}"));
        }
        is_right
    }
}

fn words(terms: &[Term]) -> String {
    let words: Vec<&str> = terms.iter().map(|term| term.word).collect();
    words.join(", ")
}
