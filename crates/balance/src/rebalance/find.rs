//! Targets in the order of the plan in force: the best value, and the fewest bytes within a tolerance of it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cut::{Cut, orders};
use super::given::{Given, Lay, Run};
use super::line::Line;
use super::stream;
use crate::assemble::{Assembled, Draft};
use crate::context::Context;
use crate::core::as_f64;
use crate::keep::as_good_as;
use crate::workload::Objective;

/// More ways to choose one device of each shared pool than this are not tried.
const CHOICES: usize = 64;

/// A target, with what it takes to get there.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) plan: Assembled,
    pub(crate) lay: Lay,
    pub(crate) moved: u64,
    pub(crate) loaded: u64,
    /// Whether no target within the tolerance has fewer bytes.
    pub(crate) exact: bool,
}

impl Found {
    pub(crate) fn bytes(&self) -> u64 {
        self.moved.saturating_add(self.loaded)
    }
}

/// Looks for targets.
#[derive(Debug)]
pub(crate) struct Finder<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) given: &'a Given<'a>,
    /// Devices of the fleet in the orders that keep that of the plan.
    pub(crate) orders: Vec<Vec<usize>>,
    /// What moves under way keep of each pool, and on each place.
    pub(crate) withheld: BTreeMap<usize, u64>,
    pub(crate) withheld_on: BTreeMap<usize, u64>,
    /// The parts that have to lie on each device of the fleet: pinned ones, and those that are under way to it.
    pub(crate) musts: BTreeMap<usize, Range<usize>>,
    /// How many layers the main host has to hold at least.
    pub(crate) host_must: usize,
    /// The parts that each device of the fleet holds now.
    pub(crate) held: BTreeMap<usize, Range<usize>>,
    /// Every way to use one device of each pool; a single `None` where no two share one.
    choices: Vec<Option<Vec<usize>>>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(given: &'a Given<'a>) -> Self {
        let context = given.context;
        let mut finder = Self {
            context,
            given,
            orders: orders(given),
            withheld: BTreeMap::new(),
            withheld_on: BTreeMap::new(),
            musts: BTreeMap::new(),
            host_must: 0,
            held: BTreeMap::new(),
            choices: Vec::new(),
        };
        for run in &given.old.runs {
            if let Some(Some(device)) = given.places[run.place].candidate {
                finder.held.insert(device, run.parts.clone());
            }
        }
        for (parts, from, to) in &given.in_flight {
            let from_input = given.old.has_input(*from);
            let size = given.size_with(*from, parts, from_input);
            let on_place = finder.withheld_on.entry(*from).or_insert(0);
            *on_place = on_place.saturating_add(size);
            if let Some(pool) = given.places[*from].pool {
                let held = finder.withheld.entry(pool).or_insert(0);
                *held = held.saturating_add(size);
            }
            finder.must(*to, parts.clone());
        }
        for hull in &context.pins.hulls {
            if let Some(place) = given.number(&hull.named.device) {
                finder.must(place, hull.layers.start + 1..hull.layers.end + 1);
            }
        }
        finder.choices = finder.choices();
        finder
    }

    fn must(&mut self, place: usize, parts: Range<usize>) {
        match self.given.places[place].candidate {
            Some(None) => self.host_must = self.host_must.max(self.given.layers(&parts).end),
            Some(Some(device)) => {
                let must = self.musts.entry(device).or_insert_with(|| parts.clone());
                *must = must.start.min(parts.start)..must.end.max(parts.end);
            }
            None => {}
        }
    }

    /// Whether a draft has everything where it has to be.
    fn keeps_musts(&self, draft: &Draft) -> bool {
        let holds = |device: usize, must: &Range<usize>| {
            draft.devices.iter().enumerate().any(|(at, (d, layers, head))| {
                let input = at == 0 && self.context.fleet.host.is_none();
                let first = if input { 0 } else { layers.start + 1 };
                let last = layers.end + if *head { 2 } else { 1 };
                *d == device && first <= must.start && must.end <= last
            })
        };
        self.host_must <= draft.host && self.musts.iter().all(|(device, must)| holds(*device, must))
    }

    /// Where several devices of the orders share a pool, every way to use one of each.
    fn choices(&self) -> Vec<Option<Vec<usize>>> {
        let devices = &self.context.fleet.devices;
        let mut pools: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &device in self.orders.first().into_iter().flatten() {
            pools.entry(devices[device].pool).or_default().push(device);
        }
        if pools.values().all(|pool| pool.len() == 1) {
            return vec![None];
        }
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for pool in pools.values_mut() {
            let holds = |device: usize| self.held.get(&device).map_or(0, ExactSizeIterator::len);
            pool.sort_by_key(|&d| {
                (usize::MAX - holds(d), u64::MAX - self.context.fleet.budget(&devices[d]), d)
            });
            let some = if choices.len() * pool.len() > CHOICES { &pool[..1] } else { &pool[..] };
            let longer = choices.iter().flat_map(|choice| {
                some.iter().map(|&device| {
                    let mut choice = choice.clone();
                    choice.push(device);
                    choice
                })
            });
            choices = longer.collect();
        }
        choices.into_iter().map(Some).collect()
    }

    /// Whether a device shares the main host's pool, or two devices share one: what fits and what a share is then depends
    /// on more than the order shows.
    fn shared(&self) -> bool {
        let host = self.context.fleet.host.as_ref().map(|host| host.place.pool);
        let shares = |&device: &usize| Some(self.context.fleet.devices[device].pool) == host;
        self.choices.iter().any(Option::is_some) || self.orders.first().into_iter().flatten().any(shares)
    }

    /// Every line behind a cut.
    fn lines<'c>(&self, cut: &'c Cut) -> Vec<(Line<'c>, Vec<usize>)> {
        let lines = self
            .orders
            .iter()
            .flat_map(|order| self.choices.iter().map(|choice| self.line(cut, order, choice.as_deref())));
        lines.filter(|(line, _)| !line.seats.is_empty()).collect()
    }

    fn draft(&self, cut: &Cut, devices: &[usize], ends: &[usize]) -> Draft {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let runs = devices.iter().zip(starts.zip(ends)).filter(|(_, (start, end))| start < *end);
        let stages = runs.map(|(&device, (start, &end))| {
            let (layers, head) = self.context.items.unfold(&cut.fold, start, end);
            (device, layers, head)
        });
        Draft { host: cut.host_layers, devices: stages.collect() }
    }

    /// Everything on one device, or on the main host.
    fn alone(&self) -> Vec<Draft> {
        let layers = self.context.items.layers();
        let mut drafts = Vec::new();
        if self.context.fleet.host.as_ref().is_some_and(|host| host.takes_layers) {
            drafts.push(Draft { host: layers, devices: Vec::new() });
        }
        if self.context.limit > 0 {
            let devices = self.orders.first().into_iter().flatten();
            drafts.extend(devices.map(|&device| Draft { host: 0, devices: vec![(device, 0..layers, true)] }));
        }
        drafts.retain(|draft| self.keeps_musts(draft));
        drafts
    }

    /// A draft with its numbers, where it fits beside moves under way.
    fn weigh(&self, draft: Draft, exact: bool) -> Option<Found> {
        if !self.keeps_musts(&draft) {
            return None;
        }
        let plan = draft.assemble(self.context).ok()?;
        for (pool, held) in &self.withheld {
            let on = |device: &plimsoll_units::DeviceRef| {
                self.given.number(device).and_then(|place| self.given.places[place].pool) == Some(*pool)
            };
            let uses = plan.stages.iter().filter(|stage| on(&stage.device)).map(|s| s.used_bytes().get());
            let uses = uses.fold(*held, u64::saturating_add);
            if uses > self.context.fleet.pools.get(*pool).copied().unwrap_or(0) {
                return None;
            }
        }
        for stage in &plan.stages {
            let place = self.given.number(&stage.device);
            let held = place.and_then(|place| self.withheld_on.get(&place).map(|held| (place, *held)));
            let over = |(place, held): (usize, u64)| {
                stage.used_bytes().get().saturating_add(held) > self.given.places[place].limit
            };
            if held.is_some_and(over) {
                return None;
            }
        }
        let lay = lay(self.given, &plan);
        let (moved, loaded) = self.given.bytes(&lay);
        Some(Found { plan, lay, moved, loaded, exact })
    }

    /// The cuts that may be used, and the best value behind any of them; `None` when nothing fits.
    ///
    /// Where layers lie on the main host only as a last resort, that is one cut: the first behind which anything fits.
    pub(crate) fn best(&self) -> Option<(Vec<usize>, f64)> {
        let context = self.context;
        let comes_last = context.host_comes_last();
        let last = context.items.cuts.len() - 1;
        let mut best: Option<f64> = None;
        let offer = |value: Option<f64>, best: &mut Option<f64>| {
            if let Some(value) = value {
                *best = Some(best.map_or(value, |b: f64| b.min(value)));
            }
        };
        let alone: Vec<Found> =
            self.alone().into_iter().filter_map(|draft| self.weigh(draft, true)).collect();
        let value_at = |cut: usize| {
            let host = context.items.cuts[cut];
            alone.iter().filter(|a| a.plan.draft.host == host).map(|a| a.plan.value).min_by(f64::total_cmp)
        };
        let mut cuts = Vec::new();
        for at in 0..=last {
            offer(value_at(at), &mut best);
            if let Some(cut) = self.cut(at) {
                if !comes_last && best.is_some_and(|best| cut.pace > as_good_as(best)) {
                    break;
                }
                for (line, devices) in self.lines(&cut) {
                    offer(self.best_of(&cut, &line, &devices), &mut best);
                }
            }
            cuts.push(at);
            if comes_last && best.is_some() {
                return best.map(|best| (vec![at], best));
            }
            if context.fleet.host.is_none() {
                break;
            }
        }
        if !comes_last && !cuts.contains(&last) {
            offer(value_at(last), &mut best);
        }
        // A larger bound than the best value may let the host hold more: all cuts are looked at again.
        let cuts = if comes_last || context.fleet.host.is_none() { cuts } else { (0..=last).collect() };
        best.map(|best| (cuts, best))
    }

    /// The best value of one line.
    fn best_of(&self, cut: &Cut, line: &Line<'_>, devices: &[usize]) -> Option<f64> {
        let limit = self.context.limit;
        match self.context.options.objective {
            Objective::Throughput => line.least_bound(limit).map(|value| value.max(cut.pace)),
            // What a device takes of the host's pool makes the host's own share larger: that is known only afterwards.
            Objective::Balanced if self.shared() => {
                self.evenest(cut, line, devices).map(|found| found.plan.value)
            }
            Objective::Balanced => line.least_bound(limit).map(|value| value.max(cut.share)),
            Objective::Fit => {
                let count = u64::try_from(line.fewest(limit)?).unwrap_or(u64::MAX);
                Some(as_f64(count) + if cut.host_layers > 0 { 1.0 } else { 0.0 })
            }
            Objective::Latency => {
                let groups = self.groups(devices);
                let streams =
                    stream::Streams::new(line, self.context.hops_from(cut.fold.from), &groups, limit);
                streams.least(0.0).map(|found| found.seconds + cut.pace)
            }
        }
    }

    /// The placement of a line with the smallest largest share, with all its numbers.
    fn evenest(&self, cut: &Cut, line: &Line<'_>, devices: &[usize]) -> Option<Found> {
        let bound = line.least_bound(self.context.limit)?;
        let ends = line.fewest_moved(bound, self.context.limit)?;
        self.weigh(self.draft(cut, devices, &ends.ends), false)
    }

    fn groups(&self, devices: &[usize]) -> Vec<usize> {
        devices.iter().map(|&d| self.context.group(&self.context.fleet.devices[d].device.node)).collect()
    }

    /// The target with the fewest bytes whose value is at most `bound`, behind any of these cuts.
    ///
    /// Of targets with as few bytes, the one with the better value, then the smaller names.
    pub(crate) fn fewest(&self, cuts: &[usize], bound: f64) -> Option<Found> {
        let context = self.context;
        let bound = as_good_as(bound);
        let last = context.items.cuts.len() - 1;
        let mut best: Option<Found> = None;
        let mut exact = !self.shared();
        let mut offer = |found: Option<Found>| {
            let Some(found) = found.filter(|found| found.plan.value <= as_good_as(bound)) else { return };
            let key = |f: &Found| (f.bytes(), f.plan.value, f.lay.runs.len());
            let better = best.as_ref().is_none_or(|b| {
                let (new, old) = (key(&found), key(b));
                new.0.cmp(&old.0).then(new.1.total_cmp(&old.1)).then(new.2.cmp(&old.2)).is_lt()
            });
            if better {
                best = Some(found);
            }
        };
        for draft in self.alone() {
            let cut = if draft.host == 0 { 0 } else { last };
            if cuts.contains(&cut) {
                offer(self.weigh(draft, true));
            }
        }
        for &at in cuts {
            let Some(cut) = self.cut(at) else { continue };
            if cut.pace > bound || (context.options.objective == Objective::Balanced && cut.share > bound) {
                // The host only holds more behind the next ones.
                break;
            }
            for (line, devices) in self.lines(&cut) {
                if context.options.objective == Objective::Balanced && self.shared() {
                    offer(self.evenest(&cut, &line, &devices));
                }
                let (ends, proven) = match self.fewest_of(&cut, &line, &devices, bound) {
                    Some(found) => found,
                    None => continue,
                };
                exact &= proven;
                offer(self.weigh(self.draft(&cut, &devices, &ends), true));
            }
        }
        best.map(|best| Found { exact, ..best })
    }

    fn fewest_of(
        &self,
        cut: &Cut,
        line: &Line<'_>,
        devices: &[usize],
        bound: f64,
    ) -> Option<(Vec<usize>, bool)> {
        let limit = self.context.limit;
        let found = match self.context.options.objective {
            Objective::Throughput | Objective::Balanced => line.fewest_moved(bound, limit),
            Objective::Fit => {
                let host = if cut.host_layers > 0 { 1.0 } else { 0.0 };
                let count = (0..=limit.min(devices.len()))
                    .rev()
                    .find(|&n| as_f64(u64::try_from(n).unwrap_or(u64::MAX)) + host <= bound)?;
                line.fewest_moved(f64::INFINITY, count)
            }
            Objective::Latency => {
                let groups = self.groups(devices);
                let streams =
                    stream::Streams::new(line, self.context.hops_from(cut.fold.from), &groups, limit);
                return streams.within(bound - cut.pace).map(|ends| (ends, false));
            }
        };
        found.map(|found| (found.ends, found.exact))
    }
}

/// A plan as runs on places.
pub(crate) fn lay(given: &Given<'_>, plan: &Assembled) -> Lay {
    let mut runs = Vec::with_capacity(plan.stages.len());
    let base = given.context.items.index(0);
    let at = |index: u32| usize::try_from(index.saturating_sub(base)).unwrap_or(usize::MAX);
    for stage in &plan.stages {
        let Some(place) = given.number(&stage.device) else { continue };
        let (start, end) = (at(stage.layers.start), at(stage.layers.end));
        let copies = if start < end { given.class(place).each_device } else { 0 };
        let first = if stage.input { 0 } else { start + 1 };
        let last = if stage.head { end + 2 } else { end + 1 };
        let own = stage.overhead_bytes.get().saturating_add(copies);
        runs.push(Run { place, parts: first..last, own });
    }
    Lay { runs }
}
