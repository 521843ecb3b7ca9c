//! Planners against a search over every plan, on small numbers.

mod kit;

use kit::float;
use kit::instance::{Instance, around_a_host, ordinary};
use kit::oracle::{Best, every_plan};
use plimsoll_balance::{
    EngineRules, Objective, Optimality, Plan, PlanError, PlanOptions, Stage, Strategy, Verdict, audit, plan,
};
use plimsoll_cluster::GpuBackend;
use proptest::prelude::*;

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

fn asked(objective: Objective, strategy: Strategy) -> PlanOptions {
    PlanOptions { objective, strategy, ..PlanOptions::default() }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn all_close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(*a, *b))
}

/// What the brute force says of an objective.
fn optimum(best: &Best, objective: Objective) -> Option<f64> {
    match objective {
        Objective::Fit => best.fit.as_ref().map(|f| float(u64::try_from(f.1).expect("few"))),
        Objective::Throughput => best.throughput.as_ref().map(|t| t[0]),
        Objective::Latency => best.latency,
        Objective::Balanced => best.balanced.as_ref().map(|b| b.1[0]),
    }
}

fn used_shares(plan: &Plan) -> Vec<f64> {
    let working = plan.stages.iter().filter(|s| s.head || !s.layers.is_empty());
    let share = |s: &Stage| {
        let used = s.weights_bytes.get() + s.kv_bytes.get() + s.overhead_bytes.get();
        float(used) / float(s.budget_bytes.get().max(1))
    };
    let mut shares: Vec<f64> = working.map(share).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    shares
}

fn times(plan: &Plan) -> Vec<f64> {
    let working = plan.stages.iter().filter(|s| s.head || !s.layers.is_empty());
    let mut times: Vec<f64> = working.map(|s| s.seconds.expect("it is told")).collect();
    times.sort_by(|a, b| b.total_cmp(a));
    times
}

