//! `cargo xtask fuzz`: the readers of model files against inputs that look for new paths.

use anyhow::{Context, Result, bail};

use crate::shell;

/// The version of cargo-fuzz that is installed when there is none.
const CARGO_FUZZ: &str = "0.13.2";

/// Where the targets are, with the inputs to begin from in `seeds/<target>`.
const FOLDER: &str = "crates/model/fuzz";

/// What to fuzz.
#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// Targets, all of them by default.
    target: Vec<String>,
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Runs each target; the first crash ends it, with libFuzzer's own report of the input.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    if !shell::root().join(FOLDER).join("Cargo.toml").is_file() {
        bail!("there are no fuzz targets in {FOLDER}");
    }
    if !shell::succeeds(shell::cargo().args(["fuzz", "--version"])) {
        println!("cargo install cargo-fuzz --version {CARGO_FUZZ} --locked");
        shell::show(shell::cargo().args(["install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked"]))?;
    }
    let listed = shell::quiet(shell::cargo().args(["fuzz", "list", "--fuzz-dir", FOLDER]))?;
    let known: Vec<&str> = listed.lines().collect();
    if let Some(unknown) = args.target.iter().find(|target| !known.contains(&target.as_str())) {
        bail!("there is no fuzz target {unknown}; there are {}", known.join(", "));
    }
    let chosen: Vec<&str> =
        if args.target.is_empty() { known } else { args.target.iter().map(String::as_str).collect() };
    for target in chosen {
        println!("{target}: {} s", args.seconds);
        let mut fuzz = shell::cargo();
        // The instrumentation needs flags that a stable compiler accepts only with this variable.
        fuzz.env("RUSTC_BOOTSTRAP", "1");
        fuzz.args(["fuzz", "run", "--fuzz-dir", FOLDER, target]);
        let seeds = format!("{FOLDER}/seeds/{target}");
        if shell::root().join(&seeds).is_dir() {
            // What is found goes to the first folder, which git ignores; the seeds are only read.
            let corpus = format!("{FOLDER}/corpus/{target}");
            std::fs::create_dir_all(shell::root().join(&corpus))
                .with_context(|| format!("cannot make {corpus}"))?;
            fuzz.args([corpus, seeds]);
        }
        fuzz.arg("--");
        fuzz.arg(format!("-max_total_time={}", args.seconds))
            .args(["-malloc_limit_mb=64", "-print_final_stats=1"]);
        shell::show(&mut fuzz)?;
    }
    Ok(())
}
