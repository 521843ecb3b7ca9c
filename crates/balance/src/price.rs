//! What a placement that somebody else decided takes.

use std::collections::BTreeSet;
use std::ops::Range;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_units::{Bytes, DeviceRef};

use crate::assemble::Draft;
use crate::context::Context;
use crate::door;
use crate::error::PlanError;
use crate::experts::{self, Measured, Moved, Parts};
use crate::plan::Plan;
use crate::workload::{EngineRules, PlanOptions, Workload};

/// A placement that somebody else decided: an engine's own, or a person's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// How many of the first layers the main node's host holds; nothing without such a host.
    pub on_host: usize,
    /// The devices in order, each with a range of places of layers (not of their indices), one after the other from
    /// `on_host` on. The head lies on the last one, on the host where there is none. Where several pipelines are asked
    /// for, the device behind one that holds the last layer begins another pipeline, from 0.
    pub devices: Vec<(DeviceRef, Range<usize>)>,
    /// The places of layers whose part lies on the main host while the layer lies on a device; each once, in any order.
    pub moved: Vec<usize>,
}

/// A placement with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// The placement as a plan. Where it does not fit, some stage has more than its budget and a slack of zero, and the
    /// auditor says so.
    pub plan: Plan,
    /// How many bytes it is short of fitting on the device that lacks most; zero when it fits.
    pub short_bytes: Bytes,
}

/// What a placement takes under an engine's rules, whether it fits or not.
///
/// `lower_bound` is what is known of the value that no plan is better than; zero proves nothing.
///
/// # Errors
///
/// An inconsistent input; a device that is not there, may not be used or is named twice; ranges that do not follow each other or do not
/// cover the layers.
pub fn price(
    snapshot: &ClusterSnapshot,
    workload: &Workload,
    rules: &EngineRules,
    options: &PlanOptions,
    placement: &Placement,
    lower_bound: f64,
) -> Result<Priced, PlanError> {
    let context = Context::new(snapshot, workload, rules, options)?;
    let mut seen = BTreeSet::new();
    let mut next = placement.on_host;
    let mut devices = Vec::with_capacity(placement.devices.len());
    let last = placement.devices.len().saturating_sub(1);
    let several = options.pipelines.may_be_several() && context.fleet.host.is_none();
    for (at, (device, layers)) in placement.devices.iter().enumerate() {
        let found = context.fleet.devices.iter().position(|candidate| candidate.device == *device);
        let index = found.ok_or_else(|| PlanError::UnknownDevice { device: device.clone() })?;
        if !seen.insert(index) {
            return Err(PlanError::RepeatedDevice { device: device.clone() });
        }
        let ends = several && layers.end == context.items.layers();
        if several && next == context.items.layers() && at > 0 {
            next = 0;
        }
        if layers.start != next || layers.end < layers.start {
            return Err(PlanError::BrokenPlacement { at: layers.start, expected: next });
        }
        next = layers.end;
        devices.push((index, layers.clone(), ends || at == last));
    }
    if next != context.items.layers() || (placement.on_host > 0 && context.fleet.host.is_none()) {
        return Err(PlanError::BrokenPlacement { at: context.items.layers(), expected: next });
    }
    if devices.is_empty() && context.fleet.host.is_none() {
        return Err(PlanError::NoDevices { stopped: context.fleet.left_out.clone() });
    }
    if !placement.moved.is_empty() {
        let moved = Moved::told(placement.on_host, devices, &placement.moved)?;
        let parts = Parts::new(&context).ok_or(PlanError::NothingMoves)?;
        experts::check(workload, rules)?;
        let Measured { assembled, overrides, short, .. } = moved.measure(&parts);
        let plan = Plan { overrides, ..door::finished(&context, &assembled, lower_bound) };
        return Ok(Priced { plan, short_bytes: Bytes::new(short) });
    }
    let (assembled, short) = Draft { host: placement.on_host, devices }.measure(&context);
    Ok(Priced { plan: door::finished(&context, &assembled, lower_bound), short_bytes: Bytes::new(short) })
}
