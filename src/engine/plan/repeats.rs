//! Requests that are sent again, and pass free.

use super::Plan;
use crate::algorithm::Used;
use crate::clock::Ms;
use crate::rules::Repeat;

/// How often a request that is sent again passes free. More than that is no retry.
const REPEATS: u64 = 8;

/// What tells requests from buckets and limiters in the table.
const REPEATED: u64 = 1;

impl Plan {
    /// Whether a request has been sent and charged before, and may pass free.
    pub fn is_repeat(&self, repeat: &Repeat, now: Ms) -> bool {
        let passes = self.table.as_ref().and_then(|table| {
            table.change(self.store.as_ref(), table.fingerprint(REPEATED, &repeat.key), now, |entry| {
                let Some(left) = entry.known.as_mut().filter(|left| now - left.at < repeat.keep && left.units > 0)
                else {
                    return false;
                };
                left.units = left.units.saturating_sub(1);
                true
            })
        });
        passes == Some(true)
    }

    /// A request that may be sent again has been charged.
    pub fn remember(&self, repeat: &Repeat, now: Ms) {
        if let Some(table) = &self.table {
            table.change(self.store.as_ref(), table.fingerprint(REPEATED, &repeat.key), now, |entry| {
                entry.known = Some(Used { units: REPEATS, at: now });
                entry.means_until = now + repeat.keep;
            });
        }
    }
}
