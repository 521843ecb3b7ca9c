//! What a runtime and a cluster are told of a machine, from profiles that were put together by hand.

use expect_test::expect;
use plimsoll_profile::{
    Absence, AccelerationMode, Accelerator, AcceleratorKind, Cores, CpuFeatures, CpuProfile, DeviceSpec,
    ExecutionBackend, GpuBackend, Health, Machine, MemoryProfile, NodeResources, PoolSpec, Presence, Probe,
    ProbeMode, RuntimeProfile, Source, SystemProfile,
};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, NodeId, PoolId};

fn machine(features: CpuFeatures, usable: u32) -> SystemProfile {
    let cores = Cores { logical: 16, allowed: 16, physical: 8, quota: None, usable };
    let total = Bytes::gib(64);
    let source = |probe| Source { probe, outcome: Presence::Found(1) };
    SystemProfile {
        cpu: CpuProfile {
            vendor: None,
            brand: None,
            features: Presence::Found(features),
            cores,
            topology: plimsoll_profile::CpuTopology::default(),
        },
        memory: Presence::Found(MemoryProfile { total, host_total: total, limit: None }),
        accelerators: Vec::new(),
        sources: vec![source(Probe::CpuRegisters), source(Probe::Memory)],
    }
}

fn card(ordinal: u32, kind: AcceleratorKind, total: Bytes) -> Accelerator {
    Accelerator {
        ordinal,
        id: format!("GPU-{ordinal}"),
        uuid: Some(format!("GPU-{ordinal}")),
        pci: None,
        name: Some("RTX 4090".to_owned()),
        backend: GpuBackend::Cuda,
        kind,
        total: Some(total),
        compute_capability: Some((8, 9)),
        multiprocessors: None,
        bandwidth: Some(BytesPerSec::new(1_008_000_000_000)),
        health: Health::Healthy,
        layout: plimsoll_profile::MemoryLayout::default(),
    }
}

fn with_cards(cards: Vec<Accelerator>) -> SystemProfile {
    let mut profile = machine(CpuFeatures { avx2: true, ..CpuFeatures::default() }, 8);
    profile.sources.push(Source { probe: Probe::Cuda, outcome: Presence::Found(cards.len()) });
    profile.accelerators = cards;
    profile
}

#[test]
fn work_is_cut_by_what_does_it() {
    let cpu = |avx512, avx2, neon| machine(CpuFeatures { avx2, avx512, neon }, 8);
    let gpu = with_cards(vec![card(0, AcceleratorKind::Discrete, Bytes::gib(24))]);
    for (profile, mode, batch, width) in [
        (gpu, AccelerationMode::Gpu, 4096, 512),
        (cpu(true, true, false), AccelerationMode::Avx512, 2048, 512),
        (cpu(false, true, false), AccelerationMode::Avx2, 1024, 256),
        (cpu(false, false, true), AccelerationMode::Neon, 1024, 128),
        (cpu(false, false, false), AccelerationMode::Generic, 512, 64),
    ] {
        let backend = ExecutionBackend::from_runtime_profile(&RuntimeProfile::from(&profile));
        let expected =
            ExecutionBackend { mode, preferred_batch_size: batch, vector_width_bits: width, worker_count: 8 };
        assert_eq!(backend, expected);
    }
}

#[test]
fn there_is_always_a_worker() {
    let mut runtime = RuntimeProfile::from(&machine(CpuFeatures::default(), 0));
    assert_eq!(runtime.recommended_workers, 1);
    runtime.recommended_workers = 0;
    assert_eq!(ExecutionBackend::from_runtime_profile(&runtime).worker_count, 1);
}

#[test]
fn a_card_that_is_lost_does_not_make_the_machine_a_gpu_machine() {
    let mut lost = card(0, AcceleratorKind::Discrete, Bytes::gib(24));
    lost.health = Health::Unhealthy(Absence::Driver { call: "cuDeviceTotalMem", code: 999 });
    let runtime = RuntimeProfile::from(&with_cards(vec![lost]));
    assert_eq!(runtime.acceleration_mode, AccelerationMode::Avx2);
    assert_eq!(runtime.gpu_backend, None);
    assert_eq!(runtime.node_resources.vram, Bytes::ZERO);
    assert_eq!(runtime.detection_source, Probe::CpuRegisters);
}

#[test]
fn who_settled_it_and_how_much_was_looked_at_is_told() {
    let gpu = RuntimeProfile::from(&with_cards(vec![card(0, AcceleratorKind::Discrete, Bytes::gib(24))]));
    assert_eq!((gpu.detection_source, gpu.probe_mode), (Probe::Cuda, ProbeMode::Full));
    let mut fast = machine(CpuFeatures::default(), 4);
    fast.sources.push(Source { probe: Probe::Cuda, outcome: Presence::Absent(Absence::NotAsked) });
    assert_eq!(RuntimeProfile::from(&fast).probe_mode, ProbeMode::Fast);
    fast.cpu.features = Presence::Absent(Absence::NotHere);
    fast.sources[0].outcome = Presence::Absent(Absence::NotHere);
    assert_eq!(RuntimeProfile::from(&fast).detection_source, Probe::Cores);
}

