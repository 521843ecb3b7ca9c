//! vLLM and SGLang: the partition, the nodes, the share of memory.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the engine computes shares in double precision; amounts of memory stay below 2^53"
)]

use std::collections::BTreeMap;

use plimsoll_balance::Plan;
use plimsoll_cluster::ClusterSnapshot;
use plimsoll_export::vllm::{ServedModel, Server, command};
use plimsoll_export::{EngineError, Export};
use plimsoll_model::{CacheType, Request, ResolvedContext};
use plimsoll_units::{Bytes, DeviceRef};

use crate::kit::{Dice, cluster, id, node, plan, three, value, variable};

const CONTEXT: ResolvedContext = ResolvedContext { total: 8192, per_sequence: 8192, streams: 1 };

fn export(server: Server, plan: &Plan, snapshot: &ClusterSnapshot) -> Result<Export, EngineError> {
    let model = ServedModel { path: "models/one", context: CONTEXT };
    command(server, plan, snapshot, &Request::default(), &model)
}

/// What the engine makes of its lines: the layers of each rank, and the device it runs on.
fn as_the_engine_reads(
    server: Server,
    export: &Export,
    layers: u32,
) -> Vec<(DeviceRef, std::ops::Range<u32>)> {
    let (size, prefix) = match server {
        Server::Vllm => ("--pipeline-parallel-size", "VLLM"),
        Server::Sglang => ("--pp-size", "SGLANG"),
    };
    let mut ranks = Vec::new();
    for (number, line) in export.lines.iter().enumerate() {
        let words = &line.words;
        if export.lines.len() > 1 {
            assert_eq!(value(words, "--nnodes"), Some(export.lines.len().to_string().as_str()));
            assert_eq!(value(words, "--node-rank"), Some(number.to_string().as_str()));
        }
        // The engine counts the devices that it is shown from 0, and takes the next rank for each.
        for card in variable(words, "CUDA_VISIBLE_DEVICES").unwrap().split(',') {
            ranks.push(id(line.node.as_str(), &format!("CUDA{card}")));
        }
    }
    let words = &export.lines[0].words;
    let count: usize = value(words, size).unwrap().parse().unwrap();
    let partition: Vec<u32> = match variable(words, &format!("{prefix}_PP_LAYER_PARTITION")) {
        Some(list) => list.split(',').map(|n| n.parse().unwrap()).collect(),
        // Without a list one rank has everything.
        None => vec![layers],
    };
    assert_eq!(partition.len(), count, "the engine refuses a list of another length");
    assert_eq!(partition.iter().sum::<u32>(), layers, "and one that adds up to something else");
    assert_eq!(ranks.len(), count);
    let starts = (0..count).map(|rank| partition[..rank].iter().sum::<u32>());
    let ranges: Vec<_> = starts.zip(&partition).map(|(start, n)| start..start + n).collect();
    ranks.into_iter().zip(ranges).collect()
}

/// Devices of some nodes in some order.
fn devices(dice: &mut Dice) -> Vec<DeviceRef> {
    let mut all: Vec<DeviceRef> =
        ["a", "b", "c"].iter().flat_map(|n| (0..4).map(|c| id(n, &format!("CUDA{c}")))).collect();
    if dice.below(2) == 0 {
        // Whole nodes in any order, as many of each.
        let each = usize::try_from(dice.below(4)).unwrap() + 1;
        let nodes = usize::try_from(dice.below(3)).unwrap() + 1;
        let first = usize::try_from(dice.below(3)).unwrap();
        return (0..nodes).flat_map(|n| all[((first + n) % 3) * 4..][..each].to_vec()).collect();
    }
    for at in (1..all.len()).rev() {
        all.swap(at, usize::try_from(dice.below(u64::try_from(at).unwrap() + 1)).unwrap());
    }
    all.truncate(usize::try_from(dice.below(6)).unwrap() + 1);
    all
}

/// Whether ranks can be numbered node by node, as many on each.
fn expressible(plan: &Plan) -> bool {
    let nodes: Vec<&str> = plan.stages.iter().map(|s| s.device.node.as_str()).collect();
    let runs = nodes.chunk_by(|a, b| a == b).count();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    nodes.iter().for_each(|node| *counts.entry(node).or_default() += 1);
    runs == counts.len() && counts.values().all(|n| Some(n) == counts.values().next())
}

