//! A living cluster: who is there, what is known of them, and what snapshots show.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use plimsoll_cluster::{
    ClusterEvent, ClusterState, DeviceSpec, GpuBackend, Limits, LimitsError, Link, Moment, NodeResources,
    NodeStatus, PoolSpec, RegisterError, SampleError, SnapshotError, StateError,
};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, Generation, NodeId, PoolId};

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn gpu0() -> PoolId {
    PoolId::new("gpu0").unwrap()
}

fn card(name: &str, gib: u32) -> NodeResources {
    NodeResources::new(id(name), Bytes::gib(gib), Bytes::ZERO)
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn free(cluster: &ClusterState, node: &str) -> Option<Bytes> {
    cluster.snapshot().node(&id(node)).unwrap().pools[0].free
}

fn record_free(cluster: &ClusterState, node: &str, free: Bytes, now: Moment) -> Result<(), SampleError> {
    cluster.update_metrics(&id(node), |m| m.record_free(&gpu0(), free, now)).unwrap()
}

#[test]
fn a_new_cluster_is_empty_and_at_the_first_generation() {
    let cluster = ClusterState::new();
    assert_eq!(cluster.generation(), Generation::FIRST);
    assert_eq!(cluster.snapshot().nodes, []);
    assert_eq!(cluster.active_nodes(), []);
    assert!(cluster.snapshot().validate().is_ok());
}

#[test]
fn machines_are_listed_by_name_whatever_order_they_came_in() {
    let cluster = ClusterState::new();
    for name in ["c", "a", "b"] {
        let event = cluster.register(card(name, 24)).unwrap();
        assert_eq!(event, ClusterEvent::Joined { node: id(name) });
    }
    assert_eq!(cluster.active_nodes(), [id("a"), id("b"), id("c")]);
    let snapshot = cluster.snapshot();
    assert!(snapshot.validate().is_ok());
    assert_eq!(snapshot.generation, Generation::new(4));
    assert_eq!(free(&cluster, "a"), Some(Bytes::gib(24)));
}

#[test]
fn a_snapshot_is_built_once_and_stays_as_it_was() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    let first = cluster.snapshot();
    assert!(Arc::ptr_eq(&first, &cluster.snapshot()));
    cluster.register(card("b", 24)).unwrap();
    let second = cluster.snapshot();
    assert!(second.generation > first.generation);
    assert_eq!((first.nodes.len(), second.nodes.len()), (1, 2));
    assert_eq!(cluster.ensure_current(second.generation), Ok(()));
    let stale = cluster.ensure_current(first.generation).unwrap_err();
    assert_eq!(stale.to_string(), "computed from generation 2 of the cluster, which is now at generation 3");
}

#[test]
fn another_machine_under_a_living_name_is_refused_with_both_addresses() {
    let cluster = ClusterState::new();
    let one = card("a", 24).with_boot_id("boot-1").with_address("10.0.0.1:7000");
    let other = card("a", 80).with_boot_id("boot-2").with_address("10.0.0.2:7000");
    cluster.register(one).unwrap();
    let before = cluster.snapshot();
    let refused = cluster.register(other.clone()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the name 'a' is held by a living machine at 10.0.0.1:7000 (boot boot-1), and the one at 10.0.0.2:7000 (boot boot-2) is another"
    );
    assert!(Arc::ptr_eq(&before, &cluster.snapshot()));

    // One that tells nothing of itself is not the one that told.
    assert!(matches!(cluster.register(card("a", 24)), Err(RegisterError::NameTaken { .. })));

    // Once the first has failed, its name is free.
    cluster.heartbeat(&id("a"), at(0)).unwrap();
    cluster.sweep(at(60_000));
    assert_eq!(cluster.register(other).unwrap(), ClusterEvent::TookOver { node: id("a") });
    assert_eq!(cluster.snapshot().nodes[0].pools[0].total, Bytes::gib(80));
    assert_eq!(cluster.active_nodes(), [id("a")]);
}

