//! The balancer over a living cluster.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use plimsoll_balance::{
    Certificate, ConfigError, DistributeError, DistributionPlan, EngineRules, HostLayers, LayerSpec,
    LoadBalanceConfig, LoadBalancer, LoadStats, Objective, PlanError, PlanOptions, RebalanceOptions,
    Strategy, Verdict, chunk_distribution_plan,
};
use plimsoll_cluster::{ClusterState, Moment, NodeResources};
use plimsoll_profile::{
    AccelerationMode, Accelerator, AcceleratorKind, Cores, CpuFeatures, CpuProfile, GpuBackend, Health,
    MemoryProfile, Presence, RuntimeProfile, SystemProfile,
};
use plimsoll_units::{Bytes, Generation, NodeId, PoolId};

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn gpu0() -> PoolId {
    PoolId::new("gpu0").unwrap()
}

/// Machines with one card each and no memory of their own.
fn cluster(cards: &[(&str, u64)]) -> Arc<ClusterState> {
    let cluster = ClusterState::new();
    for &(name, bytes) in cards {
        cluster.register(NodeResources::new(id(name), Bytes::new(bytes), Bytes::ZERO)).unwrap();
    }
    Arc::new(cluster)
}

fn balancer(cards: &[(&str, u64)]) -> LoadBalancer {
    LoadBalancer::new(cluster(cards), LoadBalanceConfig::default()).unwrap()
}

fn layers(sizes: &[u64]) -> Vec<LayerSpec> {
    (0..).zip(sizes).map(|(index, &size)| LayerSpec::of_weights(index, Bytes::new(size))).collect()
}

/// Who holds which layers.
fn held(plan: &DistributionPlan) -> Vec<(&str, std::ops::Range<u32>)> {
    plan.distributions().map(|held| (held.node.as_str(), held.layers())).collect()
}

fn free(balancer: &LoadBalancer, node: &str, bytes: u64) {
    let record = |m: &mut plimsoll_cluster::NodeMetrics| {
        m.record_free(&gpu0(), Bytes::new(bytes), Moment::from_millis(1))
    };
    balancer.cluster().update_metrics(&id(node), record).unwrap().unwrap();
}

fn profile(features: CpuFeatures, usable: u32, cards: usize) -> SystemProfile {
    let cores = Cores { logical: usable, allowed: usable, physical: usable, quota: None, usable };
    let total = Bytes::gib(64);
    let card = |ordinal| Accelerator {
        ordinal,
        id: format!("GPU-{ordinal}"),
        uuid: None,
        pci: None,
        name: None,
        backend: GpuBackend::Cuda,
        kind: AcceleratorKind::Discrete,
        total: Some(Bytes::gib(24)),
        compute_capability: None,
        multiprocessors: None,
        bandwidth: None,
        health: Health::Healthy,
        layout: plimsoll_profile::MemoryLayout::default(),
    };
    SystemProfile {
        cpu: CpuProfile {
            vendor: None,
            brand: None,
            features: Presence::Found(features),
            cores,
            topology: plimsoll_profile::CpuTopology::default(),
        },
        memory: Presence::Found(MemoryProfile { total, host_total: total, limit: None }),
        accelerators: (0..).map(card).take(cards).collect(),
        sources: Vec::new(),
    }
}

fn runtime(mode: AccelerationMode, workers: u32) -> RuntimeProfile {
    let features = CpuFeatures {
        avx2: mode == AccelerationMode::Avx2,
        avx512: mode == AccelerationMode::Avx512,
        neon: mode == AccelerationMode::Neon,
    };
    let runtime =
        RuntimeProfile::from(&profile(features, workers, usize::from(mode == AccelerationMode::Gpu)));
    assert_eq!(runtime.acceleration_mode, mode);
    runtime
}

#[test]
fn an_order_that_fits_is_found_where_the_largest_first_does_not() {
    let balancer = balancer(&[("large", 6), ("small", 5)]);
    let layers = layers(&[5, 3, 3]);
    let plan = balancer.distribute_layers(&layers).unwrap();
    assert_eq!(held(&plan), [("small", 0..1), ("large", 1..3)]);
    // The greedy order alone is still there.
    let greedy = LoadBalanceConfig { strategy: Strategy::CapacityDescending, ..balancer.config() };
    balancer.reconfigure(greedy).unwrap();
    assert!(matches!(balancer.distribute_layers(&layers), Err(PlanError::DoesNotFit(_))));
}

