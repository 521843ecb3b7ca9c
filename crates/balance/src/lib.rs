//! Layers to unlike devices: exact and certified planners, and an independent auditor.

mod error;
mod plan;
mod workload;

pub use error::{Certificate, PlanError, Refusal, Verdict};
pub use plan::{Assumption, Optimality, Plan, PlanValue, Stage, Stopped, StoppedBy};
pub use plimsoll_model::LayerSpec;
pub use workload::{Charges, EngineRules, HostUse, Objective, PlanOptions, StageCharges, Strategy, Workload};