#[test]
fn a_partition_is_the_plan_again_or_is_refused() {
    let snapshot = three();
    let (mut said, mut refused) = (0, 0);
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let layers = u32::try_from(dice.below(199)).unwrap() + 1;
        let devices = devices(&mut dice);
        let plan = plan(&mut dice, layers, &devices);
        let server = if seed % 2 == 0 { Server::Vllm } else { Server::Sglang };
        match export(server, &plan, &snapshot) {
            Ok(export) => {
                assert!(expressible(&plan), "{seed}");
                let planned: Vec<_> =
                    plan.stages.iter().map(|s| (s.device.clone(), s.layers.clone())).collect();
                assert_eq!(as_the_engine_reads(server, &export, layers), planned, "{seed}");
                said += 1;
            }
            Err(EngineError::NodeAgain { .. } | EngineError::UnevenNodes { .. }) => {
                assert!(!expressible(&plan), "{seed}");
                refused += 1;
            }
            Err(other) => panic!("{seed}: {other}"),
        }
    }
    assert!(said > 1500 && refused > 300, "{said} {refused}");
}

#[test]
fn one_share_of_memory_gives_every_rank_its_bytes_and_no_more_than_its_budget() {
    let (mut said, mut refused) = (0, 0);
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let mut snapshot = cluster(vec![node("a", None, 4)]);
        let cards: Vec<DeviceRef> = (0..4).map(|c| id("a", &format!("CUDA{c}"))).collect();
        let count = usize::try_from(dice.below(4)).unwrap() + 1;
        let mut plan = plan(&mut dice, 40, &cards[..count]);
        for stage in &mut plan.stages {
            let pool = snapshot.nodes[0]
                .pools
                .iter_mut()
                .find(|p| p.id.as_str() == stage.device.device.as_str())
                .unwrap();
            // Totals that no power of ten divides, and budgets from exact to roomy.
            pool.total = Bytes::new(stage.used_bytes().get() + 1 + dice.below(20_000_000_000));
            let room = pool.total.get() - stage.used_bytes().get();
            stage.budget_bytes = Bytes::new(stage.used_bytes().get() + dice.below(room));
            pool.free = Some(pool.total);
        }
        let shares: Vec<(u64, u64, u64)> = plan
            .stages
            .iter()
            .map(|stage| {
                let (_, device) = snapshot.device(&stage.device).unwrap();
                let total = snapshot.nodes[0].pool(&device.pool).unwrap().total.get();
                (stage.used_bytes().get(), stage.budget_bytes.get(), total)
            })
            .collect();
        match export(Server::Vllm, &plan, &snapshot) {
            Ok(export) => {
                let text = value(&export.lines[0].words, "--gpu-memory-utilization").unwrap();
                let share: f64 = text.parse().unwrap();
                let mut pages = u64::MAX;
                for (stage, (need, most, total)) in plan.stages.iter().zip(&shares) {
                    // As the engine computes it.
                    let given = (*total as f64 * share) as u64;
                    assert!(
                        *need <= given && given <= *most,
                        "{seed}: {need} {given} {most} of {total} at {text}"
                    );
                    // What is left for the cache, in pages of 16 tokens; the fewest of all ranks decide.
                    let cache = given - stage.weights_bytes.get() - stage.overhead_bytes.get();
                    let page = stage.kv_bytes.get() / 512;
                    pages = pages.min(cache / page);
                }
                assert!(pages >= 8192 / 16, "{seed}: {pages} pages");
                said += 1;
            }
            Err(EngineError::NoShare { .. }) => {
                // No share of nine digits suits: the exact ranges have next to nothing in common.
                let low = shares.iter().map(|(need, _, of)| *need as f64 / *of as f64).fold(0.0, f64::max);
                let high = shares.iter().map(|(_, most, of)| *most as f64 / *of as f64).fold(1.0, f64::min);
                assert!(high - low < 1e-8, "{seed}: {low} {high}");
                refused += 1;
            }
            Err(other) => panic!("{seed}: {other}"),
        }
    }
    assert!(said > 1000 && refused > 100, "{said} {refused}");
}

#[test]
fn forms_of_the_cache_are_named_or_refused_with_the_nearest() {
    let snapshot = three();
    let plan = plan(&mut Dice::new(1), 8, &[id("a", "CUDA0")]);
    let model = ServedModel { path: "m", context: CONTEXT };
    for cache_type in CacheType::ALL {
        let request = Request { cache_type_k: cache_type, cache_type_v: cache_type, ..Request::default() };
        let found = command(Server::Vllm, &plan, &snapshot, &request, &model);
        match cache_type {
            CacheType::F16 | CacheType::Bf16 => {
                assert_eq!(value(&found.unwrap().lines[0].words, "--kv-cache-dtype"), Some("auto"));
            }
            CacheType::Q8_0 => {
                assert_eq!(value(&found.unwrap().lines[0].words, "--kv-cache-dtype"), Some("fp8"));
            }
            _ => assert!(
                found.unwrap_err().to_string().contains("the nearest is --cache-type-k"),
                "{cache_type}"
            ),
        }
    }
    let two = Request { cache_type_k: CacheType::Q8_0, ..Request::default() };
    let error = command(Server::Vllm, &plan, &snapshot, &two, &model).unwrap_err().to_string();
    assert!(error.contains("q8_0 and f16"), "{error}");
}
