//! Who is there.

mod agent;
mod merge;
mod mirror;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_cluster::{ClusterSnapshot, ClusterState, Moment, NodeResources, RegisterError};
use plimsoll_units::{Generation, IdError, NodeId, PoolId};
use serde::{Deserialize, Serialize};

use crate::cluster::Shared;
use crate::connection::{Committed, Connection, Settled};
use crate::keys::Keys;
use crate::writes::{Guard, Kv, Put, Writes};
use crate::{Cluster, EtcdError, wire};
use merge::Merge;

pub use agent::{Agent, AgentState};
pub use mirror::{Mirror, RegistryEvent};
pub(crate) use record::MetricsRecord;
use record::NodeRecord;

/// How often a change is tried when others are first.
const ATTEMPTS: u32 = 16;

/// The name of a node's pool in the ledger of its cluster: `node:pool`.
///
/// # Errors
///
/// The two names are too long together.
pub fn ledger_pool(node: &str, pool: &str) -> Result<PoolId, IdError> {
    PoolId::new(format!("{node}:{pool}"))
}

/// Who is there: machines, each on the lease of its agent, what was measured of them, and who takes nothing new.
#[derive(Clone, Debug)]
pub struct Registry {
    cluster: Cluster,
}

/// Which machines something was computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// A revision of the store, which only grows: at it the machines were these, and drained or not as they are shown.
    pub generation: Generation,
    /// Every machine, and the revision at which it registered.
    pub(crate) nodes: BTreeMap<NodeId, i64>,
}

impl Basis {
    /// Whether a machine came, or was started anew, after this generation.
    pub fn came_after(&self, generation: Generation) -> bool {
        let generation = i64::try_from(generation.get()).unwrap_or(i64::MAX);
        self.nodes.values().any(|revision| *revision > generation)
    }
}

/// The cluster as it stands in the registry.
#[derive(Clone, Debug)]
pub struct Members {
    /// What planners read; its generation is that of the basis.
    pub snapshot: ClusterSnapshot,
    /// What a plan that is computed from it names when it is put in force.
    pub basis: Basis,
    /// What stands there and could not be used.
    pub problems: Vec<String>,
}

/// Why a machine was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Another living machine has its name, or it says of itself what does not hold together.
    #[error(transparent)]
    Refused(#[from] RegisterError),
    /// etcd did not do it.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// Why a machine was not drained, or not put back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// Nobody of that name is there.
    #[error("the cluster has no node '{node}' (it has {})", named(.known))]
    UnknownNode {
        /// What was named.
        node: NodeId,
        /// Who is there.
        known: Vec<NodeId>,
    },
    /// etcd did not do it.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

fn named(known: &[NodeId]) -> String {
    if known.is_empty() {
        return "none".to_owned();
    }
    known.iter().map(|node| format!("'{node}'")).collect::<Vec<_>>().join(", ")
}

/// That a node takes nothing new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRecord {}

impl Registry {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.cluster.shared
    }

    /// Registers a machine under a lease that is renewed until the agent is dropped, and anew should the lease be lost.
    ///
    /// # Errors
    ///
    /// Another living machine has its name, with both addresses; or etcd's.
    pub fn join(&self, resources: NodeResources) -> Result<Agent, JoinError> {
        Agent::begin(self.shared(), resources)
    }

    /// Who is there now, agreed on by a majority.
    ///
    /// # Errors
    ///
    /// Nobody answers, or something was written by a later version.
    pub fn members(&self) -> Result<Members, EtcdError> {
        let keys = self.shared().keys.clone();
        self.shared().run(|connection| async move {
            let state = ClusterState::new();
            let mut merge = Merge::new(keys.clone());
            let listing = connection.list("reading who is there", &prefixes(&keys)).await?;
            let problems = merge.list(&state, &listing.kvs, Moment::START).problems();
            merge.stood_at(listing.revision);
            let basis = merge.basis();
            let snapshot = ClusterSnapshot { generation: basis.generation, ..(*state.snapshot()).clone() };
            Ok(Members { snapshot, basis, problems })
        })
    }

    /// A copy of who is there that follows every change. A machine whose lease ends has failed at once, and leaves after
    /// `grace`.
    ///
    /// # Errors
    ///
    /// Nobody answers, or something was written by a later version.
    pub fn mirror(&self, grace: std::time::Duration) -> Result<Mirror, EtcdError> {
        Mirror::begin(self.shared(), grace)
    }

    /// Places nothing new on a machine from now on, whether it is there or not at the moment; what it holds stays. False
    /// when that was so before.
    ///
    /// # Errors
    ///
    /// Nobody of that name is there, or etcd's.
    pub fn drain(&self, node: &NodeId) -> Result<bool, DrainError> {
        self.set_drained(node, true)
    }

    /// Places things on a machine again. False when that was so before.
    ///
    /// # Errors
    ///
    /// Nobody of that name is there, or etcd's.
    pub fn undrain(&self, node: &NodeId) -> Result<bool, DrainError> {
        self.set_drained(node, false)
    }

    fn set_drained(&self, node: &NodeId, drained: bool) -> Result<bool, DrainError> {
        let (keys, node) = (self.shared().keys.clone(), node.clone());
        self.shared()
            .run(|connection| async move { Ok(set_drained(&connection, &keys, &node, drained).await) })?
    }
}

