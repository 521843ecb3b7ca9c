//! `cargo xtask verify`: everything that CI runs, in the same order, without writing to the tree.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cargo_metadata::TargetKind;

use crate::{debian, layers, shell, test, tidy};

/// What to leave out.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Leave the tests of the whole workspace to `cargo xtask test`.
    #[arg(long)]
    skip_tests: bool,
}

/// How a step ended that did not fail.
enum Ended {
    /// Done, with something to say or nothing.
    Ok(String),
    /// Not done, because of this.
    Skipped(String),
}

/// All steps, the tests included.
pub(crate) fn everything() -> Result<()> {
    run(&VerifyArgs { skip_tests: false })
}

/// Runs the steps and stops at the first that fails.
pub(crate) fn run(args: &VerifyArgs) -> Result<()> {
    let before = tree()?;
    debian::protoc()?;
    step("lock", "cargo metadata --locked", lock)?;
    step("fmt", "cargo fmt --all --check", || need("fmt", &["fmt", "--all", "--check"]))?;
    step("layers", "cargo xtask layers", || layers::checked().map(Ended::Ok))?;
    step("tidy", "cargo xtask tidy", || tidy::checked().map(Ended::Ok))?;
    step("deny", "cargo deny check licenses bans sources", deny)?;
    step("msrv", "rustc --version", msrv)?;
    step("clippy", "cargo clippy --workspace --all-targets --all-features -- -D warnings", || {
        let all = [
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ];
        need("clippy", &all)
    })?;
    step("doc", "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps --all-features", || {
        let mut doc = shell::cargo();
        doc.args(["doc", "--quiet", "--workspace", "--no-deps", "--all-features", "--locked"]);
        quiet(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    for name in published_libraries()? {
        alone(&name)?;
    }
    if !args.skip_tests {
        let (done, time) = shell::timed(|| test::run(&test::TestArgs::default()));
        done?;
        report("test", time, &Ended::Ok(String::new()));
    }
    if tree()? != before {
        bail!("a step wrote to the tree; `git status` shows where");
    }
    Ok(())
}

/// The library crates of a release, lowest first: what breaks at the bottom is seen there.
fn published_libraries() -> Result<Vec<String>> {
    let metadata = shell::metadata()?;
    let published = metadata.packages.iter().filter(|package| shell::is_published(package));
    let libraries = published
        .filter(|package| package.targets.iter().any(|target| target.kind.contains(&TargetKind::Lib)));
    let mut names: Vec<String> = libraries.map(|package| package.name.to_string()).collect();
    names.sort_by_key(|name| layers::rank(name));
    Ok(names)
}

/// One library crate by itself, with nothing but what it cannot do without.
///
/// Clippy builds without the features that dev-dependencies switch on, the tests build with them.
fn alone(name: &str) -> Result<()> {
    let lint = format!("cargo clippy -p {name} --no-default-features -- -D warnings");
    step(&format!("{name} alone, lints"), &lint, || {
        need(
            "clippy",
            &["clippy", "--quiet", "-p", name, "--no-default-features", "--locked", "--", "-D", "warnings"],
        )
    })?;
    let tests = format!("cargo test -p {name} --no-default-features");
    step(&format!("{name} alone, tests"), &tests, || {
        let mut test = shell::cargo();
        test.args(["test", "--quiet", "-p", name, "--no-default-features", "--locked"]);
        // What tests lack is installed for the run of all of them: here they may do without.
        quiet(test.env_remove("CI"))
    })
}

fn quiet(command: &mut Command) -> Result<Ended> {
    shell::quiet(command).map(|_| Ended::Ok(String::new()))
}

/// Runs one step; a failure ends with what to type.
fn step(name: &str, again: &str, work: impl FnOnce() -> Result<Ended>) -> Result<()> {
    let (done, time) = shell::timed(work);
    match done {
        Ok(ended) => report(name, time, &ended),
        Err(error) => {
            bail!("{error:#}\n\nfailed: {name}, after {:.1} s\nto see it again: {again}", time.as_secs_f64())
        }
    }
    Ok(())
}

/// One line about a step that is over.
fn report(name: &str, time: Duration, ended: &Ended) {
    let (word, more) = match ended {
        Ended::Ok(more) => ("ok", more),
        Ended::Skipped(why) => ("skipped:", why),
    };
    println!("{}", format!("{word:<8} {name:<32} {:>7.1} s  {more}", time.as_secs_f64()).trim_end());
}

/// A cargo tool that a toolchain usually has: its absence is a failure in CI and a line elsewhere.
fn need(tool: &str, args: &[&str]) -> Result<Ended> {
    if shell::succeeds(shell::cargo().args([tool, "--version"])) {
        return quiet(shell::cargo().args(args));
    }
    if shell::in_ci() {
        bail!("cargo {tool} is not installed, and in CI nothing is skipped");
    }
    Ok(Ended::Skipped(format!("cargo {tool} is not installed")))
}

/// The lock file is current, and in CI also committed.
fn lock() -> Result<Ended> {
    shell::quiet(shell::cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
    if shell::in_ci() {
        let diff = shell::git(&["diff", "--exit-code", "--stat", "--", "Cargo.lock"]);
        diff.context("Cargo.lock was not current when it was committed")?;
    }
    Ok(Ended::Ok(String::new()))
}

/// Licences, bans and sources, where cargo-deny is installed.
///
/// It is optional even in CI: it takes longer to build than most of the other steps together.
fn deny() -> Result<Ended> {
    if !shell::succeeds(shell::cargo().args(["deny", "--version"])) {
        return Ok(Ended::Skipped("cargo-deny is not installed".to_owned()));
    }
    let check = ["deny", "--offline", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
    quiet(shell::cargo().args(check))
}

/// The compiler in use is at least the one that the workspace declares.
fn msrv() -> Result<Ended> {
    let metadata = shell::metadata()?;
    let compiler = shell::quiet(shell::program("rustc").arg("--version"))?;
    let version = compiler.split(' ').nth(1).unwrap_or_default();
    let mut lowest = None;
    for package in &metadata.packages {
        let Some(declared) = &package.rust_version else {
            bail!("{} declares no rust-version", package.name)
        };
        if numbers(version) < (declared.major, declared.minor) {
            bail!("{} declares rust-version {declared}, this is {version}", package.name);
        }
        lowest = Some(declared);
    }
    let declared = lowest.context("the workspace is empty")?;
    Ok(Ended::Ok(format!("{declared} is declared, {version} is used")))
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
