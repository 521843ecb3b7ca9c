//! `plimsoll simulate`.

mod chart;
mod json;
mod text;

use std::time::{Duration, Instant};

use plimsoll::simulate::{read_scenario, simulate};

use crate::args::{Cli, SimulateArgs};
use crate::failure::{Failure, Outcome};
use crate::plan::{keep_what_is_read, save};

pub(crate) fn run(args: &SimulateArgs, cli: &Cli) -> Outcome {
    keep_what_is_read(&[Some(&args.scenario)], args.svg.as_deref())?;
    let mut scenario = read_scenario(&args.scenario).map_err(|error| {
        let text = format!("{:#}", anyhow::Error::from(error));
        let path = args.scenario.display().to_string();
        Failure::Input(if text.contains(&path) { text } else { format!("{path}: {text}") })
    })?;
    if let Some(seed) = args.seed {
        scenario.seed = seed;
    }
    let start = now();
    let report =
        simulate(&scenario, &mut || now().saturating_duration_since(start)).map_err(Failure::input)?;
    if let Some(svg) = &args.svg {
        save(svg, &chart::draw(&report))?;
    }
    let told = if cli.json { json::record(&report)? } else { text::report(&report, cli.verbose) };
    if let Some(first) = report.violations.first() {
        return Err(Failure::Ended {
            status: 3,
            stdout: told,
            stderr: format!(
                "error: {} decision(s) do not pass the checks, the first: {first}\nThis is a fault of plimsoll itself, not of \
                 what you typed.",
                report.violations.len()
            ),
        });
    }
    if !cli.json {
        talk(&planning(report.planned, report.planning));
    }
    Ok(told)
}

/// How long planners really took: on stderr, for it is another figure every time.
fn planning(planned: u64, planning: Duration) -> String {
    let each = planning.as_secs_f64() / f64::from(u32::try_from(planned.max(1)).unwrap_or(u32::MAX));
    format!("planners were asked {planned} times and took {} each", crate::show::seconds(each))
}

fn talk(text: &str) {
    use std::io::Write as _;
    let mut err = anstream::stderr().lock();
    // Where stderr is closed there is nobody to tell.
    let _told = writeln!(err, "{text}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "only how long planners take is measured, and nothing follows from it"
)]
fn now() -> Instant {
    Instant::now()
}
