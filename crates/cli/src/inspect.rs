//! `plimsoll inspect`.

use std::collections::BTreeMap;

use plimsoll::model::{ClassBytes, Footprint, ModelSpec, Request};
use plimsoll::units::Bytes;
use serde::Serialize;

use crate::args::{Cli, InspectArgs};
use crate::failure::{Failure, Outcome};
use crate::{input, show};

#[derive(Serialize)]
struct Record<'a> {
    format: &'a str,
    model: ModelRecord<'a>,
    request: RequestRecord<'a>,
    input_bytes: u64,
    head_bytes: u64,
    tied: bool,
    layers: Vec<LayerRecord>,
    kv_bytes_per_token: u64,
    totals: Totals,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct ModelRecord<'a> {
    name: &'a str,
    architecture: &'a str,
    layers: usize,
    nextn: usize,
    num_weights: u64,
    file_bytes: u64,
    missing_bytes: u64,
    trained_context: Option<u64>,
    embedding_length: u64,
    vocabulary_size: u64,
    experts: u64,
    experts_used: u64,
}

#[derive(Serialize)]
struct RequestRecord<'a> {
    engine: &'a str,
    ctx: u64,
    ctx_total: u64,
    parallel: u32,
    unified_kv: bool,
    cache_type_k: String,
    cache_type_v: String,
    ubatch: u32,
    swa_full: bool,
}

#[derive(Serialize)]
struct LayerRecord {
    index: u32,
    weights_bytes: u64,
    kv_bytes: u64,
    classes: Classes,
}

#[derive(Serialize)]
struct Classes {
    attention: u64,
    ffn: u64,
    experts: u64,
    norms: u64,
    other: u64,
}

#[derive(Serialize)]
struct Totals {
    weights_bytes: u64,
    kv_bytes: u64,
}

/// A layer with its bytes by class.
struct Row {
    index: u32,
    weights: Bytes,
    kv: Bytes,
    classes: ClassBytes,
}

/// A model resolved for one request.
struct Shown<'a> {
    request: &'a Request,
    footprint: &'a Footprint,
    rows: &'a [Row],
    per_token: Bytes,
}

/// What makes two layers alike.
type Sizes = [Bytes; 7];

impl Row {
    fn sizes(&self) -> Sizes {
        let ClassBytes { attention, ffn, experts, norms, other } = self.classes;
        [self.weights, self.kv, attention, ffn, experts, norms, other]
    }
}

pub(crate) fn run(args: &InspectArgs, cli: &Cli) -> Outcome {
    let model = input::open_model_telling(&args.model, cli.verbose)?;
    let engine = input::engine(&args.request, &model);
    let request = input::request(&args.request, engine);
    let padding = request.engine.padding;
    let footprint = model.footprint(&request, padding).map_err(Failure::input)?;
    let rows: Vec<Row> = footprint
        .layers
        .iter()
        .enumerate()
        .map(|(n, layer)| Row {
            index: layer.index,
            weights: layer.weights_bytes,
            kv: layer.kv_bytes,
            classes: model.class_bytes(n, padding),
        })
        .collect();
    let per_token = model.kv_bytes_per_token(&request).map_err(Failure::input)?;
    let shown = Shown { request: &request, footprint: &footprint, rows: &rows, per_token };
    if cli.json {
        return json(&model, &shown);
    }
    Ok(table(&model, &shown, cli.verbose))
}

/// All weights, a tied matrix once.
fn weights(footprint: &Footprint) -> Bytes {
    let layers = footprint.layers.iter().map(|l| l.weights_bytes);
    let rest = [footprint.input_bytes, footprint.head_beside_input_bytes, footprint.each_device_bytes];
    Bytes::saturating_sum(layers.chain(rest))
}

fn cache(footprint: &Footprint) -> Bytes {
    Bytes::saturating_sum(footprint.layers.iter().map(|l| l.kv_bytes))
}

