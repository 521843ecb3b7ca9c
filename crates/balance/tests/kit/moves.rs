//! Plans in force on clusters that have changed since, and what an oracle says of them.

use plimsoll_balance::{Objective, Placement, Plan, PlanOptions, price};
use plimsoll_cluster::{ClusterSnapshot, NodeStatus};
use plimsoll_units::{DeviceRef, Generation};

use super::instance::{Dev, Instance};
use super::{device_ref, float};

/// Numbers that look drawn and are always the same.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n.max(1)).expect("small");
        usize::try_from(self.next() % n).expect("small")
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Which device holds what, in order: a device, its layers, whether the head lies there. The host's part comes apart.
pub(crate) type Runs = Vec<(usize, usize, usize, bool)>;

/// A plan in force and the cluster of now.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) instance: Instance,
    pub(crate) host: usize,
    pub(crate) runs: Runs,
    /// Nodes whose contents are lost, and nodes that take nothing new.
    pub(crate) failed: Vec<bool>,
    pub(crate) drained: Vec<bool>,
}

impl Scene {
    /// A plan in any order with any cuts, on an instance whose rooms it may or may not fit.
    pub(crate) fn new(instance: Instance, seed: u64, losses: bool) -> Self {
        let mut random = Random(seed | 1);
        let layers = instance.layers.len();
        let cuts: Vec<usize> =
            (0..=layers).filter(|&c| c == 0 || c == layers || instance.layers[c - 1].cut).collect();
        let mut devices: Vec<usize> = (0..instance.devices.len()).collect();
        for at in (1..devices.len()).rev() {
            devices.swap(at, random.below(at + 1));
        }
        let host =
            if instance.host.is_some() && random.chance(40) { cuts[random.below(cuts.len())] } else { 0 };
        let mut runs: Runs = Vec::new();
        let mut start = host;
        for (left, device) in devices.iter().enumerate().rev().map(|(l, &d)| (l, d)) {
            if start == layers {
                break;
            }
            let later: Vec<usize> = cuts.iter().copied().filter(|&c| c > start).collect();
            let end = if left == 0 { layers } else { later[random.below(later.len().min(3))] };
            runs.push((device, start, end, false));
            start = end;
        }
        if let Some(last) = runs.last_mut() {
            last.3 = true;
        }
        let nodes = instance.devices.iter().map(|d| d.node + 1).max().unwrap_or(0).max(1);
        let first = usize::from(instance.host.is_some());
        let mut lose = |percent| {
            (0..nodes).map(|n| losses && n >= first && random.chance(percent)).collect::<Vec<bool>>()
        };
        let (failed, drained) = (lose(15), lose(15));
        Self { instance, host, runs, failed, drained }
    }

    pub(crate) fn reference(&self, device: usize) -> DeviceRef {
        device_ref(&format!("n{}", self.instance.devices[device].node), &format!("d{device}"))
    }

    /// The plan in force, made when there was room for anything.
    pub(crate) fn plan(&self, options: &PlanOptions) -> Plan {
        let mut roomy = self.instance.clone();
        for pool in &mut roomy.pools {
            *pool = 1_000_000;
        }
        for device in roomy.devices.iter_mut().chain(roomy.host.as_mut()) {
            device.limit = None;
        }
        let devices = self.runs.iter().map(|&(d, start, end, _)| (self.reference(d), start..end));
        let placement = Placement { on_host: self.host, devices: devices.collect(), moved: Vec::new() };
        let rules = roomy.rules();
        let priced = price(&roomy.snapshot(), &roomy.workload(), &rules, options, &placement, 0.0);
        priced.expect("it is a placement").plan
    }

    /// The cluster of now.
    pub(crate) fn snapshot(&self) -> ClusterSnapshot {
        let mut snapshot = self.instance.snapshot();
        snapshot.generation = Generation::FIRST.next();
        for (number, node) in snapshot.nodes.iter_mut().enumerate() {
            if self.failed[number] {
                node.status = NodeStatus::Failed;
            }
            node.drained = self.drained[number];
        }
        snapshot
    }

    pub(crate) fn usable(&self, device: usize) -> bool {
        let node = self.instance.devices[device].node;
        !self.failed[node] && !self.drained[node]
    }

