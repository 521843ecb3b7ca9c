//! NVIDIA's accelerators, from what the driver answers.

use std::ffi::c_int;

use plimsoll_units::Bytes;

use super::bounds::{self, MOST_DEVICES};
use super::cuda::{Attribute, Copying, Listing, Metering, Piece};
use crate::measure::{DeviceMeasured, Timing};
use crate::{Absence, Accelerator, AcceleratorKind, GpuBackend, Health, MemoryLayout};

/// The answer of `cuInit` where there is a driver and no device.
const NO_DEVICE: i32 = 100;

/// Looks the calls up and starts the driver.
fn start() -> Result<Listing, Absence> {
    let driver = Listing::load()?;
    match driver.init() {
        Ok(()) => Ok(driver),
        Err(Absence::Driver { code: NO_DEVICE, .. }) => Err(Absence::NoDevice),
        Err(why) => Err(why),
    }
}

pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
    let driver = start()?;
    let count = u32::try_from(driver.count()?).unwrap_or(0).min(MOST_DEVICES);
    let found: Vec<Accelerator> = (0..count).map(|ordinal| accelerator(&driver, ordinal)).collect();
    if found.is_empty() { Err(Absence::NoDevice) } else { Ok(found) }
}

/// One device. What cannot be read is left out; a device whose memory cannot be read is unhealthy.
fn accelerator(driver: &Listing, ordinal: u32) -> Accelerator {
    let mut found = Accelerator {
        ordinal,
        id: format!("cuda-{ordinal}"),
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
    };
    let device = match driver.device(c_int::try_from(ordinal).unwrap_or(c_int::MAX)) {
        Ok(device) => device,
        Err(why) => return Accelerator { health: Health::Unhealthy(why), ..found },
    };
    describe(&mut found, driver, device);
    match total(driver, device) {
        Ok(total) => found.total = Some(total),
        Err(why) => found.health = Health::Unhealthy(why),
    }
    found
}

fn describe(found: &mut Accelerator, driver: &Listing, device: c_int) {
    let attribute = |attribute: Attribute| {
        let value = driver.attribute(attribute, device).ok()?;
        u32::try_from(value).ok()
    };
    if let Ok(name) = driver.name(device) {
        found.name = bounds::text(&name);
    }
    let is_slice = found.name.as_deref().is_some_and(|name| name.contains(" MIG "));
    found.kind = match attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED) {
        Some(1..) => AcceleratorKind::Integrated,
        _ if is_slice => AcceleratorKind::Slice,
        _ => AcceleratorKind::Discrete,
    };
    // All zeros is what a driver without such names leaves behind.
    found.uuid = driver
        .uuid(device)
        .ok()
        .filter(|uuid| *uuid != [0; 16])
        .map(|uuid| bounds::uuid(if is_slice { "MIG" } else { "GPU" }, uuid));
    let place = (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    );
    if let (Some(domain), Some(bus), Some(slot)) = place {
        found.pci = bounds::pci(domain, bus, slot);
    }
    // Slices of one card share its place.
    if let Some(id) = found.uuid.as_ref().or(found.pci.as_ref().filter(|_| !is_slice)) {
        found.id.clone_from(id);
    }
    found.compute_capability = match (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    ) {
        (Some(major), Some(minor)) => bounds::capability(major.into(), minor.into()),
        _ => None,
    };
    found.multiprocessors =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).and_then(bounds::multiprocessors);
    found.bandwidth = bounds::bandwidth(
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    );
}

/// All of a device's memory, where that can be true.
fn total(driver: &Listing, device: c_int) -> Result<Bytes, Absence> {
    let total = driver.total(device)?;
    let known = u64::try_from(total).ok().and_then(bounds::memory);
    known.ok_or_else(|| Absence::garbled("cuDeviceTotalMem_v2", total))
}

/// The handle of an accelerator, with what it is now, or why it is no longer the one that was seen.
fn again(accelerator: &Accelerator) -> Result<(Listing, c_int, Accelerator), Absence> {
    let driver = start()?;
    let ordinal = c_int::try_from(accelerator.ordinal).map_err(|_| Absence::NoDevice)?;
    let now = self::accelerator(&driver, accelerator.ordinal);
    if let Health::Unhealthy(why) = now.health {
        return Err(why);
    }
    // What either side does not know is no sign of another device.
    let is_other = match (&now.uuid, &accelerator.uuid) {
        (Some(now), Some(before)) => now != before,
        _ => now.pci.is_some() && accelerator.pci.is_some() && now.pci != accelerator.pci,
    };
    if is_other {
        return Err(Absence::Moved { expected: accelerator.id.clone(), found: now.id });
    }
    let device = driver.device(ordinal)?;
    Ok((driver, device, now))
}

pub(super) fn free(accelerator: &Accelerator) -> Result<Bytes, Absence> {
    let (_, device, now) = again(accelerator)?;
    let (free, _) = Metering::load()?.memory(device)?;
    // The context's view of the total may be a little less than the device's.
    match u64::try_from(free).ok().map(Bytes::new) {
        Some(bytes) if now.total.is_some_and(|total| bytes <= total) => Ok(bytes),
        _ => Err(Absence::garbled("cuMemGetInfo_v2", free)),
    }
}

/// Copies on the device for as long as `timing` lets it.
pub(super) fn measure(accelerator: &Accelerator, timing: &Timing<'_>) -> Result<DeviceMeasured, Absence> {
    let (_, device, _) = again(accelerator)?;
    let size = |free| {
        let free = u64::try_from(free).map_or(Bytes::MAX, Bytes::new);
        let size = timing.buffer(free)?;
        usize::try_from(size.get()).map_err(|_| Absence::garbled("cuMemGetInfo_v2", size))
    };
    Copying::load()?.with_piece(device, size, |piece: &Piece<'_>| {
        let half = u64::try_from(piece.half()).map_or(Bytes::ZERO, Bytes::new);
        timing.measure(half, &|| piece.copy(), &|| piece.wait())
    })
}
