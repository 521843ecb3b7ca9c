//! Schedules, carried out step by step by somebody else.

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use kit::instance::{Instance, around_a_host, ordinary};
use kit::moves::{Random, Scene};
use plimsoll_balance::{
    Blocked, EngineRules, Objective, Piece, Plan, PlanOptions, Rebalance, RebalanceOptions, Schedule, Step,
    Workload, plan, rebalance_plan,
};
use plimsoll_cluster::{ClusterSnapshot, NodeStatus};
use plimsoll_model::Footprint;
use plimsoll_units::{DeviceRef, NodeId, PoolId};
use proptest::prelude::*;

/// A layer, or what lies at an end of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Input,
    Layer(u32),
    Head,
}

fn parts(piece: &Piece) -> Vec<Part> {
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
struct World<'a> {
    snapshot: &'a ClusterSnapshot,
    workload: &'a Workload,
    rules: &'a EngineRules,
    from: &'a Plan,
    to: &'a Plan,
    /// What each part takes where it lies; a copy lies in two places for a while.
    lies: BTreeMap<Part, (DeviceRef, u64)>,
    /// Every living device's bytes.
    held: BTreeMap<DeviceRef, u64>,
    /// The most that each pool ever held.
    peaks: BTreeMap<(NodeId, PoolId), u64>,
}

