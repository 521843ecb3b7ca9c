//! Layers shared out over devices, as an executor takes them.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_model::{Footprint, LayerSpec, ResolvedContext};
use plimsoll_units::{Bytes, DeviceId, DeviceRef, Generation, NodeId};

use crate::plan::{Optimality, Plan, PlanValue, Stage};
use crate::snapshot_index::Place;
use crate::sums::Sums;
use crate::workload::{Objective, Strategy, Workload};

/// A piece of what one device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSlice {
    /// Its layers, half open.
    pub layer_range: Range<u32>,
    /// What they take: the exact sum.
    pub size: Bytes,
    /// How many weights they have: the exact sum.
    pub num_weights: u64,
}

/// What one device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribution<'a> {
    /// The machine.
    pub node: &'a NodeId,
    /// The device on it.
    pub device: &'a DeviceId,
    /// What it holds, in order and without gaps; at least one.
    pub slices: &'a [TensorSlice],
}

impl Distribution<'_> {
    /// The device by its full name.
    pub fn reference(&self) -> DeviceRef {
        DeviceRef { node: self.node.clone(), device: self.device.clone() }
    }

    /// All of its layers, half open.
    pub fn layers(&self) -> Range<u32> {
        let start = self.slices.first().map_or(0, |slice| slice.layer_range.start);
        start..self.slices.last().map_or(start, |slice| slice.layer_range.end)
    }

    /// What they take in all.
    pub fn size(&self) -> Bytes {
        Bytes::saturating_sum(self.slices.iter().map(|slice| slice.size))
    }

    /// How many weights they have in all.
    pub fn num_weights(&self) -> u64 {
        self.slices.iter().fold(0, |sum, slice| sum.saturating_add(slice.num_weights))
    }
}

/// Layers shared out over devices: every layer on exactly one, each device a run of them.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a distribution changes nothing until it is carried out"]
pub struct DistributionPlan {
    snapshot: Arc<ClusterSnapshot>,
    sums: Arc<Sums>,
    /// Devices that hold layers, in the order of their layers, each with where its slices end.
    places: Vec<(Place, u32)>,
    slices: Vec<TensorSlice>,
}

impl DistributionPlan {
    /// Nothing on nobody.
    pub(crate) fn empty(snapshot: Arc<ClusterSnapshot>) -> Self {
        Self { snapshot, sums: Arc::default(), places: Vec::new(), slices: Vec::new() }
    }

    /// From devices and where the layers of each end, counted from the first layer; those without layers are left out.
    pub(crate) fn new(
        snapshot: Arc<ClusterSnapshot>,
        sums: Sums,
        runs: impl ExactSizeIterator<Item = (Place, usize)>,
    ) -> Self {
        let mut places = Vec::with_capacity(runs.len());
        let mut slices = Vec::with_capacity(runs.len());
        let mut start = 0;
        for (place, end) in runs {
            if end > start {
                slices.push(sums.slice(start, end));
                places.push((place, u32::try_from(slices.len()).unwrap_or(u32::MAX)));
                start = end;
            }
        }
        Self { snapshot, sums: Arc::new(sums), places, slices }
    }

    /// The snapshot it was computed from.
    pub fn basis(&self) -> Generation {
        self.snapshot.generation
    }

