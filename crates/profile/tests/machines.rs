//! What is made of the kernel files of other machines.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_profile::{
    Absence, CgroupVersion, Cores, Machine, MemoryReading, Presence, Probe, ProbeMode, SystemProfile,
};
use plimsoll_units::Bytes;
use proptest::prelude::*;

/// A tree of kernel files.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machines").join(name);
        if root.exists() {
            fs::remove_dir_all(&root).unwrap();
        }
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    /// A captured machine: `--- PATH` before the text of each file.
    fn captured(name: &str, text: &str) -> Self {
        text.split("--- ").skip(1).fold(Self::new(name), |tree, part| {
            let (path, text) = part.split_once('\n').unwrap();
            tree.file(path, text)
        })
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Host memory in kB.
    fn meminfo(self, total: u64, available: u64) -> Self {
        let text = format!("MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n");
        self.file("proc/meminfo", &text)
    }

    /// The second generation of control groups, this process in `group`.
    fn unified(self, group: &str) -> Self {
        self.file("proc/self/cgroup", &format!("0::{group}\n")).file(
            "proc/self/mountinfo",
            "24 1 0:21 / /proc rw - proc proc rw\n30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
        )
    }

    /// The first generation, this process in `group`.
    fn legacy(self, group: &str) -> Self {
        self.file("proc/self/cgroup", &format!("4:memory:{group}\n2:cpu,cpuacct:{group}\n0::/\n")).file(
            "proc/self/mountinfo",
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        )
    }

    /// Logical processors as (package, core).
    fn cpus(self, cpus: &[(u32, u32)]) -> Self {
        let online = format!("0-{}\n", cpus.len() - 1);
        let start = self.file("sys/devices/system/cpu/online", &online);
        cpus.iter().enumerate().fold(start, |tree, (n, (package, core))| {
            let dir = format!("sys/devices/system/cpu/cpu{n}/topology");
            tree.file(&format!("{dir}/physical_package_id"), &package.to_string())
                .file(&format!("{dir}/core_id"), &core.to_string())
        })
    }

    fn affinity(self, list: &str) -> Self {
        self.file("proc/self/status", &format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\n"))
    }

    fn machine(&self) -> Machine {
        Machine::at(&self.0)
    }

    fn memory(&self) -> MemoryReading {
        self.machine().memory().found().unwrap()
    }

    fn cores(&self) -> Cores {
        self.machine().cores().found().unwrap()
    }
}

const GIB_IN_KB: u64 = 1 << 20;

#[test]
fn without_limits_the_host_counts() {
    let tree = Tree::new("host").meminfo(64 * GIB_IN_KB, 50 * GIB_IN_KB);
    let memory = tree.memory();
    assert_eq!((memory.profile.total, memory.profile.host_total), (Bytes::gib(64), Bytes::gib(64)));
    assert_eq!((memory.available, memory.profile.limit), (Some(Bytes::gib(50)), None));
}

#[test]
fn sizes_beyond_32_bits_are_exact() {
    // In 32 bits these would be 1808, 3616 and 1328 MiB.
    for mebibytes in [10_000_u32, 20_000, 30_000] {
        let tree = Tree::new("wide")
            .meminfo(u64::from(mebibytes) * 1024, u64::from(mebibytes) * 1024)
            .unified("/")
            .file("sys/fs/cgroup/memory.max", &(u64::from(mebibytes) << 20).to_string());
        assert_eq!(tree.memory().profile.total, Bytes::mib(mebibytes));
    }
}

#[test]
fn a_pod_has_the_memory_of_its_limit() {
    let tree = Tree::new("pod")
        .meminfo(726_296_166, 700_000_000)
        .unified("/")
        .file("sys/fs/cgroup/memory.max", "161061273600\n")
        .file("sys/fs/cgroup/memory.current", "0\n");
    let memory = tree.memory();
    assert_eq!(memory.profile.total, Bytes::gib(150));
    assert_eq!(memory.available, Some(Bytes::gib(150)));
    let limit = memory.profile.limit.unwrap();
    assert_eq!((limit.path.as_str(), limit.version), ("/sys/fs/cgroup/memory.max", CgroupVersion::V2));
}

#[test]
fn free_under_a_limit_counts_what_can_be_given_back() {
    let tree = Tree::new("give-back")
        .meminfo(40 * GIB_IN_KB, 34 * GIB_IN_KB)
        .unified("/a")
        .file("sys/fs/cgroup/a/memory.max", "2147483648\n")
        .file("sys/fs/cgroup/a/memory.current", "1610612736\n")
        .file("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 536870912\nactive_file 7\n");
    let memory = tree.memory();
    assert_eq!(memory.profile.total, Bytes::gib(2));
    assert_eq!(memory.available, Some(Bytes::gib(1)));
}

#[test]
fn the_limit_of_a_parent_binds_and_so_does_what_it_has_free() {
    let tree = Tree::new("parent")
        .meminfo(64 * GIB_IN_KB, 60 * GIB_IN_KB)
        .unified("/slice/job/leaf")
        .file("sys/fs/cgroup/slice/job/leaf/memory.max", "max\n")
        .file("sys/fs/cgroup/slice/job/leaf/memory.current", "5\n")
        .file("sys/fs/cgroup/slice/job/memory.max", "4294967296\n")
        .file("sys/fs/cgroup/slice/job/memory.current", "1073741824\n")
        .file("sys/fs/cgroup/slice/memory.max", "8589934592\n")
        .file("sys/fs/cgroup/slice/memory.current", "7516192768\n");
    let memory = tree.memory();
    assert_eq!(memory.profile.total, Bytes::gib(4));
    assert_eq!(memory.profile.limit.unwrap().path, "/sys/fs/cgroup/slice/job/memory.max");
    // The job may take 3 GiB more, but the slice above has only 1 GiB left for all its jobs.
    assert_eq!(memory.available, Some(Bytes::gib(1)));
}

#[test]
fn the_first_generation_says_no_limit_with_a_large_number() {
    let tree = Tree::new("sentinel")
        .meminfo(64 * GIB_IN_KB, 60 * GIB_IN_KB)
        .legacy("/job")
        .file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
        .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    let memory = tree.memory();
    assert_eq!((memory.profile.total, memory.available), (Bytes::gib(64), Some(Bytes::gib(60))));
    assert_eq!(memory.profile.limit, None);
}

#[test]
fn both_generations_are_walked_and_the_tighter_one_counts() {
    let tree = Tree::new("hybrid")
        .meminfo(64 * GIB_IN_KB, 60 * GIB_IN_KB)
        .legacy("/job")
        .file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
        .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "17179869184\n")
        .file("sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n")
        .file("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 1073741824\n");
    let memory = tree.memory();
    assert_eq!((memory.profile.total, memory.available), (Bytes::gib(16), Some(Bytes::gib(15))));
    let tree = tree.file("sys/fs/cgroup/unified/memory.max", "8589934592");
    let memory = tree.memory();
    assert_eq!(memory.profile.total, Bytes::gib(8));
    assert_eq!(memory.profile.limit.unwrap().version, CgroupVersion::V2);
    // How much of the 8 GiB is in use is not told.
    assert_eq!(memory.available, None);
}

