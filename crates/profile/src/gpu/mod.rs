//! Accelerators: which drivers are asked, how their answers become one list, and the doors where none is compiled in.

#[cfg(any(
    feature = "cuda",
    feature = "nvml",
    feature = "vulkan",
    all(feature = "metal", target_os = "macos")
))]
mod bounds;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "vulkan")]
mod graphics;
mod join;
#[cfg(feature = "nvml")]
mod managed;
#[cfg(all(feature = "metal", target_os = "macos"))]
mod metal;
#[cfg(feature = "cuda")]
mod nvidia;
#[cfg(feature = "nvml")]
mod nvml;
#[cfg(feature = "vulkan")]
mod vulkan;

#[cfg(not(feature = "cuda"))]
mod nvidia {
    //! The door without the feature.

    use plimsoll_units::Bytes;

    use crate::measure::{DeviceMeasured, Timing};
    use crate::{Absence, Accelerator};

    pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
        Err(Absence::NotCompiled { feature: "cuda" })
    }

    pub(super) fn free(_accelerator: &Accelerator) -> Result<Bytes, Absence> {
        Err(Absence::NotCompiled { feature: "cuda" })
    }

    pub(super) fn measure(_: &Accelerator, _: &Timing<'_>) -> Result<DeviceMeasured, Absence> {
        Err(Absence::NotCompiled { feature: "cuda" })
    }
}

#[cfg(not(all(feature = "metal", target_os = "macos")))]
mod metal {
    //! The door without the feature, or on another system.

    use crate::{Absence, Accelerator};

    pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
        Err(match cfg!(target_os = "macos") {
            true => Absence::NotCompiled { feature: "metal" },
            false => Absence::NotHere,
        })
    }
}

#[cfg(not(feature = "vulkan"))]
mod graphics {
    //! The door without the feature.

    use plimsoll_units::Bytes;

    use crate::{Absence, Accelerator};

    pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
        Err(Absence::NotCompiled { feature: "vulkan" })
    }

    pub(super) fn free(_accelerator: &Accelerator) -> Result<Bytes, Absence> {
        Err(Absence::NotCompiled { feature: "vulkan" })
    }
}

#[cfg(not(feature = "nvml"))]
mod managed {
    //! The door without the feature.

    use std::collections::BTreeMap;

    use crate::{Absence, Accelerator, DeviceMetrics, Presence, ProcessMemory};

    const CLOSED: Absence = Absence::NotCompiled { feature: "nvml" };

    pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
        Err(CLOSED)
    }

    pub(super) fn metrics() -> Result<BTreeMap<String, DeviceMetrics>, Absence> {
        Err(CLOSED)
    }

    pub(super) fn processes() -> Result<BTreeMap<String, Presence<Vec<ProcessMemory>>>, Absence> {
        Err(CLOSED)
    }
}

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use crate::measure::{DeviceMeasured, Timing};
use crate::{
    Absence, Accelerator, AcceleratorKind, DeviceMetrics, GpuBackend, Health, Machine, Presence, Probe,
    ProcessMemory, SystemProfile,
};

/// The accelerators of a machine, each once, and what each probe came back with.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) accelerators: Vec<Accelerator>,
    pub(crate) outcomes: Vec<(Probe, Presence<usize>)>,
}

impl Found {
    fn note(&mut self, probe: Probe, outcome: &Presence<Vec<Accelerator>>) {
        let counted = match outcome {
            Presence::Found(devices) => Presence::Found(devices.len()),
            Presence::Absent(why) => Presence::Absent(why.clone()),
        };
        self.outcomes.push((probe, counted));
    }
}

/// What the drivers that `asked` allows and the kernel's files tell. `host` is the host's memory.
pub(crate) fn accelerators(
    machine: &Machine,
    host: Option<Bytes>,
    asked: &dyn Fn(Probe) -> Result<(), Absence>,
) -> Found {
    let ask = |probe, driver: &dyn Fn() -> Result<Vec<Accelerator>, Absence>| -> Presence<Vec<Accelerator>> {
        asked(probe).and_then(|()| driver()).into()
    };
    let mut found = Found::default();
    let cuda = ask(Probe::Cuda, &nvidia::accelerators);
    let managed = ask(Probe::Nvml, &managed::accelerators);
    found.note(Probe::Cuda, &cuda);
    found.note(Probe::Nvml, &managed);
    found.accelerators = join::joined(&cuda, &managed);
    let others = [
        (Probe::Amdgpu, machine.amd(host)),
        (Probe::Intel, machine.intel()),
        (Probe::Vulkan, ask(Probe::Vulkan, &graphics::accelerators)),
        (Probe::Metal, ask(Probe::Metal, &metal::accelerators)),
    ];
    for (probe, told) in others {
        found.note(probe, &told);
        for accelerator in told.found().unwrap_or_default() {
            join::add(&mut found.accelerators, accelerator);
        }
    }
    for accelerator in &mut found.accelerators {
        // A board on the host's memory whose driver has no number of its own for it.
        let is_board =
            accelerator.kind == AcceleratorKind::Integrated && accelerator.backend == GpuBackend::Cuda;
        if is_board && accelerator.health.is_healthy() {
            accelerator.total = accelerator.total.or(host);
        }
    }
    found
}

