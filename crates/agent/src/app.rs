//! What every answer is made from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use plimsoll::answers::Occupancy;
use plimsoll::cluster::{ClusterSnapshot, ClusterState, StaleGeneration};
use plimsoll::export::{FormatError, PlanFile};
use plimsoll::profile::{FreeMemory, SystemProfile};
use plimsoll::residency::{Book, Holder, PoolUse, Store, StoreError};
use plimsoll::units::{Bytes, NodeId, PoolId};
use plimsoll::watcher::{Subscription, SystemProfileWatcher, off_the_runtime};
use plimsoll::{Planned, Stack, StackEvent, Standing};
use tokio::sync::{Semaphore, watch};
use tracing::Span;

use crate::api::{PlanMemory, Reckoning};
use crate::error::ApiError;
use crate::joined::Joined;
use crate::journal::Journal;
use crate::keeper::PlanTold;
use crate::models::Models;
use crate::server::is_loopback;
use crate::{Config, Limits, Source, StartError, Token, clock};

/// Tells what is free on a machine; it may block.
pub type FreeProbe = Box<dyn Fn(&SystemProfile) -> FreeMemory + Send + Sync>;

/// Measures who uses what of the memories in a book; it may block.
pub type Measure = Box<dyn Fn(&Book) -> Occupancy + Send + Sync>;

/// The machine that an agent speaks for.
pub struct Setup {
    /// What the machine calls itself.
    pub id: NodeId,
    /// Who looks at it.
    pub watcher: SystemProfileWatcher,
    /// What is free on it.
    pub free: FreeProbe,
    /// Who holds what on it; a cluster that is joined brings its own instead.
    pub ledger: Arc<dyn Store>,
    /// What budgets that follow the machine leave free of every pool.
    pub kept_free: Bytes,
    /// What is really used on it.
    pub measure: Measure,
    /// What is planned on.
    pub source: Source,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("id", &self.id).field("source", &self.source).finish_non_exhaustive()
    }
}

/// What every answer is made from.
pub(crate) struct App {
    pub(crate) node: NodeId,
    /// Whether only this machine can reach it, and at which port.
    pub(crate) loopback: bool,
    pub(crate) port: u16,
    pub(crate) source: Source,
    /// What is planned on.
    pub(crate) cluster: Arc<ClusterState>,
    pub(crate) watcher: SystemProfileWatcher,
    pub(crate) stack: Stack,
    /// Its place in a cluster that is kept in etcd, where it has one.
    pub(crate) joined: Option<Joined>,
    pub(crate) store: Arc<dyn Store>,
    /// One change of a joined cluster at a time.
    pub(crate) changes: Semaphore,
    measure: Measure,
    measured: Mutex<Option<Measured>>,
    pub(crate) models: Option<Models>,
    pub(crate) token: Option<Token>,
    pub(crate) limits: Limits,
    pub(crate) journal: Journal,
    pub(crate) reckoning: Reckoning,
    pub(crate) memory: PlanMemory,
    pub(crate) requests: Semaphore,
    pub(crate) plans: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// What readers of events know of the cluster.
    pub(crate) moment: watch::Sender<Seen>,
    /// Turns true when the agent is to stop.
    pub(crate) stop: watch::Receiver<bool>,
    /// What was booked when that was last looked at.
    pub(crate) booked: Mutex<BTreeMap<(String, PoolId), (String, Bytes)>>,
    in_force: Mutex<Option<InForce>>,
}

/// Which moment of the cluster something is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Moves whenever anything in it does.
    pub(crate) version: u64,
    /// What plans name.
    pub(crate) generation: u64,
}

/// A plan in force.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    /// Which one of the cluster it is, where that is kept in etcd.
    pub(crate) number: Option<u64>,
    /// As it was given.
    pub(crate) file: Arc<PlanFile>,
    /// How it stands, or, where the stack audits it, stood when it was adopted.
    pub(crate) standing: Arc<Standing>,
}

/// What was measured of which bookings, and when.
struct Measured {
    at: Instant,
    holders: Vec<Holder>,
    pools: Vec<PoolUse>,
    occupancy: Arc<Occupancy>,
}

