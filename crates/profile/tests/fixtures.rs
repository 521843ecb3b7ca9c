//! Captured and constructed machines, each with the profile that it must give. Their drivers are not looked at here.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/bundle.rs"]
mod bundle;
#[path = "support/shown.rs"]
mod shown;

use std::path::Path;
use std::time::Duration;

use expect_test::{Expect, expect};
use plimsoll_profile::{AcceleratorKind, GpuBackend, Machine, ProbeMode, SystemProfile, read_metrics_of};
use plimsoll_units::Bytes;

/// The machine whose tree lies there, with the registers of its text.
fn machine(root: &Path, text: &str) -> Machine {
    let machine = Machine::at(root);
    match bundle::sections(text).find(|(path, _)| *path == "cpuid") {
        Some((_, dump)) => machine.with_registers(dump.parse().unwrap()),
        None => machine,
    }
}

/// What a fast look says of a machine, in lines.
fn check(name: &str, text: &str, expected: Expect) -> SystemProfile {
    let root = bundle::laid_out(name, text);
    let machine = machine(&root, text);
    let profile = SystemProfile::detect_with(&machine, ProbeMode::Fast);
    #[expect(clippy::disallowed_methods, reason = "the caller owns the clock")]
    let now = std::time::Instant::now();
    let metrics = read_metrics_of(&machine, &profile, now);
    assert_eq!(metrics.free(now, Duration::ZERO).host, metrics.host.as_result().ok().copied());
    let has_registers = text.contains("--- cpuid");
    expected.assert_eq(&shown::machine(&profile, &metrics, has_registers));
    profile
}

