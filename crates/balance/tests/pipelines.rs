//! Several pipelines: against a search over every way to divide the devices, and what is claimed of larger fleets.

mod kit;

use std::num::NonZeroU32;

use kit::instance::{Instance, ordinary};
use kit::pipelines::most_tokens;
use kit::{device, layers, node, pool, snapshot};
use plimsoll_balance::{
    Certificate, EngineRules, Finding, HostUse, Objective, Optimality, Pin, Pipelines, Placement, Plan,
    PlanError, PlanOptions, Refusal, Strategy as Orders, Transfers, Verdict, audit, plan, price,
};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn asked(pipelines: Pipelines) -> PlanOptions {
    PlanOptions { objective: Objective::Throughput, pipelines, ..PlanOptions::default() }
}

fn exactly(count: u32) -> Pipelines {
    Pipelines::Exactly(NonZeroU32::new(count).expect("not zero"))
}

fn made(instance: &Instance, options: &PlanOptions) -> Result<Result<Plan, Refusal>, TestCaseError> {
    let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
    match plan(&snapshot, &workload, &rules, options) {
        Ok(plan) => {
            prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, options), Ok(()), "{:#?}", plan);
            Ok(Ok(plan))
        }
        Err(PlanError::DoesNotFit(refusal)) => Ok(Err(*refusal)),
        Err(other) => Err(TestCaseError::fail(format!("{other}"))),
    }
}

/// The planner's answer is the best of all, and proven.
fn finds_the_best(
    instance: &Instance,
    options: &PlanOptions,
    best: Option<f64>,
) -> Result<(), TestCaseError> {
    let pipelines = options.pipelines;
    match (made(instance, options)?, best) {
        (Ok(plan), Some(tokens)) => {
            let seconds = plan.value.value.expect("it is told");
            let best = 1.0 / tokens;
            prop_assert!(
                (seconds - best).abs() <= 1e-9 * best,
                "{pipelines:?}: {seconds} and not {best}: {plan:#?}"
            );
            prop_assert_eq!(plan.value.optimality, Optimality::Proven, "{:?}: {:#?}", pipelines, plan);
        }
        (Err(refusal), None) => {
            prop_assert!(
                matches!(refusal.verdict, Verdict::ProvenInfeasible(_)),
                "{pipelines:?}: {refusal:?}"
            );
            let too_few = matches!(refusal.verdict, Verdict::ProvenInfeasible(Certificate::Pipelines { .. }));
            // No number of bytes lets two devices hold the same layers.
            let pinned = !options.pins.is_empty();
            prop_assert!(too_few || pinned || refusal.short_bytes.get() > 0, "{pipelines:?}: {refusal:?}");
        }
        (found, best) => prop_assert!(false, "{pipelines:?}: {found:#?} and not {best:?}"),
    }
    Ok(())
}

fn every_number(instance: &Instance, pins: &[(usize, usize, usize)]) -> Result<(), TestCaseError> {
    let best = most_tokens(instance, pins);
    let asked = |pipelines| PlanOptions { pins: named(instance, pins), ..asked(pipelines) };
    // One pipeline has to keep all pins at once, and says so where they exclude each other.
    let first = if pins.is_empty() { 1 } else { 2 };
    for count in first..=u32::try_from(instance.devices.len() + 1).expect("few") {
        let tokens = best.get(usize::try_from(count).expect("few")).copied().flatten();
        finds_the_best(instance, &asked(exactly(count)), tokens)?;
    }
    let tokens = best.iter().copied().flatten().max_by(f64::total_cmp);
    finds_the_best(instance, &asked(Pipelines::Auto), tokens)
}

/// Pins by the names of their devices.
fn named(instance: &Instance, pins: &[(usize, usize, usize)]) -> Vec<Pin> {
    let index = |n: usize| u32::try_from(n).expect("few");
    let one = |&(device, start, end): &(usize, usize, usize)| Pin {
        device: kit::device_ref(&format!("n{}", instance.devices[device].node), &format!("d{device}")),
        layers: (index(start)..index(end)).into(),
    };
    pins.iter().map(one).collect()
}

