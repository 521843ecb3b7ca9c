//! exo: an instance as its interface takes it, with the layers of each node.
//!
//! Facts: `POST /instance` on port 52415; `end_layer` is excluded; types are tagged by their names. Nodes stand in a ring:
//! each listens on `0.0.0.0`, knows its two neighbours by address, and all others by one that nobody has. The server does
//! not check an instance against its machines. What is taken beside weights and cache is an estimate.

use std::collections::BTreeMap;

use plimsoll_balance::{EngineRules, Plan, Stage};
use plimsoll_cluster::{ClusterSnapshot, Device};
use plimsoll_model::{CacheType, Footprint, Request};
use plimsoll_units::{Bytes, NodeId};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::activations;
use crate::engine_error::EngineError;
use crate::launch::{Export, ExportFile, only_copy};
use crate::llama_cpp::{ComputeFacts, LaunchLine};

/// The engine's name.
const ENGINE: &str = "exo";

/// The version whose interface this is.
pub const VERSION: &str = "1.0";

/// What the file is called.
pub const FILE: &str = "instance.json";

/// The port that the ring talks on.
const PORT: u16 = 52_416;

/// Stands for a node that is no neighbour.
const NOBODY: &str = "198.51.100.1";

/// What the runner takes on a node beside weights and cache: an estimate.
const FIXED: Bytes = Bytes::mib(512);

/// What the instance says of the model, beside the plan.
#[derive(Clone, Debug)]
pub struct RingModel<'a> {
    /// Its name in the engine's list.
    pub id: &'a str,
    /// Its family.
    pub architecture: &'a str,
    /// How many layers it has.
    pub layers: u32,
    /// What all its weights take.
    pub bytes: Bytes,
    /// The values of one token between layers.
    pub embedding_length: u64,
}

/// The same model as exo places it: every node loads embedding, final norm and output matrix.
pub fn on_every_node(footprint: Footprint) -> Footprint {
    let ends = footprint.input_bytes.saturating_add(footprint.head_beside_input_bytes);
    Footprint {
        input_bytes: Bytes::ZERO,
        head_bytes: Bytes::ZERO,
        head_beside_input_bytes: Bytes::ZERO,
        each_device_bytes: footprint.each_device_bytes.saturating_add(ends),
        ..footprint
    }
}

/// What it takes beside the layers: an estimate.
pub fn rules(facts: Option<&ComputeFacts>, request: &Request) -> EngineRules {
    activations::rules(facts, request, FIXED, Bytes::gib(1))
}

