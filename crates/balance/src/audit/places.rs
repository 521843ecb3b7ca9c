//! Whether everything lies where it may.

use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus};
use plimsoll_model::LayerSpec;
use plimsoll_units::DeviceRef;

use super::{Case, End, Finding};
use crate::plan::Stage;
use crate::workload::{EngineRules, HostUse};

/// The node that runs the engine, where one has to: the marked one, else the only one, else the only one that no rpc
/// server stands for.
pub(super) fn main<'a>(snapshot: &'a ClusterSnapshot, rules: &EngineRules) -> Option<&'a Node> {
    fn only<'a>(mut nodes: impl Iterator<Item = &'a Node>) -> Option<&'a Node> {
        nodes.next().filter(|_| nodes.next().is_none())
    }
    if rules.host == HostUse::Ordinary {
        return None;
    }
    let nodes = || snapshot.nodes.iter();
    if nodes().any(|node| node.main) {
        return only(nodes().filter(|node| node.main));
    }
    only(nodes()).or_else(|| only(nodes().filter(|node| node.rpc.is_none())))
}

impl Case<'_> {
    /// The layers of the footprint that a backend's buffers follow, by index.
    pub(super) fn layers(&self, backend: GpuBackend) -> &[LayerSpec] {
        let named = self.workload.by_backend.get(&backend).and_then(|index| self.layers.get(*index));
        named.or(self.layers.first()).map_or(&[], Vec::as_slice)
    }

    /// Whether a device is the main node's host.
    pub(super) fn is_main_host(&self, device: &DeviceRef) -> bool {
        let on_main = self.main.is_some_and(|main| main.id == device.node);
        on_main && device.device.as_str() == Device::HOST
    }

    /// Whether a stage holds a layer or the head.
    pub(super) fn works(stage: &Stage) -> bool {
        stage.head || stage.layers.start != stage.layers.end
    }

    /// Cover, sequence and cuts.
    pub(super) fn order(&self, findings: &mut Vec<Finding>) {
        let layers = self.layers(GpuBackend::Cpu);
        let in_a_row = layers.windows(2).all(|pair| pair[0].index.checked_add(1) == Some(pair[1].index));
        if !in_a_row || self.workload.footprints.is_empty() {
            findings.push(Finding::Workload);
            return;
        }
        let Some((first, last)) = layers.first().zip(layers.last()) else {
            findings.extend(self.plan.stages.first().map(|s| Finding::Idle { device: s.device.clone() }));
            return;
        };
        let bounds = (first.index, last.index.saturating_add(1));
        if self.plan.stages.is_empty() {
            findings.push(Finding::Cover { held: bounds.0, all: bounds.1 });
        }
        for line in &self.lines {
            self.sequence(line, bounds, findings);
        }
    }

    /// Cover, sequence and cuts of one pipeline; `first` is the model's first layer and `end` the index behind its last.
    fn sequence(&self, stages: &[Stage], (first, end): (u32, u32), findings: &mut Vec<Finding>) {
        let mut next = first;
        for stage in stages {
            if stage.layers.start != next || stage.layers.end < stage.layers.start {
                let (start, expected) = (stage.layers.start, next);
                findings.push(Finding::Order { device: stage.device.clone(), start, expected });
            }
            next = stage.layers.end;
            let cuttable = |layer: &&LayerSpec| layer.index.checked_add(1) == Some(next) && next < end;
            let illegal = self.workload.footprints.iter().any(|footprint| {
                footprint.layers.iter().find(cuttable).is_some_and(|layer| !layer.cut_after)
            });
            if illegal && next > first {
                findings.push(Finding::Cut { index: next - 1 });
            }
        }
        if next != end {
            findings.push(Finding::Cover { held: next, all: end });
        }
    }

    /// Devices, hosts, input and head.
    pub(super) fn places(&self, findings: &mut Vec<Finding>) {
        let stages = &self.plan.stages;
        for (at, stage) in stages.iter().enumerate() {
            if stages[..at].iter().any(|s| s.device == stage.device) {
                findings.push(Finding::Repeated { device: stage.device.clone() });
            }
            if let Some(reason) = self.unusable(stage) {
                findings.push(Finding::Unusable { device: stage.device.clone(), reason });
            }
            if !Self::works(stage) && !stage.input {
                findings.push(Finding::Idle { device: stage.device.clone() });
            }
            let line = self.line(stage);
            let is = |end: Option<&Stage>| end.is_some_and(|end| end.device == stage.device);
            if stage.input != is(line.first()) {
                findings.push(Finding::Misplaced { what: End::Input, device: stage.device.clone() });
            }
            if stage.head != is(line.last()) {
                findings.push(Finding::Misplaced { what: End::Head, device: stage.device.clone() });
            }
            let empty = stage.layers.is_empty();
            if empty && self.rules.host == HostUse::Ordinary {
                findings.push(Finding::Idle { device: stage.device.clone() });
            }
        }
        if self.rules.host == HostUse::FirstLayersOfMain
            && stages.first().is_some_and(|first| !self.is_main_host(&first.device))
        {
            findings.push(Finding::NoHost);
        }
        let used = stages.iter().filter(|s| Self::works(s) && !self.is_main_host(&s.device)).count();
        for limit in [self.rules.max_devices, self.options.max_devices].into_iter().flatten() {
            let used = u64::try_from(used).unwrap_or(u64::MAX);
            if used > u64::from(limit) {
                findings.push(Finding::TooMany { used, limit });
            }
        }
    }

    /// Whether everything that is pinned to a device lies there.
    pub(super) fn pins(&self, findings: &mut Vec<Finding>) {
        for pin in &self.options.pins {
            let (start, end) = (pin.layers.start, pin.layers.end);
            let holds = |stage: &Stage| {
                stage.device == pin.device && stage.layers.start <= start && end <= stage.layers.end
            };
            if start >= end || !self.plan.stages.iter().any(holds) {
                findings.push(Finding::Pinned { device: pin.device.clone(), start, end });
            }
        }
    }

    fn unusable(&self, stage: &Stage) -> Option<&'static str> {
        let Some(node) = self.snapshot.node(&stage.device.node) else {
            return Some("there is no such node");
        };
        if node.drained {
            return Some("its node is drained");
        }
        if node.status == NodeStatus::Failed {
            return Some("its node does not answer");
        }
        let is_main_host = self.is_main_host(&stage.device);
        let only_buffers = is_main_host && !self.computes(stage);
        let asked = self.options.only.as_ref().is_none_or(|only| only.contains(&node.id));
        if !asked && !only_buffers {
            return Some("its node is not among the only ones to use");
        }
        let Some(device) = node.device(&stage.device.device) else {
            return Some("there is no such device");
        };
        if self.rules.host == HostUse::FirstLayersOfMain && !is_main_host {
            if device.is_host() {
                return Some("a remote node's own host takes no part");
            }
            let on_main = self.main.is_some_and(|main| main.id == node.id);
            if on_main && device.backend == GpuBackend::Cpu {
                return Some("to the engine it is the main node's host");
            }
        }
        match node.pool(&device.pool) {
            Some(pool) if pool.free.is_some() => None,
            Some(_) => Some("what is free there is not known"),
            None => Some("its pool is not there"),
        }
    }
}
