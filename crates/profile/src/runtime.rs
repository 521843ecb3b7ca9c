//! What a runtime on this machine should be set to.

use std::fmt::Write as _;

use plimsoll_units::NodeId;

use crate::{
    Absence, AccelerationMode, GpuBackend, Machine, NodeResources, Presence, Probe, ProbeMode, SystemProfile,
};

/// What a runtime on a machine needs to know of it, in one piece.
///
/// ```
/// use plimsoll_profile::{ExecutionBackend, RuntimeProfile, SystemProfile};
///
/// let runtime = RuntimeProfile::from(&SystemProfile::detect_fast());
/// let backend = ExecutionBackend::from_runtime_profile(&runtime);
/// assert!(backend.worker_count >= 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeProfile {
    /// What it brings to a cluster; the node is called `local` until somebody names it.
    pub node_resources: NodeResources,
    /// Logical processors that are on.
    pub logical_cores: u32,
    /// How many workers keep it busy without getting in each other's way; at least 1.
    pub recommended_workers: u32,
    /// What does the heavy work.
    pub acceleration_mode: AccelerationMode,
    /// What drives the first accelerator that works.
    pub gpu_backend: Option<GpuBackend>,
    /// Whether the kernel is known to have the express data path: see [`RuntimeProfile::on`].
    pub xdp_supported: bool,
    /// Which probe settled [`RuntimeProfile::acceleration_mode`].
    pub detection_source: Probe,
    /// How much was looked at.
    pub probe_mode: ProbeMode,
}

impl From<&SystemProfile> for RuntimeProfile {
    /// Whether the kernel has the express data path is not part of a profile: it counts as not supported.
    fn from(profile: &SystemProfile) -> Self {
        let mode = profile.acceleration_mode();
        let local = NodeId::new("local").expect("a literal of letters is a node id");
        Self {
            node_resources: NodeResources::of_profile(local, profile),
            logical_cores: profile.cpu.cores.logical,
            recommended_workers: profile.recommended_workers(),
            acceleration_mode: mode,
            gpu_backend: profile.accelerators.iter().find(|a| a.health.is_healthy()).map(|a| a.backend),
            xdp_supported: false,
            detection_source: settled_by(profile, mode),
            probe_mode: probe_mode(profile),
        }
    }
}

impl RuntimeProfile {
    /// The same with what only the machine's own kernel can tell: which start this is, and whether it has the express
    /// data path.
    pub fn on(machine: &Machine, profile: &SystemProfile) -> Self {
        let mut runtime = Self::from(profile);
        runtime.xdp_supported = machine.xdp().found().unwrap_or(false);
        runtime.node_resources.boot_id = machine.boot_id().found();
        runtime
    }

    /// What matters of it, in one line.
    ///
    /// `4 workers on 8 logical cores, gpu (cuda) 24.0 GB 'RTX 4090', 64.0 GB of memory, by cuda`
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let several = |n: u32| if n == 1 { "" } else { "s" };
        let (workers, cores) = (self.recommended_workers, self.logical_cores);
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "{workers} worker{} on {cores} logical core{}, {}",
            several(workers),
            several(cores),
            self.acceleration_mode
        );
        if let Some(backend) = self.gpu_backend {
            let _ = write!(text, " ({backend}) {}", self.node_resources.vram);
            if let Some(name) = &self.node_resources.gpu_name {
                let _ = write!(text, " '{name}'");
            }
        }
        if !self.node_resources.system_memory.is_zero() {
            let _ = write!(text, ", {} of memory", self.node_resources.system_memory);
        }
        if self.xdp_supported {
            text.push_str(", xdp");
        }
        let _ = write!(text, ", by {}", self.detection_source);
        if self.probe_mode == ProbeMode::Fast {
            text.push_str(" (fast probe)");
        }
        text
    }
}

/// Which probe found what the mode stands on.
fn settled_by(profile: &SystemProfile, mode: AccelerationMode) -> Probe {
    let of_the_host = [Probe::CpuRegisters, Probe::Cores, Probe::CpuQuota, Probe::Memory];
    let found = |probe: &&crate::Source| matches!(probe.outcome, Presence::Found(n) if n > 0);
    let of_accelerators = || profile.sources.iter().filter(found).find(|s| !of_the_host.contains(&s.probe));
    match mode {
        AccelerationMode::Gpu => of_accelerators().map_or(Probe::Cuda, |source| source.probe),
        AccelerationMode::Avx512 | AccelerationMode::Avx2 | AccelerationMode::Neon => Probe::CpuRegisters,
        AccelerationMode::Generic => match profile.source(Probe::CpuRegisters) {
            Some(Presence::Found(_)) => Probe::CpuRegisters,
            _ => Probe::Cores,
        },
    }
}

/// A look was fast when some probe was left out of it on purpose.
fn probe_mode(profile: &SystemProfile) -> ProbeMode {
    let left_out = |source: &crate::Source| source.outcome == Presence::Absent(Absence::NotAsked);
    if profile.sources.iter().any(left_out) { ProbeMode::Fast } else { ProbeMode::Full }
}

/// How a runtime should cut its work for what it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionBackend {
    /// What does the heavy work.
    pub mode: AccelerationMode,
    /// How many elements are worth handing over at once.
    pub preferred_batch_size: u32,
    /// How wide one operation is.
    pub vector_width_bits: u32,
    /// How many workers to start; at least 1.
    pub worker_count: u32,
}

impl ExecutionBackend {
    /// Batch and width by what does the work, workers as recommended.
    pub fn from_runtime_profile(profile: &RuntimeProfile) -> Self {
        let (preferred_batch_size, vector_width_bits) = match profile.acceleration_mode {
            AccelerationMode::Gpu => (4096, 512),
            AccelerationMode::Avx512 => (2048, 512),
            AccelerationMode::Avx2 => (1024, 256),
            AccelerationMode::Neon => (1024, 128),
            AccelerationMode::Generic => (512, 64),
        };
        Self {
            mode: profile.acceleration_mode,
            preferred_batch_size,
            vector_width_bits,
            worker_count: profile.recommended_workers.max(1),
        }
    }
}
