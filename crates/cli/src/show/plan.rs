//! A plan as a table with a bar for each device.

use plimsoll::balance::{HostUse, Objective, Optimality, Stage, StoppedBy, Transfers};
use plimsoll::cluster::ClusterSnapshot;
use plimsoll::export::{Export, assumption_text};
use plimsoll::model::{ModelSpec, Request};
use plimsoll::units::Bytes;
use plimsoll::{ContextChoice, Planned};

use super::{
    clean, commands, files, left_out, parts, per_cent, seconds, shorten, stopped_line, table, text, width,
    wrap,
};

/// The whole answer to `plan`.
pub(crate) fn plan(
    planned: &Planned,
    model: &ModelSpec,
    snapshot: &ClusterSnapshot,
    export: Option<&Export>,
    verbose: bool,
) -> String {
    let mut out = head(planned, model);
    out.push('\n');
    out.push_str(&devices(planned));
    out.push_str("  █ weights  ▓ context  ▒ engine  · free\n");
    if passing(planned).is_some() {
        out.push_str("  time: without what is passed on, which counts below\n");
    }
    out.push('\n');
    out.push_str(&wrap(&value(planned), "  "));
    out.push('\n');
    for line in left_out(planned, snapshot) {
        out.push_str(&wrap(&line, "  "));
        out.push('\n');
    }
    for line in parts::beside(&planned.plan) {
        out.push_str(&wrap(&line, "  "));
        out.push('\n');
    }
    for assumption in &planned.plan.assumed {
        out.push_str(&wrap(&format!("assumed: {}", assumption_text(assumption)), "  "));
        out.push('\n');
    }
    for warning in &planned.warnings {
        out.push_str(&wrap(&format!("note: {warning}"), "  "));
        out.push('\n');
    }
    if verbose {
        for stage in &planned.plan.stages {
            out.push_str(&wrap(&bytes_line(stage), "  "));
            out.push('\n');
        }
        for line in parts::byte_lines(&planned.plan) {
            out.push_str(&wrap(&line, "  "));
            out.push('\n');
        }
        for stopped in planned.plan.stopped.iter().filter(|s| s.reason != StoppedBy::NotNeeded) {
            out.push_str(&wrap(&format!("stopped: {}", stopped_line(stopped)), "  "));
            out.push('\n');
        }
    }
    if let Some(export) = export {
        out.push_str(&commands(export));
        out.push_str(&files(export, verbose));
    }
    out
}

fn head(planned: &Planned, model: &ModelSpec) -> String {
    let footprint = planned.workload.footprints.first();
    let layers = footprint.map_or(&[][..], |f| &f.layers);
    let kv = Bytes::saturating_sum(layers.iter().map(|l| l.kv_bytes));
    let mut lines = vec![format!(
        "{}: {}, {} layer{}, {} of weights",
        clean(planned.name()),
        clean(model.architecture()),
        layers.len(),
        if layers.len() == 1 { "" } else { "s" },
        model.file_bytes().scaled()
    )];
    if let Some(context) = footprint.map(|f| f.context) {
        let Request { parallel, cache_type_k, cache_type_v, .. } = planned.request;
        let many = match (parallel, planned.request.unified_kv) {
            (1, _) => String::new(),
            (_, true) => format!(" shared by {parallel} sequences"),
            (_, false) => format!(" for each of {parallel} sequences"),
        };
        let types = if cache_type_k == cache_type_v {
            cache_type_k.to_string()
        } else {
            format!("{cache_type_k}/{cache_type_v}")
        };
        let why = match planned.context {
            ContextChoice::Asked => String::new(),
            ContextChoice::Trained => " (what it was trained for)".to_owned(),
            ContextChoice::Lowered { trained, .. } => format!(" (trained for {trained}; this is what fits)"),
        };
        if context.per_sequence > 0 {
            lines.push(format!("context: {}{many}{why}, {types}, {}", context.per_sequence, kv.scaled()));
        }
    }
    lines.iter().map(|line| wrap(line, "  ") + "\n").collect()
}

fn devices(planned: &Planned) -> String {
    let stages = &planned.plan.stages;
    let timed = stages.iter().any(|s| s.seconds.is_some_and(|t| t > 0.0));
    let several = stages.iter().any(|s| s.pipeline > 0);
    let mut header = vec!["device", "layers", "", "full", "of budget"];
    let mut right = vec![3, 4];
    if timed {
        header.push("time");
        right.push(5);
    }
    if several {
        header.insert(0, "copy");
        right.iter_mut().for_each(|column| *column += 1);
        right.push(0);
    }
    let mut rows: Vec<[String; 5]> = stages
        .iter()
        .map(|stage| {
            let used = stage.used_bytes();
            [
                shorten(&stage.device.to_string(), 30),
                holds(planned, stage),
                per_cent(used, stage.budget_bytes),
                of_budget(used, stage.budget_bytes),
                stage.seconds.filter(|s| *s > 0.0).map_or_else(String::new, seconds),
            ]
        })
        .collect();
    let columns = if timed { 5 } else { 4 };
    // One blank on each side of every column, the bar's among them.
    let beside = 2 * (columns + 1) + if several { 6 } else { 0 };
    let but_layers: usize =
        (0..columns).filter(|column| *column != 1).map(|column| widest(&rows, column)).sum();
    let left = width().saturating_sub(but_layers + beside);
    for row in &mut rows {
        row[1] = super::lines(&row[1], left.saturating_sub(SHORTEST_BAR).max(12));
    }
    // The bar takes what the other columns leave.
    let bar_width = left.saturating_sub(widest(&rows, 1)).clamp(SHORTEST_BAR, 32);
    let mut table = table(&header, &right);
    for (stage, [device, layers, full, budget, time]) in stages.iter().zip(rows) {
        let mut row = vec![device, layers, bar(stage, bar_width), full, budget];
        if timed {
            row.push(time);
        }
        if several {
            row.insert(0, stage.pipeline.saturating_add(1).to_string());
        }
        table.add_row(row);
    }
    text(&table)
}

