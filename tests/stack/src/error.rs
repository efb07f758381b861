//! The one error of this crate: where it happened, what was found, what was wanted, and the log of the process concerned.

use std::fmt;

/// Something of the stack did not do what it should. `Debug` reads like `Display`, so that `unwrap` in a test shows it well.
pub struct Error {
    place: String,
    found: String,
    wanted: String,
    log: String,
}

impl Error {
    pub(crate) fn new(place: impl Into<String>, found: impl fmt::Display, wanted: impl Into<String>) -> Error {
        Error { place: place.into(), found: found.to_string(), wanted: wanted.into(), log: String::new() }
    }

    /// Adds the end of a process's log.
    pub(crate) fn with_log(mut self, log: &str) -> Error {
        const LINES: usize = 40;
        let lines: Vec<&str> = log.lines().collect();
        self.log = lines[lines.len().saturating_sub(LINES)..].join("\n");
        self
    }

    /// Whether the process ended because another one had taken its port.
    pub(crate) fn is_address_in_use(&self) -> bool {
        self.log.to_lowercase().contains("address already in use")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; wanted {}", self.place, self.found, self.wanted)?;
        if !self.log.is_empty() {
            write!(f, "\nthe end of its log:\n{}", self.log)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
