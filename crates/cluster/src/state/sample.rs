//! Samples that cannot be true.

use plimsoll_units::{Bytes, NodeId, PoolId};

use super::Moment;

/// A sample that cannot be true. What was known before stays, with its age.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// NaN or infinite.
    #[error("a {what} of {value} is no number")]
    NotFinite {
        /// What was measured.
        what: &'static str,
        /// The sample.
        value: f64,
    },
    /// Less than nothing.
    #[error("a {what} of {value} is negative")]
    Negative {
        /// What was measured.
        what: &'static str,
        /// The sample.
        value: f64,
    },
    /// A share of more than all.
    #[error("a {what} of {value} is more than everything (1)")]
    AboveOne {
        /// What was measured.
        what: &'static str,
        /// The sample.
        value: f64,
    },
    /// More than there is.
    #[error("{} {what} in pool '{pool}', which has {} in all", .bytes.exact(), .total.exact())]
    AboveTotal {
        /// What is said of the bytes: `free`, `used`, `held`.
        what: &'static str,
        /// The pool.
        pool: PoolId,
        /// The sample.
        bytes: Bytes,
        /// All of the pool.
        total: Bytes,
    },
    /// The node has no such pool.
    #[error("node '{node}' has no pool '{pool}'")]
    UnknownPool {
        /// The node.
        node: NodeId,
        /// What was named.
        pool: PoolId,
    },
    /// A newer sample is already there.
    #[error("a sample of pool '{pool}' from {at}, after one from {newest}")]
    Outdated {
        /// The pool.
        pool: PoolId,
        /// When the sample was taken.
        at: Moment,
        /// When the newest one was.
        newest: Moment,
    },
}

/// The sample, when it is a number from 0 on.
pub(super) fn possible(what: &'static str, value: f64) -> Result<f64, SampleError> {
    if !value.is_finite() {
        return Err(SampleError::NotFinite { what, value });
    }
    if value < 0.0 {
        return Err(SampleError::Negative { what, value });
    }
    // A zero may come with a sign.
    Ok(value.abs())
}
