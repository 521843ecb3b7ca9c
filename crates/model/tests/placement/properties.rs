//! What holds for every header and every request.

use plimsoll_model::{
    CacheType, ContextLength, EngineProfile, FlashAttention, GgufHeader, ModelSpec, Padding, Request,
    TensorType, Value,
};
use plimsoll_units::Bytes;
use proptest::prelude::*;

use crate::fixture::tensor;

/// Types of a cache, each at least as wide as the one before.
const WIDER: [CacheType; 6] =
    [CacheType::Q4_0, CacheType::Q5_0, CacheType::Q5_1, CacheType::Q8_0, CacheType::F16, CacheType::F32];

const ARCHITECTURES: &[&str] = &[
    "llama",
    "gemma2",
    "gemma3n",
    "exaone4",
    "llada",
    "minimax-01",
    "gemma4",
    "gpt-oss",
    "llama4",
    "smallthinker",
    "deepseek2",
    "mamba",
    "rwkv7",
    "jamba",
    "nemotron_h",
    "qwen3next",
    "falcon-h1",
    "lfm2",
    "kimi-linear",
    "bert",
    "glm4moe",
    "brandnew",
];

const KEYS: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.key_length_mla",
    "attention.indexer.key_length",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.shared_kv_layers",
    "attention.recurrent_layers",
    "full_attention_interval",
    "feed_forward_length",
    "embedding_length",
    "context_length",
    "nextn_predict_layers",
    "expert_count",
    "expert_used_count",
    "ssm.conv_kernel",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.group_count",
    "wkv.head_size",
    "shortconv.l_cache",
    "kda.head_dim",
];

/// Mostly counts that make sense, sometimes anything.
fn value() -> impl Strategy<Value = Value> {
    let count =
        (0_u64..9, prop::sample::select(vec![1_u64, 32, 64])).prop_map(|(n, step)| Value::Unsigned(n * step));
    let flags = prop::collection::vec(any::<bool>().prop_map(Value::Bool), 4).prop_map(Value::List);
    let list = prop::collection::vec((0_u64..9).prop_map(Value::Unsigned), 4..6).prop_map(Value::List);
    let odd = prop_oneof![
        any::<u64>().prop_map(Value::Unsigned),
        any::<i64>().prop_map(Value::Signed),
        any::<bool>().prop_map(Value::Bool),
        any::<u64>().prop_map(|len| Value::Skipped { len }),
    ];
    prop_oneof![40 => count, 2 => list, 2 => flags, 1 => odd]
}

fn header() -> impl Strategy<Value = GgufHeader> {
    let facts = prop::collection::vec((prop::sample::select(KEYS), value()), 0..8);
    let kinds = [TensorType::F32, TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];
    let names = ["attn_q", "attn_k", "attn_norm", "ffn_up", "ffn_up_exps", "ssm_in"];
    let tensors = prop::collection::vec(
        (
            0_u64..4,
            prop::sample::select(names.to_vec()),
            1_u64..40,
            1_u64..9,
            prop::sample::select(kinds.to_vec()),
        ),
        0..12,
    );
    (prop::sample::select(ARCHITECTURES), facts, tensors).prop_map(|(architecture, facts, tensors)| {
        let key = |key: &str| format!("{architecture}.{key}");
        let mut header = GgufHeader::default();
        for (name, n) in [("block_count", 4), ("embedding_length", 128), ("attention.head_count", 4)] {
            header.metadata.insert(key(name), Value::Unsigned(n));
        }
        header.metadata.extend(facts.into_iter().map(|(name, value)| (key(name), value)));
        header.metadata.insert("general.architecture".to_owned(), Value::Text(architecture.to_owned()));
        for (block, name, width, rows, kind) in tensors {
            header.tensors.push(tensor(format!("blk.{block}.{name}.weight"), &[width * 32, rows], kind));
        }
        header.tensors.push(tensor("token_embd.weight".to_owned(), &[96, 7], TensorType::Q8_0));
        header.tensors.push(tensor("output_norm.weight".to_owned(), &[33], TensorType::F32));
        header.tensors.push(tensor("rope_freqs.weight".to_owned(), &[16], TensorType::F32));
        header
    })
}