    /// The devices of the plan that may still be used, and the others side by side in every gap.
    pub(crate) fn orders(&self) -> Vec<Vec<usize>> {
        let kept: Vec<usize> = self.runs.iter().map(|r| r.0).filter(|&d| self.usable(d)).collect();
        let mut new: Vec<usize> =
            (0..self.instance.devices.len()).filter(|d| self.usable(*d) && !kept.contains(d)).collect();
        let budget = |d: usize| {
            let device = &self.instance.devices[d];
            self.instance.pools[device.pool].min(device.limit.unwrap_or(u64::MAX))
        };
        new.sort_by_key(|&d| {
            (u64::MAX - self.instance.devices[d].rate, u64::MAX - budget(d), self.reference(d))
        });
        if new.is_empty() {
            return vec![kept];
        }
        (0..=kept.len()).map(|at| [&kept[..at], &new[..], &kept[at..]].concat()).collect()
    }
}

/// One way to place everything, measured.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) host: usize,
    pub(crate) bytes: u64,
    pub(crate) value: f64,
}

/// Every way in these orders that fits, for one objective.
pub(crate) fn every_way(scene: &Scene, orders: &[Vec<usize>], objective: Objective) -> Vec<Way> {
    let layers = scene.instance.layers.len();
    let legal = |cut: usize| cut == 0 || cut == layers || scene.instance.layers[cut - 1].cut;
    let hosts: Vec<usize> =
        if scene.instance.host.is_some() { (0..=layers).filter(|&h| legal(h)).collect() } else { vec![0] };
    let mut ways = Vec::new();
    for order in orders {
        for &host in &hosts {
            let mut runs = Vec::new();
            extend(scene, order, 0, host, host, &mut runs, objective, &mut ways);
        }
    }
    ways
}

#[expect(clippy::too_many_arguments, reason = "a recursion over plain numbers")]
fn extend(
    scene: &Scene,
    order: &[usize],
    from: usize,
    host: usize,
    start: usize,
    runs: &mut Runs,
    objective: Objective,
    ways: &mut Vec<Way>,
) {
    let layers = scene.instance.layers.len();
    let with_host = scene.instance.host.is_some();
    if with_host && host == layers && runs.is_empty() {
        ways.extend(weigh(scene, host, runs, objective));
    }
    let most = scene.instance.max_devices.map_or(usize::MAX, |m| usize::try_from(m).expect("small"));
    if runs.len() >= most {
        return;
    }
    for at in from..order.len() {
        for end in start..=layers {
            let cut = end == start || end == layers || scene.instance.layers[end - 1].cut;
            // With a main host the last device may hold the head alone.
            let alone = end == start && end == layers && with_host;
            if !cut || (end == start && !alone) {
                continue;
            }
            if end == layers {
                runs.push((order[at], start, end, true));
                ways.extend(weigh(scene, host, runs, objective));
                runs.pop();
                if alone || !with_host {
                    continue;
                }
            }
            if end > start {
                runs.push((order[at], start, end, false));
                extend(scene, order, at + 1, host, end, runs, objective, ways);
                runs.pop();
            }
        }
    }
}

fn layers_on(instance: &Instance, dev: &Dev, start: usize, end: usize) -> u64 {
    let padding = if dev.padded { instance.padding } else { 0 };
    instance.layers[start..end].iter().map(|l| l.weights + l.kv + padding).sum()
}

/// What moves to get from the plan in force to these runs.
fn bytes(scene: &Scene, host: usize, runs: &Runs) -> u64 {
    let instance = &scene.instance;
    let layers = instance.layers.len();
    let owner = |host: usize, runs: &Runs, layer: usize| {
        if layer < host { None } else { runs.iter().find(|r| r.1 <= layer && layer < r.2).map(|r| r.0) }
    };
    let head = |runs: &Runs| runs.iter().find(|r| r.3).map(|r| r.0);
    let input = |runs: &Runs| if instance.host.is_some() { None } else { runs.first().map(|r| r.0) };
    let mut bytes = 0;
    for layer in 0..layers {
        let (old, new) = (owner(scene.host, &scene.runs, layer), owner(host, runs, layer));
        if old != new {
            let dev = new.map_or_else(|| instance.host.expect("it holds it"), |d| instance.devices[d]);
            bytes += layers_on(instance, &dev, layer, layer + 1);
        }
    }
    if input(&scene.runs) != input(runs) {
        bytes += instance.input;
    }
    if head(&scene.runs) != head(runs) {
        bytes += if head(runs) == input(runs) { instance.head_beside } else { instance.head };
    }
    bytes
}

