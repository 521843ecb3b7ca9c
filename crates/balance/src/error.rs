//! Why there is no plan.

use plimsoll_cluster::{MainNodeError, SnapshotError};
use plimsoll_units::{Bytes, DeviceRef, NodeId};

use crate::plan::{Stopped, StoppedBy};
use crate::workload::{Objective, Pin, Pipelines, Transfers};

/// Why there is no plan. Planning changes nothing, so nothing has changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Nothing can hold layers.
    #[error("no device can take layers: {} device(s) in the snapshot, none usable", .stopped.len())]
    NoDevices {
        /// Why each was left out.
        stopped: Vec<Stopped>,
    },
    /// A layer is listed twice.
    #[error("layer {index} is listed twice")]
    DuplicateLayer {
        /// Its index.
        index: u32,
    },
    /// A layer is missing.
    #[error("layer {missing} is missing: {after} follows {before}")]
    MissingLayer {
        /// The first index that is missing.
        missing: u32,
        /// The last one before the gap.
        before: u32,
        /// The first one after it.
        after: u32,
    },
    /// The snapshot is not one that a planner may trust.
    #[error("the snapshot is not sound")]
    Snapshot(#[source] SnapshotError),
    /// A cap or a placement names a device that is not there or may not be used.
    #[error("there is no device {device} that may be used")]
    UnknownDevice {
        /// The device.
        device: DeviceRef,
    },
    /// The engine runs on one node, and it is not clear on which.
    #[error(transparent)]
    NoMainNode(MainNodeError),
    /// The node that runs the engine takes nothing new.
    #[error("{node} runs the engine and is drained")]
    MainNodeDrained {
        /// The main node.
        node: NodeId,
    },
    /// The node that runs the engine does not answer.
    #[error("{node} runs the engine and does not answer")]
    MainNodeFailed {
        /// The main node.
        node: NodeId,
    },
    /// The node that runs the engine has no memory of its own that the engine could keep its buffers in.
    #[error(
        "node {node} runs the engine, which keeps the input in its memory: say how much it has (memory = …)"
    )]
    NoHostMemory {
        /// The main node.
        node: NodeId,
    },
    /// Nobody knows what is free of the main node's memory.
    #[error(
        "node {node} runs the engine, which keeps the input in its memory: say how much is free (memory_free = …)"
    )]
    HostMemoryUnknown {
        /// The main node.
        node: NodeId,
    },
    /// A placement names a device twice.
    #[error("the placement names {device} twice")]
    RepeatedDevice {
        /// The device.
        device: DeviceRef,
    },
    /// The ranges of a placement do not follow each other, or do not cover the layers.
    #[error("the placement goes on at layer {at} where {expected} is next")]
    BrokenPlacement {
        /// Where it goes on, or how many layers there are.
        at: usize,
        /// What is next.
        expected: usize,
    },
    /// Amounts of the input add up to more than 2^64 - 1 bytes.
    #[error("the {what} add up to more than 18446744073709551615 bytes")]
    Overflow {
        /// What was added up.
        what: &'static str,
    },
    /// Several pipelines serve many requests at once, and something else is asked for.
    #[error(
        "{} are for the objective throughput, and {} is asked for",
        copies(.pipelines),
        asked(.objective)
    )]
    PipelinesObjective {
        /// How many pipelines are asked for.
        pipelines: Pipelines,
        /// What the plan should be good at.
        objective: Objective,
    },
    /// The engine is one process around a main node.
    #[error(
        "{} are asked for, and the engine runs as one process around a main node, which holds the input once",
        copies(.pipelines)
    )]
    PipelinesAroundHost {
        /// How many pipelines are asked for.
        pipelines: Pipelines,
    },
    /// What passes between stages is counted for one pipeline only.
    #[error(
        "{} are asked for together with transfers {}, which are counted for one pipeline only",
        copies(.pipelines),
        counted(.transfers)
    )]
    PipelinesTransfers {
        /// How many pipelines are asked for.
        pipelines: Pipelines,
        /// How transfers are to be counted.
        transfers: Transfers,
    },
    /// What passes is told behind another number of layers than there are.
    #[error("what passes is told behind {told} layers and there are {layers}")]
    Boundaries {
        /// Behind how many it is told.
        told: usize,
        /// How many there are.
        layers: usize,
    },
    /// Transfers are part of a stage's time, which only throughput compares.
    #[error("transfers count for the objective throughput only, and {} is asked for", asked(.objective))]
    TransfersApart {
        /// What is asked for.
        objective: Objective,
    },
    /// Layers are pinned where they cannot lie, whatever the bytes.
    #[error("pin {pin}: {problem}")]
    Pin {
        /// The pin; where a device has several, all of them as one.
        pin: Pin,
        /// What is wrong with it.
        problem: PinProblem,
    },
    /// Something beside the layers that its device has no room for.
    #[error("the {name} takes {bytes} bytes on {device}, where {budget} bytes may be used")]
    PartDoesNotFit {
        /// What it is.
        name: String,
        /// Where it should lie.
        device: DeviceRef,
        /// What it takes.
        bytes: u64,
        /// What may be used there, beside the parts before it.
        budget: u64,
    },
    /// Parts of layers that may move, under rules that know no main host.
    #[error("parts of layers can move only to a main host, and these rules know none")]
    NothingMoves,
    /// Parts that are not one for each layer of each footprint.
    #[error("there are {told} rows of parts that may move where {layers} are expected")]
    Parts {
        /// How many are told.
        told: usize,
        /// How many there should be.
        layers: usize,
    },
    /// A part that is larger than its layer.
    #[error("the part of layer {index} that may move is larger than the layer")]
    PartTooLarge {
        /// The layer.
        index: u32,
    },
    /// The model does not fit, or no way was found.
    #[error(transparent)]
    DoesNotFit(Box<Refusal>),
}