#[test]
fn the_same_machine_replaces_itself() {
    let cluster = ClusterState::new();
    let machine = |boot: &str| card("a", 24).with_boot_id(boot).with_address("10.0.0.1:7000");
    cluster.register(machine("boot-1")).unwrap();
    record_free(&cluster, "a", Bytes::gib(3), at(1)).unwrap();
    cluster.drain(&id("a")).unwrap();

    // Its service was started anew: what was measured of the card still holds.
    let event = cluster.register(machine("boot-1")).unwrap();
    assert_eq!(event, ClusterEvent::CameBack { node: id("a"), rebooted: false });
    assert_eq!(free(&cluster, "a"), Some(Bytes::gib(3)));
    assert!(cluster.snapshot().nodes[0].drained);

    // The whole machine was: nothing that was measured does.
    let event = cluster.register(machine("boot-2")).unwrap();
    assert_eq!(event, ClusterEvent::CameBack { node: id("a"), rebooted: true });
    assert_eq!(free(&cluster, "a"), Some(Bytes::gib(24)));
    assert_eq!(cluster.snapshot().nodes.len(), 1);

    // A card was changed: what was measured of the old one says nothing.
    record_free(&cluster, "a", Bytes::gib(3), at(2)).unwrap();
    let larger = card("a", 32).with_boot_id("boot-2").with_address("10.0.0.1:7000");
    cluster.register(larger).unwrap();
    assert_eq!(free(&cluster, "a"), Some(Bytes::gib(32)));
}

#[test]
fn a_machine_that_restarts_under_a_new_name_is_not_listed_twice() {
    let cluster = ClusterState::new();
    let machine = |name: &str| card(name, 24).with_boot_id("boot").with_address("10.0.0.1:7000");
    cluster.register(machine("first")).unwrap();
    cluster.register(card("other", 24)).unwrap();
    let link = Link { between: [id("first"), id("other")], bandwidth: None, latency: None };
    cluster.connect(link).unwrap();
    let event = cluster.register(machine("second")).unwrap();
    assert_eq!(event, ClusterEvent::Renamed { from: id("first"), to: id("second") });
    assert_eq!(cluster.active_nodes(), [id("other"), id("second")]);
    assert!(cluster.snapshot().validate().is_ok());
    // Two services on one kernel, each with an address of its own, are two nodes.
    let beside = card("third", 24).with_boot_id("boot").with_address("10.0.0.1:7001");
    assert_eq!(cluster.register(beside).unwrap(), ClusterEvent::Joined { node: id("third") });
}

#[test]
fn only_nodes_heard_of_lately_are_planned_on_and_one_that_returns_replaces_itself() {
    // Five names are listed and four machines alive; each restart keeps its name.
    let limits = Limits {
        degraded_after: Duration::from_secs(2),
        failed_after: Duration::from_secs(4),
        free_outdated_after: None,
    };
    let cluster = ClusterState::with_limits(limits).unwrap();
    let names = ["n0", "n1", "n2", "n3", "n4"];
    let machine =
        |name: &str, boot: &str| card(name, 24).with_boot_id(boot).with_address(format!("{name}:7000"));
    for name in names {
        cluster.register(machine(name, "boot-1")).unwrap();
        cluster.heartbeat(&id(name), at(0)).unwrap();
    }
    let planned_on = cluster.snapshot();
    for name in &names[..4] {
        cluster.heartbeat(&id(name), at(3_000)).unwrap();
    }
    let events = cluster.sweep(at(3_000));
    let status = |node, from, to| ClusterEvent::Status { node: id(node), from, to };
    assert_eq!(events, [status("n4", NodeStatus::Active, NodeStatus::Degraded)]);
    let events = cluster.sweep(at(4_000));
    assert_eq!(events, [status("n4", NodeStatus::Degraded, NodeStatus::Failed)]);
    assert_eq!(cluster.active_nodes().len(), 4);

    // What was planned while all five lived is refused now.
    assert!(cluster.ensure_current(planned_on.generation).is_err());

    cluster.register(machine("n4", "boot-2")).unwrap();
    assert_eq!(cluster.snapshot().nodes.len(), 5);
    assert_eq!(cluster.active_nodes().len(), 5);

    // A beat of the failed brings it back as well; an old one does not.
    for name in &names[..4] {
        cluster.heartbeat(&id(name), at(20_000)).unwrap();
    }
    cluster.sweep(at(20_000));
    cluster.sweep(at(24_500));
    assert_eq!(cluster.active_nodes(), []);
    assert_eq!(cluster.heartbeat(&id("n1"), at(19_000)).unwrap(), None);
    let event = cluster.heartbeat(&id("n1"), at(25_000)).unwrap();
    assert_eq!(event, Some(status("n1", NodeStatus::Failed, NodeStatus::Active)));
    assert_eq!(cluster.active_nodes(), [id("n1")]);
}

