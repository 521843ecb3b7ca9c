//! What a booking holds of its pools.

use std::ops::{Deref, DerefMut};

use super::Share;

/// Shares of different pools. Most bookings have one, which then stands in the booking itself: neither making it nor
/// finding it needs another piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shares {
    One([Share; 1]),
    // Never a single one, so that equal shares are equal.
    Others(Vec<Share>),
}

/// None.
impl Default for Shares {
    fn default() -> Self {
        Self::Others(Vec::new())
    }
}

impl From<Share> for Shares {
    fn from(share: Share) -> Self {
        Self::One([share])
    }
}

impl FromIterator<Share> for Shares {
    fn from_iter<I: IntoIterator<Item = Share>>(shares: I) -> Self {
        let shares: Vec<Share> = shares.into_iter().collect();
        match <[Share; 1]>::try_from(shares) {
            Ok(one) => Self::One(one),
            Err(others) => Self::Others(others),
        }
    }
}

impl Deref for Shares {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        match self {
            Self::One(one) => one,
            Self::Others(others) => others,
        }
    }
}

impl DerefMut for Shares {
    fn deref_mut(&mut self) -> &mut [Share] {
        match self {
            Self::One(one) => one,
            Self::Others(others) => others,
        }
    }
}
