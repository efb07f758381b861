//! What is read of most requests, so that a host can read it at once.

use crate::policy::{AddressFrom, Origin, Policy, Source};

/// How many headers are read of a request that meets all classes and is named by the first source of each rule; the whole
/// map counts as many. A request that is read less of, or more, gets the same answer.
pub fn headers_wanted(policy: &Policy) -> usize {
    let mut names: Vec<&str> = Vec::new();
    let mut add = |name| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    if let Some(observe) = policy.observe.as_ref().filter(|observe| observe.secret.is_some()) {
        add(&observe.debug_header);
    }
    for class_match in &policy.classes.matches {
        if class_match.methods.is_some() {
            add(":method");
        }
        if class_match.path.is_some() || class_match.regex.is_some() {
            add(":path");
        }
        class_match.conditions.iter().for_each(|condition| each_header(&condition.origin, &mut add));
    }
    for rule in &policy.rules {
        let first = [rule.sources.first(), rule.tier_sources.first()];
        for Source { origin, refuses_doubled, .. } in first.into_iter().flatten() {
            if *refuses_doubled {
                return usize::MAX;
            }
            each_header(origin, &mut add);
        }
        if let Some(idempotency) = &rule.idempotency {
            add(&idempotency.header);
        }
    }
    names.len()
}

fn each_header<'p>(origin: &'p Origin, add: &mut impl FnMut(&'p str)) {
    match origin {
        Origin::Header(name) => add(name),
        Origin::Bearer | Origin::BasicUser => add("authorization"),
        Origin::Query(_) | Origin::PathSegment(..) => add(":path"),
        Origin::Cookie(_) => add("cookie"),
        Origin::Host => add(":authority"),
        Origin::ClientIp(AddressFrom::Forwarded(_), _) => add("x-forwarded-for"),
        Origin::All(parts) => parts.iter().for_each(|part| each_header(&part.origin, &mut *add)),
        Origin::ClientIp(AddressFrom::Host, _) | Origin::Property(..) | Origin::Constant(_) => {}
    }
}
