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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InferenceSpec, ProcessId, Request, Terms, Timestamp};

    fn process(pid: u32) -> ProcessId {
        ProcessId { boot: "b".to_owned(), namespace: 1, pid, start: 7 }
    }

    fn booked() -> (Book, PoolId) {
        let (a, b) = (PoolId::new("a").unwrap(), PoolId::new("b").unwrap());
        let mut book = Book::new([(b.clone(), None), (a.clone(), Some(Bytes::new(100)))]);
        let spec = InferenceSpec::new("r", "x").with_pools([(b, Bytes::new(5)), (a.clone(), Bytes::new(60))]);
        let terms = Terms { owners: vec![process(1)], ..Terms::default() };
        book.reserve(&Request::new("r", spec).on(terms), Timestamp::ZERO).unwrap();
        (book, a)
    }

    #[test]
    fn shares_are_told_in_the_order_of_pools_with_what_was_measured() {
        let (mut book, a) = booked();
        assert!(book.measure("r", &a, Bytes::new(70)));
        let shares = book.pool_shares(book.get("r").unwrap());
        let told: Vec<_> =
            shares.iter().map(|s| (s.pool.as_str(), s.booked.get(), s.measured, s.counted.get())).collect();
        assert_eq!(told, [("a", 60, Some(Bytes::new(70)), 70), ("b", 5, None, 5)]);
    }

    #[test]
    fn what_is_handed_over_belongs_to_its_new_owners_alone() {
        let (mut book, a) = booked();
        assert!(book.hand_over("r", &[process(2)]));
        assert_eq!(book.get("r").unwrap().terms().owners, [process(2)]);
        assert!(book.hand_over("r", &[]));
        assert!(book.get("r").unwrap().is_unowned());
        assert_eq!(book.pool(a.as_str()).unwrap().used, Bytes::new(60));
        assert!(!book.hand_over("nobody", &[]));
    }
}
