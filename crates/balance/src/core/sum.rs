//! The smallest sum of stage times and hops, whatever the order.
//!
//! Where the slots are few, every order of every set of them is looked at. Otherwise a few orders are, each exactly: slots
//! by what a byte costs on them with its share of the hop, which is the order of the linear programme that bounds the
//! sum, by room and by speed. Where all slots would take long, only those that the linear programme fills and some more
//! take part; when the last of them turn out to be used, more do.

use std::collections::BTreeMap;

use super::bounds;
use super::chain::Chain;
use super::masks::{self, Tables};
use super::rates::LatencyRates;
use super::sets::Sets;
use super::solve::{Solved, Tries, missing};
use super::subset;
use super::table::Rule;
use super::{Placement, Problem, latency, orders, walk};
use crate::keep::as_good_as;

/// The most steps of one programme over an order.
const STEPS: usize = 16_000_000;

/// The most steps of all programmes of a local search.
const SEARCH: usize = 1_000_000;

/// Beyond so many (slot, item) pairs only a few orders are tried.
const LARGE: usize = 1_000_000;

/// Slots beyond those of the linear programme, beside a quarter of these.
const MORE: usize = 16;

/// Orders that are drawn by best fit, where slots and items are not too many.
const SEEDS: u64 = 4;

/// Solves a problem that has at least one item and is not hopeless.
pub(crate) fn solve(problem: &Problem, tries: &Tries) -> Solved {
    let mut best = Best { problem, value: f64::INFINITY, placements: Vec::new() };
    let lower = match tries {
        Tries::LargestFirst => best.only(&orders::largest_first(problem)),
        Tries::Given(order) => best.only(order),
        Tries::Portfolio => match Sets::new(problem) {
            Some(sets) => best.of_every_order(&sets),
            None => best.of_some_orders(),
        },
    };
    let placement = best.fewest().cloned();
    let missing = if placement.is_none() { missing(problem, tries) } else { None };
    Solved { placement, lower, missing }
}

/// The best placements so far.
struct Best<'a> {
    problem: &'a Problem,
    value: f64,
    /// All as good as the best one, those on fewer slots kept beside.
    placements: Vec<(f64, Placement)>,
}

