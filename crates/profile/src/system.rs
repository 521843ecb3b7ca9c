//! What a machine is, as plain data: only what changes rarely.

use std::fmt;

use plimsoll_units::{Bytes, BytesPerSec};

use crate::{Absence, GpuBackend, Presence};

/// What one machine is.
///
/// It holds only what changes rarely, so that two looks at the same machine are equal; what is free is a
/// [`FreeMemory`](crate::FreeMemory).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SystemProfile {
    /// Its processors.
    pub cpu: CpuProfile,
    /// Its memory, or why that is not known.
    pub memory: Presence<MemoryProfile>,
    /// Its accelerators, healthy or not, in the order of their driver.
    pub accelerators: Vec<Accelerator>,
    /// What each probe came back with.
    pub sources: Vec<Source>,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ProbeMode {
    /// Registers and kernel files; no driver is loaded.
    Fast,
    /// All.
    Full,
}

/// What one probe came back with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Source {
    /// Which probe.
    pub probe: Probe,
    /// How many things it found, or why it found nothing.
    pub outcome: Presence<usize>,
}

/// Who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Probe {
    /// The processor's own registers.
    CpuRegisters,
    /// The kernel's list of processors and cores.
    Cores,
    /// The quota of processor time.
    CpuQuota,
    /// The kernel's account of memory.
    Memory,
    /// NVIDIA's driver.
    Cuda,
    /// NVIDIA's management library.
    Nvml,
    /// What the kernel tells of AMD's cards.
    Amdgpu,
    /// What the kernel tells of Intel's cards.
    Intel,
    /// Vulkan's drivers.
    Vulkan,
    /// Apple's.
    Metal,
}

impl Probe {
    /// Every probe, in the order in which they are listed.
    pub const ALL: [Self; 10] = [
        Self::CpuRegisters,
        Self::Cores,
        Self::CpuQuota,
        Self::Memory,
        Self::Cuda,
        Self::Nvml,
        Self::Amdgpu,
        Self::Intel,
        Self::Vulkan,
        Self::Metal,
    ];

    /// Whether it looks for accelerators.
    pub const fn is_for_accelerators(self) -> bool {
        matches!(self, Self::Cuda | Self::Nvml | Self::Amdgpu | Self::Intel | Self::Vulkan | Self::Metal)
    }

    /// Whether it loads a driver into the process that asks, and so may crash or hang with it.
    pub const fn loads_a_driver(self) -> bool {
        matches!(self, Self::Cuda | Self::Nvml | Self::Vulkan | Self::Metal)
    }

    /// Its name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuRegisters => "cpu registers",
            Self::Cores => "cores",
            Self::CpuQuota => "cpu quota",
            Self::Memory => "memory",
            Self::Cuda => "cuda",
            Self::Nvml => "nvml",
            Self::Amdgpu => "amdgpu",
            Self::Intel => "intel",
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The processors of a machine, and how many of them this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CpuProfile {
    /// Who made it (`GenuineIntel`).
    pub vendor: Option<String>,
    /// What it is called.
    pub brand: Option<String>,
    /// What it can do, or why that is not known.
    pub features: Presence<CpuFeatures>,
    /// How many there are and how many may be used.
    pub cores: Cores,
    /// How they are put together. It is shown and not planned with: virtual machines make it up.
    pub topology: CpuTopology,
}

/// How processors are put together. What is not known is `None`, or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CpuTopology {
    /// Packages (sockets) with a processor that is on.
    pub packages: Option<u32>,
    /// Where there are two kinds of cores: how many logical processors of each.
    pub hybrid: Option<HybridCores>,
    /// The caches of one processor, from the smallest level to the largest.
    pub caches: Vec<Cache>,
}

/// Logical processors on cores of two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HybridCores {
    /// On the faster cores.
    pub performance: u32,
    /// On the more frugal ones.
    pub efficient: u32,
}

/// One cache, as one processor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cache {
    /// 1 is next to the processor.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// How much.
    pub size: Bytes,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum CacheKind {
    /// Data.
    Data,
    /// Instructions.
    Instruction,
    /// Both.
    Unified,
}

/// Which wide instructions may be used: the processor has them and the operating system keeps their registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CpuFeatures {
    /// 256-bit vectors of whole numbers.
    pub avx2: bool,
    /// 512-bit vectors (the foundation set).
    pub avx512: bool,
    /// 128-bit vectors on 64-bit Arm.
    pub neon: bool,
}

/// How many processors there are and how many may be used. Every count is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cores {
    /// Logical processors that are on.
    pub logical: u32,
    /// Logical processors on which this process may run.
    pub allowed: u32,
    /// Distinct physical cores among those.
    pub physical: u32,
    /// The tightest quota of processor time, if there is one.
    pub quota: Option<CpuQuota>,
    /// How many cores may be kept busy: `physical`, and not more than the whole processors in `quota`.
    pub usable: u32,
}