/// Pins of devices of which something may be used, no more than may be used at all.
fn pinned(instance: &Instance, drawn: &[(Index, Index, Index)]) -> Vec<(usize, usize, usize)> {
    let layers = instance.layers.len();
    let mut pins: Vec<(usize, usize, usize)> = Vec::new();
    for (device, start, length) in drawn {
        let (device, start) = (device.index(instance.devices.len()), start.index(layers));
        let dev = instance.devices[device];
        let room = instance.pools[dev.pool].min(dev.limit.unwrap_or(u64::MAX));
        let mut used: Vec<usize> = pins.iter().map(|pin| pin.0).chain([device]).collect();
        used.sort_unstable();
        used.dedup();
        if room > 0
            && used.len() <= instance.max_devices.map_or(9, |most| usize::try_from(most).expect("few"))
        {
            pins.push((device, start, start + 1 + length.index((layers - start).min(3))));
        }
    }
    pins
}

/// More room than in the plain instances, so that several copies fit often.
fn roomy(max_layers: usize, max_devices: usize) -> impl Strategy<Value = Instance> {
    (ordinary(max_layers, max_devices), 1_u64..4).prop_map(|(mut instance, times)| {
        for room in &mut instance.pools {
            *room *= times;
        }
        for device in &mut instance.devices {
            device.limit = device.limit.map(|limit| limit * times);
        }
        instance
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_best_division_of_four_devices_is_found_and_proven(instance in roomy(5, 4)) {
        every_number(&instance, &[])?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_best_division_of_five_devices_is_found_and_proven(instance in roomy(4, 5)) {
        every_number(&instance, &[])?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_pins_the_best_division_is_found_and_proven(
        instance in roomy(5, 4),
        drawn in vec((any::<Index>(), any::<Index>(), any::<Index>()), 1..=3),
    ) {
        every_number(&instance, &pinned(&instance, &drawn))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_in_a_snapshot_makes_no_difference(instance in roomy(6, 5), turn in 1_usize..5) {
        let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
        let mut shuffled = snapshot.clone();
        for node in &mut shuffled.nodes {
            let (devices, pools) = (node.devices.len().max(1), node.pools.len().max(1));
            node.devices.rotate_left(turn % devices);
            node.pools.rotate_left(turn % pools);
        }
        shuffled.links.reverse();
        for pipelines in [Pipelines::Auto, exactly(2)] {
            let first = plan(&snapshot, &workload, &rules, &asked(pipelines));
            prop_assert_eq!(&first, &plan(&shuffled, &workload, &rules, &asked(pipelines)));
        }
    }

    #[test]
    fn one_more_device_is_never_worse(instance in roomy(6, 5), room in 1_u64..90, rate in 1_u64..6) {
        let mut larger = instance.clone();
        larger.devices.push(kit::instance::Dev { node: 3, pool: larger.pools.len(), limit: None, rate, padded: false });
        larger.pools.push(room);
        let seconds = |instance: &Instance, pipelines| -> Result<f64, TestCaseError> {
            let plan = made(instance, &asked(pipelines))?;
            Ok(plan.map_or(f64::INFINITY, |plan| plan.value.value.expect("it is told")))
        };
        for pipelines in [Pipelines::Auto, exactly(2), exactly(3)] {
            let (before, after) = (seconds(&instance, pipelines)?, seconds(&larger, pipelines)?);
            prop_assert!(after <= before * (1.0 + 1e-9), "{pipelines:?}: {before} became {after}");
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_more_devices_bounds_of_every_strategy_hold_for_every_plan(
        instance in roomy(10, 14),
        drawn in vec((any::<Index>(), any::<Index>(), any::<Index>()), 0..=2),
    ) {
        let pins = named(&instance, &pinned(&instance, &drawn));
        for pipelines in [Pipelines::Auto, exactly(2), exactly(3)] {
            let (mut values, mut bounds) = (Vec::new(), Vec::new());
            for strategy in [Orders::Portfolio, Orders::CapacityDescending, Orders::GivenOrder] {
                match made(&instance, &PlanOptions { strategy, pins: pins.clone(), ..asked(pipelines) })? {
                    Ok(plan) => {
                        values.push(plan.value.value.expect("it is told"));
                        bounds.push(plan.value.lower_bound.expect("it is told"));
                    }
                    Err(refusal) if matches!(refusal.verdict, Verdict::ProvenInfeasible(_)) => {
                        bounds.push(f64::INFINITY);
                    }
                    Err(_) => {}
                }
            }
            for bound in bounds {
                prop_assert!(values.iter().all(|value| bound <= value * (1.0 + 1e-9)), "{bound}: {values:?}");
            }
        }
    }

    #[test]
    fn devices_of_one_pool_never_hold_more_than_it(instance in roomy(8, 6)) {
        let mut instance = instance;
        if instance.devices.len() > 1 {
            instance.devices[1].pool = instance.devices[0].pool;
            instance.devices[1].node = instance.devices[0].node;
        }
        // The auditor adds up what lies in each pool.
        for pipelines in [Pipelines::Auto, exactly(2)] {
            let _ = made(&instance, &asked(pipelines))?;
        }
    }
}

/// Cards of so many bytes, each on a node of its own, all equally fast.
fn cards(rooms: &[u64]) -> ClusterSnapshot {
    let card = |(number, &room): (usize, &u64)| {
        let card = device("CUDA0", "p", GpuBackend::Cuda, Some(100));
        node(&format!("n{number}"), vec![pool("p", room)], vec![card])
    };
    snapshot(rooms.iter().enumerate().map(card).collect())
}

#[test]
fn two_pairs_of_cards_run_two_copies() {
    let (snapshot, workload, rules) = (cards(&[60, 60, 60, 60]), layers(&[10; 10]), EngineRules::none());
    let options = asked(Pipelines::Auto);
    let plan = plan(&snapshot, &workload, &rules, &options).expect("it fits");
    assert_eq!(plan.stages.iter().map(|stage| stage.pipeline).collect::<Vec<_>>(), [0, 0, 1, 1]);
    let seconds: Vec<_> = plan.pipelines().map(|pipeline| pipeline.seconds()).collect();
    assert_eq!(seconds, [Some(0.5), Some(0.5)]);
    assert_eq!(plan.value.value, Some(0.25));
    assert_eq!(plan.value.optimality, Optimality::Proven);
    // Four in a row would take three layers somewhere: 0.3 seconds.
    let first_of_each: Vec<bool> = plan.stages.iter().map(|stage| stage.input).collect();
    assert_eq!(first_of_each, [true, false, true, false]);
}

fn pin(text: &str) -> Pin {
    text.parse().expect("a pin")
}

#[test]
fn each_pipeline_keeps_the_pins_of_its_own_devices() {
    let (snapshot, workload, rules) = (cards(&[60, 60, 60, 60]), layers(&[10; 10]), EngineRules::none());
    // Both hold the first layers, so that they are never in one pipeline.
    let pins = vec![pin("0-4=n1/CUDA0"), pin("1-3=n2/CUDA0"), pin("9-10=n0/CUDA0")];
    for pipelines in [Pipelines::Auto, exactly(2)] {
        let options = PlanOptions { pins: pins.clone(), ..asked(pipelines) };
        let plan = plan(&snapshot, &workload, &rules, &options).expect("it fits");
        assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
        assert_eq!((plan.value.value, plan.value.optimality), (Some(0.25), Optimality::Proven));
        let first_ones: Vec<_> = plan.pipelines().map(|p| p.stages[0].device.to_string()).collect();
        assert_eq!(first_ones, ["n1/CUDA0", "n2/CUDA0"]);
    }
    // In one pipeline they exclude each other.
    let options = PlanOptions { pins: pins.clone(), ..asked(Pipelines::One) };
    assert!(matches!(plan(&snapshot, &workload, &rules, &options), Err(PlanError::Pin { .. })));
    // With one more, the layers behind these three first stages have not enough devices.
    let pins = [pins, vec![pin("0-1=n3/CUDA0")]].concat();
    let options = PlanOptions { pins, ..asked(exactly(2)) };
    let Err(PlanError::DoesNotFit(refusal)) = plan(&snapshot, &workload, &rules, &options) else {
        panic!("it does not fit");
    };
    assert_eq!(refusal.verdict, Verdict::ProvenInfeasible(Certificate::Searched { devices: 4 }));
}

#[test]
fn a_pipeline_that_breaks_a_pin_is_noticed() {
    let (snapshot, workload, rules) = (cards(&[60, 60, 60, 60]), layers(&[10; 10]), EngineRules::none());
    let plan = plan(&snapshot, &workload, &rules, &asked(exactly(2))).expect("it fits");
    // Another pipeline's device holds these layers as well, which is no help.
    let elsewhere = plan.stages[1].device.clone();
    let pin = Pin { device: elsewhere.clone(), layers: (0..2).into() };
    let options = PlanOptions { pins: vec![pin], ..asked(exactly(2)) };
    let findings = audit(&plan, &snapshot, &workload, &rules, &options).expect_err("it lies elsewhere");
    assert_eq!(findings, [Finding::Pinned { device: elsewhere, start: 0, end: 2 }]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_more_devices_every_pipeline_keeps_its_pins(
        instance in roomy(9, 12),
        drawn in vec((any::<Index>(), any::<Index>(), any::<Index>()), 1..=4),
        shared: bool,
    ) {
        let mut instance = instance;
        if shared && instance.devices.len() > 1 {
            instance.devices[1].pool = instance.devices[0].pool;
            instance.devices[1].node = instance.devices[0].node;
        }
        let pins = named(&instance, &pinned(&instance, &drawn));
        for pipelines in [Pipelines::Auto, exactly(2)] {
            let options = PlanOptions { pins: pins.clone(), ..asked(pipelines) };
            // The auditor looks for every pin.
            let _ = made(&instance, &options)?;
        }
    }
}

#[test]
fn one_copy_is_taken_where_several_are_no_better() {
    let (snapshot, workload, rules) = (cards(&[60, 60, 60, 60]), layers(&[10; 8]), EngineRules::none());
    let plan = plan(&snapshot, &workload, &rules, &asked(Pipelines::Auto)).expect("it fits");
    assert_eq!((plan.pipelines().count(), plan.value.value), (1, Some(0.2)));
}

#[test]
fn what_does_not_go_with_pipelines_is_named() {
    let (snapshot, workload, rules) = (cards(&[60, 60]), layers(&[10; 4]), EngineRules::none());
    let why = |rules: &EngineRules, options: &PlanOptions| {
        plan(&snapshot, &workload, rules, options).expect_err("they do not go together").to_string()
    };
    let latency = PlanOptions { objective: Objective::Latency, ..asked(exactly(2)) };
    assert_eq!(
        why(&rules, &latency),
        "2 pipelines are for the objective throughput, and latency is asked for"
    );
    let fit = PlanOptions { objective: Objective::Fit, ..asked(Pipelines::Auto) };
    assert_eq!(why(&rules, &fit), "several pipelines are for the objective throughput, and fit is asked for");
    let host = EngineRules { host: HostUse::FirstLayersOfMain, ..EngineRules::none() };
    assert_eq!(
        why(&host, &asked(exactly(2))),
        "2 pipelines are asked for, and the engine runs as one process around a main node, which holds the input once"
    );
    let added = PlanOptions { transfers: Transfers::Added, ..asked(exactly(2)) };
    assert_eq!(
        why(&rules, &added),
        "2 pipelines are asked for together with transfers added, which are counted for one pipeline only"
    );
    let one = PlanOptions { objective: Objective::Latency, ..asked(exactly(1)) };
    assert_eq!(plan(&snapshot, &workload, &rules, &one).expect("one is one").pipelines().count(), 1);
}

#[test]
fn too_many_copies_are_refused_with_what_is_missing() {
    let (workload, rules) = (layers(&[10; 4]), EngineRules::none());
    let refused = |rooms: &[u64], count| match plan(&cards(rooms), &workload, &rules, &asked(exactly(count)))
    {
        Err(PlanError::DoesNotFit(refusal)) => (refusal.verdict, refusal.short_bytes.get()),
        other => panic!("{other:?}"),
    };
    let proven = Verdict::ProvenInfeasible;
    let total = Certificate::Total { needs: 80, budgets: 70 };
    assert_eq!(refused(&[35, 35], 2), (proven(total), 10));
    let devices = Certificate::Pipelines { pipelines: 3, devices: 2 };
    assert_eq!(refused(&[100, 100], 3).0, proven(devices));
    // 90 bytes in all, and yet no two groups hold a copy each.
    let usable = Certificate::Usable { needs: 80, budgets: 78, devices: 2 };
    assert_eq!(refused(&[39, 39, 9, 3], 2).0, proven(usable));
    let many = NonZeroU32::MAX;
    let most = plan(&cards(&[100]), &workload, &rules, &asked(Pipelines::Exactly(many)));
    assert!(matches!(most, Err(PlanError::DoesNotFit(_))));
}

#[test]
fn changed_pipelines_are_noticed() {
    let (snapshot, workload, rules) = (cards(&[60, 60, 60, 60]), layers(&[10; 10]), EngineRules::none());
    let options = asked(exactly(2));
    let sound = plan(&snapshot, &workload, &rules, &options).expect("it fits");
    assert_eq!(audit(&sound, &snapshot, &workload, &rules, &options), Ok(()));
    let findings = |change: &dyn Fn(&mut Plan), options: &PlanOptions| {
        let mut plan = sound.clone();
        change(&mut plan);
        audit(&plan, &snapshot, &workload, &rules, options).expect_err("something is wrong")
    };
    let one = findings(&|_| {}, &asked(Pipelines::One));
    assert_eq!(one, [Finding::Pipelines { found: 2, asked: 1 }]);
    let three = findings(&|_| {}, &asked(exactly(3)));
    assert_eq!(three, [Finding::Pipelines { found: 2, asked: 3 }]);
    let numbers =
        findings(&|plan| plan.stages[2..].iter_mut().for_each(|stage| stage.pipeline = 2), &options);
    assert!(matches!(numbers[0], Finding::PipelineOrder { pipeline: 2, expected: 1, .. }), "{numbers:?}");
    let lost = findings(&|plan| plan.stages.truncate(3), &options);
    assert!(lost.contains(&Finding::Cover { held: 5, all: 10 }), "{lost:?}");
    let twice = findings(&|plan| plan.stages[2].device = plan.stages[0].device.clone(), &options);
    assert!(matches!(twice[0], Finding::Repeated { .. }), "{twice:?}");
    let mixed = findings(&|plan| plan.stages[1].pipeline = 1, &options);
    assert!(mixed.iter().any(|finding| matches!(finding, Finding::Order { .. })), "{mixed:?}");
    let value = findings(&|plan| plan.value.value = Some(0.5), &options);
    assert!(matches!(value[0], Finding::Value { claimed: Some(0.5), actual: Some(0.25) }), "{value:?}");
}

#[test]
fn a_placement_with_pipelines_is_priced() {
    let (snapshot, workload, rules) = (cards(&[60, 60, 60, 60]), layers(&[10; 10]), EngineRules::none());
    let at = |node: &str| kit::device_ref(node, "CUDA0");
    let devices = vec![(at("n2"), 0..6), (at("n0"), 6..10), (at("n1"), 0..5), (at("n3"), 5..10)];
    let placement = Placement { on_host: 0, devices, moved: vec![] };
    let options = asked(exactly(2));
    let priced = price(&snapshot, &workload, &rules, &options, &placement, 0.0).expect("it is a placement");
    assert_eq!(audit(&priced.plan, &snapshot, &workload, &rules, &options), Ok(()));
    assert_eq!(priced.short_bytes.get(), 0);
    let tokens = 1.0 / priced.plan.value.value.expect("it is told");
    assert!((tokens - (1.0 / 0.6 + 1.0 / 0.5)).abs() < 1e-12, "{tokens}");
    let one = price(&snapshot, &workload, &rules, &asked(Pipelines::One), &placement, 0.0);
    assert_eq!(one, Err(PlanError::BrokenPlacement { at: 0, expected: 10 }));
}
