//! What passes between stages, as part of their times.

mod kit;

use kit::instance::{Instance, around_a_host, ordinary};
use kit::oracle::{Best, every_plan};
use kit::{device, float, layers, node, node_id, pool, snapshot};
use plimsoll_balance::{
    EngineRules, Finding, Objective, Optimality, PlanError, PlanOptions, Strategy, Transfers, Verdict, audit,
    plan,
};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend, Link};
use plimsoll_units::{Bytes, BytesPerSec};
use proptest::prelude::*;

const COUNTED: [Transfers; 2] = [Transfers::Overlapped, Transfers::Added];

fn asked(transfers: Transfers, strategy: Strategy) -> PlanOptions {
    PlanOptions { objective: Objective::Throughput, strategy, transfers, ..PlanOptions::default() }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn optimum(best: &Best, transfers: Transfers) -> Option<f64> {
    if transfers == Transfers::Added { best.added } else { best.overlapped }
}

/// The planner finds the best plan there is, proves it, and the auditor agrees.
fn finds_the_best(instance: &Instance) -> Result<(), TestCaseError> {
    let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
    let best = every_plan(instance, None);
    for transfers in COUNTED {
        let options = asked(transfers, Strategy::Portfolio);
        match (plan(&snapshot, &workload, &rules, &options), optimum(&best, transfers)) {
            (Ok(plan), Some(optimum)) => {
                prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()), "{:#?}", plan);
                let value = plan.value.value.expect("it is told");
                prop_assert!(close(value, optimum), "{transfers:?}: {value} and not {optimum}\n{plan:#?}");
                prop_assert_eq!(plan.value.optimality, Optimality::Proven, "{:#?}", plan);
            }
            (Err(PlanError::DoesNotFit(refusal)), None) => {
                let proven = matches!(refusal.verdict, Verdict::ProvenInfeasible(_));
                prop_assert!(proven, "{transfers:?}: {refusal:?}");
            }
            (found, expected) => prop_assert!(false, "{transfers:?}: {found:#?} and not {expected:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_best_plan_with_transfers_is_found_and_proven(instance in ordinary(7, 4)) {
        finds_the_best(&instance)?;
    }

    #[test]
    fn the_best_plan_with_transfers_around_a_host_is_found_and_proven(instance in around_a_host(6, 3)) {
        finds_the_best(&instance)?;
    }

    #[test]
    fn in_the_given_order_transfers_are_exact(instance in ordinary(8, 5)) {
        let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
        let mut given: Vec<usize> = (0..instance.devices.len()).collect();
        given.sort_by_key(|&d| (instance.devices[d].node, d));
        let best = every_plan(&instance, Some(&given));
        for transfers in COUNTED {
            let options = asked(transfers, Strategy::GivenOrder);
            let value = match plan(&snapshot, &workload, &rules, &options) {
                Ok(plan) => {
                    prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()), "{:#?}", plan);
                    plan.value.value
                }
                Err(_) => None,
            };
            match (value, optimum(&best, transfers)) {
                (Some(value), Some(optimum)) => prop_assert!(close(value, optimum), "{value} and not {optimum}"),
                (value, optimum) => prop_assert_eq!(value, optimum),
            }
        }
    }

    #[test]
    fn the_order_in_a_snapshot_makes_no_difference_to_transfers(
        instance in around_a_host(8, 5),
        turn in 1_usize..5,
    ) {
        let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
        let mut shuffled = snapshot.clone();
        for node in &mut shuffled.nodes {
            let (devices, pools) = (node.devices.len().max(1), node.pools.len().max(1));
            node.devices.rotate_left(turn % devices);
            node.pools.rotate_left(turn % pools);
        }
        shuffled.links.reverse();
        for transfers in COUNTED {
            for strategy in [Strategy::Portfolio, Strategy::CapacityDescending] {
                let options = asked(transfers, strategy);
                let first = plan(&snapshot, &workload, &rules, &options);
                prop_assert_eq!(first, plan(&shuffled, &workload, &rules, &options));
            }
        }
    }

    #[test]
    fn what_is_counted_more_is_never_faster(instance in ordinary(14, 9)) {
        let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
        let all = [Transfers::Apart, Transfers::Overlapped, Transfers::Added];
        let plans = all.map(|transfers| {
            let options = asked(transfers, Strategy::Portfolio);
            let plan = plan(&snapshot, &workload, &rules, &options).ok()?;
            assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()), "{plan:#?}");
            plan.value.lower_bound.zip(plan.value.value)
        });
        for pair in plans.windows(2) {
            if let [Some((bound, _)), Some((_, value))] = pair {
                prop_assert!(*bound <= value * (1.0 + 1e-9), "{plans:?}");
            }
        }
        prop_assert_eq!(plans[0].is_some(), plans[1].is_some());
        prop_assert_eq!(plans[0].is_some(), plans[2].is_some());
    }
}

/// Two nodes with two cards each, and a slow link between them.
fn two_nodes() -> ClusterSnapshot {
    let one = |id: &str| {
        let pools = vec![pool("a", 100), pool("b", 100)];
        let card = |id: &str| device(id, id, GpuBackend::Cuda, Some(10));
        node(id, pools, vec![card("a"), card("b")])
    };
    let mut snapshot = snapshot(vec![one("left"), one("right")]);
    snapshot.links = vec![Link {
        between: [node_id("left"), node_id("right")],
        bandwidth: Some(BytesPerSec::new(2)),
        latency: Some(std::time::Duration::ZERO),
    }];
    snapshot
}

