//! Targets in the order of the plan in force: the best value, and the fewest bytes within a tolerance of it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::given::{Given, Lay, Run};
use super::line::{Line, Seat};
use super::stream;
use crate::assemble::{Assembled, Draft};
use crate::context::Context;
use crate::core::as_f64;
use crate::core::chain::Chain;
use crate::items::Fold;
use crate::keep::as_good_as;
use crate::workload::Objective;

/// More ways to choose one device of each shared pool than this are not tried.
const CHOICES: usize = 64;

/// So many gaps are tried as a place for new devices; where there are more, only both ends.
const GAPS: usize = 32;

/// And no more than so many (device, layer) pairs for all gaps together.
const PAIRS: usize = 2_000_000;

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
    context: &'a Context<'a>,
    given: &'a Given<'a>,
    /// Devices of the fleet in the orders that keep that of the plan.
    orders: Vec<Vec<usize>>,
    /// What moves under way keep of each pool.
    withheld: BTreeMap<usize, u64>,
    /// What has to lie on each device of the fleet, as places of layers; moves under way end there.
    musts: BTreeMap<usize, Range<usize>>,
    /// How many layers the main host has to hold at least.
    host_must: usize,
    /// Every way to use one device of each pool; a single `None` where no two share one.
    choices: Vec<Option<Vec<usize>>>,
}

/// The main host's part, and the devices' problem behind it.
struct Cut {
    fold: Fold,
    host_layers: usize,
    host_uses: u64,
    /// Seconds for the host's layers.
    pace: f64,
    /// The used share of the host, where it holds layers.
    share: f64,
    chains: Vec<Chain>,
    /// For every class, prefix sums of what has to be sent for each item.
    sent: Vec<Vec<u64>>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(given: &'a Given<'a>) -> Self {
        let context = given.context;
        let mut finder = Self {
            context,
            given,
            orders: orders(given),
            withheld: BTreeMap::new(),
            musts: BTreeMap::new(),
            host_must: 0,
            choices: Vec::new(),
        };
        for (parts, from, to) in &given.in_flight {
            let from_input = given.old.has_input(*from);
            if let Some(pool) = given.places[*from].pool {
                let held = finder.withheld.entry(pool).or_insert(0);
                *held = held.saturating_add(given.size_with(*from, parts, from_input));
            }
            finder.must(*to, given.layers(parts));
        }
        for pin in &context.options.pins {
            let at = |index: u32| {
                usize::try_from(index.saturating_sub(context.items.index(0))).unwrap_or(usize::MAX)
            };
            let all = context.items.layers();
            let layers = at(pin.layers.start).min(all)..at(pin.layers.end).min(all);
            if let (Some(place), false) = (given.number(&pin.device), layers.is_empty()) {
                finder.must(place, layers);
            }
        }
        finder.choices = finder.choices();
        finder
    }

    fn must(&mut self, place: usize, layers: Range<usize>) {
        match self.given.places[place].candidate {
            Some(None) => self.host_must = self.host_must.max(layers.end),
            Some(Some(device)) => {
                let must = self.musts.entry(device).or_insert_with(|| layers.clone());
                *must = must.start.min(layers.start)..must.end.max(layers.end);
            }
            None => {}
        }
    }

    /// Whether a draft has everything where it has to be.
    fn keeps_musts(&self, draft: &Draft) -> bool {
        let holds = |device: usize, must: &Range<usize>| {
            draft
                .devices
                .iter()
                .any(|(d, layers, _)| *d == device && layers.start <= must.start && must.end <= layers.end)
        };
        self.host_must <= draft.host
            && self.musts.iter().all(|(device, must)| must.is_empty() || holds(*device, must))
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
            let holds = |device: usize| {
                let place = self.given.of_candidate(device);
                let parts = self.given.old.runs.iter().filter(|run| run.place == place);
                parts.map(|run| run.parts.len()).sum::<usize>()
            };
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
        self.choices.iter().any(Option::is_some)
            || self.orders.first().into_iter().flatten().any(|device| shares(device))
    }

