//! The scripts that run in Redis: `lua/prelude.lua` and an algorithm's file, byte for byte and joined.

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
    text: concat!(include_str!("../../../lua/prelude.lua"), include_str!("../../../lua/token_bucket.lua")),
    sha: "ae1d2c722fd39f24717f0fd93adc9142df96b22c",
    format: "t3",
};
