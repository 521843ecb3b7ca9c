//! The furthest reach of every set of slots.
//!
//! For a set of slots only the furthest reach matters, whatever the order among them, because a longer run is never worse
//! where a slot begins later. Slots that nothing tells apart are one kind, and a set is how many of each kind it has: with
//! few kinds there are few sets, and where all slots differ these are the subsets. A sweep over all sets decides exactly
//! whether anything fits under a bound on costs, in any order.

use super::{Placement, Problem, Slot, minmax};

/// More sets than this are not swept.
pub(crate) const STATES: usize = 1 << 20;

/// All sets of slots, numbered: each kind is a digit.
pub(crate) struct Sets<'a> {
    pub(crate) problem: &'a Problem,
    /// The slots of each kind, in ascending order; kinds in the order of their first slots.
    pub(crate) members: Vec<Vec<usize>>,
    /// How much a number grows with one more slot of a kind.
    pub(crate) strides: Vec<usize>,
    /// How many sets there are.
    pub(crate) states: usize,
}

/// A number of a set, digit by digit.
pub(crate) struct Digits {
    digits: Vec<usize>,
    /// The kinds that have slots in the set, as bits.
    pub(crate) present: u32,
    /// How many slots the set has.
    pub(crate) count: usize,
}

impl<'a> Sets<'a> {
    /// All sets, where there are at most [`STATES`].
    pub(crate) fn new(problem: &'a Problem) -> Option<Self> {
        // Every kind doubles the number of sets at least.
        let members = kinds(problem, 0..problem.slots.len(), wide(STATES.ilog2()))?;
        let mut strides = Vec::with_capacity(members.len());
        let mut states = 1_usize;
        for kind in &members {
            strides.push(states);
            states = states.saturating_mul(kind.len() + 1);
        }
        let few = states <= STATES && u32::try_from(problem.items()).is_ok();
        few.then_some(Self { problem, members, strides, states })
    }

    /// The empty set.
    pub(crate) fn digits(&self) -> Digits {
        Digits { digits: vec![0; self.members.len()], present: 0, count: 0 }
    }