/// Below these stands all of the registry; nodes come before what is said of them.
fn prefixes(keys: &Keys) -> [String; 3] {
    [keys.nodes(), keys.drained(), keys.metrics()]
}

async fn set_drained(
    connection: &Connection,
    keys: &Keys,
    node: &NodeId,
    drained: bool,
) -> Result<bool, DrainError> {
    let what = if drained { "draining a node" } else { "undraining a node" };
    for _ in 0..ATTEMPTS {
        let listing = connection.list(what, &[keys.nodes(), keys.drained()]).await?;
        let is = listing.kvs.iter().find(|kv| kv.key == keys.drain(node));
        if is.is_some() == drained {
            return Ok(false);
        }
        let there = listing.kvs.iter().any(|kv| kv.key == keys.node(node));
        if drained && !there {
            let prefix = keys.nodes();
            let known = listing.kvs.iter().filter_map(|kv| NodeId::new(kv.key.strip_prefix(&prefix)?).ok());
            return Err(DrainError::UnknownNode { node: node.clone(), known: known.collect() });
        }
        let key = keys.drain(node);
        let mut writes = Writes::default();
        let revision = is.map_or(0, |kv| kv.mod_revision);
        writes.guards.push(Guard::At { key: key.clone(), revision });
        if drained {
            writes.puts.push(Put { key: key.clone(), value: wire::encode(&DrainRecord {}), lease: 0 });
        } else {
            writes.deletes.push(key.clone());
        }
        // Whoever did it, it is so.
        let settled =
            |kv: Option<&Kv>| if kv.is_some() == drained { Settled::Made } else { Settled::NotMade };
        if let Committed::Yes { .. } = connection.commit(what, &writes, &key, settled).await? {
            return Ok(true);
        }
    }
    Err(EtcdError::Contended { what: "whether a node is drained", attempts: ATTEMPTS }.into())
}

/// Writes a machine into the registry, on this lease.
async fn publish(
    connection: &Connection,
    keys: &Keys,
    resources: &NodeResources,
    lease: i64,
) -> Result<(), JoinError> {
    let what = "registering a node";
    let value = wire::encode(&NodeRecord::of(resources));
    let key = keys.node(&resources.id);
    for _ in 0..ATTEMPTS {
        let listing = connection.list(what, &prefixes(keys)).await?;
        let state = ClusterState::new();
        Merge::new(keys.clone()).list(&state, &listing.kvs, Moment::START);
        // Whoever stands there holds a lease that lives: the same rules as for any cluster say whether we are the same.
        state.register(resources.clone())?;
        let there = listing.kvs.iter().find(|kv| kv.key == key);
        if let Some(kv) = there {
            // What cannot be read has not stood in our way above, and is not ours to replace.
            wire::decode::<NodeRecord>(&kv.key, &kv.value)?;
        }
        let mut writes = Writes::default();
        let revision = there.map_or(0, |kv| kv.mod_revision);
        writes.guards.push(Guard::At { key: key.clone(), revision });
        writes.puts.push(Put { key: key.clone(), value: value.clone(), lease });
        // What was measured of it in its former life.
        let measured = keys.metric(&resources.id);
        if listing.kvs.iter().any(|kv| kv.key == measured && kv.lease != lease) {
            writes.deletes.push(measured);
        }
        let settled = |kv: Option<&Kv>| match kv {
            Some(kv) if kv.lease == lease && kv.value == value => Settled::Made,
            _ => Settled::NotMade,
        };
        if let Committed::Yes { .. } = connection.commit(what, &writes, &key, settled).await? {
            return Ok(());
        }
    }
    Err(EtcdError::Contended { what: "a node", attempts: ATTEMPTS }.into())
}
