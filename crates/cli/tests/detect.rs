//! `plimsoll detect`: on this machine, under limits, and with drivers that exist only here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

#[path = "support/drivers.rs"]
mod drivers;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use drivers::drivers;
use serde_json::Value;

fn plimsoll(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args);
    command
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(plimsoll(args).output().unwrap())).unwrap()
}

#[test]
fn it_agrees_with_the_kernel_and_with_lscpu() {
    let told = json(&["detect", "--fast", "--json"]);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let kilobytes: u64 = total.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
    assert_eq!(told["memory"]["host_total_bytes"], kilobytes * 1024);
    let Ok(output) = Command::new("lscpu").arg("-p=CPU,CORE,SOCKET").output() else {
        eprintln!("skipped: no lscpu");
        return;
    };
    let listed = text(output);
    let lines: Vec<&str> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    let sockets: BTreeSet<&str> = lines.iter().map(|line| line.rsplit(',').next().unwrap()).collect();
    assert_eq!(told["cpu"]["logical"], lines.len());
    assert_eq!(told["cpu"]["packages"], sockets.len());
    if told["cpu"]["allowed"] == told["cpu"]["logical"] {
        let cores: BTreeSet<&str> = lines.iter().map(|line| line.split_once(',').unwrap().1).collect();
        assert_eq!(told["cpu"]["physical"], cores.len());
    }
}

#[test]
fn a_limit_of_a_parent_group_is_found_and_named() {
    // The first generation's memory controller, where this test may make groups.
    let parent = Path::new("/sys/fs/cgroup/memory").join(format!("plimsoll-{}", std::process::id()));
    let own = parent.join("inner");
    let limited =
        fs::create_dir_all(&own).and_then(|()| fs::write(parent.join("memory.limit_in_bytes"), "1073741824"));
    if let Err(why) = limited {
        eprintln!("skipped: no group can be made here: {why}");
        return;
    }
    let shell = format!("echo $$ > {}/cgroup.procs && exec \"$0\" detect --fast --json", own.display());
    let output = Command::new("sh").args(["-c", &shell, env!("CARGO_BIN_EXE_plimsoll")]).output().unwrap();
    let _gone = (fs::remove_dir(&own), fs::remove_dir(&parent));
    let told: Value = serde_json::from_str(&text(output)).unwrap();
    assert_eq!(told["memory"]["total_bytes"], 1_u64 << 30);
    let file = format!("{}/memory.limit_in_bytes", parent.display());
    assert_eq!(told["memory"]["limited_by"], file);
    assert!(told["memory"]["free_bytes"].as_u64().unwrap() <= 1 << 30);
}

#[test]
fn cards_keep_their_own_figures_however_the_libraries_number_them() {
    let Some(folder) = drivers("order") else { return };
    let mut command = plimsoll(&["detect", "--emit", "node"]);
    let node =
        command.env("LD_LIBRARY_PATH", &folder).env("FAKE_CUDA", "4090,3090").env("FAKE_NVML", "3090,4090");
    let node = text(node.output().unwrap());
    let card = |n: u32, name: &str, free: &str| {
        format!(
            "id = \"CUDA{n}\"\nname = \"NVIDIA GeForce RTX {name}\"\nmemory = \"24 GiB\"\nfree = \"{free}\"\n"
        )
    };
    assert!(node.contains(&card(0, "4090", "22 GiB")), "{node}");
    assert!(node.contains(&card(1, "3090", "24276 MiB")), "{node}");
}

#[test]
fn a_driver_that_crashes_or_hangs_costs_a_line() {
    let Some(folder) = drivers("crash") else { return };
    for (library, does, why) in [
        ("FAKE_CUDA_DOES", "crash", "the driver ended the process that asked (signal: 11"),
        ("FAKE_NVML_DOES", "exit", "the driver ended the process that asked (exit status: 7)"),
        ("FAKE_CUDA_DOES", "hang", "timed out: no answer within 1500 ms"),
    ] {
        let mut command = plimsoll(&["detect", "--json"]);
        command.env("LD_LIBRARY_PATH", &folder).env(library, does);
        if does == "hang" {
            command.env("PLIMSOLL_DRIVER_LIMIT_MS", "1500");
        }
        let told: Value = serde_json::from_str(&text(command.output().unwrap())).unwrap();
        let probe = if library.contains("CUDA") { "cuda" } else { "nvml" };
        let sources = told["sources"].as_array().unwrap();
        let source = sources.iter().find(|source| source["probe"] == probe).unwrap();
        assert!(source["absent"].as_str().unwrap().starts_with(why), "{source}");
        // The rest of the machine is there all the same.
        assert!(told["memory"]["free_bytes"].is_u64());
    }
}

#[test]
fn a_measurement_is_said_to_be_one_and_goes_into_the_node() {
    let output = plimsoll(&["detect", "--fast", "--measure", "--json"]).output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let told: Value = serde_json::from_str(&text(output)).unwrap();
    let measured = &told["measured"];
    assert!(measured["host_bytes_per_second"].as_u64().unwrap() > 0);
    assert!(measured["read_bytes"].as_u64().unwrap() > 0);
    assert!(json(&["detect", "--fast", "--json"])["measured"].is_null());
    let node = text(plimsoll(&["detect", "--fast", "--emit", "node"]).output().unwrap());
    assert!(!node.contains("memory_bandwidth"), "{node}");
}

#[test]
fn cards_are_measured_too_and_one_that_fails_costs_a_line() {
    let Some(folder) = drivers("measure") else { return };
    let asked = |args: &[&str], fails: &str| {
        let mut command = plimsoll(args);
        command.env("LD_LIBRARY_PATH", &folder).env("FAKE_CUDA", "4090").env("FAKE_NVML", "4090");
        let output = command.env("FAKE_FAILS", fails).output().unwrap();
        if !output.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(text(output))
    };
    let Some(told) = asked(&["detect", "--measure", "--json"], "") else { return };
    let told: Value = serde_json::from_str(&told).unwrap();
    let card = &told["measured_accelerators"][0];
    assert_eq!(card["id"], told["accelerators"][0]["id"]);
    assert!(card["bytes_per_second"].as_u64().unwrap() > 0, "{card}");
    assert!(card["not_measured"].is_null());
    assert!(json(&["detect", "--fast", "--json"])["measured_accelerators"].as_array().unwrap().is_empty());

    let Some(node) = asked(&["detect", "--measure", "--emit", "node"], "") else { return };
    let (host, card) = node.split_once("[[node.device]]").unwrap();
    assert!(host.contains("memory_bandwidth = ") && card.contains("bandwidth = "), "{node}");
    // What the driver tells of its clock and its width is another figure.
    assert!(!card.contains("1008"), "{node}");

    let Some(told) = asked(&["detect", "--measure"], "cuMemAlloc_v2") else { return };
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("is not: cuMemAlloc_v2 failed with code 2"), "{told}");
}

#[test]
fn a_fast_look_loads_no_driver() {
    let told = json(&["detect", "--fast", "--json"]);
    for source in told["sources"].as_array().unwrap() {
        if ["cuda", "nvml", "vulkan"].contains(&source["probe"].as_str().unwrap()) {
            assert_eq!(source["absent"], "not looked for in a fast probe");
        }
    }
}

#[test]
fn the_childs_side_takes_no_other_question() {
    let output = plimsoll(&["__look", "hello"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("this is for plimsoll itself"));
}
