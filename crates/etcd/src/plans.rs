//! The plan in force.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use plimsoll_units::{Generation, NodeId};
use serde::{Deserialize, Serialize};

use crate::cluster::Shared;
use crate::connection::{Committed, Connection, Listing, Settled};
use crate::keys::Keys;
use crate::writes::{Guard, Kv, Put, Writes};
use crate::{Basis, Cluster, EtcdError, wire};

/// The plan in force: one at a time, numbered, replaced only by whoever knows which one that is.
#[derive(Clone, Debug)]
pub struct Plans {
    cluster: Cluster,
}

/// A plan in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanInForce {
    /// Which one it is: the first is 1, and each that comes later is one more.
    pub generation: Generation,
    /// The registry's generation that it was computed from.
    pub basis: Generation,
    /// The plan, as whoever put it in force wrote it.
    pub text: String,
}

/// Why a plan was not put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Another plan is in force than the one that was to be replaced.
    #[error("the plan was to replace plan {expected}, and plan {current} is in force; 0 is none")]
    Outrun {
        /// Which one was to be replaced; 0 is none.
        expected: Generation,
        /// Which one is in force; 0 is none.
        current: Generation,
    },
    /// The machines have changed since the plan was computed.
    #[error(
        "the plan is stale: computed from generation {basis} of the cluster, which is now at generation {current}{}",
        gone.as_ref().map(|node| format!(", without node '{node}' as it was")).unwrap_or_default()
    )]
    Stale {
        /// What it was computed from.
        basis: Generation,
        /// What is now.
        current: Generation,
        /// A machine of the plan that is no longer there, or registered anew.
        gone: Option<NodeId>,
    },
    /// The plan names a machine that what it was computed from does not.
    #[error("the plan lies on node '{node}', which generation {basis} of the cluster does not have")]
    Elsewhere {
        /// The machine.
        node: NodeId,
        /// What the plan was computed from.
        basis: Generation,
    },
    /// etcd did not do it.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanRecord {
    generation: u64,
    basis: u64,
    /// What tells it from every other of its number.
    mark: String,
    /// Empty: none is in force any more. It stands there all the same, so that no number is given twice.
    text: String,
}

impl PlanRecord {
    /// Whether it is in force.
    fn counts(&self) -> bool {
        !self.text.is_empty()
    }

    fn in_force(self) -> PlanInForce {
        PlanInForce {
            generation: Generation::new(self.generation),
            basis: Generation::new(self.basis),
            text: self.text,
        }
    }
}

impl Plans {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// The plan in force, agreed on by a majority; `None` when there is none.
    ///
    /// # Errors
    ///
    /// Nobody answers, or it was written by a later version.
    pub fn current(&self) -> Result<Option<PlanInForce>, EtcdError> {
        let key = self.cluster.shared.keys.plan();
        let listing = self
            .cluster
            .shared
            .run(|connection| async move { connection.list("reading the plan in force", &[key]).await })?;
        let (record, _) = standing(&self.cluster.shared.keys, &listing)?;
        Ok(record.filter(PlanRecord::counts).map(PlanRecord::in_force))
    }

    /// Puts a plan in force in place of plan `replaces` (`None`: there is none yet), if the machines still are those of
    /// `basis`, and those in `nodes`, on which the plan lies, still are as they were then.
    ///
    /// # Errors
    ///
    /// Another plan is in force, or the machines have changed: then the plan in force stays. Or etcd's.
    pub fn put_in_force(
        &self,
        replaces: Option<Generation>,
        basis: &Basis,
        nodes: &[NodeId],
        text: &str,
    ) -> Result<PlanInForce, PlanError> {
        let expected = replaces.unwrap_or(Generation::new(0));
        let mut guards = Vec::from([
            newer(self.cluster.shared.keys.nodes(), basis),
            newer(self.cluster.shared.keys.drained(), basis),
        ]);
        for node in nodes {
            let Some(revision) = basis.nodes.get(node) else {
                return Err(PlanError::Elsewhere { node: node.clone(), basis: basis.generation });
            };
            guards.push(Guard::At { key: self.cluster.shared.keys.node(node), revision: *revision });
        }
        let (basis, nodes, text) = (basis.clone(), nodes.to_vec(), text.to_owned());
        run(&self.cluster.shared, Change { expected, guards, basis, nodes, text })
    }

    /// Takes this plan out of force; there is none then.
    ///
    /// # Errors
    ///
    /// Another plan is in force, or none: then nothing changes. Or etcd's.
    pub fn retire(&self, plan: Generation) -> Result<(), PlanError> {
        let change = Change {
            expected: plan,
            guards: Vec::new(),
            basis: Basis { generation: Generation::new(u64::MAX), ..Basis::default() },
            nodes: Vec::new(),
            text: String::new(),
        };
        run(&self.cluster.shared, change).map(|_| ())
    }
}

