//! The best placement that a strategy finds, and what is proven of it.

use super::subset::{self, Found};
use super::{Placement, Problem, bounds, latency, leximax, minmax, orders, sum, walk};
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
        Goal::Fewest => fewest(problem, tries),
        Goal::MinMax => best(problem, goal, tries),
        Goal::Sum => sum::solve(problem, tries),
    }
}

fn best(problem: &Problem, goal: Goal, tries: &Tries) -> Solved {
    let lower = match goal {
        Goal::Sum => bounds::latency(problem),
        _ => bounds::min_max(problem),
    };
    let (orders, complete) = orders_of(problem, goal, tries);
    let mut found = Best::new(problem, goal, lower);
    for order in &orders {
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
        match subset::search(problem, problem.limit) {
            Found::Fits(order) if matches!(tries, Tries::Portfolio) => {
                found.try_order(&extended(problem, &order));
            }
            Found::Never => never = true,
            Found::Fits(_) | Found::Unknown => {}
        }
    }
    if matches!(tries, Tries::Portfolio) {
        found.lower_the_largest();
        found.exchange();
    }
    found.with_fewer();
    found.finish(if never { f64::INFINITY } else { lower }, tries)
}

/// The orders to try, and whether these are all that there are.
fn orders_of(problem: &Problem, goal: Goal, tries: &Tries) -> (Vec<Vec<usize>>, bool) {
    let single = |order: Vec<usize>| (orders::shortened(problem, &order).0, problem.slots.len() < 2);
    match tries {
        Tries::LargestFirst => single(orders::largest_first(problem)),
        Tries::Given(order) => single(order.clone()),
        Tries::Portfolio => {
            if let Some(every) = orders::every(problem, goal == Goal::Sum) {
                return (every, true);
            }
            let mut orders: Vec<Vec<usize>> = Vec::new();
            for order in orders::plain(problem) {
                orders.extend(orders::shortened(problem, &order).0.into_iter().take(TIES));
            }
            // A latency table costs more than a walk, and drawn orders serve the fit, not the sum.
            let seeds = if goal == Goal::Sum { SEEDS / 8 } else { SEEDS };
            orders.extend(drawn(problem, seeds).iter().map(|order| extended(problem, order)));
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

/// An order with the unused slots behind it, the fastest first, up to the limit.
fn extended(problem: &Problem, order: &[usize]) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..problem.slots.len()).collect();
    let mut used = vec![false; rest.len()];
    for &slot in order {
        used[slot] = true;
    }
    rest.retain(|&slot| !used[slot]);
    rest.sort_by(|&a, &b| problem.slots[b].rate.total_cmp(&problem.slots[a].rate).then(a.cmp(&b)));
    order.iter().copied().chain(rest).take(problem.limit).collect()
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

    /// Asks for a lower largest cost than the best one, by sampled best fit under that bound.
    fn lower_the_largest(&mut self) {
        if self.goal != Goal::MinMax || self.placements.is_empty() {
            return;
        }
        let problem = self.problem;
        let mut low = self.lower;
        for step in 0..10 {
            if low >= self.value {
                break;
            }
            let bound = low + (self.value - low) / 2.0;
            let reach =
                |slot: usize, start: usize| minmax::reach(problem, &problem.slots[slot], start, bound);
            let order = (0..4).find_map(|seed| walk::best_fit(problem, step * 4 + seed, reach));
            let lower = order.is_some_and(|order| self.try_order(&extended(problem, &order)));
            if !lower {
                low = bound;
            }
        }
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
            let order = extended(self.problem, &first.order);
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
    Some((sum::sum(problem, &placement), placement))
}

fn fewest(problem: &Problem, tries: &Tries) -> Solved {
    let mut least = bounds::fewest(problem).unwrap_or(usize::MAX);
    let (orders, complete) = orders_of(problem, Goal::Fewest, tries);
    let mut fits: Option<Vec<usize>> = None;
    let mut used = usize::MAX;
    for placement in orders.iter().filter_map(|order| walk::fill(problem, order)) {
        if placement.used() < used {
            used = placement.used();
            fits = Some(placement.stages().map(|stage| stage.0).collect());
        }
    }
    if fits.is_none() && complete {
        return Solved { placement: None, lower: f64::INFINITY, missing: missing(problem, tries) };
    }
    // A walk uses the slots as they come; with fewer ones, a search has to choose which.
    let mut count = least;
    while count < used && count <= problem.limit.min(problem.slots.len()) {
        let found = subset::search(problem, count);
        if matches!(found, Found::Never) && least == count {
            least = count + 1;
        }
        let order = match (found, tries) {
            (Found::Never, _) => None,
            (Found::Fits(order), Tries::Portfolio) => Some(order),
            (Found::Unknown, Tries::Portfolio) => None,
            (Found::Fits(_) | Found::Unknown, _) => filled_by(problem, count, &orders),
        };
        if let Some(order) = order {
            used = order.len();
            fits = Some(order);
        }
        count += 1;
    }
    let Some(fits) = fits else {
        let never = least > problem.limit.min(problem.slots.len());
        let lower = if never { f64::INFINITY } else { counted(least) };
        return Solved { placement: None, lower, missing: missing(problem, tries) };
    };
    let mut few = problem.clone();
    few.limit = used;
    let mut found = Best::new(&few, Goal::MinMax, 0.0);
    for order in orders_of(&few, Goal::MinMax, tries).0.iter().chain([&fits]) {
        found.try_order(order);
    }
    found.finish(counted(least), tries)
}

fn counted(n: usize) -> f64 {
    super::as_f64(u64::try_from(n).unwrap_or(u64::MAX))
}

/// A choice of `count` slots of one of these orders, in its sequence, that fits.
fn filled_by(problem: &Problem, count: usize, orders: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut few = problem.clone();
    few.limit = count;
    let choices = orders.iter().flat_map(|order| orders::shortened(&few, order).0);
    choices
        .filter_map(|order| walk::fill(&few, &order))
        .next()
        .map(|placement| placement.stages().map(|stage| stage.0).collect())
}

/// The fewest bytes by which one slot would have to be larger, over the orders tried.
pub(crate) fn missing(problem: &Problem, tries: &Tries) -> Option<u64> {
    let (orders, _) = orders_of(problem, Goal::MinMax, tries);
    orders.iter().filter_map(|order| walk::missing(problem, order)).min()
}
