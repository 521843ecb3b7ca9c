//! When silence means something.

use std::time::Duration;

/// How long a node may be silent, and how long a sample is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Silent for so long, it is degraded.
    pub degraded_after: Duration,
    /// Silent for so long, it has failed.
    pub failed_after: Duration,
    /// So old, a sample of free memory is no longer believed; `None` believes it for ever.
    pub free_outdated_after: Option<Duration>,
}

impl Default for Limits {
    /// 5 and 15 seconds of silence, samples of a minute.
    fn default() -> Self {
        Self {
            degraded_after: Duration::from_secs(5),
            failed_after: Duration::from_secs(15),
            free_outdated_after: Some(Duration::from_secs(60)),
        }
    }
}

/// Limits that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// A node would have failed before it is degraded.
    #[error("nodes are degraded after {degraded:?} of silence and failed after {failed:?}, which is sooner")]
    FailedBeforeDegraded {
        /// When they are degraded.
        degraded: Duration,
        /// When they have failed.
        failed: Duration,
    },
    /// Nothing would ever be alive.
    #[error("a {what} of zero makes everything outdated at once")]
    Zero {
        /// Which limit.
        what: &'static str,
    },
}

impl Limits {
    /// Whether the limits make sense together.
    ///
    /// # Errors
    ///
    /// A limit of zero, or nodes that fail before they are degraded.
    pub fn validate(&self) -> Result<(), LimitsError> {
        for (what, limit) in [
            ("degraded_after", Some(self.degraded_after)),
            ("failed_after", Some(self.failed_after)),
            ("free_outdated_after", self.free_outdated_after),
        ] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(LimitsError::Zero { what });
            }
        }
        if self.failed_after < self.degraded_after {
            let (degraded, failed) = (self.degraded_after, self.failed_after);
            return Err(LimitsError::FailedBeforeDegraded { degraded, failed });
        }
        Ok(())
    }
}