/// Live figures of each of a profile's accelerators, in their order. `host` is what is free of the host's memory. A library
/// that crashed or hung when the profile was made is not asked again.
pub(crate) fn live(machine: &Machine, profile: &SystemProfile, host: &Presence<Bytes>) -> Vec<DeviceMetrics> {
    let managed = match profile.source(Probe::Nvml) {
        Some(Presence::Absent(why @ (Absence::TimedOut { .. } | Absence::Crashed { .. }))) => {
            Err(why.clone())
        }
        _ => Ok(()),
    };
    live_of(machine, &profile.accelerators, host, managed)
}

/// The same, with the management library only where it is `allowed`.
fn live_of(
    machine: &Machine,
    accelerators: &[Accelerator],
    host: &Presence<Bytes>,
    allowed: Result<(), Absence>,
) -> Vec<DeviceMetrics> {
    let is_asked = |a: &Accelerator| a.backend == GpuBackend::Cuda && a.health.is_healthy();
    let managed = match accelerators.iter().any(is_asked) {
        true => allowed.and_then(|()| managed::metrics()),
        false => Err(Absence::NotAsked),
    };
    let of = |accelerator: &Accelerator| {
        if let Health::Unhealthy(why) = &accelerator.health {
            return DeviceMetrics::unknown(why.clone());
        }
        let told = match accelerator.backend {
            GpuBackend::Cuda => nvidia_metrics(accelerator, managed.as_ref(), host),
            GpuBackend::Rocm => machine.amd_metrics(accelerator),
            GpuBackend::Vulkan => DeviceMetrics {
                free: graphics::free(accelerator).into(),
                busy: Presence::Absent(Absence::NotHere),
            },
            // It has what the host has.
            GpuBackend::Metal => {
                DeviceMetrics { free: host.clone(), busy: Presence::Absent(Absence::NotHere) }
            }
            _ => DeviceMetrics::unknown(Absence::NotHere),
        };
        bounded(told, accelerator)
    };
    accelerators.iter().map(of).collect()
}

/// From the management library where it knows the device; else from the driver.
fn nvidia_metrics(
    accelerator: &Accelerator,
    managed: Result<&BTreeMap<String, DeviceMetrics>, &Absence>,
    host: &Presence<Bytes>,
) -> DeviceMetrics {
    if let Ok(Some(told)) = managed.map(|all| all.get(&accelerator.id)) {
        let has_none = matches!(&told.free, Presence::Absent(Absence::NotHere));
        return match accelerator.kind {
            AcceleratorKind::Integrated if has_none => {
                DeviceMetrics { free: host.clone(), busy: told.busy.clone() }
            }
            _ => told.clone(),
        };
    }
    let why = managed.err().cloned().unwrap_or(Absence::NoDevice);
    DeviceMetrics { free: nvidia::free(accelerator).into(), busy: Presence::Absent(why) }
}

/// No more is free than there is.
fn bounded(told: DeviceMetrics, accelerator: &Accelerator) -> DeviceMetrics {
    let free = match (told.free, accelerator.total) {
        (Presence::Found(free), Some(total)) => Presence::Found(free.min(total)),
        (free, _) => free,
    };
    DeviceMetrics { free, ..told }
}

/// How fast an accelerator's memory is.
pub(crate) fn measure(accelerator: &Accelerator, timing: &Timing<'_>) -> Result<DeviceMeasured, Absence> {
    match (&accelerator.health, accelerator.backend) {
        (Health::Unhealthy(why), _) => Err(why.clone()),
        (Health::Healthy, GpuBackend::Cuda) => nvidia::measure(accelerator, timing),
        (Health::Healthy, _) => {
            Err(Absence::Told { text: "only NVIDIA's driver can be asked to copy".to_owned() })
        }
    }
}

/// Who holds memory on NVIDIA's devices.
pub(crate) fn processes() -> Presence<BTreeMap<String, Presence<Vec<ProcessMemory>>>> {
    managed::processes().into()
}

/// What is free on an accelerator of this machine now; see [`read_metrics`](crate::read_metrics), which asks about all at
/// once.
pub fn read_free(accelerator: &Accelerator) -> Presence<Bytes> {
    let machine = Machine::here();
    let host = match machine.memory() {
        Presence::Found(reading) => reading.available.ok_or(Absence::NotHere).into(),
        Presence::Absent(why) => Presence::Absent(why),
    };
    let mut live = live_of(&machine, std::slice::from_ref(accelerator), &host, Ok(()));
    live.pop().map_or(Presence::Absent(Absence::NoDevice), |metrics| metrics.free)
}
