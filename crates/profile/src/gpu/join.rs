//! One list from what two libraries of one maker tell.

use crate::{Absence, Accelerator, AcceleratorKind, Health, Presence};

/// NVIDIA's accelerators: numbered as CUDA shows them to this process, each filled up with what the management library knows
/// of it.
///
/// The two number devices differently, so devices are the same by their unique name, else by their place on the bus; the
/// last one on either side is the same when one of the two has neither. What the management library alone lists comes
/// after, numbered on, and is unhealthy: CUDA does not show it to this process, so nothing can be placed there. Where CUDA
/// was not asked, the management library's list stands as it is.
pub(super) fn joined(
    cuda: &Presence<Vec<Accelerator>>,
    managed: &Presence<Vec<Accelerator>>,
) -> Vec<Accelerator> {
    let managed = managed.as_result().map_or(&[][..], Vec::as_slice);
    let (shown, why) = match cuda {
        Presence::Found(devices) => (devices.as_slice(), &Absence::Hidden),
        Presence::Absent(Absence::NotCompiled { .. } | Absence::NotAsked) => return managed.to_vec(),
        Presence::Absent(Absence::NoDevice) => (&[][..], &Absence::Hidden),
        Presence::Absent(why) => (&[][..], why),
    };
    let partners = partners(shown, managed);
    let mut found: Vec<Accelerator> = shown
        .iter()
        .zip(&partners)
        .map(|(device, partner)| match partner {
            Some(at) => filled(device.clone(), &managed[*at]),
            None => device.clone(),
        })
        .collect();
    let hidden = managed.iter().enumerate().filter(|(at, _)| !partners.contains(&Some(*at)));
    for (ordinal, (_, device)) in (u32::try_from(shown.len()).unwrap_or(u32::MAX)..).zip(hidden) {
        let health = match &device.health {
            Health::Healthy => Health::Unhealthy(why.clone()),
            ill => ill.clone(),
        };
        found.push(Accelerator { ordinal, health, ..device.clone() });
    }
    found
}

/// For each device that CUDA shows, where it stands in the other list.
fn partners(shown: &[Accelerator], managed: &[Accelerator]) -> Vec<Option<usize>> {
    let mut partners: Vec<Option<usize>> = vec![None; shown.len()];
    for is_same in [same_name, same_place] {
        for at in 0..shown.len() {
            if partners[at].is_none() {
                let free = |other: &usize| !partners.contains(&Some(*other));
                partners[at] =
                    (0..managed.len()).filter(free).find(|other| is_same(&shown[at], &managed[*other]));
            }
        }
    }
    let mut alone = (0..shown.len()).filter(|at| partners[*at].is_none());
    if let (true, Some(last), None) = (shown.len() == managed.len(), alone.next(), alone.next()) {
        let other = (0..managed.len()).find(|other| !partners.contains(&Some(*other)));
        let nameless = |device: &Accelerator| device.uuid.is_none() && device.pci.is_none();
        partners[last] = other.filter(|other| nameless(&shown[last]) || nameless(&managed[*other]));
    }
    partners
}

fn same_name(a: &Accelerator, b: &Accelerator) -> bool {
    a.uuid.is_some() && a.uuid == b.uuid
}

/// Slices of one card share its place, and two devices with different names are two wherever they are.
fn same_place(a: &Accelerator, b: &Accelerator) -> bool {
    let is_slice = a.kind == AcceleratorKind::Slice || b.kind == AcceleratorKind::Slice;
    let differ = a.uuid.is_some() && b.uuid.is_some() && a.uuid != b.uuid;
    !is_slice && !differ && a.pci.is_some() && a.pci == b.pci
}

/// A device with what the other library knows of it. What CUDA says holds, but for health: either may find it ill, and where
/// both do, the other library says better why (a lost card is one that CUDA only fails on).
fn filled(mut device: Accelerator, other: &Accelerator) -> Accelerator {
    let known = |mine: &mut Option<String>, other: &Option<String>| {
        if mine.is_none() {
            mine.clone_from(other);
        }
    };
    known(&mut device.uuid, &other.uuid);
    known(&mut device.pci, &other.pci);
    known(&mut device.name, &other.name);
    if other.kind == AcceleratorKind::Slice {
        device.kind = AcceleratorKind::Slice;
    }
    let place = device.pci.as_ref().filter(|_| device.kind != AcceleratorKind::Slice);
    if let Some(id) = device.uuid.as_ref().or(place) {
        device.id.clone_from(id);
    }
    device.total = device.total.or(other.total);
    device.compute_capability = device.compute_capability.or(other.compute_capability);
    device.multiprocessors = device.multiprocessors.or(other.multiprocessors);
    device.bandwidth = device.bandwidth.or(other.bandwidth);
    if !other.health.is_healthy() {
        device.health = other.health.clone();
    }
    device
}

/// Adds a device that another source tells of. One that is already listed, by its name or its place, is filled up and keeps
/// its driver.
pub(super) fn add(found: &mut Vec<Accelerator>, other: Accelerator) {
    let known = found.iter_mut().find(|device| same_name(device, &other) || same_place(device, &other));
    match known {
        Some(device) => {
            let health = device.health.clone();
            let layout = device.layout;
            *device = filled(device.clone(), &other);
            device.health = health;
            device.layout.host_share = layout.host_share.or(other.layout.host_share);
            let largest = layout.largest_heap.or(other.layout.largest_heap);
            // A window into a card's memory is told as a heap beside it.
            device.layout.largest_heap =
                largest.filter(|largest| device.total.is_some_and(|total| *largest < total));
        }
        None => found.push(other),
    }
}
