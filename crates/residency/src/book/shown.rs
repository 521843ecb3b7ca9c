//! What a booking holds of each pool, as it is shown.

use plimsoll_units::{Bytes, PoolId};

use super::{Book, Booking};

/// What a booking holds of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolShare {
    /// The pool.
    pub pool: PoolId,
    /// What was booked.
    pub booked: Bytes,
    /// What was measured in use the last time, where it was.
    pub measured: Option<Bytes>,
    /// What counts against the budget.
    pub counted: Bytes,
}

impl Book {
    /// What a booking of this book holds of each pool, in the order of pools.
    pub fn pool_shares(&self, booking: &Booking) -> Vec<PoolShare> {
        let shown = |share: &super::Share| PoolShare {
            pool: self.pool_id(share.pool).clone(),
            booked: share.booked,
            measured: share.measured.last,
            counted: share.current(),
        };
        let mut shares: Vec<PoolShare> = booking.shares.iter().map(shown).collect();
        shares.sort_by(|a, b| a.pool.cmp(&b.pool));
        shares
    }
}
