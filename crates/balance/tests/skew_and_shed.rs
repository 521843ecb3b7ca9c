//! How skewed a cluster is, what should leave full devices, and when to rebalance.

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::{device, device_ref, layers, node, pool, snapshot};
use plimsoll_balance::{
    Decision, EngineRules, Hold, Hysteresis, Objective, Placement, PlanOptions, Transfer, decide, plan,
    price, shed_load, skew,
};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend, NodeStatus};
use plimsoll_units::Bytes;
use proptest::prelude::*;

/// Nodes of one device each, with a total and what of it is free.
fn fleet(of: &[(u64, u64)]) -> ClusterSnapshot {
    let one = |(number, &(total, free)): (usize, &(u64, u64))| {
        let mut memory = pool("p", total);
        memory.free = Some(Bytes::new(free));
        memory.held = Bytes::new(total - free);
        node(&format!("n{number:05}"), vec![memory], vec![device("d", "p", GpuBackend::Cuda, Some(1))])
    };
    snapshot(of.iter().enumerate().map(one).collect())
}

#[test]
fn a_device_with_half_the_room_of_the_others_is_named() {
    let report = skew(&fleet(&[(100, 80), (100, 80), (100, 40), (100, 80)]), 1.0 / 0.9);
    assert!(report.skewed);
    assert!((report.ratio - 2.0).abs() < 1e-12);
    let fullest = report.fullest.expect("there is one");
    assert_eq!((fullest.device, fullest.available.get()), (device_ref("n00002", "d"), 40));
    assert_eq!(report.emptiest.expect("there is one").device, device_ref("n00000", "d"));
}

#[test]
fn almost_as_much_room_everywhere_is_not_skewed() {
    let report = skew(&fleet(&[(100, 80), (100, 79), (100, 80), (100, 78)]), 1.0 / 0.9);
    assert!(!report.skewed);
    assert!((report.ratio - 80.0 / 78.0).abs() < 1e-12);
}

#[test]
fn an_idle_cluster_of_unlike_devices_is_not_skewed() {
    let report = skew(&fleet(&[(24, 24), (8, 8)]), 1.25);
    assert_eq!((report.ratio, report.skewed, report.devices), (1.0, false, 2));
}

#[test]
fn a_full_device_beside_one_with_room_is_infinitely_skewed() {
    let report = skew(&fleet(&[(10, 0), (10, 1)]), 1000.0);
    assert_eq!((report.ratio, report.skewed), (f64::INFINITY, true));
    let full = skew(&fleet(&[(10, 0), (10, 0)]), 1.25);
    assert_eq!((full.ratio, full.skewed), (1.0, false));
}

#[test]
fn the_threshold_itself_counts_as_skewed() {
    assert!(skew(&fleet(&[(100, 100), (100, 50)]), 2.0).skewed);
    assert!(!skew(&fleet(&[(100, 100), (100, 50)]), f64::NAN).skewed);
}

#[test]
fn only_devices_of_active_nodes_with_capacity_are_compared() {
    let mut cluster = fleet(&[(100, 50), (100, 0), (100, 0), (0, 0), (100, 0), (100, 50)]);
    cluster.nodes[1].status = NodeStatus::Failed;
    cluster.nodes[2].drained = true;
    cluster.nodes[4].pools[0].free = None;
    let report = skew(&cluster, 1.25);
    assert_eq!((report.devices, report.ratio, report.skewed), (2, 1.0, false));
    cluster.nodes[0].status = NodeStatus::Degraded;
    cluster.nodes[5].status = NodeStatus::Failed;
    let nobody = skew(&cluster, 1.25);
    assert_eq!((nobody.devices, nobody.ratio, nobody.skewed, nobody.fullest), (0, 1.0, false, None));
}

#[test]
fn devices_of_one_pool_are_compared_once_and_hosts_not_at_all() {
    let mut cluster = fleet(&[(100, 50), (100, 50)]);
    let one = &mut cluster.nodes[0];
    let mut small = device("a", "p", GpuBackend::Cuda, Some(1));
    small.limit = Some(Bytes::new(10));
    one.devices.insert(0, small);
    one.pools.push(pool("ram", 1000));
    one.devices.push(device("host", "ram", GpuBackend::Cpu, None));
    let report = skew(&cluster, 1.25);
    assert_eq!((report.devices, report.ratio), (2, 1.0));
    assert_eq!(report.fullest.expect("there is one").device, device_ref("n00000", "d"));
}

#[test]
fn caps_limits_and_reserves_bound_what_is_available() {
    let mut cluster = fleet(&[(100, 60)]);
    cluster.nodes[0].pools[0].cap = Some(Bytes::new(50));
    cluster.nodes[0].pools[0].reserve = Some(Bytes::new(10));
    let share = skew(&cluster, 1.25).fullest.expect("there is one");
    assert_eq!((share.available.get(), share.capacity.get()), (10, 50));
}

