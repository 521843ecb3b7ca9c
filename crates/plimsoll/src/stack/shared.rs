//! What a stack knows, and how it takes in a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use plimsoll_balance::{LoadBalancer, RebalanceOptions, audit, plan, rebalance_plan};
use plimsoll_cluster::{ClusterSnapshot, Identity, Moment, Node, StaleGeneration, this_machine};
use plimsoll_profile::{FreeMemory, SystemProfile};
use plimsoll_residency::{Store, Timestamp};
use plimsoll_units::{Bytes, DeviceRef, NodeId, PoolId};
use plimsoll_watcher::Announcer;

use super::{Remedy, StackError, StackEvent, Standing, tune};
use crate::Planned;
use crate::job::sorted;
use crate::ranks;

/// Tells what is free on a machine; it may block.
pub(super) type FreeProbe = Box<dyn Fn(&SystemProfile) -> FreeMemory + Send + Sync>;

/// A ledger whose budgets follow the machine.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) store: Arc<dyn Store>,
    /// What is kept out of every budget.
    pub(super) kept_free: Bytes,
}

pub(super) struct Shared {
    pub(super) id: NodeId,
    pub(super) balancer: Arc<LoadBalancer>,
    pub(super) ledger: Option<Followed>,
    pub(super) free: FreeProbe,
    pub(super) begun: Instant,
    pub(super) announcer: Announcer<StackEvent>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// What was taken in last.
    profile: Option<Arc<SystemProfile>>,
    /// Every pool that the machine has or had.
    pools: BTreeSet<PoolId>,
    in_force: Option<Planned>,
    pub(super) standing: Option<Arc<Standing>>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic left half done is done again with the next change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: &StackEvent) {
        self.announcer.tell(event);
    }

    pub(super) fn fail(&self, error: impl Into<StackError>) {
        let error = error.into();
        tracing::warn!("{error}");
        self.tell(&StackEvent::Failed(Arc::new(error)));
    }

    /// Takes in what the machine is now. What fails is told, and the rest is done.
    pub(super) fn take_in(&self, profile: &Arc<SystemProfile>) {
        let mut state = self.lock();
        if state.profile.as_ref() == Some(profile) {
            return;
        }
        state.profile = Some(Arc::clone(profile));
        tune(&self.balancer, profile);
        let (workers, acceleration) = (profile.recommended_workers(), profile.acceleration_mode());
        self.tell(&StackEvent::Tuned { workers, acceleration });
        self.follow(&mut state, profile, false);
    }

    /// Looks at what is free, and takes that in.
    pub(super) fn refresh(&self) {
        let mut state = self.lock();
        if let Some(profile) = state.profile.clone() {
            self.follow(&mut state, &profile, false);
        }
    }

    /// Takes in what is free after a look that showed nothing new. What only wobbles is left as it was.
    pub(super) fn looked(&self) {
        let mut state = self.lock();
        if let Some(profile) = state.profile.clone() {
            self.follow(&mut state, &profile, true);
        }
    }

    fn follow(&self, state: &mut State, profile: &SystemProfile, settle: bool) {
        let free = (self.free)(profile);
        let machine = this_machine(self.id.clone(), profile, &free);
        for node in machine.nodes {
            state.pools.extend(node.pools.iter().map(|pool| pool.id.clone()));
            self.budgets(state, &node).unwrap_or_else(|error| self.fail(error));
            self.node(state, node, settle).unwrap_or_else(|error| self.fail(error));
        }
        self.audit(state);
    }

    /// Gives every pool of the ledger that the machine has or had its budget: one that is gone gets none.
    fn budgets(&self, state: &State, node: &Node) -> Result<(), StackError> {
        let Some(Followed { store, kept_free }) = &self.ledger else { return Ok(()) };
        let book = store.book()?;
        for id in &state.pools {
            let total = node.pools.iter().find(|pool| pool.id == *id).map(|pool| pool.total);
            let budget = total.unwrap_or(Bytes::ZERO).saturating_sub(*kept_free);
            if book.pool(id.as_str()).is_none_or(|pool| pool.budget != Some(budget)) {
                let now = store.set_budget(id, Some(budget), now())?;
                self.tell(&StackEvent::Budget { pool: id.clone(), budget, excess: now.excess() });
            }
        }
        Ok(())
    }

    /// Brings the node in the cluster to what the machine is, has free, and holds of the plan in force, and notes that it was
    /// heard of.
    fn node(&self, state: &State, mut node: Node, settle: bool) -> Result<(), StackError> {
        let cluster = self.balancer.cluster();
        let snapshot = cluster.snapshot();
        // One node runs the engine; where another does, this one does not.
        node.main = !snapshot.nodes.iter().any(|other| other.main && other.id != node.id);
        let held = state.in_force.as_ref().map(|planned| held(planned, &node)).unwrap_or_default();
        if !snapshot.node(&node.id).is_some_and(|known| alike(known, &node)) {
            let event = cluster.register_node(node.clone(), Identity::default())?;
            self.tell(&StackEvent::Node(event));
        }
        if let Some(known) = snapshot.node(&node.id).filter(|_| settle) {
            settled(&mut node, known);
        }
        let at = Moment::after_start(self.begun.elapsed());
        cluster.update_metrics(&node.id, |metrics| {
            for pool in &node.pools {
                let ours = held.get(&pool.id).copied().unwrap_or(Bytes::ZERO);
                let taken = pool.free.map_or(Bytes::ZERO, |free| pool.total.saturating_sub(free));
                match pool.free {
                    Some(free) => metrics.record_free(&pool.id, free, at)?,
                    None => metrics.record_unreadable(&pool.id)?,
                }
                // What is not loaded yet takes nothing.
                metrics.record_held(&pool.id, ours.min(taken))?;
            }
            Ok::<(), StackError>(())
        })??;
        if let Some(event) = cluster.heartbeat(&node.id, at)? {
            self.tell(&StackEvent::Node(event));
        }
        Ok(())
    }

    /// Audits the plan in force against the cluster as it is, and tells how it stands where that has changed.
    fn audit(&self, state: &mut State) {
        let Some(planned) = &state.in_force else { return };
        let snapshot = self.balancer.cluster().snapshot();
        let standing = Arc::new(standing(planned, &snapshot));
        let before = state.standing.replace(Arc::clone(&standing));
        if before.is_none_or(|before| before.checked.broken != standing.checked.broken) {
            if !standing.holds() {
                tracing::warn!("{standing}");
            }
            self.tell(&StackEvent::Plan(standing));
        }
    }

    pub(super) fn adopt(&self, planned: Planned) -> Result<Arc<Standing>, StaleGeneration> {
        let mut state = self.lock();
        self.balancer.adopt_plan(planned.plan.clone(), planned.workload.clone())?;
        let standing = Arc::new(standing(&planned, &self.balancer.cluster().snapshot()));
        state.in_force = Some(planned);
        state.standing = Some(Arc::clone(&standing));
        Ok(standing)
    }

    pub(super) fn retire(&self) -> bool {
        let mut state = self.lock();
        state.standing = None;
        self.balancer.retire();
        state.in_force.take().is_some()
    }
}

