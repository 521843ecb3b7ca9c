//! What lies apart from its layer, or beside the layers, in words.

use plimsoll::balance::{Override, PartClass, Plan, Stage};

use super::layer_range;

/// `experts of 12-23, 36-47` for the stage where they lie; `None` for any other.
pub(super) fn of_other_layers(plan: &Plan, stage: &Stage) -> Option<String> {
    let here = |moved: &&Override| moved.device == stage.device;
    let class = plan.overrides.iter().find(here)?.class;
    // What follows each other is one range to a reader, whatever device the layers lie on.
    let mut runs: Vec<std::ops::Range<u32>> = Vec::new();
    for layers in plan.overrides.iter().filter(here).map(|moved| &moved.layers) {
        match runs.last_mut().filter(|last| last.end == layers.start) {
            Some(last) => last.end = layers.end,
            None => runs.push(layers.clone()),
        }
    }
    let layers: Vec<String> = runs.iter().map(layer_range).collect();
    // What a stage lacks is told by where it lies: a few ranges say it, more would fill the table.
    let shown = match layers.as_slice() {
        few @ ([] | [_] | [_, _] | [_, _, _]) => few.join(", "),
        [first, .., last] => format!("{first}, …, {last}"),
    };
    Some(format!("{} of {shown}", word(class)))
}

/// What people call a part of a layer.
pub(crate) const fn word(class: PartClass) -> &'static str {
    match class {
        PartClass::Experts => "experts",
        PartClass::FeedForward => "feed-forward",
        PartClass::Tensors => "tensors",
    }
}

/// A line for everything beside the layers, with what it takes.
pub(super) fn beside(plan: &Plan) -> impl Iterator<Item = String> + '_ {
    plan.parts
        .iter()
        .map(|part| format!("beside the layers: {} on {}, {}", part.name, part.device, part.bytes.scaled()))
}

/// Every byte of what lies apart from its layer.
pub(super) fn byte_lines(plan: &Plan) -> impl Iterator<Item = String> + '_ {
    plan.overrides.iter().map(|moved| {
        let layers = layer_range(&moved.layers);
        format!("bytes: {} of layers {layers} on {}: {}", word(moved.class), moved.device, moved.bytes.get())
    })
}
