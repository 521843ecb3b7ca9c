//! What drives a device.

use std::fmt;
use std::str::FromStr;

/// What drives a device that holds layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum GpuBackend {
    /// NVIDIA's driver.
    Cuda,
    /// AMD's.
    Rocm,
    /// Any card with a Vulkan driver.
    Vulkan,
    /// Windows' own.
    Directml,
    /// Apple's.
    Metal,
    /// A neural processing unit.
    Npu,
    /// The host's processors.
    Cpu,
}

impl GpuBackend {
    /// Every backend.
    pub const ALL: [Self; 7] =
        [Self::Cuda, Self::Rocm, Self::Vulkan, Self::Directml, Self::Metal, Self::Npu, Self::Cpu];

    /// Its name in a cluster file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
            Self::Vulkan => "vulkan",
            Self::Directml => "directml",
            Self::Metal => "metal",
            Self::Npu => "npu",
            Self::Cpu => "cpu",
        }
    }
}

impl fmt::Display for GpuBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A backend that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown backend '{text}'; known are cuda, rocm, vulkan, directml, metal, npu, cpu")]
pub struct UnknownBackend {
    /// The text as it came.
    pub text: String,
}

impl FromStr for GpuBackend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        let known = Self::ALL.into_iter().find(|b| b.name() == text);
        known.ok_or_else(|| UnknownBackend { text: text.to_owned() })
    }
}
