//! What no placement is better than, in any order on any slots.

use std::collections::BTreeMap;

use super::chain::Chain;
use super::rates::LatencyRates;
use super::{Problem, Slot, as_f64};

/// More steps than this through the items for all slots, and weaker forms are computed.
const STEPS: usize = 1_000_000;

/// What floating point may have added to a bound on the way.
const ROUNDING: f64 = 1e-12;

/// A bound, lowered by what rounding may have added.
fn shaved(bound: f64) -> f64 {
    (bound * (1.0 - ROUNDING)).max(0.0)
}

/// What the runs of each slot come to at most.
struct Most {
    loads: Vec<u64>,
    costs: Vec<u64>,
}

impl Most {
    /// By the rooms alone: exactly, or, where that would take long, no less.
    fn new(problem: &Problem) -> Self {
        let items = problem.items();
        let smallest: Vec<u64> = problem.chains.iter().map(smallest_load).collect();
        let mut seen: BTreeMap<(usize, u64), (u64, u64)> =
            problem.slots.iter().map(|slot| ((slot.class, slot.room), (0, 0))).collect();
        let exactly = seen.len().saturating_mul(items) <= STEPS;
        for (&(class, room), most) in &mut seen {
            let chain = &problem.chains[class];
            if room >= smallest[class] {
                *most = if exactly { longest(chain, room) } else { roughly(chain, room) };
            }
        }
        let most = |slot: &Slot| seen.get(&(slot.class, slot.room)).copied().unwrap_or_default();
        let (loads, costs) = problem.slots.iter().map(most).unzip();
        Self { loads, costs }
    }
}

fn smallest_load(chain: &Chain) -> u64 {
    (0..chain.items()).map(|item| chain.load(item, item + 1)).min().unwrap_or(0)
}

/// The most that any run within a room takes, and the most that any costs.
fn longest(chain: &Chain, room: u64) -> (u64, u64) {
    let (mut load, mut cost) = (0, 0);
    let mut end = 0;
    if let Some(sums) = chain.plain_sums(room) {
        for (start, &before) in sums.iter().enumerate() {
            end = end.max(start);
            while end + 1 < sums.len() && sums[end + 1] - before <= room {
                end += 1;
            }
            load = load.max(sums[end] - before);
        }
        return (load, load);
    }
    for start in 0..chain.items() {
        end = end.max(start);
        while chain.fits(start, end + 1, room) {
            end += 1;
        }
        load = load.max(chain.load(start, end));
        cost = cost.max(chain.cost(start, end));
    }
    (load, cost)
}

/// Not less than [`longest`].
fn roughly(chain: &Chain, room: u64) -> (u64, u64) {
    let load = room.min(chain.load(0, chain.items()));
    (load, if chain.costs_what_it_takes() { load } else { chain.cost(0, chain.items()) })
}

/// A bound on the sum of stage times and hops.
pub(crate) fn latency(problem: &Problem) -> f64 {
    LatencyRates::new(problem).bound(problem)
}

/// A bound on the largest cost of a stage.
pub(crate) fn min_max(problem: &Problem) -> f64 {
    let smallest = Chain::smallest(&problem.chains);
    let most: Vec<f64> = Most::new(problem).costs.into_iter().map(as_f64).collect();
    let total = as_f64(smallest.cost(0, problem.items()));
    let mut bound = 0.0;
    raise(problem, &most, |room| room, total, &mut bound);
    single(problem, &mut bound);
    counting(problem, &smallest, &most, &mut bound);
    shaved(bound)
}

/// The most bytes that a slot takes under a bound on its cost.
fn takes(slot: &Slot, most: f64, bound: f64) -> f64 {
    (bound * slot.rate - as_f64(slot.fixed)).min(most).max(0.0)
}

/// Raises the bound to the least one under which `count` of what the slots take comes to `wanted`, from below.
fn raise(problem: &Problem, most: &[f64], count: impl Fn(f64) -> f64, wanted: f64, bound: &mut f64) {
    let slots = || problem.slots.iter().zip(most).filter(|(slot, most)| slot.rate > 0.0 && **most > 0.0);
    let enough = |bound: f64| {
        let counts = slots().map(|(slot, &most)| count(takes(slot, most, bound)));
        if problem.limit >= problem.slots.len() {
            return counts.sum::<f64>() >= wanted;
        }
        let mut counts: Vec<f64> = counts.collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        counts.iter().take(problem.limit).sum::<f64>() >= wanted
    };
    if wanted <= 0.0 || enough(*bound) {
        return;
    }
    let (mut low, mut high) =
        (*bound, slots().map(|(s, &m)| (m + as_f64(s.fixed)) / s.rate).fold(0.0, f64::max));
    if !enough(high) {
        return;
    }
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
    *bound = low;
}

/// Raises the bound to what every item costs on some slot that can hold it.
fn single(problem: &Problem, bound: &mut f64) {
    let mut fastest: Vec<&Slot> = problem.slots.iter().filter(|slot| slot.rate > 0.0).collect();
    fastest.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    for item in 0..problem.items() {
        let mut least = f64::INFINITY;
        for slot in &fastest {
            if problem.chain(slot).load(item, item + 1) <= slot.room {
                least = least.min(problem.cost(slot, item, item + 1));
                if least <= *bound {
                    break;
                }
            }
        }
        if least.is_finite() {
            *bound = bound.max(least);
        }
    }
}

/// Raises the bound by counting places: the j largest items all cost at least as much as the j-th, and so many of that
/// size have to lie somewhere.
fn counting(problem: &Problem, smallest: &Chain, most: &[f64], bound: &mut f64) {
    let mut costs: Vec<u64> = (0..problem.items()).map(|i| smallest.cost(i, i + 1)).collect();
    costs.sort_unstable_by(|a, b| b.cmp(a));
    for count in geometric(costs.len()) {
        let size = as_f64(costs[count - 1]);
        if size > 0.0 {
            let wanted = as_f64(u64::try_from(count).unwrap_or(u64::MAX));
            // A little smaller, so that rounding never loses a place.
            let size = size * (1.0 - ROUNDING);
            raise(problem, most, |takes| (takes / size).floor(), wanted, bound);
        }
    }
}

/// 1, 2, 3, … with growing steps, up to `n`.
fn geometric(n: usize) -> impl Iterator<Item = usize> {
    std::iter::successors((n > 0).then_some(1), move |&k| (k < n).then(|| (k + 1 + k / 8).min(n)))
}

/// The fewest slots whose rooms together hold everything; `None` when all of them do not.
pub(crate) fn fewest(problem: &Problem) -> Option<usize> {
    let smallest = Chain::smallest(&problem.chains);
    let total = u128::from(smallest.load(0, problem.items()));
    let mut rooms = Most::new(problem).loads;
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
