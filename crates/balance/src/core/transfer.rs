//! The smallest largest stage time where what passes between stages counts as well.
//!
//! A parametric search as for stage times alone: whether every stage can stay within a bound is a table, over one order or
//! over all of them, and the bound is halved between one that cannot be kept and the value of a placement until nothing
//! that differs by more than rounding lies between them.

use super::masks::{self, Tables};
use super::sets::Sets;
use super::solve::{Solved, Tries, missing};
use super::subset::{self, Found};
use super::table::{self, Rule};
use super::{Placement, Problem, bounds, orders, sites, walk};

/// How far apart the ends of a search may be when it stops, relative to them: less than what is told apart anywhere.
const CLOSE: f64 = 2e-12;

/// The most steps of one table over an order, beyond which its last slots are left out.
const STEPS: usize = 8_000_000;

/// The most steps of all tables of a local search.
const SEARCH: usize = 4_000_000;

/// How a stage's time counts what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The larger of its own time and what it sends.
    Overlapped,
    /// What it receives, its own time, and what it sends.
    Added,
}

impl Counted {
    const fn within(self, bound: f64) -> Rule {
        match self {
            Self::Overlapped => Rule::Overlapped { bound },
            Self::Added => Rule::Added { bound },
        }
    }

    /// A stage's time with what passes.
    pub(crate) const fn stage(self, receives: f64, own: f64, sends: f64) -> f64 {
        match self {
            Self::Overlapped => own.max(sends),
            Self::Added => receives + own + sends,
        }
    }

    /// Whether the two links of a way through the main node overlap.
    pub(crate) const fn slower(self) -> bool {
        matches!(self, Self::Overlapped)
    }
}

/// Solves a problem that has at least one item.
///
/// `lead` is the main group's own time before the first item, where everything passes such a group; zero elsewhere. It
/// sends as every stage does.
pub(crate) fn solve(problem: &Problem, counted: Counted, lead: f64, tries: &Tries) -> Solved {
    if bounds::hopeless(problem) {
        return Solved { placement: None, lower: f64::INFINITY, missing: missing(problem, tries) };
    }
    let lower = bounds::min_max(problem).max(lead);
    let mut best = Best { problem, counted, lead, floor: lower, found: None };
    let lower = match tries {
        Tries::Given(order) => best.only(order),
        Tries::LargestFirst => best.only(&orders::largest_first(problem)),
        Tries::Portfolio => match Sets::new(problem) {
            Some(sets) => best.of_every_order(&sets),
            None => best.of_some_orders(),
        },
    };
    let placement = best.found.map(|(_, placement)| placement);
    let missing = if placement.is_none() { missing(problem, tries) } else { None };
    Solved { placement, lower, missing }
}

/// The largest stage time of a placement.
pub(crate) fn largest(problem: &Problem, counted: Counted, lead: f64, placement: &Placement) -> f64 {
    let stages: Vec<_> = placement.stages().collect();
    let way = |from: usize, to: usize, boundary: usize| {
        problem.hops.way(from, to, counted.slower()).seconds(problem.hops.beyond(boundary))
    };
    let group = |at: usize| stages.get(at).map(|stage| problem.slots[stage.0].group);
    let entry = match (problem.hops.through, group(0)) {
        (Some(main), Some(first)) => way(main, first, 0),
        _ => 0.0,
    };
    let mut receives = entry;
    let mut most = counted.stage(0.0, lead, entry);
    for (at, &(index, start, end)) in stages.iter().enumerate() {
        let slot = &problem.slots[index];
        let sends = group(at + 1).map_or(0.0, |next| way(slot.group, next, end));
        most = most.max(counted.stage(receives, problem.cost(slot, start, end), sends));
        receives = sends;
    }
    most
}

struct Best<'a> {
    problem: &'a Problem,
    counted: Counted,
    lead: f64,
    /// Nothing is below this.
    floor: f64,
    found: Option<(f64, Placement)>,
}

