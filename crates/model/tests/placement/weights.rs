//! What layers weigh, in situations with known answers.

use plimsoll_model::{GgufHeader, ModelSpec, Padding, TensorType};
use plimsoll_units::Bytes;

use crate::fixture::tensor;
use crate::hand::{ctx, footprint, header, model, n};

#[test]
fn the_output_layer_alone_is_output_matrix_and_final_norm() {
    let mut header = header(
        "olmoe",
        &[("block_count", n(16)), ("embedding_length", n(2048)), ("attention.head_count", n(16))],
    );
    header.tensors.retain(|t| t.name != "output.weight");
    header.tensors.push(tensor("output.weight".to_owned(), &[2048, 50_304], TensorType::Q6_K));
    header.tensors.push(tensor("output_norm.weight".to_owned(), &[2048], TensorType::F32));
    let spec = ModelSpec::from_gguf(&header).expect("a model");
    for padding in [Padding::None, Padding::Cpu, Padding::Cuda] {
        let footprint = spec.footprint(&ctx(512), padding).expect("a footprint");
        assert_eq!(footprint.head_bytes, Bytes::new(84_518_912));
        assert_eq!(footprint.head_beside_input_bytes, footprint.head_bytes);
    }
}

#[test]
fn a_tied_matrix_counts_again_only_where_it_is_copied() {
    let mut header = header(
        "llama",
        &[("block_count", n(1)), ("embedding_length", n(64)), ("attention.head_count", n(1))],
    );
    header.tensors.retain(|t| t.name != "output.weight");
    header.tensors.push(tensor("output_norm.weight".to_owned(), &[64], TensorType::F32));
    let spec = ModelSpec::from_gguf(&header).expect("a model");
    let footprint = footprint(&spec, &ctx(512));
    assert!(spec.is_tied());
    assert_eq!(footprint.input_bytes, Bytes::kib(8));
    assert_eq!(footprint.head_beside_input_bytes, Bytes::new(256));
    assert_eq!(footprint.head_bytes, Bytes::new(8192 + 256));
    assert_eq!(spec.num_weights(), 64 * 64 * 2 + 64);
}

#[test]
fn next_token_blocks_take_an_index_and_no_bytes() {
    let spec = model(
        "glm4moe",
        &[
            ("block_count", n(5)),
            ("nextn_predict_layers", n(1)),
            ("embedding_length", n(64)),
            ("attention.head_count", n(1)),
        ],
    );
    let footprint = footprint(&spec, &ctx(512));
    assert_eq!((spec.layer_count(), footprint.layers.len(), footprint.nextn), (4, 4, 1));
    assert_eq!(spec.nextn_bytes(Padding::None), Bytes::kib(8));
}

#[test]
fn experts_weigh_all_and_are_read_in_part() {
    let mut header = header(
        "qwen3moe",
        &[
            ("block_count", n(1)),
            ("embedding_length", n(64)),
            ("attention.head_count", n(1)),
            ("expert_count", n(125)),
            ("expert_used_count", n(10)),
        ],
    );
    let push = |header: &mut GgufHeader, name: &str, dims: &[u64]| {
        header.tensors.push(tensor(format!("blk.0.{name}.weight"), dims, TensorType::F16));
    };
    push(&mut header, "ffn_up_exps", &[64, 32, 125]);
    push(&mut header, "ffn_up_shexp", &[64, 32]);
    let spec = ModelSpec::from_gguf(&header).expect("a model");
    let layer = footprint(&spec, &ctx(512)).layers[0];
    let (dense, experts) = (64 * 64 * 2 + 64 * 32 * 2, 64 * 32 * 2 * 125);
    assert_eq!(layer.weights_bytes, Bytes::new(dense + experts));
    assert_eq!(layer.read_bytes, Bytes::new(dense + experts * 10 / 125));
    assert_eq!(layer.num_weights, (dense + experts) / 2);
    let classes = spec.class_bytes(0, Padding::None);
    assert_eq!(
        (classes.attention, classes.ffn, classes.experts),
        (Bytes::kib(8), Bytes::kib(4), Bytes::new(experts))
    );
    assert!(spec.has_experts() && spec.dense_shape().is_none());
}

#[test]
fn cuda_rounds_to_128_and_finishes_quantised_rows() {
    let mut header = header(
        "llama",
        &[("block_count", n(1)), ("embedding_length", n(2880)), ("attention.head_count", n(45))],
    );
    header.tensors.retain(|t| !t.name.starts_with("blk"));
    header.tensors.push(tensor("blk.0.attn_q.weight".to_owned(), &[2880, 3], TensorType::Q8_0));
    header.tensors.push(tensor("blk.0.attn_norm.weight".to_owned(), &[33], TensorType::F32));
    let spec = ModelSpec::from_gguf(&header).expect("a model");
    let bytes =
        |padding| spec.footprint(&ctx(512), padding).expect("a footprint").layers[0].weights_bytes.get();
    let (matrix, norm) = (2880_u64 / 32 * 34 * 3, 33_u64 * 4);
    assert_eq!(bytes(Padding::None), matrix + norm);
    assert_eq!(bytes(Padding::Cpu), matrix.next_multiple_of(32) + norm.next_multiple_of(32));
    // 2880 is 320 over a multiple of 512: six blocks of 32 are missing.
    let finished = (matrix + 6 * 34).next_multiple_of(128);
    assert_eq!(bytes(Padding::Cuda), finished + norm.next_multiple_of(128));
}

#[test]
fn what_lies_where_follows_the_engine() {
    let mut header = header(
        "llama",
        &[("block_count", n(2)), ("embedding_length", n(64)), ("attention.head_count", n(1))],
    );
    for name in ["token_embd_norm.weight", "position_embd.weight", "rope_freqs.weight", "strange.weight"] {
        header.tensors.push(tensor(name.to_owned(), &[64], TensorType::F32));
    }
    let spec = ModelSpec::from_gguf(&header).expect("a model");
    let footprint = footprint(&spec, &ctx(512));
    assert_eq!(footprint.each_device_bytes, Bytes::new(256));
    // The norm of the embedding is applied where the first layer is.
    assert_eq!(footprint.layers[0].weights_bytes, Bytes::new(8192 + 256));
    // A tensor of no known part counts all the same.
    assert_eq!(footprint.input_bytes, Bytes::new(8192 + 256 + 256));
    assert_eq!(
        spec.warnings()[0].to_string(),
        "tensors of no known part count with the input: 1 with 256 B, the first is 'strange.weight'"
    );
}
