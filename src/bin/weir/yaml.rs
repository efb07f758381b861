//! Writes YAML that every reader reads alike: those of YAML 1.1 and 1.2, and Envoy's, which takes more words for booleans.

use weir::policy::Tree;

/// What fits on a line is written on one.
const WIDTH: usize = 100;

/// Writes a tree, each line so far in.
pub fn write(tree: &Tree, indent: usize) -> String {
    let mut out = String::new();
    block(tree, indent, &mut out);
    out
}

/// Ends in a line break, as each line does.
fn block(tree: &Tree, indent: usize, out: &mut String) {
    let margin = " ".repeat(indent);
    match tree {
        Tree::Map(pairs) if !pairs.is_empty() => {
            for (key, value) in pairs {
                out.push_str(&format!("{margin}{}:", scalar_text(key)));
                child(value, indent, out);
            }
        }
        Tree::List(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                match fits(item, indent, &flow(item)) {
                    true => inner.push_str(&format!("{margin}- {}\n", flow(item))),
                    false => {
                        // The first line stands behind the dash.
                        let mut lines = String::new();
                        block(item, indent.saturating_add(2), &mut lines);
                        inner.push_str(&format!("{margin}- {}", lines.trim_start()));
                    }
                }
                out.push_str(&inner);
            }
        }
        other => out.push_str(&format!("{margin}{}\n", flow(other))),
    }
}

/// What stands behind a key.
fn child(value: &Tree, indent: usize, out: &mut String) {
    let line = flow(value);
    if fits(value, indent, &line) {
        out.push_str(&format!(" {line}\n"));
    } else {
        out.push('\n');
        block(value, indent.saturating_add(2), out);
    }
}

/// Whether a value is short enough, and simple enough to be read on one line.
fn fits(value: &Tree, indent: usize, line: &str) -> bool {
    let is_scalar = |tree: &Tree| !matches!(tree, Tree::Map(_) | Tree::List(_));
    let is_simple = match value {
        Tree::Map(pairs) => pairs.iter().all(|(_, value)| is_scalar(value) || flow(value).len() < 48),
        Tree::List(items) => items.iter().all(|item| is_scalar(item) || flow(item).len() < 48),
        _ => return true,
    };
    is_simple && line.len().saturating_add(indent) < WIDTH
}

/// A value on one line.
fn flow(tree: &Tree) -> String {
    match tree {
        Tree::Null => "null".to_owned(),
        Tree::Bool(value) => value.to_string(),
        Tree::Int(value) => value.to_string(),
        Tree::Float(value) => value.to_string(),
        Tree::Text(text) => scalar_text(text),
        Tree::List(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Tree::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}: {}", scalar_text(key), flow(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// A text, in quotes where a reader might take it for something else.
fn scalar_text(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '/')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    // A number, by whatever reader, or a date: they start with a digit and have no unit that is one of a policy.
    let is_number = text.starts_with(|letter: char| letter.is_ascii_digit()) && !is_amount(text);
    match is_plain && !is_number {
        true => text.to_owned(),
        // JSON's escapes are among those of YAML, which has no character unescaped that cannot be printed.
        false => serde_json::to_string(text).unwrap_or_default().chars().map(escaped).collect(),
    }
}

fn escaped(letter: char) -> String {
    match letter.is_control() || matches!(letter, '\u{feff}' | '\u{2028}' | '\u{2029}') {
        true => format!("\\u{:04x}", u32::from(letter)),
        false => letter.to_string(),
    }
}

/// `100/m` or `20ms`: no reader takes it for a number.
fn is_amount(text: &str) -> bool {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let unit = unit.strip_prefix('/').unwrap_or(unit);
    ["ms", "s", "m", "h", "d"].contains(&unit)
}