#[test]
fn a_container_that_sees_only_its_own_group_finds_its_limit() {
    // The group is named from the host's root, but only that group is mounted.
    let mounts = "30 24 0:26 /docker/f00 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    for (name, group) in [("named", "/docker/f00"), ("inner", "/docker/f00/x"), ("outside", "/../other")] {
        let tree = Tree::new(&format!("container-{name}"))
            .meminfo(64 * GIB_IN_KB, 60 * GIB_IN_KB)
            .file("proc/self/cgroup", &format!("0::{group}\n"))
            .file("proc/self/mountinfo", mounts)
            .file("sys/fs/cgroup/memory.max", "1073741824");
        assert_eq!(tree.memory().profile.total, Bytes::gib(1), "{name}");
    }
}

#[test]
fn a_garbled_limit_makes_the_total_unknown() {
    for (name, text) in
        [("empty", ""), ("words", "lots"), ("negative", "-1"), ("long", "99999999999999999999")]
    {
        let tree = Tree::new(&format!("garbled-{name}"))
            .meminfo(64 * GIB_IN_KB, 60 * GIB_IN_KB)
            .unified("/")
            .file("sys/fs/cgroup/memory.max", text);
        let expected =
            Absence::Garbled { what: "/sys/fs/cgroup/memory.max".to_owned(), text: text.to_owned() };
        assert_eq!(tree.machine().memory(), Presence::Absent(expected));
    }
}

#[test]
fn garbled_use_makes_what_is_free_unknown_and_leaves_the_total() {
    let tree = Tree::new("garbled-use")
        .meminfo(64 * GIB_IN_KB, 60 * GIB_IN_KB)
        .unified("/")
        .file("sys/fs/cgroup/memory.max", "1073741824")
        .file("sys/fs/cgroup/memory.current", "x");
    assert_eq!((tree.memory().profile.total, tree.memory().available), (Bytes::gib(1), None));
}

