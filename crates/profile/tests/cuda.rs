//! The real probe against drivers that exist only here: each is compiled with `cc` and loaded in a child process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::{Expect, expect};
use plimsoll_profile::{FreeMemory, Health, Presence, Probe, SystemProfile};

/// What stands before each line of the child's report.
const MARK: &str = "| ";

/// A driver to load.
enum Driver {
    /// Compiled with these flags.
    Compiled(&'static [&'static str]),
    /// A file that is no library.
    Text,
    /// No file.
    None,
}

/// A folder in which the driver is found, or `None` when there is no compiler.
fn folder(name: &str, driver: &Driver) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("drivers").join(name);
    fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libcuda.so.1");
    match driver {
        Driver::None => {}
        Driver::Text => {
            for file in ["libcuda.so", "libcuda.so.1"] {
                fs::write(folder.join(file), "this is not a library").unwrap();
            }
        }
        Driver::Compiled(flags) => {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/cuda.c");
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-O1"]).args(*flags).arg(source).arg("-o").arg(&library);
            match cc.output() {
                Ok(output) => {
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                }
                Err(why) => {
                    let in_ci = std::env::var("CI").is_ok_and(|value| !value.is_empty());
                    assert!(!in_ci, "no C compiler: {why}");
                    eprintln!("skipped: no C compiler ('cc': {why}), so no driver can be made");
                    return None;
                }
            }
        }
    }
    Some(folder)
}

/// What the probe says when `driver` is found first.
fn report(name: &str, driver: &Driver, settings: &[(&str, &str)]) -> Option<String> {
    let folder = folder(name, driver)?;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", folder)
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    Some(said.lines().filter_map(|line| line.strip_prefix(MARK)).map(|line| format!("{line}\n")).collect())
}

fn check(name: &str, driver: &Driver, settings: &[(&str, &str)], expected: Expect) {
    if let Some(report) = report(name, driver, settings) {
        expected.assert_eq(&report);
    }
}

const WHOLE: Driver = Driver::Compiled(&[]);

#[test]
#[ignore = "the child in which the other tests load their drivers"]
fn child() {
    let profile = SystemProfile::detect();
    let free = FreeMemory::read(&profile);
    let mut out = match profile.source(Probe::Cuda).unwrap() {
        Presence::Found(count) => format!("found {count}\n"),
        Presence::Absent(why) => format!("absent: {why}\n"),
    };
    for gpu in &profile.accelerators {
        let shown = |known: Option<String>| known.unwrap_or_else(|| "-".to_owned());
        let health = match &gpu.health {
            Health::Healthy => "healthy".to_owned(),
            Health::Unhealthy(why) => format!("unhealthy: {why}"),
        };
        writeln!(out, "{gpu}: {}, {health}", gpu.kind).unwrap();
        writeln!(
            out,
            "  total {}, free {}, pci {}, capability {}, multiprocessors {}, bandwidth {}",
            shown(gpu.total.map(|t| t.exact().to_string())),
            shown(free.accelerators.get(&gpu.id).map(|f| f.exact().to_string())),
            shown(gpu.pci.clone()),
            shown(gpu.compute_capability.map(|(major, minor)| format!("{major}.{minor}"))),
            shown(gpu.multiprocessors.map(|n| n.to_string())),
            shown(gpu.bandwidth.map(|rate| rate.to_string())),
        )
        .unwrap();
    }
    // The harness leaves its own line open.
    println!();
    for line in out.lines() {
        println!("{MARK}{line}");
    }
}

