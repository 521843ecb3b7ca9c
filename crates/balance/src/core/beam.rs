//! Orders by beam search, where slots are of few kinds.
//!
//! With few kinds, few different rooms can be tried at each boundary, and taking the best one each time wastes more than
//! it has to. So a few orders are kept side by side, those that have wasted least so far.

use super::Problem;
use super::class::{Runs, wide};

/// How many orders are kept side by side.
const WIDTH: usize = 6;

/// More kinds than this are enough to choose from without looking further ahead.
pub(crate) const KINDS: usize = 24;

/// An order of which the last step is known.
#[derive(Clone, Copy)]
struct Step {
    before: usize,
    kind: usize,
}

/// One of the orders side by side.
#[derive(Clone)]
struct Kept {
    end: u32,
    waste: u64,
    last: usize,
    /// How many of each kind are left.
    left: Vec<usize>,
}

/// A longer order: what it wastes, how many items it does not reach, which order it goes on with, and with which kind.
type Longer = (u64, u32, usize, usize);

/// The kinds in an order that covers everything, or how many items the best orders came to.
///
/// `kinds` has for each kind a slot, the most that it may cost, and how many slots there are.
pub(crate) fn order(
    problem: &Problem,
    kinds: &[(usize, u64, usize)],
    runs: &Runs,
) -> Result<Vec<usize>, usize> {
    let items = u32::try_from(problem.items()).unwrap_or(u32::MAX);
    let mut steps: Vec<Step> = vec![Step { before: 0, kind: 0 }];
    let left = kinds.iter().map(|kind| kind.2).collect();
    let mut beam = vec![Kept { end: 0, waste: 0, last: 0, left }];
    let mut longer: Vec<Longer> = Vec::new();
    loop {
        longer.clear();
        for (at, kept) in beam.iter().enumerate() {
            for kind in (0..kinds.len()).filter(|&kind| kept.left[kind] > 0) {
                let end = runs.end(kind, kept.end);
                if end > kept.end {
                    let waste = if end == items { 0 } else { wasted(problem, kinds[kind], kept.end, end) };
                    longer.push((kept.waste.saturating_add(waste), items - end, at, kind));
                }
            }
        }
        longer.sort_unstable();
        if let Some(&(_, _, at, kind)) = longer.iter().find(|longer| longer.1 == 0) {
            let mut order = vec![kind];
            let mut last = beam[at].last;
            while last > 0 {
                order.push(steps[last].kind);
                last = steps[last].before;
            }
            order.reverse();
            return Ok(order);
        }
        if longer.is_empty() {
            return Err(wide(beam.iter().map(|kept| kept.end).max().unwrap_or(0)));
        }
        let mut next: Vec<Kept> = Vec::with_capacity(WIDTH);
        for &(waste, missed, at, kind) in &longer {
            let end = items - missed;
            // Orders that end at the same item go on alike: the one that wastes least stands for all.
            if next.iter().any(|kept| kept.end == end) {
                continue;
            }
            steps.push(Step { before: beam[at].last, kind });
            let mut left = beam[at].left.clone();
            left[kind] -= 1;
            next.push(Kept { end, waste, last: steps.len() - 1, left });
            if next.len() == WIDTH {
                break;
            }
        }
        beam = next;
    }
}

/// What is left of a slot's room, or of what it may cost.
fn wasted(problem: &Problem, (slot, most, _): (usize, u64, usize), start: u32, end: u32) -> u64 {
    let slot = &problem.slots[slot];
    let chain = problem.chain(slot);
    let (start, end) = (wide(start), wide(end));
    slot.room.saturating_sub(chain.load(start, end)).min(most.saturating_sub(chain.cost(start, end)))
}