fn weigh(scene: &Scene, host: usize, runs: &Runs, objective: Objective) -> Option<Way> {
    let instance = &scene.instance;
    let c = &instance.charges;
    let layers = instance.layers.len();
    let copies = |n: usize| if n > 0 { instance.each_device } else { 0 };
    let read =
        |start: usize, end: usize| -> u64 { instance.layers[start..end].iter().map(|l| l.read + l.kv).sum() };
    // (device, bytes, works, seconds)
    let mut used: Vec<(Dev, u64, bool, f64)> = Vec::new();
    if let Some(dev) = instance.host {
        let alone = runs.is_empty();
        let mut bytes = layers_on(instance, &dev, 0, host) + copies(host) + instance.input;
        bytes += if alone { c[1] + instance.head_beside } else { c[0] };
        let time = read(0, host) + if alone { instance.head } else { 0 };
        used.push((dev, bytes, host > 0 || alone, float(time) / float(dev.rate)));
    } else if runs.is_empty() {
        return None;
    }
    for (number, &(device, start, end, head)) in runs.iter().enumerate() {
        let dev = instance.devices[device];
        let mut bytes = layers_on(instance, &dev, start, end) + copies(end - start);
        let with_input = instance.host.is_none() && number == 0;
        if with_input {
            bytes += instance.input;
        }
        if head {
            bytes += if with_input { instance.head_beside } else { instance.head };
        }
        bytes += if runs.len() == 1 && host == 0 {
            c[2]
        } else {
            let base = if host > 0 { 6 } else { 3 };
            c[base] + if number == 0 { c[base + 1] } else { 0 } + if head { c[base + 2] } else { 0 }
        };
        let time = read(start, end) + if head { instance.head } else { 0 };
        used.push((dev, bytes, true, float(time) / float(dev.rate)));
    }
    let mut share = 0.0_f64;
    for (number, (dev, bytes, works, _)) in used.iter().enumerate() {
        let others = used.iter().enumerate().filter(|(n, o)| *n != number && o.0.pool == dev.pool);
        let others: u64 = others.map(|(_, o)| o.1).sum();
        let left = instance.pools[dev.pool].checked_sub(others)?;
        let budget = left.min(dev.limit.unwrap_or(u64::MAX));
        if *bytes > budget {
            return None;
        }
        if *works {
            share = share.max(float(*bytes) / float(budget.max(1)));
        }
    }
    let count = u32::try_from(used.iter().filter(|u| u.2).count()).expect("few");
    let link = |a: usize, b: usize, place: usize| {
        if a == b {
            return 0.0;
        }
        let told = instance.links.iter().find(|l| (l.0, l.1) == (a.min(b), a.max(b))).expect("it is told");
        let behind = instance.boundaries.as_ref().filter(|_| place > 0).map(|told| told[place - 1]);
        float(told.3) + float(behind.unwrap_or(instance.activation)) / float(told.2)
    };
    let hop = |a: usize, b: usize, place: usize| {
        if instance.host.is_some() && a != b {
            link(a, 0, place) + link(0, b, place)
        } else {
            link(a, b, place)
        }
    };
    let later = if instance.host.is_some() { &runs[..] } else { &runs[1..] };
    let pairs = used.windows(2).zip(later);
    let hops: f64 = pairs.map(|(pair, run)| hop(pair[0].0.node, pair[1].0.node, run.1)).sum();
    let value = match objective {
        Objective::Fit => f64::from(count),
        Objective::Balanced => share,
        Objective::Throughput => used.iter().map(|u| u.3).fold(0.0, f64::max),
        Objective::Latency => used.iter().map(|u| u.3).sum::<f64>() + hops,
    };
    debug_assert!(layers >= host);
    Some(Way { host, bytes: bytes(scene, host, runs), value })
}
