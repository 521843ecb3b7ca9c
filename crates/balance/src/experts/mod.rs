//! Parts of layers on the main host: experts, or feed-forward blocks, while attention stays on a device.
//!
//! Where whole layers alone do not fit on the devices, a device can hold a layer without its largest part. Which layers
//! give theirs away is chosen device by device. For one stream ([`Objective::Latency`]) the search is exact where the
//! ordered sets of devices are few, every pool has one device, and the layers of a stage come in few kinds; elsewhere a
//! bound holds for layers that are cut at will.

mod choice;
mod floor;
mod measure;
mod parts;
mod search;

use std::cmp::Ordering;

use crate::assemble::Assembled;
use crate::context::Context;
use crate::keep::as_good_as;
use crate::plan::Override;
use crate::workload::{MoveWhen, Objective, Pipelines, Transfers};
use search::{Aim, Finder};

pub(crate) use measure::{Measured, Moved};
pub(crate) use parts::{Parts, check};

/// So often the largest stage time is lowered.
const ROUNDS: usize = 24;

/// What came out of moving parts.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The best plan with parts on the main host, where it is better than the one of whole layers.
    pub(crate) better: Option<(Assembled, Vec<Override>)>,
    /// No plan with parts on the main host is better than this; infinite where none can fit.
    pub(crate) lower: f64,
    /// Whether the plan of whole layers still answers what was asked.
    pub(crate) whole_stands: bool,
    /// Whether every plan with parts on the main host was looked at.
    pub(crate) complete: bool,
}

/// Looks for a plan with parts on the main host; `None` where nothing may move, or nothing has to.
pub(crate) fn moved(context: &Context<'_>, whole: Option<&Assembled>) -> Option<Outcome> {
    let parts = Parts::new(context)?;
    let anything = parts.movable.parts.iter().flatten().any(|part| !part.weights_bytes.is_zero());
    let one = context.options.pipelines == Pipelines::One && context.options.transfers == Transfers::Apart;
    let always = parts.movable.when == MoveWhen::Always;
    // With every layer on the host its parts lie there as well.
    let on_devices = whole.is_none_or(|whole| !whole.draft.devices.is_empty());
    let needed = always && on_devices || whole.is_none_or(|whole| whole.draft.host > 0);
    if !anything || !one || !needed || context.limit == 0 || context.fleet.devices.is_empty() {
        return None;
    }
    let whole_stands = !(always && on_devices);
    let rival = whole.filter(|_| whole_stands);
    let (found, complete) = look(&parts, rival);
    let exact = complete && context.options.objective == Objective::Latency && !context.equal_speeds;
    let lower = match (&found, complete) {
        (None, true) if rival.is_none() => f64::INFINITY,
        (Some(found), true) if exact => found.assembled.value,
        // Nothing below the plan of whole layers.
        (None, true) if exact => rival.map_or(f64::INFINITY, |whole| whole.value),
        _ => floor::floor(&parts),
    };
    let better = found.filter(|found| rival.is_none_or(|whole| beats(&parts, found, whole)));
    let better = better.map(|found| (found.assembled, found.overrides));
    Some(Outcome { better, lower, whole_stands, complete })
}

/// The best placement, and whether everything was looked at.
fn look(parts: &Parts<'_>, rival: Option<&Assembled>) -> (Option<Measured>, bool) {
    let context = parts.context;
    let search = |aim: Aim, ceiling: f64| {
        let mut finder = Finder::new(parts, aim, ceiling);
        let found = finder.run().map(|(found, _)| Moved::of(parts, &found).measure(parts));
        // Two devices of one pool may be short together.
        (found.filter(|found| found.short == 0), finder.complete)
    };
    if context.host_comes_last() {
        return search(Aim::HostBytes, f64::INFINITY);
    }
    let ceiling = rival.map_or(f64::INFINITY, |whole| as_good_as(whole.value));
    if context.options.objective == Objective::Latency {
        return search(Aim::Seconds, ceiling);
    }
    let (mut best, complete) = search(Aim::HostBytes, f64::INFINITY);
    let mut high = best.as_ref().map_or(0.0, |best| best.assembled.value).min(ceiling);
    let mut low = floor::floor(parts);
    for _ in 0..ROUNDS {
        if best.is_none() || low >= high {
            break;
        }
        let middle = low + (high - low) / 2.0;
        match search(Aim::Bottleneck(middle), middle).0 {
            Some(found) if best.as_ref().is_none_or(|best| found.assembled.value < best.assembled.value) => {
                high = found.assembled.value.min(middle);
                best = Some(found);
            }
            _ => low = middle,
        }
    }
    (best, complete)
}

/// Whether a plan with parts on the main host is better than one of whole layers.
fn beats(parts: &Parts<'_>, found: &Measured, whole: &Assembled) -> bool {
    if parts.context.host_comes_last() {
        let class = parts.context.class(parts.host.place.backend);
        let shared = if whole.draft.host == 0 { 0 } else { class.each_device };
        let kept = class.resident(0, whole.draft.host).saturating_add(class.input).saturating_add(shared);
        match found.on_host.cmp(&kept) {
            Ordering::Less => return true,
            Ordering::Greater => return false,
            Ordering::Equal => {}
        }
    }
    as_good_as(found.assembled.value) < whole.value
}