impl Best<'_> {
    fn value(&self) -> f64 {
        self.found.as_ref().map_or(f64::INFINITY, |(value, _)| *value)
    }

    /// One order; what is proven of all.
    fn only(&mut self, order: &[usize]) -> f64 {
        for order in orders::shortened(self.problem, order).0 {
            self.try_order(&order);
        }
        if self.problem.slots.len() < 2 { self.value().max(self.floor) } else { self.unless_never() }
    }

    /// The floor; infinite where a search shows that nothing fits.
    fn unless_never(&self) -> f64 {
        let never = self.found.is_none() && subset::is_never(self.problem);
        if never { f64::INFINITY } else { self.floor }
    }

    /// Every order of every set of slots: what comes out is proven to be the least.
    fn of_every_order(&mut self, sets: &Sets) -> f64 {
        for order in self.plain_orders() {
            self.try_order(&order);
        }
        let (problem, counted, lead) = (self.problem, self.counted, self.lead);
        let mut tables = Tables::default();
        let keeps = |bound: f64| {
            let found = masks::search(problem, sets, counted.within(bound), lead, &mut tables);
            found.map(|(_, placement)| placement)
        };
        self.narrow(keeps)
    }

    fn of_some_orders(&mut self) -> f64 {
        let problem = self.problem;
        for order in self.plain_orders() {
            self.try_order(&order);
        }
        if self.found.is_none() {
            match subset::decide(problem) {
                Found::Fits(order) => {
                    self.try_order(&order);
                }
                Found::Never => return f64::INFINITY,
                Found::Unknown => {}
            }
        }
        self.exchange();
        self.floor
    }

    /// Orders in which sites are passed one after the other, and plain ones, of as many slots as may be used.
    fn plain_orders(&self) -> Vec<Vec<usize>> {
        const CHOICES: usize = 16;
        let problem = self.problem;
        let mut orders: Vec<Vec<usize>> = Vec::new();
        for plain in orders::plain(problem) {
            let sites = sites::passed_quickly(problem, &plain);
            let mut place = vec![0; sites.iter().max().map_or(0, |most| most + 1)];
            for (at, &group) in sites.iter().enumerate() {
                place[group] = at;
            }
            let mut there = plain.clone();
            there.sort_by_key(|&slot| place[problem.slots[slot].group]);
            let mut back = plain.clone();
            back.sort_by_key(|&slot| usize::MAX - place[problem.slots[slot].group]);
            for order in [there, back, plain] {
                for order in orders::shortened(problem, &order).0.into_iter().take(CHOICES) {
                    if !orders.contains(&order) {
                        orders.push(order);
                    }
                }
            }
        }
        orders
    }

    /// Solves one order; whether it is better than all before.
    fn try_order(&mut self, order: &[usize]) -> bool {
        let (problem, counted, lead) = (self.problem, self.counted, self.lead);
        let mut length = order.len();
        while length > 1 && steps(problem, &order[..length]) > STEPS {
            length = length * 3 / 4;
        }
        let before = self.value();
        let cut = &order[..length];
        let keeps = |bound: f64| {
            table::in_order(problem, cut, counted.within(bound), lead).map(|(_, placement)| placement)
        };
        // An order that cannot be better than the best one by more than rounding is not looked at further.
        let worth = before * (1.0 - CLOSE);
        match keeps(worth) {
            Some(placement) => self.offer(placement),
            None if length == order.len() => return false,
            None => {
                let Some(placement) = walk::fill(problem, order) else { return false };
                self.offer(placement);
                return self.value() < before;
            }
        }
        self.narrow(keeps);
        self.value() < before
    }

    fn offer(&mut self, placement: Placement) {
        let value = largest(self.problem, self.counted, self.lead, &placement);
        if value < self.value() {
            self.found = Some((value, placement));
        }
    }

    /// Halves what lies between the floor and the best value by whether a bound can be kept; returns the last one that
    /// cannot, or the value where nothing below it can.
    fn narrow(&mut self, mut keeps: impl FnMut(f64) -> Option<Placement>) -> f64 {
        const PROBES: usize = 200;
        if self.found.is_none() {
            match keeps(f64::INFINITY) {
                Some(placement) => self.offer(placement),
                None => return f64::INFINITY,
            }
        }
        // The floor itself, but for rounding, is often what comes out.
        let (mut low, mut bound) = (self.floor, self.floor * (1.0 + 2.0 * CLOSE));
        for _ in 0..PROBES {
            if bound >= self.value() * (1.0 - CLOSE) {
                break;
            }
            match keeps(bound) {
                Some(placement) => self.offer(placement),
                None => low = bound,
            }
            bound = low + (self.value() - low) / 2.0;
        }
        low
    }

    /// Lets two slots of the best order change places while that helps: any two where that is cheap, else neighbours.
    fn exchange(&mut self) {
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            let Some((value, placement)) = &self.found else { return };
            let order = placement.order.clone();
            let tries = SEARCH / steps(self.problem, &order).max(1);
            let far = if tries >= order.len() * order.len() / 2 { order.len() } else { 1 };
            if *value <= self.floor || tries < order.len() {
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
}

/// How many (slot, group, item) triples a table over an order looks at, at most.
fn steps(problem: &Problem, order: &[usize]) -> usize {
    let mut groups: Vec<usize> = order.iter().map(|&slot| problem.slots[slot].group).collect();
    groups.sort_unstable();
    groups.dedup();
    order.len().saturating_mul(problem.items()).saturating_mul(groups.len().max(1))
}
