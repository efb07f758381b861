//! Whether one entry of `classes` matches whatever another one does.

use weir::path::{Part, Pattern};
use weir::policy::{ClassMatch, Condition, Origin};

/// Whether each request that `later` matches is matched by `earlier`, as far as their words show. It never says so where
/// a request could tell them apart.
pub fn covers(earlier: &ClassMatch, later: &ClassMatch) -> bool {
    // Expressions cannot be compared.
    earlier.regex.is_none()
        && methods(earlier, later)
        && earlier.path.as_ref().is_none_or(|path| later.path.as_ref().is_some_and(|other| paths(path, other)))
        && earlier.conditions.iter().all(|condition| later.conditions.iter().any(|other| implied(condition, other)))
}

fn methods(earlier: &ClassMatch, later: &ClassMatch) -> bool {
    match (&earlier.methods, &later.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(methods), Some(others)) => others.iter().all(|method| methods.contains(method)),
    }
}

fn paths(pattern: &Pattern, other: &Pattern) -> bool {
    let (segments, others) = (pattern.segments(), other.segments());
    let fits = match pattern.is_below() {
        true => others.len() >= segments.len(),
        false => others.len() == segments.len() && !other.is_below(),
    };
    fits && segments.iter().zip(others).all(|(part, other)| match (part, other) {
        (Part::Any, Part::Exactly(segment)) => !segment.is_empty(),
        (Part::Any, Part::Any) => true,
        (Part::Exactly(_), _) => part == other,
    })
}

/// Whether a condition holds wherever another one does.
fn implied(condition: &Condition, other: &Condition) -> bool {
    if condition.origin != other.origin {
        return false;
    }
    let (Some(wanted), other) = (&condition.exact, &other.exact) else {
        return true;
    };
    let Some(other) = other else {
        return false;
    };
    match wanted.strip_prefix('*').filter(|_| condition.origin == Origin::Host) {
        Some(end) => {
            let name = other.strip_prefix('*').unwrap_or(other);
            name.ends_with(end) && (other.len() > end.len())
        }
        None => wanted == other,
    }
}
