//! What there is to tell, in words.

use crate::clock::Ms;

/// A duration as policies write it: in the largest unit that needs no fraction.
pub fn duration(Ms(ms): Ms) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let unit = units.into_iter().find(|(length, _)| ms > 0 && ms.is_multiple_of(*length));
    match unit {
        Some((length, unit)) => format!("{}{unit}", ms.checked_div(length).unwrap_or_default()),
        None => format!("{ms}ms"),
    }
}
