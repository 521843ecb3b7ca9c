//! One look at a machine, and how it can fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_profile::SystemProfile;

/// Why a look at the machine came back without a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// The probe said so.
    #[error("this machine cannot be looked at: {reason}")]
    Failed {
        /// In the probe's words.
        reason: String,
    },
    /// The probe panicked.
    #[error("the probe of this machine panicked")]
    Panicked,
    /// The probe has not answered yet. No other look begins before it does.
    #[error("the probe of this machine has not answered within {} ms", waited.as_millis())]
    NoAnswer {
        /// How long was waited.
        waited: Duration,
    },
    /// The runtime ended before the look did.
    #[error("the runtime ended before the look at this machine did")]
    RuntimeEnded,
}

impl LookError {
    /// What a probe says when it fails.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }
}

/// Looks, as often as it is called. It may block.
pub(crate) type Probe = Arc<dyn Fn() -> Result<SystemProfile, LookError> + Send + Sync>;

/// Looks once. A probe that panics has failed, and may be asked again.
pub(crate) fn look(probe: &Probe) -> Result<SystemProfile, LookError> {
    catch_unwind(AssertUnwindSafe(|| probe())).unwrap_or(Err(LookError::Panicked))
}
