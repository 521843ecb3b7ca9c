//! What is refused, and what is only odd.

use plimsoll_model::{
    CacheType, ContextLength, EngineProfile, EstimateError, FlashAttention, GgufHeader, ModelSpec,
    ModelWarning, Padding, Request, SpecError, TensorType, Value,
};
use plimsoll_units::Bytes;

use crate::fixture::tensor;
use crate::hand::{ctx, footprint, header, hybrid, kv, list, llama, model, n};

#[test]
fn a_recurrent_state_of_untold_size_is_never_taken_for_less() {
    let missing = |architecture: &str, more: &[(&str, Value)]| {
        let mut facts =
            vec![("block_count", n(8)), ("embedding_length", n(64)), ("attention.head_count", n(4))];
        facts.extend(more.iter().cloned());
        match ModelSpec::from_gguf(&header(architecture, &facts)) {
            Err(SpecError::MissingKeys { missing, .. }) => missing,
            other => panic!("{other:?}"),
        }
    };
    let all = ["qwen3next.ssm.conv_kernel", "qwen3next.ssm.inner_size", "qwen3next.ssm.state_size"];
    let interval = ("full_attention_interval", n(4));
    assert_eq!(missing("qwen3next", std::slice::from_ref(&interval)), all);
    // A convolution alone is not the whole of a state, and a size of nothing is none.
    let (kernel, nothing) = (("ssm.conv_kernel", n(4)), ("ssm.state_size", n(0)));
    assert_eq!(missing("qwen3next", &[interval, kernel, nothing]), all[1..]);
    assert_eq!(missing("rwkv7", &[]), ["rwkv7.wkv.head_size"]);
    assert_eq!(missing("lfm2", &[("attention.head_count_kv", list([0; 8]))]), ["lfm2.shortconv.l_cache"]);
    // Without recurrent layers there is no state to tell.
    let attending = hybrid("qwen3next", 8, 2, &[("full_attention_interval", n(1))]);
    assert!(!attending.has_recurrent_layers());
}

#[test]
fn sizes_beyond_32_bits_stay_exact_and_beyond_64_are_refused() {
    let mut header = header(
        "llama",
        &[("block_count", n(1)), ("embedding_length", n(65_536)), ("attention.head_count", n(1))],
    );
    header.tensors.push(tensor("blk.0.ffn_up.weight".to_owned(), &[65_536, 65_536], TensorType::F32));
    header.tensors.push(tensor("blk.0.ffn_down.weight".to_owned(), &[16_384, 131_072], TensorType::F32));
    let spec = ModelSpec::from_gguf(&header).expect("a model");
    let layer = footprint(&spec, &ctx(512)).layers[0];
    assert_eq!(layer.num_weights, (1 << 32) + (1 << 31) + 4096);
    assert_eq!(layer.weights_bytes, Bytes::new((1 << 34) + (1 << 33) + 8192));

    header.tensors.last_mut().expect("a tensor").bytes = Bytes::MAX;
    assert_eq!(ModelSpec::from_gguf(&header), Err(SpecError::TooLarge { what: "the model" }));
    for tokens in [u64::MAX, u64::MAX / 2, 1 << 62, 1 << 50] {
        let error = llama().layers(&ctx(tokens)).expect_err("too large");
        assert!(matches!(error, EstimateError::TooLarge { .. }), "{error}");
    }
}

#[test]
fn impossible_requests_name_their_numbers() {
    let spec = llama();
    let check = |request: &Request, text: &str| {
        let error = spec.footprint(request, Padding::Cpu).expect_err(text);
        assert_eq!(error.to_string(), text);
    };
    check(&Request { parallel: 0, ..ctx(512) }, "a request for 0 parallel sequences; at least 1 is needed");
    check(&ctx(0), "a context of 0 cells for 1 sequences leaves no cell for each");
    check(
        &Request { parallel: 1000, context: Some(ContextLength::Total(500)), ..ctx(0) },
        "a context of 500 cells for 1000 sequences leaves no cell for each",
    );
    check(
        &Request { micro_batch: 0, ..ctx(512) },
        "a batch of 2048 tokens in micro-batches of 0; both must be at least 1",
    );
    let off = Request { flash_attention: FlashAttention::Off, cache_type_v: CacheType::Q8_0, ..ctx(512) };
    check(&off, "values of type q8_0 in the cache need flash attention, which is off");
    let auto = Request { flash_attention: FlashAttention::Auto, ..off };
    assert!(spec.layers(&auto).is_ok(), "left to the engine, it is switched on");

    let odd = model(
        "llama",
        &[("block_count", n(2)), ("embedding_length", n(160)), ("attention.head_count", n(2))],
    );
    let request = Request { cache_type_k: CacheType::Q4_0, ..ctx(512) };
    assert_eq!(
        odd.layers(&request).expect_err("80 values").to_string(),
        "layer 0 has 80 keys in a head of the cache, not a multiple of the 32 in a block of q4_0"
    );
    // The row as a whole fills its blocks, and without an engine that is enough.
    assert!(odd.layers(&Request { engine: EngineProfile::NONE, ..request }).is_ok());
    assert_eq!(
        odd.layers(&Request::default()).expect_err("no context").to_string(),
        "model 'llama' does not tell the context it was trained for, so the request must tell one"
    );
}

