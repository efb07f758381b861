//! The closed sets of words.

use crate::clock::Ms;
use crate::policy::{AlgorithmName, Kind, Mode, OnError, Reset, Terms, TransportName, UpstreamHeaders};

choices! {
    /// How a limiter is reached.
    TRANSPORTS, TRANSPORT_WORDS: TransportName {
        "bridge" => TransportName::Bridge, "Redis behind `weir bridge`";
        "webdis" => TransportName::Webdis, "Redis behind Webdis, an HTTP face of others";
    }

    /// How a rule counts.
    ALGORITHMS, ALGORITHM_WORDS: AlgorithmName {
        "token_bucket" => AlgorithmName::TokenBucket, "tokens come back evenly, and up to `burst` of them wait";
        "fixed_window" => AlgorithmName::FixedWindow, "`requests` in each window of `per`, which begins at a multiple of it";
    }

    /// Where tokens are; terms and intervals are words of their own.
    MODES, MODE_WORDS: Mode {
        "exact" => Mode::Exact, "Redis grants every request";
        "lease" => Mode::Lease(Terms { life: Ms(0), lend: 0 }), "Redis lends tokens to proxies and counts what is lent";
        "async" => Mode::Async { sync_interval: Ms(0) }, "a proxy spends first and tells Redis later";
        "local" => Mode::Local, "each proxy has its share and asks nobody";
    }

    /// What a request gets when the limiter fails.
    ON_ERROR, ON_ERROR_WORDS: OnError {
        "allow" => OnError::Allow, "it passes";
        "deny" => OnError::Deny, "503 with Retry-After";
        "local" => OnError::Local, "the proxy's own bucket decides";
    }

    /// Whether a slash at the end is dropped.
    SLASHES, SLASH_WORDS: bool {
        "distinct" => false, "`/a/` is another path than `/a`";
        "ignore" => true, "it is the same";
    }

    /// Families of headers: x-ratelimit, ratelimit.
    FAMILIES, FAMILY_WORDS: (bool, bool) {
        "x-ratelimit" => (true, false), "`x-ratelimit-limit`, `-remaining` and `-reset`";
        "ratelimit" => (false, true), "`ratelimit-policy` and `ratelimit`, the IETF draft's";
    }

    /// How `x-ratelimit-reset` is told.
    RESETS, RESET_WORDS: Reset {
        "epoch" => Reset::Epoch, "as a moment, in seconds since 1970";
        "seconds" => Reset::Seconds, "as a wait";
    }

    /// What becomes of headers of the service behind.
    UPSTREAM, UPSTREAM_WORDS: UpstreamHeaders {
        "replace" => UpstreamHeaders::Replace, "these stand in their place";
        "keep" => UpstreamHeaders::Keep, "a family of theirs stays";
    }

    /// What happens to a request that sends a value twice.
    REFUSED, REFUSED_WORDS: () {
        "refuse" => (), "a request that sends it twice is answered with 400";
    }

    /// Whether the token of a bearer is read.
    SCHEMES, SCHEME_WORDS: bool {
        "bearer" => true, "the token";
        "basic" => false, "the user";
    }

    /// What a property is.
    KINDS, KIND_WORDS: Kind {
        "text" => Kind::Text, "UTF-8 without control characters";
        "number" => Kind::Number, "an integer below 2^53, as a decimal";
        "bool" => Kind::Bool, "true or false";
    }

    /// Whether the client's address stands in X-Forwarded-For.
    FROM, FROM_WORDS: bool {
        "host" => false, "the address that Envoy has settled on";
        "x_forwarded_for" => true, "that header";
    }
}
