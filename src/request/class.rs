//! The class of a request.

use super::identity::{host_is, sent};
use super::{Reading, Request};
use crate::path::Malformed;
use crate::policy::{ClassId, ClassMatch, Classes, Origin};

/// How a request is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It is in this class, and no rule looks at it.
    Exempt(ClassId),
    /// It is in this class and takes this much from a bucket.
    Charged(ClassId, u64),
}

/// Sorts a request: the first match of the policy wins, and a request that matches none is in class `default`.
///
/// # Errors
/// [`Malformed`] where a match needs the path and the path is none.
pub fn classify(classes: &Classes, request: &dyn Request) -> Result<Class, Malformed> {
    class_of(classes, &Reading::new(request))
}

/// Which entry of `classes` sorts a request: the first that matches. For people who ask why.
///
/// # Errors
/// As [`classify`], whatever the policy makes of it.
#[cfg(feature = "explain")]
pub fn matching(classes: &Classes, request: &dyn Request) -> Result<Option<usize>, Malformed> {
    let found = first_match(classes, &Reading::new(request))?;
    Ok(found.and_then(|found| classes.matches.iter().position(|class_match| std::ptr::eq(class_match, found))))
}

pub(crate) fn class_of<'c>(classes: &'c Classes, reading: &Reading<'c>) -> Result<Class, Malformed> {
    match first_match(classes, reading) {
        Ok(Some(ClassMatch { exempt: true, class, .. })) => Ok(Class::Exempt(*class)),
        Ok(Some(class_match)) => Ok(Class::Charged(class_match.class, class_match.cost)),
        Ok(None) => Ok(Class::Charged(ClassId::default(), 1)),
        Err(Malformed) if classes.paths.malformed_is_default => Ok(Class::Charged(ClassId::default(), 1)),
        Err(Malformed) => Err(Malformed),
    }
}

/// The first match that holds, as if all were tried in order; nothing is read that this would not read.
fn first_match<'c>(classes: &'c Classes, reading: &Reading<'c>) -> Result<Option<&'c ClassMatch>, Malformed> {
    let index = &classes.index;
    let mut others = Matches { classes, reading, left: &index.without_path };
    let Some(first) = index.first else {
        return others.first_before(usize::MAX);
    };
    if let Some(found) = others.first_before(first)? {
        return Ok(Some(found));
    }
    let needs_path = match classes.matches.get(first) {
        Some(ClassMatch { methods: None, .. }) => Some(first),
        _ => {
            let method = reading.header(":method").unwrap_or_default();
            let listed = index.first_by_method.iter().find(|(listed, _)| listed.as_bytes() == &*method);
            listed.map_or(index.first_by_other, |(_, first)| Some(*first))
        }
    };
    let Some(needs_path) = needs_path else {
        return others.first_before(usize::MAX);
    };
    if let Some(found) = others.first_before(needs_path)? {
        return Ok(Some(found));
    }
    let path = reading.path(classes.paths)?;
    let by_path = path.map(|path| index.by_path.find(path)).unwrap_or_default();
    for number in by_path {
        if let Some(found) = others.first_before(number)? {
            return Ok(Some(found));
        }
        if let Some(class_match) = classes.matches.get(number)
            && holds(classes, class_match, reading)?
        {
            return Ok(Some(class_match));
        }
    }
    others.first_before(usize::MAX)
}

/// Matches that are still to be tried.
struct Matches<'a, 'c> {
    classes: &'c Classes,
    reading: &'a Reading<'c>,
    left: &'c [usize],
}

impl<'c> Matches<'_, 'c> {
    /// The first that holds, of those before a number.
    fn first_before(&mut self, end: usize) -> Result<Option<&'c ClassMatch>, Malformed> {
        while let Some((number, left)) = self.left.split_first().filter(|(number, _)| **number < end) {
            self.left = left;
            if let Some(class_match) = self.classes.matches.get(*number)
                && holds(self.classes, class_match, self.reading)?
            {
                return Ok(Some(class_match));
            }
        }
        Ok(None)
    }
}

/// Whether all but the pattern of the path is as the match wants it.
fn holds<'c>(classes: &Classes, class_match: &'c ClassMatch, reading: &Reading<'c>) -> Result<bool, Malformed> {
    if let Some(methods) = &class_match.methods {
        let method = reading.header(":method").unwrap_or_default();
        if !methods.iter().any(|wanted| wanted.as_bytes() == &*method) {
            return Ok(false);
        }
    }
    if let Some(regex) = &class_match.regex
        && !reading.path(classes.paths)?.is_some_and(|path| regex.matches(path))
    {
        return Ok(false);
    }
    Ok(class_match.conditions.iter().all(|condition| {
        let Some(value) = sent(&condition.origin, reading) else {
            return false;
        };
        match (&condition.origin, &condition.exact) {
            (_, None) => true,
            (Origin::Host, Some(wanted)) => host_is(wanted, &value),
            (_, Some(wanted)) => wanted.as_bytes() == &*value,
        }
    }))
}
