//! NVIDIA's accelerators, from what the driver answers.

use std::ffi::c_int;

use plimsoll_units::{Bytes, BytesPerSec};

use super::cuda::{Attribute, Listing, Metering};
use crate::{Absence, Accelerator, AcceleratorKind, GpuBackend, Health};

/// More devices than a driver lists.
const MOST_DEVICES: c_int = 1024;

/// More memory than a device has: a pebibyte.
const MOST_BYTES: u64 = 1 << 50;

/// More than a memory reads in a second: 100 terabytes.
const MOST_BYTES_PER_SECOND: u64 = 100_000_000_000_000;

/// More multiprocessors than a device has.
const MOST_MULTIPROCESSORS: u32 = 100_000;

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
    let found: Vec<Accelerator> =
        (0..driver.count()?.clamp(0, MOST_DEVICES)).map(|ordinal| accelerator(&driver, ordinal)).collect();
    if found.is_empty() { Err(Absence::NoDevice) } else { Ok(found) }
}

/// One device. What cannot be read is left out; a device whose memory cannot be read is unhealthy.
fn accelerator(driver: &Listing, ordinal: c_int) -> Accelerator {
    let number = u32::try_from(ordinal).unwrap_or_default();
    let mut found = Accelerator {
        ordinal: number,
        id: format!("cuda-{number}"),
        uuid: None,
        pci: None,
        name: None,
        backend: GpuBackend::Cuda,
        kind: AcceleratorKind::Discrete,
        total: None,
        compute_capability: None,
        multiprocessors: None,
        bandwidth: None,
        health: Health::Healthy,
    };
    let device = match driver.device(ordinal) {
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
        let name = String::from_utf8_lossy(&name).trim().to_owned();
        found.name = (!name.is_empty()).then_some(name);
    }
    let is_slice = found.name.as_deref().is_some_and(|name| name.contains(" MIG "));
    found.kind = match attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED) {
        Some(1..) => AcceleratorKind::Integrated,
        _ if is_slice => AcceleratorKind::Slice,
        _ => AcceleratorKind::Discrete,
    };
    // All zeros is what a driver without such names leaves behind.
    found.uuid = driver.uuid(device).ok().filter(|uuid| *uuid != [0; 16]).map(|uuid| shown(uuid, is_slice));
    let place = (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    );
    if let (Some(domain), Some(bus @ 0..=0xff), Some(slot @ 0..=0x1f)) = place {
        found.pci = Some(format!("{domain:04x}:{bus:02x}:{slot:02x}.0"));
    }
    if let Some(id) = found.uuid.as_ref().or(found.pci.as_ref()) {
        found.id.clone_from(id);
    }
    found.compute_capability = match (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    ) {
        (Some(major @ 1..=99), Some(minor @ 0..=99)) => Some((major, minor)),
        _ => None,
    };
    found.multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        .filter(|count| (1..=MOST_MULTIPROCESSORS).contains(count));
    found.bandwidth = bandwidth(
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    );
}

/// All of a device's memory, where that can be true.
fn total(driver: &Listing, device: c_int) -> Result<Bytes, Absence> {
    let total = driver.total(device)?;
    match u64::try_from(total) {
        Ok(total @ 1..=MOST_BYTES) => Ok(Bytes::new(total)),
        _ => Err(Absence::garbled("cuDeviceTotalMem_v2", total)),
    }
}

/// Twice the clock (in kHz; both edges count) times the width of the bus (in bits).
fn bandwidth(kilohertz: Option<u32>, bits: Option<u32>) -> Option<BytesPerSec> {
    let bytes_per_edge = u64::from(bits?) / 8;
    let rate = (u64::from(kilohertz?) * 2_000).checked_mul(bytes_per_edge)?;
    (1..=MOST_BYTES_PER_SECOND).contains(&rate).then(|| BytesPerSec::new(rate))
}

/// `GPU-00112233-4455-6677-8899-aabbccddeeff`, as the driver's other tools write it; a slice's begins with `MIG-`.
fn shown(uuid: [u8; 16], is_slice: bool) -> String {
    let mut text = String::from(if is_slice { "MIG" } else { "GPU" });
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

pub(super) fn free(accelerator: &Accelerator) -> Result<Bytes, Absence> {
    let driver = start()?;
    let ordinal = c_int::try_from(accelerator.ordinal).map_err(|_| Absence::NoDevice)?;
    let now = self::accelerator(&driver, ordinal);
    if let Health::Unhealthy(why) = now.health {
        return Err(why);
    }
    if now.id != accelerator.id {
        return Err(Absence::Moved { expected: accelerator.id.clone(), found: now.id });
    }
    let (free, _) = Metering::load()?.memory(driver.device(ordinal)?)?;
    // The context's view of the total may be a little less than the device's.
    match u64::try_from(free).ok().map(Bytes::new) {
        Some(bytes) if now.total.is_some_and(|total| bytes <= total) => Ok(bytes),
        _ => Err(Absence::garbled("cuMemGetInfo_v2", free)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bandwidth_is_twice_the_clock_times_the_width() {
        let rate = |khz, bits| bandwidth(Some(khz), Some(bits)).map(BytesPerSec::get);
        assert_eq!(rate(10_501_000, 384), Some(1_008_096_000_000));
        assert_eq!(rate(2_619_000, 5120), Some(3_352_320_000_000));
        assert_eq!(rate(0, 384), None);
        assert_eq!(rate(u32::MAX, u32::MAX), None);
        assert_eq!(bandwidth(None, Some(384)), None);
    }

    #[test]
    fn uuids_are_written_in_five_groups() {
        let uuid: [u8; 16] = std::array::from_fn(|n| u8::try_from(n * 17).unwrap());
        assert_eq!(shown(uuid, false), "GPU-00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(shown(uuid, true), "MIG-00112233-4455-6677-8899-aabbccddeeff");
    }
}
