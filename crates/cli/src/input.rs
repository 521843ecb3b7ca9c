//! From what was typed to what the library takes.

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll::Engine;
use plimsoll::balance::PlanOptions;
use plimsoll::cluster::{self, ClusterSnapshot};
use plimsoll::export::PlanFile;
use plimsoll::model::{ContextLength, ModelFormat, ModelSpec, Request};
use plimsoll::profile::{FreeMemory, SystemProfile};
use plimsoll::units::{Bytes, NodeId};

use crate::args::{ChoiceArgs, LimitArgs, RequestArgs};
use crate::failure::Failure;
use crate::{live, look};

/// Reads the header of a model.
pub(crate) fn open_model(path: &Path) -> Result<ModelSpec, Failure> {
    let model = plimsoll::model::open(path).map_err(Failure::input)?;
    match model.layer_count() {
        0 => Err(Failure::Input(format!("{} has no layers", path.display()))),
        _ => Ok(model),
    }
}

/// Reads a saved plan.
pub(crate) fn read_plan(path: &Path) -> Result<PlanFile, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))?;
    PlanFile::parse(&text).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

/// Reads a cluster file or asks a cluster that is kept in etcd, or looks at this machine.
pub(crate) fn open_cluster(path: Option<&Path>) -> Result<ClusterSnapshot, Failure> {
    match path {
        Some(path) if live::is_url(path) => live::snapshot(path),
        Some(path) => cluster::file::read_cluster(path).map(|file| file.snapshot).map_err(Failure::input),
        None => Ok(this_machine()),
    }
}

/// This machine as a cluster of one node.
pub(crate) fn this_machine() -> ClusterSnapshot {
    let look = look::full();
    cluster::this_machine(node_name(), &look.profile, &look.free)
}

/// This machine as a cluster of one node, without a look at what is free on its accelerators: that may take memory on every
/// card.
pub(crate) fn this_machine_without_free() -> ClusterSnapshot {
    cluster::this_machine(node_name(), &look::without_free().profile, &FreeMemory::default())
}

/// All of the host's memory that this process may use, and what is free of it.
pub(crate) fn host_memory() -> Option<(Bytes, Bytes)> {
    let profile = SystemProfile::detect_fast();
    let total = profile.memory.as_result().ok()?.total;
    Some((total, FreeMemory::read(&profile).host?))
}

/// What this machine calls itself, or `here` where that cannot stand in `node/device`.
pub(crate) fn node_name() -> NodeId {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    NodeId::new(name).or_else(|_| NodeId::new("here")).unwrap_or_else(|_| unreachable!("`here` is a name"))
}

/// The engine that was named, else the one that suits the file.
pub(crate) fn engine(args: &RequestArgs, model: &ModelSpec) -> Engine {
    args.engine.unwrap_or(match model.format() {
        ModelFormat::Gguf => Engine::LlamaCpp,
        ModelFormat::Safetensors | ModelFormat::List => Engine::None,
    })
}

/// The request that was typed.
pub(crate) fn request(args: &RequestArgs, engine: Engine) -> Request {
    let context = match (args.ctx, args.ctx_total) {
        (Some(cells), _) => Some(ContextLength::PerSequence(cells)),
        (None, Some(cells)) => Some(ContextLength::Total(cells)),
        (None, None) => None,
    };
    Request {
        context,
        parallel: args.parallel,
        unified_kv: args.unified_kv,
        cache_type_k: args.cache_type_k,
        cache_type_v: args.cache_type_v,
        flash_attention: args.flash_attn.into(),
        micro_batch: args.ubatch,
        batch: Request::default().batch.max(args.ubatch),
        full_window: args.swa_full,
        engine: engine.profile(),
    }
}

/// The options that were typed. Names that the cluster does not have are wrong usage.
pub(crate) fn options(args: &ChoiceArgs, snapshot: &ClusterSnapshot) -> Result<PlanOptions, Failure> {
    Ok(PlanOptions {
        objective: args.objective.into(),
        strategy: args.strategy.into(),
        pipelines: args.pipelines,
        transfers: args.transfers.into(),
        ..limits(&args.limits, snapshot)?
    })
}

/// What of the machines may be used, and for what, as it was typed.
pub(crate) fn limits(args: &LimitArgs, snapshot: &ClusterSnapshot) -> Result<PlanOptions, Failure> {
    let known = || snapshot.nodes.iter().map(|n| n.id.to_string()).collect::<Vec<_>>().join(", ");
    if let Some(node) = args.only.iter().find(|id| snapshot.node(id).is_none()) {
        return Err(Failure::Input(format!("--only names node '{node}', and the cluster has {}", known())));
    }
    let capped = args.cap.iter().map(|(device, _)| ("--cap", device));
    let mut named = capped.chain(args.pin.iter().map(|pin| ("--pin", &pin.device)));
    if let Some((flag, device)) = named.find(|(_, device)| snapshot.device(device).is_none()) {
        let devices = |n: &plimsoll::cluster::Node| {
            n.devices.iter().map(|d| format!("{}/{}", n.id, d.id)).collect::<Vec<_>>().join(", ")
        };
        let all = snapshot.nodes.iter().map(devices).filter(|devices| !devices.is_empty());
        let all = all.collect::<Vec<_>>().join(", ");
        return Err(Failure::Input(format!("{flag} names device '{device}', and the cluster has {all}")));
    }
    let mut seen = BTreeSet::new();
    if let Some((device, _)) = args.cap.iter().find(|(device, _)| !seen.insert(device)) {
        return Err(Failure::Input(format!("--cap names device '{device}' twice")));
    }
    Ok(limits_of_known(args))
}

/// The same where the names are known to be right.
pub(crate) fn limits_of_known(args: &LimitArgs) -> PlanOptions {
    PlanOptions {
        max_devices: args.max_devices,
        only: (!args.only.is_empty()).then(|| args.only.iter().cloned().collect()),
        caps: args.cap.iter().cloned().collect(),
        reserve: args.reserve,
        pins: args.pin.clone(),
        ..PlanOptions::default()
    }
}