/// The planners' objectives on five machines that share one model: speed and size are not the same thing.
#[test]
fn a_slow_device_with_much_memory_does_not_set_the_pace() {
    let rates = [264.4, 344.0, 308.7, 351.2, 177.6];
    let sizes: [u64; 5] = [36, 96, 64, 96, 36];
    let gigabyte = 1_000_000_000;
    let one = |(number, (&size, &rate)): (usize, (&u64, &f64))| {
        let rate = format!("{rate}GB/s").parse::<plimsoll_units::BytesPerSec>().expect("a rate").get();
        let memory = vec![pool("p", size * gigabyte)];
        node(&format!("n{number}"), memory, vec![device("d", "p", GpuBackend::Metal, Some(rate))])
    };
    let mut cluster = snapshot(sizes.iter().zip(&rates).enumerate().map(one).collect());
    for a in 0..5 {
        for b in a + 1..5 {
            cluster.links.push(plimsoll_cluster::Link {
                between: [kit::node_id(&format!("n{a}")), kit::node_id(&format!("n{b}"))],
                bandwidth: Some(plimsoll_units::BytesPerSec::new(1)),
                latency: Some(Duration::ZERO),
            });
        }
    }
    let workload = layers(&[gigabyte; 40]);
    let asked = |objective| PlanOptions { objective, ..PlanOptions::default() };
    let rules = EngineRules::none();
    let milliseconds = |objective| {
        let made = plan(&cluster, &workload, &rules, &asked(objective)).expect("it fits");
        (made.value.value.expect("it is told") * 1000.0, made)
    };
    let (throughput, spread) = milliseconds(Objective::Throughput);
    assert!((throughput - 29.07).abs() < 0.005, "{throughput}");
    assert_eq!(spread.stages.len(), 5);
    let (latency, alone) = milliseconds(Objective::Latency);
    assert!((latency - 113.9).abs() < 0.05, "{latency}");
    assert_eq!(alone.stages.len(), 1);
    assert_eq!(alone.stages[0].device, device_ref("n3", "d"));
    let split = |counts: [usize; 5]| {
        let mut start = 0;
        let runs = counts.iter().enumerate().map(|(n, count)| {
            start += count;
            (device_ref(&format!("n{n}"), "d"), start - count..start)
        });
        let placement = Placement { on_host: 0, devices: runs.collect(), moved: vec![] };
        let value = |objective| {
            let priced = price(&cluster, &workload, &rules, &asked(objective), &placement, 0.0);
            priced.expect("it is a placement").plan.value.value.expect("it is told") * 1000.0
        };
        (value(Objective::Throughput), value(Objective::Latency))
    };
    let (by_speed, by_size) = (split([7, 10, 8, 10, 5]), split([4, 12, 8, 12, 4]));
    assert!(
        (by_speed.0 - 29.07).abs() < 0.005 && (by_size.0 - 34.88).abs() < 0.005,
        "{by_speed:?} {by_size:?}"
    );
    assert!(
        (by_speed.1 - 138.1).abs() < 0.05 && (by_size.1 - 132.6).abs() < 0.05,
        "{by_speed:?} {by_size:?}"
    );
}

#[test]
fn the_fullest_device_gives_first_and_several_targets_share() {
    let cluster = fleet(&[(100, 0), (100, 10), (100, 51), (40, 39)]);
    let moved = |limit| shed_load(&cluster, None, limit);
    let given = |t: &Transfer| (t.from.node.to_string(), t.to.node.to_string(), t.bytes.get());
    let named = |from: &str, to: &str, bytes| (from.to_owned(), to.to_owned(), bytes);
    let all: Vec<_> = moved(usize::MAX).iter().map(given).collect();
    assert_eq!(all, [named("n00000", "n00002", 20), named("n00001", "n00003", 10)]);
    assert_eq!(moved(1).iter().map(given).collect::<Vec<_>>(), all[..1]);
    assert!(moved(0).is_empty());
}

#[test]
fn one_device_gives_to_several_where_none_can_take_it_all() {
    let cluster = fleet(&[(1000, 0), (100, 90), (100, 100)]);
    let bytes: Vec<u64> = shed_load(&cluster, None, usize::MAX).iter().map(|t| t.bytes.get()).collect();
    assert_eq!(bytes, [80, 70]);
}

