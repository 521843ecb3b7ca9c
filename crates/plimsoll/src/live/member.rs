//! One machine's place in a living cluster, and a copy of the cluster that nobody has to be asked for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_cluster::{ClusterSnapshot, ClusterState, NodeResources};
use plimsoll_etcd::{Agent, AgentState, Basis, EtcdError, EtcdLedger, JoinError, Mirror, RegistryEvent};
use plimsoll_export::PlanFile;
use plimsoll_residency::{Book, NoOwners, Timestamp};
use plimsoll_units::{Bytes, Generation, PoolId};
use plimsoll_watcher::Subscription;

use super::{EnterError, Live, LiveError, fold};

/// One machine's place in a living cluster, and a copy of the cluster: its machines, its ledger, and the plan in force.
///
/// What changes the cluster, and [`look`](Self::look) and [`read_plan`](Self::read_plan), asks etcd and blocks; all else
/// answers from the copy at once, and [`age`](Self::age) says how old that is.
#[derive(Debug)]
#[must_use = "dropping it takes the machine out of the cluster"]
pub struct Member {
    live: Live,
    agent: Agent,
    mirror: Mirror,
    ledger: EtcdLedger,
    book: Mutex<(i64, Arc<Book>)>,
    plan: Mutex<Option<InForce>>,
    view: Mutex<Option<Arc<View>>>,
    kept_free: Bytes,
}

/// A plan in force, as it was last read.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Which one it is.
    pub number: Generation,
    /// The plan.
    pub file: Arc<PlanFile>,
}

/// The cluster at one moment, as planners read it.
#[derive(Clone, Debug)]
pub struct View {
    /// The first is 1, and each that differs in anything is one more. Means nothing to others.
    pub version: u64,
    /// The machines, less what is booked of their memory; its generation is that of the basis.
    pub snapshot: Arc<ClusterSnapshot>,
    /// What a plan that is computed from it names when it is put in force.
    pub basis: Basis,
    seen: (Generation, i64),
}

impl Member {
    /// Brings a machine into a cluster, for as long as this is held: see [`Live::enter`]. A machine whose lease ends has
    /// failed at once, and leaves after `grace`.
    ///
    /// # Errors
    ///
    /// Another living machine has its name, or etcd's.
    pub fn join(
        live: Live,
        resources: NodeResources,
        kept_free: Bytes,
        grace: Duration,
        now: Timestamp,
    ) -> Result<Self, EnterError> {
        let agent = live.enter(resources, kept_free, now)?;
        let mirror = live.mirror(grace).map_err(JoinError::from)?;
        let ledger = live.ledger(None, NoOwners);
        let member = Self {
            agent,
            mirror,
            ledger,
            book: Mutex::default(),
            plan: Mutex::default(),
            view: Mutex::default(),
            kept_free,
            live,
        };
        member.look().map_err(JoinError::from)?;
        Ok(member)
    }

    /// The cluster.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The machines as they live; what is free of them is what was measured.
    pub fn state(&self) -> &Arc<ClusterState> {
        self.mirror.state()
    }

    /// Tells all that happens to the cluster from now on.
    pub fn subscribe(&self) -> Subscription<RegistryEvent> {
        self.mirror.subscribe()
    }

    /// How long ago the copy was certainly the latest: a second or two, or more while no majority answers.
    pub fn age(&self) -> Duration {
        self.mirror.age()
    }

    /// Why no majority answers, while that is so.
    pub fn silent(&self) -> Option<String> {
        self.mirror.silent()
    }

    /// How things stand with this machine's place.
    pub fn place(&self) -> AgentState {
        self.agent.state()
    }

    /// Who holds what, as it was last read.
    pub fn book(&self) -> Arc<Book> {
        Arc::clone(&lock(&self.book).1)
    }

    /// Reads who holds what.
    ///
    /// # Errors
    ///
    /// Nobody answers, or something was written by a later version. The copy stays as it was.
    pub fn look(&self) -> Result<(), EtcdError> {
        let (dated, silent) = self.ledger.look()?;
        if let Some(silent) = silent {
            return Err(silent);
        }
        let mut book = lock(&self.book);
        if dated.revision >= book.0 {
            *book = (dated.revision, Arc::new(dated.book));
        }
        Ok(())
    }

    /// The plan in force, as it was last read.
    pub fn in_force(&self) -> Option<InForce> {
        lock(&self.plan).clone()
    }

    /// Reads which plan is in force; that is `None` where there is none, or none that can be read.
    ///
    /// # Errors
    ///
    /// Nobody answers: the copy stays as it was. Or what stands there is no plan.
    pub fn read_plan(&self) -> Result<Option<InForce>, LiveError> {
        // Held while it is read, so that an older answer never comes last.
        let mut held = lock(&self.plan);
        let read = match self.live.plan_in_force() {
            Ok(read) => read,
            Err(error) => {
                if matches!(error, LiveError::Plan { .. }) {
                    *held = None;
                }
                return Err(error);
            }
        };
        *held = read.map(|(plan, file)| InForce { number: plan.generation, file: Arc::new(file) });
        Ok(held.clone())
    }

    /// The cluster as planners read it.
    pub fn view(&self) -> Arc<View> {
        let mut view = lock(&self.view);
        let (revision, book) = lock(&self.book).clone();
        let seen = (self.state().generation(), revision);
        if let Some(view) = view.as_ref().filter(|view| view.seen == seen) {
            return Arc::clone(view);
        }
        let (mut snapshot, basis) = self.mirror.snapshot();
        for node in &mut snapshot.nodes {
            fold(node, &book);
        }
        let version = view.as_ref().map_or(0, |view| view.version).saturating_add(1);
        let new = Arc::new(View { version, snapshot: Arc::new(snapshot), basis, seen });
        *view = Some(Arc::clone(&new));
        new
    }

    /// Says what is free of each pool, as it was measured at `now`.
    ///
    /// # Errors
    ///
    /// Not registered at the moment, or etcd's.
    pub fn report(&self, free: &[(PoolId, Bytes)], now: Timestamp) -> Result<(), JoinError> {
        self.agent.report(free, now)
    }

    /// Says that the machine brings something else from now on.
    ///
    /// # Errors
    ///
    /// Refused, or not registered at the moment, or the ledger was not told; it may be said again.
    pub fn update(&self, resources: NodeResources, now: Timestamp) -> Result<(), EnterError> {
        let (node, pools) = (resources.id.clone(), resources.pools());
        self.agent.update(resources)?;
        Ok(self.live.settle_budgets(&node, &pools, self.kept_free, now)?)
    }

    /// Takes the machine out of the cluster, and waits until that is so, a second at most.
    pub fn leave(&self) {
        self.agent.leave();
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done under these locks.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
