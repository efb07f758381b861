//! Paths, in one spelling: normalisation of what a client sent, and the patterns of a policy.
//!
//! Normal form (RFC 3986, 6.2.2): unreserved bytes decoded, other escapes in upper case, dot segments removed, slashes
//! in a row merged, query and fragment apart, the absolute form cut to its path. `%2F` stays: it is no separator.

use crate::tenant::push_escaped;

/// A path that no reading agrees on, or that is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Brings the path of a request into normal form. `*` (RFC 9112, 3.2.4) stays as it is.
///
/// # Errors
/// [`Malformed`]: no slash at the start, a percent sign without two hex digits, a control byte, an escaped NUL, or a
/// `..` that takes an empty segment away, for servers that merge slashes first let it take the one before that.
pub fn normalise(sent: &[u8]) -> Result<String, Malformed> {
    let end = sent.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let path = sent.get(..end.unwrap_or(sent.len())).unwrap_or(sent);
    if path == b"*" {
        return Ok("*".to_owned());
    }
    let decoded = decode(without_authority(path)?)?;
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
    if open_end || normal.is_empty() {
        normal.push('/');
    }
    Ok(normal)
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
fn decode(path: &[u8]) -> Result<String, Malformed> {
    let mut decoded = String::with_capacity(path.len());
    let mut bytes = path.iter().copied();
    while let Some(byte) = bytes.next() {
        let (byte, escaped) = match byte {
            b'%' => {
                let digits = (bytes.next().and_then(hex), bytes.next().and_then(hex));
                let (Some(high), Some(low)) = digits else {
                    return Err(Malformed);
                };
                (high << 4 | low, true)
            }
            _ => (byte, false),
        };
        let unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let literal = matches!(byte, b'/' | b':' | b'@' | b'!' | b'$' | b'&' | b'\'')
            || matches!(byte, b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        if byte == 0 || (!escaped && (byte.is_ascii_control() || byte == b' ')) {
            return Err(Malformed);
        }
        if unreserved || (literal && !escaped) {
            decoded.push(char::from(byte));
        } else {
            push_escaped(&mut decoded, byte);
        }
    }
    Ok(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Which paths a class is for: a path, `{name}` being any one segment, `/**` at the end being all below as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Part>,
    below: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Exactly(String),
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
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`NoPattern`].
    pub fn parse(text: &str) -> Result<Pattern, NoPattern> {
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
        let mut normal = normalise(literal.as_bytes()).map_err(|Malformed| NoPattern::NoPath)?;
        if below && normal.ends_with('/') {
            normal.pop();
        }
        if normal == literal {
            return Ok(Pattern { segments, below });
        }
        let told = normal.replace("%7B", "{").replace("%7D", "}");
        Err(NoPattern::NotNormal(told + if below { "/**" } else { "" }))
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

fn is_capture(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
