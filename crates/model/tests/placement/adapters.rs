//! Adapters: what is refused, and that every byte counts where the tensor lies that it changes.

use plimsoll_model::{
    AdapterError, GgufHeader, ModelSpec, ModelWarning, Padding, Tensor, TensorType, Value, adapter_bytes,
};
use plimsoll_units::Bytes;
use proptest::prelude::*;

use crate::fixture::tensor;
use crate::hand::{ctx, header, n};

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A header of an adapter for `llama`.
fn adapter(tensors: Vec<Tensor>) -> GgufHeader {
    let facts = [("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", "llama")];
    let metadata = facts.map(|(key, value)| (key.to_owned(), text(value))).into();
    GgufHeader { metadata, tensors, missing_bytes: Bytes::ZERO }
}

fn half(name: &str, dims: &[u64], kind: TensorType) -> Tensor {
    tensor(name.to_owned(), dims, kind)
}

/// The pair for a matrix of these sides.
fn pair(base: &str, dims: &[u64], rank: u64, kind: TensorType) -> [Tensor; 2] {
    let deep = &dims[2..];
    let turned = base == "token_embd.weight";
    let (a, b) = if turned { ([rank, dims[1]], [rank, dims[0]]) } else { ([dims[0], rank], [rank, dims[1]]) };
    let side = |pair: [u64; 2]| [pair.as_slice(), deep].concat();
    // Only rows of whole blocks can be quantised.
    let kind_of = |pair: [u64; 2]| if pair[0].is_multiple_of(32) { kind } else { TensorType::F16 };
    [
        half(&format!("{base}.lora_a"), &side(a), kind_of(a)),
        half(&format!("{base}.lora_b"), &side(b), kind_of(b)),
    ]
}

/// Two blocks and a next-token block, each with a matrix, one of them with experts.
fn base(tied: bool) -> GgufHeader {
    let facts = [
        ("block_count", n(3)),
        ("nextn_predict_layers", n(1)),
        ("embedding_length", n(64)),
        ("attention.head_count", n(1)),
        ("expert_count", n(4)),
        ("expert_used_count", n(1)),
    ];
    let mut header = header("llama", &facts);
    header.tensors.retain(|tensor| !tied || tensor.name != "output.weight");
    header.tensors.push(half("blk.1.ffn_up_exps.weight", &[64, 96, 4], TensorType::Q8_0));
    header.tensors.push(half("blk.0.attn_norm.weight", &[64], TensorType::F32));
    header.tensors.push(half("output_norm.weight", &[64], TensorType::F32));
    header.tensors.push(half("rope_freqs.weight", &[32], TensorType::F32));
    header
}

fn spec(header: &GgufHeader) -> ModelSpec {
    ModelSpec::from_gguf(header).expect("a model")
}

fn refused(adapter: &GgufHeader) -> String {
    spec(&base(false)).with_adapter(adapter).expect_err("a refusal").to_string()
}

#[test]
fn what_is_no_adapter_for_this_model_is_refused() {
    let good = || adapter(pair("blk.0.attn_q.weight", &[64, 64], 4, TensorType::F16).to_vec());
    let with = |key: &str, value: Option<&str>| {
        let mut header = good();
        header.metadata.remove(key);
        header.metadata.extend(value.map(|value| (key.to_owned(), text(value))));
        refused(&header)
    };
    assert_eq!(with("general.type", None), "it is no adapter: its 'general.type' is not told");
    assert_eq!(with("general.type", Some("model")), "it is no adapter: its 'general.type' is 'model'");
    assert_eq!(
        with("adapter.type", Some("ia3")),
        "it is an adapter of the type 'ia3', and only 'lora' is known"
    );
    assert_eq!(
        with("general.architecture", Some("qwen2")),
        "it is an adapter for the architecture 'qwen2', and the model is 'llama'"
    );
    assert_eq!(
        with("general.architecture", None),
        "it is an adapter for the architecture not told, and the model is 'llama'"
    );
    assert_eq!(refused(&adapter(Vec::new())), "it holds no pair of tensors");
    assert_eq!(spec(&base(false)).with_adapter(&good()).expect("an adapter").warnings(), []);
}

