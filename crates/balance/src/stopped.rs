//! What stopped each device from taking more.

use plimsoll_units::Bytes;

use crate::assemble::Assembled;
use crate::context::Context;
use crate::fleet::Candidate;
use crate::plan::{Stage, Stopped, StoppedBy};

/// For a plan: every device that is left out, unused, or holds less than everything.
pub(crate) fn of_plan(context: &Context<'_>, plan: &Assembled) -> Vec<Stopped> {
    let mut stopped = context.fleet.left_out.clone();
    let used = plan.draft.devices.len();
    for place in candidates(context) {
        let stage = plan.stages.iter().find(|s| s.device == place.device && (s.head || !s.layers.is_empty()));
        let (reason, short) = match stage {
            Some(stage) => match next_layer(context, place, stage, &plan.stages) {
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
    let number = context.number(place);
    let mut held = 0_u64;
    for cut in context.items.cuts.windows(2) {
        if let Some(reason) = context.pinned_elsewhere(number, cut[0]) {
            return (reason, 0);
        }
        let needs = class.resident(cut[0], cut[1]);
        let left = room.saturating_sub(held);
        if needs > left {
            let reason = StoppedBy::Layer {
                index: context.items.index(cut[0]),
                needs: Bytes::new(needs),
                room: Bytes::new(left),
            };
            return (reason, needs - left);
        }
        held = held.saturating_add(needs);
    }
    (StoppedBy::NotNeeded, 0)
}

/// What would come next on a device that holds something: the piece behind its last layer, or, where there is none, the
/// one before its first; `None` when it holds everything.
fn next_layer(
    context: &Context<'_>,
    place: &Candidate,
    stage: &Stage,
    stages: &[Stage],
) -> Option<(StoppedBy, u64)> {
    let cuts = &context.items.cuts;
    let at = |index: u32| usize::try_from(index.saturating_sub(context.items.first)).unwrap_or(usize::MAX);
    let (start, end) = (at(stage.layers.start), at(stage.layers.end));
    let behind = cuts.windows(2).find(|cut| cut[0] >= end);
    let piece = behind.or_else(|| cuts.windows(2).rev().find(|cut| cut[1] <= start))?;
    let pinned = context.pinned_elsewhere(context.number(place), piece[0]);
    if let Some(reason) = pinned.or_else(|| pinned_beside(context, piece[0], stage, stages)) {
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

/// The pin of another device in the same of several pipelines, because of which a stage cannot hold the layer at a place.
fn pinned_beside(context: &Context<'_>, place: usize, stage: &Stage, stages: &[Stage]) -> Option<StoppedBy> {
    let others =
        stages.iter().filter(|other| other.pipeline == stage.pipeline && other.device != stage.device);
    let mut hulls = others
        .filter_map(|other| context.number_of(&other.device))
        .filter_map(|device| context.pins.in_its_pipeline(device));
    let hull = hulls.find(|hull| hull.layers.contains(&place))?;
    Some(StoppedBy::Pinned { index: context.items.index(place), device: hull.named.device.clone() })
}
