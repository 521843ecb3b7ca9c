//! This machine as a cluster of one node.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use plimsoll_cluster::{ClusterSnapshot, this_machine};
use plimsoll_profile::{
    Absence, Accelerator, AcceleratorKind, Cores, CpuProfile, CpuTopology, FreeMemory, GpuBackend, Health,
    MemoryLayout, MemoryProfile, Presence, SystemProfile,
};
use plimsoll_units::{Bytes, BytesPerSec, NodeId};

fn gpu(ordinal: u32, total: Bytes) -> Accelerator {
    Accelerator {
        ordinal,
        id: format!("GPU-{ordinal}"),
        uuid: Some(format!("GPU-{ordinal}")),
        pci: None,
        name: Some("RTX 4090".to_owned()),
        backend: GpuBackend::Cuda,
        kind: AcceleratorKind::Discrete,
        total: Some(total),
        layout: MemoryLayout::default(),
        compute_capability: Some((8, 9)),
        multiprocessors: Some(128),
        bandwidth: Some(BytesPerSec::new(1_008_000_000_000)),
        health: Health::Healthy,
    }
}

fn machine(memory: Option<Bytes>, accelerators: Vec<Accelerator>) -> SystemProfile {
    let memory = match memory {
        Some(total) => Presence::Found(MemoryProfile { total, host_total: Bytes::gib(1000), limit: None }),
        None => Presence::Absent(Absence::NotHere),
    };
    let cores = Cores { logical: 1, allowed: 1, physical: 1, quota: None, usable: 1 };
    let cpu = CpuProfile {
        vendor: None,
        brand: None,
        features: Presence::Absent(Absence::NotHere),
        cores,
        topology: CpuTopology::default(),
    };
    SystemProfile { cpu, memory, accelerators, sources: Vec::new() }
}

fn here(profile: &SystemProfile, free: &FreeMemory) -> ClusterSnapshot {
    let cluster = this_machine(NodeId::new("here").unwrap(), profile, free);
    cluster.validate().unwrap();
    assert_eq!(cluster.main_node().map(|n| n.id.as_str()), Ok("here"));
    cluster
}

/// `device on pool` and `pool total free`.
fn shown(cluster: &ClusterSnapshot) -> (Vec<String>, Vec<String>) {
    let node = &cluster.nodes[0];
    let bytes = |b: Option<Bytes>| b.map_or("-".to_owned(), |b| b.exact().to_string());
    let devices = node.devices.iter().map(|d| format!("{} on {} limit {}", d.id, d.pool, bytes(d.limit)));
    let pools = node.pools.iter().map(|p| format!("{} {} free {}", p.id, p.total.exact(), bytes(p.free)));
    (devices.collect(), pools.collect())
}

#[test]
fn the_host_comes_first_and_each_card_has_a_pool_of_its_own() {
    let profile = machine(Some(Bytes::gib(64)), vec![gpu(0, Bytes::gib(24)), gpu(1, Bytes::gib(8))]);
    let free = FreeMemory {
        host: Some(Bytes::gib(50)),
        accelerators: BTreeMap::from([("GPU-0".to_owned(), Bytes::gib(23))]),
    };
    let cluster = here(&profile, &free);
    let (devices, pools) = shown(&cluster);
    assert_eq!(devices, ["host on ram limit -", "CUDA0 on CUDA0 limit -", "CUDA1 on CUDA1 limit -"]);
    assert_eq!(pools, ["ram 64 GiB free 50 GiB", "CUDA0 24 GiB free 23 GiB", "CUDA1 8 GiB free -"]);
    let card = &cluster.nodes[0].devices[1];
    assert_eq!((card.name.as_deref(), card.uuid.as_deref()), (Some("RTX 4090"), Some("GPU-0")));
    assert_eq!(card.bandwidth, Some(BytesPerSec::new(1_008_000_000_000)));
}

