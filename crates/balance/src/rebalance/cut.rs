//! The main host's part, and what is left for the devices behind it.

use std::ops::Range;

use super::find::Finder;
use super::given::Given;
use super::line::{Line, Seat};
use crate::core::as_f64;
use crate::core::chain::Chain;
use crate::items::Fold;

/// So many gaps are tried as a place for new devices; where there are more, only both ends.
const GAPS: usize = 32;

/// And no more than so many (device, layer) pairs for all gaps together.
const PAIRS: usize = 2_000_000;

/// The main host's part, and the devices' problem behind it.
pub(crate) struct Cut {
    pub(crate) fold: Fold,
    pub(crate) host_layers: usize,
    host_uses: u64,
    /// Seconds for the host's layers.
    pub(crate) pace: f64,
    /// The used share of the host, where it holds layers.
    pub(crate) share: f64,
    chains: Vec<Chain>,
    /// For every class, prefix sums of what has to be sent for each item.
    sent: Vec<Vec<u64>>,
}

impl Finder<'_> {
    /// The main host's part up to a cut; `None` when it cannot hold that.
    pub(crate) fn cut(&self, at: usize) -> Option<Cut> {
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
        // What cannot be cut comes along.
        let first = items.cuts.partition_point(|&cut| cut <= layers.start).saturating_sub(1);
        let last = items.cuts.partition_point(|&cut| cut < layers.end);
        let head = fold.lone_head && parts.end == self.given.parts();
        let end = last.saturating_sub(fold.from) + usize::from(head);
        (first.saturating_sub(fold.from).min(end), end)
    }

    /// The devices of an order that may take something behind a cut.
    pub(crate) fn line<'c>(
        &self,
        cut: &'c Cut,
        order: &[usize],
        chosen: Option<&[usize]>,
    ) -> (Line<'c>, Vec<usize>) {
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
            let on_place = self.given.number(&device.device).and_then(|place| self.withheld_on.get(&place));
            let limit = device.limit.saturating_sub(on_place.copied().unwrap_or(0));
            let room = pool.saturating_sub(held).min(limit).saturating_sub(own);
            let (fixed, rate) =
                if context.timed() { (0, context.rate(device)) } else { (own, as_f64(budget.max(1))) };
            let holds = self.held.get(&number).map_or((0, 0), |parts| self.items_of(&cut.fold, parts));
            let must = self.musts.get(&number).map_or((0, 0), |must| {
                // What begins before the cut lies on the host, and so not here.
                let on_host = self.given.layers(must).start < cut.host_layers;
                if on_host { (usize::MAX - 1, usize::MAX) } else { self.items_of(&cut.fold, must) }
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
}

/// The devices of the plan in force in their order, and those that are new at every place among them.
///
/// New ones stand together, the fastest first, then the larger, then by id: behind each device of the plan in turn, and
/// before the first. Where that is too much work, only before the first and behind the last.
pub(crate) fn orders(given: &Given<'_>) -> Vec<Vec<usize>> {
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
