//! Orders by beam search, where slots are of few kinds.
//!
//! With few kinds, few different rooms can be tried at each boundary, and taking the best one each time wastes more than
//! it has to. So a few orders are kept side by side, those that have wasted least so far.

use super::Problem;
use super::class::{Runs, wide};
use super::effort::Effort;

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
#[derive(Clone, Copy)]
struct Kept {
    end: u32,
    waste: u64,
    last: usize,
    /// How many of each kind are left.
    left: [usize; KINDS],
}

/// A longer order: what it wastes, how many items it does not reach, which order it goes on with, and with which kind.
type Longer = (u64, u32, usize, usize);

/// The longer orders that waste least, the best first, no two of which end at the same item: such orders go on alike, and
/// the one that wastes least stands for all.
struct Longest {
    best: Vec<Longer>,
    /// The best of those that cover everything.
    whole: Option<Longer>,
}

impl Longest {
    fn offer(&mut self, longer: Longer) {
        if longer.1 == 0 && self.whole.is_none_or(|whole| longer < whole) {
            self.whole = Some(longer);
        }
        if self.best.len() == WIDTH && self.best.last().is_some_and(|last| longer >= *last) {
            return;
        }
        match self.best.iter().position(|other| other.1 == longer.1) {
            Some(at) if self.best[at] <= longer => return,
            Some(at) => {
                self.best.remove(at);
            }
            None => self.best.truncate(WIDTH - 1),
        }
        let at = self.best.partition_point(|other| *other < longer);
        self.best.insert(at, longer);
    }
}

/// The kinds in an order that covers everything, or how many items the best orders came to.
///
/// `kinds` has for each kind a slot, the most that it may cost, and how many slots there are: at most [`KINDS`].
pub(crate) fn order(
    problem: &Problem,
    kinds: &[(usize, u64, usize)],
    runs: &Runs,
    effort: &Effort,
) -> Result<Vec<usize>, usize> {
    let items = u32::try_from(problem.items()).unwrap_or(u32::MAX);
    let mut steps: Vec<Step> = vec![Step { before: 0, kind: 0 }];
    let mut left = [0; KINDS];
    for (left, kind) in left.iter_mut().zip(kinds) {
        *left = kind.2;
    }
    let mut beam = vec![Kept { end: 0, waste: 0, last: 0, left }];
    let mut next: Vec<Kept> = Vec::with_capacity(WIDTH);
    let mut longest = Longest { best: Vec::with_capacity(WIDTH + 1), whole: None };
    loop {
        longest.best.clear();
        for (at, kept) in beam.iter().enumerate() {
            for (kind, _) in kinds.iter().enumerate().filter(|&(kind, _)| kept.left[kind] > 0) {
                let end = runs.end(kind, kept.end);
                if end > kept.end {
                    let waste = if end == items { 0 } else { wasted(problem, kinds[kind], kept.end, end) };
                    longest.offer((kept.waste.saturating_add(waste), items - end, at, kind));
                }
            }
        }
        if let Some((_, _, at, kind)) = longest.whole {
            let mut order = vec![kind];
            let mut last = beam[at].last;
            while last > 0 {
                order.push(steps[last].kind);
                last = steps[last].before;
            }
            order.reverse();
            return Ok(order);
        }
        if longest.best.is_empty() || !effort.take(beam.len() * kinds.len()) {
            return Err(wide(beam.iter().map(|kept| kept.end).max().unwrap_or(0)));
        }
        next.clear();
        for &(waste, missed, at, kind) in &longest.best {
            steps.push(Step { before: beam[at].last, kind });
            let mut left = beam[at].left;
            left[kind] -= 1;
            next.push(Kept { end: items - missed, waste, last: steps.len() - 1, left });
        }
        std::mem::swap(&mut beam, &mut next);
    }
}

/// What is left of a slot's room, or of what it may cost.
fn wasted(problem: &Problem, (slot, most, _): (usize, u64, usize), start: u32, end: u32) -> u64 {
    let slot = &problem.slots[slot];
    let chain = problem.chain(slot);
    let (start, end) = (wide(start), wide(end));
    slot.room.saturating_sub(chain.load(start, end)).min(most.saturating_sub(chain.cost(start, end)))
}
