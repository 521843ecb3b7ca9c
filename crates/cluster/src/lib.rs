//! Nodes, devices and memory pools as numbered, immutable snapshots.

mod snapshot;

pub use plimsoll_profile::GpuBackend;
pub use snapshot::{ClusterSnapshot, Device, Link, Node, NodeStatus, Pool};
