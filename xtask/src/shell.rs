//! Running other programs from the workspace root, with an environment that rebuilds nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// Set to 0, cargo keeps nothing for the next build; it changes no result, so it is not worth typing.
const NO_INCREMENTAL: &str = "CARGO_INCREMENTAL";

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Whether a missing tool is a failure: any value of `CI` but the empty one.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

/// A program that starts in the workspace root and reads nothing from the terminal.
///
/// What `cargo run` tells the chore about its own package is taken out again: build scripts that look at those
/// names would otherwise run anew each time the same command is typed by hand.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    for (key, _) in std::env::vars_os() {
        let own = key.to_str().is_some_and(|key| {
            key.starts_with("CARGO_PKG_")
                || key.starts_with("CARGO_MANIFEST_")
                || matches!(key, "CARGO_BIN_NAME" | "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE")
        });
        if own {
            command.env_remove(key);
        }
    }
    command
}

/// The cargo that runs this chore.
pub(crate) fn cargo() -> Command {
    let mut cargo = program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    if in_ci() {
        // Nothing is built twice there, so what would make a second build quicker only costs.
        cargo.env(NO_INCREMENTAL, "0");
    }
    cargo
}

/// The command as a person would type it.
pub(crate) fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = match program.strip_prefix(root()) {
        Ok(ours) => ours.to_string_lossy().into_owned(),
        Err(_) => program.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let set = command.get_envs().filter_map(|(key, value)| {
        let value = value.filter(|_| key != NO_INCREMENTAL)?.to_string_lossy();
        let quoted = if value.contains(' ') { format!("\"{value}\"") } else { value.into_owned() };
        Some(format!("{}={quoted}", key.to_string_lossy()))
    });
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    set.chain([name]).chain(args).collect::<Vec<_>>().join(" ")
}

/// Whether the command starts and succeeds; its output is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs the command with its output on the terminal.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    let line = typed(command);
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs the command in silence; a failure says which command it was, and carries what it printed as its cause.
pub(crate) fn quiet(command: &mut Command) -> Result<String> {
    let line = typed(command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let printed = anyhow!("\n{}{}", stderr.trim_end(), stdout.trim_end());
        return Err(printed.context(format!("`{line}` failed ({})", output.status)));
    }
    Ok(stdout)
}

/// What git prints, whoever owns the checkout.
pub(crate) fn git(args: &[&str]) -> Result<String> {
    quiet(program("git").args(["-c", "safe.directory=*"]).args(args))
}

/// The workspace as cargo describes it, without what it stands on.
pub(crate) fn metadata() -> Result<cargo_metadata::Metadata> {
    let text = quiet(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    cargo_metadata::MetadataCommand::parse(text.trim()).context("cannot read what `cargo metadata` printed")
}

/// The packages that a release contains.
pub(crate) fn is_published(package: &cargo_metadata::Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

/// Does the work and says how long it took.
#[expect(clippy::disallowed_methods, reason = "chores report wall time; nothing is decided by it")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}
