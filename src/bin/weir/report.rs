//! What the tool has to say: for people as a compiler does, for programs as JSON.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use weir::policy::{Problem, Tree};

use crate::document::{Node, Place};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
    Note,
}

/// One thing to say about a place in a file.
#[derive(Clone, Debug)]
pub struct Report {
    pub at: Place,
    pub severity: Severity,
    /// In the policy; None where it is about what is around it.
    pub path: Option<String>,
    pub message: String,
}

/// A report and where it belongs.
#[derive(Clone, Debug)]
pub struct Located {
    pub file: String,
    /// Which policy of the file; None for the file's only document.
    pub policy: Option<String>,
    pub report: Report,
}

pub const BOLD: Style = Style::new().bold();

pub const DIM: Style = Style::new().dimmed();

pub fn colour(colour: AnsiColor) -> Style {
    Style::new().bold().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// A text in a style.
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

impl Report {
    /// What is wrong with a policy.
    pub fn of(problem: &Problem, node: &Node) -> Report {
        let (path, message) = (Some(problem.path.to_string()), node.message_of(problem));
        Report { at: node.place_of(problem), severity: Severity::Error, path, message }
    }

    /// What is wrong around it.
    pub fn error(at: Place, message: String) -> Report {
        Report { at, severity: Severity::Error, path: None, message }
    }
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }

    fn style(self) -> Style {
        colour(match self {
            Severity::Error => AnsiColor::Red,
            Severity::Warning => AnsiColor::Yellow,
            Severity::Note => AnsiColor::Cyan,
        })
    }
}

impl Located {
    /// `file:line:column: error: where: path: message`.
    pub fn line(&self) -> String {
        let Located { file, policy, report } = self;
        let place = format!("{file}:{}:{}:", report.at.line, report.at.column);
        let severity = format!("{}:", report.severity.word());
        let mut line = format!("{} {}", styled(BOLD, &place), styled(report.severity.style(), &severity));
        for part in [policy, &report.path].into_iter().flatten() {
            // Whatever stands in a file must not reach a terminal as a command.
            let _ = write!(line, " {}:", visible(part));
        }
        line + " " + &visible(&report.message) + "\n"
    }

    pub fn json(&self) -> Tree {
        let Located { file, policy, report } = self;
        object([
            ("file", text(file)),
            ("line", number(report.at.line)),
            ("column", number(report.at.column)),
            ("severity", text(report.severity.word())),
            ("policy", policy.as_deref().map_or(Tree::Null, text)),
            ("path", report.path.as_deref().map_or(Tree::Null, text)),
            ("message", text(&report.message)),
        ])
    }
}

/// A text without control characters, which a terminal would obey.
pub fn visible(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

pub fn object<const N: usize>(pairs: [(&str, Tree); N]) -> Tree {
    Tree::Map(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

pub fn text(text: impl Into<String>) -> Tree {
    Tree::Text(text.into())
}

pub fn number(number: impl TryInto<i64>) -> Tree {
    Tree::Int(number.try_into().unwrap_or(i64::MAX))
}

/// JSON on lines of its own, without control characters, of which JSON allows some.
pub fn json(tree: &Tree) -> String {
    // Nothing in a tree can fail to be written.
    let text = serde_json::to_string_pretty(tree).unwrap_or_default() + "\n";
    // Between its texts there are no others than ends of lines.
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, letter| {
        if letter.is_control() && letter != '\n' {
            let _ = write!(escaped, "\\u{:04x}", u32::from(letter));
        } else {
            escaped.push(letter);
        }
        escaped
    })
}
