//! What is free now, how busy devices are, and who holds memory on them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_units::Bytes;

use crate::{Absence, FreeMemory, Machine, Presence, SystemProfile, gpu};

/// One look at what is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// When the look began.
    pub taken: Instant,
    /// What is free of the host's memory, within the limits of this process.
    pub host: Presence<Bytes>,
    /// The accelerators, by [`Accelerator::id`](crate::Accelerator::id): each that the profile lists.
    pub accelerators: BTreeMap<String, DeviceMetrics>,
}

/// Live figures of one accelerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMetrics {
    /// What is free of its memory, whoever holds the rest; at most its total.
    pub free: Presence<Bytes>,
    /// Per cent of the time in which something ran on it lately.
    pub busy: Presence<u32>,
}

impl DeviceMetrics {
    /// Nothing is known, for this reason.
    pub(crate) fn unknown(why: Absence) -> Self {
        Self { free: Presence::Absent(why.clone()), busy: Presence::Absent(why) }
    }
}

/// What one process holds on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessMemory {
    /// The process, as the driver numbers it: inside a container that is not the number that the process itself knows.
    pub pid: u32,
    /// How much it holds, where the driver tells.
    pub bytes: Option<Bytes>,
}

impl Metrics {
    /// How old the look is; nothing when it lies ahead.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.taken)
    }

    /// What is free, where that is known and the look is no older than `limit`; an old look says nothing, so that nothing new
    /// is placed by it.
    pub fn free(&self, now: Instant, limit: Duration) -> FreeMemory {
        if self.age(now) > limit {
            return FreeMemory::default();
        }
        let known = |(id, metrics): (&String, &DeviceMetrics)| {
            metrics.free.as_result().ok().map(|free| (id.clone(), *free))
        };
        FreeMemory {
            host: self.host.as_result().ok().copied(),
            accelerators: self.accelerators.iter().filter_map(known).collect(),
        }
    }
}

/// Looks at what is free on this machine: the host, and each accelerator of a profile. `now` is when the look begins.
///
/// NVIDIA's devices are asked through the management library; where that is not there, through the driver, in a context that
/// itself takes memory on the card (some hundred MB) for the time of the call.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use plimsoll_profile::{SystemProfile, read_metrics};
///
/// # #[expect(clippy::disallowed_methods, reason = "an example of the caller's side, which owns the clock")]
/// let now = Instant::now();
/// let metrics = read_metrics(&SystemProfile::detect_fast(), now);
/// let later = now + Duration::from_secs(60);
/// assert_eq!(metrics.age(later), Duration::from_secs(60));
/// assert_eq!(metrics.free(later, Duration::from_secs(30)).host, None);
/// ```
pub fn read_metrics(profile: &SystemProfile, now: Instant) -> Metrics {
    read_metrics_of(&Machine::here(), profile, now)
}

/// The same of a machine whose kernel files lie elsewhere; drivers are those of this one.
pub fn read_metrics_of(machine: &Machine, profile: &SystemProfile, now: Instant) -> Metrics {
    let host = match machine.memory() {
        Presence::Found(reading) => match reading.available {
            Some(free) => Presence::Found(free),
            None => Presence::Absent(Absence::garbled("the kernel's account of free memory", "")),
        },
        Presence::Absent(why) => Presence::Absent(why),
    };
    let live = gpu::live(machine, profile, &host);
    let ids = profile.accelerators.iter().map(|accelerator| accelerator.id.clone());
    Metrics { taken: now, host, accelerators: ids.zip(live).collect() }
}

/// Who holds memory on NVIDIA's devices, by [`Accelerator::id`](crate::Accelerator::id), or why that is not known.
pub fn read_processes() -> Presence<BTreeMap<String, Presence<Vec<ProcessMemory>>>> {
    gpu::processes()
}
