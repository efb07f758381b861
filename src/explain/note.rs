//! What one should know beside what becomes of a request.

use super::Asking;
use crate::policy::{AddressFrom, AlgorithmName, Origin};
use crate::rules::{Ruling, judge};

/// What one should know beside what becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nobody has told the key of the hash, which is in this variable: hashes are left out, and whether `tier.tenants`,
    /// `overrides` or `limiter.tenants` names such a tenant is not known.
    HashKeyUnknown(String),
    /// The policy reads the client's address, and the request has none.
    AddressMissing,
    /// The address is taken for the one that the host settles on.
    AddressTaken,
    /// `Retry-After` of a limited request is longer at random, by at most so many thousandths.
    Jitter(u16),
    /// What is told of a window is as of its beginning.
    Window,
    /// `x-forwarded-for` is taken as the module sees it, after the host has added to it.
    ChainTaken,
}

impl Asking<'_> {
    pub(super) fn notes(self) -> Vec<Note> {
        let mut notes = Vec::new();
        notes.extend(self.subject.unknown_hash_key.clone().map(Note::HashKeyUnknown));
        if self.reads(&|origin| matches!(origin, Origin::ClientIp(AddressFrom::Host, _))) {
            notes.push(if self.request.has_address() { Note::AddressTaken } else { Note::AddressMissing });
        }
        let jitter = self.policy.response.retry_after_jitter;
        if let Ruling::Ask(asks) = judge(self.policy, self.request).ruling {
            if asks.iter().any(|ask| ask.limit.algorithm() == AlgorithmName::FixedWindow) {
                notes.push(Note::Window);
            }
            notes.extend((jitter > 0).then_some(Note::Jitter(jitter)));
        }
        let reads_chain = self.reads(&|origin| matches!(origin, Origin::ClientIp(AddressFrom::Forwarded(_), _)));
        if reads_chain && self.request.has("x-forwarded-for") {
            notes.push(Note::ChainTaken);
        }
        notes
    }

    /// Whether the policy reads something of this kind.
    fn reads(self, of: &dyn Fn(&Origin) -> bool) -> bool {
        let mut sources = self.policy.rules.iter().flat_map(|rule| rule.sources.iter().chain(&rule.tier_sources));
        sources.any(|source| match &source.origin {
            Origin::All(parts) => parts.iter().any(|part| of(&part.origin)),
            origin => of(origin),
        })
    }
}