/// So many pipelines, in words.
fn copies(pipelines: &Pipelines) -> String {
    pipelines.count().map_or_else(|| "several pipelines".to_owned(), |count| format!("{count} pipelines"))
}

/// An objective, as it is asked for.
fn asked(objective: &Objective) -> &'static str {
    match objective {
        Objective::Fit => "fit",
        Objective::Throughput => "throughput",
        Objective::Latency => "latency",
        Objective::Balanced => "balanced",
    }
}

/// How transfers are counted, in a word.
fn counted(transfers: &Transfers) -> &'static str {
    match transfers {
        Transfers::Apart => "apart",
        Transfers::Overlapped => "overlapped",
        Transfers::Added => "added",
    }
}

/// What is wrong with a pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinProblem {
    /// It names no layer.
    #[error("the range holds no layer")]
    Empty,
    /// It names layers that the model does not have.
    #[error("the model's layers are {start}-{end} (the end is the layer after the last one)")]
    Outside {
        /// The model's first layer.
        start: u32,
        /// The layer after its last one.
        end: u32,
    },
    /// The snapshot does not have the device.
    #[error("there is no such device")]
    NoSuchDevice,
    /// The device may not be used.
    #[error("the device may not be used: {}", why(.reason))]
    LeftOut {
        /// Why.
        reason: StoppedBy,
    },
    /// The engine never puts layers on this device: a remote node's host, or a second name of the main node's.
    #[error("the engine puts no layers on this device")]
    TakesNoPart,
    /// Layers that another device has to hold.
    #[error(
        "it overlaps {other}, and a device holds everything between the first and the last layer pinned to it"
    )]
    Overlaps {
        /// What is pinned to that device. A main host holds everything up to its last layer.
        other: Pin,
    },
    /// No stage may end between the layers of two devices.
    #[error("no stage may end between it and {other}: layers {start}-{end} cannot be cut")]
    Uncuttable {
        /// What is pinned to the other device.
        other: Pin,
        /// The first of the layers that stay together.
        start: u32,
        /// The layer after the last one.
        end: u32,
    },
    /// More devices have pins than may be used.
    #[error("layers are pinned to {pinned} devices, and at most {limit} may be used")]
    TooMany {
        /// How many devices have pins, the main host not counted.
        pinned: u64,
        /// How many may be used.
        limit: u64,
    },
}