#[test]
fn a_half_without_the_other_and_a_tensor_of_another_kind_are_refused() {
    let [a, b] = pair("blk.0.attn_q.weight", &[64, 64], 4, TensorType::F16);
    assert_eq!(
        refused(&adapter(vec![a])),
        "tensor 'blk.0.attn_q.weight.lora_a' has no partner 'blk.0.attn_q.weight.lora_b'"
    );
    assert_eq!(
        refused(&adapter(vec![b])),
        "tensor 'blk.0.attn_q.weight.lora_b' has no partner 'blk.0.attn_q.weight.lora_a'"
    );
    let bias = half("blk.0.attn_q.bias", &[64], TensorType::F32);
    assert_eq!(
        refused(&adapter(vec![bias])),
        "tensor 'blk.0.attn_q.bias' ends neither in .lora_a nor in .lora_b"
    );
}

#[test]
fn a_pair_for_what_the_model_does_not_load_is_refused() {
    // A block that is not there, one for further tokens, and what is copied to every device.
    for base in ["blk.7.attn_q.weight", "blk.2.attn_q.weight", "rope_freqs.weight", "nothing.weight"] {
        assert_eq!(
            refused(&adapter(pair(base, &[64, 64], 4, TensorType::F16).to_vec())),
            format!(
                "tensor '{base}.lora_a' changes '{base}', which is not among the tensors that 'llama' loads"
            )
        );
    }
}

#[test]
fn sides_that_do_not_fit_are_told_on_both_sides() {
    let wrong = |base: &str, a: &[u64], b: &[u64], own: &str| {
        let halves = [("lora_a", a), ("lora_b", b)];
        let tensors = halves.map(|(name, dims)| half(&format!("{base}.{name}"), dims, TensorType::F16));
        assert_eq!(
            refused(&adapter(tensors.to_vec())),
            format!(
                "'{base}.lora_a' is {a:?} and '{base}.lora_b' is {b:?}: that does not fit '{base}' of the model, which \
                 is {own}"
            )
        );
    };
    let (query, stack) = ("blk.0.attn_q.weight", "blk.1.ffn_up_exps.weight");
    wrong(query, &[32, 4], &[4, 64], "[64, 64]");
    wrong(query, &[64, 4], &[4, 32], "[64, 64]");
    // Two ranks, and a first half that lies the other way round.
    wrong(query, &[64, 4], &[8, 64], "[64, 64]");
    wrong(query, &[4, 64], &[4, 64], "[64, 64]");
    wrong("token_embd.weight", &[64, 4], &[4, 64], "[64, 64]");
    wrong(stack, &[64, 4, 3], &[4, 96, 3], "[64, 96, 4]");
    wrong(stack, &[64, 4], &[4, 96], "[64, 96, 4]");
}

#[test]
fn a_checkpoint_takes_no_adapter() {
    let header = adapter(pair("blk.0.attn_q.weight", &[64, 64], 4, TensorType::F16).to_vec());
    #[cfg(feature = "list")]
    {
        let list =
            plimsoll_model::list::parse_list_toml("name = \"toy\"\nlayers = [ { count = 2, bytes = 8 } ]");
        let error = ModelSpec::from_list(&list.expect("a list")).with_adapter(&header);
        assert_eq!(error, Err(AdapterError::NotAGguf { model: "toy".to_owned() }));
    }
    assert!(spec(&base(true)).with_adapter(&header).is_ok());
}

#[test]
fn norms_stay_in_the_file() {
    let mut tensors = pair("blk.0.attn_q.weight", &[64, 64], 4, TensorType::F16).to_vec();
    let without = adapter(tensors.clone());
    tensors.push(half("blk.0.attn_norm.weight", &[64], TensorType::F32));
    let with = adapter(tensors);
    let adapted = spec(&base(false)).with_adapter(&with).expect("an adapter");
    assert_eq!(adapted.warnings(), [ModelWarning::AdapterNorms { count: 1 }]);
    assert_eq!(adapted.warnings()[0].to_string(), "the engine does not load the 1 norm of the adapter");
    assert_eq!(adapter_bytes(&with), Bytes::new(2 * 64 * 4 * 2));
    let plain = spec(&base(false)).with_adapter(&without).expect("an adapter");
    let layers = |spec: &ModelSpec| spec.layers(&ctx(512)).expect("layers");
    assert_eq!(layers(&adapted), layers(&plain));
}

