//! What a rebalancing is asked for, and what it says.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;

use plimsoll_units::{Bytes, BytesPerSec, DeviceRef, NodeId, PoolId};

use crate::plan::{Optimality, Plan};
use crate::workload::LayerRange;

/// What a person or a caller may add to a request for a rebalancing.
#[derive(Clone, Debug, PartialEq)]
pub struct RebalanceOptions {
    /// How much worse than the best value in the order of the plan the target may be, as a share (0.02 is 2 %).
    pub tolerance: f64,
    /// How many steps may run at once, those in flight among them.
    pub max_concurrent: NonZeroU32,
    /// How fast layers are read from where the model is stored; unknown when `None`, and so are the times of loads.
    pub load_rate: Option<BytesPerSec>,
    /// How fast bytes pass between two devices of one node; unknown when `None`, and so are the times of such moves.
    pub local_rate: Option<BytesPerSec>,
    /// Whether layers may be dropped and loaded again where nothing else gets the moves out of each other's way. Their
    /// key-value cells are lost, and they are not there in between.
    pub may_drop: bool,
    /// Moves that are under way.
    pub in_flight: Vec<InFlight>,
    /// Devices whose contents are gone, whatever the snapshot says of them.
    pub lost: BTreeSet<DeviceRef>,
    /// Whether a plan in any order is looked for as well.
    pub propose: bool,
}

/// 2 %, one step at once, no rates, dropping allowed, nothing in flight or lost, other orders proposed.
impl Default for RebalanceOptions {
    fn default() -> Self {
        Self {
            tolerance: 0.02,
            max_concurrent: NonZeroU32::MIN,
            load_rate: None,
            local_rate: None,
            may_drop: true,
            in_flight: Vec::new(),
            lost: BTreeSet::new(),
            propose: true,
        }
    }
}

/// A move that is under way: its layers still lie where the plan in force has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// What moves.
    pub what: Piece,
    /// Where it still lies.
    pub from: DeviceRef,
    /// Where it goes; the bytes are counted there already.
    pub to: DeviceRef,
}

/// Part of a model that lies together: layers in a row, and what lies at the model's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// The layers; may be empty.
    pub layers: LayerRange,
    /// Whether the input is part of it.
    pub input: bool,
    /// Whether the head is.
    pub head: bool,
}

/// `layers 3..8`, `input and layers 0..2`, `head`.
impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.input {
            parts.push("input".to_owned());
        }
        if self.layers.start < self.layers.end {
            parts.push(format!("layers {}..{}", self.layers.start, self.layers.end));
        }
        if self.head {
            parts.push("head".to_owned());
        }
        f.pad(&parts.join(" and "))
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copy to where it belongs, then free where it lay.
    Move {
        /// What.
        what: Piece,
        /// Where it lies.
        from: DeviceRef,
        /// Where it belongs.
        to: DeviceRef,
        /// What it takes there.
        bytes: Bytes,
    },
    /// Copy to where there is room for the time being, then free where it lay. A move from there follows.
    Spill {
        /// What.
        what: Piece,
        /// Where it lies.
        from: DeviceRef,
        /// Where it waits.
        to: DeviceRef,
        /// What it takes there.
        bytes: Bytes,
    },
    /// Free without a copy: it is loaded again later.
    Drop {
        /// What.
        what: Piece,
        /// Where it lies.
        from: DeviceRef,
        /// What it takes there.
        bytes: Bytes,
        /// How much of that are key-value cells, which no store has.
        kv_bytes: Bytes,
    },
    /// Read from where the model is stored.
    Load {
        /// What.
        what: Piece,
        /// Where it belongs.
        to: DeviceRef,
        /// What it takes there.
        bytes: Bytes,
    },
    /// The engine's buffers, and the copies that every used device keeps, change from what they are under the plan in
    /// force to what they are under the target. Less is kept once the device has nothing left to send, more after the
    /// last move.
    Charge {
        /// The device.
        device: DeviceRef,
        /// What they take now.
        from: Bytes,
        /// What they take afterwards.
        to: Bytes,
    },
}

/// A step, and how long it takes alone.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedStep {
    /// The step.
    pub step: Step,
    /// Latency and bytes divided by the rate, over each link on its way; `None` where a rate is not known.
    pub seconds: Option<f64>,
}