#[test]
fn silence_counts_from_the_first_sweep_that_meets_a_node() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    assert_eq!(cluster.sweep(at(1_000_000)), []);
    assert_eq!(cluster.sweep(at(1_004_999)), []);
    assert_eq!(cluster.sweep(at(1_005_000)).len(), 1);
}

#[test]
fn impossible_samples_are_refused_and_the_old_ones_stay_with_their_age() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    record_free(&cluster, "a", Bytes::gib(10), at(100)).unwrap();
    let before = cluster.metrics(&id("a")).unwrap();
    let generation = cluster.generation();
    for (error, text) in [
        (
            record_free(&cluster, "a", Bytes::gib(25), at(200)),
            "25 GiB free in pool 'gpu0', which has 24 GiB in all",
        ),
        (
            record_free(&cluster, "a", Bytes::gib(5), at(50)),
            "a sample of pool 'gpu0' from 0.050 s, after one from 0.100 s",
        ),
    ] {
        assert_eq!(error.unwrap_err().to_string(), text);
    }
    cluster
        .update_metrics(&id("a"), |m| {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
                assert!(m.record_latency(bad).is_err());
                assert!(m.record_throughput(bad).is_err());
                assert!(m.record_delivery_ratio(bad).is_err());
            }
            assert_eq!(
                m.record_delivery_ratio(1.5).unwrap_err().to_string(),
                "a delivery ratio of 1.5 is more than everything (1)"
            );
            assert!(m.record_used(&gpu0(), Bytes::gib(25), at(300)).is_err());
            assert!(m.record_held(&gpu0(), Bytes::gib(25)).is_err());
            let nowhere = PoolId::new("CUDA7").unwrap();
            assert_eq!(
                m.record_free(&nowhere, Bytes::ZERO, at(300)).unwrap_err().to_string(),
                "node 'a' has no pool 'CUDA7'"
            );
        })
        .unwrap();
    assert_eq!(*before, *cluster.metrics(&id("a")).unwrap());
    assert_eq!(before.pools()[0].age(at(300)), Some(Duration::from_millis(200)));
    assert_eq!(cluster.generation(), generation);
}

