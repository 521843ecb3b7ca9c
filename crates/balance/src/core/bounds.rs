//! What no placement is better than, in any order on any slots.

use super::chain::Chain;
use super::rates::LatencyRates;
use super::{Problem, Slot, as_f64};

/// Beyond so many (slot, item) pairs, cheaper and weaker forms are computed.
const PAIRS: usize = 2_000_000;

/// What floating point may have added to a bound on the way.
const ROUNDING: f64 = 1e-12;

/// A bound, lowered by what rounding may have added.
fn shaved(bound: f64) -> f64 {
    (bound * (1.0 - ROUNDING)).max(0.0)
}

/// The most that items on one slot can cost, by its room alone.
fn most_cost(problem: &Problem, slot: &Slot) -> u64 {
    let chain = problem.chain(slot);
    let items = problem.items();
    if items.saturating_mul(problem.slots.len()) <= PAIRS {
        let ends = (0..items).map(|start| chain.cost(start, chain.reach(start, slot.room)));
        return ends.max().unwrap_or(0);
    }
    chain.cost(0, items)
}

/// A bound on the sum of stage times and hops.
pub(crate) fn latency(problem: &Problem) -> f64 {
    LatencyRates::new(problem).bound(problem)
}

/// A bound on the largest cost of a stage.
pub(crate) fn min_max(problem: &Problem) -> f64 {
    let smallest = Chain::smallest(&problem.chains);
    let most: Vec<f64> = problem.slots.iter().map(|s| as_f64(most_cost(problem, s))).collect();
    let total = as_f64(smallest.cost(0, problem.items()));
    let waterfill = least_bound(problem, &most, |room| room, total);
    shaved(waterfill.max(single(problem, &smallest)).max(counting(problem, &smallest, &most)))
}

/// The most bytes that a slot takes under a bound on its cost.
fn takes(slot: &Slot, most: f64, bound: f64) -> f64 {
    (bound * slot.rate - as_f64(slot.fixed)).min(most).max(0.0)
}

/// The least bound under which `count` of what all slots take comes to `wanted`, from below.
fn least_bound(problem: &Problem, most: &[f64], count: impl Fn(f64) -> f64, wanted: f64) -> f64 {
    let enough = |bound: f64| {
        let slots = problem.slots.iter().zip(most);
        slots.map(|(slot, &most)| count(takes(slot, most, bound))).sum::<f64>() >= wanted
    };
    let usable = problem.slots.iter().zip(most).filter(|(s, m)| s.rate > 0.0 && **m > 0.0);
    let mut high = usable.map(|(s, &m)| (m + as_f64(s.fixed)) / s.rate).fold(0.0, f64::max);
    if wanted <= 0.0 || !enough(high) {
        return 0.0;
    }
    let mut low = 0.0;
    for _ in 0..64 {
        let middle = low + (high - low) / 2.0;
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
        if high - low <= high * ROUNDING / 4.0 {
            break;
        }
    }
    low
}

/// Every item lies on some slot that can hold it.
fn single(problem: &Problem, smallest: &Chain) -> f64 {
    let items = problem.items();
    let mut heavy: Vec<usize> = (0..items).collect();
    if items.saturating_mul(problem.slots.len()) > PAIRS {
        heavy.sort_by_key(|&i| (u64::MAX - smallest.cost(i, i + 1), i));
        heavy.truncate(PAIRS / problem.slots.len().max(1) + 1);
    }
    let least = |item: usize| {
        let (load, cost) = (smallest.load(item, item + 1), smallest.cost(item, item + 1));
        let holding = problem.slots.iter().filter(|s| s.room >= load && s.rate > 0.0);
        let least =
            holding.map(|s| as_f64(cost.saturating_add(s.fixed)) / s.rate).fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { 0.0 }
    };
    heavy.into_iter().map(least).fold(0.0, f64::max)
}

/// The j largest items all cost at least as much as the j-th: so many of that size have to have places.
fn counting(problem: &Problem, smallest: &Chain, most: &[f64]) -> f64 {
    let mut costs: Vec<u64> = (0..problem.items()).map(|i| smallest.cost(i, i + 1)).collect();
    costs.sort_unstable_by(|a, b| b.cmp(a));
    let mut bound = 0.0_f64;
    for count in geometric(costs.len()) {
        let size = as_f64(costs[count - 1]);
        if size > 0.0 {
            let wanted = as_f64(u64::try_from(count).unwrap_or(u64::MAX));
            bound = bound.max(least_bound(problem, most, |takes| (takes / size).floor(), wanted));
        }
    }
    bound
}

/// 1, 2, 3, … with growing steps, up to `n`.
fn geometric(n: usize) -> impl Iterator<Item = usize> {
    std::iter::successors((n > 0).then_some(1), move |&k| (k < n).then(|| (k + 1 + k / 8).min(n)))
}

/// The fewest slots whose rooms together hold everything; `None` when all of them do not.
pub(crate) fn fewest(problem: &Problem) -> Option<usize> {
    let smallest = Chain::smallest(&problem.chains);
    let total = u128::from(smallest.load(0, problem.items()));
    let mut rooms: Vec<u64> = problem.slots.iter().map(|s| s.room).collect();
    rooms.sort_unstable_by(|a, b| b.cmp(a));
    let least = if smallest.whole() { 1 } else { 2 };
    let mut sum = 0_u128;
    for (at, room) in rooms.iter().enumerate().take(problem.limit) {
        sum += u128::from(*room);
        if sum >= total && at + 1 >= least {
            return Some(at + 1);
        }
    }
    None
}

/// Whether it can be seen without a search that nothing fits.
pub(crate) fn hopeless(problem: &Problem) -> bool {
    if fewest(problem).is_none() {
        return true;
    }
    let smallest = Chain::smallest(&problem.chains);
    let loads: Vec<u64> = (0..problem.items()).map(|i| smallest.load(i, i + 1)).collect();
    let rooms: Vec<u64> = problem.slots.iter().map(|s| s.room).collect();
    crowded(&loads, &rooms).is_some()
}

/// How many of the larger items there are, how large they are at least, and how many places of that size, where these
/// are too few.
pub(crate) fn crowded(loads: &[u64], rooms: &[u64]) -> Option<(u64, u64, u64)> {
    let mut loads = loads.to_vec();
    loads.sort_unstable_by(|a, b| b.cmp(a));
    geometric(loads.len()).find_map(|count| {
        let size = loads[count - 1];
        let wanted = u64::try_from(count).unwrap_or(u64::MAX);
        if size == 0 {
            return None;
        }
        let places = rooms.iter().map(|room| room / size).fold(0_u64, u64::saturating_add);
        (places < wanted).then_some((wanted, size, places))
    })
}
