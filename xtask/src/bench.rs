//! `cargo xtask bench`: medians, fast ends, ratios to peers and to saved runs, and what was promised.
//!
//! Figures are reported and never judged: on a shared machine the same program differs by more than most changes do.
//! Instruction counts hold still there, so those are judged: see [`instructions`].

mod figures;
mod instructions;
mod plot;
mod table;
mod targets;

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, TargetKind};

use crate::shell;
use figures::Figures;
pub(crate) use instructions::{InstructionArgs, run as run_instructions};
use targets::Targets;

/// The package that has the benches.
const PACKAGE: &str = "plimsoll-benches";

/// From this many waiting processes on, figures say more about the neighbours.
const BUSY: f64 = 2.0;

/// Where the last table and picture are kept, from the workspace root.
const PAGE: &str = "docs/performance.md";
const PICTURE: &str = "docs/pictures/planning.svg";

/// What stands around the table on that page.
const MARKS: [&str; 2] = ["<!-- table: cargo xtask bench --write -->\n", "<!-- end of the table -->\n"];

/// Which benches, and what to do with their figures.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Names of bench targets, all of them by default.
    name: Vec<String>,
    /// Run only benchmarks whose id contains this (`min-max`, `fit/warm`).
    #[arg(long)]
    group: Option<String>,
    /// Keep the figures under this name.
    #[arg(long, conflicts_with = "compare")]
    save: Option<String>,
    /// Print ratios to the figures that were kept under this name.
    #[arg(long)]
    compare: Option<String>,
    /// A third of the time for each row: enough to see what changed by half.
    #[arg(long)]
    quick: bool,
    /// Put the table and the picture into docs/performance.md.
    #[arg(long, conflicts_with_all = ["group", "compare"])]
    write: bool,
}

/// Runs the benches one after the other and prints one table.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let metadata = shell::metadata()?;
    let chosen = chosen(&metadata, &args.name)?;
    let targets = Targets::read()?;
    let criterion = metadata.target_directory.join("criterion").into_std_path_buf();
    // The whole command is measured as people run it.
    shell::show(shell::cargo().args(["build", "--release", "--package", "plimsoll-cli"]))?;
    let binary = metadata.target_directory.join("release").join("plimsoll").into_std_path_buf();
    let before = load();
    let started = now();
    for name in &chosen {
        shell::show(bench(name, args, &criterion).env("PLIMSOLL_BIN", &binary))?;
    }
    let figures = figures::collect(&criterion, started, args.compare.as_deref())?;
    if figures.is_empty() {
        bail!("no benchmark ran");
    }
    let text = report(&figures, &targets, args.compare.as_deref(), [before, load()]);
    print!("{text}");
    if args.write {
        write(&text, &figures)?;
    }
    Ok(())
}

/// The bench targets to run; each is named, because several harnesses in one package share no options.
fn chosen(metadata: &Metadata, wanted: &[String]) -> Result<Vec<String>> {
    let package = metadata.packages.iter().find(|package| package.name == PACKAGE);
    let package = package.with_context(|| format!("there is no package {PACKAGE}"))?;
    let benches = package.targets.iter().filter(|target| target.kind.contains(&TargetKind::Bench));
    let names = benches.map(|target| target.name.clone());
    let known: Vec<String> = names.filter(|name| name != instructions::BENCH).collect();
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
    command.args(["bench", "--package", PACKAGE, "--all-features", "--bench", name, "--"]);
    command.args(["--noplot", "--quiet"]);
    // Criterion refuses to save and to compare in one run.
    match (&args.save, &args.compare) {
        (Some(save), _) => command.args(["--save-baseline", save]),
        (None, Some(compare)) => command.args(["--baseline-lenient", compare]),
        (None, None) => &mut command,
    };
    if args.quick {
        command.args(["--warm-up-time", "0.3", "--measurement-time", "1"]);
    }
    command.args(&args.group).env("CRITERION_HOME", criterion);
    command
}

/// How many processes wait for a processor, on average over a minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

#[expect(clippy::disallowed_methods, reason = "tells fresh result files from those of earlier runs")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// The table and what is to be known of it.
fn report(figures: &Figures, targets: &Targets, compare: Option<&str>, load: [f64; 2]) -> String {
    let mut text = table::aligned(&table::rows(figures, targets, compare));
    text += &format!("load average {:.2} before and {:.2} after", load[0], load[1]);
    if load.iter().any(|load| *load > BUSY) {
        text += "; others are at work here, so trust ratios within one run only";
    }
    text.push('\n');
    if let Some(machine) = targets.machine(figures) {
        text += &machine;
        text.push('\n');
    }
    text
}

/// Puts a table and its picture where people read them.
fn write(table: &str, figures: &Figures) -> Result<()> {
    let path = shell::root().join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let page = between_marks(&page, &format!("\n```text\n{table}```\n\n"))?;
    std::fs::write(&path, page).with_context(|| format!("cannot write {PAGE}"))?;
    println!("wrote {PAGE}");
    if let Some(picture) = plot::svg(figures)? {
        std::fs::write(shell::root().join(PICTURE), picture)
            .with_context(|| format!("cannot write {PICTURE}"))?;
        println!("wrote {PICTURE}");
    }
    Ok(())
}

/// The page with other text between its marks.
fn between_marks(page: &str, text: &str) -> Result<String> {
    let [from, to] = MARKS;
    let parts = page.split_once(from).and_then(|(before, rest)| Some((before, rest.split_once(to)?.1)));
    let (before, after) =
        parts.with_context(|| format!("{PAGE} lacks the lines {} and {}", from.trim(), to.trim()))?;
    Ok(format!("{before}{from}{text}{to}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() -> Result<()> {
        let [from, to] = MARKS;
        let page = format!("a\n{from}old\n{to}b\n");
        assert_eq!(between_marks(&page, "new\n")?, format!("a\n{from}new\n{to}b\n"));
        assert!(between_marks("a\n", "new\n").is_err());
        Ok(())
    }

    #[test]
    fn the_page_has_its_marks() -> Result<()> {
        between_marks(&std::fs::read_to_string(shell::root().join(PAGE))?, "").map(drop)
    }
}
