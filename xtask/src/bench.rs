//! `cargo xtask bench`: medians, fast ends, and ratios to peers and to saved runs.
//!
//! Figures are reported and never judged: on a shared machine the same program differs by more than most changes do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, TargetKind};
use serde_json::Value;

use crate::shell;

/// The package that has the benches.
const PACKAGE: &str = "plimsoll-benches";

/// A benchmark of one of these names stands for somebody else's answer to the same input.
const PEERS: &[&str] = &["ghostlink", "peer"];

/// From this many waiting processes on, figures say more about the neighbours.
const BUSY: f64 = 2.0;

/// Which benches, and what to do with their figures.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Names of bench targets, all of them by default.
    name: Vec<String>,
    /// Run only benchmarks whose id contains this.
    #[arg(long)]
    only: Option<String>,
    /// Keep the figures under this name.
    #[arg(long, conflicts_with = "against")]
    save: Option<String>,
    /// Print ratios to the figures that were kept under this name.
    #[arg(long)]
    against: Option<String>,
}

/// Runs the benches one after the other and prints one table.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let metadata = shell::metadata()?;
    let chosen = chosen(&metadata, &args.name)?;
    let criterion = metadata.target_directory.join("criterion").into_std_path_buf();
    // The whole command is measured as people run it.
    shell::show(shell::cargo().args(["build", "--release", "--package", "plimsoll-cli"]))?;
    let binary = metadata.target_directory.join("release").join("plimsoll").into_std_path_buf();
    warn_when_busy();
    let started = now();
    for name in &chosen {
        shell::show(bench(name, args, &criterion).env("PLIMSOLL_BIN", &binary))?;
    }
    warn_when_busy();
    let figures = collect(&criterion, started, args.against.as_deref())?;
    if figures.is_empty() {
        bail!("no benchmark ran");
    }
    print!("{}", table(&figures, args.against.as_deref()));
    Ok(())
}

/// The bench targets to run; each is named, because several harnesses in one package share no options.
fn chosen(metadata: &Metadata, wanted: &[String]) -> Result<Vec<String>> {
    let package = metadata.packages.iter().find(|package| package.name == PACKAGE);
    let package = package.with_context(|| format!("there is no package {PACKAGE}"))?;
    let benches = package.targets.iter().filter(|target| target.kind.contains(&TargetKind::Bench));
    let known: Vec<String> = benches.map(|target| target.name.clone()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        bail!("there is no bench {unknown}; there are: {}", known.join(", "));
    }
    if known.is_empty() {
        bail!("{PACKAGE} has no benches");
    }
    Ok(if wanted.is_empty() { known } else { wanted.to_vec() })
}

fn bench(name: &str, args: &BenchArgs, criterion: &Path) -> std::process::Command {
    let mut command = shell::cargo();
    command.args([
        "bench",
        "--package",
        PACKAGE,
        "--all-features",
        "--bench",
        name,
        "--",
        "--noplot",
        "--quiet",
    ]);
    // Criterion refuses to save and to compare in one run.
    match (&args.save, &args.against) {
        (Some(save), _) => command.args(["--save-baseline", save]),
        (None, Some(against)) => command.args(["--baseline-lenient", against]),
        (None, None) => &mut command,
    };
    command.args(&args.only).env("CRITERION_HOME", criterion);
    command
}

fn warn_when_busy() {
    let Ok(text) = std::fs::read_to_string("/proc/loadavg") else { return };
    let load = text.split(' ').next().and_then(|load| load.parse::<f64>().ok()).unwrap_or(0.0);
    let warning =
        if load > BUSY { "; others are at work here, so trust ratios within one run only" } else { "" };
    println!("load average {load:.2}{warning}");
}

#[expect(clippy::disallowed_methods, reason = "tells fresh result files from those of earlier runs")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// What one benchmark gave, in nanoseconds an iteration.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    median: f64,
    p5: f64,
    /// The saved median, if it was asked for and is there.
    saved: Option<f64>,
}

/// Group, function, input size.
type Id = (String, String, String);

/// The results that are newer than the start.
fn collect(criterion: &Path, started: SystemTime, against: Option<&str>) -> Result<BTreeMap<Id, Figure>> {
    let mut figures = BTreeMap::new();
    for folder in folders(criterion) {
        let new = folder.join("new");
        let written = new.join("estimates.json").metadata().and_then(|file| file.modified());
        if written.is_err() || written.is_ok_and(|at| at < started) {
            continue;
        }
        let benchmark = json(&new.join("benchmark.json"))?;
        let saved = against.and_then(|name| json(&folder.join(name).join("estimates.json")).ok());
        let figure = Figure {
            median: median(&json(&new.join("estimates.json"))?).context("estimates.json has no median")?,
            p5: p5(&json(&new.join("sample.json"))?).context("sample.json has no samples")?,
            saved: saved.as_ref().and_then(median),
        };
        figures.insert(id(&benchmark), figure);
    }
    Ok(figures)
}

/// This folder and all below it.
fn folders(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_path_buf()];
    let mut next = 0;
    while let Some(folder) = found.get(next).cloned() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        next += 1;
    }
    found
}

fn json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