#[test]
fn a_reading_that_failed_or_is_old_is_neither_nothing_nor_everything() {
    let cluster = ClusterState::new();
    for name in ["a", "b", "c"] {
        cluster.register(card(name, 80)).unwrap();
    }
    // The driver failed on one, the other's last sample is old, and nobody ever measured the third.
    record_free(&cluster, "a", Bytes::gib(80), at(0)).unwrap();
    record_free(&cluster, "b", Bytes::gib(79), at(0)).unwrap();
    cluster.update_metrics(&id("b"), |m| m.record_held(&gpu0(), Bytes::gib(1))).unwrap().unwrap();
    cluster.update_metrics(&id("a"), |m| m.record_unreadable(&gpu0())).unwrap().unwrap();
    assert_eq!((free(&cluster, "a"), free(&cluster, "b")), (None, Some(Bytes::gib(79))));
    for beat in 0..13 {
        for name in ["a", "b", "c"] {
            cluster.heartbeat(&id(name), at(beat * 5_000)).unwrap();
        }
    }
    let events = cluster.sweep(at(60_000));
    let outdated = ClusterEvent::FreeOutdated { node: id("b"), pool: gpu0(), age: Duration::from_secs(60) };
    assert_eq!(events, [outdated]);
    assert_eq!((free(&cluster, "b"), free(&cluster, "c")), (None, Some(Bytes::gib(80))));
    // What is held there stays, and a good sample brings the rest back.
    assert_eq!(cluster.snapshot().nodes[1].pools[0].held, Bytes::gib(1));
    record_free(&cluster, "b", Bytes::gib(70), at(60_001)).unwrap();
    assert_eq!(free(&cluster, "b"), Some(Bytes::gib(70)));
}

#[test]
fn the_first_sample_counts_whole_and_a_tenth_of_every_later_one() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    let metrics = |f: &dyn Fn(&mut plimsoll_cluster::NodeMetrics)| {
        cluster.update_metrics(&id("a"), |m| f(m)).unwrap();
        cluster.metrics(&id("a")).unwrap()
    };
    let m = metrics(&|m| m.record_latency(0.100).unwrap());
    assert_eq!((m.latency().average(), m.latency().last()), (Some(0.100), Some(0.100)));
    let m = metrics(&|m| m.record_latency(0.200).unwrap());
    assert!((m.latency().average().unwrap() - 0.110).abs() < 1e-12);
    assert_eq!((m.latency().min(), m.latency().max()), (Some(0.100), Some(0.200)));
    let m = metrics(&|m| {
        for n in 0..40_u8 {
            m.record_throughput(f64::from(n)).unwrap();
            m.record_delivery_ratio(1.0).unwrap();
        }
        m.set_streaming_layers([3, 1, 3]);
    });
    let history: Vec<f64> = m.throughput().history().collect();
    assert_eq!((history.len(), history[0], history[31]), (32, 8.0, 39.0));
    assert_eq!(m.throughput().min(), Some(0.0));
    assert_eq!(m.delivery_ratio().average(), Some(1.0));
    assert_eq!(m.streaming_layers().iter().copied().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn signals_do_not_move_the_generation_and_free_memory_does() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    let before = cluster.generation();
    cluster.update_metrics(&id("a"), |m| m.record_latency(1.0)).unwrap().unwrap();
    cluster.heartbeat(&id("a"), at(1)).unwrap();
    record_free(&cluster, "a", Bytes::gib(24), at(1)).unwrap();
    assert_eq!(cluster.generation(), before);
    record_free(&cluster, "a", Bytes::gib(23), at(2)).unwrap();
    assert_eq!(cluster.generation(), before.next());
    let view = cluster.view();
    assert_eq!(view.members[0].metrics.latency().last(), Some(1.0));
    assert_eq!(view.members[0].metrics.last_heartbeat(), Some(at(1)));
}

#[test]
fn memory_is_told_for_each_device_and_summed_over_pools() {
    let ram = PoolId::new("ram").unwrap();
    let device = DeviceSpec {
        limit: Some(Bytes::gib(48)),
        ..DeviceSpec::new(DeviceId::new("gpu0").unwrap(), ram.clone(), GpuBackend::Metal)
    };
    let mac = NodeResources::new(id("mac"), Bytes::ZERO, Bytes::gib(64)).with_devices([], [device]);
    let cluster = ClusterState::new();
    cluster.register(mac).unwrap();
    cluster.update_metrics(&id("mac"), |m| m.record_used(&ram, Bytes::gib(10), at(1))).unwrap().unwrap();
    let m = cluster.metrics(&id("mac")).unwrap();
    // Two devices on one memory: it counts once.
    assert_eq!((m.total(), m.used(), m.available()), (Bytes::gib(64), Bytes::gib(10), Bytes::gib(54)));
    let gpu = m.device(&DeviceId::new("gpu0").unwrap()).unwrap();
    assert_eq!((gpu.total, gpu.available), (Bytes::gib(48), Bytes::gib(48)));
    assert_eq!(m.pools()[0].used(), Some(Bytes::gib(10)));
    assert_eq!(m.device(&DeviceId::new("CUDA0").unwrap()), None);
}

