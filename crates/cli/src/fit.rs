//! `plimsoll fit`.

mod folder;
mod show;

use std::path::{Path, PathBuf};

use plimsoll::balance::{Plan, PlanError, Refusal, Stage, Verdict};
use plimsoll::cluster::{ClusterSnapshot, Device};
use plimsoll::model::{CacheType, ModelSpec};
use plimsoll::units::Bytes;
use plimsoll::{Engine, Fit, Job, JobError, Limit};
use serde::Serialize;

use crate::args::{Cli, FitArgs};
use crate::failure::{Failure, Outcome};
use crate::{input, refusal};

/// A model that was looked at.
struct Looked {
    path: PathBuf,
    /// Where it stands in the folder.
    shown: String,
    answer: Result<Answer, String>,
}

/// What is known of a model.
struct Answer {
    model: ModelSpec,
    engine: Engine,
    fit: Fit,
}

#[derive(Serialize)]
struct Record<'a> {
    format: &'a str,
    models: Vec<ModelRecord>,
}

/// One model. Of one that cannot be planned only `path` and `error` are told.
#[derive(Default, Serialize)]
struct ModelRecord {
    path: String,
    name: Option<String>,
    engine: Option<&'static str>,
    fits: Option<bool>,
    ctx: Option<u64>,
    devices: Option<usize>,
    bytes: Option<u64>,
    short_bytes: Option<u64>,
    any_ctx: Option<bool>,
    largest_ctx: Option<u64>,
    largest_devices: Option<usize>,
    largest_bytes: Option<u64>,
    off_host_ctx: Option<u64>,
    limit: Option<&'static str>,
    trained_ctx: Option<u64>,
    next_ctx: Option<u64>,
    next_short_bytes: Option<u64>,
    next_proven: Option<bool>,
    error: Option<String>,
}

pub(crate) fn run(args: &FitArgs, cli: &Cli) -> Outcome {
    let snapshot = input::open_cluster(args.cluster.as_deref())?;
    // Named wrongly, everything is wrong, whatever the models.
    input::limits(&args.limits, &snapshot)?;
    if folder::is_folder_of_models(&args.model) {
        return of_folder(args, &snapshot, cli);
    }
    let model = input::open_model_telling(&args.model, cli.verbose)?;
    let answer = match answer(args, model, &snapshot) {
        Ok(answer) => answer,
        Err(JobError::Plan(PlanError::NoDevices { stopped })) => {
            return Err(refusal::nothing_usable(&stopped, cli.json));
        }
        Err(JobError::Engine(error)) => return Err(refusal::excluded(&error.to_string(), cli.json)),
        Err(error) => return Err(Failure::input(error)),
    };
    let fits = answer.fit.fits();
    let text = if cli.json {
        let path = input::shown(&args.model);
        json(&[Looked { shown: path.display().to_string(), path, answer: Ok(answer) }])?
    } else {
        show::one(args, &answer, cli.verbose)
    };
    ended(fits, text)
}

fn of_folder(args: &FitArgs, snapshot: &ClusterSnapshot, cli: &Cli) -> Outcome {
    let found = folder::models(&args.model)
        .map_err(|error| Failure::Input(format!("cannot read {}: {error}", args.model.display())))?;
    if found.is_empty() {
        return Err(Failure::Input(format!(
            "{} holds no model: no GGUF, no safetensors, no list of layers",
            args.model.display()
        )));
    }
    let mut looked = Vec::with_capacity(found.len());
    for path in found {
        let shown = path.strip_prefix(&args.model).unwrap_or(&path).display().to_string();
        let answer = match plimsoll::model::open(&path) {
            Err(error) => Err(format!("{:#}", anyhow::Error::from(error))),
            Ok(model) => match answer(args, model, snapshot) {
                Ok(answer) => Ok(answer),
                Err(JobError::Plan(PlanError::NoDevices { stopped })) => {
                    return Err(refusal::nothing_usable(&stopped, cli.json));
                }
                Err(error) if is_of_the_model(&error) => Err(format!("{:#}", anyhow::Error::from(error))),
                Err(error) => return Err(Failure::input(error)),
            },
        };
        looked.push(Looked { path, shown, answer });
    }
    let fits = looked.iter().any(|one| one.answer.as_ref().is_ok_and(|answer| answer.fit.fits()));
    let text = if cli.json { json(&looked)? } else { show::several(args, &looked, cli.verbose) };
    ended(fits, text)
}

/// What is told is the same whether something fits or not; only the status says which.
fn ended(fits: bool, text: String) -> Outcome {
    if fits { Ok(text) } else { Err(Failure::Refused { stdout: text, stderr: String::new() }) }
}