#[test]
fn an_order_that_is_neither_ascending_nor_descending_is_found() {
    // Only 7, 9, 4 takes these whole.
    let balancer = balancer(&[("a", 9), ("b", 7), ("c", 4)]);
    let plan = balancer.distribute_layers(&layers(&[7, 9, 4])).unwrap();
    assert_eq!(held(&plan), [("b", 0..1), ("a", 1..2), ("c", 2..3)]);
}

#[test]
fn what_cannot_fit_is_refused_with_a_reason_that_can_be_checked() {
    let error = balancer(&[("a", 6), ("b", 5)]).distribute_layers(&layers(&[4, 4, 4])).unwrap_err();
    let PlanError::DoesNotFit(refusal) = error else { panic!("{error:?}") };
    assert_eq!(refusal.verdict, Verdict::ProvenInfeasible(Certificate::Total { needs: 12, budgets: 11 }));
    let error = balancer(&[("a", 6), ("b", 6)]).distribute_layers(&layers(&[4, 4, 4])).unwrap_err();
    let PlanError::DoesNotFit(refusal) = error else { panic!("{error:?}") };
    assert!(matches!(refusal.verdict, Verdict::ProvenInfeasible(_)), "{refusal}");
}

#[test]
fn capacity_is_counted_to_the_byte_at_192_gigabytes() {
    // A number of 32 bits has steps of 16 kB there.
    let capacity = 192_000_000_000_u64;
    let balancer = balancer(&[("a", capacity)]);
    let mut sizes = vec![capacity / 96; 96];
    assert_eq!(sizes.iter().sum::<u64>(), capacity);
    assert_eq!(balancer.distribute_layers(&layers(&sizes)).unwrap().total_bytes(), Bytes::new(capacity));
    sizes[95] += 1;
    let error = balancer.distribute_layers(&layers(&sizes)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "it cannot fit: 192000000001 bytes are needed and all budgets together are 192000000000 bytes; 1 bytes short in the best attempt"
    );
}

#[test]
fn devices_without_room_stay_empty_and_break_nothing() {
    let balancer = balancer(&[("a", 48), ("b", 48), ("c", 0), ("d", 0), ("e", 1)]);
    let plan = balancer.distribute_layers(&layers(&[8; 12])).unwrap();
    assert_eq!(held(&plan), [("a", 0..6), ("b", 6..12)]);
    assert_eq!(plan.participating_nodes(), [&id("a"), &id("b")]);

    let nothing = LoadBalancer::new(cluster(&[("c", 0), ("d", 0)]), LoadBalanceConfig::default()).unwrap();
    assert!(matches!(nothing.distribute_layers(&layers(&[8])), Err(PlanError::NoDevices { .. })));
    assert_eq!(nothing.distribute_layers(&[]).unwrap().total_layers(), 0);
    assert!(!nothing.rebalance());
    assert_eq!(nothing.shed_load(), []);
    nothing.cluster().drain(&id("c")).unwrap();
    nothing.cluster().drain(&id("d")).unwrap();
    assert!(matches!(nothing.distribute_layers(&[]), Err(PlanError::NoDevices { .. })));

    // Smaller than the smallest layer: it holds nothing, and is no reason to give up on the rest.
    nothing.cluster().register(NodeResources::new(id("f"), Bytes::new(7), Bytes::ZERO)).unwrap();
    assert!(matches!(nothing.distribute_layers(&layers(&[8])), Err(PlanError::DoesNotFit(_))));
}

