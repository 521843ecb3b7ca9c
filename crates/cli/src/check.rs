//! `plimsoll check`.

mod from_flags;

use std::path::Path;

use plimsoll::Checked;
use plimsoll::balance::Finding;
use plimsoll::export::PlanFile;
use plimsoll::export::llama_cpp::BesideFlags;
use serde::Serialize;

use crate::args::{CheckArgs, Cli};
use crate::beside::Files;
use crate::failure::{Failure, Outcome};
use crate::{input, live, show};

#[derive(Serialize)]
struct Record<'a> {
    format: &'a str,
    fits: bool,
    model: &'a str,
    digest: &'a str,
    findings: Vec<String>,
    changed: Vec<String>,
}

pub(crate) fn run(args: &CheckArgs, cli: &Cli) -> Outcome {
    if let Some(flags) = &args.from_flags {
        return from_flags::run(args, flags, cli);
    }
    let file = input::read_plan(&args.file)?;
    if let Some(model) = &args.model {
        same_model(&file, model, cli.json)?;
    }
    let snapshot = input::open_cluster(args.cluster.as_deref())?;
    // What a plan in force holds is measured beside it.
    let snapshot = if live::is_url(&args.file) { plimsoll::holding(&snapshot, &file) } else { snapshot };
    let checked = plimsoll::check(&file, &snapshot).map_err(Failure::input)?;
    let text = if cli.json { json(&file, &checked)? } else { text(&file, &checked, args) };
    if checked.broken.is_empty() {
        return Ok(text);
    }
    let (stdout, stderr) = if cli.json { (text, String::new()) } else { (String::new(), text) };
    Err(Failure::Refused { stdout, stderr })
}

/// The adapters that a plan loads: what they take is in its layers.
fn adapters_of(file: &PlanFile) -> Result<Files, Failure> {
    let adapters = plimsoll::adapters_of(file);
    let named = BesideFlags { adapters, ..BesideFlags::default() };
    Files::named(&named)
}

/// Whether the layer facts of a model give the digest of the plan.
fn same_model(file: &PlanFile, path: &Path, json: bool) -> Result<(), Failure> {
    let model = input::open_model(path)?;
    let adapted = adapters_of(file)?.adapted(&model)?;
    let digest = plimsoll::digest_for(adapted.model(), file).map_err(Failure::input)?;
    if digest == file.model.digest {
        return Ok(());
    }
    let finding = format!(
        "the plan was made for another model: {} has the digest {digest}, the plan says {} ({})",
        input::shown(path).display(),
        file.model.digest,
        file.model.name
    );
    if !json {
        return Err(Failure::Refused { stdout: String::new(), stderr: show::wrap(&finding, "  ") });
    }
    let stdout = record(file, vec![finding], Vec::new())?;
    Err(Failure::Refused { stdout, stderr: String::new() })
}

fn json(file: &PlanFile, checked: &Checked) -> Outcome {
    let broken = checked.broken.iter().map(ToString::to_string).collect();
    record(file, broken, checked.changed.iter().map(change).collect())
}

fn record(file: &PlanFile, findings: Vec<String>, changed: Vec<String>) -> Outcome {
    let record = Record {
        format: "plimsoll.check/1",
        fits: findings.is_empty(),
        model: &file.model.name,
        digest: &file.model.digest,
        findings,
        changed,
    };
    Ok(serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n")
}

fn text(file: &PlanFile, checked: &Checked, args: &CheckArgs) -> String {
    let cluster = args.cluster.as_ref().map_or_else(|| "this machine".to_owned(), |path| live::shown(path));
    let (name, path) = (&file.model.name, live::shown(&args.file));
    let mut lines = Vec::new();
    if checked.broken.is_empty() {
        let all = if checked.changed.is_empty() { ", and every amount and time in it is right" } else { "" };
        lines.push(format!("{path}: the plan for {name} fits {cluster}{all}"));
    } else {
        lines.push(format!("{path}: the plan for {name} does not hold on {cluster}:"));
        lines.extend(checked.broken.iter().map(|finding| format!("  - {finding}")));
    }
    if !checked.changed.is_empty() {
        lines.push("changed since it was made:".to_owned());
        lines.extend(checked.changed.iter().map(|finding| format!("  - {}", change(finding))));
    }
    lines.iter().map(|line| show::wrap(line, "  ") + "\n").collect()
}

/// What has changed, the old value first.
fn change(finding: &Finding) -> String {
    match finding {
        Finding::Number { device, what, claimed, actual } => {
            format!("{what} of {device}: {claimed} bytes then, {actual} bytes now")
        }
        other => other.to_string(),
    }
}
