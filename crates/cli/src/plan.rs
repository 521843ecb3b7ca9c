//! `plimsoll plan`.

use std::path::Path;

use plimsoll::{Job, JobError, suggestions};

use crate::args::{Cli, PlanArgs};
use crate::failure::{Failure, Outcome};
use crate::{input, refusal, show, svg};

pub(crate) fn run(args: &PlanArgs, cli: &Cli) -> Outcome {
    let model = input::open_model(&args.model)?;
    let snapshot = input::open_cluster(args.cluster.as_deref())?;
    let engine = input::engine(&args.request, &model);
    let options = input::options(&args.choice, &snapshot)?;
    let job = Job::new(&model, &snapshot, engine, input::request(&args.request, engine), options);
    let planned = match job.plan() {
        Ok(planned) => planned,
        Err(error @ JobError::Audit(_)) => return Err(Failure::internal(error)),
        Err(error) => match error.refusal() {
            Some(refused) => {
                let suggestions = suggestions(&job, refused);
                return Err(refusal::failure(refused, &suggestions, cli.json, cli.verbose));
            }
            None => return Err(Failure::input(error)),
        },
    };
    let path = args.model.to_string_lossy();
    let command = planned.command(&path, &snapshot).map_err(Failure::input)?;
    let file = planned.to_file(command.as_ref());
    let saved = file.to_text().map_err(Failure::internal)?;
    if let Some(out) = &args.out {
        save(out, &saved)?;
    }
    if let Some(out) = &args.svg {
        save(out, &svg::draw(&planned))?;
    }
    if cli.json {
        return Ok(saved);
    }
    Ok(show::plan(&planned, &model, &snapshot, command.as_ref(), cli.verbose))
}

/// Writes a file whole or not at all: a full disk leaves the old one.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&name);
    let written = std::fs::write(part, text).and_then(|()| std::fs::rename(part, path));
    written.map_err(|error| {
        // The part is of no use to anybody; where it cannot be removed either, the first error is the one to tell.
        let _gone = std::fs::remove_file(part);
        Failure::write(path, &error)
    })
}
