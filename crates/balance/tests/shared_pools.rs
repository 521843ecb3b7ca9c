//! Devices that draw on one pool, against a search over every plan.

mod kit;

use kit::float;
use kit::instance::{Instance, around_a_host, ordinary};
use kit::oracle::{Best, every_plan};
use plimsoll_balance::{EngineRules, Objective, Optimality, PlanError, PlanOptions, Verdict, audit, plan};
use plimsoll_cluster::GpuBackend;
use plimsoll_units::Bytes;
use proptest::prelude::*;

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

/// What the brute force says of an objective.
fn optimum(best: &Best, objective: Objective) -> Option<f64> {
    match objective {
        Objective::Fit => best.fit.as_ref().map(|fit| float(u64::try_from(fit.1).expect("few"))),
        Objective::Throughput => best.throughput.as_ref().map(|times| times[0]),
        Objective::Latency => best.latency,
        Objective::Balanced => best.balanced.as_ref().map(|shares| shares.1[0]),
    }
}

/// Devices in pairs that draw on one pool each, where `pairs` has a one: the second of each is on the node of the first.
fn sharing(mut instance: Instance, pairs: u8) -> Instance {
    for (pair, devices) in instance.devices.chunks_mut(2).enumerate() {
        if let [first, second] = devices
            && pairs & (1 << pair) != 0
        {
            second.pool = first.pool;
            second.node = first.node;
        }
    }
    instance
}

fn finds_the_best(instance: &Instance) -> Result<(), TestCaseError> {
    let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
    let best = every_plan(instance, None);
    let beside_host = instance.host.is_some_and(|host| instance.devices.iter().any(|d| d.pool == host.pool));
    for objective in OBJECTIVES {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        match (plan(&snapshot, &workload, &rules, &options), optimum(&best, objective)) {
            (Ok(plan), Some(optimum)) => {
                prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()), "{:#?}", plan);
                let value = plan.value.value.expect("it is told");
                let lower = plan.value.lower_bound.expect("it is told");
                prop_assert!(
                    lower <= optimum * (1.0 + 1e-9) && optimum <= value * (1.0 + 1e-9),
                    "{:?}: {} <= {} <= {}",
                    objective,
                    lower,
                    optimum,
                    value
                );
                // What a device takes of the host's pool makes the host's own share larger: no order shows that.
                if objective != Objective::Balanced || !beside_host {
                    prop_assert!(
                        (value - optimum).abs() <= 1e-9 * value.max(1.0),
                        "{:?}: {} and not {}\n{:#?}",
                        objective,
                        value,
                        optimum,
                        plan
                    );
                    prop_assert_eq!(plan.value.optimality, Optimality::Proven, "{:?}", objective);
                }
            }
            (Err(PlanError::DoesNotFit(refusal)), None) => {
                prop_assert!(matches!(refusal.verdict, Verdict::ProvenInfeasible(_)), "{:?}", refusal);
                prop_assert!(refusal.short_bytes.get() > 0, "{:?}", refusal);
            }
            (found, expected) => prop_assert!(false, "{objective:?}: {found:#?} and not {expected:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_best_plan_of_devices_that_share_pools_is_found_and_proven(
        instance in (ordinary(7, 4), 1_u8..4).prop_map(|(instance, pairs)| sharing(instance, pairs))
    ) {
        finds_the_best(&instance)?;
    }

    #[test]
    fn the_best_plan_around_a_host_of_devices_that_share_pools_is_found_and_proven(
        instance in (around_a_host(5, 4), 1_u8..4).prop_map(|(instance, pairs)| sharing(instance, pairs))
    ) {
        finds_the_best(&instance)?;
    }
}

/// A graphics unit and a processor on one memory of 100 bytes, neither of which may use more than 60 of it.
#[test]
fn what_only_fits_on_both_devices_of_a_pool_is_planned() {
    let mut devices = ["CPU", "GPU"].map(|name| kit::device(name, "memory", GpuBackend::Cuda, Some(10)));
    for device in &mut devices {
        device.limit = Some(Bytes::new(60));
    }
    let pools = vec![kit::pool("memory", 100)];
    let snapshot = kit::snapshot(vec![kit::node("a", pools, devices.to_vec())]);
    let rules = EngineRules::none();
    for (layer, fits) in [(9, true), (10, true), (11, false)] {
        for objective in OBJECTIVES {
            let options = PlanOptions { objective, ..PlanOptions::default() };
            match plan(&snapshot, &kit::layers(&[layer; 10]), &rules, &options) {
                Ok(plan) => {
                    assert!(fits);
                    assert_eq!((plan.stages.len(), plan.value.optimality), (2, Optimality::Proven));
                }
                Err(PlanError::DoesNotFit(refusal)) => {
                    assert!(!fits && matches!(refusal.verdict, Verdict::ProvenInfeasible(_)));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
