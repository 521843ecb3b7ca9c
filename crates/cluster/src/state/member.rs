//! One machine of a living cluster, and who it is.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use plimsoll_profile::{DeviceSpec, NodeResources, PoolSpec};
use plimsoll_units::{Bytes, NodeId};

use super::NodeMetrics;
use crate::{Device, Node, NodeStatus, Pool, SnapshotError};

/// Who a machine is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Which start of which machine: the kernel draws a new one at every boot.
    pub boot_id: Option<String>,
    /// Where it can be reached.
    pub address: Option<String>,
}

/// Why a machine was not registered. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another machine has that name and is alive.
    #[error(
        "the name '{node}' is held by a living machine at {}, and the one at {} is another",
        told(.held_by), told(.came)
    )]
    NameTaken {
        /// The name.
        node: NodeId,
        /// Who has it.
        held_by: Identity,
        /// Who wants it.
        came: Identity,
    },
    /// Another node runs the engine already.
    #[error("'{node}' is to run the engine, and so is '{main}'; one node does")]
    SecondMain {
        /// The machine that came.
        node: NodeId,
        /// The one that runs the engine.
        main: NodeId,
    },
    /// What it says of itself does not hold together.
    #[error("node '{node}' is not sound")]
    Unsound {
        /// The machine.
        node: NodeId,
        /// What is wrong.
        #[source]
        source: SnapshotError,
    },
}

/// `10.0.0.7:7000 (boot 1f2e)`.
fn told(identity: &Identity) -> String {
    let address = identity.address.as_deref().unwrap_or("an unknown address");
    match &identity.boot_id {
        Some(boot) => format!("{address} (boot {boot})"),
        None => format!("{address} (boot unknown)"),
    }
}

/// How one machine relates to another that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// The same start of the same machine.
    Same,
    /// The same machine, started anew.
    Rebooted,
    /// Not the same, as far as can be told.
    Another,
}

impl Identity {
    /// What the one that came is to the one that is there.
    ///
    /// The same boot id is the same start; machines of which neither told one are taken as the same unless their
    /// addresses differ. With another boot id, or one that only one of them told, it is the same machine when both
    /// have the same address.
    pub(super) fn relation(&self, came: &Self) -> Relation {
        let same_address = self.address.is_some() && self.address == came.address;
        let other_address = self.address.is_some() && came.address.is_some() && !same_address;
        match (&self.boot_id, &came.boot_id) {
            (Some(here), Some(there)) if here == there => Relation::Same,
            (None, None) if !other_address => Relation::Same,
            (Some(_), Some(_)) if same_address => Relation::Rebooted,
            (None, Some(_)) | (Some(_), None) if same_address => Relation::Same,
            (None, Some(_)) if !other_address => Relation::Same,
            _ => Relation::Another,
        }
    }

    /// A short form of what no two machines share: a start of a kernel at an address. Whoever finds something under it
    /// compares the identities as well.
    pub(super) fn short(&self) -> Option<u64> {
        let (boot_id, address) = (self.boot_id.as_ref()?, self.address.as_ref()?);
        let mut hasher = DefaultHasher::new();
        (boot_id, address).hash(&mut hasher);
        Some(hasher.finish())
    }
}

/// A machine of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// As snapshots show it.
    pub(super) node: Node,
    pub(super) identity: Arc<Identity>,
    pub(super) metrics: Arc<NodeMetrics>,
}

impl Member {
    pub(super) fn new(node: Node, identity: Arc<Identity>) -> Self {
        let metrics = Arc::new(NodeMetrics::of(&node));
        Self { node, identity, metrics }
    }

    /// Carries what is measured over to what snapshots show; whether that changes anything there.
    pub(super) fn show(&mut self) -> bool {
        let mut changed = false;
        for (shown, measured) in self.node.pools.iter_mut().zip(self.metrics.pools()) {
            changed |= shown.free != measured.free || shown.held != measured.held;
            (shown.free, shown.held) = (measured.free, measured.held);
        }
        let (status, drained) = (self.metrics.status(), self.metrics.drained());
        changed |= self.node.status != status || self.node.drained != drained;
        (self.node.status, self.node.drained) = (status, drained);
        changed
    }
}

/// A machine as snapshots show it.
pub(super) fn node(resources: &NodeResources) -> Node {
    let pool = |spec: PoolSpec| Pool {
        id: spec.id,
        total: spec.total,
        reserve: spec.reserve,
        cap: spec.cap,
        free: spec.free,
        held: Bytes::ZERO,
    };
    let device = |spec: DeviceSpec| Device {
        id: spec.id,
        name: spec.name,
        pool: spec.pool,
        limit: spec.limit,
        backend: spec.backend,
        bandwidth: spec.bandwidth,
        uuid: spec.uuid,
    };
    Node {
        id: resources.id.clone(),
        status: NodeStatus::Active,
        drained: false,
        main: resources.main,
        rpc: resources.rpc.clone(),
        pools: resources.pools().into_iter().map(pool).collect(),
        devices: resources.devices().into_iter().map(device).collect(),
    }
}
