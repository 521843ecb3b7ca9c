//! Parts of layers on the main host.

mod kit;

use kit::parts::{Parted, every_plan, parted};
use kit::{device, footprint, node, pool, snapshot};
use plimsoll_balance::{
    Charges, EngineRules, Finding, HostUse, LayerSpec, Movable, MoveWhen, Objective, Optimality, Part,
    PartClass, Plan, PlanError, PlanOptions, StageCharges, Verdict, Workload, audit, plan,
};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Pool};
use plimsoll_units::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

fn engine() -> EngineRules {
    EngineRules {
        host: HostUse::FirstLayersOfMain,
        max_devices: Some(15),
        margin: Bytes::ZERO,
        charges: Charges::default(),
    }
}

/// A tower with a host that reads 60 bytes a second and cards that read 1000.
fn tower(host: u64, cards: &[u64]) -> ClusterSnapshot {
    let mut pools = vec![pool("ram", host)];
    let mut all = vec![device(Device::HOST, Pool::RAM, GpuBackend::Cpu, Some(60))];
    for (number, &bytes) in cards.iter().enumerate() {
        pools.push(pool(&format!("vram{number}"), bytes));
        all.push(device(&format!("CUDA{number}"), &format!("vram{number}"), GpuBackend::Cuda, Some(1000)));
    }
    snapshot(vec![node("tower", pools, all)])
}

/// Layers of these weights, of which experts take `experts` and a token reads an eighth of these.
fn mixture(weights: &[u64], experts: &[u64]) -> Workload {
    let part = |&bytes: &u64| Part { weights_bytes: Bytes::new(bytes), read_bytes: Bytes::new(bytes / 8) };
    let layers = weights.iter().zip(experts).zip(0..).map(|((&bytes, experts), index)| LayerSpec {
        read_bytes: Bytes::new(bytes - experts + experts / 8),
        ..LayerSpec::of_weights(index, Bytes::new(bytes))
    });
    let movable = Movable {
        class: PartClass::Experts,
        when: MoveWhen::Needed,
        parts: vec![experts.iter().map(part).collect()],
        charges: StageCharges::default(),
    };
    Workload { movable: Some(movable), ..Workload::uniform(footprint(layers.collect())) }
}

fn planned(snapshot: &ClusterSnapshot, workload: &Workload, options: &PlanOptions) -> Plan {
    let plan = plan(snapshot, workload, &engine(), options).expect("it fits");
    assert_eq!(audit(&plan, snapshot, workload, &engine(), options), Ok(()), "{plan:#?}");
    plan
}

fn moved(plan: &Plan) -> Vec<std::ops::Range<u32>> {
    plan.overrides.iter().map(|moved| moved.layers.clone()).collect()
}

#[test]
fn each_device_gives_away_the_experts_of_its_own_layers() {
    // 48 layers of 1,474 MiB, experts included, on two cards of 24 GiB: not the first 24, which would leave all of the
    // second card's layers whole.
    let layers = mixture(&[1474; 48], &[1400; 48]);
    let snapshot = tower(65_536, &[18_700, 18_700]);
    let plan = planned(&snapshot, &layers, &PlanOptions::default());
    assert_eq!(moved(&plan), [12..24, 36..48]);
    let stages: Vec<_> = plan.stages.iter().map(|stage| stage.layers.clone()).collect();
    assert_eq!(stages, [0..0, 0..24, 24..48]);
    assert!(plan.stages[1..].iter().all(|stage| stage.weights_bytes == Bytes::new(12 * 1474 + 12 * 74)));
    assert_eq!(plan.stages[0].weights_bytes, Bytes::new(24 * 1400));
    assert_eq!(plan.value.optimality, Optimality::Proven);
}

#[test]
fn experts_of_the_first_layers_move_where_one_device_gives_all_of_them() {
    let layers = mixture(&[100; 8], &[80; 8]);
    let plan = planned(&tower(10_000, &[500]), &layers, &PlanOptions::default());
    assert!(moved(&plan).into_iter().flatten().eq(0..4));
    assert_eq!(plan.overrides[0].bytes, Bytes::new(320));
}

#[test]
fn what_fits_on_the_devices_is_planned_as_without_parts() {
    let layers = mixture(&[100; 8], &[80; 8]);
    let whole = Workload { movable: None, ..layers.clone() };
    for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced] {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        let snapshot = tower(10_000, &[500, 400]);
        assert_eq!(planned(&snapshot, &layers, &options), planned(&snapshot, &whole, &options));
    }
}

#[test]
fn experts_move_although_they_fit_where_that_is_asked_for() {
    let mut layers = mixture(&[100; 8], &[80; 8]);
    if let Some(movable) = &mut layers.movable {
        movable.when = MoveWhen::Always;
    }
    for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced] {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        let plan = planned(&tower(10_000, &[1_000, 400]), &layers, &options);
        let all: usize = moved(&plan).iter().map(ExactSizeIterator::len).sum();
        let held: u32 = plan.stages[1..].iter().map(|stage| stage.layers.end - stage.layers.start).sum();
        assert_eq!(u32::try_from(all).unwrap(), held, "{objective:?}");
    }
}

#[test]
fn a_model_that_no_host_can_take_layers_of_is_refused_with_a_reason_that_still_holds() {
    // The cards hold the dense parts, and the host has no room for the experts.
    let layers = mixture(&[100; 8], &[80; 8]);
    let refused = plan(&tower(100, &[300, 100]), &layers, &engine(), &PlanOptions::default());
    let Err(PlanError::DoesNotFit(refusal)) = refused else { panic!("{refused:?}") };
    assert!(matches!(refusal.verdict, Verdict::ProvenInfeasible(_)), "{refusal:?}");
}