#[test]
fn two_devices_are_told_with_all_that_is_known() {
    check(
        "two",
        &WHOLE,
        &[],
        expect![[r#"
            found 2
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
        "integrated",
        &WHOLE,
        &[("FAKE_INTEGRATED", "1"), ("FAKE_COUNT", "1")],
        expect![[r#"
            found 1
            GPU 0 'NVIDIA GeForce RTX 4090' GPU-10101010-1010-1010-1010-101010101010: integrated, healthy
              total 24 GiB, free 1 GiB, pci 0000:01:00.0, capability 8.9, multiprocessors 128, bandwidth 1.008 TB/s
        "#]],
    );
}

#[test]
fn one_lost_device_never_hides_the_others() {
    check(
        "lost",
        &WHOLE,
        &[("FAKE_LOST", "0")],
        expect![[r#"
            found 2
            GPU 0 cuda-0: discrete, unhealthy: cuDeviceTotalMem_v2 failed with code 999
              total -, free -, pci -, capability -, multiprocessors -, bandwidth -
            GPU 1 'NVIDIA A100-SXM4-40GB MIG 1g.5gb' MIG-11111111-1111-1111-1111-111111111111: slice, healthy
              total 5 GiB, free 2 GiB, pci 0000:02:00.0, capability 8.0, multiprocessors 14, bandwidth 1.555 TB/s
        "#]],
    );
    check(
        "gone",
        &WHOLE,
        &[("FAKE_GONE", "1")],
        expect![[r#"
            found 2
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
        ("100", "absent: the driver sees no device\n"),
        ("803", "absent: cuInit failed with code 803\n"),
        ("999", "absent: cuInit failed with code 999\n"),
        // A code that no header knows.
        ("1234567", "absent: cuInit failed with code 1234567\n"),
        ("-5", "absent: cuInit failed with code -5\n"),
    ] {
        if let Some(report) = report("init", &WHOLE, &[("FAKE_INIT", code)]) {
            assert_eq!(report, told);
        }
    }
}

#[test]
fn counts_that_cannot_be_are_held_in_bounds() {
    for (count, told) in
        [("0", "absent: the driver sees no device"), ("-7", "absent: the driver sees no device")]
    {
        if let Some(report) = report("count", &WHOLE, &[("FAKE_COUNT", count)]) {
            assert_eq!(report.trim_end(), told);
        }
    }
    if let Some(report) = report("count", &WHOLE, &[("FAKE_COUNT", "2147483647"), ("FAKE_RETAIN", "2")]) {
        assert_eq!(report.lines().next(), Some("found 1024"));
    }
}

#[test]
fn a_missing_call_is_named() {
    check(
        "no-attributes",
        &Driver::Compiled(&["-DWITHOUT_ATTRIBUTES"]),
        &[],
        expect![[r#"
            absent: the driver library has no 'cuDeviceGetAttribute'; it is too old or not the driver's
        "#]],
    );
}

#[test]
fn without_contexts_devices_are_listed_and_what_is_free_is_unknown() {
    let without = Driver::Compiled(&["-DWITHOUT_CONTEXTS"]);
    for (name, driver, setting) in [
        ("no-contexts", &without, ("FAKE_COUNT", "2")),
        ("no-retain", &WHOLE, ("FAKE_RETAIN", "2")),
        ("too-free", &WHOLE, ("FAKE_FREE", "1")),
    ] {
        check(
            name,
            driver,
            &[setting],
            expect![[r#"
                found 2
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
        if let Some(report) = report("garbage", &WHOLE, &settings) {
            let lines: Vec<&str> = report.lines().collect();
            assert!(lines[1].ends_with(&format!("unhealthy: {why}")), "{report}");
            let rest = "  total -, free -, pci -, capability -, multiprocessors -, bandwidth -";
            assert_eq!(lines[2], rest);
        }
    }
}

#[test]
fn a_file_that_is_no_library_is_as_good_as_none() {
    check(
        "text",
        &Driver::Text,
        &[],
        expect![[r#"
        absent: no driver library 'libcuda'
    "#]],
    );
}

#[test]
fn without_a_library_nothing_is_found() {
    let listed = Command::new("ldconfig").arg("-p").output();
    let installed = listed.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("libcuda.so"));
    if installed {
        eprintln!("skipped: this machine has NVIDIA's driver, so its absence cannot be tried");
        return;
    }
    check(
        "none",
        &Driver::None,
        &[],
        expect![[r#"
        absent: no driver library 'libcuda'
    "#]],
    );
}
