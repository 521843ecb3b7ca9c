//! Checkpoints as transformers writes them, against the totals of the same models as GGUF.

use plimsoll_model::safetensors::Checkpoint;
use plimsoll_model::{
    ContextLength, EngineProfile, ModelFormat, ModelSpec, ModelWarning, Padding, Request, SpecError,
    TensorType,
};
use plimsoll_units::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::fixture::tensor;

/// A checkpoint with these tensors of 64 × 64 values in 16 bits.
fn checkpoint(config: &str, names: &[&str]) -> Checkpoint {
    let matrix = |name: &&str| tensor((*name).to_owned(), &[64, 64], TensorType::BF16);
    Checkpoint {
        config: Some(serde_json::from_str(config).expect("a config")),
        tensors: names.iter().map(matrix).collect(),
        missing_bytes: Bytes::ZERO,
        warnings: Vec::new(),
    }
}

const OUTSIDE: &[&str] = &["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"];

fn model(config: &str, names: &[&str]) -> ModelSpec {
    ModelSpec::from_checkpoint("toy", &checkpoint(config, names)).expect("a model")
}

fn of_total(cells: u64) -> Request {
    Request { context: Some(ContextLength::Total(cells)), ..Request::default() }
}

fn kv(spec: &ModelSpec, request: &Request) -> u64 {
    Bytes::saturating_sum(spec.layers(request).expect("layers").iter().map(|l| l.kv_bytes)).get()
}

#[test]
fn a_config_that_does_not_tell_the_size_of_a_recurrent_state_is_refused() {
    let missing = |kind: &str, layers: &[&str], more: &str| {
        let config = json!({ "model_type": kind, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "layer_types": layers });
        let text = config.to_string().replacen('{', &format!("{{{more}"), 1);
        match ModelSpec::from_checkpoint("toy", &checkpoint(&text, OUTSIDE)) {
            Err(SpecError::MissingKeys { missing, .. }) => missing,
            other => panic!("{other:?}"),
        }
    };
    let mixed = ["linear_attention", "full_attention"];
    assert_eq!(missing("qwen3_next", &mixed, ""), ["linear_conv_kernel_dim", "linear_key_head_dim"]);
    assert_eq!(missing("qwen3_next", &mixed, "\"linear_conv_kernel_dim\": 4,"), ["linear_key_head_dim"]);
    assert_eq!(missing("jamba", &["mamba", "attention"], ""), ["mamba_d_conv", "mamba_d_state"]);
    assert_eq!(missing("lfm2", &["conv", "full_attention"], ""), ["conv_L_cache"]);
}

#[test]
fn lightning_attention_keeps_a_square_matrix_for_each_head_where_the_config_says_so() {
    let common = |kind: &str, key: &str, value: serde_json::Value| {
        json!({ "model_type": kind, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 64, key: value })
        .to_string()
    };
    let kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"];
    for config in [
        common("minimax", "layer_types", json!(kinds)),
        common("minimax_text_01", "attn_type_list", json!([0, 0, 0, 1])),
    ] {
        let spec = model(&config, OUTSIDE);
        assert_eq!(spec.warnings(), [], "{config}");
        let kept = |sequences| {
            let request = Request { parallel: sequences, ..of_total(512 * u64::from(sequences)) };
            let layers = spec.layers(&request).expect("layers");
            layers.iter().map(|layer| layer.kv_bytes.get()).collect::<Vec<_>>()
        };
        let state = 4 * 32 * 32 * 4;
        assert_eq!(kept(1), [state, state, state, 512 * 64 * 2 * 2]);
        assert_eq!(kept(3), [3 * state, 3 * state, 3 * state, 3 * 512 * 64 * 2 * 2]);
    }
}

#[test]
fn the_config_of_a_model_tells_the_same_cache_as_its_gguf() {
    let configs = include_str!("../fixtures/configs.txt").lines().filter(|line| !line.starts_with('#'));
    let totals = include_str!("../fixtures/totals.txt").lines().filter(|line| !line.starts_with('#'));
    let mut compared = 0;
    for (config, totals) in configs.zip(totals) {
        let (name, config) = config.split_once(' ').expect("a name");
        let (same, numbers) = totals.split_once(' ').expect("a name");
        assert_eq!(name, same);
        let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().expect("a number")).collect();
        let spec = model(config, OUTSIDE);
        assert_eq!(spec.warnings(), [], "{name}");
        let per_token = spec.kv_bytes_per_token(&of_total(8192)).expect("a cost").get();
        let found = [per_token, kv(&spec, &of_total(8192)), kv(&spec, &of_total(32_768))];
        assert_eq!(found, numbers[8..11], "{name}");
        // A GGUF counts next-token blocks as well, a config does not.
        let nextn = if name == "glm-4.5" { 1 } else { 0 };
        assert_eq!(spec.layer_count() + nextn, usize::try_from(numbers[0]).expect("a count"), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 36);
}

