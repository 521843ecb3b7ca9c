//! Every plan with parts of layers on the main host, one after the other.

use plimsoll_balance::{Movable, MoveWhen, Part, PartClass, StageCharges, Workload};
use plimsoll_units::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::float;
use super::instance::{self, Dev, Instance};
use super::oracle::{hop, legal};

/// An instance whose layers have parts that may move.
#[derive(Clone, Debug)]
pub(crate) struct Parted {
    pub(crate) instance: Instance,
    /// Of each layer: what the part takes, what it takes more in padded buffers, and what a token reads of it.
    pub(crate) parts: Vec<(u64, u64, u64)>,
    /// What every device pays with parts elsewhere, the first one on top, and the one with the head on top.
    pub(crate) charges: [u64; 3],
    pub(crate) always: bool,
}

impl Parted {
    /// The layers alone.
    pub(crate) fn whole(&self) -> Workload {
        self.instance.workload()
    }

    /// The layers with their parts.
    pub(crate) fn workload(&self) -> Workload {
        let part =
            |bytes: u64, read: u64| Part { weights_bytes: Bytes::new(bytes), read_bytes: Bytes::new(read) };
        let plain = self.parts.iter().map(|&(bytes, _, read)| part(bytes, read)).collect();
        let padded = self.parts.iter().map(|&(bytes, more, read)| part(bytes + more, read)).collect();
        let [each, first_more, last_more] = self.charges.map(Bytes::new);
        let movable = Movable {
            class: PartClass::Experts,
            when: if self.always { MoveWhen::Always } else { MoveWhen::Needed },
            parts: vec![plain, padded],
            charges: StageCharges { each, first_more, last_more },
        };
        Workload { movable: Some(movable), ..self.whole() }
    }
}

pub(crate) fn parted(max_layers: usize, max_devices: usize) -> impl Strategy<Value = Parted> {
    let shares = vec((0_u64..=10, 0_u64..=10, any::<bool>()), max_layers);
    let charges = prop::bool::weighted(0.3).prop_flat_map(|any| vec(if any { 0_u64..4 } else { 0..1 }, 3));
    (instance::around_a_host(max_layers, max_devices), shares, charges, prop::bool::weighted(0.15)).prop_map(
        |(instance, shares, charges, always)| {
            let layers = instance.layers.iter().zip(shares);
            let parts = layers.map(|(layer, (bytes, read, padded))| {
                let bytes = layer.weights * bytes / 10;
                let more = if padded && bytes > 0 { instance.padding } else { 0 };
                (bytes, more, (layer.read * read / 10).min(bytes))
            });
            let parts = parts.collect();
            Parted { parts, charges: charges.try_into().expect("three charges"), instance, always }
        },
    )
}

/// A device and its layers.
type Run = (usize, usize, usize);

/// The best of every objective over all plans that fit and have at least one part on the main host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Best {
    pub(crate) latency: Option<f64>,
    pub(crate) throughput: Option<f64>,
    /// The least bytes of layers on the main host.
    pub(crate) on_host: Option<u64>,
}

/// Tries every order of every set of devices, every cut, and every set of layers whose parts move.
pub(crate) fn every_plan(parted: &Parted) -> Best {
    let mut best = Best::default();
    for host in 0..=parted.instance.layers.len() {
        if legal(&parted.instance, host) {
            extend(parted, host, host, &mut Vec::new(), &mut best);
        }
    }
    best
}

fn extend(parted: &Parted, host: usize, start: usize, runs: &mut Vec<Run>, best: &mut Best) {
    let instance = &parted.instance;
    let layers = instance.layers.len();
    if instance.max_devices.is_some_and(|most| runs.len() >= usize::try_from(most).expect("few")) {
        return;
    }
    for device in 0..instance.devices.len() {
        if runs.iter().any(|run| run.0 == device) {
            continue;
        }
        for end in (start..=layers).filter(|&end| legal(instance, end)) {
            runs.push((device, start, end));
            if end == layers {
                every_set(parted, host, runs, best);
            }
            if end > start {
                extend(parted, host, end, runs, best);
            }
            runs.pop();
        }
    }
}

