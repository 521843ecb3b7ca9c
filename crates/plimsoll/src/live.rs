//! A cluster as it lives, kept in etcd: its machines, its ledger and the plan in force.
//!
//! Calls block and need no runtime. What they read is what a majority of etcd agrees on.
//!
//! ```no_run
//! use plimsoll::live::Live;
//! use plimsoll::residency::NoOwners;
//!
//! let home = Live::open("etcd://10.0.0.7:2379,10.0.0.8:2379/home", Default::default())?;
//! let seen = home.seen()?;
//! println!("{} machines at generation {}", seen.snapshot.nodes.len(), seen.basis.generation);
//! let ledger = home.ledger(None, NoOwners);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod member;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_cluster::{ClusterSnapshot, DeviceSpec, Node, NodeResources, PoolSpec};
use plimsoll_etcd::{
    Agent, Basis, Cluster, ClusterUrl, EtcdError, EtcdLedger, JoinError, ManyMachines, Mirror, Options,
    PlanError, PlanInForce, Registry, Session, UrlError, ledger_pool,
};
use plimsoll_export::{FormatError, PlanFile};
use plimsoll_residency::{Book, NoOwners, Owners, Store as _, StoreError, Timestamp};
use plimsoll_units::{Bytes, Generation, NodeId, PoolId};

pub use member::{InForce, Member, View};

/// A cluster that is kept in etcd. Clones share one connection.
#[derive(Clone, Debug)]
pub struct Live {
    cluster: Cluster,
}

/// Why a cluster was not opened, or not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The address names none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// etcd's.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// What stands there as the plan in force is none.
    #[error("plan {generation}, which is in force, cannot be read")]
    Plan {
        /// Which one.
        generation: Generation,
        /// Why.
        #[source]
        source: Box<FormatError>,
    },
}

/// Why a machine did not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnterError {
    /// It was not registered.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The ledger does not know its memory.
    #[error(transparent)]
    Ledger(#[from] StoreError),
}

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What planners read: what is booked counts as taken.
    pub snapshot: ClusterSnapshot,
    /// What a plan that is computed from it names when it is put in force.
    pub basis: Basis,
    /// What stands there and could not be used.
    pub problems: Vec<String>,
}

impl Live {
    /// Opens the cluster of this address (`etcd://h1:2379,h2:2379/home`), and asks once whether a majority answers.
    ///
    /// # Errors
    ///
    /// An address that names none; nobody answers, or they do not let us in.
    pub fn open(url: &str, options: Options) -> Result<Self, LiveError> {
        Ok(Self { cluster: Cluster::open(url.parse::<ClusterUrl>()?, options)? })
    }

