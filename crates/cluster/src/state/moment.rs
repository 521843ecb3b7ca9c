//! Moments, told by the caller.

use std::time::Duration;

/// A moment: how long after a start that the caller chooses, the same one for every call on one state. A monotone clock
/// of the process serves well; nothing here reads one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The start itself.
    pub const START: Self = Self(Duration::ZERO);

    /// So long after the start.
    pub const fn after_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// So many milliseconds after the start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// How long ago `earlier` was; nothing when it is later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// `12.345 s`.
impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{:.3} s", self.0.as_secs_f64()))
    }
}
