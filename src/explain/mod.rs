//! What a policy makes of a request, and why. It must not know where its reader looks: at a command line or a page.

pub mod buckets;
pub mod words;
