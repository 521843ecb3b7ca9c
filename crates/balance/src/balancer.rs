//! A handle that shares layers out over a living cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use plimsoll_cluster::{ClusterSnapshot, ClusterState, StaleGeneration};
use plimsoll_model::LayerSpec;
use plimsoll_profile::{ExecutionBackend, RuntimeProfile, SystemProfile};
use plimsoll_units::Generation;

use crate::config::{ConfigError, HostLayers, LoadBalanceConfig};
use crate::distribute::distribute;
use crate::distribution::{DistributionPlan, chunk_distribution_plan};
use crate::error::PlanError;
use crate::plan::Plan;
use crate::rebalance::{Rebalance, RebalanceError, RebalanceOptions, rebalance_plan};
use crate::shed::{Transfer, shed_load};
use crate::skew::{SkewReport, skew};
use crate::snapshot_index::SnapshotIndex;
use crate::workload::{EngineRules, PlanOptions, Workload};

/// Why layers were not shared out in time. Nothing has changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistributeError {
    /// The layers themselves are at fault, so that waiting would not have helped.
    #[error(transparent)]
    Input(PlanError),
    /// The cluster did not become large enough in time.
    #[error("no distribution was found in time, in {tries} attempt(s)")]
    DeadlinePassed {
        /// How many snapshots were tried.
        tries: u32,
        /// Why the last attempt failed.
        #[source]
        reason: PlanError,
    },
}

/// Shares layers out over a living cluster, and says what to move when it is used unequally.
///
/// Clones share one configuration and one plan in force. Nothing here waits or knows a clock, except the two calls with a
/// deadline, which wait in [`ClusterState::wait_newer`] alone.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_balance::{LayerSpec, LoadBalanceConfig, LoadBalancer};
/// use plimsoll_cluster::{ClusterState, NodeResources};
/// use plimsoll_units::{Bytes, NodeId};
///
/// let cluster = Arc::new(ClusterState::new());
/// for (name, gib) in [("desk", 8), ("tower", 24)] {
///     cluster.register(NodeResources::new(NodeId::new(name)?, Bytes::gib(gib), Bytes::gib(64)))?;
/// }
/// let balancer = LoadBalancer::new(Arc::clone(&cluster), LoadBalanceConfig::default())?;
/// let layers: Vec<_> = (0..28).map(|i| LayerSpec::of_weights(i, Bytes::gib(1))).collect();
/// let plan = balancer.distribute_layers(&layers)?;
/// assert_eq!(
///     plan.summary(),
///     "desk: 4.3 GB, layers 24-27\ntower: 25.8 GB, layers 0-23\nTotal layers: 28\nNodes: desk, tower\n"
/// );
///
/// // Nothing lies anywhere yet: equal shares are available, whatever the sizes.
/// assert!(!balancer.rebalance());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoadBalancer {
    cluster: Arc<ClusterState>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    config: LoadBalanceConfig,
    /// The last cluster that was sorted.
    index: Option<Arc<SnapshotIndex>>,
    in_force: Option<Arc<(Plan, Workload)>>,
}

impl LoadBalancer {
    /// A balancer over this cluster.
    ///
    /// # Errors
    ///
    /// Settings that make no sense.
    pub fn new(cluster: Arc<ClusterState>, config: LoadBalanceConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let shared = Shared { config, index: None, in_force: None };
        Ok(Self { cluster, shared: Arc::new(Mutex::new(shared)) })
    }

