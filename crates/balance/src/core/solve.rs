//! The best placement that a strategy finds, and what is proven of it.

use super::class::Sets;
use super::subset;
use super::{Placement, Problem, bounds, fewest, free, leximax, minmax, orders, sum, walk};

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

impl Solved {
    /// No placement, and none is better than this.
    pub(super) fn nothing(lower: f64) -> Self {
        Self { placement: None, lower, missing: None }
    }
}

/// Placements of equal largest cost that are compared further.
pub(super) const TIES: usize = 256;

/// Solves a problem that has at least one item.
pub(crate) fn solve(problem: &Problem, goal: Goal, tries: &Tries) -> Solved {
    if bounds::hopeless(problem) {
        return Solved { placement: None, lower: f64::INFINITY, missing: missing(problem, tries) };
    }
    match goal {
        Goal::Fewest => fewest::fewest(problem, tries),
        Goal::MinMax if matches!(tries, Tries::Portfolio) => free::min_max(problem, None),
        Goal::MinMax => in_orders(problem, tries, None),
        Goal::Sum => sum::solve(problem, tries),
    }
}

/// The smallest largest cost of the order that is asked for, and of one that is known.
pub(super) fn in_orders(problem: &Problem, tries: &Tries, known: Option<&[usize]>) -> Solved {
    let lower = bounds::min_max(problem);
    let mut value = f64::INFINITY;
    // All as good as the best one to the last digit: costs are divided once.
    let mut placements: Vec<Placement> = Vec::new();
    let orders = orders_of(problem, tries);
    for order in orders.iter().map(Vec::as_slice).chain(known) {
        let Some((reached, placement)) = minmax::in_order(problem, order, lower) else { continue };
        if reached < value {
            value = reached;
            placements.clear();
        }
        if reached <= value && placements.len() < TIES {
            placements.push(placement);
        }
    }
    let only = problem.slots.len() < 2;
    let never = placements.is_empty() && (only || subset::is_never(problem));
    let lower = match (never, only) {
        (true, _) => f64::INFINITY,
        (false, true) => value,
        (false, false) => lower,
    };
    let placement = evenest(problem, placements.iter(), value);
    let missing = if placement.is_none() { missing(problem, tries) } else { None };
    Solved { placement, lower, missing }
}

/// The order that is asked for, where some slots may not be used in every way to leave some out; a few plain ones where
/// any order will do.
pub(super) fn orders_of(problem: &Problem, tries: &Tries) -> Vec<Vec<usize>> {
    let asked = match tries {
        Tries::LargestFirst => vec![orders::largest_first(problem)],
        Tries::Given(order) => vec![order.clone()],
        Tries::Portfolio => orders::plain(problem),
    };
    asked.iter().flat_map(|order| orders::shortened(problem, order).0.into_iter().take(TIES)).collect()
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

pub(super) fn counted(n: usize) -> f64 {
    super::as_f64(u64::try_from(n).unwrap_or(u64::MAX))
}

/// The fewest bytes by which one slot would have to be larger: the last of every order, or of those tried.
pub(crate) fn missing(problem: &Problem, tries: &Tries) -> Option<u64> {
    if matches!(tries, Tries::Portfolio)
        && let Some(sets) = Sets::new(problem)
    {
        return sets.missing();
    }
    orders_of(problem, tries).iter().filter_map(|order| walk::missing(problem, order)).min()
}