#[test]
fn a_lost_card_leaves_its_number_free_and_a_card_counts_once() {
    let lost = Accelerator { health: Health::Unhealthy(Absence::NoDevice), ..gpu(0, Bytes::gib(24)) };
    let unknown = Accelerator { total: None, ..gpu(1, Bytes::ZERO) };
    let again = Accelerator { uuid: Some("GPU-2".to_owned()), ..gpu(3, Bytes::gib(8)) };
    let other = Accelerator { backend: GpuBackend::Vulkan, ..gpu(4, Bytes::gib(8)) };
    let profile = machine(None, vec![lost, unknown, gpu(2, Bytes::gib(8)), again, other]);
    let (devices, pools) = shown(&here(&profile, &FreeMemory::default()));
    assert_eq!(devices, ["CUDA2 on CUDA2 limit -"]);
    assert_eq!(pools, ["CUDA2 8 GiB free -"]);
}

#[test]
fn an_accelerator_on_the_hosts_memory_does_not_make_it_more() {
    // The whole memory belongs to both: placing on one leaves less for the other.
    let total = Bytes::new(130_663_165_952);
    let whole = Accelerator { kind: AcceleratorKind::Integrated, ..gpu(0, total) };
    let part = Accelerator { kind: AcceleratorKind::Integrated, ..gpu(1, Bytes::gib(64)) };
    let free = FreeMemory { host: Some(Bytes::new(121_411_960_832)), accelerators: BTreeMap::new() };
    let (devices, pools) = shown(&here(&machine(Some(total), vec![whole, part.clone()]), &free));
    assert_eq!(devices, ["host on ram limit -", "CUDA0 on ram limit -", "CUDA1 on ram limit 64 GiB"]);
    assert_eq!(pools, ["ram 127600748 KiB free 118566368 KiB"]);
    let (devices, _) = shown(&here(&machine(None, vec![part]), &free));
    assert_eq!(devices, ["CUDA1 on CUDA1 limit -"]);
}

#[test]
fn a_part_of_the_processor_with_memory_of_its_own_is_two_devices_and_nothing_counts_twice() {
    // 128 GiB in the machine: 8 GiB for the accelerator alone, 120 GiB for the system, of which it may map all but a bit.
    let own = Bytes::new(8_589_934_592);
    let system = Bytes::gib(120);
    let share = Bytes::gib(100);
    let apu = Accelerator {
        backend: GpuBackend::Rocm,
        kind: AcceleratorKind::Integrated,
        layout: MemoryLayout { host_share: Some(share), ..MemoryLayout::default() },
        uuid: None,
        ..gpu(0, own)
    };
    let card = Accelerator { backend: GpuBackend::Rocm, ..gpu(1, Bytes::gib(24)) };
    let free = FreeMemory {
        host: Some(Bytes::gib(110)),
        accelerators: BTreeMap::from([("GPU-0".to_owned(), Bytes::gib(7))]),
    };
    let cluster = here(&machine(Some(system), vec![apu, card]), &free);
    let (devices, pools) = shown(&cluster);
    assert_eq!(
        devices,
        ["host on ram limit -", "gpu0 on gpu0 limit -", "gtt on ram limit 100 GiB", "ROCm1 on ROCm1 limit -"]
    );
    assert_eq!(pools, ["ram 120 GiB free 110 GiB", "gpu0 8 GiB free 7 GiB", "ROCm1 24 GiB free -"]);
    let whole = Bytes::saturating_sum(cluster.nodes[0].pools.iter().take(2).map(|pool| pool.total));
    assert_eq!(whole, Bytes::gib(128));
}

#[test]
fn more_free_than_there_is_counts_as_all() {
    let free = FreeMemory { host: Some(Bytes::MAX), accelerators: BTreeMap::new() };
    let (_, pools) = shown(&here(&machine(Some(Bytes::gib(2)), Vec::new()), &free));
    assert_eq!(pools, ["ram 2 GiB free 2 GiB"]);
}

#[cfg(feature = "file")]
#[test]
fn this_machine_can_be_written_and_read_back() {
    use plimsoll_cluster::file::{parse_cluster, write_cluster};

    let part = Accelerator { kind: AcceleratorKind::Integrated, ..gpu(1, Bytes::gib(20)) };
    let profile = machine(Some(Bytes::gib(64)), vec![gpu(0, Bytes::gib(24)), part]);
    let cluster = here(&profile, &FreeMemory { host: Some(Bytes::gib(50)), ..FreeMemory::default() });
    let text = write_cluster(&cluster);
    assert_eq!(parse_cluster(&text).unwrap().snapshot, cluster, "{text}");
}