#[test]
fn memory_beyond_32_bits_is_advertised_as_it_is() {
    // Counted in 32 bits these would be 1808, 3616 and 1328 MiB.
    let cluster = ClusterState::new();
    for (name, mib) in [("a", 10_000_u32), ("b", 20_000), ("c", 30_000)] {
        cluster.register(NodeResources::new(id(name), Bytes::mib(mib), Bytes::ZERO)).unwrap();
        let metrics = cluster.metrics(&id(name)).unwrap();
        assert_eq!(metrics.total().get(), u64::from(mib) * 1024 * 1024);
        assert_eq!(free(&cluster, name), Some(Bytes::mib(mib)));
    }
}

#[test]
fn drained_nodes_are_not_active() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    assert_eq!(cluster.drain(&id("a")).unwrap(), Some(ClusterEvent::Drained { node: id("a") }));
    assert_eq!(cluster.drain(&id("a")).unwrap(), None);
    assert_eq!(cluster.active_nodes(), []);
    assert_eq!(cluster.undrain(&id("a")).unwrap(), Some(ClusterEvent::Undrained { node: id("a") }));
    assert_eq!(cluster.active_nodes(), [id("a")]);
}

#[test]
fn calls_on_nodes_that_are_not_there_say_so() {
    let cluster = ClusterState::new();
    let nobody = id("nobody");
    let error = cluster.update_metrics(&nobody, |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the cluster has no node 'nobody'");
    assert!(cluster.heartbeat(&nobody, at(0)).is_err());
    assert!(cluster.drain(&nobody).is_err());
    assert!(cluster.undrain(&nobody).is_err());
    assert!(cluster.deregister(&nobody).is_err());
    assert!(cluster.metrics(&nobody).is_none());
    assert_eq!(cluster.generation(), Generation::FIRST);
}

#[test]
fn links_join_two_nodes_that_are_there_and_leave_with_them() {
    let cluster = ClusterState::new();
    for name in ["a", "b"] {
        cluster.register(card(name, 24)).unwrap();
    }
    let link = |a: &str, b: &str, rate: u64| Link {
        between: [id(a), id(b)],
        bandwidth: Some(BytesPerSec::new(rate)),
        latency: None,
    };
    cluster.connect(link("b", "a", 1_000)).unwrap();
    cluster.connect(link("a", "b", 2_000)).unwrap();
    let snapshot = cluster.snapshot();
    assert_eq!(snapshot.links.len(), 1);
    assert_eq!(snapshot.link(&id("b"), &id("a")).unwrap().bandwidth, Some(BytesPerSec::new(2_000)));
    assert!(snapshot.validate().is_ok());
    assert_eq!(cluster.connect(link("a", "c", 1)), Err(StateError::UnknownNode { node: id("c") }));
    assert_eq!(cluster.connect(link("a", "a", 1)), Err(StateError::LinkToItself { node: id("a") }));
    assert!(matches!(cluster.connect(link("a", "b", 0)), Err(StateError::LinkStandsStill { .. })));
    // A machine that registers again keeps its links, and takes them along when it leaves.
    cluster.register(card("a", 24)).unwrap();
    assert_eq!(cluster.snapshot().links.len(), 1);
    cluster.deregister(&id("a")).unwrap();
    assert_eq!(cluster.snapshot().links, []);
    assert!(!cluster.disconnect(&id("a"), &id("b")));
}

#[test]
fn resources_that_do_not_hold_together_are_refused() {
    let cluster = ClusterState::new();
    let device = DeviceSpec::new(DeviceId::new("CUDA0").unwrap(), gpu0(), GpuBackend::Cuda);
    let without_pool = card("a", 24).with_devices([], [device.clone()]);
    let error = cluster.register(without_pool).unwrap_err();
    let RegisterError::Unsound { source: SnapshotError::NoSuchPool { pool, .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*pool, gpu0());
    let too_free = PoolSpec { free: Some(Bytes::gib(25)), ..PoolSpec::new(gpu0(), Bytes::gib(24)) };
    let error = cluster.register(card("a", 0).with_devices([too_free], [device])).unwrap_err();
    assert!(matches!(error, RegisterError::Unsound { source: SnapshotError::FreeAboveTotal { .. }, .. }));

    // However many there are.
    for count in [2, 20] {
        let pool = |n: u32| PoolSpec::new(PoolId::new(format!("p{n}")).unwrap(), Bytes::gib(1));
        let device = |n: u32| {
            let id = DeviceId::new(format!("d{n}")).unwrap();
            DeviceSpec::new(id, pool(n).id, GpuBackend::Cuda)
        };
        let node = |pools: Vec<PoolSpec>, devices: Vec<DeviceSpec>| {
            let many = ClusterState::new();
            many.register(card("a", 0).with_devices(pools, devices)).map_err(|error| match error {
                RegisterError::Unsound { source, .. } => source,
                error => panic!("{error:?}"),
            })
        };
        let (pools, devices): (Vec<_>, Vec<_>) = (0..count).map(|n| (pool(n), device(n))).unzip();
        assert!(node(pools.clone(), devices.clone()).is_ok());
        let twice = [pools.clone(), vec![pool(count - 1)]].concat();
        assert!(matches!(node(twice, devices.clone()), Err(SnapshotError::PoolTwice { .. })));
        let twice = [devices.clone(), vec![device(count - 1)]].concat();
        assert!(matches!(node(pools.clone(), twice), Err(SnapshotError::DeviceTwice { .. })));
        let nowhere = [devices, vec![device(count)]].concat();
        assert!(matches!(node(pools, nowhere), Err(SnapshotError::NoSuchPool { .. })));
    }

    cluster.register(card("a", 24).as_main()).unwrap();
    let error = cluster.register(card("b", 24).as_main()).unwrap_err();
    assert_eq!(error.to_string(), "'b' is to run the engine, and so is 'a'; one node does");
    cluster.deregister(&id("a")).unwrap();
    cluster.register(card("b", 24).as_main()).unwrap();
    assert_eq!(cluster.snapshot().main_node().unwrap().id, id("b"));
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let limits = |degraded: u64, failed: u64| Limits {
        degraded_after: Duration::from_secs(degraded),
        failed_after: Duration::from_secs(failed),
        ..Limits::default()
    };
    assert!(matches!(ClusterState::with_limits(limits(5, 4)), Err(LimitsError::FailedBeforeDegraded { .. })));
    let cluster = ClusterState::new();
    assert_eq!(cluster.set_limits(limits(0, 4)), Err(LimitsError::Zero { what: "degraded_after" }));
    assert_eq!(cluster.limits(), Limits::default());
    cluster.set_limits(limits(5, 5)).unwrap();
    assert_eq!(cluster.limits().failed_after, Duration::from_secs(5));
}

#[test]
fn events_are_remembered_and_read_from_any_number_on() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    let (events, seen) = cluster.events_after(0);
    assert_eq!((events.len(), seen), (1, 1));
    assert_eq!(events[0].to_string(), "node 'a' joined");
    cluster.drain(&id("a")).unwrap();
    let (events, seen) = cluster.events_after(seen);
    assert_eq!(events, [ClusterEvent::Drained { node: id("a") }]);
    for _ in 0..700 {
        cluster.undrain(&id("a")).unwrap();
        cluster.drain(&id("a")).unwrap();
    }
    let (events, all) = cluster.events_after(seen);
    assert_eq!((events.len(), all), (1024, 1402));
    assert_eq!(cluster.events_after(all), (Vec::new(), 1402));
    assert_eq!(cluster.events_after(u64::MAX), (Vec::new(), 1402));
}

#[test]
fn a_state_may_start_from_a_snapshot_and_goes_on_from_its_generation() {
    let cluster = ClusterState::new();
    for name in ["a", "b"] {
        cluster.register(card(name, 24)).unwrap();
    }
    cluster.drain(&id("b")).unwrap();
    cluster.connect(Link { between: [id("a"), id("b")], bandwidth: None, latency: None }).unwrap();
    let snapshot = cluster.snapshot();
    let copy = ClusterState::from_snapshot(&snapshot).unwrap();
    assert_eq!(*copy.snapshot(), *snapshot);
    copy.undrain(&id("b")).unwrap();
    assert_eq!(copy.snapshot().generation, snapshot.generation.next());
    let mut unsound = plimsoll_cluster::ClusterSnapshot::clone(&snapshot);
    unsound.nodes.reverse();
    assert!(ClusterState::from_snapshot(&unsound).is_err());
}

#[test]
fn whoever_waits_for_news_gets_them_or_nothing_at_the_deadline() {
    let cluster = Arc::new(ClusterState::new());
    let first = cluster.generation();
    // A deadline that has passed ends the wait at once.
    assert!(cluster.wait_newer(first, ClusterState::deadline_in(Duration::ZERO)).is_none());
    let waits = {
        let cluster = Arc::clone(&cluster);
        std::thread::spawn(move || cluster.wait_newer(first, ClusterState::deadline_in(Duration::MAX)))
    };
    cluster.register(card("a", 24)).unwrap();
    let news = waits.join().unwrap().unwrap();
    assert!(news.generation > first);
    assert_eq!(news.nodes.len(), 1);
    // What is newer already needs no wait.
    assert!(cluster.wait_newer(first, ClusterState::deadline_in(Duration::ZERO)).is_some());
}

#[test]
fn a_panic_in_an_update_leaves_the_state_usable_and_sound() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cluster.update_metrics(&id("a"), |m| {
            m.record_free(&gpu0(), Bytes::gib(1), at(1)).unwrap();
            panic!("in the middle");
        })
    }));
    assert!(broken.is_err());
    record_free(&cluster, "a", Bytes::gib(2), at(2)).unwrap();
    assert_eq!(free(&cluster, "a"), Some(Bytes::gib(2)));
    assert!(cluster.snapshot().validate().is_ok());
}

#[test]
fn a_machine_that_is_known_to_be_gone_has_failed_until_it_is_heard_of() {
    let cluster = ClusterState::new();
    cluster.register(card("a", 24)).unwrap();
    cluster.heartbeat(&id("a"), at(10)).unwrap();
    let failed = ClusterEvent::Status { node: id("a"), from: NodeStatus::Active, to: NodeStatus::Failed };
    assert_eq!(cluster.fail(&id("a")), Ok(Some(failed)));
    assert_eq!(cluster.fail(&id("a")), Ok(None));
    // Its short silence does not make it alive.
    assert_eq!(cluster.sweep(at(11)), []);
    assert_eq!(cluster.snapshot().nodes[0].status, NodeStatus::Failed);
    cluster.heartbeat(&id("a"), at(12)).unwrap();
    assert_eq!(cluster.snapshot().nodes[0].status, NodeStatus::Active);
    assert!(matches!(cluster.fail(&id("b")), Err(StateError::UnknownNode { .. })));
}
