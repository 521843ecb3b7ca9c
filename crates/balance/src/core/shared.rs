//! A few slots, some of which draw on common pools, exactly.
//!
//! Where slots share a pool, taking more is not always better: what one of them takes the others lack. A state is a set of
//! used slots, how many items are placed, and what is taken of each pool; one that has placed no less and taken no more of
//! any pool makes others of its set needless. For sums it has to end on the same item in the same group as well, since a
//! slot that is passed over may have been the cheaper way.

use std::ops::Range;

use super::chain::Chain;
use super::effort::Effort;
use super::solve::{Goal, Solved, counted};
use super::{Placement, Problem, Slot, as_f64, bounds, minmax};
use crate::keep::TIE;

/// The most slots.
pub(crate) const SLOTS: usize = 10;

/// So many pools can be shared by so many slots at most.
const POOLS: usize = SLOTS / 2;

/// Which slots draw on which pools.
#[derive(Debug)]
pub(crate) struct Pools {
    /// For each slot its pool, where others draw on it too.
    pub(crate) of: Vec<Option<usize>>,
    /// What may be taken of each pool.
    pub(crate) budgets: Vec<u64>,
    /// What each slot takes of its pool beside the items, once it holds any.
    pub(crate) own: Vec<u64>,
    /// Whether a cost is the used share of what the others leave of a pool.
    pub(crate) shares: bool,
}

/// Some items placed on a set of slots.
#[derive(Clone, Copy, Debug)]
struct State {
    end: usize,
    /// What is taken of each pool.
    taken: [u64; POOLS],
    /// What the slot that takes most of each pool takes: kept where costs are shares.
    most: [u64; POOLS],
    /// The sum so far, and the group of the last slot: kept for sums.
    sum: f64,
    group: usize,
    /// The state before, and the slot that was added.
    parent: usize,
    slot: usize,
}

/// One slot that a state is given.
#[derive(Clone, Copy)]
struct Adding {
    /// Where the state is.
    parent: usize,
    slot: usize,
    /// The set with the slot.
    set: usize,
}

/// What does not change while states are looked at.
struct Search<'a> {
    problem: &'a Problem,
    pools: &'a Pools,
    sums: bool,
    /// Item by item the least of all kinds of slots.
    smallest: Chain,
    /// For each slot the one before it that nothing tells apart.
    twins: Vec<Option<usize>>,
    effort: &'a Effort,
}

/// The states of every set, side by side.
#[derive(Default)]
struct Table {
    states: Vec<State>,
    sets: Vec<Range<usize>>,
}

/// The best placement whose value is below `below`; nothing in it where none is. `None` where that takes too many steps,
/// or there are too many slots.
pub(crate) fn solve(
    problem: &Problem,
    pools: &Pools,
    goal: Goal,
    below: f64,
    effort: &Effort,
) -> Option<Solved> {
    if problem.slots.len() > SLOTS {
        return None;
    }
    let search = Search::new(problem, pools, goal == Goal::Sum, effort);
    let mut lower = below;
    let mut best: Option<Placement> = None;
    match goal {
        Goal::Fewest => {
            best = search.sweep(f64::INFINITY, below)?;
            lower = best.as_ref().map_or(below, |placement| counted(placement.used()));
        }
        Goal::Sum => {
            best = search.sweep(below * (1.0 - TIE), f64::INFINITY)?;
            lower = best.as_ref().map_or(below, |placement| super::sum::sum(problem, placement));
        }
        Goal::MinMax => {
            let (mut low, mut high) = (bounds::min_max(problem), below);
            let mut bound = high * (1.0 - TIE);
            while low < high * (1.0 - TIE) {
                match search.sweep(bound, f64::INFINITY)? {
                    Some(placement) => {
                        high = largest(problem, pools, &placement).min(bound);
                        best = Some(placement);
                    }
                    None if high == f64::INFINITY => return Some(Solved::nothing(f64::INFINITY)),
                    None => low = bound,
                }
                bound = (low + (high - low) / 2.0).min(high * (1.0 - TIE));
            }
            lower = lower.min(low);
        }
    }
    Some(Solved { placement: best, lower, missing: None })
}

