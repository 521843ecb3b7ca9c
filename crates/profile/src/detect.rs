//! One look at this machine.

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use crate::{
    Absence, Accelerator, Cores, CpuProfile, DeviceMetrics, Machine, Presence, Probe, ProbeMode, Source,
    SystemProfile, cpu, gpu,
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

    /// A look at a machine whose kernel files lie elsewhere; drivers are those of this one, and so are the registers where none
    /// are recorded.
    pub fn detect_with(machine: &Machine, mode: ProbeMode) -> Self {
        Self::detect_by(machine, &|_| match mode {
            ProbeMode::Full => Ok(()),
            ProbeMode::Fast => Err(Absence::NotAsked),
        })
    }

    /// A look that loads those drivers that `asked` lets it; each is asked for right before it is loaded.
    pub(crate) fn detect_by(machine: &Machine, asked: &dyn Fn(Probe) -> Result<(), Absence>) -> Self {
        let mut sources = Vec::new();
        let mut note = |probe, outcome| sources.push(Source { probe, outcome });

        let registers = cpu::read(machine.registers());
        note(Probe::CpuRegisters, counted(&registers, |_| 1));
        let cores = machine.cores();
        note(Probe::Cores, counted(&cores, |c| usize::try_from(c.physical).unwrap_or(usize::MAX)));
        let quota = machine.cpu_quota();
        note(Probe::CpuQuota, counted(&quota, |q| usize::from(q.is_some())));
        let memory = machine.memory();
        note(Probe::Memory, counted(&memory, |_| 1));
        let host = memory.as_result().ok().map(|reading| reading.profile.host_total);
        let found = gpu::accelerators(machine, host, asked);
        sources.extend(found.outcomes.into_iter().map(|(probe, outcome)| Source { probe, outcome }));

        Self {
            cpu: cpu_profile(machine, registers, cores),
            memory: match memory {
                Presence::Found(reading) => Presence::Found(reading.profile),
                Presence::Absent(why) => Presence::Absent(why),
            },
            accelerators: found.accelerators,
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
    let (vendor, brand, features, caches) = match registers {
        Presence::Found(r) => (r.vendor, r.brand, Presence::Found(r.features), r.caches),
        Presence::Absent(why) => (None, None, Presence::Absent(why), Vec::new()),
    };
    let mut topology = machine.topology();
    if topology.caches.is_empty() {
        topology.caches = caches;
    }
    CpuProfile {
        vendor,
        brand: brand.or_else(|| machine.cpu_brand()),
        features,
        cores: cores.found().unwrap_or_else(cores_by_the_library),
        topology,
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FreeMemory {
    /// Of the host's memory, within the limits of this process.
    pub host: Option<Bytes>,
    /// Of each accelerator's memory, by [`Accelerator::id`].
    pub accelerators: BTreeMap<String, Bytes>,
}

impl FreeMemory {
    /// Asks this machine about the host and the accelerators of a profile; see [`read_metrics`](crate::read_metrics), which
    /// also tells why something is not known.
    pub fn read(profile: &SystemProfile) -> Self {
        Self::read_with(&Machine::here(), profile)
    }

    /// The same of a machine whose kernel files lie elsewhere; drivers are those of this one.
    pub fn read_with(machine: &Machine, profile: &SystemProfile) -> Self {
        let host: Presence<Bytes> = match machine.memory() {
            Presence::Found(reading) => reading.available.ok_or(Absence::NotHere).into(),
            Presence::Absent(why) => Presence::Absent(why),
        };
        let live = gpu::live(machine, profile, &host);
        let known = |(accelerator, metrics): (&Accelerator, DeviceMetrics)| {
            metrics.free.found().map(|free| (accelerator.id.clone(), free))
        };
        let accelerators = profile.accelerators.iter().zip(live).filter_map(known).collect();
        Self { host: host.found(), accelerators }
    }
}