/// Steps that run at once. Charges that become less, and drops, come first; whatever moves is freed at its source only
/// when the round ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// What is done.
    pub steps: Vec<TimedStep>,
    /// What passes each link, the smaller pair of names first.
    pub links: Vec<LinkUse>,
    /// How long the slowest of its steps and links takes; `None` where a rate is not known.
    pub seconds: Option<f64>,
}

/// What passes one link in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// Its two nodes, the smaller name first.
    pub between: [NodeId; 2],
    /// All bytes that pass it, in either direction.
    pub bytes: Bytes,
    /// Latency and bytes divided by the rate.
    pub seconds: f64,
}

/// The most that lies in a pool at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPeak {
    /// The node.
    pub node: NodeId,
    /// The pool.
    pub pool: PoolId,
    /// The most.
    pub peak_bytes: Bytes,
    /// What may lie there.
    pub budget_bytes: Bytes,
}

/// The way from the plan in force to a target.
///
/// No step adds to a pool or a device more than its budget leaves, charges and copies under way included. Only what is
/// above its budget at the start may stay above it for a while, and never grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// What to do, one round after the other.
    pub rounds: Vec<Round>,
    /// All rounds one after the other; `None` where a rate is not known.
    pub seconds: Option<f64>,
    /// Every pool that the plan in force or the target uses, by node and pool. Lost devices have none.
    pub peaks: Vec<PoolPeak>,
    /// Bytes that are sent or loaded a second time because of spills and drops.
    pub extra_bytes: Bytes,
    /// Whether it was known beforehand that nothing has to be sent twice: the order of the devices is kept, each has a pool
    /// of its own, the plan in force fits, and every source is alive.
    pub guaranteed: bool,
}

/// No way to a target: moves wait for each other, and there is no room to set anything aside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("moves wait for each other around {}: {} more free bytes on any other pool would let them pass", names(.cycle), .scratch_bytes.get())]
pub struct Blocked {
    /// Devices of which each waits for room on the next one, and the last for room on the first.
    pub cycle: Vec<DeviceRef>,
    /// The smallest thing that one of them has to send: with room for it elsewhere the cycle opens.
    pub scratch_bytes: Bytes,
}

fn names(cycle: &[DeviceRef]) -> String {
    cycle.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// How good a plan is on the snapshot of now.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The value, in the objective's unit; `None` where speeds are not known, or a device of the plan may not be used.
    pub value: Option<f64>,
    /// Whether every byte has its place on devices that may be used.
    pub fits: bool,
}

/// What a tolerance costs and gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Trade {
    /// The tolerance.
    pub tolerance: f64,
    /// Bytes that change their device.
    pub bytes: Bytes,
    /// The value of the target.
    pub value: Option<f64>,
    /// Whether another entry has no more bytes and no worse a value, and less of one of them.
    pub dominated: bool,
}

/// A better plan in another order of devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The plan.
    pub plan: Plan,
    /// Bytes that would change their device.
    pub bytes: Bytes,
    /// The way there.
    pub schedule: Result<Schedule, Blocked>,
}

/// From the plan in force to a better one with few bytes moved.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rebalancing changes nothing until it is carried out"]
pub struct Rebalance {
    /// What should be.
    pub target: Plan,
    /// Bytes that come to another device from a device that has them: layers with their key-value cells, input, head.
    pub moved_bytes: Bytes,
    /// Bytes that have to be loaded because the device that had them is lost.
    pub loaded_bytes: Bytes,
    /// No target within the tolerance, in the order of the plan, has fewer bytes to move and load than this.
    pub bytes_lower_bound: Bytes,
    /// How far that proves that the target has the fewest.
    pub bytes_optimality: Optimality,
    /// The best value in the order of the plan; `None` where speeds are not known.
    pub best_value: Option<f64>,
    /// Whether the target keeps the order of the plan. It does not only where nothing in that order fits.
    pub order_kept: bool,
    /// The plan in force on the snapshot of now.
    pub before: Score,
    /// The target.
    pub after: Score,
    /// What stays where it is, in order.
    pub stays: Vec<(DeviceRef, Piece)>,
    /// The way there.
    pub schedule: Result<Schedule, Blocked>,
    /// What other tolerances would cost and give.
    pub trades: Vec<Trade>,
    /// A better plan in another order, where there is one.
    pub proposal: Option<Proposal>,
}

impl Rebalance {
    /// All bytes that change their device.
    pub const fn bytes(&self) -> Bytes {
        self.moved_bytes.saturating_add(self.loaded_bytes)
    }
}