impl<'a> World<'a> {
    fn new(
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
            from,
            to,
            lies: BTreeMap::new(),
            held: BTreeMap::new(),
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

    fn alive(&self, device: &DeviceRef) -> bool {
        self.snapshot.device(device).is_some_and(|(node, _)| node.status != NodeStatus::Failed)
    }

    fn footprint(&self, device: &DeviceRef) -> &Footprint {
        let backend = self.snapshot.device(device).expect("it is there").1.backend;
        self.workload.on(backend).expect("there is one")
    }

    /// What a part takes on a device under a plan.
    fn size(&self, part: Part, device: &DeviceRef, plan: &Plan) -> u64 {
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

    fn pool(&self, device: &DeviceRef) -> (NodeId, PoolId) {
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

    fn run(&mut self, schedule: &Schedule, limit: usize) -> Result<(), TestCaseError> {
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
            prop_assert_eq!(*held, stage.map_or(0, |s| s.used_bytes().get()), "{}", device);
        }
        Ok(())
    }
}

/// Replays a schedule; whether it used anything but moves and loads.
fn replays(
    snapshot: &ClusterSnapshot,
    workload: &Workload,
    rules: &EngineRules,
    from: &Plan,
    to: &Plan,
    schedule: &Schedule,
    limit: usize,
) -> Result<(), TestCaseError> {
    let mut world = World::new(snapshot, workload, rules, from, to);
    world.run(schedule, limit)?;
    for peak in &schedule.peaks {
        let seen = world.peaks.get(&(peak.node.clone(), peak.pool.clone())).copied().unwrap_or(0);
        prop_assert_eq!(seen, peak.peak_bytes.get(), "{} {}", peak.node, peak.pool);
    }
    let steps = schedule.rounds.iter().flat_map(|r| &r.steps);
    let extra: u64 = steps
        .map(|s| match &s.step {
            Step::Spill { bytes, .. } | Step::Drop { bytes, .. } => bytes.get(),
            _ => 0,
        })
        .sum();
    if schedule.guaranteed {
        prop_assert_eq!(extra, 0);
        prop_assert_eq!(schedule.extra_bytes.get(), 0);
    }
    prop_assert_eq!(schedule.extra_bytes.get() > 0, extra > 0);
    Ok(())
}

fn asked(limit: u32, may_drop: bool) -> RebalanceOptions {
    RebalanceOptions {
        tolerance: 0.02,
        max_concurrent: NonZeroU32::new(limit).expect("not zero"),
        may_drop,
        ..RebalanceOptions::default()
    }
}

/// Whether each device that either plan uses draws on a pool of its own.
fn own_pools(snapshot: &ClusterSnapshot, plans: [&Plan; 2]) -> bool {
    let devices: BTreeSet<&DeviceRef> =
        plans.iter().flat_map(|p| p.stages.iter().map(|s| &s.device)).collect();
    let mut pools = BTreeSet::new();
    devices
        .iter()
        .filter_map(|d| snapshot.device(d).map(|(node, device)| (&node.id, &device.pool)))
        .all(|p| pools.insert(p))
}

fn every_step_has_room(instance: Instance, seed: u64, losses: bool, limit: u32) -> Result<(), TestCaseError> {
    let scene = Scene::new(instance, seed, losses);
    for objective in [Objective::Throughput, Objective::Balanced] {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        let (snapshot, workload, rules) =
            (scene.snapshot(), scene.instance.workload(), scene.instance.rules());
        let current = scene.plan(&options);
        let Ok(made) = rebalance_plan(&current, &snapshot, &workload, &rules, &options, &asked(limit, true))
        else {
            continue;
        };
        let limit = usize::try_from(limit).expect("few");
        promise(&made, &current, &snapshot)?;
        let schedule = made.schedule.as_ref().map_err(|b| TestCaseError::fail(format!("{b}")))?;
        replays(&snapshot, &workload, &rules, &current, &made.target, schedule, limit)
            .map_err(|e| TestCaseError::fail(format!("{e}\n{made:#?}\n{scene:#?}")))?;
        if let Some(proposal) = &made.proposal {
            let schedule = proposal.schedule.as_ref().map_err(|b| TestCaseError::fail(format!("{b}")))?;
            replays(&snapshot, &workload, &rules, &current, &proposal.plan, schedule, limit)
                .map_err(|e| TestCaseError::fail(format!("{e}\n{proposal:#?}\n{scene:#?}")))?;
        }
    }
    Ok(())
}

/// Where nothing has to be sent twice for certain, that is said, and so it is.
fn promise(made: &Rebalance, current: &Plan, snapshot: &ClusterSnapshot) -> Result<(), TestCaseError> {
    let alive = current
        .stages
        .iter()
        .all(|s| snapshot.device(&s.device).is_some_and(|(node, _)| node.status != NodeStatus::Failed));
    let fits = current.stages.iter().all(|s| {
        let (node, device) = snapshot.device(&s.device).expect("it is there");
        let budget = node.pool(&device.pool).map_or(0, |p| p.budget(plimsoll_units::Bytes::ZERO).get());
        s.used_bytes().get() <= budget.min(device.limit.map_or(u64::MAX, |l| l.get()))
    });
    let promised = made.order_kept && alive && fits && own_pools(snapshot, [current, &made.target]);
    let schedule = made.schedule.as_ref().map_err(|b| TestCaseError::fail(format!("{b}")))?;
    if promised {
        prop_assert!(schedule.guaranteed);
    }
    if schedule.guaranteed {
        prop_assert!(
            schedule
                .rounds
                .iter()
                .flat_map(|r| &r.steps)
                .all(|s| { matches!(s.step, Step::Move { .. } | Step::Charge { .. }) })
        );
    }
    Ok(())
}

/// The first devices draw from one pool.
fn sharing(mut instance: Instance, seed: u64) -> Instance {
    let mut random = Random(seed | 1);
    for at in 1..instance.devices.len() {
        if random.chance(40) {
            let other = instance.devices[random.below(at)];
            instance.devices[at].pool = other.pool;
            instance.devices[at].node = other.node;
        }
    }
    instance
}

/// Rooms just large enough for a plan and not much more.
fn tight(mut instance: Instance, seed: u64) -> Instance {
    let mut random = Random(seed | 1);
    let total: u64 = instance.layers.iter().map(|l| l.weights + l.kv + instance.padding).sum();
    let each = total / u64::try_from(instance.devices.len()).expect("few") + 1;
    for pool in &mut instance.pools {
        *pool = each + u64::try_from(random.below(16)).expect("small") + instance.input + instance.head;
    }
    instance
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_to_a_target_has_room(instance in ordinary(9, 5), seed: u64, limit in 1_u32..4) {
        every_step_has_room(instance, seed, false, limit)?;
    }

    #[test]
    fn every_step_has_room_where_it_is_tight(instance in ordinary(9, 5), seed: u64, limit in 1_u32..4) {
        every_step_has_room(tight(instance, seed), seed, false, limit)?;
    }

    #[test]
    fn every_step_has_room_where_devices_are_lost_or_drained(instance in ordinary(9, 5), seed: u64, limit in 1_u32..4) {
        every_step_has_room(tight(instance, seed), seed, true, limit)?;
    }

    #[test]
    fn every_step_has_room_where_devices_share_pools(instance in ordinary(9, 5), seed: u64, limit in 1_u32..4) {
        every_step_has_room(sharing(tight(instance, seed), seed), seed, true, limit)?;
    }

    #[test]
    fn every_step_around_a_host_has_room(instance in around_a_host(8, 4), seed: u64, losses: bool, limit in 1_u32..4) {
        every_step_has_room(instance, seed, losses, limit)?;
    }
}

/// Whether single layers can be moved one after the other, each once: a search over every state.
fn some_order_works(world: &World<'_>, wanted: &BTreeMap<Part, DeviceRef>) -> Option<bool> {
    let moving: Vec<Part> =
        wanted.iter().filter(|(part, to)| world.lies[part].0 != **to).map(|(part, _)| *part).collect();
    if moving.len() > 8 {
        return None;
    }
    let mut seen = BTreeSet::from([0_u32]);
    let mut queue = vec![0_u32];
    let all = (1_u32 << moving.len()) - 1;
    while let Some(done) = queue.pop() {
        if done == all {
            return Some(true);
        }
        for (at, part) in moving.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0) {
            let mut held = world.held.clone();
            for (other, part) in
                moving.iter().enumerate().filter(|(other, _)| done & (1 << other) != 0 || *other == at)
            {
                let to = &wanted[part];
                *held.entry(to.clone()).or_insert(0) += world.size(*part, to, world.to);
                if other != at {
                    *held.get_mut(&world.lies[part].0).expect("it is there") -= world.lies[part].1;
                }
            }
            let to = world.pool(&wanted[part]);
            let sum: u64 = held.iter().filter(|(d, _)| world.pool(d) == to).map(|(_, h)| h).sum();
            let node = world.snapshot.node(&to.0).expect("it is there");
            let fits = sum <= node.pool(&to.1).expect("it is there").budget(world.rules.margin).get();
            if fits && seen.insert(done | 1 << at) {
                queue.push(done | 1 << at);
            }
        }
    }
    Some(false)
}

fn small(instance: &Instance) -> Instance {
    let mut instance = instance.clone();
    instance.charges = [0; 9];
    instance.each_device = 0;
    instance.input = 0;
    instance.head = 0;
    instance.head_beside = 0;
    instance.max_devices = None;
    for device in &mut instance.devices {
        device.limit = None;
    }
    instance
}

/// With another order of devices moves may wait for each other: whatever can be done without setting anything aside is
/// done so, and nothing is called blocked that could be done.
fn detours_only_where_needed(instance: &Instance, seed: u64) -> Result<Option<bool>, TestCaseError> {
    let scene = Scene::new(tight(small(instance), seed), seed, false);
    let options = PlanOptions { objective: Objective::Throughput, ..PlanOptions::default() };
    let (snapshot, workload, rules) = (scene.snapshot(), scene.instance.workload(), scene.instance.rules());
    let current = scene.plan(&options);
    let Ok(target) = plan(&snapshot, &workload, &rules, &options) else { return Ok(None) };
    let made = rebalance_plan(&current, &snapshot, &workload, &rules, &options, &asked(1, false));
    let Ok(made) = made else { return Ok(None) };
    let Some(proposal) = made.proposal else { return Ok(None) };
    prop_assert_eq!(&proposal.plan, &target);
    let world = World::new(&snapshot, &workload, &rules, &current, &target);
    let mut wanted = BTreeMap::new();
    for stage in &target.stages {
        for layer in stage.layers.clone() {
            wanted.insert(Part::Layer(layer), stage.device.clone());
        }
    }
    let Some(works) = some_order_works(&world, &wanted) else { return Ok(None) };
    match &proposal.schedule {
        Ok(schedule) => {
            replays(&snapshot, &workload, &rules, &current, &target, schedule, 1)?;
            prop_assert_eq!(schedule.extra_bytes.is_zero(), works, "{:#?}", &proposal);
        }
        Err(Blocked { cycle, scratch_bytes }) => {
            prop_assert!(!works, "it works: {scene:#?}");
            prop_assert!(!cycle.is_empty() && !scratch_bytes.is_zero());
        }
    }
    Ok(Some(works))
}

#[test]
fn moves_are_set_aside_only_where_no_order_works() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let instances = ordinary(8, 4);
    let (mut direct, mut detours) = (0, 0);
    for seed in 1..=4000 {
        let instance = instances.new_tree(&mut runner).expect("it is drawn").current();
        match detours_only_where_needed(&instance, seed).unwrap_or_else(|e| panic!("{seed}: {e}")) {
            Some(true) => direct += 1,
            Some(false) => detours += 1,
            None => {}
        }
    }
    assert!(direct > 200 && detours > 20, "{direct} direct, {detours} not");
}
