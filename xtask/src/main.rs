//! Workspace chores that cargo alone cannot express.
//!
//! One file a chore, each with one `run`.
//! `verify` only looks, `fix` writes, `release` only tells what it would do until it is given `--execute`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "chores talk to the person who typed them")]

mod bench;
mod debian;
mod fix;
mod fuzz;
mod layers;
mod python;
mod release;
mod shell;
mod test;
mod tidy;
mod verify;

use std::process::ExitCode;

use clap::Parser;

/// Workspace chores that cargo alone cannot express.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Everything CI runs, in the same order; never writes to the tree.
    Verify(verify::VerifyArgs),
    /// Install what the tests lack and run them all.
    Test(test::TestArgs),
    /// Fail when a crate depends on one it must not know.
    Layers,
    /// Fail on missing module headers, uninherited keys, stray files, unreasoned exceptions.
    Tidy,
    /// Run the fuzz targets of the model readers for a while each.
    Fuzz(fuzz::FuzzArgs),
    /// Run benches and print medians, fast ends and ratios to their peers.
    Bench(bench::BenchArgs),
    /// Count the instructions of the hottest paths and hold them against what is kept.
    Instructions(bench::InstructionArgs),
    /// Check that a version can be released; `--execute` tags it.
    Release(release::ReleaseArgs),
    /// Format and apply what clippy can repair by itself.
    Fix,
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Verify(args) => verify::run(&args),
        Chore::Test(args) => test::run(&args),
        Chore::Layers => layers::run(),
        Chore::Tidy => tidy::run(),
        Chore::Fuzz(args) => fuzz::run(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::Instructions(args) => bench::run_instructions(&args),
        Chore::Release(args) => release::run(&args),
        Chore::Fix => fix::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The text alone: a trace of the chore says nothing about what failed.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
