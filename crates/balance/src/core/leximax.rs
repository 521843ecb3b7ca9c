//! Of all placements with the smallest largest cost, one whose next largest is smallest, and so on.
//!
//! Comparing costs from the largest down is an order that adding the same cost to both sides keeps, so the best way to
//! place a prefix is part of a best way to place more of it: a dynamic programme over (slot, items placed) is exact.

use std::cmp::Ordering;

use super::{Placement, Problem, Slot, minmax};

/// More steps than this, and the placement is only smoothed.
const STEPS: usize = 4_000_000;

/// A placement in this order, none of whose costs is above `bound`, with the least costs from the largest down.
///
/// `placement` is one that keeps the bound. Exact where windows are narrow or the chain is short, else smoothed.
pub(crate) fn refine(problem: &Problem, placement: &Placement, bound: f64) -> Placement {
    let Some(windows) = windows(problem, &placement.order, bound) else { return placement.clone() };
    let widths = || windows.iter().map(|(low, high)| high - low + 1);
    let steps = widths()
        .zip(widths().skip(1))
        .zip(2_usize..)
        .map(|((a, b), length)| a.saturating_mul(b).saturating_mul(length))
        .fold(0_usize, usize::saturating_add);
    if steps > STEPS {
        return smooth(problem, placement.clone());
    }
    exact(problem, &placement.order, &windows, bound).unwrap_or_else(|| placement.clone())
}

/// For each slot, the least and the greatest item at which it may end.
fn windows(problem: &Problem, order: &[usize], bound: f64) -> Option<Vec<(usize, usize)>> {
    let items = problem.items();
    let mut greatest = vec![0; order.len()];
    if minmax::probe(problem, order, bound, &mut greatest) < items {
        return None;
    }
    let mut windows = vec![(items, items); order.len()];
    let mut end = items;
    for place in (0..order.len()).rev() {
        windows[place] = (end, greatest[place].max(end));
        end = earliest(problem, &problem.slots[order[place]], end, bound);
    }
    Some(windows)
}

/// The earliest start from which a slot can take everything up to `end`.
fn earliest(problem: &Problem, slot: &Slot, end: usize, bound: f64) -> usize {
    // Holding less is never harder, so that the starts that work are the last ones.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if keeps(problem, slot, middle, end, bound) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

fn keeps(problem: &Problem, slot: &Slot, start: usize, end: usize, bound: f64) -> bool {
    problem.holds(slot, start, end) && problem.cost(slot, start, end) <= bound
}

/// One way to place the items up to some end.
#[derive(Clone)]
struct Way {
    /// Its costs, the largest first.
    costs: Vec<f64>,
    ends: Vec<usize>,
}

fn exact(problem: &Problem, order: &[usize], windows: &[(usize, usize)], bound: f64) -> Option<Placement> {
    let mut ways: Vec<Option<Way>> = vec![Some(Way { costs: Vec::new(), ends: Vec::new() })];
    let mut first = 0;
    for (&index, &(low, high)) in order.iter().zip(windows) {
        let slot = &problem.slots[index];
        let mut next: Vec<Option<Way>> = Vec::with_capacity(high - low + 1);
        for end in low..=high {
            let mut best: Option<(usize, f64)> = None;
            for (at, way) in ways.iter().enumerate() {
                let start = first + at;
                let Some(way) = way else { continue };
                if start > end || !keeps(problem, slot, start, end, bound) {
                    continue;
                }
                let cost = problem.cost(slot, start, end);
                let better = best.is_none_or(|(other, other_cost)| {
                    let other = ways[other].as_ref().map_or(&[][..], |w| &w.costs);
                    with(&way.costs, cost).cmp_costs(with(other, other_cost)) == Ordering::Less
                });
                if better {
                    best = Some((at, cost));
                }
            }
            next.push(best.and_then(|(at, cost)| {
                let way = ways[at].as_ref()?;
                let mut ends = way.ends.clone();
                ends.push(end);
                Some(Way { costs: with(&way.costs, cost).collect(), ends })
            }));
        }
        ways = next;
        first = low;
    }
    let items = problem.items();
    let way = ways.get(items.checked_sub(first)?)?.as_ref()?;
    Some(Placement { order: order.to_vec(), ends: way.ends.clone() })
}

/// Costs, the largest first, with one more put in its place.
pub(super) fn with(costs: &[f64], cost: f64) -> Merged<'_> {
    Merged { costs, cost: Some(cost) }
}

pub(super) struct Merged<'a> {
    costs: &'a [f64],
    cost: Option<f64>,
}

impl Merged<'_> {
    pub(super) fn cmp_costs(self, other: Merged<'_>) -> Ordering {
        for (a, b) in self.zip(other) {
            match a.total_cmp(&b) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        Ordering::Equal
    }
}

impl Iterator for Merged<'_> {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        match (self.costs.split_first(), self.cost) {
            (Some((&first, rest)), cost) if cost.is_none_or(|cost| first >= cost) => {
                self.costs = rest;
                Some(first)
            }
            (_, cost) => {
                self.cost = None;
                cost
            }
        }
    }
}

/// Moves single boundaries while that makes the larger of two neighbours smaller.
fn smooth(problem: &Problem, mut placement: Placement) -> Placement {
    // Of thousands of slots, a few rounds even out what can be seen.
    for _ in 0..placement.order.len().min(64).min(1 + 16_000 / placement.order.len().max(1)) {
        let mut changed = false;
        for place in 1..placement.order.len() {
            let left = &problem.slots[placement.order[place - 1]];
            let right = &problem.slots[placement.order[place]];
            let start = if place == 1 { 0 } else { placement.ends[place - 2] };
            let (cut, end) = (placement.ends[place - 1], placement.ends[place]);
            let worse = |cut| problem.cost(left, start, cut).max(problem.cost(right, cut, end));
            let legal = |cut| problem.holds(left, start, cut) && problem.holds(right, cut, end);
            let mut best = cut;
            while best > start && legal(best - 1) && worse(best - 1) < worse(best) {
                best -= 1;
            }
            while best < end && legal(best + 1) && worse(best + 1) < worse(best) {
                best += 1;
            }
            changed |= best != cut;
            placement.ends[place - 1] = best;
        }
        if !changed {
            break;
        }
    }
    placement
}

/// Compares costs from the largest down.
pub(crate) fn compare(a: &[f64], b: &[f64]) -> Ordering {
    let unequal = a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne());
    unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// The costs of a placement, the largest first.
pub(crate) fn costs(problem: &Problem, placement: &Placement) -> Vec<f64> {
    let mut costs: Vec<f64> =
        placement.stages().map(|(slot, start, end)| problem.cost(&problem.slots[slot], start, end)).collect();
    costs.sort_by(|a, b| b.total_cmp(a));
    costs
}
