//! Accelerators from what Vulkan's drivers say.

use plimsoll_units::Bytes;

use super::bounds;
use super::vulkan::{self, Heap, Told};
use crate::{Absence, Accelerator, AcceleratorKind, GpuBackend, Health, MemoryLayout};

/// Vulkan's numbers for kinds of devices.
const INTEGRATED: i32 = 1;
const PROCESSOR: i32 = 4;

/// NVIDIA's number on the bus; its drivers' names are the same under every library.
const NVIDIA: u32 = 0x10de;

/// The devices that are no processors, in the order of the loader.
pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
    let found = listed(&vulkan::devices()?);
    if found.is_empty() { Err(Absence::NoDevice) } else { Ok(found) }
}

/// What is free of a device's own memory, by its budget.
pub(super) fn free(accelerator: &Accelerator) -> Result<Bytes, Absence> {
    let told = vulkan::devices()?;
    let known = told.iter().filter(|told| told.kind != PROCESSOR).zip(listed(&told));
    let heaps = known.into_iter().find(|(_, device)| device.id == accelerator.id);
    let (told, _) = heaps.ok_or(Absence::NoDevice)?;
    let parts: Option<Vec<Bytes>> = local(&told.heaps)
        .map(|heap| {
            let (budget, usage) = heap.budget?;
            Some(Bytes::new(budget.min(heap.size)).saturating_sub(Bytes::new(usage)))
        })
        .collect();
    Ok(Bytes::saturating_sum(parts.ok_or(Absence::NotHere)?))
}

fn local(heaps: &[Heap]) -> impl Iterator<Item = &Heap> {
    heaps.iter().filter(|heap| heap.is_local)
}

fn listed(told: &[Told]) -> Vec<Accelerator> {
    (0..)
        .zip(told.iter().filter(|told| told.kind != PROCESSOR))
        .map(|(n, told)| accelerator(n, told))
        .collect()
}

fn accelerator(ordinal: u32, told: &Told) -> Accelerator {
    let named = told.uuid != [0; 16];
    let uuid = (named && told.vendor == NVIDIA).then(|| bounds::uuid("GPU", told.uuid));
    let pci = told.place.and_then(|(domain, bus, slot)| bounds::pci(domain, bus, slot));
    let id = uuid.clone().or_else(|| pci.clone());
    let id = id.or_else(|| named.then(|| bounds::uuid("VK", told.uuid)));
    let sizes: Vec<Bytes> = local(&told.heaps).map(|heap| Bytes::new(heap.size)).collect();
    let sum = Bytes::checked_sum(sizes.iter().copied());
    let total = sum.and_then(|sum| bounds::memory(sum.get()));
    let largest = sizes.into_iter().max().filter(|largest| total.is_some_and(|total| *largest < total));
    Accelerator {
        ordinal,
        id: id.unwrap_or_else(|| format!("vulkan-{ordinal}")),
        uuid,
        pci,
        name: bounds::text(&told.name),
        backend: GpuBackend::Vulkan,
        kind: if told.kind == INTEGRATED { AcceleratorKind::Integrated } else { AcceleratorKind::Discrete },
        total,
        layout: MemoryLayout { largest_heap: largest, ..MemoryLayout::default() },
        compute_capability: None,
        multiprocessors: None,
        bandwidth: None,
        health: match total {
            Some(_) => Health::Healthy,
            None => Health::Unhealthy(Absence::garbled("the sum of its heaps", sum.map_or(0, Bytes::get))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(size: u64, is_local: bool) -> Heap {
        Heap { size, is_local, budget: None }
    }

    #[test]
    fn own_heaps_add_up_and_the_largest_bounds_one_piece() {
        let card = Told {
            kind: 2,
            place: Some((0, 10, 0)),
            heaps: vec![heap(8_321_499_136, true), heap(4_133_625_856, false), heap(268_435_456, true)],
            ..Told::default()
        };
        let found = &listed(&[card])[0];
        assert_eq!((found.total, found.id.as_str()), (Some(Bytes::gib(8)), "0000:0a:00.0"));
        assert_eq!(found.layout.largest_heap, Some(Bytes::new(8_321_499_136)));
    }

    #[test]
    fn processors_are_no_accelerators_and_heaps_that_cannot_be_are_told() {
        let software = Told { kind: PROCESSOR, heaps: vec![heap(1 << 31, true)], ..Told::default() };
        let empty = Told { kind: 2, ..Told::default() };
        let enormous = Told { heaps: vec![heap(u64::MAX, true), heap(u64::MAX, true)], ..empty.clone() };
        let found = listed(&[software, empty, enormous]);
        assert_eq!(found.iter().map(|a| a.id.as_str()).collect::<Vec<_>>(), ["vulkan-0", "vulkan-1"]);
        assert!(found.iter().all(|a| !a.health.is_healthy() && a.total.is_none()));
    }
}