fn available(cluster: &ClusterSnapshot) -> BTreeMap<String, (u64, u64)> {
    let one = |n: &plimsoll_cluster::Node| {
        let free = n.pools[0].free.expect("it is told").get();
        (n.id.to_string(), (free, n.pools[0].total.get()))
    };
    cluster.nodes.iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shed_follows_every_rule(
        drawn in prop::collection::vec((0_u64..200, 0_u64..=100), 0..12),
        limit in prop_oneof![Just(usize::MAX), 0_usize..6],
    ) {
        let of: Vec<(u64, u64)> = drawn.iter().map(|&(total, percent)| (total, total * percent / 100)).collect();
        let cluster = fleet(&of);
        let transfers = shed_load(&cluster, None, limit);
        prop_assert!(transfers.len() <= limit);
        let first = available(&cluster);
        let mut now = first.clone();
        let mut sources: Vec<String> = Vec::new();
        for transfer in &transfers {
            let (from, to) = (transfer.from.node.to_string(), transfer.to.node.to_string());
            prop_assert!(from != to && !transfer.bytes.is_zero() && transfer.layers.is_none());
            prop_assert!(first[&from].0 * 5 < first[&from].1, "a source has less than 20 %");
            prop_assert!(first[&to].0 * 2 > first[&to].1, "a target has more than 50 %");
            // The target has the most available after what it was already given, of those that can take anything.
            let room = |name: &String| now[name].0.saturating_sub(now[name].1.div_ceil(5));
            let targets = first.iter().filter(|(name, (free, total))| free * 2 > *total && room(name) > 0);
            let most = targets.map(|(name, _)| (now[name].0, std::cmp::Reverse(name.clone()))).max();
            prop_assert_eq!(most, Some((now[&to].0, std::cmp::Reverse(to.clone()))));
            if sources.last() != Some(&from) {
                prop_assert!(!sources.contains(&from));
                sources.push(from.clone());
            }
            now.get_mut(&from).expect("it is there").0 += transfer.bytes.get();
            now.get_mut(&to).expect("it is there").0 -= transfer.bytes.get();
            prop_assert!(now[&from].0 <= first[&from].1.div_ceil(5), "no more than brings it back");
            prop_assert!(now[&to].0 * 5 >= now[&to].1, "no target comes below 20 %");
        }
        let order: Vec<_> = sources.iter().map(|s| (first[s].0 * 1_000_000 / first[s].1, s.clone())).collect();
        prop_assert!(order.is_sorted(), "the fullest gives first: {order:?}");
        if transfers.len() < limit {
            let in_need = first.iter().any(|(s, (free, total))| free * 5 < *total && now[s].0 < total.div_ceil(5));
            let can_take = first.iter().any(|(t, (free, total))| free * 2 > *total && now[t].0 > now[t].1.div_ceil(5));
            prop_assert!(!in_need || !can_take, "something is left to do");
        }
    }

    #[test]
    fn shed_layers_leave_every_stage_in_one_piece(
        drawn in prop::collection::vec((1_usize..5, 0_u64..=100), 2..6),
        sizes in prop::collection::vec((1_u64..9, prop::bool::weighted(0.8)), 20),
    ) {
        let count: usize = drawn.iter().map(|d| d.0).sum();
        let mut workload = layers(&sizes[..count].iter().map(|s| s.0).collect::<Vec<_>>());
        for (layer, size) in workload.footprints[0].layers.iter_mut().zip(&sizes) {
            layer.cut_after = size.1;
        }
        let mut start = 0;
        let mut runs = Vec::new();
        for (number, &(layers, _)) in drawn.iter().enumerate() {
            runs.push((device_ref(&format!("n{number:05}"), "d"), start..start + layers));
            start += layers;
            workload.footprints[0].layers[start - 1].cut_after = true;
        }
        let roomy = fleet(&vec![(1000, 1000); drawn.len()]);
        let (rules, options) = (EngineRules::none(), PlanOptions::default());
        let placement = Placement { on_host: 0, devices: runs, moved: vec![] };
        let in_force = price(&roomy, &workload, &rules, &options, &placement, 0.0).expect("it is one").plan;
        let of: Vec<(u64, u64)> = drawn.iter().map(|d| (100, d.1)).collect();
        let cluster = fleet(&of);
        let first = available(&cluster);
        let mut left: BTreeMap<String, u64> = first.iter().map(|(n, a)| (n.clone(), a.0)).collect();
        let mut ranges: Vec<_> = in_force.stages.iter().map(|s| s.layers.clone()).collect();
        let at = |name: &str| in_force.stages.iter().position(|s| s.device.node.as_str() == name).expect("it is");
        for transfer in shed_load(&cluster, Some((&in_force, &workload)), usize::MAX) {
            let (from, to) = (transfer.from.node.to_string(), transfer.to.node.to_string());
            let (source, target) = (at(&from), at(&to));
            let moved = transfer.layers.clone().expect("layers are named");
            prop_assert!(!moved.is_empty());
            prop_assert!(first[&from].0 * 5 < first[&from].1 && first[&to].0 * 2 > first[&to].1);
            let bytes: u64 = moved.clone().map(|l| sizes[usize::try_from(l).expect("few")].0).sum();
            prop_assert_eq!(bytes, transfer.bytes.get());
            // A boundary between neighbours moves, and nothing else.
            if target + 1 == source {
                prop_assert_eq!(moved.start, ranges[source].start);
                ranges[source].start = moved.end;
                ranges[target].end = moved.end;
            } else {
                prop_assert_eq!(target, source + 1);
                prop_assert_eq!(moved.end, ranges[source].end);
                ranges[source].end = moved.start;
                ranges[target].start = moved.start;
            }
            *left.get_mut(&to).expect("it is there") -= bytes;
            prop_assert!(left[&to] * 5 >= first[&to].1, "no target comes below 20 %");
            *left.get_mut(&from).expect("it is there") += bytes;
            // One layer fewer would not have been enough, unless layers stick together.
            let single = workload.footprints[0].layers.iter().all(|l| l.cut_after);
            let last = if target < source { moved.end - 1 } else { moved.start };
            let without = left[&from] - sizes[usize::try_from(last).expect("few")].0;
            prop_assert!(!single || without * 5 < first[&from].1);
        }
        let mut next = 0;
        for (stage, range) in in_force.stages.iter().zip(&ranges) {
            prop_assert!(range.start == next && range.end >= range.start);
            prop_assert!(!(stage.input || stage.head) || !range.is_empty());
            let cut = range.end == 0 || workload.footprints[0].layers[usize::try_from(range.end).expect("few") - 1].cut_after;
            prop_assert!(cut || range.end as usize == count);
            next = range.end;
        }
        prop_assert_eq!(usize::try_from(next).expect("few"), count);
    }

    #[test]
    fn the_same_samples_again_and_again_lead_to_one_rebalancing_at_most(
        skewed: bool,
        gain in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -0.1_f64..2.0],
        least in prop_oneof![Just(f64::NAN), 0.0_f64..0.5],
        cool_down in 0_u64..100,
        samples in 0_u32..5,
        steps in prop::collection::vec(0_u64..1000, 1..60),
    ) {
        let mut state = Hysteresis::new(least, Duration::from_secs(cool_down), samples);
        let mut now = Duration::ZERO;
        let mut went = 0;
        for step in steps {
            now += Duration::from_secs(step);
            went += usize::from(decide(&mut state, now, skewed, gain) == Decision::Go);
        }
        prop_assert!(went <= 1);
        prop_assert!(went == 0 || (skewed && gain > 0.0 && gain >= state.least_gain));
    }
}

