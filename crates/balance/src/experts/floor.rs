//! What no plan with parts on the main host can be better than, however its layers are cut.

use crate::core::as_f64;
use crate::experts::parts::Parts;
use crate::fleet::Candidate;
use crate::workload::Objective;

/// Bytes, and what a token reads of them.
#[derive(Clone, Copy, Debug)]
struct Item {
    bytes: u64,
    read: u64,
}

impl Item {
    /// What is read of one byte.
    fn density(&self) -> f64 {
        as_f64(self.read) / as_f64(self.bytes.max(1))
    }
}

/// Room, and how fast it is read.
#[derive(Clone, Copy, Debug)]
struct Pool {
    room: u64,
    rate: f64,
}

/// A value that no plan is better than. Infinite where nothing can fit.
///
/// Layers are cut at will, and every byte goes where it serves best: what is read most to the fastest pool. Nothing is
/// charged but what everyone pays, and nothing is sent.
pub(crate) fn floor(parts: &Parts<'_>) -> f64 {
    let items = items(parts);
    let pools = pools(parts);
    let needs = items.iter().fold(0_u64, |sum, item| sum.saturating_add(item.bytes));
    let room = pools.iter().fold(0_u64, |sum, pool| sum.saturating_add(pool.room));
    if needs > room {
        return f64::INFINITY;
    }
    match parts.context.options.objective {
        // The main host and one device at least.
        Objective::Fit => 2.0,
        Objective::Balanced => as_f64(needs) / as_f64(room.max(1)),
        Objective::Latency => fastest(items, pools),
        Objective::Throughput => {
            let read = items.iter().fold(0_u64, |sum, item| sum.saturating_add(item.read));
            let host = parts.context.rate(&parts.host.place);
            let rates = parts.context.fleet.devices.iter().map(|device| parts.context.rate(device));
            let together = as_f64(read) / (host + rates.sum::<f64>());
            together.max(overflow(parts, items) / host)
        }
    }
}

/// What a token reads at least of what devices have no room for: of that which is read least.
fn overflow(parts: &Parts<'_>, mut items: Vec<Item>) -> f64 {
    let own = parts.host.place.pool;
    let mut room: u64 = 0;
    let mut seen = vec![own];
    for device in &parts.context.fleet.devices {
        // A pool that the host draws on as well has the same room for both.
        if device.pool == own {
            return 0.0;
        }
        if !seen.contains(&device.pool) {
            seen.push(device.pool);
            let pool = parts.context.fleet.pools.get(device.pool).copied().unwrap_or(0);
            room = room.saturating_add(pool.saturating_sub(parts.movable.charges.each.get()));
        }
    }
    items.sort_by(|a, b| a.density().total_cmp(&b.density()));
    let mut left = items.iter().fold(0_u64, |sum, item| sum.saturating_add(item.bytes)).saturating_sub(room);
    let mut read = 0.0;
    for item in items {
        let here = left.min(item.bytes);
        read += as_f64(here) * item.density();
        left -= here;
    }
    read
}

/// The least sum of times: what is read most of a byte lies where reading is fastest.
fn fastest(mut items: Vec<Item>, mut pools: Vec<Pool>) -> f64 {
    items.sort_by(|a, b| b.density().total_cmp(&a.density()));
    pools.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let mut pools = pools.into_iter();
    let mut pool = pools.next();
    let mut seconds = 0.0;
    for item in items {
        let mut left = item.bytes;
        while left > 0 {
            let Some(current) = &mut pool else { return f64::INFINITY };
            let here = left.min(current.room);
            seconds += as_f64(here) * item.density() / current.rate;
            current.room -= here;
            left -= here;
            if left > 0 {
                pool = pools.next();
            }
        }
    }
    seconds
}

/// Every layer without its part, every part, and the head: each as the buffers that take least of it.
fn items(parts: &Parts<'_>) -> Vec<Item> {
    let classes = &parts.context.items.classes;
    let rows = &parts.movable.parts;
    let least = |of: &dyn Fn(usize) -> u64| (0..classes.len()).map(of).min().unwrap_or(0);
    let part = |class: usize, layer: usize| {
        rows.get(class).and_then(|row| row.get(layer)).copied().unwrap_or_default()
    };
    let mut items = Vec::new();
    for layer in 0..parts.context.items.layers() {
        let rest = |class: usize| {
            let part = part(class, layer).weights_bytes.get();
            classes[class].resident(layer, layer + 1).saturating_sub(part)
        };
        let rest_read = |class: usize| {
            let part = part(class, layer).read_bytes.get();
            classes[class].touched(layer, layer + 1).saturating_sub(part)
        };
        items.push(Item { bytes: least(&rest), read: least(&rest_read) });
        let bytes = least(&|class| part(class, layer).weights_bytes.get());
        let read = least(&|class| part(class, layer).read_bytes.get());
        items.push(Item { bytes, read });
    }
    let head = least(&|class| classes[class].head);
    items.push(Item { bytes: head, read: head });
    items.retain(|item| item.bytes > 0);
    items
}

/// Each pool with the most that layers can take of it, at the speed of the fastest device that draws on it.
fn pools(parts: &Parts<'_>) -> Vec<Pool> {
    let context = parts.context;
    let host = &parts.host.place;
    let kept = context.class(host.backend).input.saturating_add(context.rules.charges.host.get());
    let pool_of = |place: &Candidate| context.fleet.pools.get(place.pool).copied().unwrap_or(0);
    let mut all: Vec<(usize, Pool)> =
        vec![(host.pool, Pool { room: pool_of(host).saturating_sub(kept), rate: context.rate(host) })];
    for device in &context.fleet.devices {
        let rate = context.rate(device);
        let charge = parts.movable.charges.each.get();
        match all.iter_mut().find(|(pool, _)| *pool == device.pool) {
            Some((_, pool)) => pool.rate = pool.rate.max(rate),
            None => {
                let room = pool_of(device).saturating_sub(charge);
                all.push((device.pool, Pool { room, rate }));
            }
        }
    }
    // The host holds whole layers where it draws on the pool of no device: no more than its own limit.
    if let Some((_, pool)) = all.first_mut()
        && parts.pools_apart()
    {
        pool.room = context.fleet.budget(host).saturating_sub(kept);
    }
    all.into_iter().map(|(_, pool)| pool).collect()
}
