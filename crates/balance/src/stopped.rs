//! What stopped each device from taking more.

use std::collections::BTreeMap;

use plimsoll_units::{Bytes, DeviceRef};

use crate::assemble::Assembled;
use crate::context::Context;
use crate::fleet::Candidate;
use crate::pins::Hull;
use crate::plan::{Stage, Stopped, StoppedBy};

/// For a plan: every device that is left out, unused, or holds less than everything.
pub(crate) fn of_plan(context: &Context<'_>, plan: &Assembled) -> Vec<Stopped> {
    let mut stopped = context.fleet.left_out.clone();
    let used = plan.draft.devices.len();
    let holding = plan.stages.iter().filter(|s| s.head || !s.layers.is_empty());
    let stages: BTreeMap<&DeviceRef, &Stage> = holding.rev().map(|stage| (&stage.device, stage)).collect();
    let pinned = pinned(context, &plan.stages);
    for place in candidates(context) {
        let (reason, short) = match stages.get(&place.device) {
            Some(stage) => match next_layer(context, place, stage, &pinned) {
                Some(reason) => reason,
                None => continue,
            },
            None => unused(context, place, used),
        };
        stopped.push(Stopped { device: place.device.clone(), reason, short_bytes: Bytes::new(short) });
    }
    stopped.sort_by(|a, b| a.device.cmp(&b.device));
    stopped
}

/// For a refusal: every device, none of which holds anything.
pub(crate) fn of_refusal(context: &Context<'_>) -> Vec<Stopped> {
    let mut stopped = context.fleet.left_out.clone();
    for place in candidates(context) {
        let (reason, short) = unused(context, place, 0);
        let (reason, short) = match reason {
            StoppedBy::NotNeeded => overfull(context, place),
            reason => (reason, short),
        };
        stopped.push(Stopped { device: place.device.clone(), reason, short_bytes: Bytes::new(short) });
    }
    stopped.sort_by(|a, b| a.device.cmp(&b.device));
    stopped
}

fn candidates<'a>(context: &'a Context<'_>) -> impl Iterator<Item = &'a Candidate> {
    let host = context.fleet.host.iter().filter(|host| host.takes_layers).map(|host| &host.place);
    host.chain(&context.fleet.devices)
}

fn unused(context: &Context<'_>, place: &Candidate, used: usize) -> (StoppedBy, u64) {
    if let Some(why) = context.too_small(place) {
        return why;
    }
    if used >= context.limit {
        let limit = u32::try_from(context.limit).unwrap_or(u32::MAX);
        return (StoppedBy::DeviceLimit { limit }, 0);
    }
    (StoppedBy::NotNeeded, 0)
}

/// The first piece, counted from the model's first layer, that a device alone does not reach.
fn overfull(context: &Context<'_>, place: &Candidate) -> (StoppedBy, u64) {
    let class = context.class(place.backend);
    let room = context.fleet.budget(place).saturating_sub(class.each_device);
    let cuts = &context.items.cuts;
    let begin = cuts.first().copied().unwrap_or(0);
    // The piece with which the layers from the first one on are more than the room.
    let over = cuts.partition_point(|&cut| class.resident(begin, cut) <= room);
    let before = &cuts[..over.min(cuts.len() - 1)];
    let number = context.number(place);
    let reserved = context.pins.first_elsewhere(number).filter(|start| before.contains(start));
    if let Some(reason) = reserved.and_then(|start| context.pinned_elsewhere(number, start)) {
        return (reason, 0);
    }
    let (Some(&start), Some(&end)) = (before.last(), cuts.get(over)) else {
        return (StoppedBy::NotNeeded, 0);
    };
    let (needs, left) = (class.resident(start, end), room - class.resident(begin, start));
    let reason = StoppedBy::Layer {
        index: context.items.index(start),
        needs: Bytes::new(needs),
        room: Bytes::new(left),
    };
    (reason, needs - left)
}

/// What would come next on a device that holds something: the piece behind its last layer, or, where there is none, the
/// one before its first; `None` when it holds everything.
fn next_layer(
    context: &Context<'_>,
    place: &Candidate,
    stage: &Stage,
    pinned: &[(&Stage, &Hull)],
) -> Option<(StoppedBy, u64)> {
    let cuts = &context.items.cuts;
    let at = |index: u32| usize::try_from(index.saturating_sub(context.items.first)).unwrap_or(usize::MAX);
    let (start, end) = (at(stage.layers.start), at(stage.layers.end));
    let behind = cuts.get(cuts.partition_point(|&cut| cut < end)..).and_then(|cuts| cuts.get(..2));
    let before =
        cuts.get(..cuts.partition_point(|&cut| cut <= start)).and_then(|cuts| cuts.windows(2).last());
    let piece = behind.or(before)?;
    let elsewhere = context.pinned_elsewhere(context.number(place), piece[0]);
    if let Some(reason) = elsewhere.or_else(|| pinned_beside(context, piece[0], stage, pinned)) {
        return Some((reason, 0));
    }
    let class = context.class(place.backend);
    let shared = if stage.layers.is_empty() { class.each_device } else { 0 };
    let needs = class.resident(piece[0], piece[1]).saturating_add(shared);
    let room = stage.slack_bytes;
    Some(match Bytes::new(needs).checked_sub(room) {
        Some(short) if !short.is_zero() => (
            StoppedBy::Layer { index: context.items.index(piece[0]), needs: Bytes::new(needs), room },
            short.get(),
        ),
        _ => (StoppedBy::NotNeeded, 0),
    })
}

/// The stages of devices that have pins, with these.
fn pinned<'a>(context: &'a Context<'_>, stages: &'a [Stage]) -> Vec<(&'a Stage, &'a Hull)> {
    if context.pins.anywhere.is_empty() {
        return Vec::new();
    }
    let hull = |stage: &Stage| context.pins.in_its_pipeline(context.number_of(&stage.device)?);
    stages.iter().filter_map(|stage| Some((stage, hull(stage)?))).collect()
}

/// The pin of another device in the same of several pipelines, because of which a stage cannot hold the layer at a place.
fn pinned_beside(
    context: &Context<'_>,
    place: usize,
    stage: &Stage,
    pinned: &[(&Stage, &Hull)],
) -> Option<StoppedBy> {
    let mut others =
        pinned.iter().filter(|(other, _)| other.pipeline == stage.pipeline && other.device != stage.device);
    let (_, hull) = others.find(|(_, hull)| hull.layers.contains(&place))?;
    Some(StoppedBy::Pinned { index: context.items.index(place), device: hull.named.device.clone() })
}
