//! The real probes against drivers that exist only here: each is compiled with `cc` and loaded in a child process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

#[path = "../support/bundle.rs"]
mod bundle;
mod cuda;
mod fixtures;
mod isolated;
mod measuring;
mod nvml;
#[path = "../support/shown.rs"]
mod shown;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use expect_test::Expect;
use plimsoll_profile::{
    Accelerator, DeviceMetrics, Health, Machine, Presence, Probe, ProbeMode, SystemProfile, read_metrics_of,
    read_processes,
};

/// What stands before each line of the child's report.
const MARK: &str = "| ";

/// The names by which CUDA's library is looked for.
const CUDA: &[&str] = &["libcuda.so.1", "libcuda.so"];
/// And the management library.
const NVML: &[&str] = &["libnvidia-ml.so.1"];

/// A library to load.
enum Library {
    /// Compiled from this source with these flags, under these names.
    Compiled(&'static [&'static str], &'static str, &'static [&'static str]),
    /// Files of these names that are no library.
    Text(&'static [&'static str]),
}

/// CUDA's library, compiled with these flags.
const fn cuda(flags: &'static [&'static str]) -> Library {
    Library::Compiled(CUDA, "cuda.c", flags)
}

/// The management library, compiled with these flags.
const fn nvml(flags: &'static [&'static str]) -> Library {
    Library::Compiled(NVML, "nvml.c", flags)
}

/// What was made in this run, so that nothing is made twice.
static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

impl Library {
    /// The folder in which it is found, or `None` when there is no compiler.
    fn folder(&self) -> Option<PathBuf> {
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("drivers");
        let folder = match self {
            Self::Compiled(files, _, flags) => all.join(format!("{}{}", files[0], flags.concat())),
            Self::Text(files) => all.join(format!("{}-text", files[0])),
        };
        // Tests run side by side: none may find another's file half written.
        let mut made = MADE.lock().unwrap();
        if made.insert(folder.clone()) {
            fs::create_dir_all(&folder).unwrap();
            for file in self.files() {
                let library = folder.join(file);
                match self {
                    Self::Compiled(_, source, flags) => compile(source, flags, &library)?,
                    Self::Text(_) => fs::write(library, "this is not a library").unwrap(),
                }
            }
        }
        Some(folder)
    }

    const fn files(&self) -> &'static [&'static str] {
        match self {
            Self::Compiled(files, ..) | Self::Text(files) => files,
        }
    }
}

/// `None` when there is no compiler.
fn compile(source: &str, flags: &[&str], library: &Path) -> Option<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake").join(source);
    let unfinished = library.with_extension(std::process::id().to_string());
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1"]).args(flags).arg(source).arg("-o").arg(&unfinished);
    match cc.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            fs::rename(unfinished, library).unwrap();
            Some(())
        }
        Err(why) => {
            let in_ci = std::env::var("CI").is_ok_and(|value| !value.is_empty());
            assert!(!in_ci, "no C compiler: {why}");
            eprintln!("skipped: no C compiler ('cc': {why}), so no driver can be made");
            None
        }
    }
}

/// This test program again, running one of its ignored tests with these libraries found first. What is not among them is not
/// found, whatever this machine has.
fn child(test: &str, libraries: &[Library], settings: &[(&str, &str)]) -> Option<Command> {
    let given = |files: &&&'static [&str]| libraries.iter().any(|library| library.files() == **files);
    let others = [CUDA, NVML].iter().filter(|files| !given(files)).map(|files| Library::Text(files).folder());
    let folders: Option<Vec<PathBuf>> = libraries.iter().map(Library::folder).chain(others).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", std::env::join_paths(folders?).unwrap())
        // Vulkan's drivers are another test's, and slow to load.
        .env("VK_DRIVER_FILES", "/none")
        .env("VK_ICD_FILENAMES", "/none")
        .envs(settings.iter().copied());
    Some(command)
}

/// What the probes say when these libraries are found first.
fn report(libraries: &[Library], settings: &[(&str, &str)]) -> Option<String> {
    Some(lines(&mut child("looks", libraries, settings)?))
}

/// What a child says in lines that are marked.
fn lines(child: &mut Command) -> String {
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    said.lines().filter_map(|line| line.strip_prefix(MARK)).map(|line| format!("{line}\n")).collect()
}

