//! The best placement that a strategy finds, and what is proven of it.

use super::class::Sets;
use super::subset::{self, Found};
use super::{Placement, Problem, bounds, fewest, free, latency, leximax, minmax, orders, walk};
use crate::keep::as_good_as;

/// What a placement should be good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The fewest slots, then the smallest largest cost.
    Fewest,
    /// The smallest largest cost, then the next largest.
    MinMax,
    /// The smallest sum of costs and hops.
    Sum,
}

/// In which orders slots are tried.
#[derive(Clone, Debug)]
pub(crate) enum Tries {
    /// Several, all where they are few, and an exact search for a fit.
    Portfolio,
    /// The largest room first.
    LargestFirst,
    /// This one.
    Given(Vec<usize>),
}

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Solved {
    /// The best placement found.
    pub(crate) placement: Option<Placement>,
    /// Nothing is better than this; infinite when it is proven that nothing fits.
    pub(crate) lower: f64,
    /// How many bytes larger one slot would have to be in the best attempt, where none fits.
    pub(crate) missing: Option<u64>,
}

/// How many drawn orders there are.
const SEEDS: u64 = 32;

/// The most steps of one latency programme: slots × items, and once more slots where every pair of groups is its own.
const STEPS: usize = 4_000_000;

/// Placements of equal largest cost that are compared further.
const TIES: usize = 256;

/// Solves a problem that has at least one item.
pub(crate) fn solve(problem: &Problem, goal: Goal, tries: &Tries) -> Solved {
    if bounds::hopeless(problem) {
        return Solved { placement: None, lower: f64::INFINITY, missing: missing(problem, tries) };
    }
    match goal {
        Goal::Fewest => fewest::fewest(problem, tries),
        Goal::MinMax if matches!(tries, Tries::Portfolio) => free::min_max(problem, None),
        Goal::MinMax | Goal::Sum => in_orders(problem, goal, tries, None),
    }
}

/// The best of the orders that are tried, and of one that is known.
pub(super) fn in_orders(problem: &Problem, goal: Goal, tries: &Tries, known: Option<&[usize]>) -> Solved {
    let lower = match goal {
        Goal::Sum => bounds::latency(problem),
        _ => bounds::min_max(problem),
    };
    let (orders, complete) = orders_of(problem, goal, tries);
    let mut found = Best::new(problem, goal, lower);
    for order in orders.iter().map(Vec::as_slice).chain(known) {
        found.try_order(order);
        // Where ties are not compared, what reaches the bound is not looked for again.
        if goal == Goal::Sum && found.value().is_some_and(|value| value <= lower) {
            break;
        }
    }
    if complete {
        found.with_fewer();
        let lower = found.value().unwrap_or(f64::INFINITY);
        return found.finish(lower, tries);
    }
    let mut never = false;
    if found.value().is_none() {
        match subset::decide(problem) {
            Found::Fits(order) if matches!(tries, Tries::Portfolio) => {
                found.try_order(&orders::extended(problem, &order));
            }
            Found::Never => never = true,
            Found::Fits(_) | Found::Unknown => {}
        }
    }
    if matches!(tries, Tries::Portfolio) {
        found.exchange();
    }
    found.with_fewer();
    found.finish(if never { f64::INFINITY } else { lower }, tries)
}

/// The orders to try, and whether these are all that there are.
pub(super) fn orders_of(problem: &Problem, goal: Goal, tries: &Tries) -> (Vec<Vec<usize>>, bool) {
    let single = |order: Vec<usize>| (orders::shortened(problem, &order).0, problem.slots.len() < 2);
    match tries {
        Tries::LargestFirst => single(orders::largest_first(problem)),
        Tries::Given(order) => single(order.clone()),
        Tries::Portfolio => {
            if let Some(every) = orders::every(problem) {
                return (every, true);
            }
            let mut orders: Vec<Vec<usize>> = Vec::new();
            for order in orders::plain(problem) {
                orders.extend(orders::shortened(problem, &order).0.into_iter().take(TIES));
            }
            // A latency table costs more than a walk, and drawn orders serve the fit, not the sum.
            let seeds = if goal == Goal::Sum { SEEDS / 8 } else { SEEDS };
            orders.extend(drawn(problem, seeds).iter().map(|order| orders::extended(problem, order)));
            (orders, false)
        }
    }
}

/// Orders by sampled best fit.
fn drawn(problem: &Problem, seeds: u64) -> Vec<Vec<usize>> {
    let reach = |slot: usize, start: usize| {
        let slot = &problem.slots[slot];
        problem.chain(slot).reach(start, slot.room)
    };
    (0..seeds).filter_map(|seed| walk::best_fit(problem, seed, reach)).collect()
}

/// The best placements so far.
struct Best<'a> {
    problem: &'a Problem,
    goal: Goal,
    lower: f64,
    value: f64,
    // All as good as the best one, in the order in which they were found, with their values.
    placements: Vec<(f64, Placement)>,
}

impl<'a> Best<'a> {
    fn new(problem: &'a Problem, goal: Goal, lower: f64) -> Self {
        Self { problem, goal, lower, value: f64::INFINITY, placements: Vec::new() }
    }

    fn value(&self) -> Option<f64> {
        (!self.placements.is_empty()).then_some(self.value)
    }