#[test]
fn a_slow_link_is_crossed_only_where_that_is_worth_it() {
    let snapshot = two_nodes();
    let value = |activation: u64, transfers| {
        let mut workload = layers(&[10; 8]);
        workload.activation_bytes = Bytes::new(activation);
        let options = asked(transfers, Strategy::Portfolio);
        let plan = plan(&snapshot, &workload, &EngineRules::none(), &options).unwrap();
        assert_eq!(audit(&plan, &snapshot, &workload, &EngineRules::none(), &options), Ok(()));
        assert_eq!(plan.value.optimality, Optimality::Proven);
        (plan.value.value.unwrap(), plan.stages.len())
    };
    // Four cards read two layers each in two seconds; two cards on one node need four.
    assert_eq!(value(4, Transfers::Apart), (2.0, 4));
    assert_eq!(value(4, Transfers::Overlapped), (2.0, 4));
    assert_eq!(value(10, Transfers::Overlapped), (4.0, 2));
    // Sending for one second: the two beside the link hold one layer less than the others.
    assert_eq!(value(2, Transfers::Added), (3.0, 4));
    assert_eq!(value(10, Transfers::Added), (4.0, 2));
}

#[test]
fn a_cut_lies_where_little_passes() {
    let snapshot = two_nodes();
    let mut workload = layers(&[90, 10, 90, 10]);
    workload.boundary_bytes = Some([40, 0, 40, 0].map(Bytes::new).to_vec());
    for transfers in COUNTED {
        let options = asked(transfers, Strategy::Portfolio);
        let plan = plan(&snapshot, &workload, &EngineRules::none(), &options).unwrap();
        assert_eq!(audit(&plan, &snapshot, &workload, &EngineRules::none(), &options), Ok(()));
        let crossed: Vec<u32> = plan
            .stages
            .windows(2)
            .filter(|pair| pair[0].device.node != pair[1].device.node)
            .map(|pair| pair[0].layers.end)
            .collect();
        assert!(crossed.iter().all(|&end| end == 2), "{plan:#?}");
        assert_eq!(plan.value.value, Some(9.0));
    }
}

#[test]
fn transfers_are_asked_of_throughput_alone_and_told_behind_every_layer() {
    let (snapshot, rules) = (two_nodes(), EngineRules::none());
    let workload = layers(&[10; 4]);
    for objective in [Objective::Fit, Objective::Latency, Objective::Balanced] {
        let options = PlanOptions { objective, ..asked(Transfers::Added, Strategy::Portfolio) };
        let refused = plan(&snapshot, &workload, &rules, &options);
        assert_eq!(refused, Err(PlanError::TransfersApart { objective }));
    }
    let told = plimsoll_balance::Workload { boundary_bytes: Some(vec![Bytes::ZERO; 3]), ..workload };
    let refused = plan(&snapshot, &told, &rules, &PlanOptions::default());
    assert_eq!(refused, Err(PlanError::Boundaries { told: 3, layers: 4 }));
}

#[test]
fn the_auditor_counts_transfers_itself() {
    let (snapshot, rules) = (two_nodes(), EngineRules::none());
    let mut workload = layers(&[10; 8]);
    workload.activation_bytes = Bytes::new(6);
    let apart = plan(&snapshot, &workload, &rules, &asked(Transfers::Apart, Strategy::Portfolio)).unwrap();
    for (transfers, seconds) in [(Transfers::Overlapped, 3.0), (Transfers::Added, 5.0)] {
        let options = asked(transfers, Strategy::Portfolio);
        let findings = audit(&apart, &snapshot, &workload, &rules, &options).unwrap_err();
        assert_eq!(findings, [Finding::Value { claimed: Some(2.0), actual: Some(seconds) }]);
    }
}

#[test]
fn on_thirty_devices_transfers_are_planned_and_bounded() {
    let nodes = (0..10_u64).map(|n| {
        let names = ["a", "b", "c"];
        let pools = names.iter().map(|name| pool(name, 600 + n * 37 % 200)).collect();
        let rate = 1_000_000 * (1 + n * 7 % 5);
        let cards = names.iter().map(|name| device(name, name, GpuBackend::Cuda, Some(rate))).collect();
        node(&format!("n{n:02}"), pools, cards)
    });
    let snapshot = snapshot(nodes.collect());
    let sizes: Vec<u64> = (0..120_u64).map(|i| 50 + i.wrapping_mul(2_654_435_761) % 101).collect();
    let mut workload = layers(&sizes);
    workload.activation_bytes = Bytes::new(16);
    for transfers in COUNTED {
        let options = asked(transfers, Strategy::Portfolio);
        let plan = plan(&snapshot, &workload, &EngineRules::none(), &options).unwrap();
        assert_eq!(audit(&plan, &snapshot, &workload, &EngineRules::none(), &options), Ok(()));
        let (value, lower) = (plan.value.value.unwrap(), plan.value.lower_bound.unwrap());
        assert!(lower > 0.0 && lower <= value, "{:?}", plan.value);
        assert!(value < float(sizes.iter().sum()), "{:?}", plan.value);
    }
}