fn every_set(parted: &Parted, host: usize, runs: &[Run], best: &mut Best) {
    let movable: Vec<usize> = (host..parted.parts.len()).filter(|&layer| parted.parts[layer].0 > 0).collect();
    for set in 1..1_u32 << movable.len() {
        let moved: Vec<usize> = movable
            .iter()
            .enumerate()
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .map(|(_, layer)| *layer)
            .collect();
        if !parted.always || moved.len() == movable.len() {
            weigh(parted, host, runs, &moved, best);
        }
    }
}

/// Adds up one plan and keeps what is best of it where it fits.
fn weigh(parted: &Parted, host: usize, runs: &[Run], moved: &[usize], best: &mut Best) {
    let instance = &parted.instance;
    let own = instance.host.expect("a main host");
    let size =
        |dev: &Dev, layer: usize| parted.parts[layer].0 + if dev.padded { parted.parts[layer].1 } else { 0 };
    let layers = |dev: &Dev, start: usize, end: usize| -> u64 {
        let padding = if dev.padded { instance.padding } else { 0 };
        instance.layers[start..end].iter().map(|l| l.weights + l.kv + padding).sum()
    };
    let read =
        |start: usize, end: usize| -> u64 { instance.layers[start..end].iter().map(|l| l.read + l.kv).sum() };
    let shared = |start: usize, end: usize| if end > start { instance.each_device } else { 0 };
    let given: u64 = moved.iter().map(|&layer| size(&own, layer)).sum();
    let on_host = layers(&own, 0, host) + shared(0, host) + given;
    let mut used = vec![(own, on_host + instance.input + instance.charges[0])];
    let moved_read: u64 = moved.iter().map(|&layer| parted.parts[layer].2).sum();
    let mut times = vec![float(read(0, host) + moved_read) / float(own.rate)];
    let mut sum = times[0];
    let mut at = 0;
    for (number, &(device, start, end)) in runs.iter().enumerate() {
        let dev = instance.devices[device];
        let last = number + 1 == runs.len();
        let here: Vec<usize> = moved.iter().copied().filter(|layer| (start..end).contains(layer)).collect();
        let gone: u64 = here.iter().map(|&layer| size(&dev, layer)).sum();
        let mut bytes = layers(&dev, start, end) - gone + shared(start, end) + parted.charges[0];
        bytes += if number == 0 { parted.charges[1] } else { 0 };
        bytes += if last { parted.charges[2] + instance.head } else { 0 };
        used.push((dev, bytes));
        let gone_read: u64 = here.iter().map(|&layer| parted.parts[layer].2).sum();
        let time =
            float(read(start, end) + if last { instance.head } else { 0 } - gone_read) / float(dev.rate);
        times.push(time);
        let way = |a, b, place| hop(instance, a, b, place).iter().sum::<f64>();
        let largest = (0..=instance.layers.len()).map(|place| way(0, dev.node, place)).fold(0.0, f64::max);
        sum +=
            time + way(at, dev.node, start) + 2.0 * largest * float(u64::try_from(here.len()).expect("few"));
        at = dev.node;
    }
    for (number, (dev, bytes)) in used.iter().enumerate() {
        let others = used.iter().enumerate().filter(|(n, other)| *n != number && other.0.pool == dev.pool);
        let others: u64 = others.map(|(_, other)| other.1).sum();
        let fits = instance.pools[dev.pool].checked_sub(others).is_some_and(|left| left >= *bytes);
        if !fits || *bytes > dev.limit.unwrap_or(u64::MAX) {
            return;
        }
    }
    let largest = times.into_iter().fold(0.0, f64::max);
    best.latency = Some(best.latency.map_or(sum, |least| least.min(sum)));
    best.throughput = Some(best.throughput.map_or(largest, |least| least.min(largest)));
    best.on_host = Some(best.on_host.map_or(on_host, |least| least.min(on_host)));
}
