//! NVIDIA's accelerators as the management library tells them.

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use super::bounds;
use super::nvml::{Handle, Memory, NOT_SUPPORTED, Session};
use crate::{
    Absence, Accelerator, AcceleratorKind, DeviceMetrics, GpuBackend, Health, MemoryLayout, Presence,
    ProcessMemory,
};

/// One card or slice.
struct Told<'s> {
    /// Numbered as the library lists them, slices in the place of their card.
    accelerator: Accelerator,
    /// What it is known by to the library, and its memory now; `None` when it does not answer at all.
    live: Option<(Handle<'s>, Result<Memory, Absence>)>,
}

/// What the library lists, in the order of the bus. A divided card is told by its slices.
pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
    let session = Session::start()?;
    let found: Vec<Accelerator> = listed(&session)?.into_iter().map(|told| told.accelerator).collect();
    if found.is_empty() { Err(Absence::NoDevice) } else { Ok(found) }
}

/// Live figures of what the library lists, by [`Accelerator::id`].
pub(super) fn metrics() -> Result<BTreeMap<String, DeviceMetrics>, Absence> {
    let session = Session::start()?;
    let figures = |told: Told<'_>| {
        let metrics = match (told.live, told.accelerator.health) {
            (Some((handle, memory)), Health::Healthy) => DeviceMetrics {
                free: match memory {
                    Ok(memory) => Presence::Found(memory.free),
                    // A board that has no memory of its own.
                    Err(Absence::Driver { code: NOT_SUPPORTED, .. }) => Presence::Absent(Absence::NotHere),
                    Err(why) => Presence::Absent(why),
                },
                busy: handle.busy().into(),
            },
            (_, Health::Unhealthy(why)) => DeviceMetrics::unknown(why),
            (None, Health::Healthy) => DeviceMetrics::unknown(Absence::NoDevice),
        };
        (told.accelerator.id, metrics)
    };
    Ok(listed(&session)?.into_iter().map(figures).collect())
}

/// Who holds memory on what the library lists, by [`Accelerator::id`].
pub(super) fn processes() -> Result<BTreeMap<String, Presence<Vec<ProcessMemory>>>, Absence> {
    let session = Session::start()?;
    let of = |told: Told<'_>| {
        let held = match told.live {
            Some((handle, _)) => handle.processes().map(merged),
            None => Err(match told.accelerator.health {
                Health::Unhealthy(why) => why,
                Health::Healthy => Absence::NoDevice,
            }),
        };
        (told.accelerator.id, held.into())
    };
    Ok(listed(&session)?.into_iter().map(of).collect())
}

/// A process that computes and draws is listed twice, each time with all that it holds.
fn merged(listed: Vec<(u32, Option<Bytes>)>) -> Vec<ProcessMemory> {
    let mut held: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    for (pid, bytes) in listed {
        let so_far = held.entry(pid).or_default();
        *so_far = (*so_far).max(bytes);
    }
    held.into_iter().map(|(pid, bytes)| ProcessMemory { pid, bytes }).collect()
}

fn listed(session: &Session) -> Result<Vec<Told<'_>>, Absence> {
    let mut found = Vec::new();
    for index in 0..session.count()? {
        match session.device(index) {
            Ok(handle) => found.extend(card(index, handle)),
            Err(why) => {
                let accelerator = Accelerator { health: Health::Unhealthy(why), ..nameless(index) };
                found.push(Told { accelerator, live: None });
            }
        }
    }
    for (place, told) in (0..).zip(&mut found) {
        told.accelerator.ordinal = place;
    }
    Ok(found)
}

/// A card, or the slices that it is divided into.
fn card(index: u32, handle: Handle<'_>) -> Vec<Told<'_>> {
    let whole = described(nameless(index), handle);
    match handle.slices() {
        Ok(None) => vec![whole],
        Ok(Some(slices)) if slices.is_empty() => vec![ill(whole, Absence::NoSlice)],
        Ok(Some(slices)) => slices
            .into_iter()
            .zip(0_u32..)
            .map(|(slice, number)| {
                let start = Accelerator {
                    id: format!("nvml-{index}-{number}"),
                    pci: whole.accelerator.pci.clone(),
                    name: whole.accelerator.name.clone(),
                    kind: AcceleratorKind::Slice,
                    compute_capability: whole.accelerator.compute_capability,
                    ..nameless(index)
                };
                described(start, slice)
            })
            .collect(),
        Err(why) => vec![ill(whole, why)],
    }
}

fn ill(told: Told<'_>, why: Absence) -> Told<'_> {
    let accelerator = Accelerator { health: Health::Unhealthy(why), ..told.accelerator };
    Told { accelerator, ..told }
}

fn nameless(index: u32) -> Accelerator {
    Accelerator {
        ordinal: index,
        id: format!("nvml-{index}"),
        uuid: None,
        pci: None,
        name: None,
        backend: GpuBackend::Cuda,
        kind: AcceleratorKind::Discrete,
        total: None,
        layout: MemoryLayout::default(),
        compute_capability: None,
        multiprocessors: None,
        bandwidth: None,
        health: Health::Healthy,
    }
}

/// What a device says of itself. What it cannot tell is left as it was; one whose memory cannot be read is unhealthy, and one
/// that has no memory of its own to tell of sits on the host's.
fn described(mut found: Accelerator, handle: Handle<'_>) -> Told<'_> {
    let is_slice = found.kind == AcceleratorKind::Slice;
    found.uuid = handle.uuid().ok();
    if let Ok(name) = handle.name() {
        found.name = Some(name);
    }
    if let Ok(pci) = handle.pci() {
        found.pci = Some(pci);
    }
    // Slices of one card share its place.
    let place = found.pci.as_ref().filter(|_| !is_slice);
    if let Some(id) = found.uuid.as_ref().or(place) {
        found.id.clone_from(id);
    }
    if let Ok((major, minor)) = handle.capability() {
        found.compute_capability = bounds::capability(major.into(), minor.into());
    }
    if is_slice {
        found.multiprocessors = handle.slice_multiprocessors().ok().and_then(bounds::multiprocessors);
    } else {
        let kilohertz = handle.memory_clock().ok().and_then(|megahertz| megahertz.checked_mul(1_000));
        found.bandwidth = bounds::bandwidth(kilohertz, handle.bus_width().ok());
    }
    let memory = handle.memory();
    match &memory {
        Ok(memory) => found.total = Some(memory.total),
        Err(Absence::Driver { code: NOT_SUPPORTED, .. }) if !is_slice => {
            found.kind = AcceleratorKind::Integrated;
        }
        Err(why) => found.health = Health::Unhealthy(why.clone()),
    }
    Told { accelerator: found, live: Some((handle, memory)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_listed_twice_counts_once() {
        let held = merged(vec![
            (7, Some(Bytes::gib(1))),
            (5, None),
            (7, Some(Bytes::gib(1))),
            (5, Some(Bytes::mib(3))),
            (9, None),
        ]);
        let of = |pid, bytes| ProcessMemory { pid, bytes };
        assert_eq!(held, [of(5, Some(Bytes::mib(3))), of(7, Some(Bytes::gib(1))), of(9, None)]);
    }
}
