//! Plans for engines other than llama.cpp: what they can carry out, and what they are refused with.
#![cfg(all(feature = "files", feature = "safetensors"))]
#![cfg_attr(
    all(feature = "files", feature = "safetensors"),
    expect(clippy::unwrap_used, reason = "a test that cannot go on stops")
)]

use plimsoll::balance::PlanOptions;
use plimsoll::cluster::ClusterSnapshot;
use plimsoll::cluster::file::parse_cluster;
use plimsoll::export::{EngineError, PlanFile};
use plimsoll::model::safetensors::Checkpoint;
use plimsoll::model::{ContextLength, ModelSpec, Padding, Request, Tensor, TensorType};
use plimsoll::units::Bytes;
use plimsoll::{Engine, Job, JobError, Planned, check, rebalance};

/// A dense model of so many layers of 64 MiB, with these heads of 128 values.
fn model(layers: u32, heads: u64, kv_heads: u64) -> ModelSpec {
    let config = config(layers, heads, kv_heads);
    let mut tensors = Vec::new();
    let mut add = |name: String, rows: u64, bytes: u64| {
        tensors.push(Tensor {
            name,
            dims: vec![bytes / 2 / rows, rows],
            kind: TensorType::BF16,
            bytes: Bytes::new(bytes),
        });
    };
    add("model.embed_tokens.weight".into(), 1024, 64 << 20);
    add("model.norm.weight".into(), 1, 8192);
    add("lm_head.weight".into(), 1024, 64 << 20);
    for layer in 0..layers {
        for (part, bytes) in [
            ("input_layernorm.weight", 8192),
            ("self_attn.q_proj.weight", 16 << 20),
            ("self_attn.k_proj.weight", 4 << 20),
            ("self_attn.v_proj.weight", 4 << 20),
            ("self_attn.o_proj.weight", 16 << 20),
            ("mlp.up_proj.weight", 24 << 20),
        ] {
            add(format!("model.layers.{layer}.{part}"), 1, bytes);
        }
    }
    let checkpoint = Checkpoint { config: Some(config), tensors, ..Checkpoint::default() };
    ModelSpec::from_checkpoint("toy", &checkpoint).unwrap()
}

fn config(layers: u32, heads: u64, kv_heads: u64) -> serde_json::Value {
    serde_json::json!({ "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": layers, "head_dim": 128,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": 8192, "vocab_size": 32000,
        "max_position_embeddings": 8192 })
}

fn rack(cards: &[&str]) -> ClusterSnapshot {
    let mut text = "[[node]]\nid = \"rack\"\nmemory = \"64GiB\"\n".to_owned();
    for (number, memory) in cards.iter().enumerate() {
        text.push_str(&format!(
            "[[node.device]]\nid = \"CUDA{number}\"\nbackend = \"cuda\"\nbandwidth = \"900GB/s\"\nmemory = \"{memory}\"\n"
        ));
    }
    parse_cluster(&text).unwrap().snapshot
}

fn request(ranks: u32) -> Request {
    Request { context: Some(ContextLength::PerSequence(4096)), ranks, ..Request::default() }
}

fn plan(
    model: &ModelSpec,
    snapshot: &ClusterSnapshot,
    engine: Engine,
    ranks: u32,
) -> Result<Planned, JobError> {
    Job::new(model, snapshot, engine, request(ranks), PlanOptions::default()).plan()
}

