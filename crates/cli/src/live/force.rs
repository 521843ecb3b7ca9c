//! The plan in force of a cluster: seen, set, forgotten.

use std::path::Path;

use plimsoll::cluster::ClusterSnapshot;
use plimsoll::etcd::{PlanError, PlanInForce};
use plimsoll::export::PlanFile;
use plimsoll::live::Live;
use plimsoll::units::Generation;
use plimsoll::{Planned, Standing, holding};
use serde::Serialize;

use super::args::PlanInForceArgs;
use super::open::{open, seen};
use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::{input, plan, show};

#[derive(Serialize)]
struct Record<'a> {
    format: &'static str,
    number: Option<u64>,
    basis: Option<u64>,
    model: Option<&'a str>,
    holds: Option<bool>,
    text: String,
    findings: Vec<String>,
    changed: Vec<String>,
}

/// The plan in force, and which one it is.
pub(crate) fn in_force(url: &Path) -> Result<(u64, PlanFile), Failure> {
    let live = open(url.to_str().unwrap_or_default())?;
    match live.plan_in_force().map_err(Failure::input)? {
        Some((plan, file)) => Ok((plan.generation.get(), file)),
        None => Err(Failure::Input(format!("no plan is in force in {}", live.cluster().url()))),
    }
}

/// The machines as they are for whoever takes the place of the plan in force: what that holds is free for it.
pub(crate) fn replacing(url: &Path) -> Result<ClusterSnapshot, Failure> {
    let live = open(url.to_str().unwrap_or_default())?;
    let snapshot = seen(&live)?.snapshot;
    Ok(match live.plan_in_force().map_err(Failure::input)? {
        Some((_, file)) => holding(&snapshot, &file),
        None => snapshot,
    })
}

/// Puts a plan in force, in place of plan `replaces` (0 is none) or of whichever is in force; says which one it is.
pub(crate) fn apply(url: &Path, replaces: Option<u64>, file: &PlanFile, text: &str) -> Result<(), Failure> {
    let live = open(url.to_str().unwrap_or_default())?;
    let number = put(&live, replaces, file, text)?;
    crate::complain(&format!("plan {number} is in force in {}", live.cluster().url()));
    Ok(())
}

fn put(live: &Live, replaces: Option<u64>, file: &PlanFile, text: &str) -> Result<Generation, Failure> {
    let current = match replaces {
        Some(0) => None,
        Some(number) => Some(Generation::new(number)),
        None => live.cluster().plans().current().map_err(Failure::input)?.map(|plan| plan.generation),
    };
    let basis = live.seen().map_err(Failure::input)?.basis;
    live.put_in_force(current, &basis, file, text).map(|plan| plan.generation).map_err(refused)
}

/// Stale, or another plan is in force: that is what there is at the moment, not wrong usage.
fn refused(error: PlanError) -> Failure {
    match error {
        PlanError::Etcd(error) => Failure::input(error),
        error => Failure::Refused { stdout: String::new(), stderr: show::wrap(&error.to_string(), "  ") },
    }
}

pub(super) fn run(args: &PlanInForceArgs, cli: &Cli) -> Outcome {
    let live = open(&args.cluster.cluster)?;
    if args.forget {
        return forget(&live, args.replaces, cli);
    }
    if let Some(path) = &args.set {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))?;
        let file = input::read_plan(path)?;
        set(&live, args.replaces, &file, &text)?;
    }
    let Some((plan, file)) = live.plan_in_force().map_err(Failure::input)? else {
        return none(&live, cli);
    };
    if let Some(out) = &args.out {
        plan::save(out, &plan.text)?;
    }
    let snapshot = holding(&seen(&live)?.snapshot, &file);
    let planned = Planned::from_saved(&file, snapshot.generation).map_err(Failure::input)?;
    told(&plan, &file, &Standing::of(&planned, &snapshot), cli)
}

/// A plan that does not hold is not put in force.
fn set(live: &Live, replaces: Option<u64>, file: &PlanFile, text: &str) -> Result<(), Failure> {
    let seen = seen(live)?;
    let snapshot = match live.plan_in_force().map_err(Failure::input)? {
        Some((_, before)) => holding(&seen.snapshot, &before),
        None => seen.snapshot,
    };
    let broken = plimsoll::check(file, &snapshot).map_err(Failure::input)?.broken;
    if let Some(first) = broken.first().filter(|_| !seen.basis.came_after(file.basis.generation)) {
        let stderr = show::wrap(&format!("the plan does not hold: {first}"), "  ");
        return Err(Failure::Refused { stdout: String::new(), stderr });
    }
    put(live, replaces, file, text).map(|_| ())
}

fn forget(live: &Live, replaces: Option<u64>, cli: &Cli) -> Outcome {
    let plans = live.cluster().plans();
    let current = plans.current().map_err(Failure::input)?.map(|plan| plan.generation);
    if let Some(number) = replaces.map(Generation::new).or(current) {
        plans.retire(number).map_err(refused)?;
    }
    none(live, cli)
}

fn none(live: &Live, cli: &Cli) -> Outcome {
    let text = format!("no plan is in force in {}", live.cluster().url());
    if !cli.json {
        return Ok(text + "\n");
    }
    json(&Record {
        format: "plimsoll.in-force/1",
        number: None,
        basis: None,
        model: None,
        holds: None,
        text,
        findings: Vec::new(),
        changed: Vec::new(),
    })
}

fn told(plan: &PlanInForce, file: &PlanFile, standing: &Standing, cli: &Cli) -> Outcome {
    let texts =
        |found: &[plimsoll::balance::Finding]| found.iter().map(ToString::to_string).collect::<Vec<_>>();
    let text = if cli.json {
        json(&Record {
            format: "plimsoll.in-force/1",
            number: Some(plan.generation.get()),
            basis: Some(plan.basis.get()),
            model: Some(&file.model.name),
            holds: Some(standing.holds()),
            text: standing.to_string(),
            findings: texts(&standing.checked.broken),
            changed: texts(&standing.checked.changed),
        })?
    } else {
        let stages = file.stages.iter().filter(|stage| stage.layers[0] < stage.layers[1]);
        let stages = stages.map(|stage| {
            format!("  {}-{} on {}/{}\n", stage.layers[0], stage.layers[1] - 1, stage.node, stage.device)
        });
        let head = format!(
            "plan {} for {}, made at generation {}:\n{}",
            plan.generation,
            file.model.name,
            plan.basis,
            stages.collect::<String>()
        );
        head + &show::wrap(&standing.to_string(), "  ") + "\n"
    };
    match standing.holds() {
        true => Ok(text),
        false => Err(Failure::Refused { stdout: text, stderr: String::new() }),
    }
}

fn json(record: &Record<'_>) -> Outcome {
    Ok(serde_json::to_string_pretty(record).map_err(Failure::internal)? + "\n")
}
