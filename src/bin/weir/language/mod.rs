//! The language of a policy as data: every word that may stand in one, with its kind, bounds, default and meaning.
//!
//! The JSON Schema and the tables of the README are made from it, and tests hold it against the decoder: the words, the
//! defaults and the bounds. It must not say how a schema or a table is written. Defaults and examples are JSON.
//!
//! A new word is a field, a new object a static beside those that are there and a field that names it.

mod classes;
mod policy;
mod rules;
mod sources;
mod texts;

pub use policy::POLICY;
pub use sources::SOURCES;
pub use texts::TEXTS;

/// An object of a policy.
pub struct Object {
    /// Its name in the schema.
    pub name: &'static str,
    /// Where it stands in a policy.
    pub place: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What it may hold.
    pub fields: &'static [Field],
    /// What else the value of one field asks for.
    pub cases: &'static [Case],
    /// How many of its fields go together.
    pub choice: Choice,
}

/// One word of an object.
pub struct Field {
    pub word: &'static str,
    pub value: Value,
    pub presence: Presence,
    pub doc: &'static str,
    pub examples: &'static [&'static str],
}

/// Whether a field may be left out, and what that means.
pub enum Presence {
    Required,
    /// It may be left out, with this result.
    Optional(&'static str),
    /// It may be left out, which is the same as this.
    Default(&'static str),
    /// It may be left out, which is the same as an object whose fields are all left out.
    Parts,
}

/// What a value of one field asks of the others.
pub struct Case {
    pub field: &'static str,
    /// The value.
    pub is: &'static str,
    /// Whether this is the value where the field is left out.
    pub by_default: bool,
    /// Fields that cannot be left out then.
    pub needs: &'static [&'static str],
    /// Fields that have no meaning then, even those that are required otherwise.
    pub refuses: &'static [&'static str],
}

/// How many of an object's fields go together.
pub enum Choice {
    /// As each of them says.
    Free,
    /// One of all at least.
    Some,
    /// One of all at least, and of these one at most.
    SomeNotBoth(&'static str, &'static str),
    /// Exactly one of these.
    One(&'static str, &'static str),
}

/// What may stand somewhere.
pub enum Value {
    Boolean,
    /// Nothing but `true`.
    True,
    /// Exactly this number.
    Number(i64),
    /// An integer from .. to; without an upper bound where that is [`i64::MAX`].
    Integer(i64, i64),
    /// A number from .. to, in tenths. Envoy's YAML makes a text of a fraction, so a text of it is taken as well.
    Tenths(i64, i64),
    /// A duration from .. to, in milliseconds.
    Duration(u64, u64),
    /// A duration in whole seconds, from .. to.
    Seconds(u64, u64),
    /// One of these words, each with its meaning.
    Word(&'static [(&'static str, &'static str)]),
    Text(&'static Text),
    /// `requests/period`.
    Limit,
    Object(&'static Object),
    /// A list of so many at least and at most.
    List(&'static Value, usize, usize),
    Map(&'static Map),
    Either(&'static [Value]),
    /// A value that stands in several places, by its name in the schema.
    Named(&'static str, &'static Value),
    /// A list of [`SOURCES`], at least one.
    Sources(Place),
}

/// An object whose keys the user chooses.
pub struct Map {
    pub keys: &'static Text,
    pub of: Value,
    pub least: usize,
    pub most: usize,
    /// A key that must be there.
    pub needs: Option<&'static str>,
}

/// What a text must be.
pub struct Text {
    /// Its name in the schema.
    pub name: &'static str,
    /// What to write, in words that follow "write".
    pub wanted: &'static str,
    /// A regular expression of ECMA-262; every text where it is empty.
    pub pattern: &'static str,
    /// Words that are taken.
    pub except: &'static [&'static str],
}

/// Where a list of sources stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the key of a rule.
    Key,
    /// In `all`.
    Part,
    /// In `tier`.
    Tier,
}

/// Something that a tenant's value is read from.
pub struct Source {
    pub word: &'static str,
    /// The field that a bare value is short for.
    pub main: Option<&'static str>,
    /// Its fields.
    pub object: Object,
    /// What its value is.
    pub doc: &'static str,
    /// Where there is no value, or it is odd.
    pub odd: &'static str,
    /// Whether clients cannot make the value up, whatever is written.
    pub is_trusted: bool,
    /// Whether it is hashed, whatever is written.
    pub is_secret: bool,
}

/// No upper bound.
const ANY_NUMBER: usize = usize::MAX;

/// A field without examples. Those of objects stand in its meaning, for editors offer them without a name.
const fn field(word: &'static str, value: Value, presence: Presence, doc: &'static str) -> Field {
    Field { word, value, presence, doc, examples: &[] }
}

const fn with_examples(field: Field, examples: &'static [&'static str]) -> Field {
    let Field { word, value, presence, doc, .. } = field;
    Field { word, value, presence, doc, examples }
}

/// An object without cases.
const fn object(name: &'static str, place: &'static str, doc: &'static str, fields: &'static [Field]) -> Object {
    Object { name, place, doc, fields, cases: &[], choice: Choice::Free }
}
