//! Somebody who carries out schedules step by step.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_balance::{EngineRules, InFlight, Piece, Plan, Schedule, Step, Workload};
use plimsoll_cluster::{ClusterSnapshot, NodeStatus};
use plimsoll_model::Footprint;
use plimsoll_units::{DeviceRef, NodeId, PoolId};
use proptest::prelude::*;

/// A layer, or what lies at an end of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Input,
    Layer(u32),
    Head,
}

pub(crate) fn parts(piece: &Piece) -> Vec<Part> {
    let mut parts: Vec<Part> = (piece.layers.start..piece.layers.end).map(Part::Layer).collect();
    if piece.input {
        parts.insert(0, Part::Input);
    }
    if piece.head {
        parts.push(Part::Head);
    }
    parts
}

/// Carries out a schedule.
pub(crate) struct World<'a> {
    pub(crate) snapshot: &'a ClusterSnapshot,
    pub(crate) workload: &'a Workload,
    pub(crate) rules: &'a EngineRules,
    pub(crate) to: &'a Plan,
    /// What each part takes where it lies; a copy lies in two places for a while.
    pub(crate) lies: BTreeMap<Part, (DeviceRef, u64)>,
    /// Every living device's bytes.
    pub(crate) held: BTreeMap<DeviceRef, u64>,
    /// What stays at the sources of moves that were under way before.
    pub(crate) kept: BTreeMap<DeviceRef, u64>,
    /// The most that each pool ever held.
    pub(crate) peaks: BTreeMap<(NodeId, PoolId), u64>,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        snapshot: &'a ClusterSnapshot,
        workload: &'a Workload,
        rules: &'a EngineRules,
        from: &'a Plan,
        to: &'a Plan,
    ) -> Self {
        let mut world = Self {
            snapshot,
            workload,
            rules,
            to,
            lies: BTreeMap::new(),
            held: BTreeMap::new(),
            kept: BTreeMap::new(),
            peaks: BTreeMap::new(),
        };
        for stage in &from.stages {
            if world.alive(&stage.device) {
                let piece =
                    Piece { layers: stage.layers.clone().into(), input: stage.input, head: stage.head };
                for part in parts(&piece) {
                    let size = world.size(part, &stage.device, from);
                    world.lies.insert(part, (stage.device.clone(), size));
                }
                world.held.insert(stage.device.clone(), stage.used_bytes().get());
            }
        }
        world.note();
        world
    }

    /// A move that is under way from now on, and does not end.
    pub(crate) fn start(&mut self, moving: &InFlight) {
        for part in parts(&moving.what) {
            let size = self.size(part, &moving.to, self.to);
            let (_, lies) = self.lies.insert(part, (moving.to.clone(), size)).expect("it lies somewhere");
            *self.held.entry(moving.to.clone()).or_insert(0) += size;
            *self.kept.entry(moving.from.clone()).or_insert(0) += lies;
        }
        self.note();
    }

    fn alive(&self, device: &DeviceRef) -> bool {
        self.snapshot.device(device).is_some_and(|(node, _)| node.status != NodeStatus::Failed)
    }

    fn footprint(&self, device: &DeviceRef) -> &Footprint {
        let backend = self.snapshot.device(device).expect("it is there").1.backend;
        self.workload.on(backend).expect("there is one")
    }

    /// What a part takes on a device under a plan.
    pub(crate) fn size(&self, part: Part, device: &DeviceRef, plan: &Plan) -> u64 {
        let print = self.footprint(device);
        match part {
            Part::Input => print.input_bytes.get(),
            Part::Layer(index) => {
                let layer = print.layers.iter().find(|l| l.index == index).expect("it is there");
                layer.weights_bytes.get() + layer.kv_bytes.get()
            }
            Part::Head if plan.stages.first().is_some_and(|s| s.device == *device) => {
                print.head_beside_input_bytes.get()
            }
            Part::Head => print.head_bytes.get(),
        }
    }

    pub(crate) fn pool(&self, device: &DeviceRef) -> (NodeId, PoolId) {
        (device.node.clone(), self.snapshot.device(device).expect("it is there").1.pool.clone())
    }

    fn pools(&self) -> BTreeMap<(NodeId, PoolId), u64> {
        let mut pools = BTreeMap::new();
        for (device, held) in &self.held {
            *pools.entry(self.pool(device)).or_insert(0) += held;
        }
        pools
    }

    fn note(&mut self) {
        for (pool, held) in self.pools() {
            let peak = self.peaks.entry(pool).or_insert(0);
            *peak = (*peak).max(held);
        }
    }

    /// Whether nothing has grown to more than there is room for.
    fn check(
        &mut self,
        before: &BTreeMap<(NodeId, PoolId), u64>,
        devices: &BTreeMap<DeviceRef, u64>,
    ) -> Result<(), TestCaseError> {
        for (pool, held) in self.pools() {
            let told = self.snapshot.node(&pool.0).and_then(|n| n.pool(&pool.1)).expect("it is there");
            let budget = told.budget(self.rules.margin).get();
            let was = before.get(&pool).copied().unwrap_or(0);
            prop_assert!(held <= budget.max(was), "{pool:?} holds {held} of {budget}, before {was}");
        }
        for (device, held) in &self.held {
            let limit = self.snapshot.device(device).and_then(|(_, d)| d.limit);
            let was = devices.get(device).copied().unwrap_or(0);
            prop_assert!(
                limit.is_none_or(|l| *held <= l.get().max(was)),
                "{device} holds {held} of {limit:?}"
            );
        }
        self.note();
        Ok(())
    }

    fn grow(&mut self, device: &DeviceRef, bytes: u64) {
        *self.held.entry(device.clone()).or_insert(0) += bytes;
    }

    fn shrink(&mut self, device: &DeviceRef, bytes: u64) {
        let held = self.held.get_mut(device).expect("something lies there");
        *held = held.checked_sub(bytes).expect("no more is freed than lies there");
    }

    /// One step's beginning; what it frees when the round ends.
    fn begin(
        &mut self,
        step: &Step,
        seen: &mut BTreeSet<Part>,
    ) -> Result<Vec<(DeviceRef, u64)>, TestCaseError> {
        let mut frees = Vec::new();
        match step {
            Step::Charge { device, from, to } => {
                self.grow(device, to.get());
                self.shrink(device, from.get());
            }
            Step::Drop { what, from, bytes, .. } => {
                let mut sum = 0;
                for part in parts(what) {
                    let (device, size) = self.lies.remove(&part).expect("it lies somewhere");
                    prop_assert_eq!(&device, from);
                    self.shrink(from, size);
                    sum += size;
                    prop_assert!(seen.insert(part));
                }
                prop_assert_eq!(sum, bytes.get());
            }
            Step::Load { what, to, bytes } => {
                let mut sum = 0;
                for part in parts(what) {
                    prop_assert!(!self.lies.contains_key(&part), "{part:?} is there");
                    let size = self.size(part, to, self.to);
                    self.lies.insert(part, (to.clone(), size));
                    sum += size;
                    prop_assert!(seen.insert(part));
                }
                prop_assert_eq!(sum, bytes.get());
                self.grow(to, sum);
            }
            Step::Move { what, from, to, bytes } | Step::Spill { what, from, to, bytes } => {
                let spill = matches!(step, Step::Spill { .. });
                let mut sum = 0;
                for part in parts(what) {
                    let (device, lies) = self.lies.remove(&part).expect("it lies somewhere");
                    prop_assert_eq!(&device, from, "{:?}", part);
                    prop_assert!(seen.insert(part), "{part:?} moves twice in a round");
                    // What is set aside takes the larger of what it takes at its source and at its target.
                    let size = if spill {
                        let target = self.to.stages.iter().find(|s| match part {
                            Part::Input => s.input,
                            Part::Head => s.head,
                            Part::Layer(index) => s.layers.contains(&index),
                        });
                        let target = target.expect("it belongs somewhere").device.clone();
                        lies.max(self.size(part, &target, self.to))
                    } else {
                        self.size(part, to, self.to)
                    };
                    self.lies.insert(part, (to.clone(), size));
                    frees.push((from.clone(), lies));
                    sum += size;
                }
                prop_assert_eq!(sum, bytes.get());
                self.grow(to, sum);
            }
        }
        Ok(frees)
    }

    pub(crate) fn run(&mut self, schedule: &Schedule, limit: usize) -> Result<(), TestCaseError> {
        for round in &schedule.rounds {
            let copies = round
                .steps
                .iter()
                .filter(|s| matches!(s.step, Step::Move { .. } | Step::Spill { .. } | Step::Load { .. }));
            prop_assert!(copies.count() <= limit);
            let (before, devices) = (self.pools(), self.held.clone());
            let mut frees = Vec::new();
            let mut seen = BTreeSet::new();
            for step in &round.steps {
                frees.extend(self.begin(&step.step, &mut seen)?);
            }
            self.check(&before, &devices)?;
            for (device, bytes) in frees {
                self.shrink(&device, bytes);
            }
        }
        self.arrived()
    }

    /// Everything lies where the target has it, and takes there what the target says.
    fn arrived(&self) -> Result<(), TestCaseError> {
        for stage in &self.to.stages {
            let piece = Piece { layers: stage.layers.clone().into(), input: stage.input, head: stage.head };
            for part in parts(&piece) {
                prop_assert_eq!(self.lies.get(&part).map(|l| &l.0), Some(&stage.device), "{:?}", part);
            }
        }
        for (device, held) in &self.held {
            let stage = self.to.stages.iter().find(|s| s.device == *device);
            let kept = self.kept.get(device).copied().unwrap_or(0);
            prop_assert_eq!(*held, stage.map_or(0, |s| s.used_bytes().get()) + kept, "{}", device);
        }
        Ok(())
    }
}
