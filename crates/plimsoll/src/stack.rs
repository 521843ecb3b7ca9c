//! The whole stack behind one handle: what changes on a machine reaches the balancer, the cluster, the ledger and the plan
//! in force.

mod event;
mod saved;
mod shared;

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use plimsoll_balance::{LoadBalanceConfig, LoadBalancer};
use plimsoll_cluster::{ClusterState, StaleGeneration};
use plimsoll_profile::{FreeMemory, RuntimeProfile, SystemProfile};
use plimsoll_residency::Store;
use plimsoll_units::{Bytes, NodeId};
use plimsoll_watcher::{
    Announcer, LookError, OwnedTask, ProfileChange, Subscription, SystemProfileWatcher, off_the_runtime,
};

pub use event::{Remedy, StackError, StackEvent, Standing};
use shared::{Followed, FreeProbe, Shared, State};

use crate::Planned;

/// Tunes a balancer to what a watcher sees, now and whenever that changes, for as long as the task lives.
///
/// # Panics
///
/// We are on no runtime of tokio.
pub fn subscribe_to_watcher(balancer: &Arc<LoadBalancer>, watcher: &SystemProfileWatcher) -> OwnedTask {
    let balancer = Arc::clone(balancer);
    let mut subscription = watcher.subscribe();
    OwnedTask::spawn(async move {
        while let Some(change) = subscription.next().await {
            if let ProfileChange::Updated(profile) = change {
                tune(&balancer, &profile);
            }
        }
    })
}

/// Tunes a balancer to a machine, and says so.
fn tune(balancer: &LoadBalancer, profile: &SystemProfile) {
    balancer.reconfigure_from_system_profile(profile);
    let (workers, acceleration) = (profile.recommended_workers(), profile.acceleration_mode());
    tracing::info!(workers, %acceleration, "the balancer is tuned to this machine");
    let skew = balancer.skew();
    if skew.skewed {
        tracing::info!(ratio = skew.ratio, threshold = skew.threshold, "the devices are used unequally");
    }
}

/// How a [`Stack`] is put together.
#[must_use = "nothing runs before it is started"]
pub struct StackBuilder {
    id: NodeId,
    cluster: Arc<ClusterState>,
    ledger: Option<Followed>,
    free: FreeProbe,
}

impl fmt::Debug for StackBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackBuilder")
            .field("id", &self.id)
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl StackBuilder {
    /// The same over a cluster that others know too: else it has one of its own, with this machine alone.
    pub fn with_cluster(self, cluster: Arc<ClusterState>) -> Self {
        Self { cluster, ..self }
    }

    /// The same with a ledger whose budgets follow this machine: each memory that the machine has may be booked but for
    /// `kept_free`, one that is gone not at all. Other pools of the ledger are left as they are.
    pub fn with_ledger(self, store: Arc<dyn Store>, kept_free: Bytes) -> Self {
        Self { ledger: Some(Followed { store, kept_free }), ..self }
    }

    /// The same with another way to tell what is free: else [`FreeMemory::read`]. It may block.
    pub fn with_free(self, free: impl Fn(&SystemProfile) -> FreeMemory + Send + Sync + 'static) -> Self {
        Self { free: Box::new(free), ..self }
    }

    /// Takes in what the machine is now, and from then on every change that the watcher sees, which it has look in the
    /// background. May block for as long as drivers and the ledger's file take. What cannot be done is told to
    /// subscribers, and does not keep the stack from starting.
    ///
    /// # Panics
    ///
    /// We are on no runtime of tokio, or on one without time.
    pub fn start(self, watcher: &SystemProfileWatcher) -> Stack {
        let profile = watcher.current_profile();
        let config = LoadBalanceConfig::autotuned(&RuntimeProfile::from(&*profile));
        let balancer =
            LoadBalancer::new(self.cluster, config).expect("what is tuned to a machine is within its limits");
        #[expect(clippy::disallowed_methods, reason = "samples have an age, which begins here")]
        let begun = Instant::now();
        let shared = Arc::new(Shared {
            id: self.id,
            balancer: Arc::new(balancer),
            ledger: self.ledger,
            free: self.free,
            begun,
            announcer: Announcer::new(),
            state: Mutex::new(State::default()),
        });
        let first = shared.announcer.subscribe();
        shared.take_in(&profile);
        let follows = follow(&shared, watcher);
        Stack { _looks: watcher.start_background(), _follows: follows, first: Some(first), shared }
    }
}

