//! Schedules, carried out step by step by somebody else.

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use kit::instance::Instance;
use kit::instance::{around_a_host, ordinary};
use kit::moves::{Random, Scene};
use kit::world::{Part, World, parts};
use plimsoll_balance::{
    Blocked, InFlight, Objective, Plan, PlanOptions, Rebalance, RebalanceError, RebalanceOptions, Schedule,
    Step, plan, rebalance_plan,
};
use plimsoll_cluster::{ClusterSnapshot, NodeStatus};
use plimsoll_units::DeviceRef;
use proptest::prelude::*;

/// Replays a schedule; whether it used anything but moves and loads.
fn replays(mut world: World<'_>, schedule: &Schedule, limit: usize) -> Result<(), TestCaseError> {
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
        replays(World::new(&snapshot, &workload, &rules, &current, &made.target), schedule, limit)
            .map_err(|e| TestCaseError::fail(format!("{e}\n{made:#?}\n{scene:#?}")))?;
        if let Some(proposal) = &made.proposal {
            let schedule = proposal.schedule.as_ref().map_err(|b| TestCaseError::fail(format!("{b}")))?;
            replays(World::new(&snapshot, &workload, &rules, &current, &proposal.plan), schedule, limit)
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
        let mut steps = schedule.rounds.iter().flat_map(|r| &r.steps);
        let plain = steps.all(|s| matches!(s.step, Step::Move { .. } | Step::Charge { .. }));
        prop_assert!(plain, "something is sent twice");
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
    fn beside_a_move_under_way_everything_has_room(instance in ordinary(9, 5), seed: u64) {
        room_beside_a_move(instance, seed)?;
    }

    #[test]
    fn every_step_around_a_host_has_room(instance in around_a_host(8, 4), seed: u64, losses: bool, limit in 1_u32..4) {
        every_step_has_room(instance, seed, losses, limit)?;
    }
}

/// While a move is under way, everything else has room beside both of its copies, and none of it moves again.
fn room_beside_a_move(instance: Instance, seed: u64) -> Result<(), TestCaseError> {
    let scene = Scene::new(tight(instance, seed), seed, true);
    let options = PlanOptions { objective: Objective::Throughput, ..PlanOptions::default() };
    let (snapshot, workload, rules) = (scene.snapshot(), scene.instance.workload(), scene.instance.rules());
    let current = scene.plan(&options);
    let again = |options: &PlanOptions, more: &RebalanceOptions| {
        rebalance_plan(&current, &snapshot, &workload, &rules, options, more)
    };
    let Ok(first) = again(&options, &asked(1, true)) else { return Ok(()) };
    let Ok(schedule) = &first.schedule else { return Ok(()) };
    let moves = schedule.rounds.first().into_iter().flat_map(|round| &round.steps);
    let mut moves = moves.rev().filter_map(|step| match &step.step {
        Step::Move { what, from, to, .. } => Some((*what, from.clone(), to.clone())),
        _ => None,
    });
    let Some((what, from, to)) = moves.next() else { return Ok(()) };
    let moving = InFlight { what, from, to };
    let more = RebalanceOptions { in_flight: vec![moving.clone()], ..asked(2, true) };
    let second = match again(&options, &more) {
        Ok(second) => second,
        Err(RebalanceError::InFlightBlock { .. }) => return Ok(()),
        Err(other) => return Err(TestCaseError::fail(format!("{other}: {scene:?}"))),
    };
    let mut world = World::new(&snapshot, &workload, &rules, &current, &second.target);
    world.start(&moving);
    let schedule = second.schedule.as_ref().map_err(|b| TestCaseError::fail(format!("{b}")))?;
    world.run(schedule, 1).map_err(|e| TestCaseError::fail(format!("{e}: {scene:?}")))?;
    for step in schedule.rounds.iter().flat_map(|round| &round.steps) {
        if let Step::Move { what, .. } | Step::Spill { what, .. } | Step::Drop { what, .. } = &step.step {
            let again = parts(what).into_iter().any(|part| parts(&moving.what).contains(&part));
            prop_assert!(!again, "{what} is under way");
        }
    }
    Ok(())
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
            replays(World::new(&snapshot, &workload, &rules, &current, &target), schedule, 1)?;
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
    for seed in 1..=2_000 {
        let instance = instances.new_tree(&mut runner).expect("it is drawn").current();
        match detours_only_where_needed(&instance, seed).unwrap_or_else(|e| panic!("{seed}: {e}")) {
            Some(true) => direct += 1,
            Some(false) => detours += 1,
            None => {}
        }
    }
    assert!(direct > 100 && detours > 10, "{direct} direct, {detours} not");
}
