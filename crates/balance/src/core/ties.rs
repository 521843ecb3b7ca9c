//! Of all placements with the smallest largest cost, in every order, one whose next largest is smallest, and so on.
//!
//! Which costs a set of slots has for a prefix, compared from the largest down, is all that matters for what comes behind:
//! adding the same costs to both sides keeps the order. So a dynamic programme over (set, items placed) is exact. What a
//! set has to reach at least, for the others to reach the end, leaves few states where the largest cost is tight.

use std::cmp::Ordering;

use super::class::{Runs, Sets, wide};
use super::{Placement, Problem, leximax};

/// More pairs of states than this are not looked at.
const STEPS: usize = 200_000;

/// A way to place the items up to some end.
struct Way {
    /// Its costs, the largest first.
    costs: Vec<f64>,
    /// The kinds of its slots, in order.
    kinds: Vec<usize>,
    ends: Vec<usize>,
}

/// The ways of one set, for its ends from `first` on.
struct Ways {
    first: usize,
    ways: Vec<Option<Way>>,
}

/// For each set, the least and the greatest end that can be part of a whole placement.
struct Windows {
    least: Vec<u32>,
    greatest: Vec<u32>,
}

/// For each kind and each end, where the longest run to there starts.
struct Starts {
    starts: Vec<u32>,
    width: usize,
}

/// The placement none of whose costs is above `bound` with the least costs from the largest down, of every order.
///
/// Ties go to fewer slots, then to the earlier slots in front. `None` where there are too many states.
pub(crate) fn evenest(sets: &Sets<'_>, bound: f64) -> Option<Placement> {
    let starts = Starts::new(sets, bound);
    let windows = Windows::new(sets, &starts, bound);
    if windows.steps(sets) > STEPS {
        return None;
    }
    let mut all: Vec<Option<Ways>> = Vec::with_capacity(sets.states);
    let start = Way { costs: Vec::new(), kinds: Vec::new(), ends: Vec::new() };
    all.push(Some(Ways { first: 0, ways: vec![Some(start)] }));
    let mut digits = sets.digits();
    let mut best: Option<Way> = None;
    for state in 1..sets.states {
        digits.step(sets);
        if digits.count > sets.problem.limit || windows.least[state] > windows.greatest[state] {
            all.push(None);
            continue;
        }
        let (first, last) = (wide(windows.least[state]), wide(windows.greatest[state]));
        let mut ways: Vec<Option<Way>> =
            (first..=last).map(|end| way(sets, &starts, &all, state, digits.present, end)).collect();
        if last == sets.problem.items()
            && let Some(whole) = ways.last_mut().and_then(Option::take)
            && best.as_ref().is_none_or(|best| whole.compare(best).is_lt())
        {
            best = Some(whole);
        }
        all.push(Some(Ways { first, ways }));
    }
    best.map(|way| Placement { order: sets.named(&way.kinds), ends: way.ends })
}

/// The best way for a set to end at `end`.
fn way(
    sets: &Sets<'_>,
    starts: &Starts,
    all: &[Option<Ways>],
    state: usize,
    present: u32,
    end: usize,
) -> Option<Way> {
    let mut best: Option<(usize, &Way, f64, usize)> = None;
    for kind in (0..sets.members.len()).filter(|kind| present & (1 << kind) != 0) {
        let Some(ways) = &all[state - sets.strides[kind]] else { continue };
        let from = starts.start(kind, end).max(ways.first);
        for (start, way) in (from..end).zip(&ways.ways[(from - ways.first).min(ways.ways.len())..]) {
            let Some(way) = way else { continue };
            let cost = sets.problem.cost(sets.slot(kind), start, end);
            let better = best.is_none_or(|(other_kind, other, other_cost, _)| {
                let costs =
                    leximax::with(&way.costs, cost).cmp_costs(leximax::with(&other.costs, other_cost));
                let kinds = || (&way.kinds, kind).cmp(&(&other.kinds, other_kind));
                costs.then_with(kinds).is_lt()
            });
            if better {
                best = Some((kind, way, cost, start));
            }
        }
    }
    best.map(|(kind, way, cost, _)| Way {
        costs: leximax::with(&way.costs, cost).collect(),
        kinds: way.kinds.iter().copied().chain([kind]).collect(),
        ends: way.ends.iter().copied().chain([end]).collect(),
    })
}

