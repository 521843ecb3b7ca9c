//! The devices that may take part, and what a group of them makes.

use std::ops::Range;

use crate::assemble::Draft;
use crate::context::Context;
use crate::core::chain::Chain;
use crate::core::solve::{Goal, Tries, solve};
use crate::core::{Hops, Placement, Problem, Slot, as_f64, minmax, orders};
use crate::search::{Posed, Search};
use crate::workload::Strategy;

/// A device that may take part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// The device, as an index into the fleet.
    pub(super) device: usize,
    /// Its slot where several devices hold a copy; `None` where it is too small for a part.
    pub(super) slot: Option<usize>,
    /// Seconds for one token where it holds a whole copy; `None` where it cannot.
    pub(super) alone: Option<f64>,
    /// What it may hold beside the charges.
    pub(super) room: u64,
    /// Bytes in a second.
    pub(super) rate: f64,
}

/// How good a group is: what fits comes before what is fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    /// How many bytes of a copy were left over; zero where it fits.
    pub(super) short: u64,
    /// Tokens in a second.
    pub(super) rate: f64,
}

/// A group with what each of its devices holds.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The largest stage time.
    pub(super) seconds: f64,
    /// As in a [`Draft`].
    pub(super) devices: Vec<(usize, Range<usize>, bool)>,
}

/// The devices that may take part.
pub(super) struct Team<'a> {
    pub(super) context: &'a Context<'a>,
    posed: Posed,
    tries: Tries,
    pub(super) units: Vec<Unit>,
    /// The place of each unit in the order in which a group is tried.
    rank: Vec<usize>,
    /// Item by item the least of all kinds of buffers.
    pub(super) smallest: Chain,
    /// The least that a copy costs.
    pub(super) total: f64,
}

impl<'a> Team<'a> {
    /// All devices, or, where pools are shared, the chosen ones.
    pub(super) fn new(context: &'a Context<'a>, chosen: Option<&[(usize, u64)]>) -> Self {
        let search = Search::new(context);
        let posed = search.posed(0, 0, 0, chosen);
        let tries = search.tries(&posed);
        let layers = context.items.layers();
        let mut units = Vec::new();
        for (device, place) in context.fleet.devices.iter().enumerate() {
            if chosen.is_some_and(|chosen| chosen.iter().all(|choice| choice.0 != device)) {
                continue;
            }
            let slot = posed.devices.binary_search(&device).ok();
            let draft = Draft { host: 0, devices: vec![(device, 0..layers, true)] };
            let alone = draft.assemble(context).ok().map(|alone| alone.value);
            if slot.is_none() && alone.is_none() {
                continue;
            }
            let room =
                slot.map_or_else(|| context.fleet.budget(place), |slot| posed.problem.slots[slot].room);
            units.push(Unit { device, slot, alone, room, rate: context.rate(place) });
        }
        let mut order: Vec<usize> = (0..units.len()).collect();
        order.sort_by(|&a, &b| {
            let (x, y): (&Unit, &Unit) = (&units[a], &units[b]);
            let by_strategy = match context.options.strategy {
                Strategy::Portfolio => y.rate.total_cmp(&x.rate).then(y.room.cmp(&x.room)),
                Strategy::CapacityDescending => y.room.cmp(&x.room),
                Strategy::GivenOrder => {
                    let given = |unit: &Unit| context.fleet.devices[unit.device].given;
                    given(x).cmp(&given(y))
                }
            };
            by_strategy.then(a.cmp(&b))
        });
        let mut rank = vec![0; units.len()];
        for (place, unit) in order.into_iter().enumerate() {
            rank[unit] = place;
        }
        let smallest = Chain::smallest(&posed.problem.chains);
        let total = as_f64(smallest.cost(0, smallest.items()));
        Self { context, posed, tries, units, rank, smallest, total }
    }

    /// The problem of one copy on all of them.
    pub(super) fn posed(&self) -> &Posed {
        &self.posed
    }

    /// The problem of one copy on all of them, as plain numbers.
    pub(super) fn problem(&self) -> &Problem {
        &self.posed.problem
    }

    /// Whether two units can change places without any difference.
    pub(super) fn alike(&self, a: usize, b: usize) -> bool {
        let slot = |unit: usize| self.units[unit].slot.map(|slot| &self.posed.problem.slots[slot]);
        let same_slot = match (slot(a), slot(b)) {
            (Some(a), Some(b)) => (a.class, a.room, a.fixed) == (b.class, b.room, b.fixed),
            (a, b) => a.is_none() && b.is_none(),
        };
        let (a, b) = (&self.units[a], &self.units[b]);
        same_slot && a.rate.total_cmp(&b.rate).is_eq() && a.alone == b.alone
    }

    /// Puts a unit where it belongs in a group.
    pub(super) fn insert(&self, group: &mut Vec<usize>, unit: usize) {
        let place = group.partition_point(|&other| self.rank[other] < self.rank[unit]);
        group.insert(place, unit);
    }

    /// The slots of a group, in the order in which it is tried.
    fn slots(&self, group: &[usize]) -> Vec<usize> {
        group.iter().filter_map(|&unit| self.units[unit].slot).collect()
    }

    /// Seconds of the fastest unit that holds a whole copy.
    fn alone(&self, group: &[usize]) -> f64 {
        group.iter().filter_map(|&unit| self.units[unit].alone).fold(f64::INFINITY, f64::min)
    }