    /// Whether a text is the address of a cluster in etcd, right or wrong, rather than the name of a file.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("etcd://") || text.starts_with("etcds://")
    }

    /// The connection.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Who is there, and who is drained.
    pub fn registry(&self) -> Registry {
        self.cluster.registry()
    }

    /// A lease of our own, on which bookings of this process live.
    ///
    /// # Errors
    ///
    /// Nobody answers.
    pub fn session(&self) -> Result<Session, EtcdError> {
        self.cluster.session()
    }

    /// The ledger of all machines. `owners` tells which processes of this machine live.
    pub fn ledger(&self, session: Option<Arc<Session>>, owners: impl Owners + 'static) -> EtcdLedger {
        self.cluster.ledger(session, Arc::new(ManyMachines(owners)))
    }

    /// The machines as they are now, less what is booked of their memory.
    ///
    /// # Errors
    ///
    /// Nobody answers, or something was written by a later version.
    pub fn seen(&self) -> Result<Seen, EtcdError> {
        let members = self.registry().members()?;
        let mut snapshot = members.snapshot;
        let (dated, silent) = self.ledger(None, NoOwners).look()?;
        if let Some(silent) = silent {
            return Err(silent);
        }
        for node in &mut snapshot.nodes {
            fold(node, &dated.book);
        }
        Ok(Seen { snapshot, basis: members.basis, problems: members.problems })
    }

    /// A copy of the machines that follows every change, and tells subscribers of it.
    ///
    /// # Errors
    ///
    /// Nobody answers.
    pub fn mirror(&self, grace: Duration) -> Result<Mirror, EtcdError> {
        self.registry().mirror(grace)
    }

    /// The plan in force, and which one it is.
    ///
    /// # Errors
    ///
    /// Nobody answers, or what stands there is no plan.
    pub fn plan_in_force(&self) -> Result<Option<(PlanInForce, PlanFile)>, LiveError> {
        let Some(plan) = self.cluster.plans().current()? else { return Ok(None) };
        let file = PlanFile::parse(&plan.text).map_err(|source| {
            let source = Box::new(source);
            LiveError::Plan { generation: plan.generation, source }
        })?;
        Ok(Some((plan, file)))
    }

    /// Puts a plan in force in place of plan `replaces`, if no machine came, was started anew or drained since the
    /// generation that the plan names, and `basis`, which is as late or later, has all that it lies on.
    ///
    /// # Errors
    ///
    /// Another plan is in force, or the machines have changed; then nothing is changed.
    pub fn put_in_force(
        &self,
        replaces: Option<Generation>,
        basis: &Basis,
        file: &PlanFile,
        text: &str,
    ) -> Result<PlanInForce, PlanError> {
        // What was computed from another cluster, or from a file, has a number that means nothing here.
        let computed = file.basis.generation;
        if computed > basis.generation {
            return Err(PlanError::Stale { basis: computed, current: basis.generation, gone: None });
        }
        let mut nodes: Vec<NodeId> = file.stages.iter().map(|stage| stage.node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        let mut basis = basis.clone();
        basis.generation = computed;
        let basis = &basis;
        self.cluster.plans().put_in_force(replaces, basis, &nodes, text)
    }

    /// Registers a machine for as long as the agent is held, and lets the ledger know its memory: each pool may hold all
    /// it has but `kept_free`, and one that it no longer has nothing.
    ///
    /// # Errors
    ///
    /// Another living machine has its name, or etcd's.
    pub fn enter(
        &self,
        resources: NodeResources,
        kept_free: Bytes,
        now: Timestamp,
    ) -> Result<Agent, EnterError> {
        let node = resources.id.clone();
        let pools = resources.pools();
        let agent = self.registry().join(resources)?;
        self.settle_budgets(&node, &pools, kept_free, now)?;
        Ok(agent)
    }

    /// Lets the ledger know how much each pool of a machine may hold.
    fn settle_budgets(
        &self,
        node: &NodeId,
        pools: &[PoolSpec],
        kept_free: Bytes,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let budgets: Vec<(PoolId, Bytes)> = pools
            .iter()
            .filter_map(|pool| {
                let budget = pool.total.saturating_sub(pool.reserve.unwrap_or(kept_free));
                let id = ledger_pool(node.as_str(), pool.id.as_str()).ok()?;
                Some((id, pool.cap.map_or(budget, |cap| cap.min(budget))))
            })
            .collect();
        // What the machine no longer has may not be booked. A name with another ':' may be of another machine.
        let gone = |id: &PoolId| {
            let rest = id.as_str().strip_prefix(node.as_str()).and_then(|rest| rest.strip_prefix(':'));
            rest.is_some_and(|rest| !rest.contains(':')) && !budgets.iter().any(|(known, _)| known == id)
        };
        self.ledger(None, NoOwners).transact(now, &mut |book| {
            let gone: Vec<PoolId> = book.pools().map(|pool| pool.id).filter(gone).collect();
            for (id, budget) in budgets
                .iter()
                .map(|(id, budget)| (id, *budget))
                .chain(gone.iter().map(|id| (id, Bytes::ZERO)))
            {
                if book.pool(id.as_str()).is_none_or(|pool| pool.budget != Some(budget)) {
                    book.set_budget(id, Some(budget));
                }
            }
        })
    }
}

/// What a machine brings that is described as snapshots show it.
pub fn resources(node: &Node) -> NodeResources {
    let pools = node.pools.iter().map(|pool| PoolSpec {
        id: pool.id.clone(),
        total: pool.total,
        reserve: pool.reserve,
        cap: pool.cap,
        free: pool.free,
    });
    let devices = node.devices.iter().map(|device| DeviceSpec {
        name: device.name.clone(),
        limit: device.limit,
        bandwidth: device.bandwidth,
        uuid: device.uuid.clone(),
        ..DeviceSpec::new(device.id.clone(), device.pool.clone(), device.backend)
    });
    let ram = node.pools.iter().find(|pool| pool.id.as_str() == PoolSpec::RAM);
    let mut resources =
        NodeResources::new(node.id.clone(), Bytes::ZERO, ram.map_or(Bytes::ZERO, |ram| ram.total))
            .with_devices(pools, devices);
    resources.main = node.main;
    resources.rpc.clone_from(&node.rpc);
    resources
}

/// Takes off what the ledger does not let anybody have: what is booked, and what others were seen to use.
fn fold(node: &mut Node, book: &Book) {
    for pool in &mut node.pools {
        let Ok(id) = ledger_pool(node.id.as_str(), pool.id.as_str()) else { continue };
        let Some(known) = book.pool(id.as_str()) else { continue };
        let (Some(room), Some(budget)) = (book.room(id.as_str()), known.budget) else { continue };
        // The budget leaves free what the planner leaves free too: not both.
        let kept = pool.total.saturating_sub(budget);
        pool.free = pool.free.map(|free| free.min(room.saturating_add(kept)));
    }
}
