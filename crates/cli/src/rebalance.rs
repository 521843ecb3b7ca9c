//! `plimsoll rebalance`.

mod json;
mod text;

use std::num::NonZeroU32;
use std::path::Path;

use plimsoll::balance::{PlanError, RebalanceError, RebalanceOptions};
use plimsoll::export::PlanFile;
use plimsoll::{MoveError, Rebalanced};

use crate::args::{Cli, RebalanceArgs};
use crate::failure::{Failure, Outcome};
use crate::{input, live, plan, refusal, show};

pub(crate) fn run(args: &RebalanceArgs, cli: &Cli) -> Outcome {
    plan::keep_what_is_read(&[args.plan.as_ref(), args.cluster.as_ref()], args.out.as_deref())?;
    let applied = plan::live_cluster(args.apply, args.cluster.as_deref())?;
    let of_cluster = args.cluster.as_deref().filter(|path| live::is_url(path));
    let (replaces, file) = in_force(args, of_cluster)?;
    let snapshot = input::open_cluster(args.cluster.as_deref())?;
    // What machines have free is measured beside what the plan holds.
    let measured = args.cluster.is_none() || of_cluster.is_some();
    let snapshot = if measured { plimsoll::holding(&snapshot, &file) } else { snapshot };
    let broken = plimsoll::check(&file, &snapshot).map_err(Failure::input)?.broken;
    let options = RebalanceOptions {
        tolerance: args.tolerance,
        max_concurrent: NonZeroU32::new(args.concurrent).unwrap_or(NonZeroU32::MIN),
        load_rate: args.load_rate,
        local_rate: args.local_rate,
        ..RebalanceOptions::default()
    };
    let done = plimsoll::rebalance(&file, &snapshot, &options).map_err(|error| failure(error, args, cli))?;
    let path = file.model_path().unwrap_or_default();
    let new = done.planned.to_file_with(done.export.as_ref(), &path).map_err(Failure::internal)?;
    let saved = new.to_text().map_err(Failure::internal)?;
    if let Some(out) = &args.out {
        plan::save(out, &saved)?;
    }
    if let Some(url) = applied {
        live::apply(url, replaces, &new, &saved)?;
    }
    let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
    let text = match cli.json {
        true => json::record(args, &done, new, &broken)?,
        false => text::told(args, &done, &broken, cli.verbose),
    };
    match blocked(&done) {
        None => Ok(text),
        Some(why) if cli.json => {
            let _told_in_the_json = why;
            Err(Failure::Refused { stdout: text, stderr: String::new() })
        }
        Some(why) => Err(Failure::Refused { stdout: text, stderr: show::wrap(&why, "  ") }),
    }
}

/// The plan that was named, or the one of the cluster, with its number there.
fn in_force(args: &RebalanceArgs, of_cluster: Option<&Path>) -> Result<(Option<u64>, PlanFile), Failure> {
    match (&args.plan, of_cluster) {
        (Some(path), _) => Ok((None, input::read_plan(path)?)),
        (None, Some(url)) => live::in_force(url).map(|(number, file)| (Some(number), file)),
        (None, None) => Err(Failure::Input(
            "which plan? Name its file; only a cluster that is kept in etcd has one in force".to_owned(),
        )),
    }
}

/// Why there is no way to the target.
fn blocked(done: &Rebalanced) -> Option<String> {
    let blocked = done.rebalance.schedule.as_ref().err()?;
    Some(format!("{blocked}; stop the engine and start it anew with the new plan"))
}

fn failure(error: MoveError, args: &RebalanceArgs, cli: &Cli) -> Failure {
    if let Some(refused) = error.refusal() {
        return refusal::Told { refusal: refused, suggestions: &[], request: None }
            .failure(cli.json, cli.verbose);
    }
    match error {
        MoveError::Rebalance(RebalanceError::Plan(PlanError::NoDevices { stopped })) => {
            refusal::nothing_usable(&stopped, cli.json)
        }
        // It was a good pin when the plan was made: it is the cluster that has changed.
        MoveError::Rebalance(RebalanceError::Plan(error @ PlanError::Pin { .. })) => {
            refusal::excluded(&error.to_string(), cli.json)
        }
        MoveError::Rebalance(RebalanceError::UnknownDevice { device, .. }) => {
            let plan = text::named(args);
            Failure::Input(match &args.cluster {
                Some(cluster) => format!(
                    "{plan} uses {device}, and {} has none of its devices: nothing is left to move from, so make a new \
                     plan",
                    live::shown(cluster)
                ),
                None => format!(
                    "{plan} uses {device}, and this machine has none of its devices: name the plan's machines with \
                     --cluster"
                ),
            })
        }
        error => Failure::input(error),
    }
}
