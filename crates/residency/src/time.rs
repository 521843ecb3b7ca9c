//! Moments, as the caller tells them.

use std::fmt;
use std::time::Duration;

/// A moment: milliseconds since an epoch that the caller chooses, the same one for everybody who shares a ledger.
///
/// A ledger in memory may count from its own start. A ledger file that processes share counts from the UNIX epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// So many milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// So long after the epoch, in whole milliseconds.
    pub fn after_epoch(elapsed: Duration) -> Self {
        Self::ZERO.saturating_add(elapsed)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// So much later, or [`Timestamp::NEVER`].
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`, or nothing when that is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// `12.345 s` after the epoch.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:03} s", self.0 / 1000, self.0 % 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_wraps() {
        let start = Timestamp::from_millis(5);
        assert_eq!(start.saturating_add(Duration::from_secs(1)), Timestamp::from_millis(1005));
        assert_eq!(start.saturating_add(Duration::MAX), Timestamp::NEVER);
        assert_eq!(start.saturating_since(Timestamp::NEVER), Duration::ZERO);
        assert_eq!(Timestamp::from_millis(12_345).to_string(), "12.345 s");
    }
}
