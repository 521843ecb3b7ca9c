//! The `plimsoll` command: text in, text out. What it says is decided in the `plimsoll` crate.

#[cfg(feature = "agent")]
mod agent;
mod args;
mod beside;
mod check;
mod completions;
mod detect;
mod diff;
mod failure;
mod fit;
mod input;
mod inspect;
mod ledger;
mod live;
mod look;
mod plan;
mod rebalance;
mod refusal;
mod show;
mod simulate;
mod svg;
mod watch;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::failure::{Failure, Outcome};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, everything else is wrong usage.
            let status = if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
            return if error.print().is_ok() { status } else { ExitCode::from(2) };
        }
    };
    // A panic is a fault of ours: it must not look like an answer.
    let outcome = std::panic::catch_unwind(|| run(&cli));
    let outcome = outcome.unwrap_or_else(|_| Err(Failure::Internal("the program panicked".to_owned())));
    match outcome.and_then(|text| print(&text)) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Refused { stdout, stderr }) => ended(1, &stdout, &stderr),
        Err(Failure::Ended { status, stdout, stderr }) => ended(status, &stdout, &stderr),
        Err(Failure::Input(text)) => {
            complain(&format!("error: {text}"));
            ExitCode::from(2)
        }
        Err(Failure::Internal(text)) => {
            complain(&format!("error: {text}\nThis is a fault of plimsoll itself, not of what you typed."));
            ExitCode::from(3)
        }
    }
}

/// The end of a command that has told all it had to tell.
fn ended(status: u8, stdout: &str, stderr: &str) -> ExitCode {
    let printed = print(stdout);
    complain(stderr);
    match printed {
        Ok(()) | Err(_) => ExitCode::from(status),
    }
}

fn run(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::Plan(args) => plan::run(args, cli),
        Command::Inspect(args) => inspect::run(args, cli),
        Command::Detect(args) => detect::run(args, cli),
        Command::Watch(args) => watch::run(args, cli),
        Command::Check(args) => check::run(args, cli),
        Command::Fit(args) => fit::run(args, cli),
        Command::Diff(args) => diff::run(args, cli),
        Command::Rebalance(args) => rebalance::run(args, cli),
        Command::Simulate(args) => simulate::run(args, cli),
        Command::Reserve(args) => ledger::reserve(args, cli),
        Command::Release(args) => ledger::release(args, cli),
        Command::Resize(args) => ledger::resize(args, cli),
        Command::Ps(args) => ledger::ps(args, cli),
        Command::Advise(args) => ledger::advise(args, cli),
        Command::Run(args) => ledger::run(args, cli),
        Command::Roster(args) => ledger::roster(args, cli),
        Command::Node(args) => live::node(args, cli),
        #[cfg(feature = "agent")]
        Command::Agent(args) => agent::run(args, cli),
        Command::Start(args) => ledger::start(args),
        Command::Look(args) => look::answer(args),
        Command::Completions(args) => completions::run(args),
    }
}

/// Results go to stdout, in one piece.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Input(format!("cannot write to stdout: {error}")),
    })
}

/// Talk goes to stderr. Where that is closed there is nobody left to tell.
pub(crate) fn complain(text: &str) {
    if !text.is_empty() {
        let mut err = anstream::stderr().lock();
        match writeln!(err, "{}", text.trim_end()) {
            Ok(()) | Err(_) => {}
        }
    }
}