fn request() -> impl Strategy<Value = Request> {
    let length = prop_oneof![9 => 0_u64..100_000, 1 => any::<u64>()];
    let context = (any::<bool>(), length).prop_map(|(total, n)| match total {
        true => ContextLength::Total(n),
        false => ContextLength::PerSequence(n),
    });
    let flash = prop::sample::select(&[FlashAttention::On, FlashAttention::Off, FlashAttention::Auto][..]);
    let cache = || prop_oneof![3 => Just(CacheType::F16), 1 => prop::sample::select(&CacheType::ALL[..])];
    let engines = [EngineProfile::LLAMA_CPP, EngineProfile::VLLM, EngineProfile::SGLANG, EngineProfile::NONE];
    let engine = prop::sample::select(engines.to_vec());
    let batch = || prop_oneof![9 => 1_u32..5000, 1 => any::<u32>()];
    let flags = (any::<bool>(), any::<bool>());
    let parts = (
        prop::option::weighted(0.9, context),
        0_u32..9,
        flags,
        cache(),
        cache(),
        flash,
        batch(),
        batch(),
        engine,
    );
    parts.prop_map(
        |(
            context,
            parallel,
            (unified_kv, full_window),
            k,
            v,
            flash_attention,
            micro_batch,
            batch,
            engine,
        )| {
            Request {
                context,
                parallel,
                unified_kv,
                cache_type_k: k,
                cache_type_v: v,
                flash_attention,
                micro_batch,
                batch,
                full_window,
                ranks: 1,
                engine,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn no_header_and_no_request_panics_and_no_tensor_is_lost(header in header(), request in request()) {
        let Ok(spec) = ModelSpec::from_gguf(&header) else { return Ok(()) };
        prop_assert_eq!(spec.file_bytes(), Bytes::saturating_sum(header.tensors.iter().map(|t| t.bytes)));
        let Ok(bare) = spec.footprint(&request, Padding::None) else { return Ok(()) };
        prop_assert_eq!(bare.layers.len(), spec.layer_count());
        let parts = bare.layers.iter().map(|l| l.weights_bytes).chain([
            bare.input_bytes, bare.head_beside_input_bytes, bare.each_device_bytes, spec.nextn_bytes(Padding::None),
        ]);
        prop_assert_eq!(Bytes::saturating_sum(parts), spec.file_bytes());
        for padding in [Padding::Cpu, Padding::Cuda] {
            let padded = spec.footprint(&request, padding).expect("padding refuses nothing of this size");
            prop_assert_eq!(padded.context, bare.context);
            prop_assert!(padded.head_bytes >= bare.head_bytes && padded.input_bytes >= bare.input_bytes);
            for (padded, bare) in padded.layers.iter().zip(&bare.layers) {
                prop_assert!(padded.weights_bytes >= bare.weights_bytes && padded.kv_bytes >= bare.kv_bytes);
                prop_assert!(padded.read_bytes <= padded.weights_bytes);
                let step = if padding == Padding::Cpu { 32 } else { 128 };
                prop_assert!(padded.weights_bytes.get() % step == 0 && padded.kv_bytes.get() % step == 0);
            }
        }
    }

    #[test]
    fn more_context_and_more_sequences_never_take_less(header in header(), request in request(), more in 0_u64..5000) {
        let Ok(spec) = ModelSpec::from_gguf(&header) else { return Ok(()) };
        let (Ok(layers), Some(length)) = (spec.layers(&request), request.context) else { return Ok(()) };
        let longer = match length {
            ContextLength::Total(n) => ContextLength::Total(n.saturating_add(more)),
            ContextLength::PerSequence(n) => ContextLength::PerSequence(n.saturating_add(more)),
        };
        let longer = Request { context: Some(longer), ..request };
        for request in [longer, Request { parallel: request.parallel + 1, ..request }] {
            // A total that is shared by more sequences leaves less for each, and may leave less in all.
            if matches!(length, ContextLength::Total(_)) && request.parallel > 1 && !request.unified_kv {
                continue;
            }
            let Ok(larger) = spec.layers(&request) else { continue };
            for (larger, layer) in larger.iter().zip(&layers) {
                prop_assert!(larger.kv_bytes >= layer.kv_bytes, "{larger:?} {layer:?}");
            }
        }
    }

    #[test]
    fn a_wider_cache_never_takes_less(header in header(), request in request(), keys in any::<bool>()) {
        let Ok(spec) = ModelSpec::from_gguf(&header) else { return Ok(()) };
        let mut least = vec![Bytes::ZERO; spec.layer_count()];
        for kind in WIDER {
            let one = if keys {
                Request { cache_type_k: kind, ..request }
            } else {
                Request { cache_type_v: kind, ..request }
            };
            // Compressed keys hold the values, so that both have one form.
            let both = Request { cache_type_k: kind, cache_type_v: kind, ..request };
            let asked = if spec.has_latent_attention() { both } else { one };
            let Ok(layers) = spec.layers(&asked) else { continue };
            for (layer, least) in layers.iter().zip(&mut least) {
                prop_assert!(layer.kv_bytes >= *least, "{kind} {layer:?} {least}");
                *least = layer.kv_bytes;
            }
        }
    }

    /// Whatever lies where, all devices together hold the file: a tied matrix once more where it is copied, and small
    /// tensors once for each device that has a layer.
    #[test]
    fn devices_together_hold_the_file_and_the_copies(
        header in header(),
        cuts in prop::collection::vec(0_usize..5, 0..4),
        head_on_host in any::<bool>(),
    ) {
        let Ok(spec) = ModelSpec::from_gguf(&header) else { return Ok(()) };
        let request = Request { context: Some(ContextLength::Total(512)), ..Request::default() };
        let Ok(bare) = spec.footprint(&request, Padding::None) else { return Ok(()) };
        let mut bounds: Vec<usize> = cuts.iter().map(|&cut| cut.min(bare.layers.len())).collect();
        bounds.extend([0, bare.layers.len()]);
        bounds.sort_unstable();
        let stages: Vec<_> = bounds.windows(2).map(|pair| &bare.layers[pair[0]..pair[1]]).collect();
        let head = if head_on_host { bare.head_beside_input_bytes } else { bare.head_bytes };
        let on_devices = stages.iter().filter(|stage| !stage.is_empty()).map(|stage| {
            let layers = Bytes::saturating_sum(stage.iter().map(|layer| layer.weights_bytes));
            layers.saturating_add(bare.each_device_bytes)
        });
        let held = Bytes::saturating_sum(on_devices.chain([bare.input_bytes, head]));
        let used = stages.iter().filter(|stage| !stage.is_empty()).count();

        let by_name = |name: &str| -> u64 {
            header.tensors.iter().filter(|t| t.name == name).map(|t| t.bytes.get()).sum()
        };
        let copied = if spec.is_tied() && !head_on_host { by_name("token_embd.weight") } else { 0 };
        let everywhere = by_name("rope_freqs.weight");
        let in_file = spec.file_bytes().get() - spec.nextn_bytes(Padding::None).get() - everywhere;
        prop_assert_eq!(held.get(), in_file + copied + everywhere * used as u64);
    }
}
