//! Who uses the memory that is used: what was booked against what is seen.

use plimsoll_units::{Bytes, PoolId};

use crate::Book;
use crate::explain::Holding;

/// A process that uses a pool and belongs to no booking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideUse {
    /// Its name or number.
    pub process: String,
    /// What it uses.
    pub bytes: Bytes,
}

/// Where the difference between what is booked and what is used comes from.
///
/// Used = booked + over-use − estimate error + outside + unexplained − missing, exactly, as long as no sum is above
/// what can be said; of the last two at least one is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// What the bookings of this pool come to.
    pub booked: Bytes,
    /// What is used, as the driver or the system tells.
    pub used: Bytes,
    /// Who uses more than was booked, and how much more, in the order of instances.
    pub over_use: Vec<Holding>,
    /// Who uses less than was booked, and how much less: the estimates were too high, or the memory is not filled yet.
    pub estimate_error: Vec<Holding>,
    /// Processes without a booking, the largest first.
    pub outside: Vec<OutsideUse>,
    /// What is used and belongs to nobody who was seen: contexts, driver, fragments.
    pub unexplained: Bytes,
    /// What somebody was seen to use, or booked and was never measured, and yet is not used.
    pub missing: Bytes,
}

/// Attributes what is used of a pool. A booking that was never measured counts as it was booked. `None` when the book
/// has no such pool.
pub fn attribute(
    book: &Book,
    pool: &PoolId,
    used: Bytes,
    outside: impl IntoIterator<Item = OutsideUse>,
) -> Option<Attribution> {
    let place = book.place(pool.as_str())?;
    let (mut booked, mut seen) = (0_u128, 0_u128);
    let (mut over_use, mut estimate_error) = (Vec::new(), Vec::new());
    for held in book.bookings() {
        let Some(share) = held.share(place) else { continue };
        let measured = share.measured.last.unwrap_or(share.booked);
        booked += u128::from(share.booked.get());
        seen += u128::from(measured.get());
        let by =
            |bytes| Holding { instance: held.instance().to_owned(), role: held.role().to_owned(), bytes };
        match measured.checked_sub(share.booked) {
            Some(Bytes::ZERO) => {}
            Some(more) => over_use.push(by(more)),
            None => estimate_error.push(by(share.booked.saturating_sub(measured))),
        }
    }
    let mut outside: Vec<OutsideUse> = outside.into_iter().collect();
    outside.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.process.cmp(&b.process)));
    seen += outside.iter().map(|other| u128::from(other.bytes.get())).sum::<u128>();
    let told = |bytes: u128| Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX));
    let all = u128::from(used.get());
    Some(Attribution {
        booked: told(booked),
        used,
        over_use,
        estimate_error,
        outside,
        unexplained: told(all.saturating_sub(seen)),
        missing: told(seen.saturating_sub(all)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{InferenceSpec, Request, Timestamp};

    fn book(held: &[(u64, Option<u64>)]) -> (Book, PoolId) {
        let pool = PoolId::new("CUDA0").unwrap();
        let mut book = Book::new([(pool.clone(), None)]);
        for (i, (booked, measured)) in held.iter().enumerate() {
            let name = i.to_string();
            let spec = InferenceSpec::new(&name, "x").with_memory(Bytes::new(*booked), Bytes::ZERO);
            book.reserve(&Request::new(&name, spec), Timestamp::ZERO).unwrap();
            if let Some(measured) = measured {
                assert!(book.measure(&name, &pool, Bytes::new(*measured)));
            }
        }
        (book, pool)
    }

    #[test]
    fn every_byte_has_a_cause() {
        let (book, pool) = book(&[(10, Some(12)), (8, Some(5)), (4, None)]);
        let outside = OutsideUse { process: "game".to_owned(), bytes: Bytes::new(3) };
        let told = attribute(&book, &pool, Bytes::new(25), [outside]).unwrap();
        assert_eq!(told.booked, Bytes::new(22));
        assert_eq!((told.over_use[0].bytes, told.over_use.len()), (Bytes::new(2), 1));
        assert_eq!((told.estimate_error[0].bytes, told.estimate_error.len()), (Bytes::new(3), 1));
        assert_eq!((told.unexplained, told.missing), (Bytes::new(1), Bytes::ZERO));
        assert_eq!(attribute(&book, &PoolId::new("CUDA1").unwrap(), Bytes::ZERO, []), None);
    }

    proptest! {
        #[test]
        fn the_parts_add_up(
            held in prop::collection::vec((0_u64..1000, prop::option::of(0_u64..1000)), 0..6),
            outside in prop::collection::vec(0_u64..1000, 0..4),
            used in 0_u64..8000,
        ) {
            let (book, pool) = book(&held);
            let outside = outside.iter().map(|n| OutsideUse { process: n.to_string(), bytes: Bytes::new(*n) });
            let told = attribute(&book, &pool, Bytes::new(used), outside).unwrap();
            let sum = |parts: &[Holding]| parts.iter().map(|part| part.bytes.get()).sum::<u64>();
            let more = told.booked.get() + sum(&told.over_use) + told.unexplained.get()
                + told.outside.iter().map(|other| other.bytes.get()).sum::<u64>();
            let less = sum(&told.estimate_error) + told.missing.get();
            prop_assert_eq!(more - less, used);
            prop_assert!(told.unexplained.is_zero() || told.missing.is_zero());
        }
    }
}