impl Best<'_> {
    /// One order; what is proven of all.
    fn only(&mut self, order: &[usize]) -> f64 {
        self.try_order(order);
        self.with_fewer();
        if self.problem.slots.len() < 2 { self.value } else { self.unless_never() }
    }

    /// The bound of the linear programme; infinite where a search shows that nothing fits.
    fn unless_never(&self) -> f64 {
        let never = self.placements.is_empty() && subset::is_never(self.problem);
        if never { f64::INFINITY } else { bounds::latency(self.problem) }
    }

    /// Every order of every set of slots: what comes out is proven to be the least.
    fn of_every_order(&mut self, sets: &Sets) -> f64 {
        let problem = self.problem;
        let ranked = by_cost(problem, &LatencyRates::new(problem));
        self.try_kinds(&ranked, ALL);
        let rule = Rule::Sum { most: self.value * (1.0 + 1e-9) };
        match masks::search(problem, sets, rule, 0.0, &mut Tables::default()) {
            Some((value, placement)) => {
                let seconds = sum(problem, &placement);
                self.offer(seconds, placement);
                value.min(self.value)
            }
            None => self.value,
        }
    }

    fn of_some_orders(&mut self) -> f64 {
        let problem = self.problem;
        let rates = LatencyRates::new(problem);
        let lower = rates.bound(problem);
        let slots = problem.slots.len();
        let ranked = by_cost(problem, &rates);
        match slots.saturating_mul(problem.items()) {
            // All slots take no longer than a few times the first ones.
            pairs if pairs <= LARGE / 4 => {
                self.try_kinds(&ranked, ALL);
            }
            pairs => self.try_first(&ranked, if pairs <= LARGE { ALL } else { FEW }),
        }
        if slots.saturating_mul(problem.items()) <= LARGE / 8 || self.placements.is_empty() {
            let reach = |slot: usize, start: usize| {
                problem.chain(&problem.slots[slot]).reach(start, problem.slots[slot].room)
            };
            for order in (0..SEEDS).filter_map(|seed| walk::best_fit(problem, seed, reach)) {
                self.try_order(&with_rest(problem, &order));
            }
        }
        if self.placements.is_empty() {
            match subset::decide(problem) {
                subset::Found::Fits(order) => {
                    self.try_order(&with_rest(problem, &order));
                    self.try_order(&order);
                }
                subset::Found::Never => return f64::INFINITY,
                subset::Found::Unknown => {}
            }
        }
        self.exchange(lower);
        self.with_fewer();
        lower
    }

    /// The slots that the linear programme fills and some more; yet more as long as the last ones are of use, and then in
    /// the kind of order that was best.
    fn try_first(&mut self, ranked: &[usize], kinds: &[By]) {
        let mut count = filled(self.problem, ranked);
        count = (count + count / 4 + MORE).min(ranked.len());
        let mut best = self.try_kinds(&ranked[..count], kinds);
        while count < ranked.len() && self.uses(&ranked[count - count / 4..count]) {
            count = (count * 2).min(ranked.len());
            best = self.try_kinds(&ranked[..count], &[best]);
        }
    }

    /// Slots in several kinds of order; the kind that was best.
    fn try_kinds(&mut self, by_cost: &[usize], kinds: &[By]) -> By {
        let mut best = kinds.first().copied().unwrap_or(By::CostTogether);
        let mut tried: Vec<Vec<usize>> = Vec::with_capacity(kinds.len());
        for &kind in kinds {
            let order = arranged(self.problem, by_cost, kind);
            if tried.contains(&order) {
                continue;
            }
            if self.try_order(&order) {
                best = kind;
            }
            tried.push(order);
        }
        best
    }

    /// Whether the best placement uses one of these slots, or there is none yet.
    fn uses(&self, slots: &[usize]) -> bool {
        self.fewest().is_none_or(|best| best.stages().any(|stage| slots.contains(&stage.0)))
    }

    /// Solves one order; whether it is better than all before.
    fn try_order(&mut self, order: &[usize]) -> bool {
        let Some((value, placement)) = in_order(self.problem, order) else { return false };
        if placement.used() <= self.problem.limit {
            return self.offer(value, placement);
        }
        // More slots than may be used: choices of fewer ones, of all and of those that it wanted.
        let used: Vec<usize> = placement.stages().map(|stage| stage.0).collect();
        let mut better = false;
        for wanted in [order, &used] {
            for fewer in orders::shortened(self.problem, wanted).0 {
                if let Some((value, placement)) = in_order(self.problem, &fewer) {
                    better |= self.offer(value, placement);
                }
            }
        }
        better
    }

    fn offer(&mut self, value: f64, placement: Placement) -> bool {
        let better = value < self.value;
        if better {
            self.value = value;
            let most = as_good_as(value);
            self.placements.retain(|(kept, _)| *kept <= most);
        }
        let used = placement.used();
        let covered = self.placements.iter().any(|(v, kept)| *v <= value && kept.used() <= used);
        if value <= as_good_as(self.value) && !covered {
            self.placements.push((value, placement));
        }
        better
    }

    /// Of those that are as good as the best, the one on the fewest slots.
    fn fewest(&self) -> Option<&Placement> {
        self.placements.iter().map(|(_, placement)| placement).min_by_key(|placement| placement.used())
    }

    /// Lets two slots of the best order change places while that helps: any two where that is cheap, else neighbours.
    fn exchange(&mut self, lower: f64) {
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            let Some((_, first)) = self.placements.first() else { return };
            let order = first.order.clone();
            let tries = SEARCH / latency::steps(self.problem, &order).max(1);
            let far = if tries >= order.len() * order.len() / 2 { order.len() } else { 1 };
            if self.value <= as_good_as(lower) || tries < order.len() {
                return;
            }
            let mut better = false;
            for a in 0..order.len() {
                for b in a + 1..order.len().min(a + 1 + far) {
                    let mut other = order.clone();
                    other.swap(a, b);
                    better |= self.try_order(&other);
                }
            }
            if !better {
                return;
            }
        }
    }

    /// Leaves out one used slot after the other while the sum stays as good: a programme over sums takes whatever is less,
    /// though it be only in the last digit.
    fn with_fewer(&mut self) {
        const MOST: usize = 16;
        while let Some(fewest) = self.fewest() {
            let order: Vec<usize> = fewest.stages().map(|stage| stage.0).collect();
            if order.len() > MOST {
                return;
            }
            for left_out in 0..order.len() {
                let mut others = order.clone();
                others.remove(left_out);
                self.try_order(&others);
            }
            if self.fewest().is_none_or(|now| now.used() >= order.len()) {
                return;
            }
        }
    }
}

