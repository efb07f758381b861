//! Where the words of the language stand in a policy, and policies with one of them changed.

use weir::policy::Tree;
use weir::policy::language::{Map, Object, POLICY, SOURCES, Text, Value};

/// One step from the root of a policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Key(String),
    Item(usize),
}

/// Where the language's words stand in one policy.
#[derive(Default)]
pub struct Sites {
    pub objects: Vec<(Vec<Step>, &'static Object)>,
    /// Values that are neither objects nor lists of more than words.
    pub values: Vec<(Vec<Step>, &'static Value)>,
    /// Keys that a user chose.
    pub keys: Vec<(Vec<Step>, &'static Text)>,
}

impl Sites {
    pub fn of(tree: &Tree) -> Sites {
        let mut sites = Sites::default();
        sites.object(&POLICY, tree, &[]);
        sites
    }

    fn object(&mut self, object: &'static Object, tree: &Tree, at: &[Step]) {
        let Tree::Map(pairs) = tree else { panic!("{at:?}: {tree:?} is no {}", object.said.name) };
        self.objects.push((at.to_vec(), object));
        for (key, tree) in pairs {
            let field = object.fields.iter().find(|field| field.word == key);
            let field = field.unwrap_or_else(|| panic!("{at:?}: no field {key} of {}", object.said.name));
            self.value(&field.value, tree, &below(at, Step::Key(key.clone())));
        }
    }

    fn value(&mut self, value: &'static Value, tree: &Tree, at: &[Step]) {
        match (value, tree) {
            (Value::Object(object), _) => self.object(object, tree, at),
            (Value::List(list), Tree::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&list.of, item, &below(at, Step::Item(index)));
                }
            }
            (Value::Map(Map { keys, of, .. }), Tree::Map(pairs)) => {
                for (key, tree) in pairs {
                    let at = below(at, Step::Key(key.clone()));
                    self.keys.push((at.clone(), keys));
                    self.value(of, tree, &at);
                }
            }
            (Value::Either(values), _) => {
                let value = values.iter().find(|value| fits(value, tree));
                self.value(value.unwrap_or_else(|| panic!("{at:?}: {tree:?} is none of them")), tree, at);
            }
            (Value::Named(named), _) => self.value(named.value, tree, at),
            (Value::Sources(_), Tree::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    let Tree::Map(pairs) = item else { panic!("{at:?}: {item:?} is no source") };
                    let [(word, tree)] = pairs.as_slice() else { panic!("{at:?}: {pairs:?} is no source") };
                    let source = SOURCES.iter().find(|source| source.word == word).expect("a kind of source");
                    let at = below(&below(at, Step::Item(index)), Step::Key(word.clone()));
                    match tree {
                        Tree::Map(_) => self.object(&source.object, tree, &at),
                        _ => {
                            let main = source.object.fields.iter().find(|field| Some(field.word) == source.main);
                            self.value(&main.expect("a main field").value, tree, &at);
                        }
                    }
                }
            }
            _ => self.values.push((at.to_vec(), value)),
        }
    }
}

pub fn below(at: &[Step], step: Step) -> Vec<Step> {
    [at, &[step]].concat()
}

/// Whether a value is meant as one of this kind.
pub fn fits(value: &Value, tree: &Tree) -> bool {
    match (value, tree) {
        (Value::Object(object), Tree::Map(pairs)) => {
            pairs.is_empty() || pairs.iter().any(|(key, _)| object.fields.iter().any(|field| field.word == key))
        }
        (Value::Map(_), Tree::Map(_)) | (Value::List(_), Tree::List(_)) | (Value::Number(_), Tree::Int(_)) => true,
        (Value::Word(words), Tree::Text(text)) => words.iter().any(|term| term.word == text),
        (Value::Limit, Tree::Text(text)) => text.contains('/'),
        (Value::Text(_), Tree::Text(_)) => true,
        (Value::Either(values), _) => values.iter().any(|value| fits(value, tree)),
        (Value::Named(named), _) => fits(named.value, tree),
        _ => false,
    }
}

pub fn at<'t>(tree: &'t mut Tree, path: &[Step]) -> &'t mut Tree {
    path.iter().fold(tree, |tree, step| match (tree, step) {
        (Tree::Map(pairs), Step::Key(key)) => {
            &mut pairs.iter_mut().find(|(name, _)| name == key).expect("a key that is there").1
        }
        (Tree::List(items), Step::Item(index)) => &mut items[*index],
        (tree, step) => panic!("no {step:?} in {tree:?}"),
    })
}

/// The policy with a field of an object written, written anew or left out.
pub fn with(tree: &Tree, path: &[Step], word: &str, value: Option<Tree>) -> Tree {
    let mut tree = tree.clone();
    let Tree::Map(pairs) = at(&mut tree, path) else { panic!("{path:?} is no object") };
    let place = pairs.iter().position(|(key, _)| key == word);
    match (place, value) {
        (Some(place), Some(value)) => pairs[place].1 = value,
        (None, Some(value)) => pairs.push((word.to_owned(), value)),
        (Some(place), None) => drop(pairs.remove(place)),
        (None, None) => {}
    }
    tree
}

pub fn replaced(tree: &Tree, path: &[Step], value: Tree) -> Tree {
    let mut tree = tree.clone();
    *at(&mut tree, path) = value;
    tree
}

pub fn renamed(tree: &Tree, path: &[Step], name: &str) -> Tree {
    let mut tree = tree.clone();
    let (Some(Step::Key(key)), parent) = (path.last(), &path[..path.len() - 1]) else { panic!("{path:?} has no key") };
    let Tree::Map(pairs) = at(&mut tree, parent) else { panic!("{parent:?} is no object") };
    let pair = pairs.iter_mut().find(|(name, _)| name == key).expect("a key that is there");
    name.clone_into(&mut pair.0);
    tree
}

pub fn json(text: &str) -> Tree {
    Tree::from_json(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// Every object of the language.
pub fn objects() -> Vec<&'static Object> {
    fn of_value(value: &'static Value, objects: &mut Vec<&'static Object>) {
        match value {
            Value::Object(object) => of_object(object, objects),
            Value::List(list) => of_value(&list.of, objects),
            Value::Named(named) => of_value(named.value, objects),
            Value::Map(Map { of, .. }) => of_value(of, objects),
            Value::Either(values) => values.iter().for_each(|value| of_value(value, objects)),
            _ => {}
        }
    }
    fn of_object(object: &'static Object, objects: &mut Vec<&'static Object>) {
        if !objects.iter().any(|known| known.said.name == object.said.name) {
            objects.push(object);
            object.fields.iter().for_each(|field| of_value(&field.value, objects));
        }
    }
    let mut objects = Vec::new();
    of_object(&POLICY, &mut objects);
    SOURCES.iter().for_each(|source| of_object(&source.object, &mut objects));
    objects
}
