//! Paths, in one spelling: normalisation of what a client sent, and the patterns of a policy.
//!
//! Normal form (RFC 3986, 6.2.2): unreserved bytes decoded, other escapes in upper case, dot segments removed, slashes
//! in a row merged, query and fragment apart, the absolute form cut to its path. `%2F` stays: it is no separator.

use crate::percent::{byte_of, push_escaped};

/// A path that no reading agrees on, or that is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What more than RFC 3986 makes two spellings one path: what the servers behind take for the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// A malformed path is in class `default`, rather than answered with 400.
    pub malformed_is_default: bool,
    /// ASCII letters are compared in lower case.
    pub ignore_case: bool,
    /// A slash at the end means nothing.
    pub ignore_trailing_slash: bool,
    /// A segment ends before its first `;`, as servlet containers read it.
    pub strip_parameters: bool,
}

/// Brings the path of a request into normal form, as far as RFC 3986 goes. See [`Paths::normalise`].
///
/// # Errors
/// As [`Paths::normalise`].
pub fn normalise(sent: &[u8]) -> Result<String, Malformed> {
    Paths::default().normalise(sent)
}

impl Paths {
    /// Brings the path of a request into normal form. `*` (RFC 9112, 3.2.4) stays as it is.
    ///
    /// # Errors
    /// [`Malformed`]: no slash at the start, a percent sign without two hex digits, a control byte, an escaped NUL, or
    /// a `..` that takes an empty segment away, for servers that merge slashes first let it take the one before that.
    pub fn normalise(self, sent: &[u8]) -> Result<String, Malformed> {
        normal(sent, self)
    }
}

fn normal(sent: &[u8], paths: Paths) -> Result<String, Malformed> {
    let end = sent.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let path = sent.get(..end.unwrap_or(sent.len())).unwrap_or(sent);
    if path == b"*" {
        return Ok("*".to_owned());
    }
    if is_normal(path, paths) {
        return String::from_utf8(path.to_vec()).map_err(|_| Malformed);
    }
    let decoded = decode(without_authority(path)?, paths)?;
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = decoded.split('/').skip(1).peekable();
    // The last part stands after the last slash; where it is empty or a dot, the path ends in a slash.
    let mut open_end = false;
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            ".." if segments.pop() == Some("") => return Err(Malformed),
            ".." | "." => open_end = last,
            "" => {
                segments.push(part);
                open_end = last;
            }
            _ => segments.push(part),
        }
    }
    let mut normal = String::with_capacity(decoded.len());
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        normal.push('/');
        normal.push_str(segment);
    }
    if (open_end && !paths.ignore_trailing_slash) || normal.is_empty() {
        normal.push('/');
    }
    Ok(normal)
}

/// Whether a path is certainly in normal form already, as most are: unreserved bytes alone, no empty segment, and none that
/// starts with a dot.
fn is_normal(path: &[u8], paths: Paths) -> bool {
    let mut before = 0;
    let is_normal = path.iter().all(|byte| {
        let after = std::mem::replace(&mut before, *byte);
        match byte {
            b'/' => after != b'/',
            b'.' => after != b'/',
            b'A'..=b'Z' => !paths.ignore_case,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => true,
            _ => false,
        }
    });
    let ends_in_slash = before == b'/' && path.len() > 1;
    is_normal && path.first() == Some(&b'/') && !(ends_in_slash && paths.ignore_trailing_slash)
}

/// The path of the absolute form `scheme://authority/path`; any other path as it is.
fn without_authority(path: &[u8]) -> Result<&[u8], Malformed> {
    if path.first() == Some(&b'/') {
        return Ok(path);
    }
    let scheme = path.windows(3).position(|three| three == b"://").ok_or(Malformed)?;
    let is_scheme = path
        .get(..scheme)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https"));
    if !is_scheme {
        return Err(Malformed);
    }
    let rest = path.get(scheme.saturating_add(3)..).unwrap_or_default();
    match rest.iter().position(|byte| *byte == b'/') {
        Some(slash) => Ok(rest.get(slash..).unwrap_or_default()),
        None => Ok(b"/"),
    }
}

/// Decodes unreserved bytes and spells every other escape in one way.
fn decode(path: &[u8], paths: Paths) -> Result<String, Malformed> {
    let mut decoded = String::with_capacity(path.len());
    // From a `;` to the next slash, where that is left out: before dots are looked at, since `/a/..;/b` is then `/b`.
    let mut in_parameters = false;
    let mut bytes = path.iter().copied();
    while let Some(byte) = bytes.next() {
        let (byte, escaped) = match byte {
            b'%' => {
                let (Some(high), Some(low)) = (bytes.next(), bytes.next()) else {
                    return Err(Malformed);
                };
                (byte_of(high, low).ok_or(Malformed)?, true)
            }
            _ => (byte, false),
        };
        let unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let literal = matches!(byte, b'/' | b':' | b'@' | b'!' | b'$' | b'&' | b'\'')
            || matches!(byte, b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        if byte == 0 || (!escaped && (byte.is_ascii_control() || byte == b' ')) {
            return Err(Malformed);
        }
        if !escaped && matches!(byte, b'/' | b';') {
            in_parameters = byte == b';' && paths.strip_parameters;
        }
        if in_parameters {
            continue;
        }
        if unreserved || (literal && !escaped) {
            decoded.push(char::from(if paths.ignore_case { byte.to_ascii_lowercase() } else { byte }));
        } else {
            push_escaped(&mut decoded, byte);
        }
    }
    Ok(decoded)
}

/// Which paths a class is for: a path, `{name}` being any one segment, `/**` at the end being all below as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Part>,
    below: bool,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// This one.
    Exactly(String),
    /// Any that is not empty.
    Any,
}

