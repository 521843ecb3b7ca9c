//! The management library, alone and beside CUDA.

use expect_test::expect;

use crate::{Library, NVML, check, cuda, nvml, report};

fn both(settings: &[(&str, &str)]) -> Option<String> {
    report(&[cuda(&[]), nvml(&[])], settings)
}

/// The lines of a report that say what is free, cut to that.
fn free(report: &str) -> Vec<&str> {
    report.lines().filter_map(|line| line.split(", ").find_map(|part| part.strip_prefix("free "))).collect()
}

#[test]
fn the_same_card_is_one_device_however_the_libraries_number_it() {
    let settings = [("FAKE_CUDA", "4090,3090"), ("FAKE_NVML", "3090,4090")];
    check(
        &[cuda(&[]), nvml(&[])],
        &settings,
        expect![[r#"
            cuda: 2
            nvml: 2
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: discrete, healthy
              total 24 GiB, free 22 GiB, pci 0000:01:00.0, capability 8.9, multiprocessors 128, bandwidth 1.008 TB/s, busy 37 %
            GPU 1 'NVIDIA GeForce RTX 3090' GPU-30303030-3030-3030-3030-303030303030: discrete, healthy
              total 24 GiB, free 24276 MiB, pci 0000:03:00.0, capability 8.6, multiprocessors 82, bandwidth 936.096 GB/s, busy 37 %
        "#]],
    );
    let Some(by_name) = both(&settings) else { return };
    // Any order of the management library, and a driver that tells no unique names: the same.
    for other in [
        both(&[("FAKE_CUDA", "4090,3090"), ("FAKE_NVML", "4090,3090")]),
        both(&[settings[0], settings[1], ("FAKE_NO_UUID", "1")]),
    ] {
        assert_eq!(other.as_deref(), Some(by_name.as_str()));
    }
    let swapped = both(&[("FAKE_CUDA", "3090,4090"), ("FAKE_NVML", "4090,3090")]).unwrap();
    assert_eq!(free(&by_name), ["22 GiB", "24276 MiB"]);
    assert_eq!(free(&swapped), ["24276 MiB", "22 GiB"]);
}

#[test]
fn slices_are_told_in_the_place_of_their_card() {
    check(
        &[nvml(&[])],
        &[("FAKE_NVML", "4090,a100"), ("FAKE_MIG", "a100"), ("FAKE_SLICES", "2g,1g")],
        expect![[r#"
            cuda: absent: no driver library 'libcuda'
            nvml: 3
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: discrete, unhealthy: no driver library 'libcuda'
              total 24 GiB, free -, pci 0000:01:00.0, capability 8.9, multiprocessors -, bandwidth 1.008 TB/s
            GPU 1 'NVIDIA A100-SXM4-40GB MIG 2g.10gb' MIG-12121212-1212-1212-1212-121212121212: slice, unhealthy: no driver library 'libcuda'
              total 10 GiB, free -, pci 0000:02:00.0, capability 8.0, multiprocessors 28, bandwidth -
            GPU 2 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' MIG-11111111-1111-1111-1111-111111111111: slice, unhealthy: no driver library 'libcuda'
              total 5 GiB, free -, pci 0000:02:00.0, capability 8.0, multiprocessors 14, bandwidth -
        "#]],
    );
    // CUDA shows a process one slice at most.
    check(
        &[cuda(&[]), nvml(&[])],
        &[("FAKE_CUDA", "1g"), ("FAKE_NVML", "a100"), ("FAKE_MIG", "a100"), ("FAKE_MOST_SLICES", "-1")],
        expect![[r#"
            cuda: 1
            nvml: 2
            GPU 0 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' MIG-11111111-1111-1111-1111-111111111111: slice, healthy
              total 5 GiB, free 4 GiB, pci 0000:02:00.0, capability 8.0, multiprocessors 14, bandwidth 1.555 TB/s
            GPU 1 'NVIDIA A100-SXM4-40GB MIG 2g.10gb' MIG-12121212-1212-1212-1212-121212121212: slice, unhealthy: CUDA does not show it to this process
              total 10 GiB, free -, pci 0000:02:00.0, capability 8.0, multiprocessors 28, bandwidth -
        "#]],
    );
    check(
        &[nvml(&[])],
        &[("FAKE_NVML", "a100"), ("FAKE_MIG", "a100"), ("FAKE_SLICES", "")],
        expect![[r#"
            cuda: absent: no driver library 'libcuda'
            nvml: 1
            GPU 0 'NVIDIA A100-SXM4-40GB' GPU-20202020-2020-2020-2020-202020202020: discrete, unhealthy: it is divided (MIG), and no slice has been made
              total 40 GiB, free -, pci 0000:02:00.0, capability 8.0, multiprocessors -, bandwidth 1.555 TB/s
        "#]],
    );
}

#[test]
fn seven_of_eight_cards_are_there_when_one_is_lost() {
    let all = "h0,h1,h2,h3,h4,h5,h6,h7";
    for libraries in [vec![nvml(&[])], vec![cuda(&[]), nvml(&[])]] {
        let settings = [("FAKE_CUDA", all), ("FAKE_NVML", all), ("FAKE_NVML_LOST", "h3"), ("FAKE_LOST", "3")];
        let Some(report) = report(&libraries, &settings) else { return };
        let of = |health: &str| report.lines().filter(|line| line.ends_with(health)).count();
        let healthy = if libraries.len() == 2 { 7 } else { 0 };
        assert_eq!(of(", healthy"), healthy, "{report}");
        assert_eq!(report.lines().filter(|line| line.starts_with("GPU ")).count(), 8, "{report}");
        assert_eq!(of("unhealthy: nvmlDeviceGetHandleByIndex_v2 failed with code 15"), 1, "{report}");
    }
}

#[test]
fn a_board_on_the_hosts_memory_has_the_hosts_figures() {
    check(
        &[cuda(&[]), nvml(&[])],
        &[
            ("FAKE_CUDA", "gb10"),
            ("FAKE_NVML", "gb10"),
            ("FAKE_ROOT", concat!(env!("CARGO_TARGET_TMPDIR"), "/none")),
        ],
        expect![[r#"
            cuda: 1
            nvml: 1
            GPU 0 'NVIDIA GB10' GPU-40404040-4040-4040-4040-404040404040: integrated, healthy
              total 127600748 KiB, free -, pci 0000:0f:00.0, capability 12.1, multiprocessors 48, bandwidth -, busy 37 %
        "#]],
    );
}

#[test]
fn a_card_that_cuda_does_not_show_is_listed_and_not_used() {
    check(
        &[cuda(&[]), nvml(&[])],
        &[("FAKE_CUDA", "4090"), ("FAKE_NVML", "3090,4090")],
        expect![[r#"
            cuda: 1
            nvml: 2
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: discrete, healthy
              total 24 GiB, free 22 GiB, pci 0000:01:00.0, capability 8.9, multiprocessors 128, bandwidth 1.008 TB/s, busy 37 %
            GPU 1 'NVIDIA GeForce RTX 3090' GPU-30303030-3030-3030-3030-303030303030: discrete, unhealthy: CUDA does not show it to this process
              total 24 GiB, free -, pci 0000:03:00.0, capability 8.6, multiprocessors -, bandwidth 936.096 GB/s
        "#]],
    );
    check(
        &[cuda(&[]), nvml(&[])],
        &[("FAKE_INIT", "803"), ("FAKE_NVML", "3090")],
        expect![[r#"
            cuda: absent: cuInit failed with code 803
            nvml: 1
            GPU 0 'NVIDIA GeForce RTX 3090' GPU-30303030-3030-3030-3030-303030303030: discrete, unhealthy: cuInit failed with code 803
              total 24 GiB, free -, pci 0000:03:00.0, capability 8.6, multiprocessors -, bandwidth 936.096 GB/s
        "#]],
    );
}

#[test]
fn an_old_library_tells_memory_by_its_old_call() {
    let whole = [("FAKE_CUDA", "4090"), ("FAKE_NVML", "4090")];
    let Some(new) = both(&whole) else { return };
    assert_eq!(free(&new), ["22 GiB"]);
    assert_eq!(both(&[whole[0], whole[1], ("FAKE_NVML_OLD", "1")]).as_deref(), Some(new.as_str()));
    let without = report(&[cuda(&[]), nvml(&["-DWITHOUT_MEMORY_V2"])], &whole);
    assert_eq!(without.as_deref(), Some(new.as_str()));
}

#[test]
fn a_library_that_does_not_start_or_cannot_end_is_told() {
    for (library, setting, why) in [
        (nvml(&[]), ("FAKE_NVML_INIT", "9"), "nvmlInit_v2 failed with code 9"),
        (nvml(&[]), ("FAKE_NVML_INIT", "18"), "nvmlInit_v2 failed with code 18"),
        (nvml(&[]), ("FAKE_NVML_INIT", "-1"), "nvmlInit_v2 failed with code 2147483647"),
        (
            nvml(&["-DWITHOUT_SHUTDOWN"]),
            ("FAKE_NVML", "4090"),
            "the driver library has no 'nvmlShutdown'; it is too old or not the driver's",
        ),
        (Library::Text(NVML), ("FAKE_NVML", "4090"), "no driver library 'libnvidia-ml'"),
        (nvml(&[]), ("FAKE_NVML", ""), "the driver sees no device"),
    ] {
        let Some(report) = report(&[cuda(&[]), library], &[setting]) else { return };
        assert_eq!(report.lines().nth(1), Some(format!("nvml: absent: {why}").as_str()));
        // What is free is then asked of the driver itself.
        assert_eq!(free(&report), ["1 GiB", "2 GiB"]);
    }
}

#[test]
fn values_that_cannot_be_make_the_figure_unknown_and_the_card_unhealthy() {
    for (garbage, why) in [
        ("1", "nvmlDeviceGetMemoryInfo_v2 says '0', which cannot be"),
        ("2", "nvmlDeviceGetMemoryInfo_v2 says '18446744073709551615', which cannot be"),
        ("3", "nvmlDeviceGetMemoryInfo_v2 says '25769803777 free of 25769803776', which cannot be"),
        ("4", "nvmlDeviceGetMemoryInfo_v2 failed with code 1234567"),
    ] {
        let settings = [("FAKE_CUDA", "4090"), ("FAKE_NVML_GARBAGE", garbage)];
        let Some(report) = both(&settings) else { return };
        assert!(report.contains(&format!("unhealthy: {why}\n")), "{report}");
        assert_eq!(free(&report), ["-"]);
    }
    // A count that cannot be is held in bounds.
    let settings = [("FAKE_CUDA", "4090"), ("FAKE_NVML_COUNT", "-1")];
    let Some(report) = both(&settings) else { return };
    assert_eq!(report.lines().nth(1), Some("nvml: 1024"));
}

#[test]
fn processes_are_told_by_device_and_never_more_than_fit() {
    let ask = |count: &str, more: (&str, &str)| {
        let settings = [
            ("FAKE_ASK_PROCESSES", "1"),
            ("FAKE_CUDA", "4090,3090"),
            ("FAKE_NVML", "3090,4090"),
            ("FAKE_NVML_LOST", "3090"),
            ("FAKE_PROCESSES", count),
            more,
        ];
        let report = both(&settings)?;
        Some(report.lines().filter(|line| line.starts_with("held")).map(str::to_owned).collect::<Vec<_>>())
    };
    let none = ("FAKE_NONE", "");
    let Some(two) = ask("2", none) else { return };
    let card = "held on GPU-10101010-1010-1010-1010-101010101010";
    assert_eq!(
        two,
        [
            format!("{card} by 2: 1000 1 GiB, 1001 unknown"),
            "held on nvml-0: absent: nvmlDeviceGetHandleByIndex_v2 failed with code 15".to_owned()
        ]
    );
    assert_eq!(ask("0", none).unwrap()[0], format!("{card} by 0: "));
    assert!(ask("300", none).unwrap()[0].starts_with(&format!("{card} by 300: ")));
    // A library that says that all is well and counts more than it was given room for.
    assert!(
        ask("2000000000", ("FAKE_PROCESSES_FIT", "1")).unwrap()[0].starts_with(&format!("{card} by 256: "))
    );
    let why = "nvmlDeviceGetComputeRunningProcesses_v3 failed with code 7";
    assert_eq!(ask("2000000000", none).unwrap()[0], format!("{card}: absent: {why}"));
}