/// A plan that is to be put in force.
struct Change {
    expected: Generation,
    guards: Vec<Guard>,
    basis: Basis,
    nodes: Vec<NodeId>,
    text: String,
}

fn run(shared: &Arc<Shared>, change: Change) -> Result<PlanInForce, PlanError> {
    let keys = shared.keys.clone();
    shared.run(|connection| async move { Ok(put_in_force(&connection, &keys, change).await) })?
}

async fn put_in_force(
    connection: &Connection,
    keys: &Keys,
    change: Change,
) -> Result<PlanInForce, PlanError> {
    let what = "putting a plan in force";
    let everything = [keys.plan(), keys.nodes(), keys.drained()];
    let listing = connection.list(what, &everything).await?;
    if let Some(error) = against(keys, &listing, &change)? {
        return Err(error);
    }
    let mut writes = Writes { guards: change.guards.clone(), ..Writes::default() };
    let (before, revision) = standing(keys, &listing)?;
    let record = PlanRecord {
        generation: before.map_or(0, |record| record.generation).saturating_add(1),
        basis: if change.text.is_empty() { 0 } else { change.basis.generation.get() },
        mark: format!("{:016x}", RandomState::new().build_hasher().finish()),
        text: change.text.clone(),
    };
    writes.guards.push(Guard::At { key: keys.plan(), revision });
    writes.puts.push(Put { key: keys.plan(), value: wire::encode(&record), lease: 0 });
    // A plan that was replaced since shows no more; whoever did that has seen it in force.
    let settled = |kv: Option<&Kv>| match kv.map(|kv| wire::decode::<PlanRecord>(&kv.key, &kv.value)) {
        Some(Ok(found)) if found.mark == record.mark => Settled::Made,
        Some(Ok(found)) if found.generation <= record.generation => Settled::NotMade,
        None => Settled::NotMade,
        Some(_) => Settled::Unknown,
    };
    match connection.commit(what, &writes, &keys.plan(), settled).await? {
        Committed::Yes { .. } => Ok(record.in_force()),
        Committed::Outrun => {
            let listing = connection.list(what, &everything).await?;
            let contended = EtcdError::Contended { what: "the plan in force", attempts: 1 };
            Err(against(keys, &listing, &change)?.unwrap_or(contended.into()))
        }
    }
}

/// What stands against a plan.
fn against(keys: &Keys, listing: &Listing, change: &Change) -> Result<Option<PlanError>, EtcdError> {
    let (record, _) = standing(keys, listing)?;
    let current = record.filter(PlanRecord::counts).map_or(0, |record| record.generation);
    let current = Generation::new(current);
    if current != change.expected {
        return Ok(Some(PlanError::Outrun { expected: change.expected, current }));
    }
    let of_registry = |kv: &&Kv| kv.key.starts_with(&keys.nodes()) || kv.key.starts_with(&keys.drained());
    let latest = listing.kvs.iter().filter(of_registry).map(|kv| kv.mod_revision).max().unwrap_or(0);
    let latest = Generation::new(u64::try_from(latest).unwrap_or(0));
    let now = |node: &NodeId| {
        let key = keys.node(node);
        listing.kvs.iter().find(|kv| kv.key == key).map(|kv| kv.mod_revision)
    };
    let gone = change.nodes.iter().find(|node| now(node) != change.basis.nodes.get(*node).copied());
    if latest <= change.basis.generation && gone.is_none() {
        return Ok(None);
    }
    // A machine that went has left no revision behind: the store's own says at least that it is later.
    let at = Generation::new(u64::try_from(listing.revision).unwrap_or(0));
    let current = if latest > change.basis.generation { latest } else { at };
    Ok(Some(PlanError::Stale { basis: change.basis.generation, current, gone: gone.cloned() }))
}

fn newer(prefix: String, basis: &Basis) -> Guard {
    Guard::NoneSince { prefix, revision: i64::try_from(basis.generation.get()).unwrap_or(i64::MAX) }
}

/// The plan that stands there, in force or not, and the revision at which it was put there; 0 when there never was one.
fn standing(keys: &Keys, listing: &Listing) -> Result<(Option<PlanRecord>, i64), EtcdError> {
    let Some(kv) = listing.kvs.iter().find(|kv| kv.key == keys.plan()) else { return Ok((None, 0)) };
    Ok((Some(wire::decode(&kv.key, &kv.value)?), kv.mod_revision))
}
