//! The scripts that run in Redis, byte for byte as they stand in `lua/`.

/// A Redis script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its text.
    pub text: &'static str,
    /// SHA-1 of the text in hex: the name by which EVALSHA calls it. Pinned; a test computes it anew.
    pub sha: &'static str,
    /// What it stores: the algorithm and the version of the value. Last part of the Redis key.
    pub format: &'static str,
}

/// Grants the costs of those who wait at a token bucket.
pub const TOKEN_BUCKET: Script = Script {
    text: include_str!("../../../lua/token_bucket.lua"),
    sha: "ff241b07f7fb960621e2e7046ff5a9b4a2279beb",
    format: "t3",
};