/// The planner finds the best plan there is, proves it, and the auditor agrees.
fn finds_the_best(instance: &Instance) -> Result<(), TestCaseError> {
    let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
    let best = every_plan(instance, None);
    for objective in OBJECTIVES {
        let options = asked(objective, Strategy::Portfolio);
        match (plan(&snapshot, &workload, &rules, &options), optimum(&best, objective)) {
            (Ok(plan), Some(optimum)) => {
                prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
                let value = plan.value.value.expect("it is told");
                let shared =
                    instance.host.is_some_and(|host| instance.devices.iter().any(|d| d.pool == host.pool));
                if objective == Objective::Balanced && shared {
                    // What a device takes of the host's pool makes the host's own share larger: no order shows that.
                    let lower = plan.value.lower_bound.expect("it is told");
                    prop_assert!(
                        lower <= optimum * (1.0 + 1e-9) && optimum <= value * (1.0 + 1e-9),
                        "{plan:#?}"
                    );
                    continue;
                }
                prop_assert!(close(value, optimum), "{objective:?}: {value} and not {optimum}\n{plan:#?}");
                prop_assert_eq!(plan.value.optimality, Optimality::Proven, "{:?}", objective);
                let ties = match objective {
                    Objective::Fit => {
                        best.fit.as_ref().map(|f| f.2[0] - used_shares(&plan)[0]).map(|d| d.abs() < 1e-9)
                    }
                    Objective::Balanced => {
                        best.balanced.as_ref().map(|b| all_close(&b.1, &used_shares(&plan)))
                    }
                    Objective::Throughput if instance.host.is_some() => None,
                    Objective::Throughput => best.throughput.as_ref().map(|t| all_close(t, &times(&plan))),
                    Objective::Latency => None,
                };
                prop_assert!(ties.unwrap_or(true), "{objective:?} ties: {best:?}\n{plan:#?}");
            }
            (Err(PlanError::DoesNotFit(refusal)), None) => {
                let proven = matches!(refusal.verdict, Verdict::ProvenInfeasible(_));
                prop_assert!(proven, "{objective:?}: {refusal:?}");
                prop_assert!(refusal.short_bytes.get() > 0, "{refusal:?}");
            }
            (found, expected) => prop_assert!(false, "{objective:?}: {found:#?} and not {expected:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_best_plan_of_all_is_found_and_proven(instance in ordinary(8, 5)) {
        finds_the_best(&instance)?;
    }

    #[test]
    fn the_best_plan_on_up_to_six_devices_is_found_and_proven(instance in ordinary(6, 6)) {
        finds_the_best(&instance)?;
    }

    #[test]
    fn the_best_plan_around_a_host_is_found_and_proven(instance in around_a_host(6, 4)) {
        finds_the_best(&instance)?;
    }

    #[test]
    fn equal_devices_are_not_split_over_for_nothing(
        sizes in proptest::collection::vec(1_u64..1_000_000_007, 4..12),
        rate in 1_u64..1_000_000,
        count in 2_usize..8,
    ) {
        let room = sizes.iter().sum::<u64>() * 2 / 5;
        let names: Vec<String> = (0..count).map(|n| format!("CUDA{n}")).collect();
        let pools = names.iter().map(|name| kit::pool(name, room)).collect();
        let cards = names.iter().map(|name| kit::device(name, name, GpuBackend::Cuda, Some(rate))).collect();
        let snapshot = kit::snapshot(vec![kit::node("tower", pools, cards)]);
        let stages = |objective| {
            let options = asked(objective, Strategy::Portfolio);
            plan(&snapshot, &kit::layers(&sizes), &EngineRules::none(), &options).map(|plan| plan.stages.len())
        };
        // Without hops every plan on equal devices takes as long, but for the last digits of its sum.
        prop_assert_eq!(stages(Objective::Latency).ok(), stages(Objective::Fit).ok());
    }

    #[test]
    fn in_the_given_order_every_objective_is_exact(instance in ordinary(9, 5)) {
        let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
        let mut given: Vec<usize> = (0..instance.devices.len()).collect();
        given.sort_by_key(|&d| (instance.devices[d].node, d));
        let best = every_plan(&instance, Some(&given));
        let free = every_plan(&instance, None);
        for objective in OBJECTIVES {
            let options = asked(objective, Strategy::GivenOrder);
            match (plan(&snapshot, &workload, &rules, &options), optimum(&best, objective)) {
                (Ok(plan), Some(optimum_in_order)) => {
                    prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
                    let value = plan.value.value.expect("it is told");
                    prop_assert!(close(value, optimum_in_order), "{objective:?}: {value} and not {optimum_in_order}\n{plan:#?}");
                    let lower = plan.value.lower_bound.expect("it is told");
                    prop_assert!(lower <= optimum(&free, objective).expect("it is told") * (1.0 + 1e-9));
                }
                (Err(PlanError::DoesNotFit(refusal)), None) => {
                    let proven = matches!(refusal.verdict, Verdict::ProvenInfeasible(_));
                    prop_assert!(!proven || optimum(&free, objective).is_none(), "{objective:?}: {refusal:?}");
                }
                (found, expected) => prop_assert!(false, "{objective:?}: {found:#?} and not {expected:?}"),
            }
        }
    }

    #[test]
    fn with_the_bytes_that_are_short_on_one_device_it_fits(instance in ordinary(8, 4)) {
        let mut instance = instance;
        for device in &mut instance.devices {
            device.limit = None;
        }
        let fits = |instance: &Instance| {
            let options = asked(Objective::Fit, Strategy::Portfolio);
            plan(&instance.snapshot(), &instance.workload(), &instance.rules(), &options)
        };
        if let Err(PlanError::DoesNotFit(refusal)) = fits(&instance) {
            let enlarged = (0..instance.pools.len()).map(|pool| {
                let mut larger = instance.clone();
                larger.pools[pool] += refusal.short_bytes.get();
                larger
            });
            prop_assert!(enlarged.into_iter().any(|larger| fits(&larger).is_ok()), "{refusal:?}");
        }
    }

    #[test]
    fn the_order_in_a_snapshot_makes_no_difference(instance in around_a_host(8, 5), turn in 1_usize..5) {
        let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
        let mut shuffled = snapshot.clone();
        for node in &mut shuffled.nodes {
            let (devices, pools) = (node.devices.len().max(1), node.pools.len().max(1));
            node.devices.rotate_left(turn % devices);
            node.pools.rotate_left(turn % pools);
        }
        shuffled.links.reverse();
        for objective in OBJECTIVES {
            for strategy in [Strategy::Portfolio, Strategy::CapacityDescending] {
                let options = asked(objective, strategy);
                let first = plan(&snapshot, &workload, &rules, &options);
                prop_assert_eq!(&first, &plan(&snapshot, &workload, &rules, &options));
                prop_assert_eq!(first, plan(&shuffled, &workload, &rules, &options));
            }
        }
    }

    #[test]
    fn more_room_or_one_more_device_is_never_worse(instance in ordinary(7, 4), more in 1_u64..20) {
        let mut roomier = instance.clone();
        for room in &mut roomier.pools {
            *room += more;
        }
        let mut larger = instance.clone();
        larger.devices.push(kit::instance::Dev { node: 3, pool: larger.pools.len(), limit: None, rate: 3, padded: false });
        larger.pools.push(more * 3);
        let value = |instance: &Instance, objective| {
            let options = asked(objective, Strategy::Portfolio);
            let plan = plan(&instance.snapshot(), &instance.workload(), &instance.rules(), &options);
            plan.map_or(f64::INFINITY, |plan| plan.value.value.expect("it is told"))
        };
        for objective in OBJECTIVES {
            let before = value(&instance, objective);
            for after in [&roomier, &larger] {
                let after = value(after, objective);
                prop_assert!(after <= before * (1.0 + 1e-9), "{objective:?}: {before} became {after}");
            }
        }
    }
}
