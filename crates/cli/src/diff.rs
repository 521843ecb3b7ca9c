//! `plimsoll diff`.

use plimsoll::export::{PlanFile, RequestRecord};
use plimsoll::units::DeviceRef;
use plimsoll::{DeviceDiff, Diff, DiffError, Held, Moved, What};
use serde::Serialize;

use crate::args::{Cli, DiffArgs};
use crate::failure::{Failure, Outcome};
use crate::{input, show};

#[derive(Serialize)]
struct Record<'a> {
    format: &'a str,
    model: &'a str,
    same_request: bool,
    moved_layers: u32,
    moved_bytes: u64,
    total_bytes: u64,
    devices: Vec<DeviceRecord>,
    moves: Vec<MoveRecord>,
}

#[derive(Serialize)]
struct DeviceRecord {
    device: String,
    old: HeldRecord,
    new: HeldRecord,
    gains_bytes: u64,
    loses_bytes: u64,
}

#[derive(Serialize)]
struct HeldRecord {
    layers: Vec<[u32; 2]>,
    input: bool,
    head: bool,
    used_bytes: u64,
    budget_bytes: u64,
}

/// Something that changes its device: `layers` for layers, else `input` or `head`.
#[derive(Serialize)]
pub(crate) struct MoveRecord {
    what: &'static str,
    layers: Option<[u32; 2]>,
    from: Option<String>,
    to: Option<String>,
    bytes: u64,
}

pub(crate) fn run(args: &DiffArgs, cli: &Cli) -> Outcome {
    let (old, new) = (input::read_plan(&args.old)?, input::read_plan(&args.new)?);
    let diff = match plimsoll::diff(&old, &new) {
        Ok(diff) => diff,
        Err(error @ DiffError::OtherModel { .. }) => {
            return Err(Failure::Refused {
                stdout: String::new(),
                stderr: show::wrap(&error.to_string(), "  "),
            });
        }
        Err(error) => return Err(Failure::input(error)),
    };
    if cli.json {
        return json(&new, &diff);
    }
    let names = format!("{} → {}", args.old.display(), args.new.display());
    Ok(text(&names, (&old, &new), &diff, cli.verbose))
}

fn json(new: &PlanFile, diff: &Diff) -> Outcome {
    let held = |held: &Held| HeldRecord {
        layers: held.layers.iter().map(|run| [run.start, run.end]).collect(),
        input: held.input,
        head: held.head,
        used_bytes: held.used.get(),
        budget_bytes: held.budget.get(),
    };
    let devices = diff.devices.iter().map(|device| {
        let (gains, loses) = device_bytes(diff, device);
        DeviceRecord {
            device: device.device.to_string(),
            old: held(&device.old),
            new: held(&device.new),
            gains_bytes: gains.get(),
            loses_bytes: loses.get(),
        }
    });
    let record = Record {
        format: "plimsoll.diff/1",
        model: &new.model.name,
        same_request: diff.same_request,
        moved_layers: diff.moved_layers(),
        moved_bytes: diff.moved().get(),
        total_bytes: diff.total.get(),
        devices: devices.collect(),
        moves: diff.moves.iter().map(move_record).collect(),
    };
    Ok(serde_json::to_string_pretty(&record).map_err(Failure::internal)? + "\n")
}

fn move_record(moved: &Moved) -> MoveRecord {
    let (what, layers) = match &moved.what {
        What::Input => ("input", None),
        What::Head => ("head", None),
        What::Layers(run) => ("layers", Some([run.start, run.end])),
        What::Parts(run) => ("parts", Some([run.start, run.end])),
    };
    let name = |device: &Option<DeviceRef>| device.as_ref().map(ToString::to_string);
    let (from, to, bytes) = (name(&moved.from), name(&moved.to), moved.bytes.get());
    MoveRecord { what, layers, from, to, bytes }
}

fn device_bytes(diff: &Diff, device: &DeviceDiff) -> (plimsoll::units::Bytes, plimsoll::units::Bytes) {
    let (come, go) = diff.of(&device.device);
    let sum =
        |moves: Vec<&Moved>| plimsoll::units::Bytes::saturating_sum(moves.iter().map(|moved| moved.bytes));
    (sum(come), sum(go))
}

