//! The limiter in Redis: its scripts, and the transport that carries them through Webdis.

pub mod script;
pub mod webdis;
