//! `plimsoll plan`.

use std::path::{Path, PathBuf};

use plimsoll::balance::PlanError;
use plimsoll::model::ModelFormat;
use plimsoll::{Engine, Job, JobError, WordsError, suggestions};

use crate::args::{Cli, PlanArgs};
use crate::beside::Files;
use crate::failure::{Failure, Outcome};
use crate::{input, live, refusal, show, svg};

pub(crate) fn run(args: &PlanArgs, cli: &Cli) -> Outcome {
    check_outputs(args)?;
    let model = input::open_model_telling(&args.model, cli.verbose)?;
    let applied = live_cluster(args.apply, args.cluster.as_deref())?;
    let snapshot = match applied {
        Some(url) => live::replacing(url)?,
        None => input::open_cluster(args.cluster.as_deref())?,
    };
    let engine = input::engine(&args.request, &model);
    let options = input::options(&args.choice, &snapshot)?;
    let files = Files::open(args, engine, cli.json)?;
    let adapted = files.adapted(&model)?;
    let model = adapted.model();
    let job = Job::new(model, &snapshot, engine, input::request(&args.request, engine), options)
        .with_offload((&args.offload).into())
        .with_beside(files.beside())
        .with_adapters(&adapted);
    let planned = match job.plan() {
        Ok(planned) => planned,
        Err(error @ JobError::Audit(_)) => return Err(Failure::internal(error)),
        Err(JobError::Plan(PlanError::NoDevices { stopped })) => {
            return Err(refusal::nothing_usable(&stopped, cli.json));
        }
        Err(JobError::Engine(error)) => return Err(refusal::excluded(&error.to_string(), cli.json)),
        Err(JobError::Plan(error @ PlanError::PartDoesNotFit { .. })) => {
            return Err(refusal::excluded(&error.to_string(), cli.json));
        }
        Err(error) => match error.refusal() {
            Some(refused) => {
                let suggestions = suggestions(&job, refused);
                let told = refusal::Told {
                    refusal: refused,
                    suggestions: &suggestions,
                    request: Some(&args.request),
                };
                return Err(told.failure(cli.json, cli.verbose));
            }
            None => return Err(Failure::input(error)),
        },
    };
    let (path, said) = input::for_engine(&args.model)?;
    let export = planned.export(&path, &snapshot).map_err(|error| match error {
        WordsError::Engine(error) => refusal::excluded(&error.to_string(), cli.json),
        error => Failure::input(error),
    })?;
    let file = planned.to_file_with(export.as_ref(), &path).map_err(Failure::internal)?;
    let saved = file.to_text().map_err(Failure::internal)?;
    if let Some(out) = &args.out {
        save(out, &saved)?;
    }
    if let Some(out) = &args.export {
        let export = export.as_ref().ok_or_else(|| {
            Failure::Input(format!("--export has nothing to write: {engine} has no words for this model"))
        })?;
        save(out, &show::script(export))?;
    }
    if let Some(out) = &args.svg {
        save(out, &svg::draw(&planned))?;
    }
    if let (Some(said), Some(_)) = (said, &export) {
        crate::complain(&format!("note: {said}"));
    }
    if let Some(url) = applied {
        live::apply(url, None, &file, &saved)?;
    }
    if cli.json {
        return Ok(saved);
    }
    let mut text = show::plan(&planned, model, &snapshot, export.as_ref(), cli.verbose);
    if let (None, Some(why)) = (&export, nothing_to_type(engine, model.format())) {
        text += &(show::wrap(&format!("note: {why}"), "  ") + "\n");
    }
    Ok(text)
}

/// The cluster in which a plan is to be put in force, where it is to be.
pub(crate) fn live_cluster(apply: bool, cluster: Option<&Path>) -> Result<Option<&Path>, Failure> {
    match cluster.filter(|_| apply) {
        Some(path) if !live::is_url(path) => Err(Failure::Input(format!(
            "--apply puts a plan in force in a cluster that is kept in etcd, and {} is a file",
            path.display()
        ))),
        other => Ok(other),
    }
}

/// Why an engine that was asked for is not told how to start.
fn nothing_to_type(engine: Engine, format: ModelFormat) -> Option<String> {
    match (engine, format) {
        (Engine::None, _) => None,
        (_, ModelFormat::List) => {
            Some(format!("nothing to type: a list of layers is no file that {engine} could load"))
        }
        (_, ModelFormat::Gguf | ModelFormat::Safetensors) => {
            Some(format!("nothing to type: {engine} runs a GGUF; convert the checkpoint, and plan that"))
        }
    }
}

/// Refuses to write over what was read, or two results into one file.
fn check_outputs(args: &PlanArgs) -> Result<(), Failure> {
    let adapters = args.lora.iter().chain(args.lora_scaled.iter().map(|scaled| &scaled.path));
    let inputs = [Some(&args.model), args.cluster.as_ref(), args.mmproj.as_ref(), args.draft.as_ref()];
    let inputs: Vec<Option<&PathBuf>> = inputs.into_iter().chain(adapters.map(Some)).collect();
    let outputs = [("--out", &args.out), ("--export", &args.export), ("--svg", &args.svg)];
    let mut seen: Vec<(&str, &PathBuf)> = Vec::new();
    for (flag, out) in outputs {
        let Some(out) = out else { continue };
        keep_what_is_read(&inputs, Some(out))?;
        if let Some((first, _)) = seen.iter().find(|(_, other)| input::same_file(out, other)) {
            return Err(Failure::Input(format!("{first} and {flag} both name {}", out.display())));
        }
        seen.push((flag, out));
    }
    Ok(())
}

/// Refuses to write over what was read.
pub(crate) fn keep_what_is_read(inputs: &[Option<&PathBuf>], out: Option<&Path>) -> Result<(), Failure> {
    match out {
        Some(out) if inputs.iter().flatten().any(|input| input::same_file(out, input)) => {
            Err(Failure::Input(format!("{} would be written over: it is what is read", out.display())))
        }
        _ => Ok(()),
    }
}

/// Writes a file whole or not at all: a full disk leaves the old one. What is no file (a pipe, a terminal) is written to
/// as it is.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), Failure> {
    // A link is followed, so that what it points at is replaced and not the link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_file = std::fs::metadata(&target).map_or(true, |found| found.is_file());
    if !is_file {
        return std::fs::write(&target, text).map_err(|error| Failure::write(path, &error));
    }
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&name);
    let written = std::fs::write(part, text).and_then(|()| std::fs::rename(part, &target));
    written.map_err(|error| {
        // The part is of no use to anybody; where it cannot be removed either, the first error is the one to tell.
        let _gone = std::fs::remove_file(part);
        Failure::write(path, &error)
    })
}
