//! Plans for known situations.

mod kit;

use std::collections::BTreeSet;

use kit::{device, device_ref, devices, footprint, layers, node, node_id, pool, snapshot};
use plimsoll_balance::{
    Assumption, Certificate, Charges, EngineRules, HostUse, LayerSpec, Objective, Optimality, Placement,
    Plan, PlanError, PlanOptions, StageCharges, StoppedBy, Strategy, Verdict, Workload, audit, plan, price,
};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, MainNodeError, NodeStatus, Pool, SnapshotError};
use plimsoll_units::{Bytes, BytesPerSec};

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

fn with(objective: Objective) -> PlanOptions {
    PlanOptions { objective, ..PlanOptions::default() }
}

/// A plan that the auditor has nothing against.
fn planned(
    snapshot: &ClusterSnapshot,
    workload: &Workload,
    rules: &EngineRules,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    let plan = plan(snapshot, workload, rules, options)?;
    assert_eq!(audit(&plan, snapshot, workload, rules, options), Ok(()), "{plan:#?}");
    Ok(plan)
}

/// The same under no engine's rules.
fn free(snapshot: &ClusterSnapshot, workload: &Workload, objective: Objective) -> Result<Plan, PlanError> {
    planned(snapshot, workload, &EngineRules::none(), &with(objective))
}

/// How many layers lie on each device, by its name.
fn counts(plan: &Plan) -> Vec<(String, u32)> {
    plan.stages.iter().map(|s| (s.device.to_string(), s.layers.end - s.layers.start)).collect()
}

fn on(plan: &Plan, device: &str) -> u32 {
    counts(plan).into_iter().find(|c| c.0 == device).map_or(0, |c| c.1)
}

fn refused(result: Result<Plan, PlanError>) -> plimsoll_balance::Refusal {
    match result {
        Err(PlanError::DoesNotFit(refusal)) => *refusal,
        other => panic!("{other:#?}"),
    }
}

/// What llama.cpp does, with round charges.
fn engine(charges: Charges) -> EngineRules {
    EngineRules { host: HostUse::FirstLayersOfMain, max_devices: Some(15), margin: Bytes::ZERO, charges }
}

/// A tower with a host and GPUs.
fn tower(host: u64, gpus: &[u64]) -> ClusterSnapshot {
    let mut pools = vec![pool("ram", host)];
    let mut all = vec![device(Device::HOST, Pool::RAM, GpuBackend::Cpu, Some(80))];
    for (number, &bytes) in gpus.iter().enumerate() {
        pools.push(pool(&format!("vram{number}"), bytes));
        all.push(device(&format!("CUDA{number}"), &format!("vram{number}"), GpuBackend::Cuda, Some(1000)));
    }
    snapshot(vec![node("tower", pools, all)])
}

#[test]
fn layers_of_different_size_are_cut_by_their_bytes_and_not_by_their_count() {
    let snapshot = devices(&[32, 40]);
    let workload = layers(&[14, 14, 14, 14, 3, 3, 3, 3]);
    for objective in OBJECTIVES {
        let plan = free(&snapshot, &workload, objective).unwrap();
        let ranges: Vec<_> = plan.stages.iter().map(|s| (s.device.to_string(), s.layers.clone())).collect();
        assert_eq!(ranges, [("n00/d0".to_owned(), 0..2), ("n01/d0".to_owned(), 2..8)], "{objective:?}");
    }
}

#[test]
fn a_small_device_never_gets_the_layer_that_is_left_over() {
    let snapshot = devices(&[11_500, 11_500, 24_000, 2_100]);
    let workload = layers(&[703; 60]);
    for objective in OBJECTIVES {
        let plan = free(&snapshot, &workload, objective).unwrap();
        assert!(on(&plan, "n03/d0") <= 2, "{objective:?}: {:?}", counts(&plan));
    }
}

#[test]
fn an_exact_fit_is_a_fit_and_one_device_less_is_proven_infeasible() {
    let workload = layers(&[50; 20]);
    let plan = free(&devices(&[900, 50, 50]), &workload, Objective::Fit).unwrap();
    let mut sizes: Vec<u32> = counts(&plan).into_iter().map(|c| c.1).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 18]);
    assert!(plan.stages.iter().all(|s| s.slack_bytes.is_zero()));
    let refusal = refused(free(&devices(&[900, 50, 10]), &workload, Objective::Fit));
    let total = Certificate::Total { needs: 1_000, budgets: 960 };
    assert_eq!(refusal.verdict, Verdict::ProvenInfeasible(total));
    assert_eq!(
        refusal.short_bytes,
        Bytes::new(50),
        "a small device of 50 would do, or 50 more on the larger ones"
    );
}