    /// How good a group is in the order in which groups are tried, exactly.
    pub(super) fn score(&self, group: &[usize]) -> Score {
        let problem = &self.posed.problem;
        let mut order = self.slots(group);
        let mut seconds = self.alone(group);
        let mut short = self.smallest.load(0, self.smallest.items()).max(1);
        if order.len() > 1 {
            let rates: f64 = order.iter().map(|&slot| problem.slots[slot].rate).sum();
            let floor = self.total / rates * (1.0 - 1e-12);
            let mut ends = vec![0; order.len()];
            let mut split = minmax::search(problem, &order, floor, &mut ends);
            if split.is_none() && seconds == f64::INFINITY {
                short = self.left_over(&order, &mut ends);
                if matches!(self.tries, Tries::Portfolio) {
                    order.sort_by_key(|&slot| (u64::MAX - problem.slots[slot].room, slot));
                    split = minmax::search(problem, &order, floor, &mut ends);
                    if split.is_none() {
                        short = short.min(self.left_over(&order, &mut ends));
                    }
                }
            }
            if let Some((value, _)) = split {
                seconds = seconds.min(value);
            }
        }
        if seconds < f64::INFINITY {
            return Score { short: 0, rate: 1.0 / seconds };
        }
        Score { short, rate: 0.0 }
    }

    /// Whether a group comes to the end of a copy with no stage of more seconds, in the order in which groups are tried.
    pub(super) fn within(&self, group: &[usize], seconds: f64) -> bool {
        if self.alone(group) <= seconds {
            return true;
        }
        let order = self.slots(group);
        let mut ends = vec![0; order.len()];
        minmax::probe(&self.posed.problem, &order, seconds, &mut ends) == self.posed.problem.items()
    }

    /// A group makes no more tokens in a second than this.
    pub(super) fn most(&self, group: &[usize]) -> f64 {
        group.iter().map(|&unit| self.units[unit].rate).sum::<f64>() / self.total
    }

    /// How many bytes of a copy an order leaves over.
    fn left_over(&self, order: &[usize], ends: &mut [usize]) -> u64 {
        let reached = minmax::probe(&self.posed.problem, order, f64::INFINITY, ends);
        self.smallest.load(reached, self.smallest.items()).max(1)
    }

    /// The problem of one copy on a group, its units in the order of their numbers.
    fn of_group(&self, group: &[usize]) -> (Problem, Vec<usize>) {
        let mut slots = self.slots(group);
        slots.sort_unstable();
        let problem = &self.posed.problem;
        let own = Problem {
            chains: problem.chains.clone(),
            // Where nothing is passed on, devices of different nodes may be alike.
            slots: slots.iter().map(|&slot| Slot { group: 0, ..problem.slots[slot] }).collect(),
            hops: Hops::default(),
            limit: slots.len(),
        };
        (own, slots)
    }

    /// The least seconds of a group in any order, by trying all of them: for a few units.
    pub(super) fn least_seconds(&self, group: &[usize]) -> f64 {
        let mut least = self.alone(group);
        let (problem, slots) = self.of_group(group);
        if slots.len() < 2 {
            return least;
        }
        let items = problem.items();
        let mut ends = vec![0; slots.len()];
        for order in orders::every(&problem).unwrap_or_default() {
            let below = if least < f64::INFINITY { least.next_down() } else { least };
            if least > 0.0
                && minmax::probe(&problem, &order, below, &mut ends) == items
                && let Some((value, _)) = minmax::search(&problem, &order, 0.0, &mut ends)
            {
                least = least.min(value);
            }
        }
        least
    }

    /// What each device of a group holds in the best order of the strategy; `None` where none was found that fits.
    pub(super) fn line(&self, group: &[usize]) -> Option<Line> {
        self.faster(group, self.split(group))
    }

    /// The same in the order in which groups are tried.
    pub(super) fn line_in_order(&self, group: &[usize]) -> Option<Line> {
        let slots = self.slots(group);
        let placement = if slots.len() < 2 { None } else { minmax::in_order(self.problem(), &slots, 0.0) };
        self.faster(
            group,
            placement.map(|(_, placement)| self.named(self.problem(), &placement, |slot| slot)),
        )
    }

    /// Layers over several devices, or all of them on one where that is as good.
    fn faster(&self, group: &[usize], split: Option<Line>) -> Option<Line> {
        let layers = self.context.items.layers();
        let whole = group.iter().filter_map(|&unit| self.units[unit].alone.map(|seconds| (seconds, unit)));
        let whole = whole.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let whole = whole.map(|(seconds, unit)| Line {
            seconds,
            devices: vec![(self.units[unit].device, 0..layers, true)],
        });
        match (whole, split) {
            (Some(whole), Some(split)) if split.seconds < whole.seconds => Some(split),
            (Some(whole), _) => Some(whole),
            (None, split) => split,
        }
    }

    /// The same over at least two devices.
    fn split(&self, group: &[usize]) -> Option<Line> {
        let (problem, slots) = self.of_group(group);
        if slots.len() < 2 {
            return None;
        }
        let tries = match &self.tries {
            Tries::Given(order) => {
                let own = order.iter().filter_map(|slot| slots.binary_search(slot).ok());
                Tries::Given(own.collect())
            }
            tries => tries.clone(),
        };
        let placement = solve(&problem, Goal::MinMax, &tries).placement?;
        Some(self.named(&problem, &placement, |slot| slots[slot]))
    }

    /// A placement in terms of devices and layers; `slot` says which of all slots one of the problem is.
    fn named(&self, problem: &Problem, placement: &Placement, slot: impl Fn(usize) -> usize) -> Line {
        let mut seconds = 0.0_f64;
        let mut devices = Vec::new();
        for (own, start, end) in placement.stages() {
            seconds = seconds.max(problem.cost(&problem.slots[own], start, end));
            let (layers, head) = self.context.items.unfold(&self.posed.fold, start, end);
            devices.push((self.posed.devices[slot(own)], layers, head));
        }
        Line { seconds, devices }
    }
}