/// A bar of fewer cells tells nothing.
const SHORTEST_BAR: usize = 8;

/// How wide a column of the devices is, its header counted.
fn widest(rows: &[[String; 5]], column: usize) -> usize {
    let cells = rows.iter().flat_map(|row| row[column].lines()).map(|line| line.chars().count());
    cells.max().unwrap_or(0).max([6, 6, 4, 9, 4][column])
}

/// What lies on a device, parts of other devices' layers last.
fn holds(planned: &Planned, stage: &Stage) -> String {
    let mut holds = super::holds(stage, "");
    holds.extend(parts::of_other_layers(&planned.plan, stage));
    holds.join(" + ")
}

/// Every byte of a stage.
fn bytes_line(stage: &Stage) -> String {
    format!(
        "bytes: {}: weights {}, context {}, engine {}, of {}: {} free",
        stage.device,
        stage.weights_bytes.get(),
        stage.kv_bytes.get(),
        stage.overhead_bytes.get(),
        stage.budget_bytes.get(),
        stage.slack_bytes.get()
    )
}

pub(crate) fn of_budget(used: Bytes, budget: Bytes) -> String {
    if budget < Bytes::new(1_000_000_000) {
        return format!("{} / {}", used.scaled(), budget.scaled());
    }
    let used = used.to_string();
    format!("{} / {budget}", used.trim_end_matches(" GB"))
}

/// How full a device is, and of what: each kind gets the cells that its bytes fill, running totals rounded.
fn bar(stage: &Stage, width: usize) -> String {
    let kinds = [(stage.weights_bytes, '█'), (stage.kv_bytes, '▓'), (stage.overhead_bytes, '▒')];
    let whole = u128::from(stage.used_bytes().max(stage.budget_bytes).get()).max(1);
    let cells = u128::try_from(width).unwrap_or(0);
    let mut out = String::new();
    let mut sum: u128 = 0;
    let mut filled = 0;
    for (bytes, mark) in kinds {
        sum += u128::from(bytes.get());
        let mut end = usize::try_from((sum * cells + whole / 2) / whole).unwrap_or(width).min(width);
        // What is there is seen, however small.
        if end <= filled && !bytes.is_zero() && filled < width {
            end = filled + 1;
        }
        out.extend(std::iter::repeat_n(mark, end.saturating_sub(filled)));
        filled = filled.max(end);
    }
    out.extend(std::iter::repeat_n('·', width.saturating_sub(filled)));
    out
}

fn value(planned: &Planned) -> String {
    let plan = &planned.plan;
    let value = plan.value.value;
    let copies =
        plan.stages.iter().map(|stage| stage.pipeline).max().map_or(1, |last| last.saturating_add(1));
    let what = match (plan.objective, value) {
        (Objective::Throughput, Some(s)) if s > 0.0 && copies > 1 => {
            format!(
                "{copies} copies side by side: up to {:.1} tokens/s with enough requests at once",
                1.0 / s
            )
        }
        (Objective::Latency, Some(s)) if s > 0.0 => {
            format!("{} per token for one stream, {:.1} tokens/s", seconds(s), 1.0 / s)
        }
        (Objective::Throughput, Some(s)) if s > 0.0 => {
            format!(
                "slowest stage{} {}: up to {:.1} tokens/s with enough requests at once",
                passing(planned).unwrap_or_default(),
                seconds(s),
                1.0 / s
            )
        }
        (Objective::Balanced, Some(share)) => format!("the fullest device is {:.1} % full", share * 100.0),
        (Objective::Fit, Some(devices)) => format!("fits on {devices:.0} device(s)"),
        (Objective::Latency | Objective::Throughput, Some(_)) => {
            "nothing to read: it takes no time".to_owned()
        }
        (_, None) => "it fits; no speed is known, so no time is told".to_owned(),
    };
    let proof = match plan.value.optimality {
        Optimality::Proven if host_comes_last(planned) => {
            "no other plan that keeps layers off the host where it can is better (proven)".to_owned()
        }
        Optimality::Proven => "no other plan is better (proven)".to_owned(),
        Optimality::Within(gap) => format!("no plan is more than {:.1} % better", gap * 100.0),
        Optimality::Unproven => "whether another plan is better is not proven".to_owned(),
    };
    format!("{what}; {proof}")
}

/// How the slowest stage counts what is passed on, where it does: the times of single devices never do.
fn passing(planned: &Planned) -> Option<&'static str> {
    match planned.options.transfers {
        Transfers::Apart => None,
        Transfers::Overlapped => Some(", or what it passes on,"),
        Transfers::Added => Some(" with what it receives and passes on"),
    }
}

/// Whether the host holds layers only where nothing else would fit: that comes before the objective.
fn host_comes_last(planned: &Planned) -> bool {
    planned.rules.host == HostUse::FirstLayersOfMain
        && matches!(planned.plan.objective, Objective::Fit | Objective::Balanced)
}
