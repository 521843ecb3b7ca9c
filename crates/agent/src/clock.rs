//! The one place where the agent reads a clock.

use std::time::{Duration, Instant, SystemTime};

use plimsoll::residency::Timestamp;

/// The time, as everybody who shares a ledger's file counts it.
#[expect(
    clippy::disallowed_methods,
    reason = "bookings have a beginning, which all who share them must agree on"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::after_epoch(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

/// For how long something took.
#[expect(clippy::disallowed_methods, reason = "what took how long is measured, and decides nothing")]
pub(crate) fn start() -> Instant {
    Instant::now()
}
