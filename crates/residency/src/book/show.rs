//! A book as it is shown.

use plimsoll_units::{Bytes, PoolId};

use super::Book;
use crate::{ProcessId, Timestamp};

/// What one instance holds of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The running copy.
    pub instance: String,
    /// Its role.
    pub role: String,
    /// The pool.
    pub pool: PoolId,
    /// What counts against the budget: see [`Book::measure`].
    pub bytes: Bytes,
    /// What was booked.
    #[cfg_attr(feature = "serde", serde(rename = "booked_bytes"))]
    pub booked: Bytes,
    /// What was last seen in use.
    #[cfg_attr(feature = "serde", serde(rename = "measured_bytes"))]
    pub measured: Option<Bytes>,
    /// The processes that it lives with; none when nobody owns it.
    pub owners: Vec<ProcessId>,
    /// Whether it is never advised for eviction.
    pub pinned: bool,
    /// Whether its spec says that it stays.
    pub sticky: bool,
    /// What it costs more to evict.
    pub priority: u32,
    /// How many uses of it are under way.
    pub in_use: u32,
    /// Since when it is held.
    pub since: Timestamp,
    /// Until when it lasts at most.
    pub expires: Option<Timestamp>,
}

impl Book {
    /// Who holds how much of which pool, in the order of instances and, within one, of pools.
    pub fn holders(&self) -> Vec<Holder> {
        let mut holders = Vec::with_capacity(self.bookings.len());
        for held in self.bookings() {
            holders.extend(held.shares.iter().map(|share| Holder {
                instance: held.instance().to_owned(),
                role: held.role().to_owned(),
                pool: self.pool_id(share.pool).clone(),
                bytes: share.current(),
                booked: share.booked,
                measured: share.measured.last,
                owners: held.terms.owners.clone(),
                pinned: held.terms.pinned,
                sticky: held.spec.sticky,
                priority: held.terms.priority,
                in_use: held.in_use,
                since: held.since,
                expires: held.expires,
            }));
        }
        holders
    }
}
