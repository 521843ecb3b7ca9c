//! Nodes, devices and memory pools as numbered, immutable snapshots.
//!
//! It describes machines and what is between them. It asks no machine anything and plans nothing.
//!
//! # Invariants
//!
//! [`ClusterSnapshot::validate`] checks them; a snapshot from a file or from [`this_machine`] keeps them.
//!
//! - Nodes are ordered by id, each once; at most one is marked as main.
//! - Every device draws on a pool of its own node, and memory that two devices share is one pool: it counts once.
//! - 0 ≤ free ≤ total. Free memory that nobody knows is `None`, neither nothing nor everything.
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
//! `file` (the module `file`: cluster files, read and written).

mod check;
#[cfg(feature = "file")]
pub mod file;
mod machine;
mod snapshot;
pub mod speeds;

pub use check::{MainNodeError, SnapshotError};
pub use machine::this_machine;
pub use plimsoll_profile::GpuBackend;
pub use snapshot::{ClusterSnapshot, Device, Link, Node, NodeStatus, Pool};
