//! The smallest largest cost of a stage in a given order, exactly.
//!
//! A parametric search (Pinar and Aykanat 2004; Pinar, Tabak and Aykanat 2008 for unlike processors): a greedy walk under
//! a bound either covers the chain, and its largest cost is a new upper end, or it fails, and the cheapest single item
//! that would change it is a new lower end. Both ends are costs that some stage really has, so the search ends on the
//! optimum itself and not beside it.

use super::{Placement, Problem, Slot, as_f64};

/// More probes than any search takes: a stop for costs so close that halving no longer separates them.
const PROBES: u32 = 400;

/// The smallest largest cost in this order and a placement that has it; `None` when the order does not fit.
///
/// `floor` is a number that no placement in this order is below.
pub(crate) fn in_order(problem: &Problem, order: &[usize], floor: f64) -> Option<(f64, Placement)> {
    let mut best = vec![0; order.len()];
    let (value, _) = search(problem, order, floor, &mut best)?;
    Some((value, Placement { order: order.to_vec(), ends: best }))
}

/// The same with the number of walks it took; `best` becomes where the items of each slot end.
pub(crate) fn search(
    problem: &Problem,
    order: &[usize],
    floor: f64,
    best: &mut [usize],
) -> Option<(f64, u32)> {
    /// How far beyond what the items that are left over would cost on all slots the next bound is, failure by failure:
    /// until one succeeds, the largest cost that is known tells nothing.
    const BEYOND: [f64; 7] = [1.05, 1.05, 1.3, 2.0, 4.0, 8.0, 16.0];
    let items = problem.items();
    let mut reached = vec![0; order.len()];
    if walk(problem, order, f64::INFINITY, &reached, best) < items {
        return None;
    }
    let rates: f64 = order.iter().map(|&slot| problem.slots[slot].rate).sum();
    let mut high = largest(problem, order, best);
    let mut low = floor.max(0.0);
    let mut bound = low;
    let mut ends = vec![0; order.len()];
    let (mut failures, mut succeeded) = (0, false);
    let mut walks = 1;
    while low < high && walks < PROBES {
        walks += 1;
        let end = walk(problem, order, bound, &reached, &mut ends);
        if end == items {
            high = largest(problem, order, &ends);
            best.copy_from_slice(&ends);
            succeeded = true;
            bound = middle(low, high);
        } else {
            low = bid(problem, order, &ends).max(bound.next_up());
            // How far a bound comes never falls with it: where this one failed, the next one starts to look.
            std::mem::swap(&mut reached, &mut ends);
            let left = as_f64(problem.chains[0].cost(end, items));
            let guess = bound + BEYOND[failures] * left / rates;
            failures = (failures + 1).min(BEYOND.len() - 1);
            let middle = middle(low, high);
            bound = if succeeded { middle } else { guess.max(low).min(middle) };
        }
        if bound >= high {
            bound = low;
        }
    }
    Some((high, walks))
}

fn middle(low: f64, high: f64) -> f64 {
    low + (high - low) / 2.0
}

/// The greedy walk where no stage may cost more than `bound`; how far it comes.
pub(crate) fn probe(problem: &Problem, order: &[usize], bound: f64, ends: &mut [usize]) -> usize {
    let known = vec![0; order.len()];
    walk(problem, order, bound, &known, ends)
}

/// The same, from ends that are known to be reached.
fn walk(problem: &Problem, order: &[usize], bound: f64, known: &[usize], ends: &mut [usize]) -> usize {
    let mut start = 0;
    for ((&index, end), &known) in order.iter().zip(ends).zip(known) {
        start = reach_from(problem, &problem.slots[index], start, bound, known);
        *end = start;
    }
    start
}

/// How far one slot comes from `start` when it may cost no more than `bound`.
pub(crate) fn reach(problem: &Problem, slot: &Slot, start: usize, bound: f64) -> usize {
    reach_from(problem, slot, start, bound, start)
}

fn reach_from(problem: &Problem, slot: &Slot, start: usize, bound: f64, known: usize) -> usize {
    match most_within(bound, slot.rate).checked_sub(slot.fixed) {
        Some(most) => problem.chain(slot).reach_within(start, slot.room, most, known.max(start)),
        None => start,
    }
}

