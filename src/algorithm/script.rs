//! What runs at the limiter for an algorithm.

/// The prelude of every script.
pub(super) const PRELUDE: &str = include_str!("../../lua/prelude.lua");

/// A Redis script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// What all scripts share: [`PRELUDE`], once in the module, however many there are.
    pub prelude: &'static str,
    /// The algorithm's own file, which stands behind it.
    pub own: &'static str,
    /// SHA-1 of the text in hex: the name by which EVALSHA calls it. Pinned; a test computes it anew.
    pub sha: &'static str,
    /// What it stores: the algorithm and the version of the value. Last part of a bucket's name, so that no two
    /// algorithms, and no two layouts of one, meet in one value.
    pub format: &'static str,
}

impl Script {
    /// Its text.
    pub fn text(&self) -> String {
        [self.prelude, self.own].concat()
    }
}
