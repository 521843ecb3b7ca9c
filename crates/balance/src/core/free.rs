//! The smallest largest cost over every order of the slots.
//!
//! Where slots are few, or of few kinds, exactly: see [`super::class`]. Otherwise by halving between a lower bound and the
//! best that is known, with an order drawn by best fit under each bound; how far that may be from the optimum is then what
//! the lower bound says.

use super::class::Sets;
use super::effort::Effort;
use super::solve::{Solved, Tries, missing};
use super::subset::{self, Found};
use super::{Placement, Problem, Slot, as_f64, bounds, fit, leximax, minmax, orders, ties};

/// Solves a problem that is not hopeless; `known` is an order that fits.
pub(crate) fn min_max(problem: &Problem, known: Option<&[usize]>) -> Solved {
    let solved = match Sets::new(problem) {
        Some(sets) => every_order(&sets, known),
        None => drawn_orders(problem, known),
    };
    let (placement, lower) = solved.unwrap_or((None, f64::INFINITY));
    let missing = if placement.is_none() { missing(problem, &Tries::Portfolio) } else { None };
    Solved { placement, lower, missing }
}

/// The optimum; `None` where nothing fits.
fn every_order(sets: &Sets<'_>, known: Option<&[usize]>) -> Option<(Option<Placement>, f64)> {
    let problem = sets.problem;
    let lower = bounds::min_max(problem);
    let mut best = Best::new(problem, lower);
    for order in few_orders(problem).iter().map(Vec::as_slice).chain(known) {
        best.try_order(order);
    }
    // Where a sweep takes less than a draw, there is no need to come close first.
    if sets.states > 1 << 11 {
        best.lower_the_largest();
    }
    if best.known.is_none() {
        best.try_order(&sets.any()?);
    }
    let (value, placement, proven) = sets.min_max(lower, best.known?);
    let even = ties::evenest(sets, value).unwrap_or_else(|| leximax::refine(problem, &placement, value));
    Some((Some(even), if proven { value } else { lower }))
}

/// The best that is found; `None` where it is proven that nothing fits.
pub(super) fn drawn_orders(problem: &Problem, known: Option<&[usize]>) -> Option<(Option<Placement>, f64)> {
    let lower = bounds::min_max(problem);
    let mut best = Best::new(problem, lower);
    for order in few_orders(problem).iter().map(Vec::as_slice).chain(known) {
        best.try_order(order);
    }
    if best.known.is_none() {
        match subset::decide(problem) {
            Found::Fits(order) => best.try_order(&order),
            Found::Never => return None,
            Found::Unknown => false,
        };
    }
    best.lower_the_largest();
    best.exchange();
    let placement = best.known.map(|(value, placement)| leximax::refine(problem, &placement, value));
    Some((placement, lower))
}

/// The orders to begin with: the fastest, the largest and the smallest first, of as many slots as may be used.
fn few_orders(problem: &Problem) -> Vec<Vec<usize>> {
    let by = |better: &dyn Fn(&Slot, &Slot) -> std::cmp::Ordering| {
        let mut order: Vec<usize> = (0..problem.slots.len()).collect();
        order.sort_by(|&a, &b| better(&problem.slots[a], &problem.slots[b]).then(a.cmp(&b)));
        order
    };
    let fastest = by(&|a, b| b.rate.total_cmp(&a.rate));
    let largest = by(&|a, b| b.room.cmp(&a.room));
    /// With more slots than this, what the smallest ones waste in front is never won back.
    const SMALLEST: usize = 64;
    let mut smallest = largest.clone();
    smallest.truncate(problem.limit);
    smallest.reverse();
    let mut orders = vec![fastest, largest];
    if problem.slots.len() <= SMALLEST {
        orders.push(smallest);
    }
    for order in &mut orders {
        order.truncate(problem.limit);
    }
    orders.dedup();
    orders
}

/// The best placement so far.
struct Best<'a> {
    problem: &'a Problem,
    lower: f64,
    known: Option<(f64, Placement)>,
}

impl<'a> Best<'a> {
    fn new(problem: &'a Problem, lower: f64) -> Self {
        Self { problem, lower, known: None }
    }

    /// Solves one order; whether it is better than all before.
    fn try_order(&mut self, order: &[usize]) -> bool {
        let Some((value, placement)) = minmax::in_order(self.problem, order, self.lower) else {
            return false;
        };
        let better = self.known.as_ref().is_none_or(|(known, _)| value < *known);
        if better {
            self.known = Some((value, placement));
        }
        better
    }

    /// Asks for a lower largest cost than the best one, by best fit under bounds between it and what none is below.
    ///
    /// The next bound follows from what was left: items where it failed, slots where it did not.
    fn lower_the_largest(&mut self) {
        /// Closer than this share is close enough.
        const CLOSE: f64 = 1e-3;
        const STEPS: u64 = 12;
        /// With more slots than this, one draw takes as long as all of them with few, and comes closer to the bound.
        const MANY: usize = 200;
        /// Draws under one bound, where there are few slots.
        const SEEDS: u64 = 4;
        let Some((mut high, _)) = self.known else { return };
        let problem = self.problem;
        let many = problem.slots.len() > MANY;
        let (seeds, most, first) = if many { (1, STEPS * 3 / 4, 8.0) } else { (SEEDS, STEPS, 2.0) };
        let rates: f64 = problem.slots.iter().map(|slot| slot.rate).sum();
        let (mut low, mut bound) = (self.lower, self.lower + (high - self.lower) / first);
        let mut best: Option<Vec<usize>> = None;
        let effort = Effort::new(fit::STEPS);
        let needs = fit::Needs::new(problem);
        for step in 0..most {
            if low >= high * (1.0 - CLOSE) {
                break;
            }
            let fit = fit::Fit::new(problem, &needs, bound);
            let mut reached = 0;
            let mut kept =
                |drawn: Result<fit::Drawn, usize>| drawn.map_err(|at| reached = reached.max(at)).ok();
            let drawn = match fit.by_kinds(&effort) {
                Some(by_kinds) => kept(by_kinds),
                None => (0..seeds).find_map(|seed| kept(fit.order(step * seeds + seed, &effort))),
            };
            let near = high * CLOSE / 2.0;
            match drawn {
                Some(drawn) => {
                    high = drawn.largest.min(bound);
                    best = Some(drawn.slots);
                    bound = (high - as_f64(drawn.unused) / rates).min(high - near).max(middle(low, high));
                }
                None => {
                    low = bound;
                    let left = as_f64(problem.chains[0].cost(reached, problem.items()));
                    bound = (low + 1.05 * left / rates).max(low + near).min(middle(low, high));
                }
            }
        }
        if let Some(order) = best {
            self.try_order(&orders::extended(problem, &order));
        }
    }

    /// Lets two slots of the best order change places while that helps.
    fn exchange(&mut self) {
        const ROUNDS: usize = 4;
        const SLOTS: usize = 24;
        const STEPS: usize = 100_000;
        let slots = self.problem.slots.len();
        if slots > SLOTS || slots * slots * self.problem.items() > STEPS {
            return;
        }
        for _ in 0..ROUNDS {
            let Some((_, known)) = &self.known else { return };
            let order = orders::extended(self.problem, &known.order);
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
}

fn middle(low: f64, high: f64) -> f64 {
    low + (high - low) / 2.0
}
