//! Keys that hold something else than a bucket, and are not asked for a while. Their limiter is well.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::clock::Ms;
use crate::policy::LimiterId;
use crate::rules::Ask;

/// How long such a key is left alone.
const LEFT_ALONE: Ms = Ms(1000);

/// So many such keys are kept in mind.
const MOST_BAD_KEYS: usize = 256;

/// The keys, with the limiter that has each, and until when it is left alone.
#[derive(Debug, Default)]
pub(super) struct BadKeys {
    until: BTreeMap<Rc<str>, (LimiterId, Ms)>,
}

impl BadKeys {
    pub fn add(&mut self, bucket: &Ask, now: Ms) {
        if self.until.len() >= MOST_BAD_KEYS {
            self.until.retain(|_, (_, until)| now < *until);
        }
        // Where there are more, those are asked each time.
        if self.until.len() < MOST_BAD_KEYS {
            self.until.insert(bucket.key.as_str().into(), (bucket.limiter, now + LEFT_ALONE));
        }
    }

    /// Whether such a bucket's key is left alone.
    pub fn has(&self, bucket: &Ask, now: Ms) -> bool {
        let bad = self.until.get(bucket.key.as_str()).filter(|(limiter, _)| *limiter == bucket.limiter);
        // An end that is further away was set by a clock that was set back since.
        bad.is_some_and(|(_, until)| now < *until && *until - now <= LEFT_ALONE)
    }
}
