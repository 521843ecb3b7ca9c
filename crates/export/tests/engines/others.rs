//! mistral.rs, Petals and exo.

use std::collections::BTreeMap;

use plimsoll_export::exo::{self, RingModel};
use plimsoll_export::{EngineError, mistral_rs, petals};
use plimsoll_model::{Request, ResolvedContext};
use plimsoll_units::{Bytes, DeviceRef};
use serde_json::Value;

use crate::kit::{Dice, cluster, id, node, plan, three, value, variable};

fn cards(dice: &mut Dice, most: u64) -> Vec<DeviceRef> {
    let mut cards: Vec<DeviceRef> = (0..most).map(|c| id("a", &format!("CUDA{c}"))).collect();
    for at in (1..cards.len()).rev() {
        cards.swap(at, usize::try_from(dice.below(u64::try_from(at).unwrap() + 1)).unwrap());
    }
    cards.truncate(usize::try_from(dice.below(most)).unwrap() + 1);
    cards
}

/// The device of every layer, from a topology file.
fn topology(text: &str, layers: u32) -> Vec<Option<u32>> {
    let mut places = vec![None; usize::try_from(layers).unwrap()];
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks(2) {
        let (start, end) = pair[0].strip_suffix(':').unwrap().split_once('-').unwrap();
        let device = pair[1].strip_prefix("  device: ").unwrap();
        let number =
            device.strip_prefix("cuda[").map(|rest| rest.strip_suffix(']').unwrap().parse().unwrap());
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        places[start..end].fill(number);
    }
    places
}

#[test]
fn a_list_or_a_topology_for_mistral_rs_is_the_plan_again() {
    let snapshot = cluster(vec![node("a", None, 6)]);
    let (mut lists, mut files) = (0, 0);
    for seed in 0..2000 {
        let mut dice = Dice::new(seed);
        let layers = u32::try_from(dice.below(150)).unwrap() + 3;
        let mut devices = cards(&mut dice, 6);
        if dice.below(2) == 0 {
            let at = usize::try_from(dice.below(u64::try_from(devices.len()).unwrap())).unwrap() + 1;
            devices.insert(at, id("a", "host"));
        }
        let plan = plan(&mut dice, layers, &devices);
        let export = mistral_rs::export(&plan, &snapshot, &Request::default(), "m", false).unwrap();
        let words = &export.lines[0].words;
        let shown: Vec<&str> = variable(words, "CUDA_VISIBLE_DEVICES").unwrap().split(',').collect();
        let places = match value(words, "-n") {
            Some(list) => {
                lists += 1;
                mistral_rs::assign(list, layers).unwrap()
            }
            None => {
                files += 1;
                assert_eq!(value(words, "--topology"), Some(mistral_rs::FILE));
                topology(&export.files[0].text, layers)
            }
        };
        for stage in &plan.stages {
            for layer in stage.layers.clone() {
                let place = places[usize::try_from(layer).unwrap()];
                let device = match place {
                    None => id("a", "host"),
                    Some(number) => id("a", &format!("CUDA{}", shown[usize::try_from(number).unwrap()])),
                };
                assert_eq!(device, stage.device, "{seed}: {words:?}");
            }
        }
        assert_eq!(variable(words, "MISTRALRS_NO_NCCL").is_some(), shown.len() > 1, "{words:?}");
    }
    assert!(lists > 1000 && files > 200, "{lists} {files}");
}

#[test]
fn a_list_for_mistral_rs_has_its_traps() {
    // Blocks only, and no more than there are: 33 of 32 leaves nothing on the host, and not 2^64 - 1 layers.
    assert_eq!(mistral_rs::assign("0:33", 32), Some(vec![Some(0); 32]));
    // A single entry runs on the primary device, whatever it says.
    assert_eq!(mistral_rs::assign("1:2", 3), Some(vec![Some(0), Some(0), None]));
    assert_eq!(mistral_rs::assign("2", 3), Some(vec![Some(0), Some(0), None]));
    assert_eq!(mistral_rs::assign("1:1;0:1", 3), Some(vec![Some(1), Some(0), None]));
    assert_eq!(mistral_rs::assign("0:1;0:1", 3), None);
    assert_eq!(mistral_rs::assign("zero", 3), None);
}

