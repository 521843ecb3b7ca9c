//! `plimsoll check --from-flags`.

use plimsoll::balance::PlanError;
use plimsoll::export::PlanFile;
use plimsoll::export::llama_cpp::parse_flags;
use plimsoll::{Meaning, MeaningError};
use serde::Serialize;

use crate::args::{CheckArgs, Cli};
use crate::beside::Files;
use crate::failure::{Failure, Outcome};
use crate::{input, refusal, show};

/// A plan file that says whether it fits.
#[derive(Serialize)]
struct Record {
    #[serde(flatten)]
    plan: PlanFile,
    fits: bool,
    short_bytes: u64,
}

pub(super) fn run(args: &CheckArgs, flags: &str, cli: &Cli) -> Outcome {
    let words = shlex::split(flags)
        .ok_or_else(|| Failure::Input("--from-flags has a quote that is not closed".to_owned()))?;
    let flags = parse_flags(&words).map_err(Failure::input)?;
    let model = input::open_model_telling(&args.file, cli.verbose)?;
    let snapshot = input::open_cluster(args.cluster.as_deref())?;
    let files = Files::named(&flags.beside)?;
    let adapted = files.adapted(&model)?;
    let model = adapted.model();
    let meaning = plimsoll::meaning_beside(model, &snapshot, &flags, files.beside(), Some(&adapted));
    let meaning = meaning.map_err(|error| match error {
        MeaningError::Plan(error @ PlanError::PartDoesNotFit { .. }) => {
            refusal::excluded(&error.to_string(), cli.json)
        }
        error => Failure::input(error),
    })?;
    let fits = meaning.short_bytes.is_zero();
    if cli.json {
        let plan = meaning.planned.to_file(None).map_err(Failure::internal)?;
        let record = Record { plan, fits, short_bytes: meaning.short_bytes.get() };
        let stdout = serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n";
        return if fits { Ok(stdout) } else { Err(Failure::Refused { stdout, stderr: String::new() }) };
    }
    let text = show::plan(&meaning.planned, model, &snapshot, None, cli.verbose);
    if fits { Ok(text) } else { Err(Failure::Refused { stdout: text, stderr: short(&meaning) }) }
}

fn short(meaning: &Meaning) -> String {
    let over = meaning.planned.plan.stages.iter().filter_map(|stage| {
        let over = stage.used_bytes().checked_sub(stage.budget_bytes).filter(|over| !over.is_zero())?;
        Some(format!("{} by {} ({} bytes)", stage.device, over.scaled(), over.get()))
    });
    let over: Vec<String> = over.collect();
    show::wrap(&format!("does not fit: these flags overfill {}", over.join(", ")), "  ")
}