#[test]
fn balanced_shares_follow_the_budgets() {
    let plan = free(&devices(&[312, 518, 1024]), &layers(&[50; 12]), Objective::Balanced).unwrap();
    assert_eq!(
        [on(&plan, "n00/d0"), on(&plan, "n01/d0"), on(&plan, "n02/d0")],
        [2, 3, 7],
        "{:?}",
        counts(&plan)
    );
}

#[test]
fn equal_devices_get_equal_counts_give_or_take_one() {
    for (count, devices_count, larger) in [(10, 3, 1), (61, 8, 5), (94, 8, 6)] {
        let plan = free(&devices(&vec![1_000; devices_count]), &layers(&vec![1; count]), Objective::Balanced)
            .unwrap();
        let sizes: Vec<u32> = counts(&plan).into_iter().map(|c| c.1).collect();
        let least = u32::try_from(count / devices_count).unwrap();
        assert_eq!(sizes.iter().filter(|&&s| s == least + 1).count(), larger, "{sizes:?}");
        assert!(sizes.iter().all(|&s| s == least || s == least + 1), "{sizes:?}");
        assert_eq!(plan.value.optimality, Optimality::Proven);
    }
}

#[test]
fn counts_on_equal_devices_never_differ_by_more_than_one() {
    let clusters: Vec<ClusterSnapshot> = (1..=16).map(|n| devices(&vec![1_000; n])).collect();
    let all = vec![1; 200];
    for count in 1..=200 {
        let workload = layers(&all[..count]);
        for snapshot in &clusters {
            let plan = plan(snapshot, &workload, &EngineRules::none(), &with(Objective::Balanced)).unwrap();
            let sizes = || plan.stages.iter().map(|s| s.layers.end - s.layers.start);
            let used = snapshot.nodes.len().min(count);
            assert_eq!(plan.stages.len(), used);
            assert_eq!(sizes().sum::<u32>(), u32::try_from(count).unwrap());
            assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1, "{count} on {used}: {plan:?}");
            let joined = plan.stages.windows(2).all(|pair| pair[0].layers.end == pair[1].layers.start);
            assert!(joined && plan.stages[0].layers.start == 0, "{plan:?}");
        }
    }
}

#[test]
fn planning_ends_on_devices_that_are_almost_or_wholly_full() {
    let gib = 1 << 30;
    let mib = 1 << 20;
    let charges = Charges {
        host: Bytes::mib(300),
        host_alone: Bytes::mib(400),
        alone: Bytes::mib(700),
        split: StageCharges { each: Bytes::mib(600), first_more: Bytes::mib(50), last_more: Bytes::mib(90) },
        partial: StageCharges {
            each: Bytes::mib(650),
            first_more: Bytes::mib(50),
            last_more: Bytes::mib(90),
        },
    };
    for last in [16 * gib, mib] {
        let cluster = tower(64 * gib, &[24 * gib, 24 * gib, 24 * gib, 24 * gib, last]);
        for objective in OBJECTIVES {
            let workload = layers(&[1_200 * mib; 92]);
            let plan = planned(&cluster, &workload, &engine(charges), &with(objective)).unwrap();
            assert_eq!(plan.stages.iter().map(|s| s.layers.end - s.layers.start).sum::<u32>(), 92);
        }
    }
}

#[test]
fn the_slow_big_device_does_not_set_the_pace() {
    let gb = 1_000_000_000;
    let mut cluster = devices(&[36 * gb, 96 * gb, 64 * gb, 96 * gb, 36 * gb]);
    for (node, tenths) in cluster.nodes.iter_mut().zip([2644_u64, 3440, 3087, 3512, 1776]) {
        node.devices[0].bandwidth = Some(BytesPerSec::new(tenths * gb / 10));
    }
    let workload = layers(&[gb; 40]);
    let fast = free(&cluster, &workload, Objective::Throughput).unwrap();
    let value = fast.value.value.unwrap();
    assert!((value * 1e3 - 29.07).abs() < 0.01, "{value}");
    assert_eq!(fast.value.optimality, Optimality::Proven);
    let single = free(&cluster, &workload, Objective::Latency).unwrap();
    assert_eq!(counts(&single), [("n03/d0".to_owned(), 40)]);
    assert!((single.value.value.unwrap() * 1e3 - 113.9).abs() < 0.05);
    assert_eq!(single.value.optimality, Optimality::Proven);
}

