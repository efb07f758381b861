//! The benches of the core are in `benches`; a package needs a library, too.
