//! Petals: a server for each device, with the blocks that it holds; embedding and head lie with every client.
//!
//! Facts: `--block_indices a:b` excludes its end and keeps a server from moving its blocks by itself. Blocks may lie on
//! several servers. What is taken beside weights and cache is an estimate.

use plimsoll_balance::{EngineRules, Plan};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend};
use plimsoll_model::{CacheType, Request, ResolvedContext};
use plimsoll_units::Bytes;

use crate::activations;
use crate::engine_error::EngineError;
use crate::launch::{Export, visible, with_devices, words};
use crate::llama_cpp::{ComputeFacts, LaunchLine};

/// The engine's name.
const ENGINE: &str = "petals";

/// The version whose flags these are.
pub const VERSION: &str = "2.2";

/// What a server process takes on its device beside blocks and cache: an estimate.
const FIXED: Bytes = Bytes::gib(1);

/// What a server takes beside its blocks, an estimate. Embedding and head are no server's.
pub fn rules(facts: Option<&ComputeFacts>, request: &Request) -> EngineRules {
    activations::rules(facts, request, FIXED, Bytes::mib(512))
}

/// A plan as a server for each stage.
///
/// # Errors
///
/// A form of the cache that the engine does not know, layers on a host, or another snapshot than the plan's.
pub fn export(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    request: &Request,
    context: &ResolvedContext,
    path: &str,
) -> Result<Export, EngineError> {
    let (keys, values) = (request.cache_type_k, request.cache_type_v);
    if keys != values {
        return Err(EngineError::TwoCacheTypes { engine: ENGINE, keys, values });
    }
    let dtype = match keys {
        CacheType::F16 => "float16",
        CacheType::Bf16 => "bfloat16",
        other => {
            let nearest = CacheType::F16;
            return Err(EngineError::CacheType { engine: ENGINE, part: 'k', cache_type: other, nearest });
        }
    };
    let mut notes = Vec::new();
    let mut lines = Vec::new();
    for (stage, device) in with_devices(plan, snapshot)? {
        if device.is_host() {
            return Err(EngineError::OnHost { engine: ENGINE, host: stage.device.clone() });
        }
        let (shown, note) = visible([device]);
        notes.extend(note.filter(|note| !notes.contains(note)));
        let place = match device.backend {
            GpuBackend::Metal => "mps",
            _ => "cuda:0",
        };
        let blocks = format!("{}:{}", stage.layers.start, stage.layers.end);
        let cells = context.total.to_string();
        let mut line: Vec<String> =
            ["python3", "-m", "petals.cli.run_server", path, "--block_indices", &blocks]
                .into_iter()
                .chain(["--device", place, "--torch_dtype", dtype, "--quant_type", "none"])
                .chain(["--attn_cache_tokens", &cells])
                .map(str::to_owned)
                .collect();
        if lines.is_empty() {
            line.push("--new_swarm".to_owned());
        } else {
            line.extend(["--initial_peers".to_owned(), "ADDRESS".to_owned()]);
        }
        let words = words(shown.into_iter().collect(), line);
        lines.push(LaunchLine { node: stage.device.node.clone(), words });
    }
    if lines.len() > 1 {
        notes.push("ADDRESS is what the first server prints of itself (/ip4/…/p2p/…)".to_owned());
    }
    notes.push("embedding and head lie with every client, which needs memory for them".to_owned());
    Ok(Export { lines, files: Vec::new(), notes })
}
