//! Captured machines with drivers: the kernel's files and both libraries together.

use expect_test::{Expect, expect};

use crate::{bundle, child, cuda, lines, nvml};

fn check(name: &str, text: &str, settings: &[(&str, &str)], expected: Expect) {
    let root = bundle::laid_out(&format!("driven-{name}"), text);
    let Some(mut child) = child("machine", &[cuda(&[]), nvml(&[])], settings) else { return };
    expected.assert_eq(&lines(child.env("FAKE_ROOT", root)));
}

#[test]
fn a_desktop_with_two_kinds_of_cores_and_one_card() {
    check(
        "hybrid-desktop",
        include_str!("../fixtures/hybrid-desktop.txt"),
        &[("FAKE_CUDA", "4090"), ("FAKE_NVML", "4090")],
        expect![[r#"
            packages 1, logical 20, allowed 20, physical 12, quota -, usable 12, 16 performance and 4 efficient
            memory 65626692 KiB of 65626692 KiB, free 57600 MiB, limit -
            amdgpu: absent: no file /sys/class/drm
            intel: absent: no file /sys/class/drm
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: cuda discrete, healthy
              total 24 GiB, free 22 GiB
        "#]],
    );
}

#[test]
fn a_board_with_one_memory_whose_library_has_no_figures() {
    check(
        "unified-board",
        include_str!("../fixtures/unified-board.txt"),
        &[("FAKE_CUDA", "gb10"), ("FAKE_NVML", "gb10")],
        expect![[r#"
            packages 2, logical 4, allowed 4, physical 4, quota -, usable 4
            memory 127600748 KiB of 127600748 KiB, free 118566368 KiB, limit -
            amdgpu: absent: no file /sys/class/drm
            intel: absent: no file /sys/class/drm
            GPU 0 'NVIDIA GB10' GPU-40404040-4040-4040-4040-404040404040: cuda integrated, healthy
              total 127600748 KiB, free 118566368 KiB
        "#]],
    );
}

#[test]
fn a_server_whose_card_is_divided() {
    check(
        "mig-server",
        include_str!("../fixtures/mig-server.txt"),
        &[("FAKE_CUDA", "1g"), ("FAKE_NVML", "a100"), ("FAKE_MIG", "a100"), ("FAKE_SLICES", "2g,1g")],
        expect![[r#"
            packages 2, logical 8, allowed 8, physical 4, quota -, usable 4
            memory 64 GiB of 1031250 MiB, free 64 GiB, limit /sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max
            amdgpu: absent: no file /sys/class/drm
            intel: absent: no file /sys/class/drm
            GPU 0 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' MIG-11111111-1111-1111-1111-111111111111: cuda slice, healthy
              total 5 GiB, free 4 GiB
            GPU 1 'NVIDIA A100-SXM4-40GB MIG 2g.10gb' MIG-12121212-1212-1212-1212-121212121212: cuda slice, unhealthy: CUDA does not show it to this process
              total 10 GiB, free -
        "#]],
    );
}
