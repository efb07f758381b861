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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use weir::policy::Policy;
    use weir::request::{Request, matching};

    use super::covers;

    struct Sent(Vec<(&'static str, String)>);

    impl Request for Sent {
        fn header(&self, name: &str) -> Option<Vec<u8>> {
            self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone().into_bytes())
        }
        fn is_doubled(&self, _name: &str) -> bool {
            false
        }
        fn property(&self, _path: &[&str]) -> Option<Vec<u8>> {
            None
        }
    }

    /// Numbers that look like chance (xorshift).
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
        }

        fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
            words[self.below(words.len())]
        }
    }

    const PATHS: [&str; 14] = [
        "/",
        "/a",
        "/a/",
        "/a/b",
        "/a/b/c",
        "/**",
        "/a/**",
        "/a/b/**",
        "/{x}",
        "/{x}/b",
        "/a/{x}",
        "/{x}/**",
        "/{x}/{y}",
        "/a/{x}/**",
    ];

    /// The words of a match, each there or not.
    fn written(chance: &mut Chance) -> String {
        let mut words = Vec::new();
        let maybe = |word: &str, of: &[&str], chance: &mut Chance| {
            (chance.below(2) == 0).then(|| format!("\"{word}\": {}", chance.of(of)))
        };
        words.extend(maybe("methods", &["[\"GET\"]", "[\"GET\", \"HEAD\"]", "[\"POST\"]"], chance));
        words.extend((chance.below(4) > 0).then(|| format!("\"path\": \"{}\"", chance.of(&PATHS))));
        words.extend(maybe("host", &["\"a.b\"", "\"*.b\"", "\"*.a.b\"", "\"c.a.b\""], chance));
        let values = ["{\"x\": {\"present\": true}}", "{\"x\": {\"exact\": \"1\"}}", "{\"x\": {\"exact\": \"\"}}"];
        words.extend(maybe("headers", &values, chance));
        words.extend(maybe("query", &values, chance));
        if words.is_empty() { "\"methods\": [\"GET\"]".to_owned() } else { words.join(", ") }
    }

    fn policy(classes: &str) -> Policy {
        let text = format!(
            r#"{{"version": 1, "limiters": {{"m": {{"transport": "webdis", "cluster": "c"}}}}, "classes": [{classes}],
                "rules": [{{"name": "r", "key": [{{"constant": "c"}}], "limits": "9/s", "on_error": "deny"}}]}}"#
        );
        Policy::from_host(text.as_bytes(), &|_| None).unwrap()
    }

    #[test]
    fn what_is_said_to_be_hidden_is_hidden_from_every_request() {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        let (mut covered, mut matched) = (0, 0);
        for _ in 0..4_000 {
            let [earlier, later] = [written(&mut chance), written(&mut chance)]
                .map(|words| policy(&format!("{{\"class\": \"c\", \"match\": {{{words}}}}}")));
            if !covers(&earlier.classes.matches[0], &later.classes.matches[0]) {
                continue;
            }
            covered += 1;
            for _ in 0..200 {
                let path = chance.of(&["/", "/a", "/a/", "/a/b", "/b/b", "/a/b/", "/a/b/c", "/a/c/d", "/b/", "*"]);
                let query = chance.of(&["", "?x", "?x=1", "?y=1"]);
                let mut headers = vec![
                    (":method", chance.of(&["GET", "HEAD", "POST", "PUT"]).to_owned()),
                    (":path", format!("{path}{query}")),
                    (":authority", chance.of(&["a.b", "b", "x.b", "c.a.b", "x.a.b:80", "xa.b"]).to_owned()),
                ];
                headers.extend((chance.below(3) > 0).then(|| ("x", chance.of(&["", "1", "2"]).to_owned())));
                let request = Sent(headers);
                if matching(&later.classes, &request) == Ok(Some(0)) {
                    matched += 1;
                    assert_eq!(
                        matching(&earlier.classes, &request),
                        Ok(Some(0)),
                        "{earlier:?}\n{later:?}\n{:?}",
                        request.0
                    );
                }
            }
        }
        assert!(covered > 150 && matched > 1_000, "{covered} {matched}");
    }
}