    /// A balancer over this cluster, set to suit this machine: see [`LoadBalanceConfig::autotuned`].
    pub fn with_runtime_profile(cluster: Arc<ClusterState>, runtime: &RuntimeProfile) -> Self {
        let config = LoadBalanceConfig::autotuned(runtime);
        Self::new(cluster, config).expect("what is tuned to a machine is within its limits")
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster that it works on.
    pub fn cluster(&self) -> &Arc<ClusterState> {
        &self.cluster
    }

    /// How it is set.
    pub fn config(&self) -> LoadBalanceConfig {
        self.shared().config.clone()
    }

    /// Sets it anew, and all of its clones.
    ///
    /// # Errors
    ///
    /// Settings that make no sense: the old ones stay.
    pub fn reconfigure(&self, config: LoadBalanceConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.shared().config = config;
        Ok(())
    }

    /// Tunes it, and all of its clones, to a machine that was looked at. In which orders devices are tried and whether
    /// hosts take layers stays as it is.
    pub fn reconfigure_from_system_profile(&self, profile: &SystemProfile) {
        let tuned = LoadBalanceConfig::autotuned(&RuntimeProfile::from(profile));
        let mut shared = self.shared();
        let (strategy, hosts) = (shared.config.strategy, shared.config.hosts);
        shared.config = LoadBalanceConfig { strategy, hosts, ..tuned };
    }

    /// The devices of a snapshot, sorted; kept until the cluster changes.
    fn index(&self, snapshot: &Arc<ClusterSnapshot>) -> Arc<SnapshotIndex> {
        if let Some(index) = &self.shared().index
            && Arc::ptr_eq(index.snapshot(), snapshot)
        {
            return Arc::clone(index);
        }
        // Sorted outside the lock: another thread may do the same, to the same end.
        let index = Arc::new(SnapshotIndex::new(Arc::clone(snapshot), HostLayers::Never));
        self.shared().index = Some(Arc::clone(&index));
        index
    }

    /// Shares layers out over the devices that may take some, each device a run of them: see [`distribute`].
    ///
    /// Layers may come in any order; their indices are consecutive from the first one given. Hosts take layers only where
    /// the configuration lets them and the other devices alone do not hold everything.
    ///
    /// # Errors
    ///
    /// A layer twice or missing, nobody to take any, or layers that do not fit: then what is proven of that.
    pub fn distribute_layers(&self, layers: &[LayerSpec]) -> Result<DistributionPlan, PlanError> {
        self.distribute_on(&self.cluster.snapshot(), layers)
    }

    fn distribute_on(
        &self,
        snapshot: &Arc<ClusterSnapshot>,
        layers: &[LayerSpec],
    ) -> Result<DistributionPlan, PlanError> {
        let (strategy, hosts) = {
            let shared = self.shared();
            (shared.config.strategy, shared.config.hosts)
        };
        match distribute(&self.index(snapshot), layers, strategy) {
            Err(PlanError::NoDevices { .. } | PlanError::DoesNotFit(_))
                if hosts == HostLayers::LastResort =>
            {
                distribute(&SnapshotIndex::new(Arc::clone(snapshot), hosts), layers, strategy)
            }
            result => result,
        }
    }

    /// The same, cut into slices that suit a machine: at most [`LoadBalanceConfig::max_layers_per_assignment`] layers, two
    /// for each worker, and as many as its batches have operations.
    ///
    /// # Errors
    ///
    /// As [`LoadBalancer::distribute_layers`].
    pub fn distribute_layers_with_runtime_profile(
        &self,
        layers: &[LayerSpec],
        runtime: &RuntimeProfile,
    ) -> Result<DistributionPlan, PlanError> {
        let limit = slice_limit(self.shared().config.max_layers_per_assignment, runtime);
        Ok(chunk_distribution_plan(&self.distribute_layers(layers)?, limit))
    }

    /// The same, tried again whenever the cluster changes, until it succeeds or `deadline` is there.
    ///
    /// # Errors
    ///
    /// Layers that no cluster could take at once; else, at the deadline, why the last attempt failed.
    pub fn distribute_with_deadline(
        &self,
        layers: &[LayerSpec],
        deadline: Instant,
    ) -> Result<DistributionPlan, DistributeError> {
        let mut snapshot = self.cluster.snapshot();
        let mut tries = 0_u32;
        loop {
            tries = tries.saturating_add(1);
            let reason = match self.distribute_on(&snapshot, layers) {
                Ok(plan) => return Ok(plan),
                Err(reason @ (PlanError::NoDevices { .. } | PlanError::DoesNotFit(_))) => reason,
                Err(reason) => return Err(DistributeError::Input(reason)),
            };
            match self.cluster.wait_newer(snapshot.generation, deadline) {
                Some(newer) => snapshot = newer,
                None => return Err(DistributeError::DeadlinePassed { tries, reason }),
            }
        }
    }

    /// The same with [`LoadBalanceConfig::lock_timeout`] from now as the deadline: however the cluster changes meanwhile,
    /// the call comes back.
    ///
    /// # Errors
    ///
    /// As [`LoadBalancer::distribute_with_deadline`].
    pub fn distribute_with_deadlock_prevention(
        &self,
        layers: &[LayerSpec],
    ) -> Result<DistributionPlan, DistributeError> {
        let timeout = self.shared().config.lock_timeout;
        self.distribute_with_deadline(layers, ClusterState::deadline_in(timeout))
    }

    /// How unequally the devices are used now: see [`skew`](crate::skew()).
    pub fn skew(&self) -> SkewReport {
        let threshold = self.shared().config.min_load_threshold;
        skew(&self.cluster.snapshot(), threshold)
    }

    /// Whether the devices are used so unequally that load should be moved.
    pub fn rebalance(&self) -> bool {
        self.skew().skewed
    }

    /// What should leave devices that are almost full, and where it should go: see [`shed_load`](crate::shed_load()). At
    /// most [`LoadBalanceConfig::max_concurrent_rebalances`] transfers; of layers, where a plan is in force.
    pub fn shed_load(&self) -> Vec<Transfer> {
        let (limit, in_force) = {
            let shared = self.shared();
            (shared.config.max_concurrent_rebalances, shared.in_force.clone())
        };
        let in_force = in_force.as_deref().map(|(plan, workload)| (plan, workload));
        shed_load(&self.cluster.snapshot(), in_force, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Takes a distribution as the one that is carried out from now on.
    ///
    /// # Errors
    ///
    /// The cluster has changed since it was computed: what was in force stays.
    pub fn adopt(&self, plan: &DistributionPlan) -> Result<(), StaleGeneration> {
        self.cluster.ensure_current(plan.basis())?;
        let (plan, workload) = plan.as_plan();
        self.shared().in_force = Some(Arc::new((plan, workload)));
        Ok(())
    }

    /// Takes a plan, with what it places, as the one that is carried out from now on.
    ///
    /// # Errors
    ///
    /// As [`LoadBalancer::adopt`].
    pub fn adopt_plan(&self, plan: Plan, workload: Workload) -> Result<(), StaleGeneration> {
        self.cluster.ensure_current(plan.basis)?;
        self.shared().in_force = Some(Arc::new((plan, workload)));
        Ok(())
    }

    /// From the plan in force to a better one with few bytes moved: see [`rebalance_plan`](crate::rebalance_plan). `None`
    /// without a plan in force.
    ///
    /// The state must have been told what the plan holds ([`NodeMetrics::record_held`](plimsoll_cluster::NodeMetrics)),
    /// for a budget is what may lie somewhere in all.
    ///
    /// # Errors
    ///
    /// Whatever [`rebalance_plan`](crate::rebalance_plan) refuses.
    pub fn rebalance_plan(
        &self,
        rules: &EngineRules,
        plan_options: &PlanOptions,
        options: &RebalanceOptions,
    ) -> Result<Option<Rebalance>, RebalanceError> {
        let Some(in_force) = self.shared().in_force.clone() else { return Ok(None) };
        let (plan, workload) = &*in_force;
        rebalance_plan(plan, &self.cluster.snapshot(), workload, rules, plan_options, options).map(Some)
    }

    /// From which generation the plan in force was computed; `None` without one.
    pub fn in_force(&self) -> Option<Generation> {
        self.shared().in_force.as_deref().map(|(plan, _)| plan.basis)
    }

    /// Forgets the plan in force; whether there was one.
    pub fn retire(&self) -> bool {
        self.shared().in_force.take().is_some()
    }
}

/// The most layers in a slice.
fn slice_limit(most: u32, runtime: &RuntimeProfile) -> u32 {
    let backend = ExecutionBackend::from_runtime_profile(runtime);
    let lanes = (backend.vector_width_bits / 128).max(1);
    most.min(backend.worker_count.saturating_mul(2)).min(backend.preferred_batch_size / lanes).max(1)
}
