//! Several pipelines on fleets where not every division can be tried.

mod kit;

use std::num::NonZeroU32;

use plimsoll_balance::flow::{evaluate, layerwise_bound, of_plan};
use plimsoll_balance::{
    EngineRules, Objective, Optimality, Pipelines, Plan, PlanOptions, Workload, audit, plan,
};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend};

const GB: u64 = 1_000_000_000;

/// So many nodes with one device each of these bytes and bytes per second.
fn fleet(kinds: &[(usize, u64, u64)]) -> ClusterSnapshot {
    let each = kinds.iter().flat_map(|&(count, room, rate)| std::iter::repeat_n((room, rate), count));
    let node = |(number, (room, rate)): (usize, (u64, u64))| {
        let device = kit::device("CUDA0", "p", GpuBackend::Cuda, Some(rate));
        kit::node(&format!("n{number:04}"), vec![kit::pool("p", room)], vec![device])
    };
    kit::snapshot(each.enumerate().map(node).collect())
}

/// 80 layers, 140 GB.
fn seventy_billion() -> Workload {
    kit::layers(&[1_750_000_000; 80])
}

fn asked(pipelines: Pipelines) -> PlanOptions {
    PlanOptions { objective: Objective::Throughput, pipelines, ..PlanOptions::default() }
}

/// A plan that the auditor agrees with.
fn made(snapshot: &ClusterSnapshot, workload: &Workload, pipelines: Pipelines) -> Plan {
    let (rules, options) = (EngineRules::none(), asked(pipelines));
    let plan = plan(snapshot, workload, &rules, &options).expect("it fits");
    assert_eq!(audit(&plan, snapshot, workload, &rules, &options), Ok(()));
    plan
}

/// What the plan makes of all speeds together over what one copy reads.
fn share_of_all_speeds(plan: &Plan, snapshot: &ClusterSnapshot, workload: &Workload) -> f64 {
    let devices = snapshot.nodes.iter().flat_map(|node| &node.devices);
    let speeds: f64 = devices.filter_map(|device| device.bandwidth).map(|rate| rate.as_f64()).sum();
    let copy: f64 = workload.footprints[0].layers.iter().map(|layer| layer.read_bytes.as_f64()).sum();
    copy / (plan.value.value.expect("it is told") * speeds)
}

/// 4 A100 of 40 GB, 8 L4, 12 T4.
fn two_dozen() -> ClusterSnapshot {
    fleet(&[(4, 40 * GB, 1_555 * GB), (8, 24 * GB, 300 * GB), (12, 16 * GB, 320 * GB)])
}

/// 4 A100 of 40 GB, 6 V100, 8 L4, 10 T4, 4 pairs of L4, 6 pairs of T4, 4 times four T4.
fn forty_two() -> ClusterSnapshot {
    fleet(&[
        (4, 40 * GB, 1_555 * GB),
        (6, 16 * GB, 900 * GB),
        (8, 24 * GB, 300 * GB),
        (10, 16 * GB, 320 * GB),
        (4, 48 * GB, 600 * GB),
        (6, 32 * GB, 640 * GB),
        (4, 64 * GB, 1_280 * GB),
    ])
}

/// Eight kinds, 25 nodes of each.
fn two_hundred() -> ClusterSnapshot {
    fleet(&[
        (25, 24 * GB, 936 * GB),
        (25, 24 * GB, 1_008 * GB),
        (25, 32 * GB, 1_792 * GB),
        (25, 40 * GB, 1_555 * GB),
        (25, 48 * GB, 864 * GB),
        (25, 80 * GB, 2_039 * GB),
        (25, 16 * GB, 320 * GB),
        (25, 24 * GB, 300 * GB),
    ])
}

/// At least this share of what all speeds together would make, without waste.
fn makes(snapshot: &ClusterSnapshot, pipelines: Pipelines, least: f64) {
    let workload = seventy_billion();
    let plan = made(snapshot, &workload, pipelines);
    let share = share_of_all_speeds(&plan, snapshot, &workload);
    assert!(share >= least, "{share} in {} pipelines", plan.pipelines().count());
    let (value, lower) = (plan.value.value.expect("it is told"), plan.value.lower_bound.expect("it is told"));
    assert!(lower <= value && matches!(plan.value.optimality, Optimality::Within(_)), "{:?}", plan.value);
    // No token is counted that no device serves.
    let served = of_plan(&plan).expect("times are told");
    let flow = evaluate(0..80, &served).expect("all are rates");
    assert!(flow.tokens_per_second >= (1.0 - 1e-9) / value);
    assert!(flow.tokens_per_second <= layerwise_bound(0..80, &served) * (1.0 + 1e-9));
}

#[test]
fn two_dozen_nodes_of_three_kinds_are_used_almost_wholly() {
    makes(&two_dozen(), Pipelines::Auto, 0.98);
}

#[test]
fn forty_two_nodes_of_seven_kinds_are_used_almost_wholly() {
    makes(&forty_two(), Pipelines::Auto, 0.98);
}

#[test]
fn two_hundred_nodes_of_eight_kinds_are_used_almost_wholly() {
    makes(&two_hundred(), Pipelines::Exactly(NonZeroU32::new(37).expect("not zero")), 0.99);
}

#[test]
fn several_pipelines_are_never_worse_than_one() {
    for snapshot in [two_dozen(), forty_two()] {
        let workload = seventy_billion();
        let [one, many] =
            [Pipelines::One, Pipelines::Auto].map(|pipelines| made(&snapshot, &workload, pipelines));
        assert!(many.value.value < one.value.value);
        assert_eq!(one.pipelines().count(), 1);
    }
}