#[test]
fn unknown_architectures_are_ordinary_or_refused_by_name() {
    let facts = [("block_count", n(2)), ("embedding_length", n(64)), ("attention.head_count", n(4))];
    let spec = model("brandnew", &facts);
    assert_eq!(spec.warnings(), [ModelWarning::OrdinaryRule { architecture: "brandnew".to_owned() }]);
    assert_eq!(kv(&spec, &ctx(512)), 2 * 512 * 64 * 2 * 2);
    let error = |architecture, facts: &[(&str, Value)]| {
        ModelSpec::from_gguf(&header(architecture, facts)).expect_err("refused").to_string()
    };
    assert_eq!(
        error("brandnew", &facts[..1]),
        "unknown architecture 'brandnew', and the header lacks 'brandnew.embedding_length' and \
         'brandnew.attention.head_count' of the ordinary rule"
    );
    assert_eq!(error("llama", &facts[1..]), "the header of a 'llama' model lacks 'llama.block_count'");
    assert_eq!(error("clip", &facts), "the file is of type 'clip', not a model of its own");
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let facts = |blocks: u64, more: (&'static str, Value)| {
        let facts =
            [("block_count", n(blocks)), ("embedding_length", n(64)), ("attention.head_count", n(4)), more];
        header("llama", &facts)
    };
    let error = |header: &GgufHeader| ModelSpec::from_gguf(header).expect_err("refused").to_string();
    let none = || ("vocab_size", n(64));
    let mut header = facts(2, none());
    header.tensors.push(tensor("blk.2.attn_q.weight".to_owned(), &[64], TensorType::F32));
    assert_eq!(
        error(&header),
        "tensor 'blk.2.attn_q.weight' belongs to layer 2, but only 2 layers are counted"
    );
    header = facts(2, ("attention.head_count_kv", list([1, 2, 3])));
    assert_eq!(error(&header), "key 'llama.attention.head_count_kv' lists 3 items for 2 layers");
    header = facts(2, ("attention.head_count_kv", Value::Signed(-1)));
    assert_eq!(
        error(&header),
        "key 'llama.attention.head_count_kv' holds -1, not a count, or a list of them"
    );
    header = facts(2, ("nextn_predict_layers", n(3)));
    assert_eq!(error(&header), "the header counts 3 next-token blocks among 2 blocks");
    header = facts(2, ("attention.key_length", n(u64::MAX)));
    assert!(error(&header).starts_with("a row of key-value heads has more values than"));
    header = facts(2, none());
    header.metadata.insert("llama.block_count".to_owned(), n(u64::MAX));
    assert!(error(&header).starts_with("the header counts 18446744073709551615 layers; at most 65536"));
    header = facts(2, none());
    header.tensors.retain(|t| t.name != "token_embd.weight" && t.name != "output.weight");
    assert_eq!(error(&header), "tensor 'token_embd.weight' is missing");
    header = facts(2, none());
    header.metadata.remove("llama.attention.head_count");
    header.tensors.push(tensor("blk.0.attn_k.weight".to_owned(), &[64, 64], TensorType::F16));
    assert_eq!(error(&header), "the header of a 'llama' model lacks 'llama.attention.head_count'");
}

#[test]
fn hostile_names_are_repeated_short_and_harmless() {
    let mut header = header("llama", &[("block_count", n(1)), ("embedding_length", n(64))]);
    let name = format!("blk.7.\u{1b}[2J\n{}", "x".repeat(1000));
    header.tensors.push(tensor(name, &[64], TensorType::F32));
    let text = ModelSpec::from_gguf(&header).expect_err("refused").to_string();
    assert!(text.starts_with(r"tensor 'blk.7.\u{1b}[2J\nxxx"), "{text}");
    assert!(text.len() < 250 && !text.contains(char::is_control), "{text}");
}