/// A plan as an instance: a file, and the line that sends it.
///
/// # Errors
///
/// The plan has several copies, or several devices of a node; the model is of a family that exo does not split; the cache
/// is not of the model's form; the snapshot is not the plan's.
pub fn export(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    request: &Request,
    model: &RingModel<'_>,
) -> Result<Export, EngineError> {
    for (part, cache_type) in [('k', request.cache_type_k), ('v', request.cache_type_v)] {
        if !matches!(cache_type, CacheType::F16 | CacheType::Bf16) {
            return Err(EngineError::CacheType { engine: ENGINE, part, cache_type, nearest: CacheType::F16 });
        }
    }
    let stages = only_copy(ENGINE, plan, snapshot)?;
    check(&stages, model)?;
    let ids: Vec<String> = (0..stages.len()).map(|rank| identity(model, &stages, rank + 1)).collect();
    let card = json!({
        "model_id": model.id,
        "n_layers": model.layers,
        "hidden_size": model.embedding_length,
        "storage_size": { "in_bytes": model.bytes.get() },
        "supports_tensor": false,
        "tasks": ["TextGeneration"],
    });
    let mut runners: BTreeMap<&str, Value> = BTreeMap::new();
    let mut nodes: BTreeMap<&str, &str> = BTreeMap::new();
    let mut hosts: BTreeMap<&str, Value> = BTreeMap::new();
    for (rank, ((stage, _), id)) in stages.iter().zip(&ids).enumerate() {
        let shard = json!({ "PipelineShardMetadata": {
            "model_card": card, "device_rank": rank, "world_size": stages.len(),
            "start_layer": stage.layers.start, "end_layer": stage.layers.end, "n_layers": model.layers,
        }});
        runners.insert(id, shard);
        nodes.insert(stage.device.node.as_str(), id);
        hosts.insert(stage.device.node.as_str(), Value::Array(ring(&stages, rank, snapshot)));
    }
    let instance = json!({ "instance": { "MlxRingInstance": {
        "instance_id": identity(model, &stages, 0),
        "shard_assignments": { "model_id": model.id, "runner_to_shard": runners, "node_to_runner": nodes },
        "hosts_by_node": hosts,
        "ephemeral_port": PORT,
    }}});
    let text = format!("{instance:#}\n");
    let line =
        ["curl", "-X", "POST", "http://localhost:52415/instance", "-H", "content-type: application/json"];
    let line = line.into_iter().chain(["-d", "@instance.json"]).map(str::to_owned).collect();
    let node = stages.first().map(|(stage, _)| stage.device.node.clone());
    let lines = node.map(|node| LaunchLine { node, words: line }).into_iter().collect();
    let notes = vec![
        format!("{FILE} has to lie where the line is typed (plimsoll plan … --export {FILE})"),
        format!(
            "nodes and the model stand under their names here; write those that GET /state and GET /models show into {FILE}"
        ),
    ];
    Ok(Export { lines, files: vec![ExportFile { name: FILE.to_owned(), text }], notes })
}

fn check(stages: &[(&Stage, &Device)], model: &RingModel<'_>) -> Result<(), EngineError> {
    if let Some((stage, _)) = stages.iter().find(|(_, device)| device.is_host()) {
        return Err(EngineError::OnHost { engine: ENGINE, host: stage.device.clone() });
    }
    let mut devices: BTreeMap<&NodeId, usize> = BTreeMap::new();
    for (stage, _) in stages {
        *devices.entry(&stage.device.node).or_default() += 1;
    }
    if let Some((node, devices)) = devices.into_iter().find(|(_, devices)| *devices > 1) {
        return Err(EngineError::SeveralOfNode { engine: ENGINE, node: node.clone(), devices });
    }
    if stages.len() > 1 && model.architecture.starts_with("gemma4") {
        return Err(EngineError::NoPipeline { engine: ENGINE, architecture: model.architecture.to_owned() });
    }
    Ok(())
}

/// How one node sees all nodes of the ring.
fn ring(stages: &[(&Stage, &Device)], rank: usize, snapshot: &ClusterSnapshot) -> Vec<Value> {
    let count = stages.len();
    let before = (rank + count - 1) % count.max(1);
    let after = (rank + 1) % count.max(1);
    let seen = |(other, (stage, _)): (usize, &(&Stage, &Device))| {
        if other == rank {
            json!({ "ip": "0.0.0.0", "port": PORT })
        } else if other == before || other == after {
            let node = &stage.device.node;
            let address = snapshot.node(node).and_then(|node| node.rpc.as_deref());
            let ip = address.and_then(|address| address.rsplit_once(':')).map_or(node.as_str(), |(ip, _)| ip);
            json!({ "ip": ip, "port": PORT })
        } else {
            json!({ "ip": NOBODY, "port": 0 })
        }
    };
    stages.iter().enumerate().map(seen).collect()
}

/// A name in the form of a UUID that only the plan decides.
fn identity(model: &RingModel<'_>, stages: &[(&Stage, &Device)], number: usize) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{} {} {number}", model.id, model.layers));
    for (stage, _) in stages {
        hash.update(format!(" {} {}-{}", stage.device, stage.layers.start, stage.layers.end));
    }
    let bytes = hash.finalize();
    let digits: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| digits.get(range).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
}
