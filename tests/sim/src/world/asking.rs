//! What the core asks for a request of the simulator.

use weir::engine::{Decision, decide};
use weir::policy::Policy;
use weir::request::Request;
use weir::rules::Ask;

use crate::scenario::Scenario;

/// A request of the simulator: its tenant of each rule, its cost and its tier.
struct Asking([u32; 3], u64, usize);

impl Request for Asking {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "k0" => Some(format!("t{}", self.0[0]).into_bytes()),
            "k1" => Some(format!("t{}", self.0[1]).into_bytes()),
            "k2" => Some(format!("t{}", self.0[2]).into_bytes()),
            "tier" => Some(format!("t{}", self.2).into_bytes()),
            ":path" => Some(format!("/{}", self.1).into_bytes()),
            _ => None,
        }
    }

    fn is_doubled(&self, _name: &str) -> bool {
        false
    }

    fn property(&self, _path: &[&str]) -> Option<Vec<u8>> {
        None
    }
}

/// The rule and the tenant in the key of a bucket: see [`Asking`].
pub fn rule_and_tenant(key: &str) -> Option<(u32, u32)> {
    let (_, rest) = key.split_once(".t")?;
    let (tenant, rest) = rest.split_once("}:r")?;
    Some((rest.split_once(':')?.0.parse().ok()?, tenant.parse().ok()?))
}

/// What the core asks for a request of this tenant, this cost and this tier.
pub fn asks(policy: &Policy, scenario: &Scenario, bucket: u32, cost: u64, tier: usize) -> Vec<Ask> {
    match decide(policy, &Asking([0, 1, 2].map(|rule| scenario.tenant(rule, bucket)), cost, tier)) {
        Decision::Ask(asks, _) => asks,
        Decision::Answer(verdict) => panic!("the simulator's policies limit everything: {verdict:?}"),
    }
}
