//! What pins change in a problem: chains in which they are too heavy for others, and who uses a shared pool.

use super::{Choice, Posed, Search};
use crate::core::chain::Chain;
use crate::items::Fold;

impl Search<'_> {
    /// A chain for every footprint and one for each device that has pins; in each, what is pinned elsewhere is too heavy.
    /// With them, which chain a device follows.
    pub(super) fn chains(&self, fold: &Fold) -> (Vec<Chain>, impl Fn(usize) -> usize) {
        let context = self.context;
        let pins = &context.pins;
        let chain = |class: usize, device: Option<usize>| {
            // A device without pins is none of those that have any.
            let elsewhere = |place: usize| pins.elsewhere(device, place).map_or(0, |_| pins.too_heavy);
            context.items.chain_with(class, fold, elsewhere)
        };
        let footprints = context.items.classes.len();
        let mut chains: Vec<Chain> = (0..footprints).map(|class| chain(class, None)).collect();
        for (device, _) in pins.on_devices() {
            let class = context.class_index(context.fleet.devices[device].backend);
            chains.push(chain(class, Some(device)));
        }
        let class_of = move |number: usize| match pins.on_devices().position(|(device, _)| device == number) {
            Some(place) => footprints + place,
            None => context.class_index(context.fleet.devices[number].backend),
        };
        (chains, class_of)
    }

    /// The ways to use the devices of one pool.
    pub(super) fn ways(&self, posed: &Posed, pool: &[usize]) -> Vec<Choice> {
        let pins = &self.context.pins;
        let pinned: Vec<usize> =
            pool.iter().copied().filter(|&device| pins.in_its_pipeline(device).is_some()).collect();
        if pinned.len() < 2 {
            let usable = if pinned.is_empty() { pool } else { &pinned[..] };
            return usable.iter().map(|&device| vec![(device, u64::MAX)]).collect();
        }
        let (context, devices) = (self.context, &self.context.fleet.devices);
        let charges = &context.rules.charges;
        let each = if posed.host > 0 { charges.partial.each } else { charges.split.each };
        // What a device takes for what is pinned to it and nothing else.
        let least = |device: usize| {
            let place = posed.devices.iter().position(|&d| d == device);
            let slot = place.and_then(|place| posed.problem.slots.get(place));
            let hull = pins.in_its_pipeline(device);
            let items = hull.map(|hull| context.items.items_of(&posed.fold, &hull.layers));
            let load = slot
                .zip(items)
                .map_or(0, |(slot, items)| posed.problem.chain(slot).load(items.start, items.end));
            let shared = context.class(devices[device].backend).each_device;
            load.saturating_add(shared).saturating_add(each.get())
        };
        let way = |&roomy: &usize| {
            let others = pinned.iter().filter(|&&device| device != roomy);
            let others: Choice = others.map(|&device| (device, least(device))).collect();
            let pool = devices[roomy].pool;
            let host = context.fleet.host.as_ref().filter(|host| host.place.pool == pool);
            let taken = host.map_or(0, |_| posed.host_uses);
            let taken = others.iter().map(|choice| choice.1).fold(taken, u64::saturating_add);
            let left = context.fleet.pools.get(pool).copied().unwrap_or(0).saturating_sub(taken);
            others.into_iter().chain([(roomy, left)]).collect()
        };
        pinned.iter().map(way).collect()
    }
}
