//! What this machine is: processors, memory, accelerators.

mod backend;

pub use backend::{GpuBackend, UnknownBackend};
