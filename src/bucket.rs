//! Which bucket: what a transport makes its name of.

use std::rc::Rc;

use crate::policy::{BucketKind, LimiterId};
use crate::tenant::Tenant;

/// A bucket of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketId {
    /// Which limiter has it: buckets of the same tenant and kind at two limiters are two.
    pub limiter: LimiterId,
    /// Whose it is.
    pub tenant: Tenant,
    /// Which of the tenant's.
    pub kind: Rc<BucketKind>,
}
