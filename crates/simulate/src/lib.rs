//! Hours of a made-up cluster in seconds: what the planner, the ledger and the rebalancing would do.
//!
//! It runs no model and knows no machine: a [`Scenario`] says which nodes there are, which models are wanted and what
//! happens when; [`simulate`] steps through made-up time with the very functions that decide on living clusters
//! ([`plimsoll_balance::plan`], [`plimsoll_balance::rebalance_plan`], [`plimsoll_balance::decide`],
//! [`plimsoll_residency::Book`], [`plimsoll_cluster::ClusterState`]) and tells in a [`Report`] what came of it.
//!
//! # Invariants
//!
//! - The same scenario gives the same report, but for [`Report::planning`], which the caller's clock tells. Chance is drawn
//!   from the scenario's seed.
//! - What is decided is checked by code of its own ([`Report::violations`]): every plan that is adopted passes
//!   [`plimsoll_balance::audit`], no pool is filled above what its truth leaves, the ledger agrees with the plans to the
//!   byte, and every layer of a placed model lies exactly once.
//! - The controller sees the cluster as it is told: a node that dies is missed only once it has been silent for long enough.
//!
//! ```
//! use std::time::Duration;
//!
//! use plimsoll_balance::{PlanOptions, Workload};
//! use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
//! use plimsoll_model::{Footprint, LayerSpec, ResolvedContext};
//! use plimsoll_simulate::{Event, Happening, Scenario, Wanted, simulate};
//! use plimsoll_units::{Bytes, BytesPerSec, Generation};
//!
//! let node = |id: &str| Node {
//!     id: id.parse().unwrap(), status: NodeStatus::Active, drained: false, main: false, rpc: None,
//!     pools: vec![Pool {
//!         id: "gpu0".parse().unwrap(), total: Bytes::gib(24), reserve: None, cap: None, free: Some(Bytes::gib(24)),
//!         held: Bytes::ZERO,
//!     }],
//!     devices: vec![Device {
//!         id: "gpu0".parse().unwrap(), name: None, pool: "gpu0".parse().unwrap(), limit: None,
//!         backend: GpuBackend::Cuda, bandwidth: Some(BytesPerSec::new(1_000_000_000_000)), uuid: None,
//!     }],
//! };
//! let start = ClusterSnapshot { generation: Generation::FIRST, nodes: vec![node("a"), node("b")], links: Vec::new() };
//! let layer = |index| LayerSpec::of_weights(index, Bytes::gib(1));
//! let footprint = Footprint {
//!     layers: (0..20).map(layer).collect(), input_bytes: Bytes::ZERO, head_bytes: Bytes::ZERO,
//!     head_beside_input_bytes: Bytes::ZERO, each_device_bytes: Bytes::ZERO, nextn: 0,
//!     context: ResolvedContext { total: 0, per_sequence: 0, streams: 1 },
//! };
//! let mut scenario = Scenario::new("two cards", start);
//! scenario.models.push(Wanted::new("coder", Workload::uniform(footprint), PlanOptions::default()));
//! scenario.events.push(Event { at: Duration::from_secs(600), what: Happening::Lose("a".parse().unwrap()) });
//!
//! let report = simulate(&scenario, &mut || Duration::ZERO)?;
//! assert!(report.violations.is_empty());
//! assert_eq!(report.models[0].loaded_bytes, Bytes::gib(40), "loaded on one card, and again on the other");
//! # Ok::<(), plimsoll_simulate::Unsound>(())
//! ```
//!
//! Features: `file` (scenarios as TOML).

mod chance;
mod check;
mod control;
#[cfg(feature = "file")]
mod read;
mod report;
mod run;
mod scenario;
mod world;

#[cfg(feature = "file")]
pub use read::{ScenarioError, Source, parse_scenario, read_scenario};
pub use report::{ModelReport, Mood, Noted, Report, Span};
pub use run::simulate;
pub use scenario::{Chance, Event, Happening, Policy, Scenario, Unsound, Wanted};
