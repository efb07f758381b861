//! Ranges as regular expressions, since durations, limits and parts are texts.

use super::tables::said_duration;
use super::{Keywords, patterned};
use weir::policy::Tree;

/// Units of a duration, in milliseconds.
pub(super) const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

pub(super) fn duration(from: u64, to: u64, wanted: &str) -> Keywords {
    let whole_seconds = !wanted.contains("ms");
    let mut units = Vec::new();
    for (unit, size) in UNITS {
        // Whole seconds may be written in milliseconds.
        let (size, zeros) = if whole_seconds && size == 1 { (1000, "000") } else { (size, "") };
        let (least, most) = (from.div_ceil(size), to / size);
        if least <= most {
            units.push(format!("{}{zeros}{unit}", integers(least, most)));
        }
    }
    let said = format!("write {wanted}, from {} to {}", said_duration(from), said_duration(to));
    patterned(format!("^0*(?:{})$", units.join("|")), said)
}

/// Requests of a text are its burst, too: times the period in milliseconds it stays below 2^53.
pub(super) fn limit_pattern() -> String {
    let per = |(unit, size): (&str, u64)| format!("{}/{unit}", integers(1, ((1 << 53) - 1) / size));
    let units: Vec<_> = UNITS.into_iter().skip(1).map(per).collect();
    format!("^0*(?:{})$", units.join("|"))
}

/// An expression for the integers of a range, without zeros at the start. Both are at least 1.
fn integers(from: u64, to: u64) -> String {
    let mut ranges = Vec::new();
    let mut from = from;
    while from <= to {
        // Those with as many digits as the first.
        let nines = 10_u64.saturating_pow(from.to_string().len().try_into().unwrap_or(u32::MAX)) - 1;
        let last = to.min(nines);
        same_length("", &from.to_string(), &last.to_string(), &mut ranges);
        from = last + 1;
    }
    format!("(?:{})", ranges.join("|"))
}

/// The integers of a range whose ends have as many digits, after some digits that all have.
fn same_length(before: &str, from: &str, to: &str, ranges: &mut Vec<String>) {
    let (Some(first), Some(last)) = (from.chars().next(), to.chars().next()) else {
        ranges.push(before.to_owned());
        return;
    };
    let (rest_of_first, rest_of_last) = (&from[1..], &to[1..]);
    let any = match rest_of_first.len() {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        digits => format!("[0-9]{{{digits}}}"),
    };
    let (is_low, is_high) =
        (rest_of_first.chars().all(|digit| digit == '0'), rest_of_last.chars().all(|digit| digit == '9'));
    if first == last && !(is_low && is_high) {
        return same_length(&format!("{before}{first}"), rest_of_first, rest_of_last, ranges);
    }
    let digit = |from: char, by: i8| char::from((from as u8).wrapping_add_signed(by));
    let whole_from = if is_low { first } else { digit(first, 1) };
    let whole_to = if is_high { last } else { digit(last, -1) };
    if !is_low {
        same_length(&format!("{before}{first}"), rest_of_first, &"9".repeat(rest_of_first.len()), ranges);
    }
    if whole_from == whole_to {
        ranges.push(format!("{before}{whole_from}{any}"));
    } else if whole_from < whole_to {
        ranges.push(format!("{before}[{whole_from}-{whole_to}]{any}"));
    }
    if !is_high {
        same_length(&format!("{before}{last}"), &"0".repeat(rest_of_last.len()), rest_of_last, ranges);
    }
}

pub(super) fn of_tenths(tenths: i64) -> Tree {
    if tenths % 10 == 0 { Tree::Int(tenths / 10) } else { Tree::Float(tenths as f64 / 10.0) }
}

/// The same range as a text: a fraction without sign and exponent.
pub(super) fn tenths_pattern(from: i64, to: i64) -> String {
    let mut choices = Vec::new();
    if from == 0 {
        choices.push(r"0+\.?".to_owned());
    }
    if to == 10 {
        choices.push(format!(r"0*\.[{from}-9][0-9]*"));
        choices.push(r"0*1(?:\.0*)?".to_owned());
    } else {
        choices.push(format!(r"0*\.(?:[{from}-{}][0-9]*|{to}0*)", to - 1));
    }
    format!("^(?:{})$", choices.join("|"))
}