const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 4096}"#;

#[test]
fn tensors_lie_with_their_layer_and_blocks_beyond_the_layers_are_next_token_blocks() {
    let names = [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.input_layernorm.weight",
        "model.layers.2.mlp.up_proj.weight",
        "model.norm.weight",
    ];
    let refused = ModelSpec::from_checkpoint("toy", &checkpoint(LLAMA, &names));
    assert!(matches!(refused, Err(SpecError::LayerOutOfRange { layer: 2, layers: 2, .. })), "{refused:?}");
    let spec = model(&LLAMA.replacen('{', "{\"num_nextn_predict_layers\": 1, ", 1), &names);
    assert_eq!((spec.format(), spec.name(), spec.architecture()), (ModelFormat::Safetensors, "toy", "llama"));
    assert_eq!((spec.layer_count(), spec.nextn_count()), (2, 1));
    let matrix = Bytes::kib(8);
    let bare = Request { engine: EngineProfile::NONE, ..of_total(512) };
    let footprint = spec.footprint(&bare, Padding::None).expect("a footprint");
    let weights: Vec<Bytes> = footprint.layers.iter().map(|l| l.weights_bytes).collect();
    assert_eq!(weights, [Bytes::kib(16), matrix]);
    // No output matrix: the embedding stands in.
    assert!(spec.is_tied());
    assert_eq!((footprint.input_bytes, footprint.head_beside_input_bytes), (matrix, matrix));
    assert_eq!(footprint.head_bytes, Bytes::kib(16));
    let classes = spec.class_bytes(0, Padding::None);
    assert_eq!((classes.attention, classes.ffn), (matrix, matrix));
    assert_eq!(spec.class_bytes(1, Padding::None).norms, matrix);
    assert_eq!(spec.dense_shape().map(|shape| shape.feed_forward_length), Some(64));
}

