//! What happened, as data.

use std::fmt;
use std::time::Duration;

use plimsoll_units::{NodeId, PoolId};

use crate::NodeStatus;

/// What happened to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A machine is new.
    Joined {
        /// It.
        node: NodeId,
    },
    /// The same machine registered once more.
    CameBack {
        /// It.
        node: NodeId,
        /// Whether it was started anew in between, so that nothing it held is there any more.
        rebooted: bool,
    },
    /// Another machine took the name of one that no longer answers.
    TookOver {
        /// The name.
        node: NodeId,
    },
    /// The same machine registered under another name, and the old one is gone.
    Renamed {
        /// What it was called.
        from: NodeId,
        /// What it is called now.
        to: NodeId,
    },
    /// A machine was taken out.
    Left {
        /// It.
        node: NodeId,
    },
    /// A machine answers better or worse than before.
    Status {
        /// It.
        node: NodeId,
        /// How it was.
        from: NodeStatus,
        /// How it is.
        to: NodeStatus,
    },
    /// A machine takes nothing new from now on.
    Drained {
        /// It.
        node: NodeId,
    },
    /// A machine takes layers again.
    Undrained {
        /// It.
        node: NodeId,
    },
    /// What is free in a pool was measured too long ago to be believed.
    FreeOutdated {
        /// The machine.
        node: NodeId,
        /// Its pool.
        pool: PoolId,
        /// How old the last sample was.
        age: Duration,
    },
}

/// `node 'tower' came back after a reboot`.
impl fmt::Display for ClusterEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |status: &NodeStatus| match status {
            NodeStatus::Active => "active",
            NodeStatus::Degraded => "degraded",
            NodeStatus::Failed => "failed",
        };
        match self {
            Self::Joined { node } => write!(f, "node '{node}' joined"),
            Self::CameBack { node, rebooted: false } => write!(f, "node '{node}' came back"),
            Self::CameBack { node, rebooted: true } => write!(f, "node '{node}' came back after a reboot"),
            Self::TookOver { node } => write!(f, "another machine took over the name '{node}'"),
            Self::Renamed { from, to } => write!(f, "node '{from}' is now called '{to}'"),
            Self::Left { node } => write!(f, "node '{node}' left"),
            Self::Status { node, from, to } => {
                write!(f, "node '{node}' went from {} to {}", word(from), word(to))
            }
            Self::Drained { node } => write!(f, "node '{node}' takes nothing new"),
            Self::Undrained { node } => write!(f, "node '{node}' takes layers again"),
            Self::FreeOutdated { node, pool, age } => {
                write!(f, "what is free in '{node}/{pool}' was measured {:.1} s ago", age.as_secs_f64())
            }
        }
    }
}
