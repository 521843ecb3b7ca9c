//! Whether anything fits at all, in whatever order: a search over sets of used slots.
//!
//! For a set of slots only the furthest reach matters, whatever the order among them. Sets are visited by size, so the
//! first one that reaches the end is a smallest one. A state whose reach cannot be completed by the largest rooms that
//! are left is dropped; where the rooms are tight, few states remain.

use super::class::Sets;
use super::effort::Effort;
use super::{Problem, fit};

/// States kept per size where all depends on it.
pub(crate) const WIDE: usize = 20_000;

/// States kept per size where it is only about less of something that is known.
pub(crate) const NARROW: usize = 1_000;

/// The most slots that a set can name.
pub(super) const SLOTS: usize = 64;

/// What the search found.
pub(crate) enum Found {
    /// An order that fits.
    Fits(Vec<usize>),
    /// No order of at most so many slots fits.
    Never,
    /// The search gave up.
    Unknown,
}

/// Whether everything fits on as many slots as may be used, by whatever says so first.
pub(crate) fn decide(problem: &Problem) -> Found {
    if let Some(order) = fit::any(problem, &Effort::new(fit::STEPS)) {
        return Found::Fits(order);
    }
    match Sets::new(problem) {
        Some(sets) => sets.any().map_or(Found::Never, Found::Fits),
        None => search(problem, problem.limit, WIDE, &Effort::new(u64::MAX)),
    }
}

/// Whether it is proven that nothing fits.
pub(crate) fn is_never(problem: &Problem) -> bool {
    match Sets::new(problem) {
        Some(sets) => sets.any().is_none(),
        // No search here says more of so many.
        None if problem.slots.len() > SLOTS => false,
        None => matches!(decide(problem), Found::Never),
    }
}

#[derive(Clone, Copy)]
struct State {
    set: u64,
    reach: usize,
    parent: usize,
    slot: usize,
}

/// Looks for an order of at most `limit` slots that fits.
///
/// Of more than `beam` states of a size those that waste most are dropped, and then nothing is proven any more.
pub(crate) fn search(problem: &Problem, limit: usize, beam: usize, effort: &Effort) -> Found {
    let slots = by_room(problem);
    if slots.len() > SLOTS {
        return Found::Unknown;
    }
    let items = problem.items();
    let smallest = super::chain::Chain::smallest(&problem.chains);
    let mut levels: Vec<Vec<State>> = vec![vec![State { set: 0, reach: 0, parent: 0, slot: 0 }]];
    let mut proof = true;
    for used in 0..limit.min(slots.len()) {
        let mut next: Vec<State> = Vec::new();
        for (parent, state) in levels[used].iter().enumerate() {
            if !effort.take(slots.len()) {
                return Found::Unknown;
            }
            let mut previous = None;
            for (at, &index) in slots.iter().enumerate() {
                let slot = &problem.slots[index];
                // Of slots that hold alike, the first unused one stands for all.
                let alike = Some((slot.class, slot.room));
                if state.set & (1 << at) != 0 || previous == alike {
                    continue;
                }
                previous = alike;
                let reach = problem.chain(slot).reach(state.reach, slot.room);
                let set = state.set | (1 << at);
                if reach == items {
                    return Found::Fits(backtrack(&levels, used, parent, index));
                }
                if reach > state.reach
                    && left_holds(problem, &slots, set, limit - used - 1, smallest.load(reach, items))
                {
                    next.push(State { set, reach, parent, slot: index });
                }
            }
        }
        next.sort_by(|a, b| a.set.cmp(&b.set).then(b.reach.cmp(&a.reach)));
        next.dedup_by_key(|state| state.set);
        if next.len() > beam {
            next.sort_by_key(|state| (waste(problem, &slots, &smallest, state), state.set));
            next.truncate(beam);
            proof = false;
        }
        if next.is_empty() {
            break;
        }
        levels.push(next);
    }
    if proof { Found::Never } else { Found::Unknown }
}

/// Slots that hold alike side by side, larger rooms first.
fn by_room(problem: &Problem) -> Vec<usize> {
    let mut slots: Vec<usize> = (0..problem.slots.len()).collect();
    slots.sort_by_key(|&s| (u64::MAX - problem.slots[s].room, problem.slots[s].class, s));
    slots
}

/// Whether the `count` largest unused rooms hold what is left.
fn left_holds(problem: &Problem, slots: &[usize], set: u64, count: usize, left: u64) -> bool {
    let unused = slots.iter().enumerate().filter(|(at, _)| set & (1 << at) == 0);
    let rooms = unused.take(count).map(|(_, &s)| u128::from(problem.slots[s].room)).sum::<u128>();
    rooms >= u128::from(left)
}

fn waste(problem: &Problem, slots: &[usize], smallest: &super::chain::Chain, state: &State) -> u128 {
    let used = slots.iter().enumerate().filter(|(at, _)| state.set & (1 << at) != 0);
    let rooms = used.map(|(_, &s)| u128::from(problem.slots[s].room)).sum::<u128>();
    rooms.saturating_sub(u128::from(smallest.load(0, state.reach)))
}

fn backtrack(levels: &[Vec<State>], used: usize, parent: usize, last: usize) -> Vec<usize> {
    let mut order = vec![last];
    let mut at = parent;
    for level in levels[..=used].iter().skip(1).rev() {
        order.push(level[at].slot);
        at = level[at].parent;
    }
    order.reverse();
    order
}
