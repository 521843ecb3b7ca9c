//! `cargo xtask verify`: everything that CI runs, in the same order, without writing to the tree.

use std::process::Command;

use anyhow::{Result, bail};
use cargo_metadata::TargetKind;

use crate::{layers, shell, test, tidy};

/// What to leave out.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Leave the tests of the whole workspace to `cargo xtask test`.
    #[arg(long)]
    skip_tests: bool,
}

/// All steps, the tests included.
pub(crate) fn everything() -> Result<()> {
    run(&VerifyArgs { skip_tests: false })
}

/// Runs the steps and stops at the first that fails.
pub(crate) fn run(args: &VerifyArgs) -> Result<()> {
    let before = tree()?;
    step("lock", "cargo metadata, then commit Cargo.lock", lock)?;
    step("fmt", "cargo xtask fix", || need("fmt", &["fmt", "--all", "--check"]))?;
    step("layers", "cargo xtask layers", layers::run)?;
    step("tidy", "cargo xtask tidy", tidy::run)?;
    step("deny", "cargo deny check licenses bans sources", deny)?;
    step("clippy", "cargo clippy --workspace --all-targets --all-features", || {
        let all =
            ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
        need("clippy", &all)
    })?;
    step("doc", "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps --all-features", || {
        let mut doc = shell::cargo();
        doc.args(["doc", "--workspace", "--no-deps", "--all-features", "--locked"]);
        shell::quiet(doc.env("RUSTDOCFLAGS", "-D warnings")).map(|_| ())
    })?;
    let metadata = shell::metadata()?;
    for package in metadata.packages.iter().filter(|package| shell::is_published(package)) {
        if package.targets.iter().any(|target| target.kind.contains(&TargetKind::Lib)) {
            alone(&package.name)?;
        }
    }
    step("msrv", "rustc --version", msrv)?;
    if !args.skip_tests {
        let (done, time) = shell::timed(|| test::run(&test::TestArgs::default()));
        done?;
        println!("ok {:<28} {:>7.1} s", "test", time.as_secs_f64());
    }
    if tree()? != before {
        bail!("a step wrote to the tree; `git status` shows where");
    }
    Ok(())
}

/// One library crate by itself, with nothing but what it cannot do without.
///
/// Clippy builds without the features that dev-dependencies switch on, the tests build with them.
fn alone(name: &str) -> Result<()> {
    let lint = format!("cargo clippy -p {name} --no-default-features");
    step(&format!("{name} alone, lints"), &lint, || {
        need("clippy", &["clippy", "-p", name, "--no-default-features", "--locked", "--", "-D", "warnings"])
    })?;
    let tests = format!("cargo test -p {name} --no-default-features");
    step(&format!("{name} alone, tests"), &tests, || {
        shell::quiet(shell::cargo().args(["test", "-p", name, "--no-default-features", "--locked"]))
            .map(|_| ())
    })
}

/// Runs one step; a failure ends with what to type.
fn step(name: &str, again: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (done, time) = shell::timed(work);
    match done {
        Ok(()) => println!("ok {name:<28} {:>7.1} s", time.as_secs_f64()),
        Err(error) => {
            bail!("{error:#}\n\nfailed: {name}, after {:.1} s\nto see it again: {again}", time.as_secs_f64())
        }
    }
    Ok(())
}

/// A cargo tool that a toolchain usually has: its absence is a failure in CI and a line elsewhere.
fn need(tool: &str, args: &[&str]) -> Result<()> {
    if shell::succeeds(shell::cargo().args([tool, "--version"])) {
        return shell::quiet(shell::cargo().args(args)).map(|_| ());
    }
    if shell::in_ci() {
        bail!("cargo {tool} is not installed, and in CI nothing is skipped");
    }
    println!("skipped: cargo {tool} is not installed");
    Ok(())
}

/// The lock file is current, and in CI also committed.
fn lock() -> Result<()> {
    shell::quiet(shell::cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
    if shell::in_ci() {
        shell::git(&["diff", "--exit-code", "--stat", "--", "Cargo.lock"])?;
    }
    Ok(())
}

/// Licences, bans and sources, where cargo-deny is installed.
///
/// It is optional even in CI: it takes longer to build than all the other steps together.
fn deny() -> Result<()> {
    if !shell::succeeds(shell::cargo().args(["deny", "--version"])) {
        println!("skipped: cargo-deny is not installed");
        return Ok(());
    }
    let check = ["deny", "--offline", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
    shell::quiet(shell::cargo().args(check)).map(|_| ())
}

/// The compiler in use is at least the one that the workspace declares.
fn msrv() -> Result<()> {
    let metadata = shell::metadata()?;
    let compiler = shell::quiet(Command::new("rustc").arg("--version"))?;
    let version = compiler.split(' ').nth(1).unwrap_or_default();
    let used = numbers(version);
    for package in &metadata.packages {
        let Some(declared) = &package.rust_version else {
            bail!("{} declares no rust-version", package.name)
        };
        let oldest = (declared.major, declared.minor);
        if used < oldest {
            bail!("{} declares rust-version {declared}, this is {version}", package.name);
        }
        if used > oldest && package.name == "plimsoll" {
            println!("rust-version {declared} is declared, {version} is what was checked");
        }
    }
    Ok(())
}

fn numbers(version: &str) -> (u64, u64) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Everything about the tree that a step could change.
fn tree() -> Result<String> {
    Ok(shell::git(&["status", "--porcelain"])? + &shell::git(&["diff"])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(numbers("1.95.0"), (1, 95));
        assert!(numbers("1.100.0-nightly") > numbers("1.95.1"));
        assert_eq!(numbers(""), (0, 0));
    }
}