fn warnings(model: &ModelSpec) -> Vec<String> {
    model.warnings().iter().map(ToString::to_string).collect()
}

fn json(model: &ModelSpec, shown: &Shown<'_>) -> Outcome {
    let Shown { request, footprint, rows, per_token } = *shown;
    let record = Record {
        format: "plimsoll.inspect/1",
        model: ModelRecord {
            name: model.name(),
            architecture: model.architecture(),
            layers: model.layer_count(),
            nextn: model.nextn_count(),
            num_weights: model.num_weights(),
            file_bytes: model.file_bytes().get(),
            missing_bytes: model.missing_bytes().get(),
            trained_context: model.trained_context(),
            embedding_length: model.embedding_length(),
            vocabulary_size: model.vocabulary_size(),
            experts: model.expert_count(),
            experts_used: model.experts_used(),
        },
        request: RequestRecord {
            engine: request.engine.name,
            ctx: footprint.context.per_sequence,
            ctx_total: footprint.context.total,
            parallel: request.parallel,
            unified_kv: request.unified_kv,
            cache_type_k: request.cache_type_k.to_string(),
            cache_type_v: request.cache_type_v.to_string(),
            ubatch: request.micro_batch,
            swa_full: request.full_window,
        },
        input_bytes: footprint.input_bytes.get(),
        head_bytes: footprint.head_bytes.get(),
        tied: model.is_tied(),
        layers: rows.iter().map(layer_record).collect(),
        kv_bytes_per_token: per_token.get(),
        totals: Totals { weights_bytes: weights(footprint).get(), kv_bytes: cache(footprint).get() },
        warnings: warnings(model),
    };
    let text = serde_json::to_string_pretty(&record).map_err(Failure::internal)?;
    Ok(text + "\n")
}

fn layer_record(row: &Row) -> LayerRecord {
    let ClassBytes { attention, ffn, experts, norms, other } = row.classes;
    LayerRecord {
        index: row.index,
        weights_bytes: row.weights.get(),
        kv_bytes: row.kv.get(),
        classes: Classes {
            attention: attention.get(),
            ffn: ffn.get(),
            experts: experts.get(),
            norms: norms.get(),
            other: other.get(),
        },
    }
}

fn table(model: &ModelSpec, shown: &Shown<'_>, verbose: bool) -> String {
    let Shown { request, footprint, rows, per_token } = *shown;
    let weights_known = if model.num_weights() > 0 {
        format!("{} weights in ", count(model.num_weights()))
    } else {
        String::new()
    };
    let mut lines = vec![format!(
        "{}: {}, {} {}, {weights_known}{}",
        show::clean(model.name()),
        show::clean(model.architecture()),
        rows.len(),
        if rows.len() == 1 { "layer" } else { "layers" },
        model.file_bytes().scaled()
    )];
    let mut facts = Vec::new();
    if let Some(trained) = model.trained_context() {
        facts.push(format!("trained for {trained} tokens"));
    }
    if model.has_experts() {
        facts.push(format!("{} of {} experts used for a token", model.experts_used(), model.expert_count()));
    }
    if model.nextn_count() > 0 {
        facts.push(format!(
            "{} next-token block(s) with {}, not loaded and not counted below",
            model.nextn_count(),
            model.nextn_bytes(request.engine.padding).scaled()
        ));
    }
    if !facts.is_empty() {
        lines.push(facts.join(", "));
    }
    let context = footprint.context;
    let types = format!("{}/{}", request.cache_type_k, request.cache_type_v);
    // A unified cache is there once, whoever shares it.
    let many = if context.streams > 1 { format!("{} x ", context.streams) } else { String::new() };
    if context.total > 0 {
        lines.push(format!(
            "context of {many}{} tokens, {types} cache, as {} lays it out: {} ({} bytes a token)",
            context.per_sequence,
            request.engine.name,
            cache(footprint).scaled(),
            per_token.get()
        ));
    }
    let mut out: String = lines.iter().map(|line| show::wrap(line, "  ") + "\n").collect();
    out.push('\n');
    out.push_str(&layers(rows, verbose));
    let head = if model.is_tied() { "the input's matrix again" } else { "a matrix of its own" };
    out.push_str(&format!(
        "\n  input {}, head {} ({head})\n  all weights {} ({} bytes), context {} ({} bytes)\n",
        footprint.input_bytes.scaled(),
        footprint.head_bytes.scaled(),
        weights(footprint).scaled(),
        weights(footprint).get(),
        cache(footprint).scaled(),
        cache(footprint).get(),
    ));
    for warning in warnings(model) {
        out.push_str(&show::wrap(&format!("note: {warning}"), "  "));
        out.push('\n');
    }
    out
}

