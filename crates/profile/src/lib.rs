//! What this machine is: processors, memory, accelerators.
//!
//! It looks and reports. It reserves nothing, plans nothing, and keeps no thread.
//!
//! # Invariants
//!
//! - Nothing panics and nothing is made up: a probe reports what it found, or why it found nothing.
//! - A profile holds only what changes rarely. What is free is read apart, as [`FreeMemory`] and [`MemoryReading`].
//! - A fast look loads no driver.
//! - One device that fails never hides another.
//! - `unsafe` stands where the processor's register is read and where drivers are called, and nowhere else.
//!
//! ```
//! use plimsoll_profile::{Presence, SystemProfile};
//!
//! let machine = SystemProfile::detect_fast();
//! assert!(machine.recommended_workers() >= 1);
//! if let Presence::Found(memory) = &machine.memory {
//!     assert!(memory.total <= memory.host_total);
//! }
//! ```
//!
//! Features: `cpu` (instruction sets from the processor's registers), `cuda` (NVIDIA's devices), `nvml` (NVIDIA's management
//! library: what is free, slices, processes), `vulkan` (cards of other makers), `metal` (Apple's), `serde` (profiles as text), `isolated` (a
//! look in a child process). Drivers are loaded at run time when they are there. Without its feature a probe answers
//! [`Absence::NotCompiled`].

mod backend;
mod cpu;
mod detect;
mod gpu;
#[cfg(feature = "isolated")]
pub mod isolated;
mod kernel;
mod measure;
mod metrics;
mod presence;
mod registers;
mod resources;
mod runtime;
mod system;
#[cfg(feature = "serde")]
mod wire;
#[cfg(all(feature = "cpu", any(target_arch = "x86", target_arch = "x86_64")))]
mod xcr0;

pub use backend::{GpuBackend, UnknownBackend};
pub use detect::FreeMemory;
pub use gpu::read_free;
pub use kernel::{Machine, MemoryReading};
pub use measure::{DeviceMeasured, Measured, measure_accelerator, measure_host};
pub use metrics::{DeviceMetrics, Metrics, ProcessMemory, read_metrics, read_metrics_of, read_processes};
pub use presence::{Absence, Presence};
pub use registers::{BadDump, RegisterDump};
pub use resources::{DeviceSpec, NodeResources, PoolSpec};
pub use runtime::{ExecutionBackend, RuntimeProfile};
pub use system::{
    AccelerationMode, Accelerator, AcceleratorKind, Cache, CacheKind, CgroupVersion, Cores, CpuFeatures,
    CpuProfile, CpuQuota, CpuTopology, Health, HybridCores, MemoryLayout, MemoryLimit, MemoryProfile, Probe,
    ProbeMode, Source, SystemProfile,
};