#[test]
fn devices_too_small_for_any_layer_take_nothing_and_pay_nothing() {
    let gib = 1 << 30;
    let workload = layers(&[gib; 80]);
    for objective in OBJECTIVES {
        let plan = free(&devices(&[48 * gib, 48 * gib, 0, 0, 1, gib - 1]), &workload, objective).unwrap();
        let used: BTreeSet<String> = counts(&plan).into_iter().map(|c| c.0).collect();
        assert_eq!(used, BTreeSet::from(["n00/d0".to_owned(), "n01/d0".to_owned()]), "{objective:?}");
        let tiny = plan.stopped.iter().find(|s| s.device == device_ref("n05", "d0")).unwrap();
        assert_eq!(tiny.short_bytes, Bytes::new(1));
        assert!(matches!(tiny.reason, StoppedBy::Layer { index: 0, .. }), "{tiny:?}");
    }
}

#[test]
fn a_headroom_that_eats_a_device_is_told_as_such() {
    let mib = 1 << 20;
    let charges = Charges {
        alone: Bytes::mib(2_048),
        split: StageCharges { each: Bytes::mib(2_048), ..StageCharges::default() },
        partial: StageCharges { each: Bytes::mib(2_048), ..StageCharges::default() },
        ..Charges::default()
    };
    let cluster = tower(64_000 * mib, &[2_719 * mib, 1_000 * mib]);
    let workload = layers(&[3_582 * mib; 2]);
    let plan = planned(&cluster, &workload, &engine(charges), &with(Objective::Fit)).unwrap();
    assert_eq!(on(&plan, "tower/host"), 2);
    // The head weighs nothing here, so that the larger card could hold it; the smaller one cannot even be charged.
    let small = plan.stopped.iter().find(|s| s.device == device_ref("tower", "CUDA1")).unwrap();
    assert_eq!(small.reason, StoppedBy::Overhead { needs: Bytes::mib(2_048), budget: Bytes::mib(1_000) });
    assert_eq!(small.short_bytes, Bytes::mib(1_048));
}

#[test]
fn an_order_other_than_by_size_is_found() {
    let cluster = devices(&[6, 5]);
    let workload = layers(&[5, 3, 3]);
    for objective in OBJECTIVES {
        let plan = free(&cluster, &workload, objective).unwrap();
        assert_eq!(counts(&plan), [("n01/d0".to_owned(), 1), ("n00/d0".to_owned(), 2)], "{objective:?}");
    }
    let by_size = PlanOptions { strategy: Strategy::CapacityDescending, ..with(Objective::Fit) };
    let refusal = refused(plan(&cluster, &workload, &EngineRules::none(), &by_size));
    assert_eq!(refusal.verdict, Verdict::Unknown, "another order fits");
    assert_eq!(refusal.short_bytes, Bytes::new(1));
}

#[test]
fn the_input_says_what_is_wrong_with_it() {
    let rules = EngineRules::none();
    let options = PlanOptions::default();
    let of = |indices: &[u32]| {
        let specs = indices.iter().map(|&i| LayerSpec::of_weights(i, Bytes::new(1))).collect();
        plan(&devices(&[9]), &Workload::uniform(footprint(specs)), &rules, &options)
    };
    assert!(matches!(of(&[3, 2, 3]), Err(PlanError::DuplicateLayer { index: 3 })));
    assert!(matches!(of(&[7, 4]), Err(PlanError::MissingLayer { missing: 5, before: 4, after: 7 })));
    assert_eq!(of(&[6, 5, 4]).unwrap().stages[0].layers, 4..7);
    let mut still = devices(&[9, 9]);
    still.nodes[1].devices[0].bandwidth = Some(BytesPerSec::ZERO);
    let error = plan(&still, &layers(&[1]), &rules, &options).unwrap_err();
    let still =
        SnapshotError::DeviceStandsStill { node: node_id("n01"), device: device_ref("n01", "d0").device };
    assert_eq!(error, PlanError::Snapshot(still));
    let mut capped = PlanOptions::default();
    capped.caps.insert(device_ref("n00", "d7"), Bytes::new(1));
    let error = plan(&devices(&[9]), &layers(&[1]), &rules, &capped).unwrap_err();
    assert_eq!(error.to_string(), "there is no device n00/d7 that may be used");
    let huge = layers(&[u64::MAX, 1]);
    assert!(matches!(plan(&devices(&[9]), &huge, &rules, &options), Err(PlanError::Overflow { .. })));
}