#[expect(clippy::disallowed_methods, reason = "a ledger counts time as everybody who shares its file does")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::after_epoch(since.unwrap_or_default())
}

/// What a plan places in each pool of a node.
fn held(planned: &Planned, node: &Node) -> BTreeMap<PoolId, Bytes> {
    let mut held: BTreeMap<PoolId, Bytes> = BTreeMap::new();
    for stage in planned.plan.stages.iter().filter(|stage| stage.device.node == node.id) {
        if let Some(device) = node.device(&stage.device.device) {
            let sum = held.entry(device.pool.clone()).or_insert(Bytes::ZERO);
            *sum = sum.saturating_add(stage.used_bytes());
        }
    }
    held
}

/// What is free moves a little all the time, and a plan that is made meanwhile must not be out of date for that: up to a
/// sixty-fourth of a pool more than is known stays what is known. Less is always taken in.
fn settled(node: &mut Node, known: &Node) {
    for pool in &mut node.pools {
        let shown =
            known.pool(&pool.id).filter(|known| known.total == pool.total).and_then(|known| known.free);
        if let (Some(shown), Some(free)) = (shown, pool.free)
            && free.checked_sub(shown).is_some_and(|more| more.get() <= pool.total.get() / 64)
        {
            pool.free = Some(shown);
        }
    }
}

/// Whether two nodes are the same but for what is measured of them and how they answer.
fn alike(known: &Node, node: &Node) -> bool {
    let mut known = known.clone();
    (known.status, known.drained) = (node.status, node.drained);
    if known.pools.len() == node.pools.len() {
        for (known, pool) in known.pools.iter_mut().zip(&node.pools) {
            (known.free, known.held) = (pool.free, pool.held);
        }
    }
    known == *node
}

pub(super) fn standing(planned: &Planned, snapshot: &ClusterSnapshot) -> Standing {
    let snapshot = ranks::seen(planned.engine, planned.request.ranks, snapshot);
    let Planned { plan: in_force, workload, rules, options, .. } = planned;
    let found = audit(in_force, &snapshot, workload, rules, options).err().unwrap_or_default();
    let checked = sorted(found);
    let remedy = if checked.broken.is_empty() {
        Remedy::Keep
    } else {
        let devices = in_force.stages.iter().map(|stage| &stage.device);
        let lost: BTreeSet<DeviceRef> =
            devices.filter(|device| snapshot.device(device).is_none()).cloned().collect();
        let moving = RebalanceOptions { lost, ..RebalanceOptions::default() };
        match rebalance_plan(in_force, &snapshot, workload, rules, options, &moving) {
            Ok(rebalance) => Remedy::Rebalance(Box::new(rebalance)),
            Err(_) => match plan(&snapshot, workload, rules, options) {
                Ok(plan) => Remedy::Restart(Box::new(plan)),
                Err(why) => Remedy::Stop(why),
            },
        }
    };
    Standing { generation: snapshot.generation, checked, remedy }
}
