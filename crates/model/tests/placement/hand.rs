//! Small models made by hand.

use std::collections::BTreeMap;

use plimsoll_model::{ContextLength, Footprint, GgufHeader, ModelSpec, Padding, Request, TensorType, Value};
use plimsoll_units::Bytes;

use crate::fixture::tensor;

/// A header of `architecture` with facts, a token embedding, an output matrix, and one small tensor in each block.
pub(crate) fn header(architecture: &str, facts: &[(&str, Value)]) -> GgufHeader {
    let key = |key: &str| format!("{architecture}.{key}");
    let mut metadata: BTreeMap<String, Value> =
        facts.iter().map(|(name, value)| (key(name), value.clone())).collect();
    metadata.insert("general.architecture".to_owned(), Value::Text(architecture.to_owned()));
    let blocks = metadata.get(&key("block_count")).and_then(Value::as_u64).unwrap_or(0);
    let matrix = |name: String| tensor(name, &[64, 64], TensorType::F16);
    let mut tensors: Vec<_> = (0..blocks).map(|i| matrix(format!("blk.{i}.attn_q.weight"))).collect();
    tensors.push(matrix("token_embd.weight".to_owned()));
    tensors.push(matrix("output.weight".to_owned()));
    GgufHeader { metadata, tensors, missing_bytes: Bytes::ZERO }
}

pub(crate) fn n(n: u64) -> Value {
    Value::Unsigned(n)
}

pub(crate) fn list(items: impl IntoIterator<Item = u64>) -> Value {
    Value::List(items.into_iter().map(Value::Unsigned).collect())
}

pub(crate) fn model(architecture: &str, facts: &[(&str, Value)]) -> ModelSpec {
    ModelSpec::from_gguf(&header(architecture, facts)).expect("a model")
}

pub(crate) fn ctx(tokens: u64) -> Request {
    Request { context: Some(ContextLength::PerSequence(tokens)), ..Request::default() }
}

pub(crate) fn footprint(spec: &ModelSpec, request: &Request) -> Footprint {
    spec.footprint(request, Padding::Cpu).expect("a footprint")
}

pub(crate) fn kv(spec: &ModelSpec, request: &Request) -> u64 {
    Bytes::saturating_sum(footprint(spec, request).layers.iter().map(|l| l.kv_bytes)).get()
}

/// 32 layers, 8 key-value heads of 128 values.
pub(crate) fn llama() -> ModelSpec {
    model(
        "llama",
        &[
            ("block_count", n(32)),
            ("embedding_length", n(4096)),
            ("attention.head_count", n(32)),
            ("attention.head_count_kv", n(8)),
            ("context_length", n(8192)),
        ],
    )
}

pub(crate) fn hybrid(architecture: &str, blocks: u64, heads: u64, more: &[(&str, Value)]) -> ModelSpec {
    let mut facts = vec![
        ("block_count", n(blocks)),
        ("embedding_length", n(4096)),
        ("attention.head_count", n(16)),
        ("attention.head_count_kv", n(heads)),
        ("attention.key_length", n(256)),
        ("attention.value_length", n(256)),
    ];
    facts.extend(more.iter().cloned());
    model(architecture, &facts)
}
