//! What is told of two profiles.

use plimsoll_profile::{
    Absence, Accelerator, AcceleratorKind, CgroupVersion, Cores, CpuFeatures, CpuProfile, CpuQuota,
    CpuTopology, GpuBackend, Health, MemoryLayout, MemoryLimit, MemoryProfile, Presence, Probe, Source,
    SystemProfile,
};
use plimsoll_units::{Bytes, BytesPerSec};
use plimsoll_watcher::describe_changes;

fn gpu(ordinal: u32, id: &str) -> Accelerator {
    Accelerator {
        ordinal,
        id: id.to_owned(),
        uuid: Some(id.to_owned()),
        pci: Some(format!("0000:0{ordinal}:00.0")),
        name: Some("RTX 4090".to_owned()),
        backend: GpuBackend::Cuda,
        kind: AcceleratorKind::Discrete,
        total: Some(Bytes::gib(24)),
        layout: MemoryLayout::default(),
        compute_capability: Some((8, 9)),
        multiprocessors: Some(128),
        bandwidth: Some(BytesPerSec::new(1_008_000_000_000)),
        health: Health::Healthy,
    }
}

fn machine() -> SystemProfile {
    SystemProfile {
        cpu: CpuProfile {
            vendor: Some("GenuineIntel".to_owned()),
            brand: Some("Xeon".to_owned()),
            features: Presence::Found(CpuFeatures { avx2: true, avx512: true, neon: false }),
            cores: Cores { logical: 16, allowed: 16, physical: 8, quota: None, usable: 8 },
            topology: CpuTopology::default(),
        },
        memory: Presence::Found(MemoryProfile {
            total: Bytes::gib(64),
            host_total: Bytes::gib(64),
            limit: None,
        }),
        accelerators: vec![gpu(0, "GPU-a"), gpu(1, "GPU-b")],
        sources: vec![Source { probe: Probe::Cuda, outcome: Presence::Found(2) }],
    }
}

fn check(change: impl Fn(&mut SystemProfile), there: &[&str], back: &[&str]) {
    let (old, mut new) = (machine(), machine());
    change(&mut new);
    assert_eq!(describe_changes(&old, &new), there);
    assert_eq!(describe_changes(&new, &old), back);
}

#[test]
fn nothing_is_told_of_equal_profiles() {
    check(|_| {}, &[], &[]);
}

#[test]
fn a_card_that_goes_and_one_that_comes_are_named() {
    check(
        |m| m.accelerators = vec![gpu(0, "GPU-a"), gpu(1, "GPU-c")],
        &["GPU 1 'RTX 4090' GPU-b gone", "GPU 1 'RTX 4090' GPU-c new"],
        &["GPU 1 'RTX 4090' GPU-c gone", "GPU 1 'RTX 4090' GPU-b new"],
    );
}

#[test]
fn a_card_keeps_its_identity_under_another_number() {
    check(
        |m| m.accelerators = vec![Accelerator { pci: Some("0000:01:00.0".to_owned()), ..gpu(0, "GPU-b") }],
        &["GPU 0 'RTX 4090' GPU-a gone", "GPU 0 'RTX 4090' GPU-b number: 0, was 1"],
        &["GPU 0 'RTX 4090' GPU-a new", "GPU 1 'RTX 4090' GPU-b number: 1, was 0"],
    );
}

#[test]
fn a_card_that_falls_ill_and_what_it_no_longer_tells_are_named() {
    check(
        |m| {
            m.accelerators[0].health = Health::Unhealthy(Absence::NoDevice);
            m.accelerators[0].total = None;
        },
        &[
            "GPU 0 'RTX 4090' GPU-a unhealthy: the driver sees no device",
            "GPU 0 'RTX 4090' GPU-a memory: unknown, was 24 GiB",
        ],
        &["GPU 0 'RTX 4090' GPU-a healthy again", "GPU 0 'RTX 4090' GPU-a memory: 24 GiB, was unknown"],
    );
}

#[test]
fn every_fact_of_a_card_is_compared() {
    type Change = fn(&mut Accelerator);
    let facts: [(Change, &str); 7] = [
        (|a| a.name = Some("RTX 5090".to_owned()), "GPU 0 'RTX 5090' GPU-a name: RTX 5090, was RTX 4090"),
        (|a| a.uuid = None, "GPU 0 'RTX 4090' GPU-a uuid: unknown, was GPU-a"),
        (|a| a.backend = GpuBackend::Vulkan, "GPU 0 'RTX 4090' GPU-a driver: vulkan, was cuda"),
        (|a| a.kind = AcceleratorKind::Slice, "GPU 0 'RTX 4090' GPU-a kind: slice, was discrete"),
        (|a| a.compute_capability = Some((9, 0)), "GPU 0 'RTX 4090' GPU-a compute capability: 9.0, was 8.9"),
        (|a| a.multiprocessors = Some(1), "GPU 0 'RTX 4090' GPU-a multiprocessors: 1, was 128"),
        (|a| a.bandwidth = None, "GPU 0 'RTX 4090' GPU-a bandwidth: unknown, was 1.008 TB/s"),
    ];
    for (change, told) in facts {
        let (old, mut new) = (machine(), machine());
        change(&mut new.accelerators[0]);
        assert_eq!(describe_changes(&old, &new), [told]);
    }
}

#[test]
fn memory_is_told_with_what_limits_it() {
    let limit = MemoryLimit { path: "/sys/fs/cgroup/memory.max".to_owned(), version: CgroupVersion::V2 };
    check(
        |m| {
            m.memory = Presence::Found(MemoryProfile {
                total: Bytes::gib(32),
                host_total: Bytes::gib(64),
                limit: Some(limit.clone()),
            });
        },
        &["memory: 32 GiB, was 64 GiB (limit /sys/fs/cgroup/memory.max)"],
        &["memory: 64 GiB, was 32 GiB (of 64 GiB in the host)"],
    );
    check(
        |m| m.memory = Presence::Absent(Absence::NotHere),
        &["memory: unknown, was 64 GiB (not available on this kind of machine)"],
        &["memory: 64 GiB, was unknown (of 64 GiB in the host)"],
    );
}

#[test]
fn processors_are_told_by_what_may_be_used() {
    check(
        |m| {
            m.cpu.cores.quota = Some(CpuQuota { quota_us: 400_000, period_us: 100_000 });
            m.cpu.cores.usable = 4;
            m.cpu.features = Presence::Found(CpuFeatures { avx2: true, avx512: false, neon: false });
        },
        &["avx512 gone", "quota: 400000/100000 us, was none", "usable cores: 4, was 8"],
        &["avx512 new", "quota: none, was 400000/100000 us", "usable cores: 8, was 4"],
    );
    check(
        |m| m.cpu.brand = Some("EPYC".to_owned()),
        &["processor: EPYC, was Xeon"],
        &["processor: Xeon, was EPYC"],
    );
}

#[test]
fn a_probe_that_ceases_to_answer_says_why() {
    check(
        |m| {
            m.accelerators.clear();
            m.sources[0].outcome = Presence::Absent(Absence::Driver { call: "cuInit", code: 999 });
        },
        &[
            "GPU 0 'RTX 4090' GPU-a gone",
            "GPU 1 'RTX 4090' GPU-b gone",
            "probe 'cuda' finds nothing: cuInit failed with code 999",
        ],
        &["GPU 0 'RTX 4090' GPU-a new", "GPU 1 'RTX 4090' GPU-b new", "probe 'cuda' answers again"],
    );
}
