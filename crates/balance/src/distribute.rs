//! Sharing layers out: the quick orders first, then the whole search.

use std::sync::Arc;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_model::LayerSpec;

use crate::config::HostLayers;
use crate::distribution::{DistributionPlan, plain_footprint};
use crate::door::plan;
use crate::error::PlanError;
use crate::snapshot_index::{Place, SnapshotIndex};
use crate::sums::Sums;
use crate::workload::{EngineRules, Objective, PlanOptions, Strategy, Workload};

/// Shares layers out over the devices of an index, each device a run of them.
///
/// Under [`Strategy::Portfolio`] devices are filled from the largest to the smallest; where that does not hold
/// everything, from the smallest to the largest; then by the whole search of [`plan`](crate::plan()) for the fewest
/// devices. [`Strategy::CapacityDescending`] tries the first of these alone, and [`Strategy::GivenOrder`] the order of
/// the snapshot alone.
///
/// Layers may come in any order. Without layers the plan is empty, but somebody has to be there.
///
/// ```
/// use plimsoll_balance::{SnapshotIndex, HostLayers, LayerSpec, Strategy, distribute};
/// use plimsoll_cluster::{ClusterState, NodeResources};
/// use plimsoll_units::{Bytes, NodeId};
///
/// let cluster = ClusterState::new();
/// for (name, bytes) in [("a", 6), ("b", 5)] {
///     cluster.register(NodeResources::new(NodeId::new(name)?, Bytes::new(bytes), Bytes::ZERO))?;
/// }
/// let index = SnapshotIndex::new(cluster.snapshot(), HostLayers::Never);
/// let layers: Vec<_> = (0..).zip([5, 3, 3]).map(|(i, n)| LayerSpec::of_weights(i, Bytes::new(n))).collect();
/// // The larger device first would leave 1 byte there and 6 for the smaller one.
/// assert!(distribute(&index, &layers, Strategy::CapacityDescending).is_err());
/// let plan = distribute(&index, &layers, Strategy::Portfolio)?;
/// assert_eq!(plan.distributions().map(|held| held.layers()).collect::<Vec<_>>(), [0..1, 1..3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Repeated or missing layers, no device that may take any, or layers that do not fit: then what is proven of that.
pub fn distribute(
    index: &SnapshotIndex,
    layers: &[LayerSpec],
    strategy: Strategy,
) -> Result<DistributionPlan, PlanError> {
    if !index.is_usable() {
        return searched(index, layers, strategy);
    }
    let sums = Sums::new(layers)?;
    if sums.layers() == 0 {
        return Ok(DistributionPlan::empty(Arc::clone(index.snapshot())));
    }
    let budgets = index.budgets();
    let mut ends = Vec::with_capacity(budgets.len().min(sums.layers()));
    let made = |sums, ends: Vec<usize>, place: &dyn Fn(usize) -> Place| {
        let runs = ends.into_iter().enumerate().map(|(at, end)| (place(at), end));
        Ok(DistributionPlan::new(Arc::clone(index.snapshot()), sums, runs))
    };
    if strategy != Strategy::GivenOrder && sums.fill(budgets.iter(), &mut ends) {
        return made(sums, ends, &|at| index.place(at));
    }
    if strategy == Strategy::Portfolio && sums.fill(budgets.iter().rev(), &mut ends) {
        return made(sums, ends, &|at| index.place(budgets.len() - 1 - at));
    }
    searched(index, layers, strategy)
}

/// By the whole search, which says what is proven where it finds nothing.
fn searched(
    index: &SnapshotIndex,
    layers: &[LayerSpec],
    strategy: Strategy,
) -> Result<DistributionPlan, PlanError> {
    let without_hosts;
    let snapshot: &ClusterSnapshot = match index.hosts() {
        HostLayers::LastResort => index.snapshot(),
        HostLayers::Never => {
            let mut snapshot = ClusterSnapshot::clone(index.snapshot());
            for node in &mut snapshot.nodes {
                node.devices.retain(|device| !device.is_host());
            }
            without_hosts = snapshot;
            &without_hosts
        }
    };
    let workload = Workload::uniform(plain_footprint(layers.to_vec()));
    let options = PlanOptions { objective: Objective::Fit, strategy, ..PlanOptions::default() };
    let found = plan(snapshot, &workload, &EngineRules::none(), &options)?;
    let sums = Sums::new(layers)?;
    let runs = found.stages.iter().map(|stage| {
        let place =
            Place::find(index.snapshot(), &stage.device).expect("stages lie on devices of the snapshot");
        (place, sums.positions(&stage.layers).1)
    });
    let runs: Vec<(Place, usize)> = runs.collect();
    Ok(DistributionPlan::new(Arc::clone(index.snapshot()), sums, runs.into_iter()))
}