/// Why a text is no pattern, in words that finish "it".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPattern {
    /// It does not start with a slash, or cannot be a path.
    NoPath,
    /// It can never match, because paths are compared in normal form; here is that form.
    NotNormal(String),
    /// A star stands elsewhere than in `/**` at the end.
    Star,
    /// Braces that are not one whole segment `{name}`.
    Braces,
}

impl Pattern {
    /// Reads a pattern of paths in the normal form of RFC 3986.
    ///
    /// # Errors
    /// See [`NoPattern`].
    pub fn parse(text: &str) -> Result<Pattern, NoPattern> {
        Pattern::parse_for(text, Paths::default())
    }

    /// Reads a pattern of paths in this normal form.
    ///
    /// # Errors
    /// See [`NoPattern`].
    pub fn parse_for(text: &str, paths: Paths) -> Result<Pattern, NoPattern> {
        if !text.starts_with('/') {
            return Err(NoPattern::NoPath);
        }
        let (plain, below) = match text.strip_suffix("/**") {
            Some(plain) => (plain, true),
            None => (text, false),
        };
        let mut segments = Vec::new();
        let mut literal = String::new();
        for segment in plain.split('/').skip(1) {
            let name = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            let part = match name {
                Some(name) if is_capture(name) => Part::Any,
                _ if segment.contains(['{', '}']) => return Err(NoPattern::Braces),
                _ if segment.contains('*') => return Err(NoPattern::Star),
                _ => Part::Exactly(segment.to_owned()),
            };
            literal.push('/');
            match name {
                // What braces become in normal form, so that they can be put back into what is told.
                Some(name) => literal.extend(["%7B", name, "%7D"]),
                None => literal.push_str(segment),
            }
            segments.push(part);
        }
        if literal.is_empty() {
            return Ok(Pattern { segments, below });
        }
        let mut normal = paths.normalise(literal.as_bytes()).map_err(|Malformed| NoPattern::NoPath)?;
        if below && normal.ends_with('/') {
            normal.pop();
        }
        if normal == literal {
            return Ok(Pattern { segments, below });
        }
        let told = normal.replace("%7B", "{").replace("%7D", "}");
        Err(NoPattern::NotNormal(told + if below { "/**" } else { "" }))
    }

    /// Its segments.
    pub fn segments(&self) -> &[Part] {
        &self.segments
    }

    /// Whether it is also for all that is below these segments.
    pub fn is_below(&self) -> bool {
        self.below
    }

    /// Whether a path in normal form is one of these.
    pub fn matches(&self, normal: &str) -> bool {
        let mut segments = normal.split('/');
        // A path in normal form starts with a slash; `*` does not and matches nothing.
        if segments.next() != Some("") {
            return false;
        }
        for part in &self.segments {
            match (part, segments.next()) {
                (Part::Exactly(wanted), Some(segment)) if wanted == segment => {}
                (Part::Any, Some(segment)) if !segment.is_empty() => {}
                _ => return false,
            }
        }
        self.below || segments.next().is_none()
    }
}

/// An expression that a whole path in normal form has to match. Without the feature `regex` there is none.
#[derive(Clone, Debug)]
pub struct Regex(#[cfg(feature = "regex")] regex_lite::Regex, #[cfg(not(feature = "regex"))] std::convert::Infallible);

#[cfg(feature = "regex")]
impl Regex {
    /// Compiled, an expression takes at most this many bytes.
    const MAX_SIZE: usize = 64 * 1024;

    /// Reads an expression; None where it is none, or is too large.
    pub fn parse(text: &str) -> Option<Regex> {
        // Apart first, so that parentheses of the text cannot reach over those that are put around it.
        let limited = |text: &str| regex_lite::RegexBuilder::new(text).size_limit(Regex::MAX_SIZE).build().ok();
        limited(text)?;
        limited(&format!("^(?:{text})$")).map(Regex)
    }

    /// Whether a path in normal form matches as a whole, in time linear in its length.
    pub fn matches(&self, normal: &str) -> bool {
        self.0.is_match(normal)
    }
}

#[cfg(not(feature = "regex"))]
impl Regex {
    /// There is none.
    pub fn parse(_text: &str) -> Option<Regex> {
        None
    }

    /// There is none.
    pub fn matches(&self, _normal: &str) -> bool {
        match self.0 {}
    }
}

fn is_capture(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
