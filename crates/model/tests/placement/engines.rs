//! What other engines than llama.cpp keep of a context.

use plimsoll_model::{ContextLength, EngineProfile, FlashAttention, ModelSpec, Request, Value};

use crate::hand::{ctx, kv, llama, model, n};

fn of(engine: EngineProfile, request: Request) -> Request {
    Request { engine, ..request }
}

/// 12 layers with a window of 1024 tokens in all but every sixth; 1,024 bytes for each token of a layer.
fn windowed() -> ModelSpec {
    let facts: &[(&str, Value)] = &[
        ("block_count", n(12)),
        ("embedding_length", n(512)),
        ("attention.head_count", n(4)),
        ("attention.head_count_kv", n(2)),
        ("attention.sliding_window", n(1024)),
    ];
    model("gemma3", facts)
}

#[test]
fn every_sequence_of_a_paged_pool_takes_whole_blocks() {
    let per_token = 131_072;
    for (parallel, tokens, cells) in
        [(1, 1, 16), (1, 16, 16), (1, 17, 32), (4, 1000, 4 * 1008), (3, 15, 48), (7, 33, 7 * 48)]
    {
        let request = Request { parallel, ..ctx(tokens) };
        assert_eq!(kv(&llama(), &of(EngineProfile::VLLM, request)), cells * per_token, "{parallel} {tokens}");
        // A pool of single tokens holds exactly what is in it.
        let exact = u64::from(parallel) * tokens * per_token;
        assert_eq!(kv(&llama(), &of(EngineProfile::SGLANG, request)), exact, "{parallel} {tokens}");
    }
}

#[test]
fn a_window_of_a_paged_pool_holds_a_batch_and_one_block_more() {
    let spec = windowed();
    let request = Request { batch: 2048, micro_batch: 512, ..ctx(32_768) };
    // 1023 + 2048 tokens are 192 blocks, and the window may begin inside of one more.
    let windowed_cells = 193 * 16;
    let bytes = 1024 * (2 * 32_768 + 10 * windowed_cells);
    assert_eq!(kv(&spec, &of(EngineProfile::VLLM, request)), bytes);
    assert_eq!(kv(&spec, &of(EngineProfile::VLLM, Request { parallel: 3, ..request })), 3 * bytes);
    // A context that is shorter than that is kept whole, and one block more.
    let short = Request { batch: 2048, ..ctx(1000) };
    assert_eq!(kv(&spec, &of(EngineProfile::VLLM, short)), 1024 * (2 * 1008 + 10 * 1024));
    let whole = Request { full_window: true, ..request };
    assert_eq!(kv(&spec, &of(EngineProfile::VLLM, whole)), 1024 * 12 * 32_768);
}

#[test]
fn windows_of_an_engine_that_bounds_no_sequence_are_charged_the_whole_context() {
    let request = of(EngineProfile::SGLANG, ctx(32_768));
    assert_eq!(kv(&windowed(), &request), 1024 * 12 * 32_768);
    assert_eq!(windowed().kv_bytes_per_token(&request).expect("a cost").get(), 1024 * 12);
    let bounded = of(EngineProfile::VLLM, request);
    assert_eq!(windowed().kv_bytes_per_token(&bounded).expect("a cost").get(), 1024 * 2);
}

#[test]
fn engines_without_transposed_values_keep_the_same_whatever_their_attention_is() {
    for engine in [EngineProfile::VLLM, EngineProfile::SGLANG, EngineProfile::NONE] {
        let on = of(engine, Request { flash_attention: FlashAttention::On, ..ctx(4096) });
        let off = Request { flash_attention: FlashAttention::Off, ..on };
        assert_eq!(kv(&windowed(), &on), kv(&windowed(), &off), "{}", engine.name);
    }
}

#[test]
fn a_pool_for_everybody_is_not_multiplied_by_those_who_share_it() {
    for engine in [EngineProfile::VLLM, EngineProfile::SGLANG, EngineProfile::LLAMA_CPP] {
        let total = Request { context: Some(ContextLength::Total(32_768)), parallel: 4, ..ctx(0) };
        let shared = of(engine, Request { unified_kv: true, ..total });
        assert_eq!(kv(&llama(), &shared), 32_768 * 131_072, "{}", engine.name);
        let apart = of(engine, Request { parallel: 4, ..ctx(32_768) });
        assert_eq!(kv(&llama(), &apart), 4 * 32_768 * 131_072, "{}", engine.name);
    }
}
