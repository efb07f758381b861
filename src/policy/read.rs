//! Reads values out of a tree and keeps every problem, so that all of them are told at once.
//!
//! Each function returns what it could read, or None after noting the problem: the caller goes on with the rest.

use super::language::{Object, Presence, Text};
use super::problem::{Found, Path, Problem, Segment};
use super::tree::Tree;

/// Collects problems while a policy is read.
#[derive(Default)]
pub(super) struct Reader {
    pub problems: Vec<Problem>,
}

/// The fields of one object, all of them known.
pub(super) struct Fields<'t> {
    pub path: Path,
    pub object: &'static Object,
    fields: Vec<(&'static str, &'t Tree)>,
    /// It is written as the value of one of its fields.
    is_short: bool,
}

impl<'t> Fields<'t> {
    /// The value of a field and its path.
    #[inline(never)] // It is asked for everywhere, and the module is to be small: likewise below.
    pub fn get(&self, word: &'static str) -> Option<(&'t Tree, Path)> {
        let (_, tree) = self.fields.iter().find(|(name, _)| *name == word)?;
        Some((tree, if self.is_short { self.path.clone() } else { self.path.word(word) }))
    }

    /// An object that is written as the value of one of its fields.
    pub fn short(path: Path, object: &'static Object, word: &'static str, tree: &'t Tree) -> Fields<'t> {
        Fields { path, object, fields: vec![(word, tree)], is_short: true }
    }

    /// What to write where a word may not be left out.
    #[inline(never)]
    pub fn wanted(&self, word: &str) -> &'static str {
        match self.object.field(word).map(|field| &field.presence) {
            Some(Presence::Required(wanted)) => wanted,
            _ => "",
        }
    }

    /// An object that is left out, and so are all of its fields.
    pub fn none(path: Path, object: &'static Object) -> Fields<'t> {
        Fields { path, object, fields: Vec::new(), is_short: false }
    }
}

impl Reader {
    pub fn note(&mut self, path: &Path, found: Found, wrong: &'static str, wanted: impl AsRef<str>) {
        self.keep(path, found, wrong, wanted.as_ref(), Vec::new());
    }

    /// The same, with what could stand there: people alone are told, so the module does not make it.
    pub fn note_choices<'c>(
        &mut self,
        path: &Path,
        found: Found,
        wrong: &'static str,
        wanted: impl AsRef<str>,
        choices: impl IntoIterator<Item = &'c str>,
    ) {
        let choices = match cfg!(target_os = "wasi") {
            true => Vec::new(),
            false => choices.into_iter().map(str::to_owned).collect(),
        };
        self.keep(path, found, wrong, wanted.as_ref(), choices);
    }

    #[cold]
    #[inline(never)]
    fn keep(&mut self, path: &Path, found: Found, wrong: &'static str, wanted: &str, choices: Vec<String>) {
        self.problems.push(Problem { path: path.clone(), found, wrong, wanted: wanted.to_owned(), choices });
    }

    /// Notes that a value is of another kind than the one wanted.
    pub fn wrong_kind(&mut self, path: &Path, tree: &Tree, wanted: impl AsRef<str>) {
        self.not_of_kind(path, tree, wanted.as_ref());
    }

    #[cold]
    #[inline(never)]
    fn not_of_kind(&mut self, path: &Path, tree: &Tree, wanted: &str) {
        self.note(path, Found::Ours(tree.kind()), "cannot stand here", wanted);
    }

    /// An object of known words; unknown ones are noted.
    #[inline(never)]
    pub fn object<'t>(&mut self, path: &Path, tree: &'t Tree, object: &'static Object) -> Option<Fields<'t>> {
        let Tree::Map(pairs) = tree else {
            self.wrong_kind(path, tree, format!("write an object with some of: {}", object.words()));
            return None;
        };
        let mut fields: Vec<(&'static str, &Tree)> = Vec::new();
        for (key, value) in pairs {
            match object.field(key).map(|field| field.word) {
                Some(word) if fields.iter().any(|(name, _)| *name == word) => {
                    self.note(&path.word(word), Found::Nothing, "stands twice", "write it once");
                }
                Some(word) => fields.push((word, value)),
                None => {
                    let found = Found::Field { name: key.clone(), of: object };
                    self.note(path, found, "", format!("known: {}", object.words()));
                }
            }
        }
        Some(Fields { path: path.clone(), object, fields, is_short: false })
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

    /// A text of a form.
    #[inline(never)]
    pub fn formed<'t>(&mut self, path: &Path, tree: &'t Tree, form: &Text) -> Option<&'t str> {
        let Tree::Text(text) = tree else {
            self.wrong_kind(path, tree, ["write ", form.wanted].concat());
            return None;
        };
        self.of_form(path, text, form).then_some(text)
    }

    /// Whether a text has a form.
    #[inline(never)]
    pub fn of_form(&mut self, path: &Path, text: &str, form: &Text) -> bool {
        let holds = form.holds(text);
        if !holds {
            self.note(path, Found::Text(text.to_owned()), form.wrong, ["write ", form.wanted].concat());
        }
        holds
    }
}