/// Whether another model may do better on the same cluster.
fn is_of_the_model(error: &JobError) -> bool {
    let of_layers = |error: &PlanError| {
        matches!(
            error,
            PlanError::Pin { .. }
                | PlanError::Overflow { .. }
                | PlanError::DuplicateLayer { .. }
                | PlanError::MissingLayer { .. }
        )
    };
    match error {
        JobError::Estimate(_) | JobError::Engine(_) => true,
        JobError::Plan(error) => of_layers(error),
        _ => false,
    }
}

fn answer(args: &FitArgs, model: ModelSpec, snapshot: &ClusterSnapshot) -> Result<Answer, JobError> {
    let engine = input::engine(&args.request, &model);
    let options = input::limits_of_known(&args.limits);
    let job = Job::new(&model, snapshot, engine, input::request(&args.request, engine), options)
        .with_offload((&args.offload).into());
    let fit = job.fit()?;
    Ok(Answer { model, engine, fit })
}

/// The bytes and the devices that a plan uses.
fn taken(plan: &Plan) -> (Bytes, usize) {
    let bytes = plan.stages.iter().map(Stage::used_bytes);
    let devices = plan.stages.iter().filter(|stage| stage.head || !stage.layers.is_empty()).count();
    (Bytes::saturating_sum(bytes), devices)
}

/// The same in words: `55.2 GB on 2 devices and the host`.
fn taken_text(plan: &Plan, engine: Engine) -> String {
    let (bytes, devices) = taken(plan);
    let host =
        plan.stages.first().filter(|_| matches!(engine, Engine::LlamaCpp | Engine::IkLlamaCpp)).filter(
            |stage| stage.device.device.as_str() == Device::HOST && (stage.head || !stage.layers.is_empty()),
        );
    let named = |count: usize| format!("{count} device{}", if count == 1 { "" } else { "s" });
    let places = match (host, devices) {
        (None, devices) => named(devices),
        (Some(_), 1) => "the host alone".to_owned(),
        (Some(_), devices) => format!("{} and the host", named(devices - 1)),
    };
    format!("{} on {places}", bytes.scaled())
}

fn json(looked: &[Looked]) -> Outcome {
    let record = Record { format: "plimsoll.fit/1", models: looked.iter().map(record).collect() };
    Ok(serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n")
}

fn record(looked: &Looked) -> ModelRecord {
    let path = looked.path.display().to_string();
    let answer = match &looked.answer {
        Ok(answer) => answer,
        Err(error) => return ModelRecord { path, error: Some(error.clone()), ..ModelRecord::default() },
    };
    let fit = &answer.fit;
    let now = fit.plan.as_ref().map(taken);
    let largest = fit.largest.as_ref().map(|largest| taken(&largest.plan));
    let (limit, next) = match &fit.limit {
        Limit::Trained { .. } => ("trained", None),
        Limit::Memory { next, refusal } => ("memory", Some((*next, refusal))),
        Limit::Longest { .. } => ("longest", None),
        Limit::Nothing => ("none", None),
    };
    // One context was planned, and any other takes as much.
    let endless = matches!(fit.limit, Limit::Nothing);
    let refusal = next.and_then(|(_, refusal)| refusal.as_ref());
    ModelRecord {
        path,
        name: Some(answer.model.name().to_owned()),
        engine: Some(answer.engine.name()),
        fits: Some(fit.fits()),
        ctx: Some(fit.context),
        devices: now.map(|now| now.1),
        bytes: now.map(|now| now.0.get()),
        short_bytes: fit.refusal.as_ref().map(|refusal| refusal.short_bytes.get()),
        any_ctx: Some(endless),
        largest_ctx: fit.largest.as_ref().filter(|_| !endless).map(|largest| largest.context),
        largest_devices: largest.map(|largest| largest.1),
        largest_bytes: largest.map(|largest| largest.0.get()),
        off_host_ctx: fit.off_host.as_ref().map(|largest| largest.context),
        limit: Some(limit),
        trained_ctx: answer.model.trained_context(),
        next_ctx: next.map(|(next, _)| next),
        next_short_bytes: refusal.map(|refusal| refusal.short_bytes.get()),
        next_proven: refusal.map(|refusal| is_proven(refusal)),
        error: None,
    }
}

fn is_proven(refusal: &Refusal) -> bool {
    matches!(refusal.verdict, Verdict::ProvenInfeasible(_))
}

/// The types of the cache: `f16`, or `q8_0/q4_0` for keys and values.
fn cache_types(k: CacheType, v: CacheType) -> String {
    if k == v { k.to_string() } else { format!("{k}/{v}") }
}

/// What the cluster is called.
fn cluster_name(path: Option<&Path>) -> String {
    path.map_or_else(|| "this machine".to_owned(), |path| path.display().to_string())
}
