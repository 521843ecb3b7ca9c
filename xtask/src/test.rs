//! `cargo xtask test`: installs what the tests lack, then runs them all.

use anyhow::{Context, Result, bail};

use crate::{debian, python, shell};

/// What to run.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TestArgs {
    /// Run only tests whose name contains one of these (examples in documentation are left out then).
    filter: Vec<String>,
    /// Also run the tests that need a device, and let a missing device fail them.
    #[arg(long)]
    gpu: bool,
}

/// Environment variables that tests look at.
type Environment = Vec<(&'static str, std::ffi::OsString)>;

/// Prepares and runs; the runner's closing lines are the last that appear.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    debian::protoc()?;
    let environment = prepare(args.gpu)?;
    if !has_nextest() {
        println!("cargo-nextest is not installed: running `cargo test`");
        return run_with(&mut cargo_test(args), &environment);
    }
    if args.filter.is_empty() {
        println!("examples in documentation");
        run_with(
            shell::cargo().args(["test", "--doc", "--workspace", "--all-features", "--quiet"]),
            &environment,
        )?;
    }
    run_with(&mut nextest(args), &environment)
}

fn has_nextest() -> bool {
    shell::succeeds(shell::cargo().args(["nextest", "--version"]))
}

fn nextest(args: &TestArgs) -> std::process::Command {
    let mut command = shell::cargo();
    command.args(["nextest", "run", "--workspace", "--all-features"]);
    command.args(["--profile", if shell::in_ci() { "ci" } else { "default" }]);
    if args.gpu {
        command.args(["--run-ignored", "all"]);
    }
    command.args(&args.filter);
    command
}

fn cargo_test(args: &TestArgs) -> std::process::Command {
    let mut command = shell::cargo();
    command.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    if !args.filter.is_empty() {
        // Benches know no filters, and examples in documentation have no names to look for.
        command.args(["--lib", "--bins", "--tests"]);
    }
    command.arg("--");
    if args.gpu {
        command.arg("--include-ignored");
    }
    command.args(&args.filter);
    command
}

fn run_with(command: &mut std::process::Command, environment: &Environment) -> Result<()> {
    for (key, value) in environment {
        command.env(key, value);
    }
    let line = shell::typed(command);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("tests failed ({status})\nto run them again: cargo xtask test");
    }
    Ok(())
}

/// What the tests lack, installed where that is possible.
///
/// In CI whatever cannot be had is a failure.
/// Elsewhere it is a line that says what is skipped, and the tests that need it say so too.
fn prepare(gpu: bool) -> Result<Environment> {
    let mut environment = Environment::new();
    if gpu {
        environment.push(("PLIMSOLL_GPU", "1".into()));
    }
    if shell::in_ci() {
        environment.push(("PLIMSOLL_FAULT_SECONDS", "60".into()));
    }
    if cfg!(target_os = "linux") {
        match software_vulkan() {
            Ok(()) => environment.push(("PLIMSOLL_TEST_VULKAN", "1".into())),
            Err(error) if shell::in_ci() => {
                return Err(error.context("tests lack a Vulkan driver, and in CI nothing is skipped"));
            }
            Err(error) => println!("skipped: detection through Vulkan: {error}"),
        }
        match debian::etcd() {
            Ok(()) => {}
            Err(error) if shell::in_ci() => {
                return Err(error.context("tests lack etcd, and in CI nothing is skipped"));
            }
            Err(error) => println!("skipped: clusters in etcd: {error}"),
        }
    }
    if cfg!(target_os = "linux") {
        match browser() {
            Ok(()) => {}
            Err(error) if shell::in_ci() => {
                return Err(error.context("tests lack a browser, and in CI nothing is skipped"));
            }
            Err(error) => println!("skipped: the agent's page in a browser: {error}"),
        }
    }
    // Whoever brings both needs nothing installed.
    if std::env::var_os("PLIMSOLL_PYTHON").is_some() && std::env::var_os("PLIMSOLL_SMOLLM2").is_some() {
        return Ok(environment);
    }
    match python::prepare() {
        Ok(python) => {
            println!("PLIMSOLL_PYTHON={}", python.interpreter.display());
            println!("PLIMSOLL_SMOLLM2={}", python.model.display());
            environment.push(("PLIMSOLL_PYTHON", python.interpreter.into()));
            environment.push(("PLIMSOLL_SMOLLM2", python.model.into()));
        }
        Err(error) if shell::in_ci() => {
            return Err(error.context("tests lack Python packages, and in CI nothing is skipped"));
        }
        Err(error) => println!("skipped: comparisons with Python's reader and a real model: {error}"),
    }
    Ok(environment)
}

/// A browser, installed where there is none.
fn browser() -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::var_os("PLIMSOLL_CHROMIUM").is_some()
        || std::env::split_paths(&path).any(|folder| folder.join("chromium").is_file());
    if there { Ok(()) } else { debian::install(&["chromium"]) }
}

/// Vulkan's loader and a driver that needs no card, installed where they are not there.
fn software_vulkan() -> Result<()> {
    let is_it = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("lvp_icd");
    let there = std::fs::read_dir("/usr/share/vulkan/icd.d")
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_it)));
    if there { Ok(()) } else { debian::install(&["libvulkan1", "mesa-vulkan-drivers"]) }
}