#[test]
fn blocks_for_petals_cover_the_model_once() {
    let snapshot = three();
    for seed in 0..1500 {
        let mut dice = Dice::new(seed);
        let layers = u32::try_from(dice.below(150)).unwrap() + 1;
        let mut devices = cards(&mut dice, 4);
        devices.extend((0..dice.below(4)).map(|c| id("b", &format!("CUDA{c}"))));
        let plan = plan(&mut dice, layers, &devices);
        let context = ResolvedContext { total: 16_384, per_sequence: 8192, streams: 2 };
        let export = petals::export(&plan, &snapshot, &Request::default(), &context, "m").unwrap();
        assert_eq!(export.lines.len(), plan.stages.len());
        let mut next = 0;
        for (number, (line, stage)) in export.lines.iter().zip(&plan.stages).enumerate() {
            let (begin, end) = value(&line.words, "--block_indices").unwrap().split_once(':').unwrap();
            let (begin, end): (u32, u32) = (begin.parse().unwrap(), end.parse().unwrap());
            assert_eq!(begin, next, "{seed}");
            assert_eq!((&line.node, begin..end), (&stage.device.node, stage.layers.clone()));
            let card = variable(&line.words, "CUDA_VISIBLE_DEVICES").unwrap();
            assert_eq!(format!("CUDA{card}"), stage.device.device.as_str());
            assert_eq!(line.words.iter().any(|word| word == "--new_swarm"), number == 0);
            next = end;
        }
        assert_eq!(next, layers, "{seed}");
    }
}

#[test]
fn an_instance_for_exo_is_a_ring_over_all_layers() {
    let names = ["a", "b", "c", "d", "e"];
    for seed in 0..1500 {
        let mut dice = Dice::new(seed);
        let nodes = usize::try_from(dice.below(5)).unwrap() + 1;
        let snapshot = cluster(names.iter().map(|n| node(n, Some("10.0.0.9:1"), 1)).collect());
        let layers = u32::try_from(dice.below(100)).unwrap() + 5;
        let mut order: Vec<&str> = names.to_vec();
        order.rotate_left(usize::try_from(dice.below(5)).unwrap());
        let devices: Vec<DeviceRef> = order[..nodes].iter().map(|n| id(n, "CUDA0")).collect();
        let plan = plan(&mut dice, layers, &devices);
        let model = RingModel {
            id: "org/m",
            architecture: "llama",
            layers,
            bytes: Bytes::gib(9),
            embedding_length: 64,
        };
        let export = exo::export(&plan, &snapshot, &Request::default(), &model).unwrap();
        let file: Value = serde_json::from_str(&export.files[0].text).unwrap();
        let instance = &file["instance"]["MlxRingInstance"];
        let assigned = &instance["shard_assignments"];
        assert_eq!(assigned["model_id"], "org/m");
        // Through the node to its runner to its layers, in the order of the ranks.
        let mut ranks: BTreeMap<u64, (String, u64, u64)> = BTreeMap::new();
        for (node, runner) in assigned["node_to_runner"].as_object().unwrap() {
            let shard = &assigned["runner_to_shard"][runner.as_str().unwrap()]["PipelineShardMetadata"];
            assert_eq!(shard["world_size"].as_u64(), Some(u64::try_from(nodes).unwrap()));
            assert_eq!(shard["n_layers"].as_u64(), Some(u64::from(layers)));
            let number = |key: &str| shard[key].as_u64().unwrap();
            ranks.insert(number("device_rank"), (node.clone(), number("start_layer"), number("end_layer")));
        }
        let planned: Vec<(String, u64, u64)> = plan
            .stages
            .iter()
            .map(|s| (s.device.node.to_string(), u64::from(s.layers.start), u64::from(s.layers.end)))
            .collect();
        assert_eq!(ranks.into_values().collect::<Vec<_>>(), planned, "{seed}");
        for (rank, stage) in plan.stages.iter().enumerate() {
            let hosts = instance["hosts_by_node"][stage.device.node.as_str()].as_array().unwrap();
            for (other, host) in hosts.iter().enumerate() {
                let apart = (other + nodes - rank) % nodes;
                let ip = match apart {
                    0 => "0.0.0.0",
                    n if n == 1 || n == nodes - 1 => "10.0.0.9",
                    _ => "198.51.100.1",
                };
                assert_eq!(host["ip"], ip, "{seed}: {rank} sees {other} of {nodes}");
            }
        }
    }
}

#[test]
fn exo_runs_one_process_on_a_node_and_some_families_on_one_node() {
    let snapshot = three();
    let model = |architecture| RingModel {
        id: "m",
        architecture,
        layers: 8,
        bytes: Bytes::gib(1),
        embedding_length: 8,
    };
    let two_cards = plan(&mut Dice::new(1), 8, &[id("a", "CUDA0"), id("a", "CUDA1")]);
    let refused = exo::export(&two_cards, &snapshot, &Request::default(), &model("llama"));
    assert!(matches!(refused, Err(EngineError::SeveralOfNode { devices: 2, .. })), "{refused:?}");
    let two_nodes = plan(&mut Dice::new(1), 8, &[id("a", "CUDA0"), id("b", "CUDA1")]);
    let refused = exo::export(&two_nodes, &snapshot, &Request::default(), &model("gemma4_text"));
    assert!(matches!(refused, Err(EngineError::NoPipeline { .. })), "{refused:?}");
}