    /// The main host's part up to a cut; `None` when it cannot hold that.
    fn cut(&self, at: usize) -> Option<Cut> {
        let context = self.context;
        let items = &context.items;
        let layers = items.cuts[at];
        let (mut host_uses, mut pace, mut share) = (0, 0.0, 0.0);
        let charges = if layers > 0 { &context.rules.charges.partial } else { &context.rules.charges.split };
        if let Some(host) = &context.fleet.host {
            let class = context.class(host.place.backend);
            let copies = if layers == 0 { 0 } else { class.each_device };
            let charge = context.rules.charges.host.get();
            let parts = [class.resident(0, layers), copies, class.input, charge];
            host_uses = parts.into_iter().fold(0_u64, u64::saturating_add);
            let budget = context.fleet.budget(&host.place);
            let held = self.withheld.get(&host.place.pool).copied().unwrap_or(0);
            if host_uses.saturating_add(held) > budget || (layers > 0 && !host.takes_layers) {
                return None;
            }
            if layers > 0 {
                share = as_f64(host_uses) / as_f64(budget.max(1));
            }
            if context.timed() {
                pace = context.seconds(&host.place, &(0..layers), false);
            }
        } else if layers > 0 {
            return None;
        }
        if layers < self.host_must {
            return None;
        }
        let with_host = context.fleet.host.is_some();
        let fold = Fold {
            from: at,
            input: !with_host,
            first_more: charges.first_more.get(),
            last_more: charges.last_more.get(),
            lone_head: with_host,
            whole: layers > 0,
            touched: context.timed(),
        };
        let classes = 0..items.classes.len();
        let chains = classes.clone().map(|class| items.chain(class, &fold)).collect();
        let sent = classes.map(|class| self.sent(class, &fold)).collect();
        Some(Cut { fold, host_layers: layers, host_uses, pace, share, chains, sent })
    }

    /// Prefix sums of what has to be sent for an item to come to a device of this class.
    fn sent(&self, class: usize, fold: &Fold) -> Vec<u64> {
        let items = &self.context.items;
        let class = &items.classes[class];
        let count = items.count(fold);
        let mut sums = vec![0_u64; count + 1];
        for item in 0..count {
            let (layers, head) = items.unfold(fold, item, item + 1);
            let mut bytes = class.resident(layers.start, layers.end);
            bytes = bytes.saturating_add(if fold.input && item == 0 { class.input } else { 0 });
            bytes = bytes.saturating_add(if head { class.head } else { 0 });
            let first = if layers.is_empty() { items.layers() + 1 } else { layers.start + 1 };
            let under_way = self.given.in_flight.iter().any(|(parts, _, _)| parts.contains(&first));
            sums[item + 1] = sums[item].saturating_add(if under_way { 0 } else { bytes });
        }
        sums
    }

    /// The items of a fold that hold parts of the model in a row.
    fn items_of(&self, fold: &Fold, parts: &Range<usize>) -> (usize, usize) {
        let items = &self.context.items;
        let layers = self.given.layers(parts);
        let at = |layer: usize| items.cuts.partition_point(|&cut| cut < layer).saturating_sub(fold.from);
        let head = fold.lone_head && parts.end == self.given.parts();
        let end = at(layers.end) + usize::from(head);
        (at(layers.start).min(end), end)
    }

