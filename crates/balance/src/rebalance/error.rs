//! Why there is no rebalancing.

use plimsoll_units::{DeviceRef, Generation};

use crate::error::PlanError;

/// Why there is no rebalancing. Nothing is changed by asking, so nothing has changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RebalanceError {
    /// The cluster, the workload or the request is not sound, or nothing fits any more.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan was made from a later snapshot than this one.
    #[error("the plan was made from generation {plan}, which is newer than the snapshot's {snapshot}")]
    NewerPlan {
        /// The plan's.
        plan: Generation,
        /// The snapshot's.
        snapshot: Generation,
    },
    /// The plan holds other layers than the workload has.
    #[error("the plan holds layers {plan_start}..{plan_end} and the model has {start}..{end}")]
    OtherLayers {
        /// The plan's first layer.
        plan_start: u32,
        /// The index behind its last one.
        plan_end: u32,
        /// The model's first layer.
        start: u32,
        /// The index behind its last one.
        end: u32,
    },
    /// The plan holds the same layers with other bytes.
    #[error(
        "the plan has {plan} bytes on {device} for layers {start}..{end}, and this model takes {model} bytes there"
    )]
    OtherModel {
        /// The device.
        device: DeviceRef,
        /// The first of its layers.
        start: u32,
        /// The index behind the last of them.
        end: u32,
        /// What the plan says they take.
        plan: u64,
        /// What they take.
        model: u64,
    },
    /// The stages of the plan do not follow each other, or end where none may.
    #[error("the plan's stage on {device} begins or ends wrongly at layer {at}")]
    BrokenPlan {
        /// The device.
        device: DeviceRef,
        /// The layer.
        at: u32,
    },
    /// Parts of layers lie apart from them, or have to.
    #[error(
        "parts of {layers} layer(s) lie on the host, apart from them; only whole layers are rebalanced: plan again, and \
         compare the two plans"
    )]
    PartsApart {
        /// How many layers.
        layers: usize,
    },
    /// The plan names a device that the snapshot it was made from does not have.
    #[error("the plan names {device}, which generation {generation} does not have")]
    UnknownDevice {
        /// The device.
        device: DeviceRef,
        /// The snapshot's generation.
        generation: Generation,
    },
    /// The plan names a device twice.
    #[error("the plan names {device} twice")]
    RepeatedDevice {
        /// The device.
        device: DeviceRef,
    },
    /// The plan or the request is for several copies of the model, or counts what passes between stages.
    #[error(
        "only one copy of a model whose stages do not count transfers can be rebalanced; this has {copies}"
    )]
    NotOnePipeline {
        /// How many copies the plan has.
        copies: u32,
    },
    /// The tolerance is not a share.
    #[error("a tolerance is a share of at least 0, such as 0.02, and not {tolerance}")]
    Tolerance {
        /// What was asked for.
        tolerance: f64,
    },
    /// As many moves are in flight as are allowed at once.
    #[error("{in_flight} moves are in flight and at most {limit} are allowed at once")]
    Busy {
        /// How many are in flight.
        in_flight: usize,
        /// How many are allowed.
        limit: u32,
    },
    /// A move in flight does not start from where the plan has its layers, or ends at a device that takes none.
    #[error("the move in flight of layers {start}..{end} to {to} does not start from the plan in force")]
    InFlight {
        /// The first of its layers.
        start: u32,
        /// The index behind the last of them.
        end: u32,
        /// Where it goes.
        to: DeviceRef,
    },
    /// With the moves in flight no target in the order of the plan fits.
    #[error("no plan in this order fits beside {moves} move(s) in flight")]
    InFlightBlock {
        /// How many there are.
        moves: usize,
    },
}
