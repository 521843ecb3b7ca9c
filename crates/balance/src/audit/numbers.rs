//! Whether every number is what adding up gives.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_cluster::speeds::{AssumedBy, assumed_bandwidth, default_link};
use plimsoll_cluster::{GpuBackend, Pool};
use plimsoll_model::Footprint;
use plimsoll_units::{Bytes, BytesPerSec, DeviceRef, NodeId, PoolId};

use super::{Amount, Case, Finding, TOLERANCE};
use crate::plan::{Assumption, Stage, StoppedBy};
use crate::workload::{HostUse, Objective};

/// What lies on one device.
struct Held {
    weights: u128,
    kv: u128,
    overhead: u128,
}

impl Held {
    fn total(&self) -> u128 {
        self.weights + self.kv + self.overhead
    }
}

fn wide(bytes: Bytes) -> u128 {
    u128::from(bytes.get())
}

fn narrow(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn float(bytes: u128) -> f64 {
    Bytes::new(narrow(bytes)).as_f64()
}

impl Case<'_> {
    pub(super) fn backend(&self, stage: &Stage) -> GpuBackend {
        self.snapshot.device(&stage.device).map_or(GpuBackend::Cpu, |(_, device)| device.backend)
    }

    fn footprint(&self, stage: &Stage) -> Option<&Footprint> {
        self.workload.on(self.backend(stage)).or_else(|| self.workload.footprints.first())
    }

    fn pool_of(&self, stage: &Stage) -> Option<(&NodeId, &PoolId)> {
        self.pool_at(&stage.device)
    }

    fn pool_at(&self, device: &DeviceRef) -> Option<(&NodeId, &PoolId)> {
        let node = self.snapshot.node(&device.node)?;
        let device = node.device(&device.device)?;
        node.pool(&device.pool).map(|pool| (&node.id, &pool.id))
    }

    /// max(0, min(cap, total − reserve, free + held − reserve)).
    fn pool_budget(&self, pool: &Pool) -> u128 {
        let reserve = wide(self.options.reserve.or(pool.reserve).unwrap_or(self.rules.margin));
        let Some(free) = pool.free else { return 0 };
        let by_total = wide(pool.total).saturating_sub(reserve);
        let by_free = (wide(free) + wide(pool.held)).saturating_sub(reserve);
        let by_cap = pool.cap.map_or(u128::MAX, wide);
        by_total.min(by_free).min(by_cap)
    }

    fn held(&self, stage: &Stage) -> Held {
        let layers = self.layers(self.backend(stage));
        let mine = || layers.iter().filter(|layer| stage.layers.contains(&layer.index));
        let mut weights: u128 = mine().map(|layer| wide(layer.weights_bytes)).sum();
        let kv = mine().map(|layer| wide(layer.kv_bytes)).sum();
        if let Some(footprint) = self.footprint(stage) {
            if stage.layers.start < stage.layers.end {
                weights += wide(footprint.each_device_bytes);
            }
            if stage.input {
                weights += wide(footprint.input_bytes);
            }
            if stage.head && stage.input {
                weights += wide(footprint.head_beside_input_bytes);
            } else if stage.head {
                weights += wide(footprint.head_bytes);
            }
        }
        let (parts, _) = self.parts_of(stage);
        weights =
            if self.is_main_host(&stage.device) { weights + parts } else { weights.saturating_sub(parts) };
        Held { weights, kv, overhead: self.overhead(stage) }
    }

    /// What the engine charges a device, by who takes part.
    fn overhead(&self, stage: &Stage) -> u128 {
        let charges = &self.rules.charges;
        let stages = self.line(stage);
        let devices: Vec<&Stage> = stages.iter().filter(|s| !self.is_main_host(&s.device)).collect();
        if self.rules.host == HostUse::FirstLayersOfMain && self.is_main_host(&stage.device) {
            return wide(if devices.is_empty() { charges.host_alone } else { charges.host });
        }
        let host_has_layers = stages.iter().any(|s| self.is_main_host(&s.device) && !s.layers.is_empty());
        let moved = self.workload.movable.as_ref().filter(|_| !self.plan.overrides.is_empty());
        let by_place = match (moved, host_has_layers, devices.len()) {
            (Some(movable), ..) => &movable.charges,
            (None, true, _) => &charges.partial,
            (None, false, 1) => return wide(charges.alone),
            (None, false, _) => &charges.split,
        };
        let mut sum = wide(by_place.each);
        if devices.first().is_some_and(|first| first.device == stage.device) {
            sum += wide(by_place.first_more);
        }
        if stage.head {
            sum += wide(by_place.last_more);
        }
        sum
    }

    /// What may be used by a stage beside the others of its pool.
    fn budget(&self, stage: &Stage) -> u128 {
        let Some((node, pool)) = self.pool_of(stage) else { return 0 };
        let others = self.plan.stages.iter().filter(|s| s.device != stage.device);
        let others = others.filter(|s| self.pool_of(s) == Some((node, pool)));
        let others: u128 = others.map(|s| self.held(s).total()).sum();
        let whole = self.snapshot.node(node).and_then(|n| n.pool(pool));
        let beside: u128 = self.beside(|device| self.pool_at(device) == Some((node, pool)));
        let left =
            whole.map_or(0, |pool| self.pool_budget(pool)).saturating_sub(others).saturating_sub(beside);
        left.min(self.most_of(&stage.device).saturating_sub(self.beside(|device| *device == stage.device)))
    }

    /// The most that may be used of a device, whatever its pool has.
    fn most_of(&self, device: &DeviceRef) -> u128 {
        let limit = self.snapshot.device(device).and_then(|(_, device)| device.limit);
        let cap = self.options.caps.get(device).copied();
        [limit, cap].into_iter().flatten().map(wide).fold(u128::MAX, u128::min)
    }

    /// What lies beside the layers on some devices.
    fn beside(&self, on: impl Fn(&DeviceRef) -> bool) -> u128 {
        self.plan.parts.iter().filter(|part| on(&part.device)).map(|part| wide(part.bytes)).sum()
    }

    /// Whether what lies beside the layers is what was asked for, and fits where it lies.
    pub(super) fn parts_beside(&self, findings: &mut Vec<Finding>) {
        if self.plan.parts != self.options.parts {
            findings.push(Finding::OtherRequest);
        }
        for part in &self.plan.parts {
            let device = part.device.clone();
            let Some(pool) = self.pool_at(&device) else {
                findings.push(Finding::Unusable { device, reason: "there is no such device" });
                continue;
            };
            let own = self.beside(|other| *other == device);
            let of_pool = self.beside(|other| self.pool_at(other) == Some(pool));
            let whole = self.snapshot.node(pool.0).and_then(|node| node.pool(pool.1));
            let budget = whole.map_or(0, |pool| self.pool_budget(pool));
            let most = self.most_of(&device);
            if of_pool > budget || own > most {
                let (needs, budget) = if own > most { (own, most) } else { (of_pool, budget) };
                findings.push(Finding::OverBudget { device, needs: narrow(needs), budget: narrow(budget) });
            }
        }
    }

    /// Every byte and every second of every stage.
    pub(super) fn stages(&self, findings: &mut Vec<Finding>) {
        for stage in &self.plan.stages {
            let held = self.held(stage);
            let budget = self.budget(stage);
            let numbers = [
                (Amount::Weights, stage.weights_bytes, held.weights),
                (Amount::KeyValue, stage.kv_bytes, held.kv),
                (Amount::Charges, stage.overhead_bytes, held.overhead),
                (Amount::Budget, stage.budget_bytes, budget),
                (Amount::Slack, stage.slack_bytes, budget.saturating_sub(held.total())),
            ];
            for (what, claimed, actual) in numbers {
                if wide(claimed) != actual {
                    let (claimed, actual) = (claimed.get(), narrow(actual));
                    findings.push(Finding::Number { device: stage.device.clone(), what, claimed, actual });
                }
            }
            if held.total() > budget {
                let (needs, budget) = (narrow(held.total()), narrow(budget));
                findings.push(Finding::OverBudget { device: stage.device.clone(), needs, budget });
            }
            let actual = self.seconds(stage);
            let agree = match (stage.seconds, actual) {
                (Some(a), Some(b)) => (a - b).abs() <= TOLERANCE * b.abs(),
                (a, b) => a.is_none() && b.is_none(),
            };
            if !agree {
                let claimed = stage.seconds;
                findings.push(Finding::Seconds { device: stage.device.clone(), claimed, actual });
            }
        }
    }

    fn speeds_unknown(&self) -> bool {
        self.plan.assumed.iter().any(|a| matches!(a, Assumption::UnknownSpeed { .. }))
    }

    fn rate(&self, stage: &Stage) -> Option<BytesPerSec> {
        let told = self.snapshot.device(&stage.device).and_then(|(_, device)| device.bandwidth);
        told.or_else(|| {
            self.plan.assumed.iter().find_map(|assumed| match assumed {
                Assumption::Bandwidth { device, rate, .. } if *device == stage.device => Some(*rate),
                _ => None,
            })
        })
    }

    pub(super) fn seconds(&self, stage: &Stage) -> Option<f64> {
        if self.speeds_unknown() {
            return None;
        }
        if !self.computes(stage) {
            return Some(0.0);
        }
        let layers = self.layers(self.backend(stage));
        let mine = layers.iter().filter(|layer| stage.layers.contains(&layer.index));
        let mut read: u128 = mine.map(|layer| wide(layer.read_bytes) + wide(layer.kv_bytes)).sum();
        if stage.head {
            read += self.footprint(stage).map_or(0, |f| wide(f.head_bytes));
        }
        let (_, parts) = self.parts_of(stage);
        read = if self.is_main_host(&stage.device) { read + parts } else { read.saturating_sub(parts) };
        let rate = self.rate(stage)?;
        (!rate.is_zero()).then(|| float(read) / rate.as_f64())
    }

    /// What is told of a link, and whether anything was assumed.
    pub(super) fn link(&self, a: &NodeId, b: &NodeId) -> (BytesPerSec, Duration, bool) {
        let between = |link: &&plimsoll_cluster::Link| {
            let [x, y] = &link.between;
            (x, y) == (a, b) || (y, x) == (a, b)
        };
        let usual = (default_link().bandwidth, default_link().latency, true);
        let links = self.snapshot.links.iter().filter(between).map(|link| {
            let (rate, latency) = (link.bandwidth.unwrap_or(usual.0), link.latency.unwrap_or(usual.1));
            (rate, latency, link.bandwidth.is_none() || link.latency.is_none())
        });
        links.min_by_key(|link| (link.1, u64::MAX - link.0.get())).unwrap_or(usual)
    }

    /// The pairs of nodes that tokens pass between, one for each link on the way.
    fn ways(&self) -> Vec<[NodeId; 2]> {
        let mut ways = Vec::new();
        for pair in self.lines.iter().flat_map(|line| line.windows(2)) {
            let (from, to) = (&pair[0].device.node, &pair[1].device.node);
            if from == to {
                continue;
            }
            match self.main.map(|node| &node.id) {
                Some(main) if from != main && to != main => {
                    ways.push([from.clone(), main.clone()]);
                    ways.push([main.clone(), to.clone()]);
                }
                _ => ways.push([from.clone(), to.clone()]),
            }
        }
        ways
    }

    pub(super) fn actual_value(&self) -> Option<f64> {
        let stages = &self.plan.stages;
        let working = || stages.iter().filter(|s| self.computes(s));
        match self.plan.objective {
            Objective::Fit => Some(working().map(|_| 1.0).sum()),
            Objective::Balanced => Some(
                working()
                    .map(|s| float(self.held(s).total()) / float(self.budget(s).max(1)))
                    .fold(0.0, f64::max),
            ),
            Objective::Throughput if self.lines.len() > 1 => self.bottleneck(),
            Objective::Throughput => {
                let times: Option<Vec<f64>> = stages.iter().map(|s| self.seconds(s)).collect();
                times.map(|times| self.largest(&times))
            }
            Objective::Latency => {
                let times: Option<Vec<f64>> = stages.iter().map(|s| self.seconds(s)).collect();
                let hops = (1..stages.len()).flat_map(|at| self.links_before(at));
                times.map(|times| times.into_iter().sum::<f64>() + hops.sum::<f64>() + self.trips())
            }
        }
    }

    /// What the tables say of a device's speed, `None` inside where they know none; `None` where the snapshot tells it, or
    /// has no such device.
    fn assumed_of(&self, device: &DeviceRef) -> Option<Option<(BytesPerSec, AssumedBy)>> {
        let (_, device) = self.snapshot.device(device)?;
        let untold = device.bandwidth.is_none();
        untold.then(|| assumed_bandwidth(device.name.as_deref(), device.backend))
    }

    /// What is assumed is not told and is what the tables say, and what is not told and used is assumed.
    pub(super) fn assumptions(&self, findings: &mut Vec<Finding>) {
        let (mut devices, mut links) = (BTreeSet::new(), BTreeSet::new());
        for assumed in &self.plan.assumed {
            let wrong = match assumed {
                Assumption::Bandwidth { device, rate, by_name } => {
                    let by = if *by_name { AssumedBy::Name } else { AssumedBy::Kind };
                    let right = self.assumed_of(device) == Some(Some((*rate, by)));
                    (!devices.insert(device) || !right).then(|| device.to_string())
                }
                Assumption::UnknownSpeed { device } => {
                    let right = self.assumed_of(device) == Some(None);
                    (!devices.insert(device) || !right).then(|| device.to_string())
                }
                Assumption::Link { between: [a, b], rate, latency } => {
                    let new = links.insert(ordered([a.clone(), b.clone()]));
                    let right = self.link(a, b) == (*rate, *latency, true);
                    (!new || !right).then(|| format!("{a} to {b}"))
                }
            };
            findings.extend(wrong.map(|what| Finding::Assumed { what }));
        }
        let needed: BTreeSet<[NodeId; 2]> =
            self.ways().into_iter().filter(|[a, b]| self.link(a, b).2).map(ordered).collect();
        if let Some([a, b]) = needed.symmetric_difference(&links).next() {
            findings.push(Finding::Assumed { what: format!("{a} to {b}") });
        }
    }

    /// What stopped each device, as far as the plan itself tells.
    pub(super) fn stops(&self, findings: &mut Vec<Finding>) {
        let mut seen = BTreeSet::new();
        for stopped in &self.plan.stopped {
            let stage = self.plan.stages.iter().find(|s| s.device == stopped.device && Self::works(s));
            let node = self.snapshot.node(&stopped.device.node);
            let sound = match &stopped.reason {
                StoppedBy::Layer { index, needs, room } => {
                    let there = self.layers(GpuBackend::Cpu).iter().any(|layer| layer.index == *index);
                    let inside = stage.is_some_and(|s| s.layers.contains(index));
                    let left = stage.is_none_or(|s| s.slack_bytes == *room);
                    let short = needs.checked_sub(*room);
                    there
                        && !inside
                        && left
                        && short == Some(stopped.short_bytes)
                        && short != Some(Bytes::ZERO)
                }
                StoppedBy::Overhead { needs, budget } => {
                    stage.is_none() && needs.checked_sub(*budget) == Some(stopped.short_bytes)
                }
                // Bytes would not help with any of these.
                _ if !stopped.short_bytes.is_zero() => false,
                StoppedBy::NotNeeded => true,
                StoppedBy::Pinned { index, device } => {
                    let pinned = self.options.pins.iter().any(|pin| pin.device == *device);
                    let mut stages = self.plan.stages.iter().filter(|s| s.device == *device);
                    pinned
                        && *device != stopped.device
                        && stages.any(|s| {
                            s.layers.contains(index) && stage.is_none_or(|own| own.pipeline == s.pipeline)
                        })
                }
                _ if stage.is_some() => false,
                StoppedBy::Drained => node.is_some_and(|n| n.drained),
                StoppedBy::Failed => node.is_some_and(|n| n.status == plimsoll_cluster::NodeStatus::Failed),
                StoppedBy::FreeUnknown => {
                    let device = self.snapshot.device(&stopped.device);
                    device.is_some_and(|(n, d)| n.pool(&d.pool).is_none_or(|pool| pool.free.is_none()))
                }
                StoppedBy::NotAsked => {
                    self.options.only.as_ref().is_some_and(|only| !only.contains(&stopped.device.node))
                }
                StoppedBy::DeviceLimit { limit } => {
                    [self.rules.max_devices, self.options.max_devices].contains(&Some(*limit))
                }
            };
            if !sound || !seen.insert(&stopped.device) || self.snapshot.device(&stopped.device).is_none() {
                findings.push(Finding::Stopped { device: stopped.device.clone() });
            }
        }
    }
}

fn ordered([a, b]: [NodeId; 2]) -> [NodeId; 2] {
    if a <= b { [a, b] } else { [b, a] }
}
