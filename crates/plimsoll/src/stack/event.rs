//! What a stack tells.

use std::fmt;
use std::sync::Arc;

use plimsoll_balance::{Plan, PlanError, Rebalance};
use plimsoll_cluster::{ClusterEvent, RegisterError, SampleError, StateError};
use plimsoll_profile::AccelerationMode;
use plimsoll_residency::StoreError;
use plimsoll_units::{Bytes, Generation, PoolId};
use plimsoll_watcher::LookError;

use crate::Checked;

/// What happened to a stack, in the order in which it happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StackEvent {
    /// What came, went or changed on the machine, in words.
    Hardware {
        /// One change.
        description: String,
    },
    /// The balancer was tuned to what the machine is now.
    Tuned {
        /// How many threads of work suit it.
        workers: u32,
        /// What does the work.
        acceleration: AccelerationMode,
    },
    /// The cluster was told what the machine is now.
    Node(ClusterEvent),
    /// The ledger got another budget.
    Budget {
        /// For which pool.
        pool: PoolId,
        /// How much may be held there from now on.
        budget: Bytes,
        /// So much more is held already. Nobody is thrown out.
        excess: Bytes,
    },
    /// How the plan in force stands, where that has changed.
    Plan(Arc<Standing>),
    /// Something was not done. What was known before stands, and the next change is taken in all the same.
    Failed(Arc<StackError>),
}

/// One line for a person.
impl fmt::Display for StackEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hardware { description } => f.write_str(description),
            Self::Tuned { workers, acceleration } => {
                write!(f, "tuned to {workers} worker(s), acceleration {acceleration}")
            }
            Self::Node(event) => event.fmt(f),
            Self::Budget { pool, budget, excess } => {
                write!(f, "pool '{pool}' may hold {budget}")?;
                if excess.is_zero() { Ok(()) } else { write!(f, ", and holds {excess} more") }
            }
            Self::Plan(standing) => standing.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// How the plan in force stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Against which generation of the cluster it was audited.
    pub generation: Generation,
    /// What the audit came to.
    pub checked: Checked,
    /// What to do.
    pub remedy: Remedy,
}

/// What to do about a plan in force.
#[derive(Clone, Debug)]
pub enum Remedy {
    /// Nothing: it holds.
    Keep,
    /// Move layers, load what is lost.
    Rebalance(Box<Rebalance>),
    /// Start again with this plan: from the one in force nothing leads to one that holds.
    Restart(Box<Plan>),
    /// The model does not fit any more, or cannot be planned: stop it, or make room.
    Stop(PlanError),
}

impl Standing {
    /// Whether the plan still fits, and every byte in it is right.
    pub fn holds(&self) -> bool {
        self.checked.broken.is_empty()
    }
}

/// `the plan in force no longer holds: …; moving 3.2 GB and loading 0 B makes it hold`.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.checked.broken.first() else { return f.write_str("the plan in force holds") };
        write!(f, "the plan in force no longer holds: {first}")?;
        match self.checked.broken.len() {
            1 => {}
            all => write!(f, " (and {} more)", all - 1)?,
        }
        match &self.remedy {
            Remedy::Keep => Ok(()),
            Remedy::Rebalance(to) => {
                write!(f, "; moving {} and loading {} makes it hold", to.moved_bytes, to.loaded_bytes)
            }
            Remedy::Restart(_) => f.write_str("; a new plan fits, and the model has to be loaded again"),
            Remedy::Stop(why) => write!(f, "; it cannot go on: {why}"),
        }
    }
}

/// Why a stack did not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The machine could not be looked at.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The cluster does not take the machine as it is.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The machine left the cluster meanwhile.
    #[error(transparent)]
    State(#[from] StateError),
    /// What is free on it cannot be true.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The ledger does not answer, or does not take a budget.
    #[error(transparent)]
    Ledger(#[from] StoreError),
    /// A change was not taken in: the work panicked, or the runtime ended.
    #[error("a change of this machine was not taken in to its end")]
    Interrupted,
}