fn text(names: &str, (old, new): (&PlanFile, &PlanFile), diff: &Diff, verbose: bool) -> String {
    let mut lines = vec![format!("{}: {names}", show::clean(&new.model.name))];
    if !diff.same_request {
        let changes = changes(&old.request, &new.request);
        lines.push(format!("another request ({changes}): only weights are counted as moving"));
    }
    if let Some(values) = values(old, new) {
        lines.push(values);
    }
    let mut out: String = lines.iter().map(|line| show::wrap(line, "  ") + "\n").collect();
    out.push('\n');
    let changed = |device: &&DeviceDiff| verbose || device.old != device.new;
    let rows: Vec<&DeviceDiff> = diff.devices.iter().filter(changed).collect();
    if rows.is_empty() {
        out.push_str("nothing changes\n");
        return out;
    }
    let mut table =
        show::table(&["device", "then", "now", "full then", "now", "gets", "gives up"], &[3, 4, 5, 6]);
    for device in rows {
        let (gains, loses) = device_bytes(diff, device);
        let amount = |bytes: plimsoll::units::Bytes| match bytes.is_zero() {
            true => String::new(),
            false => bytes.scaled().to_string(),
        };
        table.add_row(vec![
            show::shorten(&device.device.to_string(), 24),
            holds(&device.old),
            holds(&device.new),
            full(&device.old),
            full(&device.new),
            amount(gains),
            amount(loses),
        ]);
    }
    out.push_str(&show::text(&table));
    out.push('\n');
    let moved = diff.moved();
    if moved.is_zero() {
        out.push_str("no layer moves\n");
        return out;
    }
    let summary = format!(
        "{} of {} layers move: {} of {}",
        diff.moved_layers(),
        new.model.layers,
        moved.scaled(),
        diff.total.scaled()
    );
    out.push_str(&show::wrap(&summary, "  "));
    out.push('\n');
    for moved in &diff.moves {
        out.push_str(&show::wrap(&move_line(moved), "    "));
        out.push('\n');
    }
    out
}

/// What of a request changes the cache.
fn changes(old: &RequestRecord, new: &RequestRecord) -> String {
    let parts = |request: &RequestRecord| {
        [
            ("context", request.ctx.to_string()),
            ("sequences", request.parallel.to_string()),
            ("keys", request.cache_type_k.clone()),
            ("values", request.cache_type_v.clone()),
        ]
    };
    let pairs = parts(old).into_iter().zip(parts(new)).filter(|(a, b)| a != b);
    let changes: Vec<String> = pairs.map(|((what, a), (_, b))| format!("{what} {a} → {b}")).collect();
    if changes.is_empty() { "another layout of the cache".to_owned() } else { changes.join(", ") }
}

/// How good both plans are, where that can be compared.
fn values(old: &PlanFile, new: &PlanFile) -> Option<String> {
    if old.request.objective != new.request.objective {
        let (then, now) = (&old.request.objective, &new.request.objective);
        return Some(format!("made for {then} then, for {now} now"));
    }
    let value =
        |file: &PlanFile| show::value_text(file.plan().ok()?.objective, file.plan().ok()?.value.value?);
    let (then, now) = (value(old)?, value(new)?);
    Some(if then == now { format!("{now}, as before") } else { format!("{then} then, {now} now") })
}

fn holds(held: &Held) -> String {
    let mut parts = Vec::new();
    if held.input {
        parts.push("input".to_owned());
    }
    parts.extend(held.layers.iter().map(show::layer_range));
    if held.head {
        parts.push("head".to_owned());
    }
    if parts.is_empty() { "–".to_owned() } else { parts.join(" + ") }
}

fn full(held: &Held) -> String {
    if held.budget.is_zero() { String::new() } else { show::per_cent(held.used, held.budget) }
}

fn move_line(moved: &Moved) -> String {
    let what = match &moved.what {
        What::Input => "input".to_owned(),
        What::Head => "head".to_owned(),
        What::Layers(run) if moved.what.layers() == 1 => format!("layer {}", run.start),
        What::Layers(run) => format!("layers {}", show::layer_range(run)),
        What::Parts(run) => format!("parts of layers {}", show::layer_range(run)),
    };
    let way = match (&moved.from, &moved.to) {
        (Some(from), Some(to)) => format!("{from} → {to}"),
        (None, Some(to)) => format!("one more copy on {to}"),
        (Some(from), None) => format!("no longer on {from}"),
        (None, None) => String::new(),
    };
    format!("  {what}: {way}, {}", moved.bytes.scaled())
}
