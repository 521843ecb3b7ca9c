//! vLLM and SGLang: ranks in a pipeline, each of them one device or several that share every layer.
//!
//! Facts: the partition is a list of numbers, one for each rank of the pipeline, that adds up to the model's layers without
//! next-token blocks. With several nodes ranks are numbered node by node, as many on each. A cache is in pages of 16 tokens,
//! and the rank with the fewest pages decides for all. What is taken beside weights and cache is an estimate.

use plimsoll_balance::{Charges, EngineRules, HostUse, Plan, Stage, StageCharges};
use plimsoll_cluster::{ClusterSnapshot, Device};
use plimsoll_model::{CacheType, ContextLength, Request, ResolvedContext};
use plimsoll_units::{Bytes, NodeId};

use crate::engine_error::EngineError;
use crate::fraction::{Share, Span, share};
use crate::launch::{Export, length, only_copy, visible, words};
use crate::llama_cpp::{ComputeFacts, LaunchLine};

/// The version of vLLM whose flags these are; the partition is older.
pub const VLLM_VERSION: &str = "0.12";

/// The version of SGLang whose flags these are.
pub const SGLANG_VERSION: &str = "0.5";

/// Tokens in a page of the cache.
pub const PAGE: u64 = 16;

/// What both keep for the driver's context, the library that joins ranks, and captured graphs: an estimate.
const FIXED: Bytes = Bytes::gib(1);

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

/// What the command line says of the model, beside the plan.
#[derive(Clone, Copy, Debug)]
pub struct ServedModel<'a> {
    /// The checkpoint, as the person gave it.
    pub path: &'a str,
    /// The context as the engine lays it out.
    pub context: ResolvedContext,
}

impl Server {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }

    const fn share_flag(self) -> &'static str {
        match self {
            Self::Vllm => "--gpu-memory-utilization",
            Self::Sglang => "--mem-fraction-static",
        }
    }
}

/// What both take beside the layers, an estimate: the hidden states of one step through the widest block, and on the rank
/// with the head the logits of every sequence.
pub fn rules(facts: Option<&ComputeFacts>, request: &Request) -> EngineRules {
    let step = u64::from(request.batch.max(request.parallel));
    let (each, logits) = facts.map_or((Bytes::ZERO, Bytes::ZERO), |facts| {
        let wide = facts
            .embedding_length
            .saturating_mul(6)
            .saturating_add(facts.feed_forward_length.saturating_mul(3));
        let rows = u64::from(request.parallel).saturating_mul(facts.vocabulary);
        let floats = |bytes: u64, n: u64| Bytes::new(bytes).saturating_mul(n);
        (floats(2, wide).saturating_mul(step), floats(8, rows))
    });
    let each = each.saturating_add(FIXED);
    let split = StageCharges { each, first_more: Bytes::ZERO, last_more: logits };
    EngineRules {
        host: HostUse::Ordinary,
        max_devices: None,
        margin: Bytes::gib(1),
        charges: Charges { alone: each.saturating_add(logits), split, partial: split, ..Charges::default() },
    }
}

/// A plan in vLLM's or SGLang's words.
///
/// # Errors
///
/// The plan has several copies, layers on a host, nodes with unlike numbers of ranks, or needs what no one share of the
/// memory gives; the cache has a form that the engine does not know; the snapshot is not the plan's.
pub fn command(
    server: Server,
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    request: &Request,
    model: &ServedModel<'_>,
) -> Result<Export, EngineError> {
    let stages = only_copy(server.name(), plan, snapshot)?;
    if let Some((stage, _)) = stages.iter().find(|(_, device)| device.is_host()) {
        return Err(EngineError::OnHost { engine: server.name(), host: stage.device.clone() });
    }
    let nodes = by_node(server, &stages)?;
    let share = memory_share(server, plan, snapshot)?;
    let (cache, cache_note) = cache_type(server, request)?;
    let counts: Vec<String> = stages.iter().map(|(stage, _)| length(stage).to_string()).collect();
    let flags = flags(server, request, model, (share, cache), counts.len());
    let mut notes: Vec<String> = cache_note.into_iter().collect();
    let mut lines = Vec::new();
    let main = nodes.first().map(|(node, _)| *node);
    for (rank, (node, devices)) in nodes.iter().enumerate() {
        let (shown, note) = visible(devices.iter().copied());
        notes.extend(note.filter(|note| !notes.contains(note)));
        let mut variables: Vec<String> = shown.into_iter().collect();
        if counts.len() > 1 {
            let prefix = match server {
                Server::Vllm => "VLLM",
                Server::Sglang => "SGLANG",
            };
            variables.push(format!("{prefix}_PP_LAYER_PARTITION={}", counts.join(",")));
        }
        let mut line = flags.clone();
        if let Some(main) = main.filter(|_| nodes.len() > 1) {
            line.extend(of_node(server, main, rank, nodes.len()));
        }
        lines.push(LaunchLine { node: (*node).clone(), words: words(variables, line) });
    }
    if let Some(main) = main.filter(|_| nodes.len() > 1) {
        notes.push(format!("every node has to reach {main} under this name, or write its address instead"));
    }
    Ok(Export { lines, files: Vec::new(), notes })
}

/// Checks that the ranks can be numbered node by node, as many on each.
///
/// # Errors
///
/// The plan comes back to a node, has unlike numbers of ranks on them, several copies, or is not the snapshot's.
pub fn check_nodes(server: Server, plan: &Plan, snapshot: &ClusterSnapshot) -> Result<(), EngineError> {
    by_node(server, &only_copy(server.name(), plan, snapshot)?).map(drop)
}

