//! `cargo xtask instructions`: how many instructions the hottest paths take, held against the counts that are kept.
//!
//! Counts come from valgrind's simulated processor, so they hold still on a machine that others use.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::PACKAGE;
use crate::{debian, shell};

/// The bench target whose harness counts.
pub(super) const BENCH: &str = "instructions";

/// Where the counts are kept, from the workspace root.
const FILE: &str = "benches/instructions.toml";

/// The harness's other half, which must have the version of the library that the benches are built with.
const RUNNER: &str = "gungraun-runner";

/// More than so many per cent above the kept count fails.
const MOST_MORE: u64 = 5;

/// What to do with the counts.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct InstructionArgs {
    /// Keep what was counted: the change in instructions is meant.
    #[arg(long)]
    accept: bool,
}

/// Instructions by path.
type Counts = BTreeMap<String, u64>;

/// Counts and compares; in CI the tools that this takes are installed.
pub(crate) fn run(args: &InstructionArgs) -> Result<()> {
    let counted = count(&runner()?)?;
    if args.accept {
        std::fs::write(shell::root().join(FILE), written(&counted))
            .with_context(|| format!("cannot write {FILE}"))?;
        println!("wrote {FILE}");
        return Ok(());
    }
    let kept = kept(
        &std::fs::read_to_string(shell::root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?,
    )?;
    let (text, worse) = compared(&counted, &kept);
    print!("{text}");
    if worse > 0 {
        bail!(
            "{worse} paths take over {MOST_MORE} % more instructions than {FILE} says\nwhere that is meant: cargo xtask instructions --accept"
        );
    }
    Ok(())
}

/// The runner of the right version, and valgrind beside it.
fn runner() -> Result<PathBuf> {
    if !shell::succeeds(shell::program("valgrind").arg("--version")) {
        debian::install(&["valgrind"]).context("there is no valgrind")?;
    }
    let version = library_version()?;
    let target = shell::metadata()?.target_directory;
    let home = target.join("tools").join(format!("{RUNNER}-{version}")).into_std_path_buf();
    for place in [PathBuf::from(RUNNER), home.join("bin").join(RUNNER)] {
        let told = shell::quiet(shell::program(&place).arg("--version")).unwrap_or_default();
        if told.trim().ends_with(&version) {
            return Ok(place);
        }
    }
    if !shell::in_ci() {
        bail!("{RUNNER} {version} is missing: cargo install --locked --version {version} {RUNNER}");
    }
    println!("{RUNNER} {version} is installed once");
    let mut install = shell::cargo();
    install.args(["install", "--quiet", "--locked", "--version", &version, RUNNER, "--root"]).arg(&home);
    shell::show(&mut install)?;
    Ok(home.join("bin").join(RUNNER))
}

/// The version of the library that `Cargo.lock` names.
fn library_version() -> Result<String> {
    let text = std::fs::read_to_string(shell::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let lock: toml::Table = text.parse().context("Cargo.lock is not TOML")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let mut named = packages.filter(|p| p.get("name").and_then(toml::Value::as_str) == Some("gungraun"));
    let version = named.next().and_then(|p| p.get("version")?.as_str().map(str::to_owned));
    version.context("Cargo.lock names no gungraun")
}

fn count(runner: &std::path::Path) -> Result<Counts> {
    let mut command = shell::cargo();
    command.args(["bench", "--quiet", "--package", PACKAGE, "--bench", BENCH, "--", "--output-format=json"]);
    counts(&shell::quiet(command.env("GUNGRAUN_RUNNER", runner))?)
}

/// What the harness printed, a line of JSON a path.
fn counts(printed: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in printed.lines().filter(|line| line.starts_with('{')) {
        let summary: Value = serde_json::from_str(line).context("the harness did not print JSON")?;
        let path = summary["function_name"].as_str().context("a summary without a function's name")?;
        let total = summary.pointer("/profiles/0/data/total/metrics/Ir/values/new").and_then(Value::as_u64);
        let total = total.context("a summary without instructions")?;
        let id = summary["id"].as_str().map_or_else(String::new, |id| format!(" {id}"));
        counts.insert(format!("{path}{id}"), total);
    }
    if counts.is_empty() {
        bail!("the harness counted nothing:\n{printed}");
    }
    Ok(counts)
}

/// The whole file, counts in the order of their names.
fn written(counts: &Counts) -> String {
    let mut text =
        "# Instructions of the hottest paths, as `cargo xtask instructions --accept` counted them.\n"
            .to_owned();
    for (path, count) in counts {
        text += &format!("\"{path}\" = {count}\n");
    }
    text
}

fn kept(text: &str) -> Result<Counts> {
    let table: toml::Table = text.parse().with_context(|| format!("{FILE} is not TOML"))?;
    let count = |(path, value): (&String, &toml::Value)| {
        let count = value.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        Ok((path.clone(), count.with_context(|| format!("{FILE}: '{path}' is not a count"))?))
    };
    table.iter().map(count).collect()
}

/// A line a path, and how many are worse.
fn compared(counted: &Counts, kept: &Counts) -> (String, usize) {
    let mut text = String::new();
    let mut worse = 0;
    for (path, &count) in counted {
        let told = match kept.get(path) {
            None => "not kept yet".to_owned(),
            Some(&kept) => {
                let fails = count.saturating_mul(100) > kept.saturating_mul(100 + MOST_MORE);
                worse += usize::from(fails);
                let change = (as_f64(count) / as_f64(kept) - 1.0) * 100.0;
                format!("{change:+.1} %{}", if fails { ", too many" } else { "" })
            }
        };
        text += &format!("{path:<36} {count:>12} instructions  {told}\n");
    }
    for path in kept.keys().filter(|path| !counted.contains_key(*path)) {
        worse += 1;
        text += &format!("{path:<36} was not counted\n");
    }
    (text, worse)
}

#[expect(clippy::cast_precision_loss, reason = "a share in per cent")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[(&str, u64)]) -> Counts {
        counts.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn more_than_five_per_cent_more_fails_and_less_does_not() {
        let kept = of(&[("a", 1_000), ("b", 1_000), ("c", 1_000), ("gone", 5)]);
        let (text, worse) = compared(&of(&[("a", 1_051), ("b", 1_050), ("c", 500), ("new", 1)]), &kept);
        assert_eq!(worse, 2, "{text}");
        assert!(text.contains("+5.1 %, too many") && text.contains("+5.0 %\n"), "{text}");
        assert!(text.contains("not kept yet") && text.contains("was not counted"), "{text}");
    }

    #[test]
    fn what_is_kept_is_read_back() -> Result<()> {
        let counts = of(&[("fit_in_order l10000x1000", 49_764), ("whole_plan l80x8", 2)]);
        assert_eq!(kept(&written(&counts))?, counts);
        assert!(kept("a = 0").is_err() && kept("a = 1.5").is_err());
        Ok(())
    }

    #[test]
    fn counts_stand_in_the_harness_own_lines() -> Result<()> {
        let line = r#"{"function_name":"fit","id":"l80","profiles":[{"data":{"total":{"metrics":{"Ir":{"values":{"new":7}}}}}}]}"#;
        assert_eq!(counts(&format!("hello\n{line}\n"))?, of(&[("fit l80", 7)]));
        assert!(counts("hello\n").is_err());
        Ok(())
    }
}
