//! Keys that hold something else than a bucket, and are not asked for a while. Their limiter is well.

use std::rc::Rc;

use super::Plan;
use crate::bucket::BucketId;
use crate::clock::Ms;

/// How long such a key is left alone.
const LEFT_ALONE: Ms = Ms(1000);

/// So many such keys are kept in mind.
const MOST_BAD_KEYS: usize = 256;

/// The buckets with such keys, and until when each is left alone.
pub(super) type BadKeys = Vec<(Rc<BucketId>, Ms)>;

impl Plan {
    /// A bucket's key holds something else: the bucket is left alone for a while.
    pub fn leave_alone(&self, bucket: &Rc<BucketId>, now: Ms) {
        let mut until = self.bad_keys.borrow_mut();
        if until.len() >= MOST_BAD_KEYS {
            until.retain(|(_, until)| now < *until);
        }
        // Where there are more, those are asked each time.
        if until.len() < MOST_BAD_KEYS {
            until.push((bucket.clone(), now + LEFT_ALONE));
        }
    }

    /// Whether a bucket is left alone, for its key holds something else.
    pub fn is_left_alone(&self, bucket: &BucketId, now: Ms) -> bool {
        // An end that is further away was set by a clock that was set back since.
        let bad_keys = self.bad_keys.borrow();
        let mut of_bucket = bad_keys.iter().filter(|(other, _)| **other == *bucket);
        of_bucket.any(|(_, until)| now < *until && *until - now <= LEFT_ALONE)
    }
}