#[test]
fn no_devices_is_an_error_and_no_layers_is_an_empty_plan() {
    let nothing = layers(&[]);
    assert!(matches!(free(&devices(&[]), &nothing, Objective::Fit), Err(PlanError::NoDevices { .. })));
    let empty = free(&devices(&[0]), &nothing, Objective::Fit).unwrap();
    assert!(empty.stages.is_empty());
    assert_eq!(empty.value.optimality, Optimality::Proven);
}

#[test]
fn drained_failed_unknown_and_unasked_nodes_hold_nothing() {
    let mut cluster = devices(&[100; 5]);
    cluster.nodes[0].drained = true;
    cluster.nodes[1].status = NodeStatus::Failed;
    cluster.nodes[2].pools[0].free = None;
    let only = Some(["n00", "n01", "n02", "n04"].map(node_id).into());
    for objective in OBJECTIVES {
        let options = PlanOptions { only: only.clone(), ..with(objective) };
        let plan = planned(&cluster, &layers(&[10; 4]), &EngineRules::none(), &options).unwrap();
        assert_eq!(counts(&plan), [("n04/d0".to_owned(), 4)]);
        let reasons: Vec<_> = plan.stopped.iter().map(|s| s.reason.clone()).collect();
        let left_out = [StoppedBy::Drained, StoppedBy::Failed, StoppedBy::FreeUnknown, StoppedBy::NotAsked];
        assert_eq!(reasons, left_out);
    }
    let nobody = PlanOptions { only: Some(BTreeSet::new()), ..PlanOptions::default() };
    let error = plan(&cluster, &layers(&[1]), &EngineRules::none(), &nobody).unwrap_err();
    assert!(matches!(error, PlanError::NoDevices { stopped } if stopped.len() == 5));
}

#[test]
fn two_nodes_that_could_run_the_engine_are_named() {
    let rules = engine(Charges::default());
    let error = plan(&devices(&[9, 9]), &layers(&[1]), &rules, &PlanOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nodes 'n00' and 'n01' could each run the engine: mark one with main = true, or give the others their rpc address"
    );
}

#[test]
fn the_host_takes_only_what_no_device_takes() {
    let cluster = tower(1_000, &[50]);
    for objective in OBJECTIVES {
        let plan =
            planned(&cluster, &layers(&[10; 8]), &engine(Charges::default()), &with(objective)).unwrap();
        assert_eq!(on(&plan, "tower/host"), 3, "{objective:?}");
        assert!(plan.stages[0].input && plan.stages[1].head);
        let fits =
            planned(&cluster, &layers(&[10; 5]), &engine(Charges::default()), &with(objective)).unwrap();
        let host = if objective == Objective::Throughput { on(&fits, "tower/host") } else { 0 };
        assert_eq!(counts(&fits), [("tower/host".to_owned(), host), ("tower/CUDA0".to_owned(), 5 - host)]);
    }
}

#[test]
fn on_unified_memory_nothing_is_counted_twice() {
    let mut cluster = tower(100, &[]);
    cluster.nodes[0].devices.push(device("gpu0", "ram", GpuBackend::Metal, Some(400)));
    let mut workload = layers(&[10; 9]);
    workload.footprints[0].input_bytes = Bytes::new(6);
    let charges = Charges {
        host: Bytes::new(4),
        host_alone: Bytes::new(20),
        alone: Bytes::new(1),
        partial: StageCharges { each: Bytes::new(1), ..StageCharges::default() },
        ..Charges::default()
    };
    let refusal = refused(planned(&cluster, &workload, &engine(charges), &with(Objective::Fit)));
    assert_eq!(
        refusal.short_bytes,
        Bytes::new(1),
        "90 for layers, 10 on the host, 1 for the device: {refusal:?}"
    );
    cluster.nodes[0].pools[0] = pool("ram", 101);
    let plan = planned(&cluster, &workload, &engine(charges), &with(Objective::Fit)).unwrap();
    assert_eq!(on(&plan, "tower/gpu0"), 9);
}

