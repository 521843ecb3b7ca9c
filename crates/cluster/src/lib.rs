//! Nodes, devices and memory pools as numbered, immutable snapshots.
//!
//! It describes machines and what is between them, frozen in a [`ClusterSnapshot`] or alive in a [`ClusterState`]. It asks
//! no machine anything and plans nothing; one call waits, [`ClusterState::wait_newer`], and all other moments come in as
//! parameters.
//!
//! # Invariants
//!
//! [`ClusterSnapshot::validate`] checks them; a snapshot from a file, from [`this_machine`] or from a [`ClusterState`]
//! keeps them.
//!
//! - Nodes are ordered by id, each once; at most one is marked as main.
//! - Every device draws on a pool of its own node, and memory that two devices share is one pool: it counts once.
//! - 0 ≤ free ≤ total. Free memory that nobody knows is `None`, neither nothing nor everything.
//! - A state's generation only grows, and no two of its snapshots of one generation differ.
//! - No bandwidth is zero: one that is not known is `None`, and [`speeds`] says what to assume.
//!
//! ```
//! # #[cfg(feature = "file")] {
//! use plimsoll_cluster::file::parse_cluster;
//! use plimsoll_units::Bytes;
//!
//! let home = parse_cluster(
//!     r#"
//!     [[node]]
//!     id = "tower"
//!     memory = "64GiB"
//!     [[node.device]]
//!     id = "CUDA0"
//!     memory = "24GiB"
//!     free = "22GiB"
//!
//!     [[node]]
//!     id = "mac"
//!     memory = "32GiB"
//!     unified = true
//!     rpc = "10.0.0.7:50052"
//!     "#,
//! )?
//! .snapshot;
//! assert_eq!(home.main_node()?.id.as_str(), "tower");
//! let card = &home.nodes[1].pools[1];
//! assert_eq!(card.budget(Bytes::gib(1)), Bytes::gib(21));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! `file` (the module `file`: cluster files, read and written), `hardware` (the module `hardware`: snapshots of
//! llama-swap).

mod check;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "hardware")]
pub mod hardware;
mod machine;
mod snapshot;
pub mod speeds;
mod state;

pub use check::{MainNodeError, SnapshotError};
pub use machine::this_machine;
pub use plimsoll_profile::{DeviceSpec, GpuBackend, NodeResources, PoolSpec};
pub use snapshot::{ClusterSnapshot, Device, Link, Node, NodeStatus, Pool};
pub use state::{
    ClusterEvent, ClusterState, ClusterView, Identity, Limits, LimitsError, MemberView, MemoryUse, Moment,
    NodeMetrics, PoolUse, RegisterError, SampleError, Signal, StaleGeneration, StateError,
};