#[test]
fn a_laptop_without_a_card() {
    let profile = check(
        "laptop",
        include_str!("fixtures/laptop.txt"),
        expect![[r#"
        GenuineIntel, Intel(R) Core(TM) i5-8260U CPU @ 1.60GHz, (avx2, avx512) (true, false)
        caches L1d 32 KiB, L1i 32 KiB, L2 256 KiB, L3 8 MiB
        packages 1, logical 8, allowed 8, physical 4, quota -, usable 4
        memory 16104860 KiB of 16104860 KiB, free 9802344 KiB, limit -
        amdgpu: absent: the driver sees no device
        intel: 1
        GPU 0 'Intel GPU 3ea0' 0000:00:02.0: vulkan integrated, healthy
          total -, free -
    "#]],
    );
    // What shares the host's memory and tells none of its own is there and is not planned with.
    assert_eq!(profile.accelerators[0].kind, AcceleratorKind::Integrated);
}

#[test]
fn a_desktop_with_two_kinds_of_cores() {
    check(
        "hybrid-desktop",
        include_str!("fixtures/hybrid-desktop.txt"),
        expect![[r#"
        GenuineIntel, 12th Gen Intel(R) Core(TM) i7-12700K, (avx2, avx512) (true, false)
        caches L1d 48 KiB, L1i 32 KiB, L2 1280 KiB, L3 25 MiB
        packages 1, logical 20, allowed 20, physical 12, quota -, usable 12, 16 performance and 4 efficient
        memory 65626692 KiB of 65626692 KiB, free 57600 MiB, limit -
        amdgpu: absent: no file /sys/class/drm
        intel: absent: no file /sys/class/drm
    "#]],
    );
}

#[test]
fn a_server_with_two_sockets() {
    check(
        "dual-socket",
        include_str!("fixtures/dual-socket.txt"),
        expect![[r#"
        GenuineIntel, Intel(R) Xeon(R) Gold 6252R CPU @ 3.100GHz, (avx2, avx512) (true, true)
        caches -
        packages 2, logical 16, allowed 16, physical 8, quota -, usable 8
        memory 394933100 KiB of 394933100 KiB, free 389120 MB, limit -
        amdgpu: absent: the driver sees no device
        intel: absent: the driver sees no device
    "#]],
    );
}

#[test]
fn a_container_with_a_quota_and_its_parents_limit() {
    check(
        "container",
        include_str!("fixtures/container.txt"),
        expect![[r#"
        packages 1, logical 8, allowed 6, physical 6, quota 350000/100000, usable 3
        memory 4 GiB of 64 GiB, free 2560 MiB, limit /sys/fs/cgroup/kubepods/pod7/memory.max
        amdgpu: absent: no file /sys/class/drm
        intel: absent: no file /sys/class/drm
    "#]],
    );
}

#[test]
fn a_container_under_the_first_generation_of_control_groups() {
    check(
        "cgroup-v1",
        include_str!("fixtures/cgroup-v1.txt"),
        expect![[r#"
        packages 1, logical 4, allowed 4, physical 2, quota -, usable 2
        memory 8 GiB of 32000 MiB, free 6 GiB, limit /sys/fs/cgroup/memory/memory.limit_in_bytes
        amdgpu: absent: no file /sys/class/drm
        intel: absent: no file /sys/class/drm
    "#]],
    );
}

#[test]
fn a_processor_with_an_accelerator_and_memory_for_it_alone() {
    let profile = check(
        "amd-apu",
        include_str!("fixtures/amd-apu.txt"),
        expect![[r#"
        AuthenticAMD, AMD Ryzen AI MAX+395 w/ Radeon 8060S, (avx2, avx512) (true, true)
        caches -
        packages 1, logical 4, allowed 4, physical 2, quota -, usable 2
        memory 120 GiB of 120 GiB, free 110 GiB, limit -
        amdgpu: 1
        intel: absent: the driver sees no device
        GPU 0 'AMD GPU 1586' 0000:c5:00.0: rocm integrated, healthy
          total 8 GiB, share 120 GiB, free 7 GiB
    "#]],
    );
    let apu = &profile.accelerators[0];
    // It may map more than the system has: then it is what the system has. And nothing counts twice.
    let system = Bytes::gib(120);
    assert_eq!(apu.layout.host_share, Some(system));
    assert_eq!(apu.total.unwrap().checked_add(system), Some(Bytes::gib(128)));
    assert_eq!(apu.backend, GpuBackend::Rocm);
}

#[test]
fn cards_are_numbered_by_their_places_and_one_that_is_broken_hides_no_other() {
    check(
        "amd-cards",
        include_str!("fixtures/amd-cards.txt"),
        expect![[r#"
        packages 1, logical 2, allowed 2, physical 2, quota -, usable 2
        memory 64000 MiB of 64000 MiB, free 61440 MB, limit -
        amdgpu: 3
        intel: absent: the driver sees no device
        GPU 0 'Radeon RX 7900 XTX' 0000:03:00.0: rocm discrete, healthy
          total 24560 MiB, free 24535 MiB
        GPU 1 'AMD GPU 73bf' 0000:0b:00.0: rocm discrete, healthy
          total 16368 MiB, free 0 B
        GPU 2 'AMD GPU 744c' 0000:0e:00.0: rocm discrete, unhealthy: /sys/class/drm/card3/device/mem_info_vram_total says '0', which cannot be
          total -, free -
    "#]],
    );
}

#[test]
fn a_board_with_one_memory() {
    check(
        "unified-board",
        include_str!("fixtures/unified-board.txt"),
        expect![[r#"
        packages 2, logical 4, allowed 4, physical 4, quota -, usable 4
        memory 127600748 KiB of 127600748 KiB, free 118566368 KiB, limit -
        amdgpu: absent: no file /sys/class/drm
        intel: absent: no file /sys/class/drm
    "#]],
    );
}

#[test]
fn a_server_whose_card_is_divided() {
    check(
        "mig-server",
        include_str!("fixtures/mig-server.txt"),
        expect![[r#"
        packages 2, logical 8, allowed 8, physical 4, quota -, usable 4
        memory 64 GiB of 1031250 MiB, free 64 GiB, limit /sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max
        amdgpu: absent: no file /sys/class/drm
        intel: absent: no file /sys/class/drm
    "#]],
    );
}

#[test]
fn a_small_server_with_both_generations_of_control_groups() {
    check(
        "hybrid-server",
        include_str!("fixtures/hybrid-server.txt"),
        expect![[r#"
        packages 1, logical 2, allowed 2, physical 1, quota -, usable 1
        memory 24684084 KiB of 24684084 KiB, free 22559 MiB, limit -
        amdgpu: absent: no file /sys/class/drm
        intel: absent: no file /sys/class/drm
    "#]],
    );
}