    /// A slot of a kind.
    pub(crate) fn slot(&self, kind: usize) -> &'a Slot {
        &self.problem.slots[self.members[kind][0]]
    }

    /// The furthest reach of every set that is not larger than the limit; zero for larger ones.
    ///
    /// With `first`, ends at the first set that reaches the end. The answer is a smallest set, of those seen, that does.
    pub(crate) fn sweep(&self, runs: &Runs, first: bool, reach: &mut Vec<u32>) -> Option<usize> {
        let items = runs.width - 1;
        let mut digits = self.digits();
        let mut found: Option<(usize, usize)> = None;
        reach.clear();
        reach.resize(self.states, 0);
        for state in 1..self.states {
            digits.step(self);
            if digits.count > self.problem.limit {
                continue;
            }
            let mut best = 0;
            let mut bits = digits.present;
            while bits != 0 {
                let kind = wide(bits.trailing_zeros());
                bits &= bits - 1;
                best = best.max(runs.end(kind, reach[state - self.strides[kind]]));
            }
            reach[state] = best;
            if wide(best) == items && found.is_none_or(|(count, _)| digits.count < count) {
                found = Some((digits.count, state));
                if first {
                    break;
                }
            }
        }
        found.map(|(_, state)| state)
    }

    /// An order of slots that reaches as far as a set does; slots that would take nothing are left out.
    pub(crate) fn order(&self, runs: &Runs, reach: &[u32], mut state: usize) -> Vec<usize> {
        let mut kinds = Vec::new();
        while reach[state] > 0 {
            let came = (0..self.members.len()).find(|&kind| {
                let stride = self.strides[kind];
                !(state / stride).is_multiple_of(self.members[kind].len() + 1)
                    && runs.end(kind, reach[state - stride]) == reach[state]
            });
            let Some(kind) = came else { break };
            state -= self.strides[kind];
            if reach[state] < runs.end(kind, reach[state]) {
                kinds.push(kind);
            }
        }
        kinds.reverse();
        self.named(&kinds)
    }

    /// The slots that stand for a row of kinds: of each kind the first ones.
    pub(crate) fn named(&self, kinds: &[usize]) -> Vec<usize> {
        let mut next = vec![0; self.members.len()];
        let slots = kinds.iter().map(|&kind| {
            next[kind] += 1;
            self.members[kind][next[kind] - 1]
        });
        slots.collect()
    }

    /// An order of fewest slots in which everything fits; `None` when there is none.
    pub(crate) fn fewest(&self) -> Option<Vec<usize>> {
        let mut reach = Vec::new();
        let runs = Runs::new(self, f64::INFINITY);
        let state = self.sweep(&runs, false, &mut reach)?;
        Some(self.order(&runs, &reach, state))
    }

    /// Any order in which everything fits; `None` when there is none.
    pub(crate) fn any(&self) -> Option<Vec<usize>> {
        let mut reach = Vec::new();
        let runs = Runs::new(self, f64::INFINITY);
        let state = self.sweep(&runs, true, &mut reach)?;
        Some(self.order(&runs, &reach, state))
    }

    /// The fewest bytes by which the last slot of any order would have to be larger for everything to fit.
    pub(crate) fn missing(&self) -> Option<u64> {
        let mut reach = Vec::new();
        self.sweep(&Runs::new(self, f64::INFINITY), false, &mut reach);
        let items = self.problem.items();
        let mut digits = self.digits();
        let mut least: Option<u64> = None;
        for (state, &start) in reach.iter().enumerate() {
            if state > 0 {
                digits.step(self);
            }
            if digits.count >= self.problem.limit {
                continue;
            }
            for kind in (0..self.members.len()).filter(|&kind| digits.digits[kind] < self.members[kind].len())
            {
                let slot = self.slot(kind);
                let chain = self.problem.chain(slot);
                // Where one slot may not hold everything, more room would not help it.
                if start > 0 || chain.whole() {
                    let short =
                        chain.load(wide(start), items).checked_sub(slot.room).filter(|&short| short > 0);
                    least = least.into_iter().chain(short).min();
                }
            }
        }
        least
    }

    /// The smallest largest cost over every order, with an order that has it, from one that is known.
    ///
    /// `lower` is a number that no placement is below. A sweep that succeeds gives a smaller largest cost; one that fails
    /// gives the next cost at which any run becomes longer, below which nothing changes. Both ends are costs of runs, and
    /// where they meet is the optimum. Whether they did comes with the answer.
    pub(crate) fn min_max(&self, lower: f64, known: (f64, Placement)) -> (f64, Placement, bool) {
        const SWEEPS: usize = 300;
        let (mut high, mut best) = known;
        let mut low = lower;
        let mut reach = Vec::new();
        // What heuristics find is often the best already: one sweep just below it says so.
        let mut bound = high.next_down().max(low);
        for _ in 0..SWEEPS {
            if low >= high {
                return (high, best, true);
            }
            let runs = Runs::new(self, bound);
            match self.sweep(&runs, true, &mut reach) {
                Some(state) => {
                    let order = self.order(&runs, &reach, state);
                    let Some((value, placement)) = minmax::in_order(self.problem, &order, low) else { break };
                    if value >= high {
                        break;
                    }
                    (high, best) = (value, placement);
                }
                None => low = runs.next,
            }
            let middle = low + (high - low) / 2.0;
            bound = if middle < high { middle } else { low };
        }
        (high, best, false)
    }
}

impl Digits {
    /// The next set.
    #[inline]
    pub(crate) fn step(&mut self, sets: &Sets<'_>) {
        for (kind, digit) in self.digits.iter_mut().enumerate() {
            if *digit < sets.members[kind].len() {
                *digit += 1;
                self.count += 1;
                self.present |= 1 << kind;
                return;
            }
            self.count -= *digit;
            *digit = 0;
            self.present &= !(1 << kind);
        }
    }
}

