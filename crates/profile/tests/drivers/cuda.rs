//! CUDA alone: the driver's library is there, the management library is not.

use expect_test::expect;

use crate::{check, cuda, report};

#[test]
fn two_devices_are_told_with_all_that_is_known() {
    check(
        &[cuda(&[])],
        &[],
        expect![[r#"
            cuda: 2
            nvml: absent: no driver library 'libnvidia-ml'
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: discrete, healthy
              total 24 GiB, free 1 GiB, pci 0000:01:00.0, capability 8.9, multiprocessors 128, bandwidth 1.008 TB/s
            GPU 1 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' MIG-11111111-1111-1111-1111-111111111111: slice, healthy
              total 5 GiB, free 2 GiB, pci 0000:02:00.0, capability 8.0, multiprocessors 14, bandwidth 1.555 TB/s
        "#]],
    );
}

#[test]
fn a_device_on_the_hosts_memory_is_told_as_such() {
    check(
        &[cuda(&[])],
        &[("FAKE_INTEGRATED", "1"), ("FAKE_COUNT", "1")],
        expect![[r#"
            cuda: 1
            nvml: absent: no driver library 'libnvidia-ml'
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: integrated, healthy
              total 24 GiB, free 1 GiB, pci 0000:01:00.0, capability 8.9, multiprocessors 128, bandwidth 1.008 TB/s
        "#]],
    );
}

#[test]
fn one_lost_device_never_hides_the_others() {
    check(
        &[cuda(&[])],
        &[("FAKE_LOST", "0")],
        expect![[r#"
            cuda: 2
            nvml: absent: no driver library 'libnvidia-ml'
            GPU 0 cuda-0: discrete, unhealthy: cuDeviceTotalMem_v2 failed with code 999
              total -, free -, pci -, capability -, multiprocessors -, bandwidth -
            GPU 1 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' MIG-11111111-1111-1111-1111-111111111111: slice, healthy
              total 5 GiB, free 2 GiB, pci 0000:02:00.0, capability 8.0, multiprocessors 14, bandwidth 1.555 TB/s
        "#]],
    );
    check(
        &[cuda(&[])],
        &[("FAKE_GONE", "1")],
        expect![[r#"
            cuda: 2
            nvml: absent: no driver library 'libnvidia-ml'
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: discrete, healthy
              total 24 GiB, free 1 GiB, pci 0000:01:00.0, capability 8.9, multiprocessors 128, bandwidth 1.008 TB/s
            GPU 1 cuda-1: discrete, unhealthy: cuDeviceGet failed with code 101
              total -, free -, pci -, capability -, multiprocessors -, bandwidth -
        "#]],
    );
}

#[test]
fn a_driver_that_does_not_start_is_told_with_its_code() {
    for (code, told) in [
        ("100", "the driver sees no device"),
        ("803", "cuInit failed with code 803"),
        ("999", "cuInit failed with code 999"),
        // A code that no header knows.
        ("1234567", "cuInit failed with code 1234567"),
        ("-5", "cuInit failed with code -5"),
    ] {
        if let Some(report) = report(&[cuda(&[])], &[("FAKE_INIT", code)]) {
            assert_eq!(report.lines().next(), Some(format!("cuda: absent: {told}").as_str()));
        }
    }
}

#[test]
fn counts_that_cannot_be_are_held_in_bounds() {
    for (count, told) in [("0", "the driver sees no device"), ("-7", "the driver sees no device")] {
        if let Some(report) = report(&[cuda(&[])], &[("FAKE_COUNT", count)]) {
            assert_eq!(report.lines().next(), Some(format!("cuda: absent: {told}").as_str()));
        }
    }
    if let Some(report) = report(&[cuda(&[])], &[("FAKE_COUNT", "2147483647"), ("FAKE_RETAIN", "2")]) {
        assert_eq!(report.lines().next(), Some("cuda: 1024"));
    }
}

#[test]
fn a_missing_call_is_named() {
    check(
        &[cuda(&["-DWITHOUT_ATTRIBUTES"])],
        &[],
        expect![[r#"
            cuda: absent: the driver library has no 'cuDeviceGetAttribute'; it is too old or not the driver's
            nvml: absent: no driver library 'libnvidia-ml'
        "#]],
    );
}

#[test]
fn without_contexts_devices_are_listed_and_what_is_free_is_unknown() {
    for (library, setting) in [
        (cuda(&["-DWITHOUT_CONTEXTS"]), ("FAKE_COUNT", "2")),
        (cuda(&[]), ("FAKE_RETAIN", "2")),
        (cuda(&[]), ("FAKE_FREE", "1")),
    ] {
        check(
            &[library],
            &[setting],
            expect![[r#"
                cuda: 2
                nvml: absent: no driver library 'libnvidia-ml'
                GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: discrete, healthy
                  total 24 GiB, free -, pci 0000:01:00.0, capability 8.9, multiprocessors 128, bandwidth 1.008 TB/s
                GPU 1 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' MIG-11111111-1111-1111-1111-111111111111: slice, healthy
                  total 5 GiB, free -, pci 0000:02:00.0, capability 8.0, multiprocessors 14, bandwidth 1.555 TB/s
            "#]],
        );
    }
}

#[test]
fn values_that_cannot_be_are_left_out_and_the_device_is_unhealthy() {
    for (garbage, why) in [
        ("1", "cuDeviceTotalMem_v2 says '0', which cannot be"),
        ("2", "cuDeviceTotalMem_v2 says '18446744073709551615', which cannot be"),
        ("3", "cuDeviceTotalMem_v2 failed with code 1234567"),
    ] {
        let settings = [("FAKE_GARBAGE", garbage), ("FAKE_COUNT", "1")];
        if let Some(report) = report(&[cuda(&[])], &settings) {
            let lines: Vec<&str> = report.lines().collect();
            assert!(lines[2].ends_with(&format!("unhealthy: {why}")), "{report}");
            let rest = "  total -, free -, pci -, capability -, multiprocessors -, bandwidth -";
            assert_eq!(lines[3], rest);
        }
    }
}

#[test]
fn files_that_are_no_libraries_are_as_good_as_none() {
    check(
        &[],
        &[],
        expect![[r#"
            cuda: absent: no driver library 'libcuda'
            nvml: absent: no driver library 'libnvidia-ml'
        "#]],
    );
}
