//! What runs at the limiter for an algorithm.

/// A Redis script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its text: what all scripts share, and after it the algorithm's own file.
    pub text: &'static str,
    /// SHA-1 of the text in hex: the name by which EVALSHA calls it. Pinned; a test computes it anew.
    pub sha: &'static str,
    /// What it stores: the algorithm and the version of the value. Last part of a bucket's name, so that no two
    /// algorithms, and no two layouts of one, meet in one value.
    pub format: &'static str,
}
