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
    let items = problem.items();
    let mut ends = vec![0; order.len()];
    if probe(problem, order, f64::INFINITY, &mut ends) < items {
        return None;
    }
    let mut high = largest(problem, order, &ends);
    let mut best = ends.clone();
    let mut low = floor.max(0.0);
    let mut bound = low;
    for _ in 0..PROBES {
        if low >= high {
            break;
        }
        if probe(problem, order, bound, &mut ends) == items {
            high = largest(problem, order, &ends);
            best.copy_from_slice(&ends);
        } else {
            low = bid(problem, order, &ends).max(bound.next_up());
        }
        bound = low + (high - low) / 2.0;
        if bound >= high {
            bound = low;
        }
    }
    Some((high, Placement { order: order.to_vec(), ends: best }))
}

/// The greedy walk where no stage may cost more than `bound`; how far it comes.
pub(crate) fn probe(problem: &Problem, order: &[usize], bound: f64, ends: &mut [usize]) -> usize {
    let mut start = 0;
    for (&index, end) in order.iter().zip(ends) {
        let slot = &problem.slots[index];
        start = reach(problem, slot, start, bound);
        *end = start;
    }
    start
}

/// How far one slot comes from `start` when it may cost no more than `bound`.
pub(crate) fn reach(problem: &Problem, slot: &Slot, start: usize, bound: f64) -> usize {
    match most_within(bound, slot.rate).checked_sub(slot.fixed) {
        Some(most) => problem.chain(slot).reach_within(start, slot.room, most),
        None => start,
    }
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
    if guess.is_nan() || guess >= 9e18 {
        return u64::MAX;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 2^63; made exact below"
    )]
    let mut n = guess.max(0.0) as u64;
    while as_f64(n + 1) / rate <= bound {
        n += 1;
    }
    while n > 0 && as_f64(n) / rate > bound {
        n -= 1;
    }
    n
}
