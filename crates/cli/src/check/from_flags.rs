//! `plimsoll check --from-flags`.

use plimsoll::Meaning;
use plimsoll::export::PlanFile;
use plimsoll::export::llama_cpp::parse_flags;
use serde::Serialize;

use crate::args::{CheckArgs, Cli};
use crate::failure::{Failure, Outcome};
use crate::{input, show};

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
    let meaning = plimsoll::meaning(&model, &snapshot, &flags).map_err(Failure::input)?;
    let fits = meaning.short_bytes.is_zero();
    if cli.json {
        let plan = meaning.planned.to_file(None).map_err(Failure::internal)?;
        let record = Record { plan, fits, short_bytes: meaning.short_bytes.get() };
        let stdout = serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n";
        return if fits { Ok(stdout) } else { Err(Failure::Refused { stdout, stderr: String::new() }) };
    }
    let text = show::plan(&meaning.planned, &model, &snapshot, None, cli.verbose);
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
