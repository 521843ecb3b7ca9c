//! Distributions of drawn layers over drawn devices, against a search of every order.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_balance::{
    DistributionPlan, HostLayers, LayerSpec, PlanError, SnapshotIndex, Strategy as Orders, Verdict,
    chunk_distribution_plan, distribute,
};
use plimsoll_cluster::{ClusterState, NodeResources};
use plimsoll_units::{Bytes, NodeId};
use proptest::collection::vec;
use proptest::prelude::*;

fn index(budgets: &[u64]) -> SnapshotIndex {
    let cluster = ClusterState::new();
    for (number, &budget) in budgets.iter().enumerate() {
        let id = NodeId::new(format!("n{number}")).unwrap();
        cluster.register(NodeResources::new(id, Bytes::new(budget), Bytes::ZERO)).unwrap();
    }
    SnapshotIndex::new(cluster.snapshot(), HostLayers::Never)
}

/// Some layers with a first index of their own, and where stages may end.
fn layers() -> impl Strategy<Value = Vec<LayerSpec>> {
    (0_u32..3, vec((0_u64..12, 0_u64..4, 0_u64..1_000, prop::bool::weighted(0.8)), 1..9)).prop_map(
        |(first, rows)| {
            let layer = |(index, (weights, kv, num_weights, cut_after))| LayerSpec {
                kv_bytes: Bytes::new(kv),
                num_weights,
                cut_after,
                ..LayerSpec::of_weights(index, Bytes::new(weights))
            };
            (first..).zip(rows).map(layer).collect()
        },
    )
}

/// Whether any order of the devices holds the layers from `start` on.
fn some_order_fits(layers: &[LayerSpec], budgets: &mut Vec<u64>) -> bool {
    if layers.is_empty() {
        return true;
    }
    for at in 0..budgets.len() {
        let budget = budgets.swap_remove(at);
        let mut taken = 0;
        let mut reach = 0;
        for (count, layer) in (1..).zip(layers) {
            taken += layer.resident_bytes().get();
            if taken > budget {
                break;
            }
            if layer.cut_after || count == layers.len() {
                reach = count;
            }
        }
        let fits = reach > 0 && some_order_fits(&layers[reach..], budgets);
        budgets.push(budget);
        let last = budgets.len() - 1;
        budgets.swap(at, last);
        if fits {
            return true;
        }
    }
    false
}

/// Every layer once, in order, within budgets, cut where it is legal, and every number true.
fn check(plan: &DistributionPlan, layers: &[LayerSpec], budgets: &[u64]) {
    let mut next = layers[0].index;
    let mut seen = std::collections::BTreeSet::new();
    for held in plan.distributions() {
        assert!(seen.insert(held.reference()), "{} stands twice", held.reference());
        assert!(!held.slices.is_empty());
        for slice in held.slices {
            assert_eq!(slice.layer_range.start, next);
            assert!(slice.layer_range.end > next);
            next = slice.layer_range.end;
            let mine: Vec<_> = layers.iter().filter(|l| slice.layer_range.contains(&l.index)).collect();
            assert_eq!(slice.size.get(), mine.iter().map(|l| l.resident_bytes().get()).sum::<u64>());
            assert_eq!(slice.num_weights, mine.iter().map(|l| l.num_weights).sum::<u64>());
        }
        let node: usize = held.node.as_str()[1..].parse().unwrap();
        assert!(held.size().get() <= budgets[node]);
        let last = layers.iter().find(|l| l.index + 1 == next).unwrap();
        assert!(last.cut_after || last.index == layers[layers.len() - 1].index);
    }
    assert_eq!(next, layers[layers.len() - 1].index + 1);
    assert_eq!(plan.total_layers(), layers.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_fits_in_some_order_is_found_and_nothing_else(
        rows in layers(),
        budgets in vec(0_u64..40, 1..6),
    ) {
        let index = index(&budgets);
        // Devices without room hold nothing, not even what takes nothing.
        let mut with_room: Vec<u64> = budgets.iter().copied().filter(|b| *b > 0).collect();
        let fits = some_order_fits(&rows, &mut with_room);
        match distribute(&index, &rows, Orders::Portfolio) {
            Ok(plan) => {
                check(&plan, &rows, &budgets);
                for limit in [1, 2, 5] {
                    let chunked = chunk_distribution_plan(&plan, limit);
                    check(&chunked, &rows, &budgets);
                    let longest = chunked.distributions().flat_map(|h| h.slices).map(|s| s.layer_range.len());
                    prop_assert!(longest.max().unwrap_or(0) <= usize::try_from(limit).unwrap());
                }
                let mut shuffled = rows.clone();
                shuffled.reverse();
                prop_assert_eq!(distribute(&index, &shuffled, Orders::Portfolio).unwrap(), plan);
            }
            Err(PlanError::DoesNotFit(refusal)) => {
                prop_assert!(!fits, "{}", refusal);
                prop_assert!(matches!(refusal.verdict, Verdict::ProvenInfeasible(_)));
            }
            // A card of nothing is no device.
            Err(PlanError::NoDevices { .. }) => prop_assert!(budgets.iter().all(|budget| *budget == 0)),
            Err(error) => prop_assert!(false, "{error:?}"),
        }
    }

    #[test]
    fn the_largest_first_is_as_greedy_as_it_says(rows in layers(), budgets in vec(0_u64..60, 1..6)) {
        let Ok(plan) = distribute(&index(&budgets), &rows, Orders::CapacityDescending) else { return Ok(()) };
        check(&plan, &rows, &budgets);
        let node = |name: &NodeId| name.as_str()[1..].parse::<usize>().unwrap();
        let used: Vec<u64> = plan.distributions().map(|held| budgets[node(held.node)]).collect();
        prop_assert!(used.is_sorted_by(|a, b| a >= b), "{used:?}");
    }
}