/// Slots that nothing tells apart together, in the order of their first ones; `None` when there are more kinds than `most`.
pub(crate) fn kinds(
    problem: &Problem,
    slots: impl Iterator<Item = usize>,
    most: usize,
) -> Option<Vec<Vec<usize>>> {
    let alike = |a: &Slot, b: &Slot| {
        (a.class, a.room, a.fixed, a.rate.to_bits()) == (b.class, b.room, b.fixed, b.rate.to_bits())
    };
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for index in slots {
        let slot = &problem.slots[index];
        match kinds.iter().position(|kind| alike(&problem.slots[kind[0]], slot)) {
            Some(kind) => kinds[kind].push(index),
            None if kinds.len() >= most => return None,
            None => kinds.push(vec![index]),
        }
    }
    Some(kinds)
}

/// For every kind and every start, where the longest run under a bound ends.
pub(crate) struct Runs {
    ends: Vec<u32>,
    width: usize,
    /// The least cost at which any of these runs would be longer.
    pub(crate) next: f64,
}

impl Runs {
    /// Of all kinds of some sets, under a bound on costs.
    pub(crate) fn new(sets: &Sets<'_>, bound: f64) -> Self {
        Self::of(sets.problem, &sets.members, bound)
    }

    /// Of some kinds, under a bound on costs.
    pub(crate) fn of(problem: &Problem, kinds: &[Vec<usize>], bound: f64) -> Self {
        let items = problem.items();
        let width = items + 1;
        let mut ends = Vec::with_capacity(width * kinds.len());
        let mut next = f64::INFINITY;
        for kind in kinds {
            let slot = &problem.slots[kind[0]];
            let chain = problem.chain(slot);
            let most = minmax::most_within(bound, slot.rate).checked_sub(slot.fixed);
            let mut end = 0;
            let mut beyond: Option<u64> = None;
            let plain = chain.plain_sums(slot.room).zip(most);
            if let Some((sums, most)) = plain {
                beyond = plain_ends(sums, slot.room, most, &mut ends);
            }
            for start in if plain.is_some() { items..items } else { 0..items } {
                end = end.max(start);
                while chain.fits(start, end + 1, slot.room) {
                    let cost = chain.cost(start, end + 1);
                    if most.is_none_or(|most| cost > most) {
                        beyond = Some(beyond.map_or(cost, |least| least.min(cost)));
                        break;
                    }
                    end += 1;
                    if end == items {
                        break;
                    }
                }
                ends.push(narrow(end));
            }
            ends.push(narrow(items));
            if let Some(beyond) = beyond {
                next = next.min(super::as_f64(beyond.saturating_add(slot.fixed)) / slot.rate);
            }
        }
        Self { ends, width, next }
    }

    /// Where the longest run of a kind from a start ends.
    #[inline]
    pub(crate) fn end(&self, kind: usize, start: u32) -> u32 {
        self.ends[kind * self.width + wide(start)]
    }
}

/// Adds where the longest runs end whose sums are at most both of these, for every start; the least sum of a run one item
/// longer that only the second one forbids.
fn plain_ends(sums: &[u64], room: u64, most: u64, ends: &mut Vec<u32>) -> Option<u64> {
    let items = sums.len() - 1;
    let limit = room.min(most);
    let (mut end, mut beyond) = (0, None::<u64>);
    ends.extend(sums[..items].iter().enumerate().map(|(start, &before)| {
        end = end.max(start);
        while end < items && sums[end + 1] - before <= limit {
            end += 1;
        }
        if end < items && most < room {
            let longer = sums[end + 1] - before;
            if longer <= room && beyond.is_none_or(|least| longer < least) {
                beyond = Some(longer);
            }
        }
        narrow(end)
    }));
    beyond
}

/// [`Sets::new`] sees to it that the number of items is one of these.
fn narrow(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

/// An index, in half the memory.
pub(crate) const fn wide(index: u32) -> usize {
    index as usize
}
