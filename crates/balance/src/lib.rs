//! Layers to unlike devices: exact and certified planners, and an independent auditor.

mod assemble;
mod audit;
mod context;
mod core;
mod door;
mod error;
mod fleet;
mod index;
mod items;
mod links;
mod plan;
mod refuse;
mod search;
mod speeds;
mod stopped;
mod workload;

pub use audit::{Finding, audit};
pub use door::plan;
pub use error::{Certificate, PlanError, Refusal, Verdict};
pub use index::ModelIndex;
pub use plan::{Assumption, Optimality, Plan, PlanValue, Stage, Stopped, StoppedBy};
pub use plimsoll_model::LayerSpec;
pub use workload::{Charges, EngineRules, HostUse, Objective, PlanOptions, StageCharges, Strategy, Workload};
