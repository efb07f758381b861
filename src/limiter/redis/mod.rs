//! The limiter in Redis, which runs the scripts of the algorithms: the transport that carries them through Webdis.

pub mod webdis;
