//! Layers to unlike devices: exact and certified planners, and an independent auditor.
//!
//! It decides and never acts: no clock, no files, no memory of earlier calls. It does not know engines by name; what one
//! may do and what it charges come as [`EngineRules`]. [`LoadBalancer`] is a handle over a living cluster that holds a
//! configuration and the plan in force, and asks the free functions; its two calls with a deadline wait in the cluster's
//! state, and nothing else does.
//!
//! # Invariants
//!
//! - [`plan()`] is a pure function: the same snapshot, workload, rules and options give the same plan, bit for bit. The
//!   order in which a snapshot lists its devices makes no difference, except where it was asked for.
//! - A [`DistributionPlan`] holds every layer once; sizes and weights of its slices are exact sums.
//! - No plan counts a pool twice, and none holds more than a pool, a device limit or a cap allows.
//! - A plan's lower bound holds for every order of every set of devices, whatever strategy found the plan. For
//!   [`Objective::Fit`] and [`Objective::Balanced`] with a main host it is over plans with as few layers on the host as
//!   possible.
//! - A refusal says what is proven: "it cannot fit" always comes with a reason that can be checked.
//! - [`rebalance_plan()`] keeps the order of the plan in force, and no step of its schedule adds to a pool more than its
//!   budget leaves. Moves that are under way count in every later answer.
//! - [`audit()`] shares no code with the planners.
//!
//! ```
//! use plimsoll_balance::{EngineRules, LayerSpec, ModelIndex, PlanOptions, Workload, audit, plan};
//! use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
//! use plimsoll_model::{Footprint, ResolvedContext};
//! use plimsoll_units::{Bytes, BytesPerSec, DeviceId, Generation, NodeId, PoolId};
//!
//! // One machine with cards of 32 and 40 bytes, and eight layers that are larger in front.
//! let card = |id: &str, bytes: u64| -> Result<(Pool, Device), plimsoll_units::IdError> {
//!     let bytes = Bytes::new(bytes);
//!     let pool = Pool {
//!         id: PoolId::new(id)?, total: bytes, reserve: None, cap: None, free: Some(bytes), held: Bytes::ZERO,
//!     };
//!     let device = Device {
//!         id: DeviceId::new(id)?, name: None, pool: pool.id.clone(), limit: None, backend: GpuBackend::Cuda,
//!         bandwidth: Some(BytesPerSec::new(100)), uuid: None,
//!     };
//!     Ok((pool, device))
//! };
//! let (pools, devices) = [card("CUDA0", 32)?, card("CUDA1", 40)?].into_iter().unzip();
//! let tower = Node {
//!     id: NodeId::new("tower")?, status: NodeStatus::Active, drained: false, main: false, rpc: None, pools, devices,
//! };
//! let snapshot = ClusterSnapshot { generation: Generation::FIRST, nodes: vec![tower], links: Vec::new() };
//! let sizes = [14, 14, 14, 14, 3, 3, 3, 3];
//! let layers: Vec<_> = (0..).zip(sizes).map(|(i, n)| LayerSpec::of_weights(i, Bytes::new(n))).collect();
//! let workload = Workload::uniform(Footprint {
//!     layers: layers.clone(), input_bytes: Bytes::ZERO, head_bytes: Bytes::ZERO,
//!     head_beside_input_bytes: Bytes::ZERO, each_device_bytes: Bytes::ZERO, nextn: 0,
//!     context: ResolvedContext { total: 4096, per_sequence: 4096, streams: 1 },
//! });
//!
//! let (rules, options) = (EngineRules::none(), PlanOptions::default());
//! let made = plan(&snapshot, &workload, &rules, &options)?;
//! assert_eq!(made.stages[0].layers, 0..2);
//! assert_eq!(made.stages[1].layers, 2..8);
//! assert!(audit(&made, &snapshot, &workload, &rules, &options).is_ok());
//!
//! // The same question, asked often: only the boundaries.
//! let index = ModelIndex::new(&layers)?;
//! let mut ends = Vec::new();
//! assert!(index.fit_in_order(&[Bytes::new(32), Bytes::new(40)], &mut ends));
//! assert_eq!(ends, [2, 8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features: none.

mod assemble;
mod audit;
mod balancer;
mod cluster_index;
mod config;
mod context;
mod core;
mod distribute;
mod distribution;
mod door;
mod error;
mod experts;
mod fleet;
pub mod flow;
mod index;
mod items;
mod keep;
mod links;
mod pins;
mod pipelines;
mod plan;
mod price;
mod rebalance;
mod refuse;
mod search;
mod shed;
mod skew;
mod snapshot_index;
mod stats;
mod stopped;
mod sums;
mod workload;

pub use audit::{Amount, End, Finding, audit};
pub use balancer::{DistributeError, LoadBalancer};
pub use cluster_index::ClusterIndex;
pub use config::{ConfigError, HostLayers, LoadBalanceConfig};
pub use distribute::distribute;
pub use distribution::{Distribution, DistributionPlan, TensorSlice, chunk_distribution_plan};
pub use door::plan;
pub use error::{Certificate, PinProblem, PlanError, Refusal, Verdict};
pub use index::ModelIndex;
pub use pins::ParsePinError;
pub use plan::{Assumption, Optimality, Override, Pipeline, Plan, PlanValue, Stage, Stopped, StoppedBy};
pub use plimsoll_model::LayerSpec;
pub use price::{Placement, Priced, price};
pub use rebalance::{
    Blocked, Decision, Hold, Hysteresis, InFlight, InOrder, LinkUse, Piece, PoolPeak, Proposal, Rebalance,
    RebalanceError, RebalanceOptions, Round, RunMove, Schedule, Score, Step, TimedStep, Trade, decide,
    moves_in_order, rebalance_plan,
};
pub use shed::{Transfer, shed_load};
pub use skew::{Share, SkewReport, skew};
pub use snapshot_index::SnapshotIndex;
pub use stats::{LoadStats, NotARatio};
pub use workload::{
    Charges, EngineRules, FixedPart, HostUse, LayerRange, Movable, MoveWhen, Objective, Part, PartClass, Pin,
    Pipelines, PlanOptions, StageCharges, Strategy, Transfers, Workload,
};
