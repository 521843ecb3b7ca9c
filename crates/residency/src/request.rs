//! What is asked of a ledger.

use std::time::Duration;

use crate::{InferenceSpec, ProcessId};

/// A model that wants to be resident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The running copy that will hold the booking.
    pub instance: String,
    /// What it is and what it needs.
    pub spec: InferenceSpec,
    /// On what terms it stays.
    pub terms: Terms,
}

impl Request {
    /// A request on the usual terms: owned by nobody, evictable, of no priority.
    pub fn new(instance: impl Into<String>, spec: InferenceSpec) -> Self {
        Self { instance: instance.into(), spec, terms: Terms::default() }
    }

    /// The same on other terms.
    #[must_use]
    pub fn on(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }
}

/// On what terms a booking stays.
///
/// They are set when a booking is made. Reserving the same instance again changes its spec, never its terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The processes that it lives with: it ends when none of them is left. Without any it belongs to nobody and lasts
    /// until it is released, expires, or the machine reboots.
    pub owners: Vec<ProcessId>,
    /// How long it outlives its last heartbeat where its owners cannot be seen.
    pub lease: Option<Duration>,
    /// How long it lasts at most.
    pub ttl: Option<Duration>,
    /// Never advised for eviction.
    pub pinned: bool,
    /// Who waits less long, and costs more to evict.
    pub priority: u32,
}