#[test]
fn what_sees_or_hears_counts_with_the_input_and_is_told_of() {
    let config = format!(r#"{{"model_type": "llava", "text_config": {LLAMA}}}"#);
    let vision = "vision_tower.encoder.layers.7.mlp.fc1.weight";
    let names = ["language_model.model.layers.1.mlp.up_proj.weight", vision];
    let spec = model(&config, &[OUTSIDE, &names].concat());
    assert_eq!((spec.architecture(), spec.layer_count(), spec.nextn_count()), ("llama", 2, 0));
    let (tensor, bytes) = (vision.to_owned(), Bytes::kib(8));
    assert_eq!(spec.warnings(), [ModelWarning::Unplaced { tensor, count: 1, bytes }]);
    let footprint = spec.footprint(&of_total(512), Padding::None).expect("a footprint");
    assert_eq!(footprint.input_bytes, Bytes::kib(16));
}

#[test]
fn windows_are_those_of_the_layer_types_and_may_be_switched_off() {
    let config = |more: &str| LLAMA.replace("llama", "qwen3").replacen('{', &format!("{{{more},"), 1);
    let bare = Request { engine: EngineProfile::NONE, ..of_total(4096) };
    let cells = |more: &str| {
        let spec = model(&config(more), OUTSIDE);
        let layers = spec.layers(&bare).expect("layers");
        layers.iter().map(|l| l.kv_bytes.get() / (2 * 16 * 2 * 2)).collect::<Vec<u64>>()
    };
    let types = r#""layer_types": ["sliding_attention", "full_attention"]"#;
    assert_eq!(cells(&format!(r#""sliding_window": 512, {types}"#)), [512, 4096]);
    assert_eq!(cells(r#""sliding_window": 512, "use_sliding_window": false"#), [4096, 4096]);
    assert_eq!(cells(r#""sliding_window": 512, "max_window_layers": 1"#), [4096, 512]);
    assert_eq!(cells(r#""sliding_window": null"#), [4096, 4096]);

    // llama.cpp reads no window for this family; others keep to it.
    let mistral = LLAMA.replace("llama", "mistral").replacen('{', r#"{"sliding_window": 512,"#, 1);
    let mistral = model(&mistral, OUTSIDE);
    assert_eq!(kv(&mistral, &bare) * 8, kv(&mistral, &of_total(4096)));
}

#[test]
fn configs_that_do_not_tell_enough_are_refused() {
    let error = |config: &str| {
        ModelSpec::from_checkpoint("toy", &checkpoint(config, OUTSIDE)).expect_err("refused").to_string()
    };
    assert_eq!(
        error(r#"{"model_type": "brandnew", "num_hidden_layers": 2}"#),
        "unknown architecture 'brandnew', and the header lacks 'hidden_size' and 'num_attention_heads' of the ordinary rule"
    );
    assert_eq!(
        error(r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64}"#),
        "the header of a 'llama' model lacks 'num_attention_heads'"
    );
    assert_eq!(error("{}"), "config.json has no 'model_type'");
    assert_eq!(error("[]"), SpecError::NoConfig.to_string());
    assert_eq!(
        error(&LLAMA.replace("\"num_key_value_heads\": 2", "\"num_key_value_heads\": [1, 2, 3]")),
        "key 'num_key_value_heads' lists 3 items for 2 layers"
    );
    assert_eq!(
        error(&LLAMA.replace("\"hidden_size\": 64", "\"hidden_size\": -64")),
        "key 'hidden_size' holds -64, not a count"
    );
    let lost = ["model.embed_tokens.weight", "model.layers.900.mlp.up_proj.weight"];
    let lost = ModelSpec::from_checkpoint("toy", &checkpoint(LLAMA, &lost)).expect_err("refused");
    assert!(matches!(lost, SpecError::LayerOutOfRange { layer: 900, layers: 2, .. }), "{lost}");
    let config = Checkpoint { config: None, ..checkpoint("{}", OUTSIDE) };
    assert_eq!(ModelSpec::from_checkpoint("toy", &config), Err(SpecError::NoConfig));

    let unknown = model(&LLAMA.replace("llama", "brandnew"), OUTSIDE);
    assert_eq!(unknown.warnings(), [ModelWarning::OrdinaryRule { architecture: "brandnew".to_owned() }]);
}

const KEYS: &[&str] = &[
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "head_dim",
    "global_head_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "sliding_window",
    "sliding_window_pattern",
    "attention_chunk_size",
    "layer_types",
    "hybrid_override_pattern",
    "full_attention_interval",
    "attn_layer_period",
    "attn_layer_offset",
    "mamba_d_conv",
    "mamba_expand",
    "state_size",
    "n_groups",
    "conv_L_cache",
    "block_configs",
    "num_kv_shared_layers",
    "max_window_layers",
    "text_config",
];

const FAMILIES: &[&str] = &[
    "llama",
    "gemma3_text",
    "gpt_oss",
    "qwen2",
    "jamba",
    "nemotron_h",
    "lfm2",
    "falcon_h1",
    "mamba",
    "bert",
    "minicpm3",
    "new",
];

fn fact() -> impl Strategy<Value = Json> {
    let count = (0_u64..9, prop::sample::select(vec![1_u64, 32])).prop_map(|(n, step)| json!(n * step));
    let odd = prop_oneof![
        any::<u64>().prop_map(|n| json!(n)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|x| json!(x)),
        Just(Json::Null),
        Just(json!({})),
        Just(json!("M*-E")),
        Just(json!(["mamba", "full_attention", "sliding_attention", "conv"])),
        Just(json!([1, null, 2, 0])),
        Just(json!([{"attention": {"n_heads_in_group": 0}}, {"attention": null}, {}, 1])),
    ];
    prop_oneof![3 => count, 1 => odd]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_config_panics_and_no_tensor_is_lost(
        family in prop::sample::select(FAMILIES),
        facts in prop::collection::btree_map(prop::sample::select(KEYS), fact(), 0..10),
        block in 0_u64..6,
    ) {
        let mut config = json!({
            "model_type": family, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
        });
        for (key, value) in facts {
            config[key] = value;
        }
        let name = format!("model.layers.{block}.mlp.up_proj.weight");
        let checkpoint = checkpoint(&config.to_string(), &[OUTSIDE, &[&name]].concat());
        let Ok(spec) = ModelSpec::from_checkpoint("toy", &checkpoint) else { return Ok(()) };
        prop_assert_eq!(spec.file_bytes(), Bytes::kib(32));
        for engine in [EngineProfile::LLAMA_CPP, EngineProfile::NONE] {
            let request = Request { engine, ..of_total(4096) };
            let Ok(layers) = spec.layers(&request) else { continue };
            prop_assert_eq!(layers.len(), spec.layer_count());
        }
    }
}