#[test]
fn what_changes_a_tied_embedding_lies_with_the_input_alone() {
    let embedding = adapter(pair("token_embd.weight", &[64, 64], 4, TensorType::F16).to_vec());
    let (plain, adapted) = (spec(&base(true)), spec(&base(true)).with_adapter(&embedding).expect("one"));
    let of = |spec: &ModelSpec| spec.footprint(&ctx(512), Padding::Cuda).expect("a footprint");
    assert_eq!(of(&adapted).input_bytes, of(&plain).input_bytes.saturating_add(Bytes::kib(1)));
    assert_eq!(of(&adapted).head_bytes, of(&plain).head_bytes);
}

/// What one tensor takes in a buffer, by the engine's rule: its bytes, on CUDA with the rest of a row of 512 values for
/// what is quantised, rounded up.
fn taken(tensor: &Tensor, padding: Padding) -> u64 {
    let (values, size) = if tensor.kind == TensorType::Q8_0 { (32, 34) } else { (1, 0) };
    let rest = (512 - tensor.dims[0] % 512) % 512 / values * size;
    match padding {
        Padding::None => tensor.bytes.get(),
        Padding::Cpu => tensor.bytes.get().next_multiple_of(32),
        Padding::Cuda => (tensor.bytes.get() + rest).next_multiple_of(128),
    }
}

proptest! {
    #[test]
    fn every_byte_of_an_adapter_lies_where_its_tensor_lies(
        ranks in prop::collection::vec(0_u64..40, 6),
        kinds in prop::collection::vec(0_usize..3, 6),
        again in 0_u64..20,
        tied: bool,
    ) {
        let header = base(tied);
        let matrices: Vec<&Tensor> = header
            .tensors
            .iter()
            .filter(|t| t.name.ends_with(".weight") && t.dims.len() > 1 && !t.name.starts_with("blk.2."))
            .collect();
        let kind = |at: usize| [TensorType::F32, TensorType::F16, TensorType::Q8_0][kinds[at]];
        let pairs = matrices.iter().enumerate().filter(|(at, _)| ranks[*at] > 0);
        let mut halves: Vec<Tensor> =
            pairs.flat_map(|(at, base)| pair(&base.name, &base.dims, ranks[at], kind(at))).collect();
        // Two adapters may change one tensor.
        let second = pair("blk.0.attn_q.weight", &[64, 64], again, TensorType::F16);
        prop_assume!(!halves.is_empty());
        let plain = spec(&header);
        let mut adapted = plain.with_adapter(&adapter(halves.clone())).expect("an adapter");
        if again > 0 {
            adapted = adapted.with_adapter(&adapter(second.to_vec())).expect("another one");
            halves.extend(second);
        }
        prop_assert_eq!(adapted.file_bytes(), plain.file_bytes());
        prop_assert_eq!(adapted.num_weights(), plain.num_weights());
        for padding in [Padding::None, Padding::Cpu, Padding::Cuda] {
            let more = |prefix: &str| -> u64 {
                halves.iter().filter(|half| half.name.starts_with(prefix)).map(|half| taken(half, padding)).sum()
            };
            let of = |spec: &ModelSpec| spec.footprint(&ctx(512), padding).expect("a footprint");
            let (old, new) = (of(&plain), of(&adapted));
            for layer in 0..2 {
                let grown = new.layers[layer].weights_bytes.get() - old.layers[layer].weights_bytes.get();
                prop_assert_eq!(grown, more(&format!("blk.{layer}.")));
            }
            prop_assert_eq!(new.input_bytes.get() - old.input_bytes.get(), more("token_embd."));
            prop_assert_eq!(new.head_bytes.get() - old.head_bytes.get(), more("output."));
            // Experts that lie apart take theirs along, and are read in part.
            let apart = |spec: &ModelSpec| spec.layer_parts(padding, |name| name.contains("_exps."))[1];
            let (old, new) = (apart(&plain), apart(&adapted));
            let grown = new.weights_bytes.get() - old.weights_bytes.get();
            prop_assert_eq!(grown, more("blk.1.ffn_up_exps."));
            prop_assert_eq!(new.read_bytes.get(), new.weights_bytes.get() / 4);
        }
    }
}
