//! Fewest bytes within a tolerance, against every way to place everything.

mod kit;

use kit::instance::{Instance, around_a_host, ordinary};
use kit::moves::{Scene, every_way};
use plimsoll_balance::{
    Objective, Optimality, PlanError, PlanOptions, RebalanceError, RebalanceOptions, audit, rebalance_plan,
};
use proptest::prelude::*;

/// What a tolerance allows, and what floating point may have taken from it.
fn within(best: f64, tolerance: f64) -> f64 {
    best * (1.0 + tolerance) * (1.0 + 1e-9)
}

fn fewest_are_found(
    instance: Instance,
    seed: u64,
    losses: bool,
    objective: Objective,
    tolerance: f64,
) -> Result<(), TestCaseError> {
    let scene = Scene::new(instance, seed, losses);
    let options = PlanOptions { objective, ..PlanOptions::default() };
    let (snapshot, workload, rules) = (scene.snapshot(), scene.instance.workload(), scene.instance.rules());
    let ways = every_way(&scene, &scene.orders(), objective);
    let last = scene.instance.host.is_some() && matches!(objective, Objective::Fit | Objective::Balanced);
    let least_host = ways.iter().map(|way| way.host).min().unwrap_or(0);
    let ways: Vec<_> = ways.into_iter().filter(|way| !last || way.host == least_host).collect();
    let best = ways.iter().map(|way| way.value).min_by(f64::total_cmp);
    let asked = RebalanceOptions { tolerance, propose: false, ..RebalanceOptions::default() };
    let made = rebalance_plan(&scene.plan(&options), &snapshot, &workload, &rules, &options, &asked);
    let made = match made {
        Ok(made) => made,
        Err(RebalanceError::Plan(
            PlanError::DoesNotFit(_) | PlanError::NoDevices { .. } | PlanError::MainNodeFailed { .. },
        )) => {
            prop_assert!(best.is_none(), "{:?} fits: {:?}", best, scene);
            return Ok(());
        }
        Err(other) => return Err(TestCaseError::fail(format!("{other} for {scene:?}"))),
    };
    prop_assert_eq!(audit(&made.target, &snapshot, &workload, &rules, &options), Ok(()), "{:?}", &scene);
    let Some(best) = best else {
        prop_assert!(!made.order_kept, "nothing fits in the order: {:?}", &scene);
        return Ok(());
    };
    prop_assert!(made.order_kept, "{best} is reached in the order: {:?}", &scene);
    let fewest = ways.iter().filter(|w| w.value <= within(best, tolerance)).map(|w| w.bytes).min();
    let fewest = fewest.expect("the best way is within");
    let value = made.after.value.expect("it is told");
    let told = made.best_value.expect("it is told");
    let bytes = made.bytes().get();
    prop_assert!(value <= within(told, tolerance), "{value} for {told}");
    prop_assert!(
        made.bytes_lower_bound.get() <= fewest,
        "{} bounds {fewest}\n{scene:?}",
        made.bytes_lower_bound.get()
    );
    let shared = scene.instance.host.is_some_and(|h| scene.instance.devices.iter().any(|d| d.pool == h.pool));
    let exact = objective != Objective::Latency && !(shared && objective == Objective::Balanced);
    if !(shared && objective == Objective::Balanced) {
        prop_assert!((told - best).abs() <= 1e-9 * best.max(1e-9), "{told} and not {best}: {scene:?}");
    }
    if exact {
        prop_assert_eq!(bytes, fewest, "{:?} value {} best {}\n{:?}", objective, value, best, &scene);
        prop_assert!(shared || made.bytes_optimality == Optimality::Proven);
    } else {
        prop_assert!(bytes >= fewest || shared, "{bytes} and not {fewest}: {scene:?}");
    }
    Ok(())
}

fn tolerance() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(0.02), Just(0.1), Just(0.34), Just(1.0)]
}

fn objective() -> impl Strategy<Value = Objective> {
    prop_oneof![
        Just(Objective::Throughput),
        Just(Objective::Balanced),
        Just(Objective::Fit),
        Just(Objective::Latency)
    ]
}

macro_rules! against_every_way {
    ($($name:ident: $objective:expr, $instance:expr, $losses:expr, $cases:expr;)*) => {
        $(proptest! {
            #![proptest_config(ProptestConfig { cases: $cases, failure_persistence: None, ..ProptestConfig::default() })]
            #[test]
            fn $name(instance in $instance, seed: u64, objective in $objective, tolerance in tolerance()) {
                fewest_are_found(instance, seed, $losses, objective, tolerance)?;
            }
        })*
    };
}

against_every_way! {
    throughput_takes_the_fewest_bytes: Just(Objective::Throughput), ordinary(7, 5), false, 2000;
    balanced_takes_the_fewest_bytes: Just(Objective::Balanced), ordinary(7, 5), false, 2000;
    fit_takes_the_fewest_bytes: Just(Objective::Fit), ordinary(7, 5), false, 2000;
    latency_stays_within_its_tolerance: Just(Objective::Latency), ordinary(8, 5), false, 500;
    around_a_host_the_fewest_bytes_are_taken: objective(), around_a_host(7, 4), false, 1000;
    with_nodes_lost_or_drained_the_fewest_bytes_are_taken: objective(), ordinary(8, 5), true, 1000;
    around_a_host_with_losses_the_fewest_bytes_are_taken: objective(), around_a_host(6, 4), true, 500;
}