#[test]
fn a_machine_without_files_is_unknown_and_nothing_else() {
    let tree = Tree::new("nothing");
    let no = |path: &str| Absence::NoFile { path: path.to_owned() };
    assert_eq!(tree.machine().memory(), Presence::Absent(no("/proc/meminfo")));
    assert_eq!(tree.machine().cores(), Presence::Absent(no("/sys/devices/system/cpu/online")));
    assert_eq!(tree.machine().cpu_quota(), Presence::Found(None));
    for text in ["", "MemTotal: x kB", "MemTotal: 5", "MemTotal: 99999999999999999999 kB"] {
        let tree = Tree::new("no-total").file("proc/meminfo", text);
        assert!(matches!(tree.machine().memory(), Presence::Absent(Absence::Garbled { .. })), "{text}");
    }
    let profile = SystemProfile::detect_with(&tree.machine(), ProbeMode::Fast);
    assert!(profile.recommended_workers() >= 1);
    assert_eq!(profile.source(Probe::Cuda), Some(&Presence::Absent(Absence::NotAsked)));
    assert_eq!(profile.source(Probe::Memory), Some(&Presence::Absent(no("/proc/meminfo"))));
}

/// `count` cores with `threads` each, siblings far apart, on one package.
fn one_package(count: u32, threads: u32) -> Vec<(u32, u32)> {
    (0..count * threads).map(|cpu| (0, cpu % count)).collect()
}

#[test]
fn a_fractional_quota_is_rounded_down() {
    let tree = Tree::new("quota-fraction")
        .cpus(&one_package(96, 1))
        .unified("/pod")
        .file("sys/fs/cgroup/pod/cpu.max", "765000 100000\n");
    assert_eq!((tree.cores().physical, tree.cores().usable), (96, 7));
    let tree = tree.file("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
    assert_eq!(tree.cores().usable, 1);
}

#[test]
fn siblings_on_one_core_count_once() {
    let pairs: Vec<(u32, u32)> = (0..16).map(|cpu| (0, cpu / 2)).collect();
    let tree = Tree::new("siblings").cpus(&pairs).affinity("0-7");
    let cores = tree.cores();
    assert_eq!((cores.logical, cores.allowed, cores.physical, cores.usable), (16, 8, 4, 4));
}

#[test]
fn affinity_binds_below_the_quota() {
    let tree = Tree::new("affinity")
        .cpus(&one_package(16, 1))
        .affinity("0-1")
        .unified("/")
        .file("sys/fs/cgroup/cpu.max", "800000 100000");
    assert_eq!(tree.cores().usable, 2);
}

#[test]
fn no_quota_leaves_all_cores() {
    let tree = Tree::new("no-quota")
        .cpus(&one_package(8, 2))
        .unified("/")
        .file("sys/fs/cgroup/cpu.max", "max 100000");
    let cores = tree.cores();
    assert_eq!((cores.logical, cores.physical, cores.quota, cores.usable), (16, 8, None, 8));
    let tree = Tree::new("no-quota-v1")
        .cpus(&one_package(8, 2))
        .legacy("/a")
        .file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
    assert_eq!((tree.cores().quota, tree.cores().usable), (None, 8));
}

#[test]
fn the_tightest_quota_on_the_way_to_the_root_counts() {
    let tree = Tree::new("quota-parent")
        .cpus(&one_package(8, 1))
        .legacy("/a/b")
        .file("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "600000")
        .file("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000")
        .file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "150000")
        .file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000");
    assert_eq!(tree.cores().usable, 3);
}

#[test]
fn a_garbled_quota_is_reported_and_counts_as_none() {
    let tree = Tree::new("quota-garbled")
        .cpus(&one_package(4, 1))
        .unified("/")
        .file("sys/fs/cgroup/cpu.max", "100 0\n");
    assert_eq!(tree.cores().usable, 4);
    assert!(matches!(tree.machine().cpu_quota(), Presence::Absent(Absence::Garbled { .. })));
}

#[test]
fn core_numbers_repeat_from_package_to_package() {
    let two_packages: Vec<(u32, u32)> = (0..16).map(|cpu| (cpu / 4 % 2, cpu % 4)).collect();
    let tree = Tree::new("packages").cpus(&two_packages);
    assert_eq!((tree.cores().logical, tree.cores().physical), (16, 8));
}

#[test]
fn affinity_alone_counts_processors_as_cores() {
    let tree = Tree::new("affinity-alone").affinity("0-2,7");
    let cores = tree.cores();
    assert_eq!((cores.logical, cores.allowed, cores.physical, cores.usable), (4, 4, 4, 4));
    let nowhere = Tree::new("affinity-nowhere").cpus(&one_package(2, 1)).affinity("5");
    assert!(matches!(nowhere.machine().cores(), Presence::Absent(Absence::Garbled { .. })));
}

#[test]
fn a_small_server_in_a_hybrid_tree_is_read_as_it_was_captured() {
    let tree = Tree::captured("server", include_str!("fixtures/hybrid-server.txt"));
    let memory = tree.memory();
    assert_eq!(memory.profile.host_total, Bytes::new(24_684_084 * 1024));
    // The nodes of its memory add up to something else, and nobody adds them up.
    assert_eq!(memory.profile.total, Bytes::new(24_684_084 * 1024));
    assert_eq!(memory.available, Some(Bytes::new(23_100_416 * 1024)));
    let cores = tree.cores();
    assert_eq!((cores.logical, cores.allowed, cores.physical, cores.quota), (2, 2, 1, None));
    let profile = SystemProfile::detect_with(&tree.machine(), ProbeMode::Fast);
    assert_eq!(profile.cpu.cores, cores);
}

/// What a kernel file may say, and what it may not.
fn content() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<u64>().prop_map(|n| n.to_string()),
        (0_u64..1 << 38).prop_map(|n| n.to_string()),
        (any::<u32>(), 0_u32..200_000).prop_map(|(quota, period)| format!("{quota} {period}")),
        (0_u32..70, 0_u32..70).prop_map(|(a, b)| format!("{a}-{b},3")),
        any::<u64>().prop_map(|n| format!("MemTotal: {n} kB\nMemAvailable: {n} kB\ninactive_file {n}")),
        (1_u64..1 << 38).prop_map(|n| format!("MemTotal: {n} kB\nMemAvailable: {} kB", n / 2)),
        any::<u64>().prop_map(|n| format!("Cpus_allowed_list: {}\n0::/a/../b\n4:memory,cpu:/a", n % 99)),
        Just("max".to_owned()),
        Just("-1".to_owned()),
        "\\PC{0,20}",
    ]
}

