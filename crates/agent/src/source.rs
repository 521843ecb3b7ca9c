//! Where the cluster comes from that an agent plans on.

use std::sync::Arc;

use plimsoll::cluster::{ClusterSnapshot, ClusterState, SnapshotError};

/// Where the cluster comes from that an agent plans on.
///
/// This is where a cluster that machines share joins on: whoever keeps a [`ClusterState`] up to date hands it over as
/// [`Source::Shared`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// This machine is all there is.
    Machine,
    /// Machines that are described once and for all, as in a cluster file. The machine that the agent runs on is watched
    /// beside them: its profile, its ledger and its events are told, and it is none of them.
    Described(Arc<ClusterState>),
    /// Machines that somebody else keeps up to date. This one is a node among them, and the agent keeps that one.
    Shared(Arc<ClusterState>),
    /// A cluster that is kept in etcd, into which this machine is brought for as long as the agent runs.
    #[cfg(feature = "etcd")]
    Joined(Box<crate::Joining>),
}

impl Source {
    /// The machines of this snapshot, as they are there.
    ///
    /// # Errors
    ///
    /// A snapshot that is not sound.
    pub fn described(snapshot: &ClusterSnapshot) -> Result<Self, SnapshotError> {
        Ok(Self::Described(Arc::new(ClusterState::from_snapshot(snapshot)?)))
    }

    /// Whether the machine that the agent runs on is a node of it that the agent keeps, with the plan in force.
    pub(crate) fn has_this_machine(&self) -> bool {
        match self {
            Self::Machine | Self::Shared(_) => true,
            Self::Described(_) => false,
            // Its plan in force is the cluster's.
            #[cfg(feature = "etcd")]
            Self::Joined(_) => false,
        }
    }

    /// Whether the machine is to be brought into a cluster that is kept in etcd.
    pub(crate) fn joins(&self) -> bool {
        match self {
            #[cfg(feature = "etcd")]
            Self::Joined(_) => true,
            _ => false,
        }
    }

    /// What it is called in answers.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Described(_) => "described",
            Self::Shared(_) => "shared",
            #[cfg(feature = "etcd")]
            Self::Joined(_) => "shared",
        }
    }
}