/// One class of a layer's bytes.
type ClassPick = fn(&ClassBytes) -> Bytes;

/// Layers of the same sizes on one row.
fn layers(rows: &[Row], verbose: bool) -> String {
    let mut by_size: BTreeMap<Sizes, (&Row, Vec<u32>)> = BTreeMap::new();
    for row in rows {
        by_size.entry(row.sizes()).or_insert_with(|| (row, Vec::new())).1.push(row.index);
    }
    let mut kinds: Vec<(&Row, Vec<u32>)> = by_size.into_values().collect();
    kinds.sort_by_key(|(row, _)| row.index);
    let some = |pick: ClassPick| rows.iter().any(|row| !pick(&row.classes).is_zero());
    // Norms are a few kilobytes: told apart in the JSON only, so that the table fits.
    let classes: [(&str, ClassPick); 4] = [
        ("attention", |c| c.attention),
        ("ffn", |c| c.ffn),
        ("experts", |c| c.experts),
        ("other", |c| c.other.saturating_add(c.norms)),
    ];
    let shown: Vec<_> = classes.into_iter().filter(|(_, pick)| some(*pick)).collect();
    let mut header = vec!["layers", "each"];
    header.extend(shown.iter().map(|(name, _)| *name));
    header.extend(["context", "which"]);
    let right: Vec<usize> = (0..header.len() - 1).collect();
    let mut table = show::table(&header, &right);
    // Every column but the last takes at most nine digits and two blanks.
    let which = show::width().saturating_sub(11 * (header.len() - 1) + 3).clamp(12, 40);
    for (row, indices) in &kinds {
        let mut cells = vec![indices.len().to_string(), row.weights.scaled().to_string()];
        cells.extend(shown.iter().map(|(_, pick)| pick(&row.classes).scaled().to_string()));
        cells.push(row.kv.scaled().to_string());
        let indices = show::indices(indices);
        cells.push(if verbose { show::lines(&indices, which) } else { shorten(&indices, which) });
        table.add_row(cells);
    }
    show::text(&table)
}

/// At most `most` characters, cut at a comma.
fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    for part in text.split_inclusive(", ") {
        if kept.chars().count() + part.chars().count() + 1 > most {
            break;
        }
        kept.push_str(part);
    }
    kept + "…"
}

/// `70.6 B`: weights in billions, or millions below one.
fn count(n: u64) -> String {
    let tenths = |unit: u64| (u128::from(n) * 10 + u128::from(unit / 2)) / u128::from(unit);
    let (tenths, unit) =
        if n >= 1_000_000_000 { (tenths(1_000_000_000), "B") } else { (tenths(1_000_000), "M") };
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_at_a_comma() {
        assert_eq!(shorten("0-9, 12", 24), "0-9, 12");
        assert_eq!(shorten("0-9, 12, 15, 18, 21, 24, 27", 16), "0-9, 12, 15, …");
    }

    #[test]
    fn weights_are_counted_in_billions() {
        assert_eq!(count(70_553_706_496), "70.6 B");
        assert_eq!(count(134_515_008), "134.5 M");
    }
}