#[test]
fn an_empty_cluster_is_an_error_and_no_layers_are_an_empty_plan() {
    let nobody = balancer(&[]);
    assert!(matches!(nobody.distribute_layers(&[]), Err(PlanError::NoDevices { .. })));
    assert!(matches!(nobody.distribute_layers(&layers(&[1])), Err(PlanError::NoDevices { .. })));
    let plan = balancer(&[("a", 1)]).distribute_layers(&[]).unwrap();
    assert_eq!((plan.total_layers(), plan.distributions().len()), (0, 0));
    expect![[r#"
        Total layers: 0
        Nodes: none
    "#]]
    .assert_eq(&plan.summary());
}

#[test]
fn layers_come_in_any_order_and_each_exactly_once() {
    let balancer = balancer(&[("a", 10), ("b", 10)]);
    let mut rows = layers(&[3; 6]);
    rows.iter_mut().for_each(|layer| layer.index += 5);
    rows.reverse();
    let plan = balancer.distribute_layers(&rows).unwrap();
    assert_eq!(held(&plan), [("a", 5..8), ("b", 8..11)]);

    rows[2].index = 6;
    let error = balancer.distribute_layers(&rows).unwrap_err();
    assert_eq!(error.to_string(), "layer 6 is listed twice");
    rows.remove(2);
    let error = balancer.distribute_layers(&rows).unwrap_err();
    assert_eq!(error.to_string(), "layer 8 is missing: 9 follows 7");
    let error = balancer.distribute_layers(&layers(&[u64::MAX, 1])).unwrap_err();
    assert_eq!(error, PlanError::Overflow { what: "layers" });
    let mut heavy = layers(&[1, 1, 1]);
    heavy.iter_mut().for_each(|layer| layer.num_weights = u64::MAX / 2);
    assert_eq!(balancer.distribute_layers(&heavy).unwrap_err(), PlanError::Overflow { what: "layers" });
    let whole = balancer.distribute_layers(&heavy[..2]).unwrap();
    assert_eq!(whole.distributions().next().unwrap().num_weights(), u64::MAX - 1);
    let end = LayerSpec::of_weights(u32::MAX, Bytes::new(1));
    assert!(balancer.distribute_layers(&[end]).is_err());
}

#[test]
fn no_stage_ends_where_no_cut_is_legal() {
    let balancer = balancer(&[("a", 10), ("b", 10), ("c", 4)]);
    // Largest first would cut after 0..3; the layer of 2 must stay with the one behind it.
    let mut rows = layers(&[4, 4, 2, 5, 4]);
    rows[2].cut_after = false;
    let plan = balancer.distribute_layers(&rows).unwrap();
    assert_eq!(held(&plan), [("a", 0..2), ("b", 2..4), ("c", 4..5)]);
    // Nowhere may be cut: one device holds everything, or none does.
    rows.iter_mut().for_each(|layer| layer.cut_after = false);
    assert!(balancer.distribute_layers(&rows).is_err());
    assert_eq!(held(&balancer.distribute_layers(&rows[..3]).unwrap()), [("a", 0..3)]);
}

#[test]
fn the_order_in_which_machines_registered_makes_no_difference() {
    let mut cards = vec![("a", 6), ("b", 6), ("c", 9), ("d", 9), ("e", 3)];
    let rows = layers(&[3; 11]);
    let first = balancer(&cards).distribute_layers(&rows).unwrap();
    for _ in 0..4 {
        cards.rotate_left(1);
        let again = balancer(&cards).distribute_layers(&rows).unwrap();
        assert_eq!(held(&again), held(&first));
    }
}

#[test]
fn hosts_take_layers_only_where_they_are_let_and_needed() {
    let cluster = ClusterState::new();
    cluster.register(NodeResources::new(id("a"), Bytes::new(8), Bytes::new(64))).unwrap();
    let balancer = LoadBalancer::new(Arc::new(cluster), LoadBalanceConfig::default()).unwrap();
    assert!(matches!(balancer.distribute_layers(&layers(&[4; 4])), Err(PlanError::DoesNotFit(_))));
    let hosts = LoadBalanceConfig { hosts: HostLayers::LastResort, ..balancer.config() };
    balancer.reconfigure(hosts).unwrap();
    let devices = |plan: &DistributionPlan| {
        plan.distributions().map(|held| held.device.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(devices(&balancer.distribute_layers(&layers(&[4; 2])).unwrap()), ["gpu0"]);
    assert_eq!(devices(&balancer.distribute_layers(&layers(&[4; 4])).unwrap()), ["host"]);
}

#[test]
fn nodes_that_are_gone_or_drained_or_unreadable_take_nothing() {
    let balancer = balancer(&[("a", 10), ("b", 10), ("c", 10), ("d", 10)]);
    let cluster = balancer.cluster();
    let now = Moment::from_millis(60_000);
    for name in ["a", "c", "d"] {
        cluster.heartbeat(&id(name), now).unwrap();
    }
    cluster.heartbeat(&id("b"), Moment::START).unwrap();
    cluster.sweep(now);
    cluster.drain(&id("c")).unwrap();
    cluster.update_metrics(&id("d"), |m| m.record_unreadable(&gpu0())).unwrap().unwrap();
    let plan = balancer.distribute_layers(&layers(&[5, 5])).unwrap();
    assert_eq!(held(&plan), [("a", 0..2)]);
    // Fewer survivors than the model needs: a refusal, and nobody is overfilled.
    assert!(matches!(balancer.distribute_layers(&layers(&[5; 3])), Err(PlanError::DoesNotFit(_))));
}

#[test]
fn a_newcomer_goes_to_the_empty_card_and_not_to_the_larger_one_that_is_full() {
    // 48 GiB with 308.2 MiB free beside 16 GiB with nothing on them; the newcomer weighs 4.4 GiB.
    let (gib, mib) = (Bytes::gib(1).get(), Bytes::mib(1).get());
    let balancer = balancer(&[("g0", 48 * gib), ("g1", 16 * gib)]);
    free(&balancer, "g0", mib * 3_082 / 10);
    let layer = gib * 44 / 10 / 32;
    let plan = balancer.distribute_layers(&layers(&[layer; 32])).unwrap();
    assert_eq!(held(&plan), [("g1", 0..32)]);
    // With nowhere to go it is refused: nobody is thrown out for it.
    free(&balancer, "g1", 4 * gib);
    assert!(matches!(balancer.distribute_layers(&layers(&[layer; 32])), Err(PlanError::DoesNotFit(_))));
}

#[test]
fn what_another_process_uses_is_not_planned_on() {
    // Eight cards of 80 GiB, four of them filled by somebody else, and nothing of ours on any.
    let names = ["g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7"];
    let gib = Bytes::gib(1).get();
    let balancer = balancer(&names.map(|name| (name, 80 * gib)));
    for name in &names[..4] {
        free(&balancer, name, gib);
    }
    let plan = balancer.distribute_layers(&layers(&[2 * gib; 100])).unwrap();
    assert_eq!(plan.participating_nodes(), [&id("g4"), &id("g5"), &id("g6")]);
}

#[test]
fn chunks_have_the_exact_sums_of_their_layers() {
    let balancer = balancer(&[("a", 1 << 40)]);
    let big = u64::from(u32::MAX) * 3 + 1;
    let rows: Vec<LayerSpec> = (0..10)
        .map(|index| LayerSpec {
            num_weights: big + u64::from(index),
            kv_bytes: Bytes::new(7),
            ..LayerSpec::of_weights(index, Bytes::new(u64::from(index * index)))
        })
        .collect();
    let plan = balancer.distribute_layers(&rows).unwrap();
    let chunked = chunk_distribution_plan(&plan, 4);
    let held = chunked.distributions().next().unwrap();
    let ranges: Vec<_> = held.slices.iter().map(|slice| slice.layer_range.clone()).collect();
    assert_eq!(ranges, [0..4, 4..8, 8..10]);
    for slice in held.slices {
        let of = |f: &dyn Fn(&LayerSpec) -> u64| -> u64 {
            rows.iter().filter(|layer| slice.layer_range.contains(&layer.index)).map(f).sum()
        };
        assert_eq!(slice.size.get(), of(&|layer| layer.resident_bytes().get()));
        assert_eq!(slice.num_weights, of(&|layer| layer.num_weights));
    }
    let whole = plan.distributions().next().unwrap();
    assert_eq!((held.size(), held.num_weights()), (whole.size(), whole.num_weights()));
    assert_eq!(whole.num_weights(), 10 * big + 45);
    // A limit of nothing is one layer each, and one beyond the whole changes nothing.
    assert_eq!(chunk_distribution_plan(&plan, 0).distributions().next().unwrap().slices.len(), 10);
    assert_eq!(chunk_distribution_plan(&chunked, u32::MAX), chunked);
    assert_eq!(chunk_distribution_plan(&plan, u32::MAX), plan);
}

#[test]
fn slices_suit_the_machine_that_carries_them_out() {
    let balancer = balancer(&[("a", 1_000)]);
    let rows = layers(&[1; 300]);
    let longest = |runtime: &RuntimeProfile| {
        let plan = balancer.distribute_layers_with_runtime_profile(&rows, runtime).unwrap();
        let slices: Vec<usize> =
            plan.distributions().flat_map(|held| held.slices).map(|slice| slice.layer_range.len()).collect();
        assert_eq!(slices.iter().sum::<usize>(), 300);
        slices[0]
    };
    // Two for each worker; the configuration's 100; batches of 512 in vectors of 64 bits.
    assert_eq!(longest(&runtime(AccelerationMode::Gpu, 6)), 12);
    assert_eq!(longest(&runtime(AccelerationMode::Avx2, 80)), 100);
    balancer
        .reconfigure(LoadBalanceConfig { max_layers_per_assignment: 1_000, ..balancer.config() })
        .unwrap();
    assert_eq!(longest(&runtime(AccelerationMode::Generic, 400)), 300);
    assert_eq!(longest(&runtime(AccelerationMode::Gpu, 400)), 300);
    assert_eq!(longest(&runtime(AccelerationMode::Generic, 0)), 2);
}

#[test]
fn settings_follow_the_machine() {
    for (mode, micros, threshold) in [
        (AccelerationMode::Gpu, 500, 1.15),
        (AccelerationMode::Avx512, 750, 1.05),
        (AccelerationMode::Avx2, 1000, 1.02),
        (AccelerationMode::Neon, 1000, 1.02),
        (AccelerationMode::Generic, 1000, 1.02),
    ] {
        for (workers, most, at_once) in [(0, 2, 1), (1, 2, 1), (6, 12, 6), (64, 128, 8)] {
            let config = LoadBalanceConfig::autotuned(&runtime(mode, workers));
            let expected = LoadBalanceConfig {
                lock_timeout: Duration::from_micros(micros),
                min_load_threshold: threshold,
                max_layers_per_assignment: most,
                max_concurrent_rebalances: at_once,
                ..LoadBalanceConfig::default()
            };
            assert_eq!(config, expected);
            assert_eq!(config.validate(), Ok(()));
        }
    }
    let config = LoadBalanceConfig::default();
    assert_eq!(config.lock_timeout, Duration::from_millis(1));
    assert_eq!(config.min_load_threshold.to_bits(), 1.25_f64.to_bits());
    assert_eq!((config.max_layers_per_assignment, config.max_concurrent_rebalances), (100, 1));
}

#[test]
fn settings_that_make_no_sense_are_refused_and_the_old_ones_stay() {
    let balancer = balancer(&[("a", 1)]);
    let before = balancer.config();
    for threshold in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.25, 0.0, 1.0] {
        let config = LoadBalanceConfig { min_load_threshold: threshold, ..before.clone() };
        let error = balancer.reconfigure(config.clone()).unwrap_err();
        assert_eq!(error.to_string(), format!("a load threshold of {threshold} is no number above 1"));
        assert!(LoadBalancer::new(Arc::clone(balancer.cluster()), config).is_err());
    }
    let config = LoadBalanceConfig { max_concurrent_rebalances: 0, ..before.clone() };
    let error = balancer.reconfigure(config).unwrap_err();
    assert_eq!(error, ConfigError::Zero { what: "max_concurrent_rebalances" });
    let config = LoadBalanceConfig { max_layers_per_assignment: 0, ..before.clone() };
    assert!(balancer.reconfigure(config).is_err());
    assert_eq!(balancer.config(), before);
}

#[test]
fn clones_share_one_configuration() {
    let balancer = balancer(&[("a", 1)]);
    let clone = balancer.clone();
    let hosts = LoadBalanceConfig { hosts: HostLayers::LastResort, ..balancer.config() };
    clone.reconfigure(hosts).unwrap();
    clone.reconfigure_from_system_profile(&profile(CpuFeatures::default(), 6, 1));
    let config = balancer.config();
    assert_eq!((config.max_layers_per_assignment, config.hosts), (12, HostLayers::LastResort));
    assert_eq!(config.lock_timeout, Duration::from_micros(500));
    let tuned = LoadBalancer::with_runtime_profile(
        Arc::clone(balancer.cluster()),
        &runtime(AccelerationMode::Avx512, 3),
    );
    assert_eq!(tuned.config().min_load_threshold.to_bits(), 1.05_f64.to_bits());
    assert_eq!(balancer.config(), config);
}

#[test]
fn an_idle_cluster_of_unlike_cards_is_not_skewed() {
    let balancer = balancer(&[("a", 24), ("b", 8)]);
    let report = balancer.skew();
    assert_eq!(report.ratio.to_bits(), 1.0_f64.to_bits());
    assert!(!report.skewed && !balancer.rebalance());
    // A quarter free here and all of it there is.
    free(&balancer, "a", 6);
    let report = balancer.skew();
    assert_eq!(report.ratio.to_bits(), 4.0_f64.to_bits());
    assert_eq!(report.fullest.unwrap().device.node, id("a"));
    assert!(balancer.rebalance());
}

#[test]
fn what_is_shed_goes_to_several_targets_and_fills_none() {
    let names = [("full0", 100), ("full1", 100), ("idle0", 100), ("idle1", 100)];
    let balancer = balancer(&names);
    free(&balancer, "full0", 0);
    free(&balancer, "full1", 0);
    free(&balancer, "idle0", 55);
    free(&balancer, "idle1", 55);
    // One at a time, as it is set.
    assert_eq!(balancer.shed_load().len(), 1);
    let more = LoadBalanceConfig { max_concurrent_rebalances: 8, ..balancer.config() };
    balancer.reconfigure(more).unwrap();
    let transfers = balancer.shed_load();
    let told: Vec<_> =
        transfers.iter().map(|t| (t.from.node.as_str(), t.to.node.as_str(), t.bytes.get())).collect();
    assert_eq!(told, [("full0", "idle0", 20), ("full1", "idle1", 20)]);
}

#[test]
fn layers_are_named_where_a_distribution_is_in_force() {
    let balancer = balancer(&[("a", 100), ("b", 99)]);
    let plan = balancer.distribute_layers(&layers(&[10; 12])).unwrap();
    assert_eq!(held(&plan), [("a", 0..10), ("b", 10..12)]);
    balancer.adopt(&plan).unwrap();
    assert_eq!(balancer.in_force(), Some(plan.basis()));
    free(&balancer, "a", 0);
    free(&balancer, "b", 79);
    let transfers = balancer.shed_load();
    assert_eq!(transfers.len(), 1);
    assert_eq!((transfers[0].bytes, transfers[0].layers.clone()), (Bytes::new(20), Some(8..10)));
    assert!(balancer.retire() && !balancer.retire());
    assert_eq!(balancer.shed_load()[0].layers, None);
}

#[test]
fn a_distribution_in_force_is_rebalanced_with_few_bytes_moved() {
    let balancer = balancer(&[("a", 100), ("b", 100)]);
    let options = RebalanceOptions { tolerance: 0.0, ..RebalanceOptions::default() };
    let balanced = PlanOptions { objective: Objective::Balanced, ..PlanOptions::default() };
    let better = || balancer.rebalance_plan(&EngineRules::none(), &balanced, &options).unwrap();
    assert!(better().is_none());
    balancer.adopt(&balancer.distribute_layers(&layers(&[10; 12])).unwrap()).unwrap();
    for (name, bytes) in [("a", 100), ("b", 20)] {
        let held = |m: &mut plimsoll_cluster::NodeMetrics| {
            m.record_held(&gpu0(), Bytes::new(bytes))?;
            m.record_used(&gpu0(), Bytes::new(bytes), Moment::START)
        };
        balancer.cluster().update_metrics(&id(name), held).unwrap().unwrap();
    }
    let target = better().unwrap().target;
    let lies: Vec<_> = target.stages.iter().map(|stage| stage.layers.clone()).collect();
    assert_eq!(lies, [0..6, 6..12]);
}

#[test]
fn a_distribution_of_an_earlier_cluster_is_not_taken() {
    let balancer = balancer(&[("a", 10), ("b", 10)]);
    let plan = balancer.distribute_layers(&layers(&[5; 4])).unwrap();
    balancer.cluster().deregister(&id("b")).unwrap();
    let stale = balancer.adopt(&plan).unwrap_err();
    assert_eq!((stale.basis, stale.current), (Generation::new(3), Generation::new(4)));
    assert_eq!(balancer.in_force(), None);
}

#[test]
fn the_deadline_ends_the_wait_with_the_real_reason() {
    let balancer = balancer(&[("a", 10)]);
    let at_once = ClusterState::deadline_in(Duration::ZERO);
    let error = balancer.distribute_with_deadline(&layers(&[11]), at_once).unwrap_err();
    let DistributeError::DeadlinePassed { tries: 1, reason: PlanError::DoesNotFit(refusal) } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(refusal.short_bytes, Bytes::new(1));
    assert_eq!(error.to_string(), "no distribution was found in time, in 1 attempt(s)");
    let error = balancer.distribute_with_deadlock_prevention(&layers(&[11])).unwrap_err();
    assert!(matches!(error, DistributeError::DeadlinePassed { reason: PlanError::DoesNotFit(_), .. }));
    // What fits is found even when no time is left.
    assert!(balancer.distribute_with_deadline(&layers(&[10]), at_once).is_ok());
    // Layers at fault are not waited for.
    let never = ClusterState::deadline_in(Duration::MAX);
    let mut twice = layers(&[1, 1]);
    twice[1].index = 0;
    let error = balancer.distribute_with_deadline(&twice, never).unwrap_err();
    assert_eq!(error, DistributeError::Input(PlanError::DuplicateLayer { index: 0 }));
}

#[test]
fn a_cluster_that_grows_in_time_takes_what_did_not_fit() {
    let balancer = balancer(&[("a", 10)]);
    let waiting = {
        let balancer = balancer.clone();
        let rows = layers(&[10, 10]);
        std::thread::spawn(move || {
            balancer.distribute_with_deadline(&rows, ClusterState::deadline_in(Duration::MAX))
        })
    };
    // News that do not help come first.
    balancer.cluster().register(NodeResources::new(id("b"), Bytes::new(5), Bytes::ZERO)).unwrap();
    balancer.cluster().register(NodeResources::new(id("c"), Bytes::new(10), Bytes::ZERO)).unwrap();
    let plan = waiting.join().unwrap().unwrap();
    assert_eq!(held(&plan), [("a", 0..1), ("c", 1..2)]);
}

#[test]
fn a_summary_names_sizes_layers_and_nodes() {
    let gb = 1_000_000_000;
    let balancer = balancer(&[("tower", 24 * gb), ("desk", 8 * gb), ("attic", gb)]);
    let plan = balancer.distribute_layers(&layers(&[gb; 33])).unwrap();
    expect![[r#"
        attic: 1.0 GB, layers 32
        desk: 8.0 GB, layers 24-31
        tower: 24.0 GB, layers 0-23
        Total layers: 33
        Nodes: attic, desk, tower
    "#]]
    .assert_eq(&plan.summary());
}

#[test]
fn stats_take_the_first_ratio_whole_whatever_was_counted_before() {
    let mut stats = LoadStats::default();
    expect![[r#"
        Total layers distributed: 0
        Total VRAM used: 0.0 GB
        Avg load balance ratio: none yet
        Rebalancing operations: 0
    "#]]
    .assert_eq(&stats.report());
    stats.record_distribution(16, Bytes::new(16_000_000_000));
    stats.record_distribution(8, Bytes::new(8_000_000_000));
    stats.update_balance_ratio(0.95).unwrap();
    expect![[r#"
        Total layers distributed: 24
        Total VRAM used: 24.0 GB
        Avg load balance ratio: 0.95
        Rebalancing operations: 0
    "#]]
    .assert_eq(&stats.report());
    stats.update_balance_ratio(0.85).unwrap();
    stats.record_rebalancing();
    assert!((stats.balance_ratio().unwrap() - 0.94).abs() < 1e-12);
    for bad in [f64::NAN, f64::INFINITY, -0.5] {
        assert!(stats.update_balance_ratio(bad).is_err());
    }
    assert!((stats.balance_ratio().unwrap() - 0.94).abs() < 1e-12);
    stats.record_distribution(u64::MAX, Bytes::MAX);
    assert_eq!((stats.layers_distributed, stats.bytes_distributed), (u64::MAX, Bytes::MAX));
}
