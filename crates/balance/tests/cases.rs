//! Plans for known situations.

mod kit;

use kit::*;
use plimsoll_balance::*;
use plimsoll_units::{Bytes, BytesPerSec};

fn counts(plan: &Plan) -> Vec<(String, u32)> {
    plan.stages.iter().map(|s| (s.device.to_string(), s.layers.end - s.layers.start)).collect()
}

fn balanced() -> PlanOptions {
    PlanOptions { objective: Objective::Balanced, ..PlanOptions::default() }
}

fn with(objective: Objective) -> PlanOptions {
    PlanOptions { objective, ..PlanOptions::default() }
}

#[test]
fn layers_of_different_size_are_cut_by_their_bytes_and_not_by_their_count() {
    let snapshot = devices(&[32, 40]);
    let workload = layers(&[14, 14, 14, 14, 3, 3, 3, 3]);
    for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced] {
        let plan = plan(&snapshot, &workload, &EngineRules::none(), &with(objective)).unwrap();
        let ranges: Vec<_> = plan.stages.iter().map(|s| (s.device.to_string(), s.layers.clone())).collect();
        assert_eq!(ranges, [("n00/d0".to_owned(), 0..2), ("n01/d0".to_owned(), 2..8)], "{objective:?}");
    }
}

#[test]
fn the_slow_big_device_does_not_set_the_pace() {
    let gb = 1_000_000_000;
    let mut snapshot = devices(&[36 * gb, 96 * gb, 64 * gb, 96 * gb, 36 * gb]);
    for (node, tenths) in snapshot.nodes.iter_mut().zip([2644_u64, 3440, 3087, 3512, 1776]) {
        node.devices[0].bandwidth = Some(BytesPerSec::new(tenths * gb / 10));
    }
    let workload = layers(&[gb; 40]);
    let fast = plan(&snapshot, &workload, &EngineRules::none(), &with(Objective::Throughput)).unwrap();
    let value = fast.value.value.unwrap();
    assert!((value * 1e3 - 29.07).abs() < 0.01, "{value}");
    assert_eq!(fast.value.optimality, Optimality::Proven);
    let single = plan(&snapshot, &workload, &EngineRules::none(), &with(Objective::Latency)).unwrap();
    assert_eq!(counts(&single), [("n03/d0".to_owned(), 40)]);
    assert!((single.value.value.unwrap() * 1e3 - 113.9).abs() < 0.05);
    assert_eq!(single.value.optimality, Optimality::Proven);
}

#[test]
fn ten_layers_on_three_equal_devices_are_four_three_three() {
    let plan =
        plan(&devices(&[100, 100, 100]), &layers(&[1; 10]), &EngineRules::none(), &balanced()).unwrap();
    let mut sizes: Vec<u32> = counts(&plan).into_iter().map(|c| c.1).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [3, 3, 4]);
    assert_eq!(plan.value.optimality, Optimality::Proven);
    let _ = Bytes::ZERO;
}
