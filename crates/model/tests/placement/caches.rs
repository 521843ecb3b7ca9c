//! What layers keep, in situations with known answers.

use plimsoll_model::{CacheType, ContextLength, EngineProfile, EstimateError, ModelSpec, Request, Value};
use plimsoll_units::Bytes;

use crate::hand::{ctx, footprint, hybrid, kv, list, llama, model, n};

#[test]
fn sliding_layers_keep_their_window_and_their_own_heads() {
    let slides = |i: u64| i % 6 != 5;
    let spec = model(
        "gemma4",
        &[
            ("block_count", n(30)),
            ("embedding_length", n(2816)),
            ("attention.head_count", n(16)),
            ("attention.head_count_kv", list((0..30).map(|i| if slides(i) { 8 } else { 2 }))),
            ("attention.key_length", n(512)),
            ("attention.value_length", n(512)),
            ("attention.key_length_swa", n(256)),
            ("attention.value_length_swa", n(256)),
            ("attention.sliding_window", n(1024)),
            (
                "attention.sliding_window_pattern",
                Value::List((0..30).map(|i| Value::Bool(slides(i))).collect()),
            ),
        ],
    );
    assert_eq!(spec.warnings(), []);
    for (tokens, bytes) in
        [(4096, 398_458_880), (8192, 482_344_960), (32_768, 985_661_440), (131_072, 2_998_927_360)]
    {
        assert_eq!(kv(&spec, &ctx(tokens)), bytes, "{tokens}");
        assert_eq!(bytes, 5 * tokens * 4096 + 25 * tokens.min(1536) * 8192);
    }
    // Asked to keep the whole window, or without an engine, it is more or less.
    let full = Request { full_window: true, ..ctx(32_768) };
    assert_eq!(kv(&spec, &full), 5 * 32_768 * 4096 + 25 * 32_768 * 8192);
    let bare = Request { engine: EngineProfile::NONE, ..ctx(32_768) };
    assert_eq!(kv(&spec, &bare), 5 * 32_768 * 4096 + 25 * 1024 * 8192);
}

#[test]
fn keys_and_values_of_different_types_count_each_for_themselves() {
    // 62 layers, every sixth whole, 16 heads of 128 values.
    let spec = model(
        "gemma3",
        &[
            ("block_count", n(62)),
            ("embedding_length", n(5376)),
            ("attention.head_count", n(32)),
            ("attention.head_count_kv", n(16)),
            ("attention.key_length", n(128)),
            ("attention.value_length", n(128)),
            ("attention.sliding_window", n(1024)),
        ],
    );
    let request = Request { cache_type_k: CacheType::Q8_0, ..ctx(128_000) };
    assert_eq!(kv(&spec, &request), 8_529_117_184);
}