    /// The devices of an order that may take something behind a cut.
    fn line<'c>(&self, cut: &'c Cut, order: &[usize], chosen: Option<&[usize]>) -> (Line<'c>, Vec<usize>) {
        let context = self.context;
        let fleet = &context.fleet;
        let charges =
            if cut.host_layers > 0 { &context.rules.charges.partial } else { &context.rules.charges.split };
        let mut seats = Vec::with_capacity(order.len());
        let mut devices = Vec::with_capacity(order.len());
        for &number in order {
            if chosen.is_some_and(|chosen| !chosen.contains(&number)) {
                continue;
            }
            let device = &fleet.devices[number];
            let on_host = fleet.host.as_ref().is_some_and(|host| host.place.pool == device.pool);
            let taken = if on_host { cut.host_uses } else { 0 };
            let pool = fleet.pools.get(device.pool).copied().unwrap_or(0).saturating_sub(taken);
            let class = context.class_index(device.backend);
            let own = charges.each.get().saturating_add(context.items.classes[class].each_device);
            let held = self.withheld.get(&device.pool).copied().unwrap_or(0);
            let budget = pool.min(device.limit);
            let room = pool.saturating_sub(held).min(device.limit).saturating_sub(own);
            let (fixed, rate) =
                if context.timed() { (0, context.rate(device)) } else { (own, as_f64(budget.max(1))) };
            let place = self.given.of_candidate(number);
            let old = self.given.old.runs.iter().find(|run| run.place == place);
            let holds = old.map_or((0, 0), |run| self.items_of(&cut.fold, &run.parts));
            let must = self.musts.get(&number).map_or((0, 0), |must| {
                if must.is_empty() {
                    return (0, 0);
                }
                let (first, last) = self.items_of(&cut.fold, &(must.start + 1..must.end + 1));
                // What begins before the cut lies on the host, and so not here.
                if must.start < cut.host_layers { (usize::MAX - 1, usize::MAX) } else { (first, last) }
            });
            if own > budget && must.0 == must.1 {
                continue;
            }
            seats.push(Seat {
                chain: &cut.chains[class],
                room,
                fixed,
                rate,
                sent: &cut.sent[class],
                holds,
                must,
            });
            devices.push(number);
        }
        (Line { seats, items: context.items.count(&cut.fold) }, devices)
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
            Objective::Balanced => line.least_bound(limit).map(|value| value.max(cut.share)),
            Objective::Fit => {
                let count = u64::try_from(line.fewest(limit)?).unwrap_or(u64::MAX);
                Some(as_f64(count) + if cut.host_layers > 0 { 1.0 } else { 0.0 })
            }
            Objective::Latency => {
                let groups = self.groups(devices);
                let streams = stream::Streams::new(line, &self.context.hops, &groups, limit);
                streams.least(0.0).map(|found| found.seconds + cut.pace)
            }
        }
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
                let streams = stream::Streams::new(line, &self.context.hops, &groups, limit);
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

/// The devices of the plan in force in their order, and those that are new at every place among them.
///
/// New ones stand together, the fastest first, then the larger, then by id: behind each device of the plan in turn, and
/// before the first. Where that is too much work, only before the first and behind the last.
fn orders(given: &Given<'_>) -> Vec<Vec<usize>> {
    let context = given.context;
    let usable = |device: &usize| context.too_small(&context.fleet.devices[*device]).is_none();
    let mut kept: Vec<usize> = Vec::new();
    for (place, _) in given.settled() {
        if let Some(Some(device)) = given.places[place].candidate
            && usable(&device)
            && !kept.contains(&device)
        {
            kept.push(device);
        }
    }
    let listed: std::collections::BTreeSet<usize> = kept.iter().copied().collect();
    let mut new: Vec<usize> =
        (0..context.fleet.devices.len()).filter(|d| !listed.contains(d) && usable(d)).collect();
    if new.is_empty() {
        return vec![kept];
    }
    new.sort_by(|&a, &b| {
        let (x, y) = (&context.fleet.devices[a], &context.fleet.devices[b]);
        let rates = context.rate(y).total_cmp(&context.rate(x));
        rates.then(context.fleet.budget(y).cmp(&context.fleet.budget(x))).then(a.cmp(&b))
    });
    let gaps = kept.len() + 1;
    let pairs = gaps.saturating_mul(kept.len() + new.len()).saturating_mul(context.items.layers());
    let places: Vec<usize> =
        if gaps <= GAPS && pairs <= PAIRS { (0..gaps).rev().collect() } else { vec![kept.len(), 0] };
    let with = |at: usize| [&kept[..at], &new[..], &kept[at..]].concat();
    places.into_iter().map(with).collect()
}