fn id(benchmark: &Value) -> Id {
    let part = |key: &str| benchmark[key].as_str().unwrap_or_default().to_owned();
    (part("group_id"), part("function_id"), part("value_str"))
}

fn median(estimates: &Value) -> Option<f64> {
    estimates["median"]["point_estimate"].as_f64()
}

/// The time that one iteration in twenty stays below.
fn p5(sample: &Value) -> Option<f64> {
    let (times, iterations) = (sample["times"].as_array()?, sample["iters"].as_array()?);
    let each =
        times.iter().zip(iterations).filter_map(|(time, count)| Some(time.as_f64()? / count.as_f64()?));
    let mut each: Vec<f64> = each.collect();
    each.sort_by(f64::total_cmp);
    let rank = (each.len() * 5).div_ceil(100).max(1);
    each.get(rank - 1).copied()
}

/// The peer that answered the same input in the same group.
fn peer<'f>(figures: &'f BTreeMap<Id, Figure>, (group, function, input): &Id) -> Option<&'f Figure> {
    let is_peer = |name: &str| PEERS.iter().any(|peer| name.starts_with(peer));
    let same = figures.iter().filter(|((g, f, i), _)| g == group && i == input && is_peer(f));
    same.map(|(_, figure)| figure).next().filter(|_| !is_peer(function))
}

/// One row a benchmark; a ratio above one means that we are faster than what stands in its heading.
fn table(figures: &BTreeMap<Id, Figure>, against: Option<&str>) -> String {
    let saved = against.map_or(String::new(), |against| format!("{against} / now"));
    let heading = ["benchmark", "median", "p5", "peer / ours", "at p5", &saved].map(str::to_owned);
    let mut ids: Vec<&Id> = figures.keys().collect();
    // Sizes in the order of numbers, so that growth is read from top to bottom.
    ids.sort_by_key(|(group, function, input)| (group, function, input.parse::<u64>().ok(), input));
    let rows = ids.into_iter().map(|id| {
        let figure = &figures[id];
        let parts = [&id.0, &id.1, &id.2].into_iter().map(String::as_str);
        let name: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        let peer = peer(figures, id);
        [
            name.join("/"),
            duration(figure.median),
            duration(figure.p5),
            ratio(peer.map(|peer| peer.median), figure.median),
            ratio(peer.map(|peer| peer.p5), figure.p5),
            ratio(figure.saved, figure.median),
        ]
    });
    aligned(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

fn ratio(other: Option<f64>, ours: f64) -> String {
    other.map_or(String::new(), |other| format!("{:.2}x", other / ours))
}

/// Names to the left, figures to the right.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = width(0));
        for (column, cell) in row.iter().enumerate().skip(1) {
            line += &format!("  {cell:>width$}", width = width(column));
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn duration(nanoseconds: f64) -> String {
    let (amount, unit) = match nanoseconds {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{amount:.2} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figures(rows: &[(&str, &str, &str, f64, Option<f64>)]) -> BTreeMap<Id, Figure> {
        let figure = |median: f64, saved| Figure { median, p5: median / 2.0, saved };
        let id = |g: &str, f: &str, i: &str| (g.to_owned(), f.to_owned(), i.to_owned());
        rows.iter().map(|(g, f, i, median, saved)| (id(g, f, i), figure(*median, *saved))).collect()
    }

    #[test]
    fn ratios_are_taken_within_a_group_and_an_input() {
        let figures = figures(&[
            ("warm", "plimsoll", "1000", 8_000.0, Some(4_000.0)),
            ("warm", "ghostlink-core", "1000", 56_000.0, None),
            ("warm", "plimsoll", "80", 900.0, None),
            ("cold", "plimsoll", "1000", 2e9, None),
        ]);
        assert_eq!(
            table(&figures, Some("monday")),
            "\
benchmark                    median         p5  peer / ours  at p5  monday / now
cold/plimsoll/1000           2.00 s     1.00 s
warm/ghostlink-core/1000   56.00 µs   28.00 µs
warm/plimsoll/80          900.00 ns  450.00 ns
warm/plimsoll/1000          8.00 µs    4.00 µs        7.00x  7.00x         0.50x
"
        );
    }

    #[test]
    fn the_fast_end_is_a_time_that_was_measured() {
        let times: Vec<f64> = (1..=100).rev().map(|i| f64::from(i) * 10.0).collect();
        assert_eq!(p5(&json!({"iters": vec![10.0; 100], "times": times})), Some(5.0));
        assert_eq!(p5(&json!({"iters": [2.0], "times": [8.0]})), Some(4.0));
        assert_eq!(p5(&json!({"iters": [], "times": []})), None);
        assert_eq!(p5(&json!({})), None);
    }

    #[test]
    fn an_id_may_lack_a_function_and_an_input() {
        let benchmark = json!({"group_id": "snapshot", "function_id": null, "value_str": null});
        assert_eq!(id(&benchmark), ("snapshot".to_owned(), String::new(), String::new()));
    }

    #[test]
    fn durations_have_the_unit_of_their_size() {
        let shown = [0.5, 999.0, 1e3, 1e6, 1e9].map(duration);
        assert_eq!(shown, ["0.50 ns", "999.00 ns", "1.00 µs", "1.00 ms", "1.00 s"]);
    }
}