#[test]
fn a_host_without_room_for_the_engine_is_the_certificate() {
    let charges = Charges { host: Bytes::new(30), host_alone: Bytes::new(40), ..Charges::default() };
    let refusal =
        refused(planned(&tower(20, &[500]), &layers(&[10; 8]), &engine(charges), &with(Objective::Fit)));
    let host = Certificate::Host { host: device_ref("tower", "host"), needs: 30, budget: 20 };
    assert_eq!(refusal.verdict, Verdict::ProvenInfeasible(host));
    assert_eq!(refusal.short_bytes, Bytes::new(10));
}

#[test]
fn without_any_known_speed_plans_are_made_and_no_time_is_told() {
    let mut cluster = devices(&[30, 30, 30]);
    for node in &mut cluster.nodes {
        node.devices[0].backend = GpuBackend::Npu;
        node.devices[0].bandwidth = None;
    }
    for objective in [Objective::Throughput, Objective::Latency] {
        let plan = free(&cluster, &layers(&[10; 6]), objective).unwrap();
        assert_eq!((plan.value.value, plan.value.lower_bound), (None, None));
        assert_eq!(plan.value.optimality, Optimality::Unproven);
        assert!(plan.stages.iter().all(|s| s.seconds.is_none()));
        let unknown = |a: &&Assumption| matches!(a, Assumption::UnknownSpeed { .. });
        assert_eq!(plan.assumed.iter().filter(unknown).count(), 3);
    }
}

#[test]
fn links_are_assumed_only_where_the_plan_has_a_hop() {
    let plan = free(&devices(&[30, 30, 90]), &layers(&[10; 6]), Objective::Latency).unwrap();
    assert!(plan.assumed.is_empty() && plan.stages.len() == 1);
    let plan = free(&devices(&[30, 30]), &layers(&[10; 6]), Objective::Latency).unwrap();
    let way = Assumption::Link {
        between: [node_id("n00"), node_id("n01")],
        rate: BytesPerSec::new(125_000_000),
        latency: std::time::Duration::from_micros(200),
    };
    assert_eq!(plan.assumed, [way]);
}

#[test]
fn a_limit_on_devices_holds_and_is_told() {
    let options = PlanOptions { max_devices: Some(2), ..with(Objective::Balanced) };
    let plan =
        planned(&devices(&[60, 60, 60, 60]), &layers(&[10; 8]), &EngineRules::none(), &options).unwrap();
    assert_eq!(plan.stages.len(), 2);
    let limited = plan.stopped.iter().filter(|s| s.reason == StoppedBy::DeviceLimit { limit: 2 });
    assert_eq!(limited.count(), 2);
    let one = PlanOptions { max_devices: Some(1), ..with(Objective::Balanced) };
    let refusal = refused(planned(&devices(&[60, 60]), &layers(&[10; 8]), &EngineRules::none(), &one));
    assert!(matches!(refusal.verdict, Verdict::ProvenInfeasible(Certificate::Searched { devices: 2 })));
    assert_eq!(refusal.short_bytes, Bytes::new(20));
}

#[test]
fn a_main_node_that_takes_nothing_runs_no_engine() {
    let rules = engine(Charges::default());
    let mut cluster = tower(100, &[100]);
    cluster.nodes[0].drained = true;
    let error = plan(&cluster, &layers(&[1]), &rules, &PlanOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "tower runs the engine and is drained");
    cluster.nodes[0].drained = false;
    cluster.nodes[0].status = NodeStatus::Failed;
    let error = plan(&cluster, &layers(&[1]), &rules, &PlanOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "tower runs the engine and does not answer");
}

#[test]
fn a_main_node_has_to_know_its_own_memory() {
    let said = |cluster: &ClusterSnapshot| {
        let rules = engine(Charges::default());
        plan(cluster, &layers(&[1]), &rules, &PlanOptions::default()).unwrap_err().to_string()
    };
    let mut cluster = tower(100, &[100]);
    cluster.nodes[0].pools[0].free = None;
    assert_eq!(
        said(&cluster),
        "node tower runs the engine, which keeps the input in its memory: say how much is free (memory_free = …)"
    );
    cluster.nodes[0].devices.remove(0);
    assert_eq!(
        said(&cluster),
        "node tower runs the engine, which keeps the input in its memory: say how much it has (memory = …)"
    );
}

