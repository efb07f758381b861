//! The pure core, room by room, natively and under Node.
//!
//! Every body runs in both places, so nothing here reads files, clocks or the environment: policies stand in the text,
//! time is made up, and chance comes from a seed.

mod made;

mod addresses;
mod answers;
mod bridge;
mod buckets;
mod claims;
mod clocks;
mod credentials;
mod flows;
mod histories;
mod identities;
mod leases;
mod lending;
mod limiters;
mod limits;
mod networks;
mod panics;
mod paths;
mod plans;
mod pool;
mod random;
mod records;
mod requests;
mod rules;
mod spellings;
mod tenants;
mod tops;
mod tries;
mod waits;
mod webdis;
mod windows;
mod wire;