/// The devices of each node, in the order of the ranks.
fn by_node<'a>(
    server: Server,
    stages: &[(&'a Stage, &'a Device)],
) -> Result<Vec<(&'a NodeId, Vec<&'a Device>)>, EngineError> {
    let engine = server.name();
    let mut nodes: Vec<(&NodeId, Vec<&Device>)> = Vec::new();
    for (stage, device) in stages {
        let node = &stage.device.node;
        let count = nodes.len();
        let known = nodes.iter().position(|(seen, _)| *seen == node);
        match known.and_then(|at| nodes.get_mut(at).map(|entry| (at, entry))) {
            Some((at, (_, devices))) if at + 1 == count => devices.push(device),
            Some(_) => return Err(EngineError::NodeAgain { engine, node: node.clone() }),
            None => nodes.push((node, vec![device])),
        }
    }
    let most = nodes.iter().max_by_key(|(_, devices)| devices.len());
    let least = nodes.iter().min_by_key(|(_, devices)| devices.len());
    match most.zip(least) {
        Some(((node, most), (other, least))) if most.len() != least.len() => Err(EngineError::UnevenNodes {
            engine,
            node: (*node).clone(),
            ranks: most.len(),
            other: (*other).clone(),
            others: least.len(),
        }),
        _ => Ok(nodes),
    }
}

/// The share of each device's memory that gives every rank what the plan counts there, and no more than its budget.
///
/// vLLM takes a share of all memory for weights, cache and everything beside; SGLang one of what is free at its start, for
/// weights and cache alone.
///
/// # Errors
///
/// No one share suits all devices, or the snapshot is not the plan's.
pub fn memory_share(server: Server, plan: &Plan, snapshot: &ClusterSnapshot) -> Result<Share, EngineError> {
    let mut spans = Vec::new();
    for stage in plan.stages.iter().filter(|stage| !stage.layers.is_empty()) {
        let unknown = || EngineError::UnknownDevice { device: stage.device.clone() };
        let (node, device) = snapshot.device(&stage.device).ok_or_else(unknown)?;
        let pool = node.pool(&device.pool).ok_or_else(unknown)?;
        let resident = stage.weights_bytes.saturating_add(stage.kv_bytes);
        let (need, most, of) = match server {
            Server::Vllm => (stage.used_bytes(), stage.budget_bytes, pool.total),
            Server::Sglang => {
                let most = stage.budget_bytes.saturating_sub(stage.overhead_bytes);
                (resident, most, pool.free.unwrap_or(pool.total))
            }
        };
        spans.push(Span { device: &stage.device, need: need.get(), most: most.get(), of: of.get() });
    }
    share(server.share_flag(), &spans)
}

/// The engine's name for the form of the cache.
fn cache_type(server: Server, request: &Request) -> Result<(&'static str, Option<String>), EngineError> {
    let engine = server.name();
    let (keys, values) = (request.cache_type_k, request.cache_type_v);
    if keys != values {
        return Err(EngineError::TwoCacheTypes { engine, keys, values });
    }
    let eight = match server {
        Server::Vllm => "fp8",
        Server::Sglang => "fp8_e4m3",
    };
    match keys {
        // Both take the 16-bit form of the model.
        CacheType::F16 | CacheType::Bf16 => Ok(("auto", None)),
        CacheType::Q8_0 => {
            let note = format!(
                "{engine} has no q8_0: {eight} is its 8-bit form, 1 byte a value where the plan counts 1.0625"
            );
            Ok((eight, Some(note)))
        }
        other => {
            let nearest = if other == CacheType::F32 { CacheType::F16 } else { CacheType::Q8_0 };
            Err(EngineError::CacheType { engine, part: 'k', cache_type: other, nearest })
        }
    }
}

fn flags(
    server: Server,
    request: &Request,
    model: &ServedModel<'_>,
    (share, cache): (Share, &str),
    ranks: usize,
) -> Vec<String> {
    // The engine refuses a context beyond the trained one, which rounding up to a page may be.
    let length = match request.context {
        Some(ContextLength::PerSequence(asked)) => asked.min(model.context.per_sequence),
        _ => model.context.per_sequence,
    };
    let tensor = request.ranks.max(1);
    let step = request.batch.max(request.parallel);
    let parallel = request.parallel;
    let text = match server {
        Server::Vllm => format!(
            "--pipeline-parallel-size {ranks} --tensor-parallel-size {tensor} --gpu-memory-utilization {share} \
             --max-model-len {length} --max-num-seqs {parallel} --max-num-batched-tokens {step} --block-size {PAGE} \
             --kv-cache-dtype {cache}"
        ),
        Server::Sglang => format!(
            "--pp-size {ranks} --tp-size {tensor} --mem-fraction-static {share} --context-length {length} \
             --max-running-requests {parallel} --max-total-tokens {} --chunked-prefill-size {step} --page-size {PAGE} \
             --kv-cache-dtype {cache}",
            model.context.total
        ),
    };
    let begin: &[&str] = match server {
        Server::Vllm => &["vllm", "serve", model.path],
        Server::Sglang => &["python3", "-m", "sglang.launch_server", "--model-path", model.path],
    };
    begin.iter().copied().chain(text.split_whitespace()).map(str::to_owned).collect()
}

/// What a line says where there are several nodes.
fn of_node(server: Server, main: &NodeId, rank: usize, nodes: usize) -> Vec<String> {
    let text = match server {
        Server::Vllm if rank == 0 => format!("--nnodes {nodes} --node-rank 0 --master-addr {main}"),
        Server::Vllm => format!("--nnodes {nodes} --node-rank {rank} --master-addr {main} --headless"),
        Server::Sglang => format!("--nnodes {nodes} --node-rank {rank} --dist-init-addr {main}:20000"),
    };
    text.split_whitespace().map(str::to_owned).collect()
}
