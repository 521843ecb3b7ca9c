//! A report as JSON. It holds nothing that the clock told: the same scenario gives the same text.

use std::collections::BTreeMap;

use plimsoll::simulate::{ModelReport, Report};
use serde::Serialize;

use crate::failure::{Failure, Outcome};

#[derive(Serialize)]
struct Record<'a> {
    format: &'static str,
    name: &'a str,
    seed: u64,
    seconds: f64,
    nodes: usize,
    looks: u64,
    moves: u64,
    moved_bytes: u64,
    loaded_bytes: u64,
    refusals: &'a BTreeMap<String, u64>,
    out_of_balance_seconds: f64,
    largest_skew: Option<f64>,
    planned: u64,
    violations: &'a [String],
    models: Vec<ModelRecord<'a>>,
    events: Vec<EventRecord<'a>>,
    events_not_kept: u64,
}

#[derive(Serialize)]
struct ModelRecord<'a> {
    name: &'a str,
    wanted_seconds: f64,
    served_seconds: f64,
    placed: u64,
    moves: u64,
    moved_bytes: u64,
    loaded_bytes: u64,
    evicted: u64,
    value: Option<f64>,
    spans: Vec<SpanRecord>,
}

#[derive(Serialize)]
struct SpanRecord {
    from: f64,
    until: f64,
    state: &'static str,
}

#[derive(Serialize)]
struct EventRecord<'a> {
    at: f64,
    what: &'a str,
}

pub(super) fn record(report: &Report) -> Outcome {
    let record = Record {
        format: "plimsoll.simulation/1",
        name: &report.name,
        seed: report.seed,
        seconds: report.duration.as_secs_f64(),
        nodes: report.nodes,
        looks: report.looks,
        moves: report.moves(),
        moved_bytes: report.moved_bytes().get(),
        loaded_bytes: report.loaded_bytes().get(),
        refusals: &report.refusals,
        out_of_balance_seconds: report.out_of_balance.as_secs_f64(),
        // Infinite where a device is full: JSON has no number for that.
        largest_skew: report.largest_skew.is_finite().then_some(report.largest_skew),
        planned: report.planned,
        violations: &report.violations,
        models: report.models.iter().map(model).collect(),
        events: report
            .noted
            .iter()
            .map(|noted| EventRecord { at: noted.at.as_secs_f64(), what: &noted.what })
            .collect(),
        events_not_kept: report.not_kept,
    };
    Ok(serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n")
}

fn model(model: &ModelReport) -> ModelRecord<'_> {
    let spans = model.spans.iter().map(|span| SpanRecord {
        from: span.from.as_secs_f64(),
        until: span.until.as_secs_f64(),
        state: span.mood.name(),
    });
    ModelRecord {
        name: &model.name,
        wanted_seconds: model.wanted.as_secs_f64(),
        served_seconds: model.served.as_secs_f64(),
        placed: model.placed,
        moves: model.moves,
        moved_bytes: model.moved_bytes.get(),
        loaded_bytes: model.loaded_bytes.get(),
        evicted: model.evicted,
        value: model.value,
        spans: spans.collect(),
    }
}