    /// Solves one order; whether it is better than all before.
    fn try_order(&mut self, order: &[usize]) -> bool {
        let solved = match self.goal {
            Goal::Sum => sum_in_order(self.problem, order),
            _ => minmax::in_order(self.problem, order, self.lower),
        };
        solved.is_some_and(|(value, placement)| self.offer(value, placement))
    }

    fn offer(&mut self, value: f64, placement: Placement) -> bool {
        let better = self.placements.is_empty() || value < self.value;
        if better {
            self.value = value;
            let most = self.as_good();
            self.placements.retain(|(value, _)| *value <= most);
        }
        // Of sums only the number of slots is compared further.
        let covered = self.goal == Goal::Sum
            && self.placements.iter().any(|(v, kept)| *v <= value && kept.used() <= placement.used());
        if better || (value <= self.as_good() && !covered && self.placements.len() < TIES) {
            self.placements.push((value, placement));
        }
        better
    }

    /// The largest value that is as good as the best one. Largest costs are compared to the last digit: they are divided
    /// once, while sums differ by the order in which they are added up.
    fn as_good(&self) -> f64 {
        if self.goal == Goal::Sum { as_good_as(self.value) } else { self.value }
    }

    /// Lets two slots of the best order change places while that helps.
    fn exchange(&mut self) {
        const ROUNDS: usize = 4;
        let slots = self.problem.slots.len();
        if slots > 24 || slots * slots * self.problem.items() > STEPS / 40 {
            return;
        }
        for _ in 0..ROUNDS {
            let Some((_, first)) = self.placements.first() else { return };
            let order = orders::extended(self.problem, &first.order);
            let mut better = false;
            for a in 0..order.len() {
                for b in a + 1..order.len() {
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
        if self.goal != Goal::Sum {
            return;
        }
        let fewest = |placements: &[(f64, Placement)]| -> Option<Vec<usize>> {
            let least = placements.iter().map(|(_, placement)| placement).min_by_key(|p| p.used())?;
            Some(least.stages().map(|stage| stage.0).collect())
        };
        while let Some(order) = fewest(&self.placements) {
            if order.len() > MOST {
                return;
            }
            for left_out in 0..order.len() {
                let mut others = order.clone();
                others.remove(left_out);
                self.try_order(&others);
            }
            if fewest(&self.placements).is_none_or(|now| now.len() >= order.len()) {
                return;
            }
        }
    }

    fn finish(self, lower: f64, tries: &Tries) -> Solved {
        let problem = self.problem;
        let placement = match self.goal {
            Goal::Sum => {
                self.placements.into_iter().map(|(_, placement)| placement).min_by_key(Placement::used)
            }
            _ => evenest(problem, self.placements.iter().map(|(_, placement)| placement), self.value),
        };
        let missing = if placement.is_none() { missing(problem, tries) } else { None };
        Solved { placement, lower, missing }
    }
}

/// The placement with the least costs from the largest down.
fn evenest<'a>(
    problem: &Problem,
    placements: impl Iterator<Item = &'a Placement>,
    bound: f64,
) -> Option<Placement> {
    let mut best: Option<(Vec<f64>, Placement)> = None;
    for placement in placements {
        let refined = leximax::refine(problem, placement, bound);
        let costs = leximax::costs(problem, &refined);
        if best.as_ref().is_none_or(|(least, _)| leximax::compare(&costs, least).is_lt()) {
            best = Some((costs, refined));
        }
    }
    best.map(|(_, placement)| placement)
}

/// The smallest sum in this order, or, where the table would be too large, among its first slots.
fn sum_in_order(problem: &Problem, order: &[usize]) -> Option<(f64, Placement)> {
    let items = problem.items();
    let mut length = order.len();
    let pairs =
        |length: usize| if latency::is_uniform(problem) { length } else { length.saturating_mul(length) };
    while length > 1 && pairs(length).saturating_mul(items) > STEPS {
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
fn sum(problem: &Problem, placement: &Placement) -> f64 {
    let mut previous = None;
    let mut seconds = 0.0;
    for (index, start, end) in placement.stages() {
        let slot = &problem.slots[index];
        seconds += match previous {
            Some(group) => problem.hops.seconds(group, slot.group),
            None => problem.hops.first_hop(slot.group),
        };
        seconds += problem.cost(slot, start, end);
        previous = Some(slot.group);
    }
    seconds
}

pub(super) fn counted(n: usize) -> f64 {
    super::as_f64(u64::try_from(n).unwrap_or(u64::MAX))
}

/// The fewest bytes by which one slot would have to be larger: the last of every order, or of those tried.
pub(super) fn missing(problem: &Problem, tries: &Tries) -> Option<u64> {
    if matches!(tries, Tries::Portfolio) {
        if let Some(sets) = Sets::new(problem) {
            return sets.missing();
        }
        let orders = orders::plain(problem);
        let shortened =
            orders.iter().flat_map(|order| orders::shortened(problem, order).0.into_iter().take(TIES));
        return shortened.filter_map(|order| walk::missing(problem, &order)).min();
    }
    let (orders, _) = orders_of(problem, Goal::MinMax, tries);
    orders.iter().filter_map(|order| walk::missing(problem, order)).min()
}
