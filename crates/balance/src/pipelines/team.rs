//! The devices that may take part, and what a group of them makes.

use std::ops::Range;
use std::rc::Rc;

use super::view::{View, Views};
use crate::assemble::{Assembled, Draft};
use crate::context::Context;
use crate::core::chain::Chain;
use crate::core::solve::{Goal, Tries, solve};
use crate::core::{Hops, Problem, Slot, as_f64, minmax, orders};
use crate::search::{Posed, Search};
use crate::workload::Strategy;

/// A device that may take part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// The device, as an index into the fleet.
    pub(super) device: usize,
    /// Whether layers are pinned to it: then it is in some group, and holds them.
    pub(super) pinned: bool,
    /// Its slot where several devices hold a copy and nothing is pinned; `None` where it is too small for a part.
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
    chosen: Option<&'a [(usize, u64)]>,
    views: Views,
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
    pub(super) fn new(context: &'a Context<'a>, chosen: Option<&'a [(usize, u64)]>) -> Self {
        let posed = Search::new(context).posed(0, 0, 0, chosen);
        let layers = context.items.layers();
        let mut units = Vec::new();
        for (device, place) in context.fleet.devices.iter().enumerate() {
            let most = chosen.map_or(Some(u64::MAX), |chosen| {
                chosen.iter().find(|choice| choice.0 == device).map(|choice| choice.1)
            });
            let pinned = context.pins.in_its_pipeline(device).is_some();
            let slot = posed.devices.binary_search(&device).ok();
            let draft = Draft { host: 0, devices: vec![(device, 0..layers, true)] };
            let alone = if most.is_some() { draft.assemble(context).ok() } else { None };
            let uses = |alone: &Assembled| {
                alone
                    .stages
                    .first()
                    .map_or(0, |stage| stage.budget_bytes.saturating_sub(stage.slack_bytes).get())
            };
            let alone = alone.filter(|alone| most.is_some_and(|most| uses(alone) <= most));
            let alone = alone.map(|alone| alone.value);
            // One with pins has to be in some group, and where it can hold nothing there is none.
            if slot.is_none() && alone.is_none() && !pinned {
                continue;
            }
            let room =
                slot.map_or_else(|| context.fleet.budget(place), |slot| posed.problem.slots[slot].room);
            units.push(Unit { device, pinned, slot, alone, room, rate: context.rate(place) });
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
        let views = Views::new(View::new(context, &units, &[], chosen));
        Self { context, chosen, views, units, rank, smallest, total }
    }

    /// What a group looks like; `None` where what is pinned to its devices does not go together.
    fn view(&self, group: &[usize]) -> Option<Rc<View>> {
        let pinned = group.iter().copied().filter(|&unit| self.units[unit].pinned).collect();
        self.views.of(self.context, &self.units, pinned, self.chosen)
    }

    /// Whether a group may be one pipeline, as far as pins say.
    pub(super) fn go_together(&self, group: &[usize]) -> bool {
        self.view(group).is_some()
    }

    /// The problem of one copy on all of them.
    pub(super) fn posed(&self) -> &Posed {
        &self.views.plain.posed
    }

    /// The problem of one copy on all of them, as plain numbers.
    pub(super) fn problem(&self) -> &Problem {
        &self.posed().problem
    }

    /// Whether two units can change places without any difference.
    pub(super) fn alike(&self, a: usize, b: usize) -> bool {
        let slot = |unit: usize| self.units[unit].slot.map(|slot| &self.problem().slots[slot]);
        let same_slot = match (slot(a), slot(b)) {
            (Some(a), Some(b)) => (a.class, a.room, a.fixed) == (b.class, b.room, b.fixed),
            (a, b) => a.is_none() && b.is_none(),
        };
        let (a, b) = (&self.units[a], &self.units[b]);
        same_slot && !a.pinned && !b.pinned && a.rate.total_cmp(&b.rate).is_eq() && a.alone == b.alone
    }

    /// Puts a unit where it belongs in a group.
    pub(super) fn insert(&self, group: &mut Vec<usize>, unit: usize) {
        let place = group.partition_point(|&other| self.rank[other] < self.rank[unit]);
        group.insert(place, unit);
    }

    /// The slots of a group, in the order in which it is tried.
    ///
    /// In an order that is free, a unit with pins comes where about as much is read before its layers as is fast enough for
    /// before it; other orders hold for pinned units too.
    fn slots(&self, view: &View, group: &[usize]) -> Vec<usize> {
        let slots = |units: &[usize]| units.iter().filter_map(|&unit| view.slots[unit]).collect();
        if view.begins.is_empty() || !matches!(view.tries, Tries::Portfolio) {
            return slots(group);
        }
        let mut pinned = view.begins.clone();
        pinned.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let all: f64 = group.iter().map(|&unit| self.units[unit].rate).sum();
        let mut pinned = pinned.into_iter().peekable();
        let mut order = Vec::with_capacity(group.len());
        let mut passed = 0.0;
        for &unit in group.iter().filter(|&&unit| !self.units[unit].pinned) {
            let rate = self.units[unit].rate;
            while let Some((next, _)) = pinned.next_if(|next| next.1 * all < passed + rate / 2.0) {
                order.push(next);
                passed += self.units[next].rate;
            }
            order.push(unit);
            passed += rate;
        }
        order.extend(pinned.map(|next| next.0));
        slots(&order)
    }

    /// Seconds of the fastest unit that holds a whole copy.
    fn alone(&self, group: &[usize]) -> f64 {
        self.whole(group).map_or(f64::INFINITY, |whole| whole.0)
    }

    /// The fastest unit that may hold a whole copy: where one of the group has pins, only that one.
    fn whole(&self, group: &[usize]) -> Option<(f64, usize)> {
        let mut pinned = group.iter().filter(|&&unit| self.units[unit].pinned);
        let (first, second) = (pinned.next(), pinned.next());
        let may = |unit: &usize| second.is_none() && first.is_none_or(|first| first == unit);
        let whole = group.iter().filter(|unit| may(unit));
        let whole = whole.filter_map(|&unit| Some((self.units[unit].alone?, unit)));
        whole.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
    }

    /// How good a group is in the order in which groups are tried, exactly.
    pub(super) fn score(&self, group: &[usize]) -> Score {
        let Some(view) = self.view(group) else {
            return Score { short: self.smallest.load(0, self.smallest.items()).max(1), rate: 0.0 };
        };
        let problem = &view.posed.problem;
        let mut order = self.slots(&view, group);
        let mut seconds = self.alone(group);
        let mut short = self.smallest.load(0, self.smallest.items()).max(1);
        if order.len() > 1 {
            let rates: f64 = order.iter().map(|&slot| problem.slots[slot].rate).sum();
            let floor = self.total / rates * (1.0 - 1e-12);
            let mut ends = vec![0; order.len()];
            let mut split = minmax::search(problem, &order, floor, &mut ends);
            if split.is_none() && seconds == f64::INFINITY {
                short = left_over(&view, &order, &mut ends);
                if matches!(view.tries, Tries::Portfolio) && view.begins.is_empty() {
                    order.sort_by_key(|&slot| (u64::MAX - problem.slots[slot].room, slot));
                    split = minmax::search(problem, &order, floor, &mut ends);
                    if split.is_none() {
                        short = short.min(left_over(&view, &order, &mut ends));
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
        let Some(view) = self.view(group) else { return false };
        let order = self.slots(&view, group);
        let mut ends = vec![0; order.len()];
        minmax::probe(&view.posed.problem, &order, seconds, &mut ends) == view.posed.problem.items()
    }

    /// A group makes no more tokens in a second than this.
    pub(super) fn most(&self, group: &[usize]) -> f64 {
        group.iter().map(|&unit| self.units[unit].rate).sum::<f64>() / self.total
    }

    /// The problem of one copy on a group, its units in the order of their numbers.
    fn of_group(&self, view: &View, group: &[usize]) -> (Problem, Vec<usize>) {
        let mut slots = self.slots(view, group);
        slots.sort_unstable();
        let problem = &view.posed.problem;
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
        let Some(view) = self.view(group) else { return f64::INFINITY };
        let mut least = self.alone(group);
        let (problem, slots) = self.of_group(&view, group);
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
        let view = self.view(group)?;
        let split = self.split(&view, group);
        // Where pins leave few orders, the one in which groups are tried may be better.
        let known = if view.begins.is_empty() { None } else { self.in_order(&view, group) };
        let better = match (split, known) {
            (Some(split), Some(known)) if known.seconds < split.seconds => Some(known),
            (split, known) => split.or(known),
        };
        self.faster(group, better)
    }

    /// The same in the order in which groups are tried.
    pub(super) fn line_in_order(&self, group: &[usize]) -> Option<Line> {
        let view = self.view(group)?;
        self.faster(group, self.in_order(&view, group))
    }

    /// Layers over several devices, or all of them on one where that is as good.
    fn faster(&self, group: &[usize], split: Option<Line>) -> Option<Line> {
        let layers = self.context.items.layers();
        let whole = self.whole(group).map(|(seconds, unit)| Line {
            seconds,
            devices: vec![(self.units[unit].device, 0..layers, true)],
        });
        match (whole, split) {
            (Some(whole), Some(split)) if split.seconds < whole.seconds => Some(split),
            (Some(whole), _) => Some(whole),
            (None, split) => split,
        }
    }

    /// Over at least two devices, in the order in which groups are tried.
    fn in_order(&self, view: &View, group: &[usize]) -> Option<Line> {
        let slots = self.slots(view, group);
        if slots.len() < 2 {
            return None;
        }
        let problem = &view.posed.problem;
        let (seconds, placement) = minmax::in_order(problem, &slots, 0.0)?;
        Some(Line { seconds, devices: view.named(&placement, |slot| slot) })
    }

    /// The same in the best order of the strategy.
    fn split(&self, view: &View, group: &[usize]) -> Option<Line> {
        let (problem, slots) = self.of_group(view, group);
        if slots.len() < 2 {
            return None;
        }
        let tries = match &view.tries {
            Tries::Given(order) => {
                let own = order.iter().filter_map(|slot| slots.binary_search(slot).ok());
                Tries::Given(own.collect())
            }
            tries => tries.clone(),
        };
        let placement = solve(&problem, Goal::MinMax, &tries).placement?;
        let stages = placement.stages();
        let seconds = stages.map(|(slot, start, end)| problem.cost(&problem.slots[slot], start, end));
        Some(Line {
            seconds: seconds.fold(0.0, f64::max),
            devices: view.named(&placement, |slot| slots[slot]),
        })
    }
}

/// How many bytes of a copy an order leaves over.
fn left_over(view: &View, order: &[usize], ends: &mut [usize]) -> u64 {
    let reached = minmax::probe(&view.posed.problem, order, f64::INFINITY, ends);
    view.smallest.load(reached, view.smallest.items()).max(1)
}
