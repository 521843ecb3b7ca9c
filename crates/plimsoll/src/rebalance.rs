//! From a saved plan to a better one.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_balance::{PlanError, Rebalance, RebalanceError, RebalanceOptions, Refusal, rebalance_plan};
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_export::llama_cpp::Command;
use plimsoll_export::{Export, FormatError, PlanFile};
use plimsoll_units::{Bytes, DeviceRef, NodeId, PoolId};

use crate::exports::WordsError;
use crate::job::{Planned, seen_by};
use crate::ranks;

/// A saved plan, moved to a better one.
#[derive(Clone, Debug)]
pub struct Rebalanced {
    /// What moves, and how.
    pub rebalance: Rebalance,
    /// The target with all that the saved plan was made from; it has passed the audit.
    pub planned: Planned,
    /// The command line of the target, where the saved plan had one.
    pub command: Option<Command>,
    /// Everything that carries the target out, where the saved plan had that.
    pub export: Option<Export>,
    /// Everything that is placed: layers with their key-value cells, input and head.
    pub total: Bytes,
}

/// Why a saved plan is not moved. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The file holds words without a meaning.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// There is nothing to move to, or the plan is not for this cluster.
    #[error(transparent)]
    Rebalance(#[from] RebalanceError),
    /// The target cannot be said in the engine's words.
    #[error(transparent)]
    Export(#[from] WordsError),
}

impl MoveError {
    /// The refusal, when nothing fits any more.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Rebalance(RebalanceError::Plan(PlanError::DoesNotFit(refusal))) => Some(refusal),
            _ => None,
        }
    }
}

/// From a saved plan to one that is almost as good as the best in its order of devices, with few bytes moved.
///
/// Devices of the plan that the cluster no longer has are lost, and what they held is loaded again; where it has none of
/// them, the plan was made for another cluster.
///
/// # Errors
///
/// The file holds words without a meaning, the plan was made for other devices, or nothing fits any more.
pub fn rebalance(
    file: &PlanFile,
    snapshot: &ClusterSnapshot,
    options: &RebalanceOptions,
) -> Result<Rebalanced, MoveError> {
    let snapshot = &*seen_by(file, snapshot)?;
    let (workload, rules, asked) = (file.workload()?, file.rules()?, file.options()?);
    let options = &with_lost(options, file, snapshot);
    let rebalance = rebalance_plan(&file.plan()?, snapshot, &workload, &rules, &asked, options)?;
    let planned = Planned::instead_of(file, rebalance.target.clone())?;
    let (command, export) = match file.model_path() {
        Some(path) => {
            let command = planned.command(&path, snapshot).map_err(WordsError::from)?;
            (command, planned.export(&path, snapshot)?)
        }
        None => (None, None),
    };
    let footprint = workload.footprints.first();
    let parts = footprint.into_iter().flat_map(|footprint| {
        let layers = footprint.layers.iter().map(|layer| layer.resident_bytes());
        layers.chain([footprint.input_bytes, footprint.head_bytes])
    });
    Ok(Rebalanced { total: Bytes::saturating_sum(parts), rebalance, planned, command, export })
}

/// The options with those devices of the plan as lost that the cluster does not have, unless that is all of them.
fn with_lost(options: &RebalanceOptions, file: &PlanFile, snapshot: &ClusterSnapshot) -> RebalanceOptions {
    let known = |device: &DeviceRef| {
        snapshot.node(&device.node).and_then(|node| node.device(&device.device)).is_some()
    };
    let devices =
        file.stages.iter().map(|stage| DeviceRef { node: stage.node.clone(), device: stage.device.clone() });
    let (there, gone): (BTreeSet<_>, BTreeSet<_>) = devices.partition(known);
    let mut options = options.clone();
    if !there.is_empty() {
        options.lost.extend(gone);
    }
    options
}

/// The cluster with what a plan in force holds counted as ours: a machine that is looked at while the plan is in force has
/// so much less free. Never more than what is taken there.
pub fn holding(snapshot: &ClusterSnapshot, file: &PlanFile) -> ClusterSnapshot {
    let mut held: BTreeMap<(NodeId, PoolId), Bytes> = BTreeMap::new();
    for stage in &file.stages {
        let whole = DeviceRef { node: stage.node.clone(), device: stage.device.clone() };
        let members = ranks::members(&whole);
        let devices = members.filter_map(|part| snapshot.node(&stage.node)?.device(&part.device));
        for device in devices {
            let parts = [stage.weights_bytes, stage.kv_bytes, stage.overhead_bytes].map(Bytes::new);
            let sum = held.entry((stage.node.clone(), device.pool.clone())).or_insert(Bytes::ZERO);
            *sum = sum.saturating_add(Bytes::saturating_sum(parts));
        }
    }
    for part in &file.parts {
        if let Some(device) = snapshot.node(&part.node).and_then(|node| node.device(&part.device)) {
            let sum = held.entry((part.node.clone(), device.pool.clone())).or_insert(Bytes::ZERO);
            *sum = sum.saturating_add(Bytes::new(part.bytes));
        }
    }
    let mut snapshot = snapshot.clone();
    for node in &mut snapshot.nodes {
        let id = node.id.clone();
        for pool in &mut node.pools {
            let taken = pool.free.map_or(Bytes::ZERO, |free| pool.total.saturating_sub(free));
            let ours = held.get(&(id.clone(), pool.id.clone())).copied().unwrap_or(Bytes::ZERO);
            pool.held = pool.held.max(ours.min(taken));
        }
    }
    snapshot
}