/// A machine that is watched, its node in a cluster, a balancer over that, a ledger, and the plan in force.
///
/// When the machine changes, in this order: the balancer is tuned anew, the ledger's budgets follow, the node in the
/// cluster is brought up to date with what is free, and the plan in force is audited; whoever subscribed is told each of
/// it, and where the plan no longer holds also what to do. With every look of the watcher that went well the node's heartbeat
/// is sent, and what is free is taken in: less at once, more where it is more than a sixty-fourth of a pool, for a plan that is
/// made meanwhile must not be out of date for a few pages. Nothing is moved, evicted or stopped: that is for whoever
/// listens to decide.
///
/// Its tasks end when it is dropped. A change that is being taken in then is taken in to its end, off the runtime.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use plimsoll::profile::SystemProfile;
/// use plimsoll::residency::{ResidencyLedger, Store as _};
/// use plimsoll::units::{Bytes, NodeId};
/// use plimsoll::watcher::SystemProfileWatcher;
/// use plimsoll::Stack;
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// runtime.block_on(async {
///     let probe = || Ok(SystemProfile::detect_fast());
///     let watcher = SystemProfileWatcher::with_probe(Duration::from_secs(5), probe)?.with_hot_plug();
///     let ledger = Arc::new(ResidencyLedger::with_pools([]));
///     let mut stack = Stack::builder(NodeId::new("here")?)
///         .with_ledger(ledger.clone(), Bytes::gib(1))
///         .start(&watcher);
///     let mut events = stack.subscribe();
///     println!("{}", events.next().await.expect("a stack tells first how it was tuned"));
///     assert_eq!(stack.cluster().snapshot().nodes.len(), 1);
///     assert_eq!(ledger.book()?.pools().len(), stack.cluster().snapshot().nodes[0].pools.len());
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it ends its tasks"]
pub struct Stack {
    _looks: OwnedTask,
    _follows: OwnedTask,
    /// What was told before anybody could listen.
    first: Option<Subscription<StackEvent>>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("id", &self.shared.id)
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}

impl Stack {
    /// A stack on the machine of this name.
    pub fn builder(id: NodeId) -> StackBuilder {
        let free: FreeProbe = Box::new(FreeMemory::read);
        StackBuilder { id, cluster: Arc::new(ClusterState::new()), ledger: None, free }
    }

    /// The balancer; its clones are tuned with it.
    pub fn balancer(&self) -> &Arc<LoadBalancer> {
        &self.shared.balancer
    }

    /// The cluster that this machine is a node of. Plans are made from its snapshots.
    pub fn cluster(&self) -> &Arc<ClusterState> {
        self.shared.balancer.cluster()
    }

    /// The ledger, where there is one.
    pub fn ledger(&self) -> Option<&Arc<dyn Store>> {
        self.shared.ledger.as_ref().map(|followed| &followed.store)
    }

    /// Tells a new subscriber what happens from now on; the first one also what happened since the start. One that is slow
    /// loses what is oldest.
    pub fn subscribe(&mut self) -> Subscription<StackEvent> {
        self.first.take().unwrap_or_else(|| self.shared.announcer.subscribe())
    }

    /// Takes a plan as the one that is carried out from now on; how it stands.
    ///
    /// # Errors
    ///
    /// The cluster has changed since it was made: what was in force stays.
    pub fn adopt(&self, planned: Planned) -> Result<Arc<Standing>, StaleGeneration> {
        self.shared.adopt(planned)
    }

    /// Forgets the plan in force; whether there was one.
    pub fn retire(&self) -> bool {
        self.shared.retire()
    }

    /// How the plan in force stands, as far as subscribers know; `None` without one.
    pub fn standing(&self) -> Option<Arc<Standing>> {
        self.shared.lock().standing.clone()
    }

    /// Looks at what is free, brings node and budgets up to date, and audits the plan in force, now and to the byte. Off the
    /// runtime.
    pub async fn refresh(&self) {
        let shared = Arc::clone(&self.shared);
        if off_the_runtime(move || shared.refresh()).await.is_none() {
            self.shared.fail(StackError::Interrupted);
        }
    }
}

/// Takes in what a watcher tells.
fn follow(shared: &Arc<Shared>, watcher: &SystemProfileWatcher) -> OwnedTask {
    let shared = Arc::clone(shared);
    let mut sources = (watcher.subscribe(), watcher.failures(), watcher.good_looks());
    OwnedTask::spawn(async move {
        while let Some(news) = next(&mut sources).await {
            match news {
                Ok(News::Change(ProfileChange::HardwareChange { description })) => {
                    shared.announcer.tell(&StackEvent::Hardware { description });
                }
                Ok(News::Change(ProfileChange::Updated(profile))) => {
                    let taking = Arc::clone(&shared);
                    if off_the_runtime(move || taking.take_in(&profile)).await.is_none() {
                        shared.fail(StackError::Interrupted);
                    }
                }
                Ok(News::Look) => {
                    let taking = Arc::clone(&shared);
                    if off_the_runtime(move || taking.looked()).await.is_none() {
                        shared.fail(StackError::Interrupted);
                    }
                }
                Err(error) => shared.fail(error),
            }
        }
    })
}

/// What a watcher tells.
enum News {
    Change(ProfileChange),
    /// It looked, and all that changed was told.
    Look,
}

/// What comes first; `None` once the watcher is gone.
async fn next(
    (changes, failures, looks): &mut (Subscription, Subscription<LookError>, Subscription<u64>),
) -> Option<Result<News, LookError>> {
    poll_fn(|cx| {
        if let Poll::Ready(change) = changes.poll_next(cx) {
            return Poll::Ready(change.map(|change| Ok(News::Change(change))));
        }
        if let Poll::Ready(Some(error)) = failures.poll_next(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        let mut looked = false;
        // Those that came while the last one was taken in are one.
        while let Poll::Ready(Some(_)) = looks.poll_next(cx) {
            looked = true;
        }
        if looked { Poll::Ready(Some(Ok(News::Look))) } else { Poll::Pending }
    })
    .await
}
