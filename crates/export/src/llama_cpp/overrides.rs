//! Tensors that `-ot` keeps apart from their layer, in llama.cpp's words.

use std::fmt::Write as _;
use std::ops::Range;

use plimsoll_balance::{PartClass, Plan};

/// What the engine calls the host's memory where a tensor is sent to it.
pub(super) const CPU: &str = "CPU";

/// The projections of experts, as the engine's own `--n-cpu-moe` picks them.
pub(super) const EXPERTS: &str = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps";

/// The projections of dense feed-forward blocks, as `--n-cpu-ffn` picks them.
pub(super) const DENSE: &str = r"\.ffn_(up|down|gate)\.";

/// Whether the engine's `--n-cpu-moe` would keep a tensor of a layer on the host.
pub fn is_expert_tensor(name: &str) -> bool {
    let picks = |rest: &str| {
        let rest = rest
            .strip_prefix("up")
            .or_else(|| rest.strip_prefix("down"))
            .or_else(|| rest.strip_prefix("gate"));
        let Some(rest) = rest else { return false };
        let rests = [Some(rest), rest.strip_prefix("_up")];
        rests.into_iter().flatten().any(|rest| rest.starts_with("_exps") || rest.starts_with("_chexps"))
    };
    name.match_indices(".ffn_").any(|(at, found)| picks(&name[at + found.len()..]))
}

/// Whether the engine's `--n-cpu-ffn` would keep a tensor of a layer on the host.
pub fn is_dense_tensor(name: &str) -> bool {
    name.match_indices(".ffn_").any(|(at, found)| {
        let rest = &name[at + found.len()..];
        ["up.", "down.", "gate."].iter().any(|kind| rest.starts_with(kind))
    })
}

/// The flags that keep a plan's parts on the host: a number where they are the first ones of the model, else a pattern for
/// each device.
///
/// A pattern holds no comma and no `=`, which would end it, and names every layer by its number.
pub(super) fn words(plan: &Plan) -> Vec<String> {
    let Some(class) = plan.overrides.first().map(|moved| moved.class) else { return Vec::new() };
    let (short, tensors) = match class {
        PartClass::Experts => ("--n-cpu-moe", EXPERTS),
        PartClass::FeedForward => ("--n-cpu-ffn", DENSE),
        // A command line named them, and only it can tell which they are.
        PartClass::Tensors => return Vec::new(),
    };
    if let Some(first) = first_layers(plan) {
        return vec![short.to_owned(), first.to_string()];
    }
    let mut words = Vec::new();
    for stage in &plan.stages {
        let here = plan.overrides.iter().map(|moved| &moved.layers);
        let here: Vec<Range<u32>> =
            here.filter(|layers| stage.layers.contains(&layers.start)).cloned().collect();
        if !here.is_empty() {
            words.extend(["-ot".to_owned(), format!("{}{tensors}={CPU}", blocks(&here))]);
        }
    }
    words
}

/// How many of the model's first layers keep their part on the host, where it is these: whole layers of the host come
/// before them.
fn first_layers(plan: &Plan) -> Option<u32> {
    let mut next = plan.stages.first().map_or(0, |stage| stage.layers.end);
    for moved in &plan.overrides {
        if moved.layers.start != next {
            return None;
        }
        next = moved.layers.end;
    }
    Some(next)
}

/// `blk\.(4|5|17)`.
fn blocks(layers: &[Range<u32>]) -> String {
    let mut text = r"blk\.(".to_owned();
    let all = layers.iter().cloned().flatten();
    for (at, layer) in all.enumerate() {
        let bar = if at > 0 { "|" } else { "" };
        // Writing to a string does not fail.
        let _written = write!(text, "{bar}{layer}");
    }
    text.push(')');
    text
}
