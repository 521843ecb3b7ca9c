//! What can go wrong between us and etcd.

use std::time::Duration;

/// Why something was not done, or not known to be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// Nobody took the request, or not enough members are left to agree on it. Nothing changed.
    #[error("no majority of etcd answers at {place}: {what} given up after {} ms ({reason})", waited.as_millis())]
    Unavailable {
        /// Where it was sought.
        place: String,
        /// What was wanted.
        what: &'static str,
        /// How long it was tried.
        waited: Duration,
        /// What the last attempt met.
        reason: String,
    },
    /// The answer to a change was lost, and it could not be read back in time. It may have been made, or may be yet.
    #[error(
        "etcd at {place} did not say whether {what} took effect, in {} ms: it may have, or may yet ({reason})",
        waited.as_millis()
    )]
    Unknown {
        /// Where it was sought.
        place: String,
        /// What was wanted.
        what: &'static str,
        /// How long it was tried.
        waited: Duration,
        /// What the last attempt met.
        reason: String,
    },
    /// etcd understood and said no. Nothing changed.
    #[error("etcd at {place} refused {what}: {reason}")]
    Refused {
        /// Where.
        place: String,
        /// What was wanted.
        what: &'static str,
        /// What it said.
        reason: String,
    },
    /// A lease is over: what lived on it is gone. Nothing changed.
    #[error("{what} needs a lease that has ended, and with it all that lived on it")]
    LeaseOver {
        /// What was wanted.
        what: &'static str,
    },
    /// A process was to own what is booked, and there is no lease on which that could live. Nothing changed.
    #[error("what a process owns is booked on its lease, and this ledger was opened without one")]
    NoSession,
    /// Others were first, again and again. Nothing changed.
    #[error("others changed {what} first, {attempts} times in a row")]
    Contended {
        /// What was to be changed.
        what: &'static str,
        /// How often it was tried.
        attempts: u32,
    },
    /// One change would touch more keys than etcd takes at once. Nothing changed.
    #[error("{what} changes {keys} keys at once; etcd takes {most}")]
    TooMany {
        /// What was wanted.
        what: &'static str,
        /// How many keys that is.
        keys: usize,
        /// How many it may be.
        most: usize,
    },
    /// A value was written by a later version. It is not guessed at.
    #[error("'{key}' has version {found}; this program knows versions up to {known}")]
    Newer {
        /// Where it stands.
        key: String,
        /// Its version.
        found: u64,
        /// The latest that is known here.
        known: u64,
    },
    /// A value that nobody of us wrote.
    #[error("'{key}' is damaged: {what}")]
    Damaged {
        /// Where it stands.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// The options cannot be used.
    #[error("cannot use etcd at {place}: {reason}")]
    Options {
        /// Where.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The connection was closed by us meanwhile.
    #[error("the connection to etcd was closed")]
    Closed,
}
