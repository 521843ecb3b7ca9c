//! The same on plain numbers, for those who ask often.

use std::collections::BinaryHeap;
use std::ops::Range;

use plimsoll_units::{Bytes, BytesPerSec};

use super::line::{Line, Seat};
use crate::index::ModelIndex;

/// Where layers should lie, and what that takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InOrder {
    /// The smallest largest stage time in the order, in seconds.
    pub best: f64,
    /// The largest stage time of the target.
    pub value: f64,
    /// The bytes of layers that change their device: no target within the tolerance has fewer.
    pub moved: Bytes,
}

impl ModelIndex {
    /// The target with the fewest bytes to move whose largest stage time is at most (1 + `tolerance`) times the smallest
    /// possible in the given order; `None` when the order does not fit, or the lists are not all as long.
    ///
    /// `current` says, for each device, how many layers lie on it or before it now, and `ends` becomes the same for the
    /// target. What lies behind the last of `current` lies nowhere, and counts as moved wherever it comes. Exact. A device
    /// without a rate stays empty. A tolerance that is no share of at least 0 is taken for 0.
    pub fn rebalance_in_order(
        &self,
        budgets: &[Bytes],
        rates: &[BytesPerSec],
        current: &[u32],
        tolerance: f64,
        ends: &mut Vec<u32>,
    ) -> Option<InOrder> {
        if budgets.len() != rates.len() || rates.len() != current.len() {
            return None;
        }
        let best = self.min_max_in_order(budgets, rates, ends)?;
        let tolerance = if tolerance.is_finite() { tolerance.max(0.0) } else { 0.0 };
        let chain = self.chain();
        let mut at = 0;
        let seats = budgets.iter().zip(rates).zip(current).map(|((budget, rate), &end)| {
            let holds = (at, self.items_at(end).max(at));
            at = holds.1;
            Seat {
                chain,
                room: if rate.is_zero() { 0 } else { budget.get() },
                fixed: 0,
                rate: if rate.is_zero() { 1.0 } else { rate.as_f64() },
                sent: chain.sums(),
                holds,
                must: (0, 0),
            }
        });
        let line = Line { seats: seats.collect(), items: chain.items() };
        let bound = (best * (1.0 + tolerance)).max(best);
        let found = line.fewest_moved(bound, budgets.len())?;
        let value = line.largest(&found.ends);
        ends.clear();
        ends.extend(found.ends.iter().map(|&end| self.layers_at(end)));
        Some(InOrder { best, value, moved: Bytes::new(found.moved) })
    }
}

/// A run of layers that goes from one device to another, by their places in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMove {
    /// The layers.
    pub layers: Range<u32>,
    /// Where they lie.
    pub from: usize,
    /// Where they go.
    pub to: usize,
    /// In which round: everything that has to leave `to` has left it in an earlier one.
    pub round: usize,
}

/// The moves from one set of boundaries to another over the same devices in the same order, at most `max_concurrent` in a
/// round, ordered by round.
///
/// Where each device has memory of its own and both sets fit, no move ever lacks room: see
/// [`Schedule::guaranteed`](crate::Schedule::guaranteed). Boundaries that are not ascending, or lists of other lengths, are
/// cut to what both cover.
pub fn moves_in_order(current: &[u32], target: &[u32], max_concurrent: usize) -> Vec<RunMove> {
    let mut moves = changed(current, target);
    let count = current.len().min(target.len());
    let limit = max_concurrent.max(1);
    let mut sends = vec![0_u32; count];
    // Moves into a device lie side by side once sorted by where they go.
    moves.sort_unstable_by_key(|m| (m.to, m.layers.start));
    let mut into = vec![0_usize; count + 1];
    for m in &moves {
        sends[m.from] += 1;
        into[m.to + 1] += 1;
    }
    for at in 0..count {
        into[at + 1] += into[at];
    }
    let mut ready: BinaryHeap<(u32, std::cmp::Reverse<usize>)> = BinaryHeap::new();
    let weight = |m: &RunMove| m.layers.end - m.layers.start;
    let add = |ready: &mut BinaryHeap<_>, moves: &[RunMove], device: usize| {
        let numbers = into[device]..into[device + 1];
        ready.extend(numbers.map(|n| (weight(&moves[n]), std::cmp::Reverse(n))));
    };
    for device in (0..count).filter(|&device| sends[device] == 0) {
        add(&mut ready, &moves, device);
    }
    let mut round = 0;
    let mut done: Vec<usize> = Vec::with_capacity(limit.min(moves.len()));
    while !ready.is_empty() {
        while done.len() < limit
            && let Some((_, std::cmp::Reverse(number))) = ready.pop()
        {
            moves[number].round = round;
            done.push(number);
        }
        for number in done.drain(..) {
            let from = moves[number].from;
            sends[from] -= 1;
            if sends[from] == 0 {
                add(&mut ready, &moves, from);
            }
        }
        round += 1;
    }
    moves.sort_unstable_by_key(|m| (m.round, m.layers.start));
    moves
}

/// Runs of layers whose device changes.
fn changed(current: &[u32], target: &[u32]) -> Vec<RunMove> {
    let mut moves = Vec::new();
    let (mut from, mut to, mut at) = (0, 0, 0);
    while let (Some(&old), Some(&new)) = (current.get(from), target.get(to)) {
        let end = old.min(new).max(at);
        if end > at && from != to {
            moves.push(RunMove { layers: at..end, from, to, round: 0 });
        }
        at = end;
        from += usize::from(old <= at);
        to += usize::from(new <= at);
    }
    moves
}