#[test]
fn a_rebalancing_waits_for_samples_a_gain_and_the_last_one() {
    let second = Duration::from_secs;
    let mut state = Hysteresis::new(0.1, second(60), 2);
    let mut sample = |at, skewed, gain| decide(&mut state, second(at), skewed, gain);
    assert_eq!(sample(0, false, 0.5), Decision::Hold(Hold::Even));
    assert_eq!(sample(1, true, 0.05), Decision::Hold(Hold::LittleGain { gain: 0.05, least: 0.1 }));
    assert_eq!(sample(2, true, 0.5), Decision::Hold(Hold::FewSamples { seen: 1, needed: 2 }));
    assert_eq!(sample(3, true, 0.5), Decision::Go);
    assert_eq!(sample(1000, true, 0.5), Decision::Hold(Hold::SameReason { gain: 0.5 }));
    // It helped; what comes later is a new reason, but not too soon.
    assert_eq!(sample(10, false, 0.0), Decision::Hold(Hold::Even));
    assert_eq!(sample(11, true, 0.3), Decision::Hold(Hold::FewSamples { seen: 1, needed: 2 }));
    assert_eq!(sample(12, true, 0.3), Decision::Hold(Hold::CoolingDown { left: second(51) }));
    assert_eq!(sample(63, true, 0.3), Decision::Go);
    // A gain that has grown is a new reason too.
    assert_eq!(sample(200, true, 0.45), Decision::Hold(Hold::FewSamples { seen: 1, needed: 2 }));
    assert_eq!(sample(201, true, 0.45), Decision::Go);
}

#[test]
fn ten_thousand_devices_are_served_and_nobody_gives_to_itself() {
    let of: Vec<(u64, u64)> =
        (0..10_000_u64).map(|n| (1000, if n % 2 == 0 { n % 200 } else { 501 + n % 499 })).collect();
    let transfers = shed_load(&fleet(&of), None, usize::MAX);
    assert!(transfers.len() >= 4000);
    let targets: BTreeSet<_> = transfers.iter().map(|t| &t.to).collect();
    assert!(targets.len() > 1000, "{}", targets.len());
    assert!(transfers.iter().all(|t| t.from != t.to));
}
