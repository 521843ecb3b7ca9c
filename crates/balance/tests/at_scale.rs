//! Where not every plan can be tried: what is claimed still holds.

mod kit;

use kit::instance::{Instance, around_a_host, ordinary};
use plimsoll_balance::{
    Objective, Optimality, Plan, PlanError, PlanOptions, Refusal, Strategy, Verdict, audit, plan,
};
use proptest::prelude::*;

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

fn solved(
    instance: &Instance,
    objective: Objective,
    strategy: Strategy,
) -> Result<Result<Plan, Refusal>, TestCaseError> {
    let options = PlanOptions { objective, strategy, ..PlanOptions::default() };
    let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
    match plan(&snapshot, &workload, &rules, &options) {
        Ok(plan) => {
            prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()), "{:#?}", plan);
            Ok(Ok(plan))
        }
        Err(PlanError::DoesNotFit(refusal)) => Ok(Err(*refusal)),
        Err(other) => Err(TestCaseError::fail(format!("{other}"))),
    }
}

/// Every strategy's bound holds for every strategy's plan.
fn claims_agree(instance: &Instance) -> Result<(), TestCaseError> {
    for objective in OBJECTIVES {
        let mut values = Vec::new();
        let mut bounds = Vec::new();
        for strategy in [Strategy::Portfolio, Strategy::CapacityDescending, Strategy::GivenOrder] {
            match solved(instance, objective, strategy)? {
                Ok(plan) => {
                    values.push((plan.stages[0].layers.clone(), plan.value.value.expect("it is told")));
                    bounds.push(plan.value.lower_bound.expect("it is told"));
                }
                Err(refusal) => {
                    if matches!(refusal.verdict, Verdict::ProvenInfeasible(_)) {
                        bounds.push(f64::INFINITY);
                    }
                    prop_assert!(
                        strategy != Strategy::Portfolio || bounds.len() == 1,
                        "undecided: {refusal:?}"
                    );
                }
            }
        }
        // Where layers on the host come last, values are compared for equally many there.
        let last = instance.host.is_some() && matches!(objective, Objective::Fit | Objective::Balanced);
        if last && values.windows(2).any(|pair| pair[0].0 != pair[1].0) {
            continue;
        }
        for bound in &bounds {
            for (_, value) in &values {
                prop_assert!(*bound <= value * (1.0 + 1e-9), "{objective:?}: {bounds:?} {values:?}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_many_devices_no_plan_is_better_than_a_bound(instance in ordinary(24, 11)) {
        claims_agree(&instance)?;
    }

    #[test]
    fn on_many_devices_around_a_host_no_plan_is_better_than_a_bound(instance in around_a_host(16, 9)) {
        claims_agree(&instance)?;
    }
}

/// Deterministic sizes between 50 and 150.
fn sizes(count: u64) -> Vec<u64> {
    (0..count).map(|i| 50 + i.wrapping_mul(2_654_435_761) % 101).collect()
}

#[test]
fn six_hundred_layers_on_a_hundred_devices_are_planned_and_bounded() {
    let capacities: Vec<u64> = (0..100).map(|i: u64| 600 + i.wrapping_mul(40_503) % 900).collect();
    let mut snapshot = kit::devices(&capacities);
    for (node, number) in snapshot.nodes.iter_mut().zip(0_u64..) {
        let rate = plimsoll_units::BytesPerSec::new(1_000_000 * (1 + number * 7 % 13));
        node.devices[0].bandwidth = Some(rate);
    }
    let workload = kit::layers(&sizes(600));
    let rules = plimsoll_balance::EngineRules::none();
    for objective in OBJECTIVES {
        let options = PlanOptions { objective, ..PlanOptions::default() };
        let plan = plan(&snapshot, &workload, &rules, &options).expect("it fits");
        assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
        let close = match plan.value.optimality {
            Optimality::Proven => true,
            Optimality::Within(gap) => gap < 0.35,
            Optimality::Unproven => false,
        };
        assert!(close, "{objective:?}: {:?}", plan.value);
    }
}