#[test]
fn keys_and_values_are_shared_out_by_heads_and_copied_beyond_them() {
    let model = model(64, 32, 8);
    let kv = |ranks: u32| {
        let request = Request { engine: Engine::Vllm.profile(), ..request(ranks) };
        let footprint = model.footprint(&request, Padding::None).unwrap();
        Bytes::saturating_sum(footprint.layers.iter().map(|layer| layer.kv_bytes)).get() / 4096
    };
    // 64 layers, 8 heads of 128 values of 2 bytes, keys and values.
    assert_eq!([1, 2, 4, 8, 16].map(kv), [262_144, 131_072, 65_536, 32_768, 32_768]);
    // What blocks of 16 tokens a rank's memory holds: a quarter of them if a rank were charged for all heads.
    let blocks = |ranks: u32| Bytes::mib(3258).get() / (16 * kv(ranks));
    assert_eq!((blocks(4), blocks(1)), (3258, 814));
    // Weights: a quarter of all but the norm; keys and values of 8 heads on 16 ranks an eighth.
    let weights =
        |ranks: u32| model.footprint(&request(ranks), Padding::None).unwrap().layers[0].weights_bytes.get();
    assert_eq!(weights(1), 8192 + (64 << 20));
    assert_eq!(weights(4), 8192 + (16 << 20));
    assert_eq!(weights(16), 8192 + (56 << 20) / 16 + (8 << 20) / 8);
}

#[test]
fn heads_that_do_not_divide_are_refused_with_the_nearest() {
    let model = model(8, 32, 8);
    let error = plan(&model, &rack(&["24GiB", "24GiB", "24GiB"]), Engine::Vllm, 3).unwrap_err();
    assert!(
        matches!(error, JobError::Engine(EngineError::Heads { heads: 32, ranks: 3, nearest: 1, .. })),
        "{error}"
    );
    assert!(error.to_string().contains("--tensor-parallel 1, and 3 stages"), "{error}");
    let error = plan(&model, &rack(&["24GiB"]), Engine::Vllm, 2).unwrap_err();
    assert!(matches!(error, JobError::Engine(EngineError::NoEqualDevices { ranks: 2, most: 1 })), "{error}");
    let error = plan(&model, &rack(&["24GiB", "24GiB"]), Engine::Accelerate, 2).unwrap_err();
    assert!(matches!(error, JobError::Engine(EngineError::NoTensorParallel { .. })), "{error}");
}

#[test]
fn a_rank_is_several_equal_devices_and_its_plan_can_be_checked() {
    let model = model(32, 32, 8);
    // Two pairs: the odd card is left out.
    let snapshot = rack(&["5GiB", "5GiB", "6GiB", "5GiB", "5GiB"]);
    let planned = plan(&model, &snapshot, Engine::Vllm, 2).unwrap();
    let export = planned.export("dir", &snapshot).unwrap().unwrap();
    let line = export.lines[0].to_string();
    assert!(line.contains("--tensor-parallel-size 2"), "{line}");
    let names: Vec<&str> = planned.plan.stages.iter().map(|stage| stage.device.device.as_str()).collect();
    assert!(names.iter().all(|name| ["CUDA0+CUDA1", "CUDA3+CUDA4"].contains(name)), "{names:?}");
    let file = planned.to_file_with(Some(&export), "dir").unwrap();
    let file = PlanFile::parse(&file.to_text().unwrap()).unwrap();
    assert_eq!(check(&file, &snapshot).unwrap().broken, []);
    assert_eq!(file.request.engine.version, "0.12");
}

#[test]
fn one_share_for_unlike_cards_is_found_by_planning_again() {
    let model = model(40, 32, 8);
    // Alone, the small one would be full and the large one not.
    let snapshot = rack(&["24GiB", "3GiB", "3500MiB"]);
    for engine in [Engine::Vllm, Engine::Sglang] {
        let planned = plan(&model, &snapshot, engine, 1).unwrap();
        let export = planned.export("dir", &snapshot).unwrap().unwrap();
        assert_eq!(export.lines.len(), 1, "{engine}");
    }
}

