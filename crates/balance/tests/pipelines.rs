//! Several pipelines: against a search over every way to divide the devices, and what is claimed of larger fleets.

mod kit;

use std::num::NonZeroU32;

use kit::instance::{Instance, ordinary};
use kit::pipelines::most_tokens;
use plimsoll_balance::{
    Certificate, Objective, Optimality, Pipelines, Plan, PlanError, PlanOptions, Refusal, Verdict, audit, plan,
};
use proptest::prelude::*;

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
fn finds_the_best(instance: &Instance, pipelines: Pipelines, best: Option<f64>) -> Result<(), TestCaseError> {
    match (made(instance, &asked(pipelines))?, best) {
        (Ok(plan), Some(tokens)) => {
            let seconds = plan.value.value.expect("it is told");
            let best = 1.0 / tokens;
            prop_assert!((seconds - best).abs() <= 1e-9 * best, "{pipelines:?}: {seconds} and not {best}: {plan:#?}");
            prop_assert_eq!(plan.value.optimality, Optimality::Proven, "{:?}: {:#?}", pipelines, plan);
        }
        (Err(refusal), None) => {
            prop_assert!(matches!(refusal.verdict, Verdict::ProvenInfeasible(_)), "{pipelines:?}: {refusal:?}");
            let too_few = matches!(refusal.verdict, Verdict::ProvenInfeasible(Certificate::Pipelines { .. }));
            prop_assert!(too_few || refusal.short_bytes.get() > 0, "{pipelines:?}: {refusal:?}");
        }
        (found, best) => prop_assert!(false, "{pipelines:?}: {found:#?} and not {best:?}"),
    }
    Ok(())
}

fn every_number(instance: &Instance) -> Result<(), TestCaseError> {
    let best = most_tokens(instance);
    for count in 1..=u32::try_from(instance.devices.len() + 1).expect("few") {
        let tokens = best.get(usize::try_from(count).expect("few")).copied().flatten();
        finds_the_best(instance, exactly(count), tokens)?;
    }
    let tokens = best.iter().copied().flatten().max_by(f64::total_cmp);
    finds_the_best(instance, Pipelines::Auto, tokens)
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
    #![proptest_config(ProptestConfig { cases: 1_100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_best_division_of_four_devices_is_found_and_proven(instance in roomy(8, 4)) {
        every_number(&instance)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 900, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_best_division_of_five_devices_is_found_and_proven(instance in roomy(5, 5)) {
        every_number(&instance)?;
    }
}
