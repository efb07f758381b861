//! Milliseconds, and a clock that never goes back.
//!
//! Some hosts give one clock, and it is the wall's: somebody may set it back by an hour. Deadlines need time that only
//! goes forward, so for them [`Clock`] adds up the steps that readings take forward. A reading that goes back adds
//! nothing and costs the time since the one before, at most a tick; one that jumps forward ends waits early, which is
//! safe.

use std::ops::{Add, Sub};

/// Milliseconds, as a length of time or as a moment since some start; arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ms(pub u64);

impl Ms {
    /// This many milliseconds `times` over.
    pub fn times(self, times: u64) -> Ms {
        Ms(self.0.saturating_mul(times))
    }

    /// In whole seconds, rounded up.
    pub fn seconds_up(self) -> u64 {
        self.0.div_ceil(1000)
    }
}

impl Add for Ms {
    type Output = Ms;
    fn add(self, other: Ms) -> Ms {
        Ms(self.0.saturating_add(other.0))
    }
}

impl Sub for Ms {
    type Output = Ms;
    fn sub(self, other: Ms) -> Ms {
        Ms(self.0.saturating_sub(other.0))
    }
}

/// One moment, told twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time that only goes forward; its start means nothing. For deadlines.
    pub mono: Ms,
    /// Milliseconds since 1970 by the wall's clock. For what clients are told, never for decisions.
    pub unix: Ms,
}

/// Makes time that only goes forward out of readings of a wall clock.
#[derive(Debug, Default)]
pub struct Clock {
    wall: Ms,
    mono: Ms,
}

impl Clock {
    /// Takes a reading of the wall's clock.
    pub fn read(&mut self, wall: Ms) -> Now {
        // The first reading counts from zero, which only moves the start.
        self.mono = self.mono + (wall - self.wall);
        self.wall = wall;
        Now { mono: self.mono, unix: wall }
    }
}
