//! `mode` of a rule, with its own words.

use super::language::{LEASE, MODES};
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::{Mode, Terms};

/// The mode, with its own words: those of another mode are noted.
pub(super) fn read(reader: &mut Reader, fields: &Fields) -> Option<Mode> {
    let mode = reader.choice(fields, "mode", MODES);
    // Where the mode could not be read, words of all modes are read as they stand.
    let is = |wanted: fn(&Mode) -> bool| mode.as_ref().is_none_or(wanted);
    let mut terms = None;
    if is(|mode| matches!(mode, Mode::Lease(_))) {
        terms = read_terms(reader, fields);
    } else if let (Some((_, path)), Some(other)) = (fields.get("lease"), mode) {
        misplaced(reader, &path, other, "leave it out, or write mode: lease");
    }
    let mut interval = None;
    if is(|mode| matches!(mode, Mode::Async { .. })) {
        interval = reader.duration(fields, "sync_interval");
    } else if let (Some((_, path)), Some(other)) = (fields.get("sync_interval"), mode) {
        misplaced(reader, &path, other, "leave it out, or write mode: async");
    }
    Some(match mode? {
        Mode::Lease(_) => Mode::Lease(terms?),
        Mode::Async { .. } => Mode::Async { sync_interval: interval? },
        other => other,
    })
}

fn misplaced(reader: &mut Reader, path: &Path, mode: Mode, wanted: &str) {
    let wrong = match mode {
        Mode::Exact => "has no meaning with mode: exact",
        Mode::Lease(_) => "has no meaning with mode: lease",
        Mode::Async { .. } => "has no meaning with mode: async",
        Mode::Local => "has no meaning with mode: local",
    };
    reader.note(path, Found::Nothing, wrong, wanted);
}

fn read_terms(reader: &mut Reader, fields: &Fields) -> Option<Terms> {
    let fields = reader.object_of(fields, "lease", &LEASE)?;
    let (life, lend) = (reader.duration(&fields, "life"), reader.part(&fields, "lend"));
    Some(Terms { life: life?, lend: lend? })
}