fn check(libraries: &[Library], settings: &[(&str, &str)], expected: Expect) {
    if let Some(report) = report(libraries, settings) {
        expected.assert_eq(&report);
    }
}

#[test]
#[ignore = "the child in which the other tests load their drivers"]
fn looks() {
    let machine = std::env::var_os("FAKE_ROOT").map_or_else(Machine::here, Machine::at);
    let mut out = told(&machine);
    if std::env::var_os("FAKE_ASK_PROCESSES").is_some() {
        writeln!(out, "{}", processes()).unwrap();
    }
    // The harness leaves its own line open.
    println!();
    for line in out.lines() {
        println!("{MARK}{line}");
    }
}

#[test]
#[ignore = "the child that looks at a captured machine with the drivers of other tests"]
fn machine() {
    let machine = std::env::var_os("FAKE_ROOT").map_or_else(Machine::here, Machine::at);
    let profile = SystemProfile::detect_with(&machine, ProbeMode::Full);
    #[expect(clippy::disallowed_methods, reason = "the caller owns the clock")]
    let metrics = read_metrics_of(&machine, &profile, std::time::Instant::now());
    println!();
    for line in shown::machine(&profile, &metrics, false).lines() {
        println!("{MARK}{line}");
    }
}

#[test]
#[ignore = "the child that another process asks for a look"]
fn answers() {
    // The harness leaves its own line open.
    println!();
    let question = std::env::var("FAKE_QUESTION").unwrap_or_default();
    plimsoll_profile::isolated::answer(&question, &mut std::io::stdout()).unwrap();
}

/// What two looks at a machine say, in lines.
fn told(machine: &Machine) -> String {
    let profile = SystemProfile::detect_with(machine, ProbeMode::Full);
    assert_eq!(profile, SystemProfile::detect_with(machine, ProbeMode::Full), "two looks differ");
    #[expect(clippy::disallowed_methods, reason = "the caller owns the clock")]
    let now = std::time::Instant::now();
    let live = read_metrics_of(machine, &profile, now);
    let mut out = String::new();
    for probe in [Probe::Cuda, Probe::Nvml] {
        match profile.source(probe).unwrap() {
            Presence::Found(count) => writeln!(out, "{probe}: {count}"),
            Presence::Absent(why) => writeln!(out, "{probe}: absent: {why}"),
        }
        .unwrap();
    }
    for gpu in &profile.accelerators {
        out.push_str(&line(gpu, &live.accelerators[&gpu.id]));
    }
    out
}

fn line(gpu: &Accelerator, live: &DeviceMetrics) -> String {
    let shown = |known: Option<String>| known.unwrap_or_else(|| "-".to_owned());
    let health = match &gpu.health {
        Health::Healthy => "healthy".to_owned(),
        Health::Unhealthy(why) => format!("unhealthy: {why}"),
    };
    let free = live.free.as_result();
    let busy = live.busy.as_result().map_or_else(|_| String::new(), |busy| format!(", busy {busy} %"));
    format!(
        "{gpu}: {}, {health}\n  total {}, free {}, pci {}, capability {}, multiprocessors {}, bandwidth {}{busy}\n",
        gpu.kind,
        shown(gpu.total.map(|t| t.exact().to_string())),
        free.map_or_else(|_| "-".to_owned(), |f| f.exact().to_string()),
        shown(gpu.pci.clone()),
        shown(gpu.compute_capability.map(|(major, minor)| format!("{major}.{minor}"))),
        shown(gpu.multiprocessors.map(|n| n.to_string())),
        shown(gpu.bandwidth.map(|rate| rate.to_string())),
    )
}

fn processes() -> String {
    let devices = match read_processes() {
        Presence::Found(devices) => devices,
        Presence::Absent(why) => return format!("processes: absent: {why}"),
    };
    let of = |(id, held): (String, Presence<Vec<plimsoll_profile::ProcessMemory>>)| match held {
        Presence::Found(held) => {
            let shown = held.iter().take(4).map(|p| {
                let bytes = p.bytes.map_or_else(|| "unknown".to_owned(), |b| b.exact().to_string());
                format!("{} {bytes}", p.pid)
            });
            format!("held on {id} by {}: {}", held.len(), shown.collect::<Vec<_>>().join(", "))
        }
        Presence::Absent(why) => format!("held on {id}: absent: {why}"),
    };
    devices.into_iter().map(of).collect::<Vec<_>>().join("\n")
}
