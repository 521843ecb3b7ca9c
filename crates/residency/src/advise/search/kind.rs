//! Which item comes before which.

use std::cmp::Ordering;

use super::Problem;

/// One item, to be compared.
#[derive(Clone, Copy)]
pub(super) struct Kind<'a> {
    pub(super) problem: &'a Problem,
    pub(super) place: usize,
}

impl Kind<'_> {
    fn sizes(self) -> impl Iterator<Item = u64> {
        self.problem.sizes.iter().map(move |sizes| sizes[self.place])
    }

    /// By cost per byte of one resource, larger ones first among equals; what is equal in all comes together.
    pub(super) fn by_ratio(self, other: Self, resource: usize, need: u64) -> Ordering {
        let (a, b) = (&self.problem.items[self.place], &self.problem.items[other.place]);
        let sizes = &self.problem.sizes[resource];
        let (a_size, b_size) = (sizes[self.place].min(need), sizes[other.place].min(need));
        let a_first = u128::from(a.cost) * u128::from(b_size);
        let b_first = u128::from(b.cost) * u128::from(a_size);
        a_first
            .cmp(&b_first)
            .then_with(|| b_size.cmp(&a_size))
            .then_with(|| a.bytes.cmp(&b.bytes))
            .then_with(|| a.cost.cmp(&b.cost))
            .then_with(|| self.sizes().cmp(other.sizes()))
            .then_with(|| self.place.cmp(&other.place))
    }

    /// Cost per share of the whole need: only the order of trying depends on it.
    pub(super) fn ratio(self, need: &[u64]) -> f64 {
        let share = |(size, need): (u64, &u64)| as_f64(size.min(*need)) / as_f64(*need).max(1.0);
        let share: f64 = self.sizes().zip(need).map(share).sum();
        as_f64(self.problem.items[self.place].cost) / share.max(f64::MIN_POSITIVE)
    }

    pub(super) fn is_same(self, other: Self) -> bool {
        let (a, b) = (&self.problem.items[self.place], &self.problem.items[other.place]);
        a.cost == b.cost && a.bytes == b.bytes && self.sizes().eq(other.sizes())
    }
}

/// These places by cost per byte of one resource, as [`Kind::by_ratio`] orders them.
///
/// Each gives some of it. Ratios are told apart by floating-point numbers where these differ by more than their error,
/// and exactly elsewhere.
pub(super) fn by_ratio(problem: &Problem, mut places: Vec<usize>, resource: usize, need: u64) -> Vec<usize> {
    let ratio = |place: usize| {
        let size = as_f64(problem.sizes[resource][place].min(need));
        as_f64(problem.items[place].cost) / size
    };
    let mut keyed: Vec<(f64, usize)> = places.iter().map(|place| (ratio(*place), *place)).collect();
    keyed.sort_unstable_by(|(a, a_place), (b, b_place)| {
        if *a < b * BELOW {
            Ordering::Less
        } else if *b < a * BELOW {
            Ordering::Greater
        } else {
            let kind = |place| Kind { problem, place };
            kind(*a_place).by_ratio(kind(*b_place), resource, need)
        }
    });
    places.iter_mut().zip(&keyed).for_each(|(place, (_, sorted))| *place = *sorted);
    places
}

/// Two conversions and a division err by less than four parts in 2^53, and so does the product with this.
const BELOW: f64 = 1.0 - 1e-14;

fn as_f64(n: u64) -> f64 {
    plimsoll_units::Bytes::new(n).as_f64()
}
