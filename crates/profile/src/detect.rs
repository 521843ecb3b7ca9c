//! One look at this machine.

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use crate::gpu::{self, read_free};
use crate::{
    Absence, Accelerator, Cores, CpuFeatures, CpuProfile, Machine, MemoryReading, Presence, Probe, ProbeMode,
    Source, SystemProfile, cpu,
};

impl SystemProfile {
    /// A full look at this machine: registers, kernel files, and the drivers that are compiled in. Never panics; what is
    /// not found is told in [`SystemProfile::sources`].
    pub fn detect() -> Self {
        Self::detect_with(&Machine::here(), ProbeMode::Full)
    }

    /// A fast look at this machine: registers and kernel files. No driver is loaded.
    pub fn detect_fast() -> Self {
        Self::detect_with(&Machine::here(), ProbeMode::Fast)
    }

    /// A look at a machine whose kernel files lie elsewhere; registers and drivers are those of this one.
    pub fn detect_with(machine: &Machine, mode: ProbeMode) -> Self {
        let mut sources = Vec::new();
        let mut note = |probe, outcome| sources.push(Source { probe, outcome });

        let registers = cpu::read();
        note(Probe::CpuRegisters, counted(&registers, |_| 1));
        let cores = machine.cores();
        note(Probe::Cores, counted(&cores, |c| usize::try_from(c.physical).unwrap_or(usize::MAX)));
        let quota = machine.cpu_quota();
        note(Probe::CpuQuota, counted(&quota, |q| usize::from(q.is_some())));
        let memory = machine.memory();
        note(Probe::Memory, counted(&memory, |_| 1));
        let accelerators = match mode {
            ProbeMode::Full => gpu::accelerators(),
            ProbeMode::Fast => Presence::Absent(Absence::NotAsked),
        };
        note(Probe::Cuda, counted(&accelerators, Vec::len));

        Self {
            cpu: cpu_profile(machine, registers, cores),
            memory: match memory {
                Presence::Found(reading) => Presence::Found(reading.profile),
                Presence::Absent(why) => Presence::Absent(why),
            },
            accelerators: accelerators.found().unwrap_or_default(),
            sources,
        }
    }

    /// What a probe came back with; `None` when it took no part.
    pub fn source(&self, probe: Probe) -> Option<&Presence<usize>> {
        self.sources.iter().find(|s| s.probe == probe).map(|s| &s.outcome)
    }
}

/// How many things a probe found, or why none.
fn counted<T>(found: &Presence<T>, count: impl Fn(&T) -> usize) -> Presence<usize> {
    match found {
        Presence::Found(value) => Presence::Found(count(value)),
        Presence::Absent(why) => Presence::Absent(why.clone()),
    }
}

fn cpu_profile(machine: &Machine, registers: Presence<cpu::Registers>, cores: Presence<Cores>) -> CpuProfile {
    let (vendor, brand, features): (_, _, Presence<CpuFeatures>) = match registers {
        Presence::Found(r) => (r.vendor, r.brand, Presence::Found(r.features)),
        Presence::Absent(why) => (None, None, Presence::Absent(why)),
    };
    CpuProfile {
        vendor,
        brand: brand.or_else(|| machine.cpu_brand()),
        features,
        cores: cores.found().unwrap_or_else(cores_by_the_library),
    }
}

/// What the standard library knows where the kernel has no such files.
fn cores_by_the_library() -> Cores {
    let known =
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    Cores { logical: known, allowed: known, physical: known, quota: None, usable: known }
}

/// What is free on a machine now. What is not in here is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// Of the host's memory, within the limits of this process.
    pub host: Option<Bytes>,
    /// Of each accelerator's memory, by [`Accelerator::id`].
    pub accelerators: BTreeMap<String, Bytes>,
}

impl FreeMemory {
    /// Asks this machine about the host and the accelerators of a profile; see [`read_free`] for what that costs.
    pub fn read(profile: &SystemProfile) -> Self {
        let of = |accelerator: &Accelerator| {
            read_free(accelerator).found().map(|free| (accelerator.id.clone(), free))
        };
        Self {
            host: Machine::here().memory().found().and_then(|reading: MemoryReading| reading.available),
            accelerators: profile.accelerators.iter().filter_map(of).collect(),
        }
    }
}