#[test]
fn an_override_that_is_told_wrongly_is_found() {
    let layers = mixture(&[100; 8], &[80; 8]);
    let snapshot = tower(10_000, &[500]);
    let options = PlanOptions::default();
    let right = planned(&snapshot, &layers, &options);
    let wrong = |change: &dyn Fn(&mut Plan)| {
        let mut plan = right.clone();
        change(&mut plan);
        audit(&plan, &snapshot, &layers, &engine(), &options).unwrap_err()
    };
    let reason = |findings: Vec<Finding>| match findings.first() {
        Some(Finding::Override { reason, .. }) => *reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reason(wrong(&|plan| plan.overrides[0].bytes = Bytes::new(319))),
        "its bytes are not what adding up gives"
    );
    assert_eq!(
        reason(wrong(&|plan| plan.overrides[0].class = PartClass::FeedForward)),
        "that part of a layer may not move"
    );
    assert_eq!(reason(wrong(&|plan| plan.overrides[0].layers = 0..0)), "the ranges are not in order");
    assert_eq!(
        reason(wrong(&|plan| plan.overrides[0].layers = 6..9)),
        "the layers do not all lie on one device"
    );
    assert_eq!(
        reason(wrong(&|plan| plan.overrides[0].device = plan.stages[1].device.clone())),
        "parts move only to the main node's host"
    );
    // One layer more is told to be moved than the bytes of the stages say.
    let findings = wrong(&|plan| {
        plan.overrides[0].layers = 0..5;
        plan.overrides[0].bytes = Bytes::new(400);
    });
    assert!(findings.iter().any(|finding| matches!(finding, Finding::Number { .. })), "{findings:?}");
    let findings = wrong(&|plan| plan.overrides.clear());
    assert!(findings.iter().any(|finding| matches!(finding, Finding::Number { .. })), "{findings:?}");
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Compares with every plan that there is.
fn against_every_plan(parted: &Parted, objective: Objective) -> Result<(), TestCaseError> {
    let (snapshot, rules) = (parted.instance.snapshot(), parted.instance.rules());
    let options = PlanOptions { objective, ..PlanOptions::default() };
    let whole = plan(&snapshot, &parted.whole(), &rules, &options);
    let workload = parted.workload();
    let made = plan(&snapshot, &workload, &rules, &options);
    let on_devices =
        |plan: &Plan| plan.stages.iter().skip(1).any(|stage| stage.head || !stage.layers.is_empty());
    let anything = parted.parts.iter().any(|part| part.0 > 0);
    if let Ok(whole) = &whole
        && (!anything || (!parted.always && whole.stages[0].layers.is_empty()))
    {
        prop_assert_eq!(made.as_ref(), Ok(whole));
        return Ok(());
    }
    let best = every_plan(parted);
    let stands = whole.as_ref().ok().filter(|whole| !parted.always || !on_devices(whole));
    let made = match made {
        Ok(made) => made,
        Err(PlanError::DoesNotFit(refusal)) => {
            prop_assert!(stands.is_none());
            let proven = matches!(refusal.verdict, Verdict::ProvenInfeasible(_));
            prop_assert!(!proven || best.latency.is_none(), "{:?} and yet {:?}", refusal, best);
            let shared = parted
                .instance
                .devices
                .iter()
                .any(|dev| Some(dev.pool) == parted.instance.host.map(|h| h.pool));
            prop_assert!(shared || best.latency.is_none(), "not found: {:?}", best);
            return Ok(());
        }
        Err(error) => return Err(TestCaseError::fail(error.to_string())),
    };
    prop_assert_eq!(audit(&made, &snapshot, &workload, &rules, &options), Ok(()), "{:#?}", made);
    let known = match objective {
        Objective::Latency => best.latency,
        Objective::Throughput => best.throughput,
        Objective::Fit | Objective::Balanced => {
            let shared = parted
                .instance
                .devices
                .iter()
                .any(|dev| Some(dev.pool) == parted.instance.host.map(|h| h.pool));
            if !made.overrides.is_empty() && !shared {
                let beside = made.stages[0].weights_bytes.get() + made.stages[0].kv_bytes.get()
                    - parted.instance.input;
                prop_assert_eq!(Some(beside), best.on_host);
            }
            return Ok(());
        }
    };
    let whole_value = stands.and_then(|whole| whole.value.value);
    let (Some(value), Some(lower)) = (made.value.value, made.value.lower_bound) else {
        return Err(TestCaseError::fail("a value"));
    };
    let least = [known, whole_value].into_iter().flatten().fold(f64::INFINITY, f64::min);
    prop_assert!(lower <= least * (1.0 + 1e-9), "the bound {} lies above {}", lower, least);
    prop_assert!(value >= least * (1.0 - 1e-9), "{} is better than anything: {}", value, least);
    if made.value.optimality == Optimality::Proven {
        prop_assert!(close(value, least), "{} is not {}", value, least);
    }
    let shared =
        parted.instance.devices.iter().any(|dev| Some(dev.pool) == parted.instance.host.map(|h| h.pool));
    if objective == Objective::Latency && !shared {
        prop_assert!(close(value, least), "{} is not {}", value, least);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_for_one_stream_is_better(parted in parted(4, 3)) {
        against_every_plan(&parted, Objective::Latency)?;
    }

    #[test]
    fn no_plan_for_many_streams_is_better_than_the_bound(parted in parted(4, 3)) {
        against_every_plan(&parted, Objective::Throughput)?;
    }

    #[test]
    fn the_host_holds_the_fewest_bytes_where_it_comes_last(parted in parted(4, 3)) {
        against_every_plan(&parted, Objective::Fit)?;
        against_every_plan(&parted, Objective::Balanced)?;
    }
}
