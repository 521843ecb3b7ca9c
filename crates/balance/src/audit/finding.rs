//! What is wrong with a plan.

use std::fmt;

use plimsoll_units::{DeviceRef, Generation};

/// A number of bytes of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    /// What its weights take.
    Weights,
    /// What its key-value cells and recurrent state take.
    KeyValue,
    /// What the engine takes beside.
    Charges,
    /// What may be used.
    Budget,
    /// What is left.
    Slack,
}

/// `weights`, `key-value cells`, `charges`, `budget`, `slack`.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weights => "weights",
            Self::KeyValue => "key-value cells",
            Self::Charges => "charges",
            Self::Budget => "budget",
            Self::Slack => "slack",
        })
    }
}

/// What lies at one end of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The token embedding.
    Input,
    /// The output.
    Head,
}

/// `input`, `head`.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Input => "input",
            Self::Head => "head",
        })
    }
}

/// Something that a plan gets wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// It was made from another snapshot.
    #[error("the plan was made from generation {plan}, and this is generation {snapshot}")]
    Basis {
        /// The plan's.
        plan: Generation,
        /// The snapshot's.
        snapshot: Generation,
    },
    /// It answers another question.
    #[error("the plan was made for another objective or strategy")]
    OtherRequest,
    /// The workload itself is not a row of layers.
    #[error("the layers of the workload are not a row without gaps and repeats")]
    Workload,
    /// A stage does not begin where the one before ends.
    #[error("the layers of {device} begin at {start} and not at {expected}")]
    Order {
        /// The device.
        device: DeviceRef,
        /// Where its layers begin.
        start: u32,
        /// Where they should.
        expected: u32,
    },
    /// The stages do not end with the last layer.
    #[error("the stages hold the layers up to {held} of {all}")]
    Cover {
        /// The first layer that no stage holds, or one more than there are.
        held: u32,
        /// The first index behind the model.
        all: u32,
    },
    /// A stage ends where none may.
    #[error("no stage may end right after layer {index}")]
    Cut {
        /// The layer.
        index: u32,
    },
    /// Input or head lie where the engine does not put them.
    #[error("the {what} may not lie on {device}, or is missing there")]
    Misplaced {
        /// Input or head.
        what: End,
        /// The device.
        device: DeviceRef,
    },
    /// A stage holds nothing, and nothing is charged there.
    #[error("{device} is listed and holds nothing")]
    Idle {
        /// The device.
        device: DeviceRef,
    },
    /// A device is listed twice.
    #[error("{device} is listed twice")]
    Repeated {
        /// The device.
        device: DeviceRef,
    },
    /// A device may not hold what it holds.
    #[error("{device} may not be used: {reason}")]
    Unusable {
        /// The device.
        device: DeviceRef,
        /// Why.
        reason: &'static str,
    },
    /// The engine has no main host, or the plan does not begin there.
    #[error("the plan does not begin with the main node's host")]
    NoHost,
    /// Pipelines are not listed one after the other, from 0.
    #[error("{device} is listed in pipeline {pipeline}, where {expected} is next")]
    PipelineOrder {
        /// The device.
        device: DeviceRef,
        /// Its pipeline.
        pipeline: u32,
        /// The pipeline before, or the one behind that.
        expected: u32,
    },
    /// There are more or fewer pipelines than were asked for.
    #[error("there are {found} pipelines, and {asked} were asked for")]
    Pipelines {
        /// How many there are.
        found: u64,
        /// How many should be.
        asked: u64,
    },
    /// Pinned layers lie elsewhere, or nowhere.
    #[error(
        "layers {start}-{end} (the end is the layer after the last one) do not all lie on {device}, where they are pinned"
    )]
    Pinned {
        /// Where they should lie.
        device: DeviceRef,
        /// The first pinned layer.
        start: u32,
        /// The layer after the last one.
        end: u32,
    },
    /// Parts of layers lie where they may not, or are told wrongly.
    #[error(
        "parts of layers {start}-{end} (the end is the layer after the last one) are told to lie on {device}: {reason}"
    )]
    Override {
        /// Where they are told to lie.
        device: DeviceRef,
        /// The first layer.
        start: u32,
        /// The layer after the last one.
        end: u32,
        /// What is wrong.
        reason: &'static str,
    },
    /// More devices are used than are allowed.
    #[error("{used} devices are used and at most {limit} are allowed")]
    TooMany {
        /// How many are used, the main host not counted.
        used: u64,
        /// How many may be.
        limit: u32,
    },
    /// A number is not what adding up gives.
    #[error("the {what} of {device} are {claimed} bytes, and adding up gives {actual} bytes")]
    Number {
        /// The device.
        device: DeviceRef,
        /// Which number.
        what: Amount,
        /// What the plan says.
        claimed: u64,
        /// What adding up gives.
        actual: u64,
    },
    /// More lies on a device than may.
    #[error("{device} holds {needs} bytes and may hold {budget} bytes")]
    OverBudget {
        /// The device.
        device: DeviceRef,
        /// What lies there.
        needs: u64,
        /// What may.
        budget: u64,
    },
    /// A stage time is not what dividing gives.
    #[error("the time of {device} is not what its bytes and bandwidth give")]
    Seconds {
        /// The device.
        device: DeviceRef,
        /// What the plan says.
        claimed: Option<f64>,
        /// What dividing gives.
        actual: Option<f64>,
    },
    /// An assumption is missing, or is none.
    #[error("what is assumed of {what} is missing or wrong")]
    Assumed {
        /// The device or link.
        what: String,
    },
    /// The value is not what the stages give.
    #[error("the value of the plan is not what its stages give")]
    Value {
        /// What the plan says.
        claimed: Option<f64>,
        /// What the stages give.
        actual: Option<f64>,
    },
    /// The bound is above the value, or proves less than is claimed.
    #[error("the lower bound does not prove what is claimed of the value")]
    Optimality,
    /// What is said to have stopped a device is wrong.
    #[error("what is said to have stopped {device} is not so")]
    Stopped {
        /// The device.
        device: DeviceRef,
    },
}