/// Why a device was left out.
fn why(reason: &StoppedBy) -> &'static str {
    match reason {
        StoppedBy::Drained => "its node is drained",
        StoppedBy::Failed => "its node does not answer",
        StoppedBy::FreeUnknown => "what is free there is not known",
        StoppedBy::NotAsked => "its node is not among the only ones to use",
        _ => "it is left out",
    }
}

/// The model does not fit, or no way was found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}; {} bytes short in the best attempt", .verdict, .short_bytes.get())]
pub struct Refusal {
    /// What is known.
    pub verdict: Verdict,
    /// How many bytes are short in the best attempt.
    pub short_bytes: Bytes,
    /// What stopped each device.
    pub stopped: Vec<Stopped>,
}

/// What is known of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Verdict {
    /// No order of any of the devices fits.
    #[error("it cannot fit: {0}")]
    ProvenInfeasible(Certificate),
    /// Searched; neither found nor excluded.
    #[error("no way to fit it was found, and none was excluded")]
    Unknown,
}

/// Why nothing can fit: anybody can check it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Certificate {
    /// All budgets together are too small.
    #[error("{needs} bytes are needed and all budgets together are {budgets} bytes")]
    Total {
        /// What is needed, charges that nobody can avoid included.
        needs: u64,
        /// What may be used.
        budgets: u64,
    },
    /// One layer is larger than every device.
    #[error("layer {index} takes {needs} bytes and the largest budget is {largest} bytes")]
    Layer {
        /// The layer.
        index: u32,
        /// What it takes with what must lie beside it.
        needs: u64,
        /// The largest budget.
        largest: u64,
    },
    /// The budgets that can hold any layer are too small together.
    #[error(
        "{needs} bytes are needed and the budgets that can hold a layer, of {devices} device(s), are {budgets} bytes"
    )]
    Usable {
        /// What is needed, charges that nobody can avoid included.
        needs: u64,
        /// What may be used where any layer fits, and on the main host.
        budgets: u64,
        /// How many devices, the main host not counted, can hold any layer.
        devices: u64,
    },
    /// Too few devices can hold the larger layers.
    #[error(
        "{count} layers take at least {size} bytes each and all budgets together hold only {places} of that size"
    )]
    Counting {
        /// How many layers are at least that large.
        count: u64,
        /// That size.
        size: u64,
        /// How many of that size all budgets hold.
        places: u64,
    },
    /// The host cannot hold what the engine keeps there.
    #[error("the engine keeps {needs} bytes on {host} and its budget is {budget} bytes")]
    Host {
        /// The main node's host.
        host: DeviceRef,
        /// What the engine keeps there.
        needs: u64,
        /// What may be used.
        budget: u64,
    },
    /// There are more pipelines than devices that may be used.
    #[error("{pipelines} pipelines need as many devices, and {devices} may be used")]
    Pipelines {
        /// How many are asked for.
        pipelines: u64,
        /// How many devices may be used.
        devices: u64,
    },
    /// What is pinned to a device is larger than it.
    #[error("{pin} and what lies beside it take {needs} bytes, and the budget there is {budget} bytes")]
    Pinned {
        /// Everything that is pinned to the device.
        pin: Pin,
        /// What it takes with what must lie beside it.
        needs: u64,
        /// What may be used.
        budget: u64,
    },
    /// Every order of every set of devices was excluded by an exact search.
    #[error("an exact search over every order of {devices} device(s) found none")]
    Searched {
        /// How many devices there are.
        devices: u64,
    },
}
