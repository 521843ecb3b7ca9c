//! Where everything goes, and why.

use std::ops::Range;

use plimsoll_units::{Bytes, BytesPerSec, DeviceRef, Generation};

use crate::workload::{FixedPart, Objective, PartClass, Strategy};

/// Where everything goes. Nothing is left for the executor to choose.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a plan changes nothing until it is carried out"]
pub struct Plan {
    /// The snapshot it was computed from.
    pub basis: Generation,
    /// What it is good at.
    pub objective: Objective,
    /// In which orders devices were tried.
    pub strategy: Strategy,
    /// The devices in the order in which a token passes them, pipeline by pipeline. A stage with an empty range is listed when something is
    /// charged there (input, head, an engine's host buffers).
    pub stages: Vec<Stage>,
    /// Parts of layers that lie elsewhere than their layer: in the order of the layers, each within one stage.
    pub overrides: Vec<Override>,
    /// What lies beside the layers. Budgets of stages are what these leave.
    pub parts: Vec<FixedPart>,
    /// How good it is.
    pub value: PlanValue,
    /// What was assumed where the snapshot does not say.
    pub assumed: Vec<Assumption>,
    /// What stopped each device that could have taken more, and devices left out.
    pub stopped: Vec<Stopped>,
}

impl Plan {
    /// The copies of the model, by their numbers.
    pub fn pipelines(&self) -> impl Iterator<Item = Pipeline<'_>> {
        let same = |a: &Stage, b: &Stage| a.pipeline == b.pipeline;
        self.stages.chunk_by(same).map(|stages| Pipeline { stages })
    }
}

/// Parts of layers that lie elsewhere than their layer. The bytes of stages count them where they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The layers, half open; never empty.
    pub layers: Range<u32>,
    /// Which part of each.
    pub class: PartClass,
    /// Where the parts lie.
    pub device: DeviceRef,
    /// What they take there.
    pub bytes: Bytes,
}

/// One copy of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipeline<'a> {
    /// Its devices in the order in which a token passes them; at least one.
    pub stages: &'a [Stage],
}

impl Pipeline<'_> {
    /// Seconds between two of its tokens, which is its largest stage time; `None` where a speed is not known.
    pub fn seconds(&self) -> Option<f64> {
        self.stages
            .iter()
            .map(|stage| stage.seconds)
            .try_fold(0.0, |most: f64, seconds| Some(most.max(seconds?)))
    }
}

/// What one device holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Which copy of the model it is part of, from 0.
    pub pipeline: u32,
    /// The device.
    pub device: DeviceRef,
    /// The layers it holds, half open; may be empty.
    pub layers: Range<u32>,
    /// Whether the input lies here.
    pub input: bool,
    /// Whether the head lies here.
    pub head: bool,
    /// Weights: the layers', the input's and head's where they lie here, and what every device keeps a copy of.
    pub weights_bytes: Bytes,
    /// Key-value cells and recurrent state.
    pub kv_bytes: Bytes,
    /// What the engine takes beside.
    pub overhead_bytes: Bytes,
    /// What may be used here: the pool's budget, less what other stages take of the same pool, under the device's caps.
    pub budget_bytes: Bytes,
    /// What is left: budget less all of the above.
    pub slack_bytes: Bytes,
    /// How long one token takes here, without what passes between stages; `None` where the speed is not known.
    pub seconds: Option<f64>,
}

impl Stage {
    /// What lies here in all, saturating.
    pub const fn used_bytes(&self) -> Bytes {
        self.weights_bytes.saturating_add(self.kv_bytes).saturating_add(self.overhead_bytes)
    }
}

/// How good a plan is, in the objective's own unit.
///
/// Fit: devices used. Throughput: the largest stage time, with what passes where [`Transfers`](crate::Transfers) count,
/// seconds; of several pipelines the seconds between two tokens of all of them together, which is one over the sum of one
/// over each one's largest stage time. Latency: the sum of stage times and hops, seconds.
/// Balanced: the largest used share of a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanValue {
    /// The value; `None` where speeds are not known.
    pub value: Option<f64>,
    /// No plan, in any order on any devices, is better than this. For fit and balanced with a main host, which
    /// then holds layers only as a last resort, no plan with as few layers on the host as possible is better.
    pub lower_bound: Option<f64>,
    /// How far that proves it.
    pub optimality: Optimality,
}

/// How much is proven of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimality {
    /// Nothing better exists.
    Proven,
    /// Nothing is better by more than this share (0.02 is 2 %).
    Within(f64),
    /// Nothing is proven.
    Unproven,
}

/// Something that the snapshot does not say.
#[derive(Clone, Debug, PartialEq)]
pub enum Assumption {
    /// A device's speed.
    Bandwidth {
        /// The device.
        device: DeviceRef,
        /// What was taken for it.
        rate: BytesPerSec,
        /// Whether its name is known, or only its kind.
        by_name: bool,
    },
    /// A way between two nodes.
    Link {
        /// The two nodes.
        between: [plimsoll_units::NodeId; 2],
        /// What was taken for it.
        rate: BytesPerSec,
        /// And how long the first byte takes.
        latency: std::time::Duration,
    },
    /// No speed is known for this device nor for its kind: all devices are taken as equally fast, and no time is told.
    UnknownSpeed {
        /// The device.
        device: DeviceRef,
    },
}

/// What stopped a device from taking more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The device.
    pub device: DeviceRef,
    /// Why.
    pub reason: StoppedBy,
    /// How many bytes more would let it take the next layer; zero where bytes would not help.
    pub short_bytes: Bytes,
}

/// Why a device takes no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoppedBy {
    /// The next layer does not fit beside what it holds.
    Layer {
        /// The layer that would come next.
        index: u32,
        /// What it needs.
        needs: Bytes,
        /// What is left.
        room: Bytes,
    },
    /// The engine's own charges alone are more than its budget.
    Overhead {
        /// What they are.
        needs: Bytes,
        /// What may be used.
        budget: Bytes,
    },
    /// Its node is drained.
    Drained,
    /// Its node does not answer.
    Failed,
    /// What is free there is not known.
    FreeUnknown,
    /// Its node is not among the only ones to use.
    NotAsked,
    /// The engine, or the person, allows no more devices.
    DeviceLimit {
        /// How many are allowed.
        limit: u32,
    },
    /// The next layer is pinned to another device.
    Pinned {
        /// The layer that would come next.
        index: u32,
        /// Where it has to lie.
        device: DeviceRef,
    },
    /// It would make the plan no better.
    NotNeeded,
}