impl Way {
    fn compare(&self, other: &Self) -> Ordering {
        leximax::compare(&self.costs, &other.costs).then_with(|| self.kinds.cmp(&other.kinds))
    }
}

impl Windows {
    fn new(sets: &Sets<'_>, starts: &Starts, bound: f64) -> Self {
        let (mut greatest, mut back) = (Vec::new(), vec![0; sets.states]);
        let runs = Runs::new(sets, bound);
        sets.sweep(&runs, false, &mut greatest);
        let mut digits = sets.digits();
        back[0] = u32::try_from(sets.problem.items()).unwrap_or(u32::MAX);
        for state in 1..sets.states {
            digits.step(sets);
            let kinds = (0..sets.members.len()).filter(|kind| digits.present & (1 << kind) != 0);
            let least =
                kinds.map(|kind| starts.starts[kind * starts.width + wide(back[state - sets.strides[kind]])]);
            back[state] = least.min().unwrap_or(0);
        }
        // Where some have to be left out, as far back as the best of those that are not reach.
        let left_out = sets.problem.slots.len().saturating_sub(sets.problem.limit);
        for _ in 0..left_out {
            back = without_one(sets, &back);
        }
        // What a set has to reach at least is as far back as all others reach from the end.
        back.reverse();
        Self { least: back, greatest }
    }

    /// How many pairs of states follow each other.
    fn steps(&self, sets: &Sets<'_>) -> usize {
        let width = |state: usize| {
            let (least, greatest) = (self.least[state], self.greatest[state]);
            if greatest >= least { wide(greatest - least) + 1 } else { 0 }
        };
        let mut digits = sets.digits();
        let mut steps = 0_usize;
        for state in 1..sets.states {
            digits.step(sets);
            if digits.count <= sets.problem.limit {
                let kinds = (0..sets.members.len()).filter(|kind| digits.present & (1 << kind) != 0);
                let before: usize = kinds.map(|kind| width(state - sets.strides[kind])).sum();
                steps = steps.saturating_add(before.saturating_mul(width(state)));
            }
        }
        steps
    }
}

/// For each set, the least of all sets that have one slot less.
fn without_one(sets: &Sets<'_>, back: &[u32]) -> Vec<u32> {
    let mut digits = sets.digits();
    let items = back[0];
    let mut less = Vec::with_capacity(sets.states);
    less.push(items);
    for state in 1..sets.states {
        digits.step(sets);
        let kinds = (0..sets.members.len()).filter(|kind| digits.present & (1 << kind) != 0);
        less.push(kinds.map(|kind| back[state - sets.strides[kind]]).min().unwrap_or(items));
    }
    less
}

impl Starts {
    fn new(sets: &Sets<'_>, bound: f64) -> Self {
        let problem = sets.problem;
        let items = problem.items();
        let mut starts = Vec::with_capacity((items + 1) * sets.members.len());
        for kind in 0..sets.members.len() {
            let slot = sets.slot(kind);
            let keeps = |start, end| within(problem, slot, start, end, bound);
            let mut start = 0;
            for end in 0..=items {
                while start < end && !keeps(start, end) {
                    start += 1;
                }
                starts.push(u32::try_from(start).unwrap_or(u32::MAX));
            }
        }
        Self { starts, width: items + 1 }
    }

    fn start(&self, kind: usize, end: usize) -> usize {
        wide(self.starts[kind * self.width + end])
    }
}

fn within(problem: &Problem, slot: &super::Slot, start: usize, end: usize, bound: f64) -> bool {
    problem.holds(slot, start, end) && problem.cost(slot, start, end) <= bound
}
