//! Apple's accelerators, which draw on the host's memory.

use objc2_metal::{MTLCreateSystemDefaultDevice, MTLDevice as _};

use super::bounds;
use crate::{Absence, Accelerator, AcceleratorKind, GpuBackend, Health, MemoryLayout};

/// The system's own accelerator: what it may use of the host's memory before the system pushes back.
pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
    let device = MTLCreateSystemDefaultDevice().ok_or(Absence::NoDevice)?;
    let told = device.recommendedMaxWorkingSetSize();
    let total = bounds::memory(told);
    let is_shared = device.hasUnifiedMemory();
    Ok(vec![Accelerator {
        ordinal: 0,
        id: "metal-0".to_owned(),
        uuid: None,
        pci: None,
        name: Some(device.name().to_string()),
        backend: GpuBackend::Metal,
        kind: if is_shared { AcceleratorKind::Integrated } else { AcceleratorKind::Discrete },
        total,
        layout: MemoryLayout::default(),
        compute_capability: None,
        multiprocessors: None,
        bandwidth: None,
        health: match total {
            Some(_) => Health::Healthy,
            None => Health::Unhealthy(Absence::garbled("recommendedMaxWorkingSetSize", told)),
        },
    }])
}