/// The smallest sum over the plain orders of all slots.
#[cfg(test)]
pub(super) fn of_all_slots(problem: &Problem) -> f64 {
    let ranked = by_cost(problem, &LatencyRates::new(problem));
    let values = ALL.iter().filter_map(|&kind| in_order(problem, &arranged(problem, &ranked, kind)));
    values.map(|(value, _)| value).fold(f64::INFINITY, f64::min)
}

/// The same over the first slots, and more as long as the last ones are of use.
#[cfg(test)]
pub(super) fn of_the_first_slots(problem: &Problem) -> f64 {
    let mut best = Best { problem, value: f64::INFINITY, placements: Vec::new() };
    best.try_first(&by_cost(problem, &LatencyRates::new(problem)), ALL);
    best.value
}

/// How many of these slots the linear programme fills, or makes use of.
fn filled(problem: &Problem, ranked: &[usize]) -> usize {
    let total = u128::from(Chain::smallest(&problem.chains).load(0, problem.items()));
    let mut rooms = 0_u128;
    let enough = ranked.iter().position(|&slot| {
        rooms += u128::from(problem.slots[slot].room);
        rooms >= total
    });
    enough.map_or(ranked.len(), |at| at + 1)
}

/// By what slots are ordered, and whether those of a group follow each other.
#[derive(Clone, Copy)]
enum By {
    Cost,
    Room,
    Rate,
    CostTogether,
    RoomTogether,
    RateTogether,
}

const ALL: &[By] = &[By::CostTogether, By::RoomTogether, By::RateTogether, By::Cost, By::Room, By::Rate];
const FEW: &[By] = &[By::CostTogether, By::RoomTogether];

/// The slots by what a byte costs there.
fn by_cost(problem: &Problem, rates: &LatencyRates) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.slots.len()).collect();
    order.sort_by(|&a, &b| rates.unit_cost(a).total_cmp(&rates.unit_cost(b)).then(a.cmp(&b)));
    order
}

fn arranged(problem: &Problem, by_cost: &[usize], by: By) -> Vec<usize> {
    let slots = &problem.slots;
    let mut order = by_cost.to_vec();
    match by {
        By::Cost | By::CostTogether => {}
        By::Room | By::RoomTogether => {
            order.sort_by(|&a, &b| slots[b].room.cmp(&slots[a].room).then(a.cmp(&b)));
        }
        By::Rate | By::RateTogether => {
            order.sort_by(|&a, &b| slots[b].rate.total_cmp(&slots[a].rate).then(a.cmp(&b)));
        }
    }
    if matches!(by, By::CostTogether | By::RoomTogether | By::RateTogether) {
        // The groups in the order in which they first come up, their slots together: no way is gone twice.
        let mut first = BTreeMap::new();
        for (at, &slot) in order.iter().enumerate() {
            first.entry(slots[slot].group).or_insert(at);
        }
        order.sort_by_key(|&slot| first[&slots[slot].group]);
    }
    order
}

/// An order with the unused slots behind it, the fastest first.
fn with_rest(problem: &Problem, order: &[usize]) -> Vec<usize> {
    let mut used = vec![false; problem.slots.len()];
    for &slot in order {
        used[slot] = true;
    }
    let mut rest: Vec<usize> = (0..used.len()).filter(|&slot| !used[slot]).collect();
    rest.sort_by(|&a, &b| problem.slots[b].rate.total_cmp(&problem.slots[a].rate).then(a.cmp(&b)));
    order.iter().copied().chain(rest).collect()
}

/// The smallest sum in this order, or, where the table would be too large, among its first slots.
fn in_order(problem: &Problem, order: &[usize]) -> Option<(f64, Placement)> {
    let mut length = order.len();
    while length > 1 && latency::steps(problem, &order[..length]) > STEPS {
        length = length * 3 / 4;
    }
    if let Some(solved) = latency::in_order(problem, &order[..length]) {
        return Some(solved);
    }
    if length == order.len() {
        return None;
    }
    let placement = walk::fill(problem, order)?;
    Some((sum(problem, &placement), placement))
}

/// Stage times and hops of a placement.
pub(crate) fn sum(problem: &Problem, placement: &Placement) -> f64 {
    let mut previous = problem.hops.through;
    let mut seconds = 0.0;
    for (index, start, end) in placement.stages() {
        let slot = &problem.slots[index];
        if let Some(group) = previous {
            seconds += problem.hops.way(group, slot.group, false).seconds(problem.hops.beyond(start));
        }
        seconds += problem.cost(slot, start, end);
        previous = Some(slot.group);
    }
    seconds
}