#[test]
fn saved_plans_of_every_engine_are_checked_and_moved() {
    let model = model(24, 32, 8);
    let before = rack(&["4GiB", "4GiB", "4GiB"]);
    for engine in [Engine::Vllm, Engine::Sglang, Engine::MistralRs, Engine::Accelerate, Engine::Petals] {
        let planned = plan(&model, &before, engine, 1).unwrap();
        let export = planned.export("dir", &before).unwrap().unwrap();
        let text = planned.to_file_with(Some(&export), "dir").unwrap().to_text().unwrap();
        let file = PlanFile::parse(&text).unwrap();
        assert_eq!(check(&file, &before).unwrap().broken, [], "{engine}");
        assert_eq!(file.model_path().as_deref(), Some("dir"), "{engine}");
        let moved = rebalance(&file, &before, &plimsoll::balance::RebalanceOptions::default()).unwrap();
        assert_eq!(moved.planned.engine, engine);
        assert_eq!(moved.export.unwrap().lines, export.lines, "{engine}: nothing has changed");
    }
}

#[test]
fn mistral_rs_begins_on_its_first_device_and_ends_on_the_host() {
    let model = model(40, 32, 8);
    let snapshot = rack(&["2500MiB"]);
    let planned = plan(&model, &snapshot, Engine::MistralRs, 1).unwrap();
    let places: Vec<&str> = planned.plan.stages.iter().map(|stage| stage.device.device.as_str()).collect();
    assert_eq!(places, ["CUDA0", "host"]);
    // Embedding and output matrix are charged to the first device.
    assert!(planned.plan.stages[0].overhead_bytes.get() > 128 << 20);
    let export = planned.export("dir", &snapshot).unwrap().unwrap();
    let on_card = planned.plan.stages[0].layers.end;
    assert!(export.lines[0].words.contains(&format!("0:{on_card}")), "{:?}", export.lines[0].words);
}

#[test]
fn an_engine_of_one_node_refuses_plans_over_two() {
    let model = model(24, 32, 8);
    let two = parse_cluster(
        "[[node]]\nid = \"a\"\n[[node.device]]\nid = \"CUDA0\"\nbackend = \"cuda\"\nmemory = \"24GiB\"\n\
         [[node]]\nid = \"b\"\n[[node.device]]\nid = \"CUDA0\"\nbackend = \"cuda\"\nmemory = \"24GiB\"\n",
    )
    .unwrap()
    .snapshot;
    let options = PlanOptions { objective: plimsoll::balance::Objective::Balanced, ..PlanOptions::default() };
    let job = Job::new(&model, &two, Engine::Accelerate, request(1), options);
    let error = job.plan().unwrap_err();
    assert!(error.to_string().contains("runs on one node and the plan uses 2"), "{error}");
}

#[test]
fn the_older_rule_keeps_the_head_beside_layers_on_the_host() {
    use plimsoll::export::llama_cpp::{Place, older_assign};
    let model = model(40, 32, 8);
    for (cards, partial) in [(&["2500MiB", "2500MiB"][..], true), (&["24GiB"][..], false)] {
        let snapshot = rack(cards);
        let planned = plan(&model, &snapshot, Engine::IkLlamaCpp, 1).unwrap();
        let stages = &planned.plan.stages;
        let on_host = stages.iter().any(|s| s.device.device.as_str() == "host" && !s.layers.is_empty());
        assert_eq!(on_host, partial);
        // The head is counted where the engine puts it.
        let head = planned.workload.footprints[0].head_bytes;
        assert_eq!(head.is_zero(), partial);
        let on_cards: Vec<u16> = stages
            .iter()
            .filter(|s| s.device.device.as_str() != "host")
            .map(|s| u16::try_from(s.layers.end - s.layers.start).unwrap())
            .collect();
        let layers = on_cards.iter().map(|n| u32::from(*n)).sum::<u32>() + u32::from(!partial);
        let split: Vec<f32> = on_cards.iter().map(|n| f32::from(*n)).collect();
        assert_eq!(older_assign(40, layers, &split).last() == Some(&Place::Host), partial);
        let file = planned.to_file(None).unwrap();
        assert_eq!(plimsoll::digest_for(&model, &file).unwrap(), file.model.digest);
    }
}