#[test]
fn a_summary_is_one_line() {
    let gpu = RuntimeProfile::from(&with_cards(vec![card(0, AcceleratorKind::Discrete, Bytes::gib(24))]));
    expect!["8 workers on 16 logical cores, gpu (cuda) 25.8 GB 'RTX 4090', 68.7 GB of memory, by cuda"]
        .assert_eq(&gpu.summary());
    let mut plain = machine(CpuFeatures::default(), 1);
    plain.cpu.cores.logical = 1;
    plain.sources.push(Source { probe: Probe::Cuda, outcome: Presence::Absent(Absence::NotAsked) });
    let plain = RuntimeProfile { xdp_supported: true, ..RuntimeProfile::from(&plain) };
    expect!["1 worker on 1 logical core, generic, 68.7 GB of memory, xdp, by cpu registers (fast probe)"]
        .assert_eq(&plain.summary());
}

#[test]
fn a_machine_that_was_looked_at_has_memory_of_which_nothing_is_known_to_be_free() {
    let cards = vec![
        card(0, AcceleratorKind::Discrete, Bytes::gib(24)),
        card(1, AcceleratorKind::Integrated, Bytes::gib(48)),
        Accelerator { total: None, ..card(2, AcceleratorKind::Discrete, Bytes::ZERO) },
    ];
    let node = RuntimeProfile::from(&with_cards(cards)).node_resources;
    let pools: Vec<_> = node.pools().into_iter().map(|p| (p.id.to_string(), p.total, p.free)).collect();
    assert_eq!(pools, [("ram".to_owned(), Bytes::gib(64), None), ("CUDA0".to_owned(), Bytes::gib(24), None)]);
    let devices: Vec<_> =
        node.devices().into_iter().map(|d| (d.id.to_string(), d.pool.to_string(), d.limit)).collect();
    let of = |id: &str, pool: &str, limit| (id.to_owned(), pool.to_owned(), limit);
    assert_eq!(
        devices,
        [of("host", "ram", None), of("CUDA0", "CUDA0", None), of("CUDA1", "ram", Some(Bytes::gib(48)))]
    );
    assert_eq!(node.vram, Bytes::gib(24));
}

#[test]
fn video_memory_is_one_device_unless_devices_are_listed() {
    let id = || NodeId::new("tower").unwrap();
    let node = NodeResources::new(id(), Bytes::gib(24), Bytes::gib(64)).with_compute_capability(8, 9);
    assert_eq!(node.devices()[1].backend, GpuBackend::Cuda);
    assert_eq!(node.devices()[1].compute_capability, Some((8, 9)));
    assert_eq!(node.pools()[1].free, Some(Bytes::gib(24)));

    let other = NodeResources::new(id(), Bytes::gib(24), Bytes::ZERO).with_gpu_name("RX 7900 XTX");
    assert_eq!(other.devices().len(), 1);
    assert_eq!(other.devices()[0].backend, GpuBackend::Vulkan);
    assert_eq!(other.devices()[0].name.as_deref(), Some("RX 7900 XTX"));

    let none = NodeResources::new(id(), Bytes::ZERO, Bytes::ZERO);
    assert_eq!((none.pools().len(), none.devices().len()), (0, 0));

    let pool = PoolId::new("CUDA0").unwrap();
    let device = DeviceSpec::new(DeviceId::new("CUDA0").unwrap(), pool.clone(), GpuBackend::Cuda);
    let listed = node.with_devices([PoolSpec::new(pool, Bytes::gib(80))], [device]);
    assert_eq!(listed.vram, Bytes::gib(80));
    assert_eq!(listed.devices().len(), 2);
}

#[test]
fn only_the_kernel_tells_which_start_this_is_and_whether_it_has_the_express_data_path() {
    let profile = machine(CpuFeatures::default(), 1);
    assert!(!RuntimeProfile::from(&profile).xdp_supported);
    assert_eq!(RuntimeProfile::on(&Machine::at("/no/such/tree"), &profile), RuntimeProfile::from(&profile));

    let root = std::env::temp_dir().join(format!("plimsoll-kernel-{}", std::process::id()));
    let kernel = root.join("proc/sys/kernel");
    std::fs::create_dir_all(kernel.join("random")).unwrap();
    std::fs::write(kernel.join("osrelease"), "6.1.0-18-amd64\n").unwrap();
    std::fs::write(kernel.join("random/boot_id"), "f8a3c0de-0000-4000-8000-000000000001\n").unwrap();
    let told = RuntimeProfile::on(&Machine::at(&root), &profile);
    std::fs::write(kernel.join("random/boot_id"), " \n").unwrap();
    let garbled = Machine::at(&root).boot_id();
    std::fs::remove_dir_all(&root).unwrap();
    assert!(told.xdp_supported);
    assert_eq!(told.node_resources.boot_id.as_deref(), Some("f8a3c0de-0000-4000-8000-000000000001"));
    assert!(matches!(garbled, Presence::Absent(Absence::Garbled { .. })));
}