/// The largest cost of a placement.
fn largest(problem: &Problem, pools: &Pools, placement: &Placement) -> f64 {
    let uses = |(slot, start, end): (usize, usize, usize)| {
        let index = &problem.slots[slot];
        pools.own[slot].saturating_add(problem.chain(index).load(start, end))
    };
    let mut taken = vec![0_u64; pools.budgets.len()];
    for stage in placement.stages() {
        if let Some(pool) = pools.of[stage.0] {
            taken[pool] = taken[pool].saturating_add(uses(stage));
        }
    }
    let cost = |stage: (usize, usize, usize)| {
        let cost = problem.cost(&problem.slots[stage.0], stage.1, stage.2);
        match pools.of[stage.0] {
            Some(pool) if pools.shares => cost.max(share(uses(stage), taken[pool], pools.budgets[pool])),
            _ => cost,
        }
    };
    placement.stages().map(cost).fold(0.0, f64::max)
}

/// What one of those who took so much together uses of what the others leave.
fn share(uses: u64, taken: u64, budget: u64) -> f64 {
    as_f64(uses) / as_f64(budget.saturating_sub(taken.saturating_sub(uses)).max(1))
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, pools: &'a Pools, sums: bool, effort: &'a Effort) -> Self {
        let slots = &problem.slots;
        let twin = |slot: usize| {
            let alike = |&other: &usize| {
                let other_slot =
                    Slot { group: if sums { slots[other].group } else { slots[slot].group }, ..slots[other] };
                other_slot == slots[slot] && pools.of[other] == pools.of[slot]
            };
            (0..slot).rev().find(alike)
        };
        let twins = (0..slots.len()).map(twin).collect();
        Self { problem, pools, sums, smallest: Chain::smallest(&problem.chains), twins, effort }
    }

    /// A placement none of whose costs, or whose sum, is above `bound`, on fewer slots than `fewer`: for sums the least
    /// one, otherwise one on fewest slots. `Some(None)` where there is none.
    fn sweep(&self, bound: f64, fewer: f64) -> Option<Option<Placement>> {
        let slots = self.problem.slots.len();
        let mut table = Table { states: Vec::new(), sets: vec![0..0; 1 << slots] };
        let start = State {
            end: 0,
            taken: [0; POOLS],
            most: [0; POOLS],
            sum: 0.0,
            group: 0,
            parent: usize::MAX,
            slot: usize::MAX,
        };
        table.states.push(start);
        table.sets[0] = 0..1;
        // Of slots that nothing tells apart the first ones are used.
        let plain = |set: &usize| {
            (0..slots).all(|slot| {
                set & (1 << slot) == 0 || self.twins[slot].is_none_or(|twin| set & (1 << twin) != 0)
            })
        };
        let mut sets: Vec<usize> = (1..1 << slots).filter(plain).collect();
        sets.sort_by_key(|set| (set.count_ones(), *set));
        let mut found: Option<State> = None;
        let mut next: Vec<State> = Vec::new();
        for set in sets {
            let count = usize::try_from(set.count_ones()).unwrap_or(usize::MAX);
            if count > self.problem.limit || counted(count) >= fewer {
                break;
            }
            next.clear();
            for slot in (0..slots).filter(|slot| set & (1 << slot) != 0) {
                for at in table.sets[set & !(1 << slot)].clone() {
                    let most = found.map_or(bound, |found| found.sum);
                    self.extend(&table.states[at], Adding { parent: at, slot, set }, most, &mut next)?;
                }
            }
            if let Some(whole) = self.whole(&next, found.map_or(bound, |found| found.sum)) {
                if !self.sums {
                    return Some(Some(self.placement(&table, whole)));
                }
                if found.is_none_or(|found| whole.sum < found.sum) {
                    found = Some(whole);
                }
            }
            let from = table.states.len();
            self.keep(&mut next, &mut table.states)?;
            table.sets[set] = from..table.states.len();
        }
        Some(found.map(|found| self.placement(&table, found)))
    }

    /// The best state that has placed everything.
    fn whole(&self, states: &[State], most: f64) -> Option<State> {
        let whole = states.iter().filter(|state| state.end == self.problem.items());
        let whole = whole.filter(|state| !self.sums || state.sum <= most);
        whole.min_by(|a, b| a.sum.total_cmp(&b.sum)).copied()
    }

    /// The states in which one slot more holds something.
    fn extend(&self, before: &State, adding: Adding, bound: f64, next: &mut Vec<State>) -> Option<()> {
        let Adding { parent, slot, set } = adding;
        let (problem, start) = (self.problem, before.end);
        if start == problem.items() {
            return Some(());
        }
        let index = &problem.slots[slot];
        let hop = if self.sums { self.hop(before, index.group) } else { 0.0 };
        let stage = if self.sums { bound - before.sum - hop } else { bound };
        let pool = self.pools.of[slot];
        let room = match pool {
            Some(pool) => {
                let left = self.pools.budgets[pool].saturating_sub(before.taken[pool]);
                left.checked_sub(self.pools.own[slot]).map(|left| left.min(index.room))
            }
            None => Some(index.room),
        };
        let Some(room) = room.filter(|_| stage >= 0.0) else { return Some(()) };
        let last = minmax::reach(problem, &Slot { room, ..*index }, start, stage);
        // What nobody else can use is used as far as it goes.
        let others = |other: usize| set & (1 << other) == 0 && self.pools.of[other] == pool;
        let alone = pool.is_none() || !(self.pools.shares || (0..problem.slots.len()).any(others));
        let first = if alone && !self.sums { last.max(start + 1) } else { start + 1 };
        for end in first..=last {
            if !self.effort.take(1) {
                return None;
            }
            let mut state = State { end, group: index.group, parent, slot, ..*before };
            if self.sums {
                state.sum = before.sum + hop + problem.cost(index, start, end);
            }
            if let Some(pool) = pool {
                let uses = self.pools.own[slot].saturating_add(problem.chain(index).load(start, end));
                state.taken[pool] = state.taken[pool].saturating_add(uses);
                if self.pools.shares {
                    state.most[pool] = state.most[pool].max(uses);
                }
            }
            if self.keeps(&state, bound) && self.leads_on(&state, set, bound) {
                next.push(state);
            }
        }
        Some(())
    }

    fn hop(&self, before: &State, to: usize) -> f64 {
        let hops = &self.problem.hops;
        let from = if before.end == 0 { hops.through } else { Some(before.group) };
        from.map_or(0.0, |from| hops.way(from, to, false).seconds(hops.beyond(before.end)))
    }

    /// Whether no share of a pool is above the bound so far.
    fn keeps(&self, state: &State, bound: f64) -> bool {
        let shares = || {
            let of_pools = state.most.iter().zip(&state.taken).zip(&self.pools.budgets);
            of_pools.map(|((&most, &taken), &budget)| share(most, taken, budget))
        };
        !self.pools.shares || shares().all(|share| share <= bound)
    }

    /// Whether the slots that are left may hold what is left, as far as can be seen at once.
    fn leads_on(&self, state: &State, set: usize, bound: f64) -> bool {
        let items = self.problem.items();
        let left = self.smallest.load(state.end, items);
        let mut rooms = 0_u128;
        let mut of_pools = [0_u128; POOLS];
        let mut fastest = 0.0_f64;
        for (slot, index) in self.problem.slots.iter().enumerate() {
            if set & (1 << slot) == 0 {
                fastest = fastest.max(index.rate);
                match self.pools.of[slot] {
                    Some(pool) => of_pools[pool] += u128::from(index.room),
                    None => rooms += u128::from(index.room),
                }
            }
        }
        let pools = of_pools.iter().zip(&self.pools.budgets).zip(&state.taken);
        rooms += pools
            .map(|((&room, &budget), &taken)| room.min(u128::from(budget.saturating_sub(taken))))
            .sum::<u128>();
        let rest = as_f64(self.smallest.cost(state.end, items));
        let fast = !self.sums || rest <= 0.0 || state.sum + rest / fastest * (1.0 - 1e-9) <= bound;
        rooms >= u128::from(left) && fast
    }

    /// Keeps the states of one set that no other one makes needless.
    fn keep(&self, next: &mut [State], states: &mut Vec<State>) -> Option<()> {
        next.sort_by(|a, b| {
            let last = |state: &State| (state.taken, state.most, state.group, state.parent, state.slot);
            b.end.cmp(&a.end).then(a.sum.total_cmp(&b.sum)).then_with(|| last(a).cmp(&last(b)))
        });
        let from = states.len();
        for state in next.iter() {
            if !self.effort.take(1 + (states.len() - from) / 4) {
                return None;
            }
            if !states[from..].iter().any(|kept| self.covers(kept, state)) {
                states.push(*state);
            }
        }
        Some(())
    }

    fn covers(&self, a: &State, b: &State) -> bool {
        let no_more = |a: &[u64], b: &[u64]| a.iter().zip(b).all(|(a, b)| a <= b);
        let along = if self.sums { a.end == b.end && a.group == b.group } else { a.end >= b.end };
        along && a.sum <= b.sum && no_more(&a.taken, &b.taken) && no_more(&a.most, &b.most)
    }

    fn placement(&self, table: &Table, last: State) -> Placement {
        let (mut order, mut ends) = (Vec::new(), Vec::new());
        let mut state = last;
        while state.slot < self.problem.slots.len() {
            order.push(state.slot);
            ends.push(state.end);
            state = table.states[state.parent];
        }
        order.reverse();
        ends.reverse();
        Placement { order, ends }
    }
}