#[test]
fn only_the_attending_layers_of_a_hybrid_grow_with_the_context() {
    let state = [
        ("ssm.conv_kernel", n(4)),
        ("ssm.inner_size", n(6144)),
        ("ssm.state_size", n(128)),
        ("ssm.group_count", n(16)),
    ];
    let with = |more: &[(&'static str, Value)]| [&state[..], more].concat();
    let spec = hybrid("qwen35", 65, 4, &with(&[("full_attention_interval", n(4))]));
    let layers = footprint(&spec, &ctx(262_144)).layers;
    let recurrent = Bytes::new(4 * (3 * (6144 + 2 * 16 * 128) + 128 * 6144));
    let attending: Vec<_> = layers.iter().filter(|l| l.kv_bytes != recurrent).collect();
    assert_eq!(attending.len(), 16);
    assert_eq!(Bytes::saturating_sum(attending.iter().map(|l| l.kv_bytes)), Bytes::gib(16));
    assert!(attending.iter().all(|l| l.index % 4 == 3));

    let small = hybrid("qwen35", 40, 2, &with(&[("full_attention_interval", n(4))]));
    let grows = |tokens| kv(&small, &ctx(tokens));
    assert_eq!((grows(4096) - grows(2048)) / (2048 / 64), Bytes::kib(1280).get());

    // A list wins over the interval; with neither, every layer attends.
    let all_but_one = Value::List((0..40).map(|i| Value::Bool(i > 0)).collect());
    let told = [("full_attention_interval", n(4)), ("attention.recurrent_layers", all_but_one)];
    let told = hybrid("qwen35", 40, 2, &with(&told));
    assert_eq!(told.kv_bytes_per_token(&ctx(512)).expect("a cost"), Bytes::new(2 * 256 * 2 * 2));
    let plain = hybrid("qwen35", 40, 2, &with(&[]));
    assert_eq!(plain.kv_bytes_per_token(&ctx(512)).expect("a cost"), Bytes::new(40 * 2 * 256 * 2 * 2));
    assert!(!plain.has_recurrent_layers());
}

#[test]
fn a_recurrent_state_is_kept_for_every_sequence_in_32_bits() {
    let spec = model(
        "mamba",
        &[
            ("block_count", n(64)),
            ("embedding_length", n(2560)),
            ("ssm.conv_kernel", n(4)),
            ("ssm.inner_size", n(5120)),
            ("ssm.state_size", n(16)),
        ],
    );
    let one = 64 * 4 * (3 * 5120 + 16 * 5120);
    for (parallel, unified_kv, cache) in [(1, false, CacheType::F16), (4, true, CacheType::Q4_0)] {
        let request =
            Request { parallel, unified_kv, cache_type_k: cache, cache_type_v: cache, ..Request::default() };
        assert_eq!(kv(&spec, &request), one * u64::from(parallel));
    }
    assert_eq!(spec.head_count(), 0);
    assert_eq!(spec.dense_shape(), None);
}

#[test]
fn layers_without_heads_keep_nothing() {
    let without = |i: u64| matches!(i, 6 | 7 | 11 | 42..=51 | 53..=70);
    let heads = |h: u64| list((0..80).map(move |i| if without(i) { 0 } else { h }));
    let spec = model(
        "deci",
        &[
            ("block_count", n(80)),
            ("embedding_length", n(8192)),
            ("attention.head_count", heads(64)),
            ("attention.head_count_kv", heads(8)),
        ],
    );
    let layers = footprint(&spec, &ctx(32_768)).layers;
    assert_eq!(layers.iter().filter(|l| !l.kv_bytes.is_zero()).count(), 49);
    let sum = |range: std::ops::Range<usize>| Bytes::saturating_sum(layers[range].iter().map(|l| l.kv_bytes));
    assert_eq!(sum(0..80), Bytes::mib(6272));
    assert_eq!((sum(0..40), sum(40..80)), (Bytes::mib(4736), Bytes::mib(1536)));
}

#[test]
fn parallel_sequences_multiply_the_context_unless_they_share_it() {
    let spec = llama();
    let request = Request { parallel: 4, ..ctx(32_768) };
    let separate = footprint(&spec, &request).context;
    assert_eq!((separate.total, separate.per_sequence, separate.streams), (131_072, 32_768, 4));
    assert_eq!(kv(&spec, &request), Bytes::gib(16).get());
    let unified = Request { unified_kv: true, ..request };
    let shared = footprint(&spec, &unified).context;
    assert_eq!((shared.total, shared.per_sequence, shared.streams), (32_768, 32_768, 1));
    assert_eq!(kv(&spec, &unified), Bytes::gib(4).get());
    let total = Request { context: Some(ContextLength::Total(32_768)), ..request };
    assert_eq!(kv(&spec, &total), Bytes::gib(4).get());
}

#[test]
fn contexts_are_padded_as_the_engine_does_and_not_at_all_without_one() {
    let spec = llama();
    let request = Request { parallel: 4, ..ctx(5000) };
    let context = |request: &Request| spec.context(request).expect("a context");
    assert_eq!((context(&request).total, context(&request).per_sequence), (20_480, 5120));
    let bare = Request { engine: EngineProfile::NONE, ..request };
    assert_eq!((context(&bare).total, context(&bare).per_sequence), (20_000, 5000));
    let untold = Request { context: None, ..request };
    assert_eq!(context(&untold).per_sequence, 8192);
}

#[test]
fn latent_attention_keeps_keys_alone() {
    let facts = [
        ("block_count", n(61)),
        ("embedding_length", n(7168)),
        ("attention.head_count", n(128)),
        ("attention.head_count_kv", n(1)),
        ("attention.key_length", n(576)),
        ("attention.value_length", n(512)),
        ("attention.key_length_mla", n(192)),
        ("attention.value_length_mla", n(128)),
    ];
    let spec = model("deepseek2", &facts);
    assert_eq!(kv(&spec, &ctx(4096)), 61 * 4096 * 576 * 2);
    let mixed = Request { cache_type_k: CacheType::Q8_0, ..ctx(4096) };
    assert_eq!(
        spec.layers(&mixed),
        Err(EstimateError::LatentTypesDiffer { keys: CacheType::Q8_0, values: CacheType::F16 })
    );
    // With the keys that choose tokens, those are kept beside.
    let sparse = [&facts[..], &[("attention.indexer.key_length", n(128))]].concat();
    assert_eq!(kv(&model("deepseek32", &sparse), &ctx(4096)), 61 * 4096 * (576 + 128) * 2);
}

#[test]
fn layers_that_share_the_cache_of_earlier_ones_keep_none() {
    let facts = [
        ("block_count", n(30)),
        ("embedding_length", n(2048)),
        ("attention.head_count", n(8)),
        ("attention.head_count_kv", n(2)),
        ("attention.key_length", n(256)),
        ("attention.value_length", n(256)),
        ("attention.sliding_window", n(512)),
    ];
    let kept = |spec: &ModelSpec| {
        footprint(spec, &ctx(4096)).layers.iter().take_while(|l| !l.kv_bytes.is_zero()).count()
    };
    assert_eq!(kept(&model("gemma3n", &facts)), 20);
    // The engine counts these layers itself, whatever the header tells; of other architectures it believes the header.
    let told = [&facts[..], &[("attention.shared_kv_layers", n(12))]].concat();
    assert_eq!(kept(&model("gemma3n", &told)), 20);
    assert_eq!(kept(&model("gemma4", &told)), 18);
}

#[test]
fn a_micro_batch_is_no_larger_than_the_batch_and_the_batch_no_larger_than_the_context() {
    let spec = model(
        "gpt-oss",
        &[
            ("block_count", n(2)),
            ("embedding_length", n(64)),
            ("attention.head_count", n(1)),
            ("attention.sliding_window", n(128)),
        ],
    );
    let window_cells = |request: Request| footprint(&spec, &request).layers[0].kv_bytes.get() / (64 * 2 * 2);
    let request = Request { micro_batch: 2048, ..ctx(8192) };
    assert_eq!(window_cells(request), 2304);
    assert_eq!(window_cells(Request { batch: 512, ..request }), 768);
    assert_eq!(window_cells(Request { context: Some(ContextLength::Total(700)), ..request }), 768);
    // Sequences that share a cache have a window each.
    assert_eq!(window_cells(Request { parallel: 4, unified_kv: true, batch: 512, ..request }), 1024);
}

#[test]
fn ranks_share_key_value_heads_and_copy_them_when_there_are_too_few() {
    let spec = model(
        "llama",
        &[
            ("block_count", n(64)),
            ("embedding_length", n(8192)),
            ("attention.head_count", n(64)),
            ("attention.head_count_kv", n(8)),
        ],
    );
    let of = |ranks| spec.kv_bytes_per_token_of_rank(&ctx(4096), ranks);
    for (ranks, bytes) in [(1, 262_144), (2, 131_072), (4, 65_536), (8, 32_768), (16, 32_768)] {
        assert_eq!(of(ranks), Ok(Bytes::new(bytes)), "{ranks}");
    }
    for ranks in [0, 3, 5, 12, 128] {
        let error = EstimateError::HeadsDoNotDivide { layer: 0, heads: 64, kv_heads: 8, ranks };
        assert_eq!(of(ranks), Err(error), "{ranks}");
    }
    assert_eq!(of(1), spec.kv_bytes_per_token(&ctx(4096)));
}

#[test]
fn each_recurrent_family_keeps_its_own_state() {
    let state = |architecture, facts: &[(&str, Value)]| {
        let common = [("block_count", n(4)), ("embedding_length", n(256)), ("attention.head_count", n(4))];
        let spec = model(architecture, &[&common[..], facts].concat());
        let layers = footprint(&spec, &ctx(512)).layers;
        layers.iter().map(|l| l.kv_bytes.get()).collect::<Vec<u64>>()
    };
    let kv_heads = |heads: [u64; 4]| ("attention.head_count_kv", list(heads));
    let mamba = [
        ("ssm.conv_kernel", n(4)),
        ("ssm.inner_size", n(512)),
        ("ssm.state_size", n(16)),
        ("ssm.group_count", n(2)),
    ];
    let with = |more: &[(&'static str, Value)]| [&mamba[..], more].concat();
    let recurrent = 4 * (3 * (512 + 2 * 2 * 16) + 16 * 512);
    let attending = |heads: u64| 512 * heads * 64 * 2 * 2;

    // Attention and state in every layer.
    assert_eq!(state("falcon-h1", &with(&[kv_heads([2; 4])])), [attending(2) + recurrent; 4]);
    // State where there are no key-value heads.
    let granite = state("granitehybrid", &with(&[kv_heads([0, 0, 4, 0])]));
    assert_eq!(granite, [recurrent, recurrent, attending(4), recurrent]);
    // A feed-forward layer keeps nothing.
    let nemotron = with(&[kv_heads([0, 0, 4, 0]), ("feed_forward_length", list([0, 64, 0, 64]))]);
    assert_eq!(state("nemotron_h", &nemotron), [recurrent, 0, attending(4), 0]);
    // A short convolution alone.
    let lfm2 = [("shortconv.l_cache", n(3)), kv_heads([0, 4, 0, 0])];
    assert_eq!(state("lfm2", &lfm2), [4 * 256 * 2, attending(4), 4 * 256 * 2, 4 * 256 * 2]);
    // Two shifted tokens and a square matrix for each head.
    assert_eq!(state("rwkv7", &[("wkv.head_size", n(64))]), [4 * (2 * 256 + 64 * 256); 4]);
    // Convolutions of queries, keys and values, and a square matrix for each of 4 heads.
    let kimi = [("kda.head_dim", n(32)), ("ssm.conv_kernel", n(4)), kv_heads([0, 0, 0, 4])];
    let delta = 4 * (3 * 3 * 4 * 32 + 4 * 32 * 32);
    assert_eq!(state("kimi-linear", &kimi), [delta, delta, delta, attending(4)]);
    // An encoder goes over a text once.
    assert_eq!(state("bert", &[]), [0; 4]);
}
