//! The language of a policy as data: every word that may stand in one, with its kind, bounds, default and meaning.
//!
//! The decoder reads by it: which words an object has, what must be there, what a word that is left out is, from where to
//! where a value goes, how a text is formed. The JSON Schema and the tables of docs/reference.md are made from it. It must not
//! say how a policy is decoded, nor how a schema or a table is written. Defaults and examples are JSON.
//!
//! A new word is a field, a new object a static beside those that are there and a field that names it. What only people
//! read is dropped where the tool is not built, so that it is not in the module.

/// Closed sets of words: each with what it stands for and what it means, under two names, for the decoder and for
/// [`Value::Word`].
macro_rules! choices {
    ($($(#[$doc:meta])* $values:ident, $terms:ident: $of:ty { $($word:literal => $value:expr, $means:literal;)+ })+) => {$(
        $(#[$doc])*
        pub const $values: &[$of] = &[$($value),+];
        pub(super) static $terms: &[super::Term] = &[$(super::term($word, $means)),+];
    )+};
}

mod choices;
mod classes;
mod limiters;
mod policy;
mod rules;
mod sources;
mod texts;

pub use choices::{
    ALGORITHMS, FAMILIES, FROM, KINDS, MODES, ON_ERROR, REFUSED, RESETS, SCHEMES, SLASHES, TRANSPORTS, UPSTREAM,
};
pub use classes::{CLASS, GRPC, MATCH, ROUTE_METADATA, VALUE};
pub use limiters::{BREAKER, LIMITER};
pub use policy::{OBSERVE, PATHS, POLICY, RESPONSE, TABLE};
pub use rules::{IDEMPOTENCY, LEASE, LIMIT, LIST, MISSING, ROUTING, RULE, TIER};
pub use sources::{SOURCE, SOURCES};
#[cfg(feature = "cli")]
pub use texts::TEXTS;
pub use texts::{GRPC_NAME, HEADER_NAME, HEADER_VALUE, LABEL, METHOD, NAME, NOT_EMPTY, PROPERTY_PART, VARIABLE};

/// An object of a policy.
pub struct Object {
    /// What it may hold.
    pub fields: &'static [Field],
    /// What is said of it.
    #[cfg(feature = "cli")]
    pub said: Said,
    /// What else the value of one field asks for.
    #[cfg(feature = "cli")]
    pub cases: &'static [Case],
    /// How many of its fields go together.
    #[cfg(feature = "cli")]
    pub choice: Choice,
}

/// What people are told of an object.
#[cfg(feature = "cli")]
pub struct Said {
    /// Its name in the schema.
    pub name: &'static str,
    /// Where it stands in a policy.
    pub place: &'static str,
    /// What it is for.
    pub doc: &'static str,
}

/// One word of an object.
pub struct Field {
    /// The word.
    pub word: &'static str,
    /// What may stand there.
    pub value: Value,
    /// Whether it may be left out.
    pub presence: Presence,
    /// What it means.
    #[cfg(feature = "cli")]
    pub doc: &'static str,
    /// Values, as JSON.
    #[cfg(feature = "cli")]
    pub examples: &'static [&'static str],
}

/// One of a closed set of words.
pub struct Term {
    /// The word.
    pub word: &'static str,
    /// What it means.
    #[cfg(feature = "cli")]
    pub means: &'static str,
}

/// Whether a field may be left out, and what that means.
pub enum Presence {
    /// It may not be; what to write.
    Required(&'static str),
    /// It may be left out, with a result that is told.
    Optional(Told),
    /// It may be left out, which is the same as this.
    Default(&'static str),
    /// It may be left out, which is the same as an object whose fields are all left out.
    Parts,
}

// A byte here is a byte of module for each word.
#[cfg(target_pointer_width = "32")]
#[cfg(not(feature = "cli"))]
const _: () = assert!(size_of::<Field>() <= 32, "what a word takes");

/// What only people are told.
pub struct Told(#[cfg(feature = "cli")] pub &'static str);

/// What a value of one field asks of the others.
pub struct Case {
    /// The field.
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
    /// `true` or `false`.
    Boolean,
    /// Nothing but `true`.
    True,
    /// Exactly this number.
    Number(i32),
    /// An integer from .. to; without an upper bound where that is [`i64::MAX`].
    Integer(&'static (i64, i64)),
    /// A number from .. to, in tenths. Envoy's YAML makes a text of a fraction, so a text of it is taken as well.
    Tenths(u8, u8),
    /// A duration from .. to, in milliseconds.
    Duration(u32, u32),
    /// A duration in whole seconds, from .. to.
    Seconds(u32, u32),
    /// One of these words, each with its meaning.
    Word(&'static [Term]),
    /// A text of this form.
    Text(&'static Text),
    /// `requests/period`.
    Limit,
    /// An object of known words.
    Object(&'static Object),
    /// A list.
    List(&'static List),
    /// An object whose keys the user chooses.
    Map(&'static Map),
    /// One of these.
    Either(&'static [Value]),
    /// A value that stands in several places.
    Named(&'static Named),
    /// A list of [`SOURCES`], at least one.
    Sources(Place),
}

/// A list.
pub struct List {
    /// What stands in it.
    pub of: Value,
    /// How many at least.
    pub least: usize,
    /// How many at most.
    pub most: usize,
}

/// A value that stands in several places.
pub struct Named {
    /// Its name in the schema.
    pub name: &'static str,
    /// The value.
    pub value: &'static Value,
}

/// An object whose keys the user chooses.
pub struct Map {
    /// What its keys are.
    pub keys: &'static Text,
    /// What stands under each.
    pub of: Value,
    /// How many at least.
    pub least: usize,
    /// How many at most.
    pub most: usize,
    /// A key that must be there.
    pub needs: Option<&'static str>,
}

/// What a text must be.
pub struct Text {
    /// What to write, in words that follow "write".
    pub wanted: &'static str,
    /// What is wrong with any other text.
    pub wrong: &'static str,
    /// Whether a text has the form; those in `except` are not asked.
    pub is: fn(&str) -> bool,
    /// Words that are taken.
    pub except: &'static [&'static str],
    /// Its name in the schema.
    #[cfg(feature = "cli")]
    pub name: &'static str,
    /// The form as a regular expression of ECMA-262; every text where it is empty.
    #[cfg(feature = "cli")]
    pub pattern: &'static str,
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
    /// The word of its kind.
    pub word: &'static str,
    /// The field that a bare value is short for.
    pub main: Option<&'static str>,
    /// Its fields.
    pub object: Object,
    /// Whether clients cannot make the value up, whatever is written.
    pub is_trusted: bool,
    /// Whether it is hashed, whatever is written.
    pub is_secret: bool,
    /// What its value is.
    #[cfg(feature = "cli")]
    pub doc: &'static str,
    /// Where there is no value, or it is odd.
    #[cfg(feature = "cli")]
    pub odd: &'static str,
}

/// No upper bound.
const ANY_NUMBER: usize = usize::MAX;

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.words())
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Object {}

impl Object {
    /// The field of a word.
    #[inline(never)] // It is asked for everywhere, and the module is to be small.
    pub fn field(&self, word: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.word == word)
    }

    /// Its words, as people read them.
    pub fn words(&self) -> String {
        let words: Vec<&str> = self.fields.iter().map(|field| field.word).collect();
        words.join(", ")
    }

    #[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read them"))]
    const fn with_cases(self, cases: &'static [Case]) -> Object {
        Object {
            #[cfg(feature = "cli")]
            cases,
            ..self
        }
    }

    #[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read it"))]
    const fn with_choice(self, choice: Choice) -> Object {
        Object {
            #[cfg(feature = "cli")]
            choice,
            ..self
        }
    }
}

/// A field without examples. Those of objects stand in its meaning, for editors offer them without a name.
#[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read it"))]
const fn field(word: &'static str, value: Value, presence: Presence, doc: &'static str) -> Field {
    Field {
        word,
        value,
        presence,
        #[cfg(feature = "cli")]
        doc,
        #[cfg(feature = "cli")]
        examples: &[],
    }
}

#[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read them"))]
const fn with_examples(field: Field, examples: &'static [&'static str]) -> Field {
    Field {
        #[cfg(feature = "cli")]
        examples,
        ..field
    }
}

#[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read it"))]
const fn term(word: &'static str, means: &'static str) -> Term {
    Term {
        word,
        #[cfg(feature = "cli")]
        means,
    }
}

#[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read it"))]
const fn optional(result: &'static str) -> Presence {
    Presence::Optional(Told(
        #[cfg(feature = "cli")]
        result,
    ))
}

/// An object without cases.
#[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read them"))]
const fn object(name: &'static str, place: &'static str, doc: &'static str, fields: &'static [Field]) -> Object {
    Object {
        fields,
        #[cfg(feature = "cli")]
        said: Said { name, place, doc },
        #[cfg(feature = "cli")]
        cases: &[],
        #[cfg(feature = "cli")]
        choice: Choice::Free,
    }
}

/// A form of texts: a name and a pattern for the schema, and what the decoder asks and says.
#[cfg_attr(not(feature = "cli"), expect(unused_variables, reason = "only people read them"))]
const fn text_of(
    name: &'static str,
    pattern: &'static str,
    is: fn(&str) -> bool,
    wrong: &'static str,
    wanted: &'static str,
) -> Text {
    Text {
        wanted,
        wrong,
        is,
        except: &[],
        #[cfg(feature = "cli")]
        name,
        #[cfg(feature = "cli")]
        pattern,
    }
}

impl Text {
    const fn but(self, except: &'static [&'static str]) -> Text {
        Text { except, ..self }
    }

    /// Whether a text has this form.
    pub fn holds(&self, text: &str) -> bool {
        !self.except.contains(&text) && (self.is)(text)
    }
}