/// Every file that is read.
const FILES: &[&str] = &[
    "proc/meminfo",
    "proc/self/cgroup",
    "proc/self/status",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu1/topology/core_id",
    "sys/devices/system/cpu/cpu1/topology/physical_package_id",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/memory/memory.limit_in_bytes",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
    "sys/fs/cgroup/memory/memory.usage_in_bytes",
    "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us",
    "sys/fs/cgroup/cpu/a/cpu.cfs_period_us",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_files_say_no_more_is_free_than_there_is_and_something_can_run(
        contents in prop::collection::vec(prop::option::weighted(0.8, content()), FILES.len())
    ) {
        let tree = FILES.iter().zip(&contents).fold(Tree::new("anything"), |tree, (path, text)| match text {
            Some(text) => tree.file(path, text),
            None => tree,
        });
        if let Presence::Found(memory) = tree.machine().memory() {
            prop_assert!(memory.profile.total <= memory.profile.host_total);
            prop_assert!(memory.available.is_none_or(|free| free <= memory.profile.total));
            prop_assert_eq!(memory.profile.limit.is_some(), memory.profile.total < memory.profile.host_total);
        }
        if let Presence::Found(cores) = tree.machine().cores() {
            prop_assert!(1 <= cores.usable && cores.usable <= cores.physical);
            prop_assert!(cores.physical <= cores.allowed && cores.allowed <= cores.logical);
        }
        let profile = SystemProfile::detect_with(&tree.machine(), ProbeMode::Fast);
        prop_assert!(profile.recommended_workers() >= 1);
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_the_feature_the_driver_is_not_asked() {
    let closed = Absence::NotCompiled { feature: "cuda" };
    assert_eq!(SystemProfile::detect().source(Probe::Cuda), Some(&Presence::Absent(closed)));
}

#[cfg(not(feature = "cpu"))]
#[test]
fn without_the_feature_the_registers_are_not_read() {
    let closed = Absence::NotCompiled { feature: "cpu" };
    assert_eq!(SystemProfile::detect_fast().cpu.features, Presence::Absent(closed));
}

#[test]
fn two_looks_at_the_same_machine_are_equal() {
    assert_eq!(SystemProfile::detect_fast(), SystemProfile::detect_fast());
}

#[cfg(all(feature = "cuda", feature = "nvml"))]
#[test]
fn without_libraries_nothing_is_found() {
    let has = |name: &str| {
        let listed = std::process::Command::new("ldconfig").arg("-p").output();
        listed.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(name))
    };
    let profile = SystemProfile::detect();
    for (probe, library) in [(Probe::Cuda, "libcuda"), (Probe::Nvml, "libnvidia-ml")] {
        let missing = Presence::Absent(Absence::NoLibrary { library });
        assert!(has(library) || profile.source(probe) == Some(&missing), "{profile:?}");
    }
}