/// How much processor time may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CpuQuota {
    /// This much, in microseconds,
    pub quota_us: u64,
    /// in each stretch of so many microseconds; never 0.
    pub period_us: u64,
}

impl CpuQuota {
    /// Whole processors, rounded down, at least 1.
    pub fn processors(self) -> u32 {
        let whole = self.quota_us.checked_div(self.period_us).unwrap_or(1);
        u32::try_from(whole).unwrap_or(u32::MAX).max(1)
    }
}

/// The memory that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryProfile {
    /// The host's memory, or the tightest limit below it.
    pub total: Bytes,
    /// The host's memory.
    pub host_total: Bytes,
    /// What makes `total` less than the host's.
    pub limit: Option<MemoryLimit>,
}

/// A limit of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryLimit {
    /// The file that says so.
    pub path: String,
    /// Which generation of control groups it belongs to.
    pub version: CgroupVersion,
}

/// The two generations of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum CgroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// Something beside the processors that holds layers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Accelerator {
    /// The driver's number for it, as this process sees them.
    pub ordinal: u32,
    /// A name that stays the same under every numbering: its UUID, else its PCI address, else its number.
    pub id: String,
    /// The driver's own unique name (`GPU-…`, `MIG-…`).
    pub uuid: Option<String>,
    /// Where it sits (`0000:01:00.0`).
    pub pci: Option<String>,
    /// What it is called.
    pub name: Option<String>,
    /// What drives it.
    pub backend: GpuBackend,
    /// Whether it is a card, a part of the host, or a part of a card.
    pub kind: AcceleratorKind,
    /// All of its memory.
    pub total: Option<Bytes>,
    /// How that memory is made up.
    pub layout: MemoryLayout,
    /// Which instructions it has, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// How many multiprocessors it has.
    pub multiprocessors: Option<u32>,
    /// How fast it can read its memory at best: twice the memory clock (both edges) times the width of the bus.
    #[cfg_attr(feature = "serde", serde(with = "crate::wire::rate"))]
    pub bandwidth: Option<BytesPerSec>,
    /// Whether it works.
    pub health: Health,
}

/// How an accelerator's memory is made up. What is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryLayout {
    /// How much of the host's memory it may map beside its own: AMD's GTT, at most the host's memory.
    pub host_share: Option<Bytes>,
    /// The largest piece that can be had at once, where that is less than the total: of several heaps the largest.
    pub largest_heap: Option<Bytes>,
}

/// `GPU 1 'NVIDIA GeForce RTX 4090' GPU-…`.
impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}", self.ordinal)?;
        if let Some(name) = &self.name {
            write!(f, " '{name}'")?;
        }
        write!(f, " {}", self.id)
    }
}

/// How an accelerator sits in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum AcceleratorKind {
    /// With memory of its own.
    Discrete,
    /// On the host's memory.
    Integrated,
    /// A part of another accelerator, with its part of the memory.
    Slice,
}

impl AcceleratorKind {
    /// Its name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Slice => "slice",
        }
    }
}

impl fmt::Display for AcceleratorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether an accelerator works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Health {
    /// It answers, and its answers can be true.
    Healthy,
    /// It does not, and nothing is to be placed there.
    Unhealthy(Absence),
}

impl Health {
    /// Whether it works.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }
}

/// What does the heavy work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum AccelerationMode {
    /// An accelerator.
    Gpu,
    /// 512-bit vectors.
    Avx512,
    /// 256-bit vectors.
    Avx2,
    /// 128-bit vectors on 64-bit Arm.
    Neon,
    /// Plain instructions.
    Generic,
}

impl AccelerationMode {
    /// Its name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Neon => "neon",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for AccelerationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl SystemProfile {
    /// The best that this machine has: a healthy accelerator whose memory is known, else the widest vectors.
    pub fn acceleration_mode(&self) -> AccelerationMode {
        if self.accelerators.iter().any(|a| a.health.is_healthy() && a.total.is_some()) {
            return AccelerationMode::Gpu;
        }
        match &self.cpu.features {
            Presence::Found(CpuFeatures { avx512: true, .. }) => AccelerationMode::Avx512,
            Presence::Found(CpuFeatures { avx2: true, .. }) => AccelerationMode::Avx2,
            Presence::Found(CpuFeatures { neon: true, .. }) => AccelerationMode::Neon,
            _ => AccelerationMode::Generic,
        }
    }

    /// How many workers keep the machine busy without getting in each other's way: one a usable core.
    pub fn recommended_workers(&self) -> u32 {
        self.cpu.cores.usable.max(1)
    }
}