    /// What each device holds, in the order of the layers; only devices that hold some.
    pub fn distributions(&self) -> impl ExactSizeIterator<Item = Distribution<'_>> {
        let mut from = 0;
        self.places.iter().map(move |&(place, to)| {
            let (node, device) = place.of(&self.snapshot).expect("places are those of the snapshot");
            let to = usize::try_from(to).unwrap_or(usize::MAX);
            let slices = &self.slices[from..to];
            from = to;
            Distribution { node: &node.id, device: &device.id, slices }
        })
    }

    /// The machines that hold layers, by name.
    pub fn participating_nodes(&self) -> Vec<&NodeId> {
        let mut nodes: Vec<&NodeId> = self.distributions().map(|held| held.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// How many layers there are.
    pub fn total_layers(&self) -> usize {
        self.sums.layers()
    }

    /// What they take in all.
    pub fn total_bytes(&self) -> Bytes {
        self.sums.slice(0, self.sums.layers()).size
    }

    /// A line for every machine with what it holds, by name; then how many layers there are, and on which machines.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let names = self.participating_nodes();
        let mut held: Vec<Distribution<'_>> = self.distributions().collect();
        held.sort_by(|a, b| a.node.cmp(b.node));
        for of_node in held.chunk_by(|a, b| a.node == b.node) {
            let size = Bytes::saturating_sum(of_node.iter().map(Distribution::size));
            let ranges: Vec<String> = of_node.iter().map(|held| shown(&held.layers())).collect();
            let name = of_node.first().map_or("", |held| held.node.as_str());
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{name}: {size}, layers {}", ranges.join(", "));
        }
        let names: Vec<&str> = names.into_iter().map(NodeId::as_str).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let _ = writeln!(text, "Total layers: {}\nNodes: {names}", self.total_layers());
        text
    }

    /// The same as a plan and the workload that it places, for those who move layers.
    pub(crate) fn as_plan(&self) -> (Plan, Workload) {
        let last = self.places.len().saturating_sub(1);
        let stages = self.distributions().enumerate().map(|(at, held)| {
            let (node, device) = self.places[at].0.of(&self.snapshot).expect("as above");
            let pool = node.pool(&device.pool).map_or(Bytes::ZERO, |pool| pool.budget(Bytes::ZERO));
            let budget = pool.min(device.limit.unwrap_or(Bytes::MAX));
            let size = held.size();
            Stage {
                pipeline: 0,
                device: held.reference(),
                layers: held.layers(),
                input: at == 0,
                head: at == last,
                weights_bytes: size,
                kv_bytes: Bytes::ZERO,
                overhead_bytes: Bytes::ZERO,
                budget_bytes: budget,
                slack_bytes: budget.saturating_sub(size),
                seconds: None,
            }
        });
        let plan = Plan {
            basis: self.basis(),
            objective: Objective::Fit,
            strategy: Strategy::Portfolio,
            stages: stages.collect(),
            overrides: Vec::new(),
            parts: Vec::new(),
            value: PlanValue { value: None, lower_bound: None, optimality: Optimality::Unproven },
            assumed: Vec::new(),
            stopped: Vec::new(),
        };
        (plan, Workload::uniform(plain_footprint(self.sums.specs())))
    }
}

/// Layers and nothing beside them.
pub(crate) fn plain_footprint(layers: Vec<LayerSpec>) -> Footprint {
    Footprint {
        layers,
        input_bytes: Bytes::ZERO,
        head_bytes: Bytes::ZERO,
        head_beside_input_bytes: Bytes::ZERO,
        each_device_bytes: Bytes::ZERO,
        nextn: 0,
        context: ResolvedContext { total: 0, per_sequence: 0, streams: 1 },
    }
}

/// `3-7`, or `3` where there is one.
fn shown(layers: &Range<u32>) -> String {
    let last = layers.end.saturating_sub(1);
    if layers.start == last { last.to_string() } else { format!("{}-{last}", layers.start) }
}

/// The same distribution in slices of at most `limit` layers each; 0 counts as 1.
///
/// Ten layers at a limit of 4 become slices of 4, 4 and 2. Sizes and weights are those of the layers in each slice, so
/// that they add up to what they were.
pub fn chunk_distribution_plan(plan: &DistributionPlan, limit: u32) -> DistributionPlan {
    let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
    let mut slices = Vec::with_capacity(plan.slices.len().max(plan.total_layers() / limit));
    let mut places = Vec::with_capacity(plan.places.len());
    let mut from = 0;
    for &(place, to) in &plan.places {
        let to = usize::try_from(to).unwrap_or(usize::MAX);
        for slice in &plan.slices[from..to] {
            let (mut start, end) = plan.sums.positions(&slice.layer_range);
            while start < end {
                let next = start.saturating_add(limit).min(end);
                slices.push(plan.sums.slice(start, next));
                start = next;
            }
        }
        places.push((place, u32::try_from(slices.len()).unwrap_or(u32::MAX)));
        from = to;
    }
    DistributionPlan { snapshot: Arc::clone(&plan.snapshot), sums: Arc::clone(&plan.sums), places, slices }
}