#[test]
fn the_only_node_runs_the_engine_even_where_an_rpc_server_stands_for_it() {
    let mut cluster = tower(100, &[100]);
    cluster.nodes[0].rpc = Some("10.0.0.2:1".to_owned());
    let rules = engine(Charges::default());
    assert!(planned(&cluster, &layers(&[1]), &rules, &PlanOptions::default()).is_ok());
    let mut far = cluster.nodes[0].clone();
    far.id = node_id("far");
    cluster.nodes.insert(0, far);
    let error = plan(&cluster, &layers(&[1]), &rules, &PlanOptions::default()).unwrap_err();
    assert_eq!(error, PlanError::NoMainNode(MainNodeError::NoCandidate { nodes: 2 }));
}

#[test]
fn a_processor_of_the_main_node_is_its_host_and_no_device_beside_it() {
    let mut cluster = tower(100, &[]);
    cluster.nodes[0].devices.push(device("cpu0", Pool::RAM, GpuBackend::Cpu, Some(80)));
    let charges = Charges { host: Bytes::new(1), host_alone: Bytes::new(1), ..Charges::default() };
    for objective in OBJECTIVES {
        let plan = planned(&cluster, &layers(&[10; 5]), &engine(charges), &with(objective)).unwrap();
        assert_eq!(counts(&plan), [("tower/host".to_owned(), 5)], "{objective:?}");
    }
    // Under the rules of an engine with remote hosts, one elsewhere is a device.
    let mut far = node(
        "far",
        vec![pool(Pool::RAM, 100)],
        vec![
            device(Device::HOST, Pool::RAM, GpuBackend::Cpu, Some(80)),
            device("cpu0", Pool::RAM, GpuBackend::Cpu, Some(80)),
        ],
    );
    far.rpc = Some("10.0.0.2:1".to_owned());
    cluster.nodes.insert(0, far);
    let plan = planned(&cluster, &layers(&[10; 5]), &engine(charges), &with(Objective::Fit)).unwrap();
    assert_eq!(counts(&plan), [("tower/host".to_owned(), 0), ("far/cpu0".to_owned(), 5)]);
}

#[test]
fn a_snapshot_that_is_not_sound_is_no_input() {
    let mut cluster = devices(&[30, 30]);
    cluster.nodes.swap(0, 1);
    let error = free(&cluster, &layers(&[10]), Objective::Fit).unwrap_err();
    assert!(matches!(error, PlanError::Snapshot(SnapshotError::NodeOrder { .. })), "{error:?}");
    let mut cluster = devices(&[30, 30]);
    cluster.nodes[1].devices[0].pool = pool("elsewhere", 1).id;
    let placement = Placement { on_host: 0, devices: vec![(device_ref("n00", "d0"), 0..1)], moved: vec![] };
    let rules = EngineRules::none();
    let error =
        price(&cluster, &layers(&[10]), &rules, &PlanOptions::default(), &placement, 0.0).unwrap_err();
    assert!(matches!(error, PlanError::Snapshot(SnapshotError::NoSuchPool { .. })), "{error:?}");
}

#[test]
fn a_placement_names_no_device_twice() {
    let d0 = device_ref("n00", "d0");
    let placement =
        Placement { on_host: 0, devices: vec![(d0.clone(), 0..1), (d0.clone(), 1..2)], moved: vec![] };
    let (cluster, workload, rules) = (devices(&[30, 30]), layers(&[10, 10]), EngineRules::none());
    let error = price(&cluster, &workload, &rules, &PlanOptions::default(), &placement, 0.0).unwrap_err();
    assert_eq!(error, PlanError::RepeatedDevice { device: d0 });
}

#[test]
fn a_main_node_that_is_not_asked_keeps_the_engine_and_takes_no_layers() {
    let mut cluster = tower(100, &[100]);
    let mut far = node("far", vec![pool("v", 50)], vec![device("CUDA0", "v", GpuBackend::Cuda, Some(900))]);
    far.rpc = Some("10.0.0.2:1".to_owned());
    cluster.nodes.insert(0, far);
    let options = PlanOptions { only: Some([node_id("far")].into()), ..with(Objective::Latency) };
    let charges = Charges { host: Bytes::new(7), ..Charges::default() };
    let plan = planned(&cluster, &layers(&[10; 5]), &engine(charges), &options).unwrap();
    assert_eq!(counts(&plan), [("tower/host".to_owned(), 0), ("far/CUDA0".to_owned(), 5)]);
    assert_eq!(plan.stages[0].overhead_bytes, Bytes::new(7));
    let refusal = refused(planned(&cluster, &layers(&[10; 6]), &engine(charges), &options));
    assert_eq!(refusal.short_bytes, Bytes::new(10));
}
