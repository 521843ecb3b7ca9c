//! The book: who holds how much of which pool, as plain data.
//!
//! It keeps running totals per pool and an index of roles and exclusions, so that a decision costs a few look-ups
//! however many models are resident. [`admit`] decides and changes nothing; the book's own methods change it.

mod admit;
mod bookings;
mod change;
mod index;
mod queue;
mod reclaim;
mod shares;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_units::{Bytes, PoolId};

use crate::{InferenceSpec, Terms, Timestamp};
use bookings::Bookings;
use index::Index;

pub use admit::{Admission, admit};
pub use change::PoolUse;
pub use queue::{Queued, WaitEnd};
pub use reclaim::{Ended, Reclaimed};
pub use show::Holder;

pub(crate) use queue::Claim;
#[cfg(feature = "serde")]
pub(crate) use queue::Waiter;
pub(crate) use shares::Shares;

/// Who holds how much of which pool, and who waits.
///
/// # Invariant
///
/// The totals of the pools are the sums of the bookings, and the index names exactly the roles and exclusions of the
/// bookings.
#[derive(Clone, Debug, Default)]
pub struct Book {
    // Never shrinks: a share names its pool by its place here.
    pools: Vec<Pool>,
    places: BTreeMap<PoolId, usize>,
    bookings: Bookings,
    index: Index,
    queue: queue::Queue,
    // The boot during which bookings are made; it ends those that nobody owns.
    boot: Option<Arc<str>>,
    // What changed since a store last wrote it down; `None` when nobody writes it down.
    touched: Option<Touched>,
}

#[derive(Clone, Debug)]
struct Pool {
    id: PoolId,
    budget: Option<Bytes>,
    // In 128 bits, so that any number of bookings can be added and taken away again without a limit.
    used: u128,
    // What is known of the memory at this moment and is tighter than the budget; never written down.
    ceiling: Option<Ceiling>,
}

/// The most that may be held of a pool at this moment, and what keeps the rest.
#[derive(Clone, Debug)]
struct Ceiling {
    limit: Bytes,
    why: Arc<str>,
}

/// What a store has to write down.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) bookings: BTreeSet<Arc<str>>,
    pub(crate) tickets: BTreeSet<u64>,
    pub(crate) pools: bool,
    pub(crate) next_ticket: bool,
}

/// What one instance holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    pub(crate) instance: Arc<str>,
    // Its role and its exclusions are bare.
    pub(crate) spec: InferenceSpec,
    pub(crate) shares: Shares,
    pub(crate) terms: Terms,
    pub(crate) since: Timestamp,
    pub(crate) lease_until: Option<Timestamp>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) boot: Option<Arc<str>>,
    pub(crate) in_use: u32,
    // The ticket with which it waited.
    pub(crate) ticket: Option<u64>,
}

/// What a booking holds of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) pool: usize,
    pub(crate) booked: Bytes,
    pub(crate) measured: Measured,
}

/// What was seen in use, the last time and the time before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) last: Option<Bytes>,
    pub(crate) before: Option<Bytes>,
}

impl Share {
    /// What counts against the budget: the larger of what was booked and what was measured, until two measurements
    /// stand against the booking; then the larger of those two.
    pub(crate) fn current(&self) -> Bytes {
        match (self.measured.last, self.measured.before) {
            (None, _) => self.booked,
            (Some(last), None) => last.max(self.booked),
            (Some(last), Some(before)) => last.max(before),
        }
    }
}

impl Booking {
    /// The running copy that holds it.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What it is and what it needs.
    pub fn spec(&self) -> &InferenceSpec {
        &self.spec
    }

    /// Its role.
    pub fn role(&self) -> &str {
        &self.spec.role
    }

    /// On what terms it stays.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Since when it is held.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Until when it lasts at most.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Until when its lease runs.
    pub fn lease_until(&self) -> Option<Timestamp> {
        self.lease_until
    }

    /// How many uses of it are under way.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// All that counts against the budgets.
    pub fn bytes(&self) -> Bytes {
        Bytes::saturating_sum(self.shares.iter().map(Share::current))
    }

    pub(crate) fn share(&self, pool: usize) -> Option<&Share> {
        self.shares.iter().find(|share| share.pool == pool)
    }
}

impl Book {
    /// A book over these pools; `None` is a pool without a limit.
    pub fn new(pools: impl IntoIterator<Item = (PoolId, Option<Bytes>)>) -> Self {
        let mut book = Self::default();
        for (id, budget) in pools {
            book.set_budget(&id, budget);
        }
        book
    }

    /// What this instance holds.
    pub fn get(&self, instance: &str) -> Option<&Booking> {
        self.bookings.get(instance)
    }

    /// Every booking, in the order of instances.
    pub fn bookings(&self) -> impl ExactSizeIterator<Item = &Booking> {
        self.bookings.iter()
    }

    /// The instances of this role, in order.
    pub fn instances_of(&self, role: &str) -> impl Iterator<Item = &str> {
        self.index.holders(crate::spec::bare(role)).map(|instance| &**instance)
    }

    pub(crate) fn pool_id(&self, place: usize) -> &PoolId {
        &self.pools[place].id
    }

    pub(crate) fn place(&self, pool: &str) -> Option<usize> {
        self.places.get(pool).copied()
    }
}

#[cfg(feature = "serde")]
impl Book {
    /// Records from now on what a store has to write down.
    pub(crate) fn keep_track(&mut self) {
        self.touched = Some(Touched::default());
    }

    /// What changed since the last call.
    pub(crate) fn touched(&mut self) -> Touched {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