/// Why a plan was not adopted. What was in force stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdoptError {
    /// The file holds words without a meaning.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It does not hold here.
    #[error("{0}")]
    Broken(Arc<Standing>),
    /// The cluster changes faster than a plan can be audited.
    #[error(transparent)]
    Stale(#[from] StaleGeneration),
    /// Another plan is in force than the one that was to be replaced, or the machines are others.
    #[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "only a cluster in etcd says so"))]
    #[error("{0}")]
    Superseded(String),
    /// etcd did not do it.
    #[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "only a cluster in etcd says so"))]
    #[error("{0}")]
    Unanswered(String),
}

/// So often a plan is audited again because the cluster changed meanwhile.
const ATTEMPTS: u32 = 8;

impl App {
    /// Starts the stack. May block for as long as drivers and the ledger's file take.
    pub(crate) fn start(
        config: Config,
        setup: Setup,
        bound: SocketAddr,
        stop: watch::Receiver<bool>,
    ) -> Result<(Self, Subscription<StackEvent>), StartError> {
        let Setup { id, watcher, free, ledger, kept_free, measure, source } = setup;
        let models = config.models.as_deref().map(Models::below).transpose()?;
        let joins = source.joins();
        // Who joins a cluster tells its ledger once.
        let follows = !joins && budgets_follow(&*ledger, &id, &watcher, kept_free)?;
        let mut builder = Stack::builder(id.clone()).with_free(free);
        if follows {
            builder = builder.with_ledger(Arc::clone(&ledger), kept_free);
        }
        if let Source::Shared(state) = &source {
            builder = builder.with_cluster(Arc::clone(state));
        }
        let mut stack = builder.start(&watcher);
        let events = stack.subscribe();
        let joined = Joined::begin(&source, &id, &stack, kept_free)?;
        let cluster = match (&source, &joined) {
            (_, Some(joined)) => Arc::clone(joined.state()),
            (Source::Described(state), _) => Arc::clone(state),
            _ => Arc::clone(stack.cluster()),
        };
        let limits = config.limits;
        let app = Self {
            journal: Journal::new(format!("{:x}", clock::now().as_millis()), limits.events),
            reckoning: Reckoning::new(),
            memory: PlanMemory::new(limits.kept_plans),
            requests: Semaphore::new(limits.requests),
            plans: Arc::new(Semaphore::new(limits.plans)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            moment: watch::Sender::new(Seen { version: 0, generation: 0 }),
            changes: Semaphore::new(1),
            booked: Mutex::default(),
            in_force: Mutex::default(),
            measured: Mutex::default(),
            loopback: is_loopback(bound.ip()),
            port: bound.port(),
            node: id,
            token: config.token,
            store: joined.as_ref().map_or(ledger, Joined::store),
            joined,
            source,
            cluster,
            watcher,
            stack,
            measure,
            models,
            limits,
            stop,
        };
        app.know(&*app.book()?);
        app.tell_generation();
        Ok((app, events))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<InForce>> {
        // Nothing is left half done under this lock.
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a saved plan into force when it holds in the cluster as it is now, whatever it was made from.
    fn adopt_here(&self, file: PlanFile) -> Result<Arc<Standing>, AdoptError> {
        let mut held = self.lock();
        let mut attempts = 1;
        let standing = loop {
            let snapshot = self.cluster.snapshot();
            let planned = Planned::from_saved(&file, snapshot.generation)?;
            let standing = Arc::new(Standing::of(&planned, &snapshot));
            if !standing.holds() {
                return Err(AdoptError::Broken(standing));
            }
            if !self.source.has_this_machine() {
                break standing;
            }
            match self.stack.adopt(planned) {
                Ok(standing) => break standing,
                Err(stale) if attempts == ATTEMPTS => return Err(stale.into()),
                Err(_) => attempts += 1,
            }
        };
        *held = Some(InForce { number: None, file: Arc::new(file), standing: Arc::clone(&standing) });
        drop(held);
        self.note_standing(&standing);
        Ok(standing)
    }

    /// Takes a plan into force, for the whole cluster where the agent has joined one: there in place of plan `replaces` (0
    /// is none), or of whichever is in force.
    pub(crate) fn adopt(
        &self,
        replaces: Option<u64>,
        file: PlanFile,
        text: &str,
    ) -> Result<Arc<Standing>, AdoptError> {
        match &self.joined {
            Some(joined) => joined.adopt(self, replaces, &file, text),
            None => self.adopt_here(file),
        }
    }

    /// Forgets the plan in force; whether there was one.
    pub(crate) fn retire(&self, plan: Option<u64>) -> Result<bool, AdoptError> {
        if let Some(joined) = &self.joined {
            return joined.retire(self, plan);
        }
        let mut held = self.lock();
        self.stack.retire();
        let retired = held.take().is_some();
        drop(held);
        if retired {
            tracing::info!("no plan is in force");
            self.journal.note("plan", &PlanTold { standing: None });
        }
        Ok(retired)
    }

    /// The plan in force, and how it stands.
    pub(crate) fn in_force(&self) -> Option<InForce> {
        let held = self.lock().clone()?;
        // What is described once and for all does not change, so nor does how a plan stands there.
        let now = if self.source.has_this_machine() { self.stack.standing() } else { None };
        Some(InForce { standing: now.unwrap_or(held.standing), ..held })
    }

    /// Who holds what; of a cluster as it was last seen. May block.
    pub(crate) fn book(&self) -> Result<Arc<Book>, StoreError> {
        match &self.joined {
            Some(joined) => Ok(joined.book()),
            None => self.store.book().map(Arc::new),
        }
    }

    /// The cluster as planners read it, and a number that moves whenever anything in that does.
    pub(crate) fn seen(&self) -> (u64, Arc<ClusterSnapshot>) {
        match &self.joined {
            Some(joined) => joined.view(),
            None => {
                let snapshot = self.cluster.snapshot();
                (snapshot.generation.get(), snapshot)
            }
        }
    }

    /// Who holds what in this book, and what is really used. Measuring asks drivers: whoever comes at the same time, or soon
    /// after, is given the same. May block.
    pub(crate) fn occupancy(&self, book: &Book) -> Arc<Occupancy> {
        // Held while it is measured: the others wait for that.
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let (holders, pools) = (book.holders(), book.pools().collect());
        if let Some(known) = &*measured
            && known.at.elapsed() < self.limits.ledger_interval
            && (&known.holders, &known.pools) == (&holders, &pools)
        {
            return Arc::clone(&known.occupancy);
        }
        let occupancy = Arc::new(self.measured(book));
        *measured = Some(Measured { at: clock::start(), holders, pools, occupancy: Arc::clone(&occupancy) });
        occupancy
    }

    fn measured(&self, book: &Book) -> Occupancy {
        if self.joined.is_none() {
            return (self.measure)(book);
        }
        // Of a cluster's memory only a part is here, and each machine says itself what is free.
        Occupancy::new(book, &book.holders(), &[], "", Vec::new())
    }

    /// Does work that may block, off the threads of the runtime, in the span of the request that asks for it.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let span = Span::current();
        off_the_runtime(move || span.in_scope(|| work(&self))).await.ok_or_else(ApiError::panicked)
    }

    pub(crate) fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.seen().1
    }
}

/// Whether the budgets of a ledger are to follow the machine: those of a new one, or where all are what the machine says.
/// Budgets that somebody gave stand.
fn budgets_follow(
    ledger: &dyn Store,
    id: &NodeId,
    watcher: &SystemProfileWatcher,
    kept_free: Bytes,
) -> Result<bool, StoreError> {
    let book = ledger.book()?;
    if book.pools().len() == 0 {
        return Ok(true);
    }
    let machine =
        plimsoll::cluster::this_machine(id.clone(), &watcher.current_profile(), &FreeMemory::default());
    let mut pools = machine.nodes.iter().flat_map(|node| &node.pools);
    Ok(pools.all(|pool| {
        let budget = pool.total.saturating_sub(kept_free);
        book.pool(pool.id.as_str()).is_some_and(|booked| booked.budget == Some(budget))
    }))
}