/// The least bound under which the rooms, as far as rates let them be used, hold what everything costs, from below.
///
/// For slots of one class whose costs are what lies there. Newton's method on a concave function: it comes from below.
pub(crate) fn waterfill(problem: &Problem, order: &[usize]) -> f64 {
    let total = as_f64(problem.chains[0].cost(0, problem.items()));
    let mut bound = 0.0;
    for _ in 0..32 {
        let (mut full, mut open) = (0.0, 0.0);
        for &slot in order {
            let slot = &problem.slots[slot];
            let room = as_f64(slot.room);
            if bound * slot.rate < room {
                open += slot.rate;
            } else {
                full += room;
            }
        }
        let next = if open > 0.0 { (total - full) / open } else { bound };
        if next <= bound {
            break;
        }
        bound = next;
    }
    bound * (1.0 - 1e-9)
}

/// The largest cost among the stages.
fn largest(problem: &Problem, order: &[usize], ends: &[usize]) -> f64 {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    order
        .iter()
        .zip(starts.zip(ends))
        .map(|(&index, (start, &end))| problem.cost(&problem.slots[index], start, end))
        .fold(0.0, f64::max)
}

/// The smallest bound under which the failed walk would have gone differently: nothing below it succeeds.
fn bid(problem: &Problem, order: &[usize], ends: &[usize]) -> f64 {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let mut least = f64::INFINITY;
    for (&index, (start, &end)) in order.iter().zip(starts.zip(ends)) {
        let slot = &problem.slots[index];
        if end < problem.items() && problem.holds(slot, start, end + 1) {
            least = least.min(problem.cost(slot, start, end + 1));
        }
    }
    least
}

/// The largest count whose cost at `rate` is at most `bound`, in the arithmetic in which costs are computed.
pub(crate) fn most_within(bound: f64, rate: f64) -> u64 {
    let guess = bound * rate;
    if guess.is_nan() || (guess >= 9e18 && as_f64(u64::MAX) / rate <= bound) {
        return u64::MAX;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 0, and no more than fits; made exact below"
    )]
    let mut n = guess.max(0.0) as u64;
    // Far enough from a whole number, rounding decides nothing: below 10^12 it is off by less than 0.0003.
    let part = guess - as_f64(n);
    if guess < 1e12 && part > 1e-3 && part < 1.0 - 1e-3 {
        return n;
    }
    // The largest count is above the bound, so that this ends before it.
    while as_f64(n.saturating_add(1)) / rate <= bound {
        n += 1;
    }
    while n > 0 && as_f64(n) / rate > bound {
        n -= 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Hops;
    use crate::core::chain::Chain;
    use crate::core::walk::Random;

    /// 1.6 times as much room as is needed, on slots of a few kinds.
    fn drawn(seed: u64, items: usize, slots: usize) -> Problem {
        let mut random = Random(seed);
        let kinds: [(u64, f64); 5] = [(8, 272.0), (24, 936.0), (24, 1008.0), (48, 960.0), (80, 2039.0)];
        let slot =
            |(room, rate): (u64, f64)| Slot { class: 0, room: room * 1_000_000, fixed: 0, rate, group: 0 };
        let slots: Vec<Slot> = (0..slots).map(|_| slot(kinds[random.below(5)])).collect();
        let room: u64 = slots.iter().map(|s| s.room).sum();
        let mean = usize::try_from(room).unwrap() * 10 / 16 / items;
        let mut sums = vec![0];
        for item in 0..items {
            let size = u64::try_from(mean / 2 + random.below(mean)).unwrap();
            sums.push(sums[item] + size);
        }
        let limit = slots.len();
        let chains = [Chain::plain(sums, true)].into();
        Problem { chains, slots, hops: Hops::default(), limit }
    }

    #[test]
    fn a_few_walks_find_the_optimum_whatever_the_size() {
        for (items, slots) in [(80, 8), (1_000, 100), (10_000, 4), (10_000, 100), (10_000, 1_000)] {
            let mut most = 0;
            for seed in 0..16 {
                let problem = drawn(seed, items, slots);
                let order: Vec<usize> = (0..slots).collect();
                let mut ends = vec![0; slots];
                let floor = waterfill(&problem, &order);
                let (value, walks) = search(&problem, &order, floor, &mut ends).unwrap();
                most = most.max(walks);
                // Nothing below the optimum succeeds, and the optimum itself does.
                assert_eq!(probe(&problem, &order, value, &mut ends), items);
                assert!(probe(&problem, &order, value.next_down(), &mut ends) < items);
            }
            assert!(most <= 16, "{most} walks for {items} items on {slots} slots");
        }
    }
}
