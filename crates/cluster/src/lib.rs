//! Nodes, devices and memory pools as numbered, immutable snapshots.

mod check;
#[cfg(feature = "file")]
pub mod file;
mod snapshot;
pub mod speeds;

pub use check::{MainNodeError, SnapshotError};
pub use plimsoll_profile::GpuBackend;
pub use snapshot::{ClusterSnapshot, Device, Link, Node, NodeStatus, Pool};
