//! What the name of a tensor says: where it belongs, and what it is for.

use crate::spec::TensorClass;

/// Where a tensor belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One of the blocks.
    Block(u64),
    /// With the token embedding.
    Input,
    /// With the output matrix.
    Head,
    /// On every device that holds a layer.
    EachDevice,
    /// With the tensors for next-token prediction, outside of a block.
    #[cfg(feature = "safetensors")]
    Nextn,
    /// In another network beside the model: one that sees or hears.
    Beside,
    /// Nothing known.
    Unknown,
}

/// Reads a name of a GGUF.
pub(crate) fn of_gguf(name: &str) -> (Place, TensorClass) {
    if let Some((index, rest)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))
        && let Ok(index) = index.parse()
    {
        return (Place::Block(index), class_of_gguf(rest));
    }
    let stem = name.split('.').next().unwrap_or_default();
    let place = match stem {
        "token_embd" | "position_embd" | "token_types" | "per_layer_token_embd" => Place::Input,
        // The engine applies these on the device of the first layer.
        "token_embd_norm" | "per_layer_model_proj" | "per_layer_proj_norm" => Place::Block(0),
        "output" | "output_norm" | "cls" | "altup_proj" | "altup_unembd_proj" | "dense_2" | "dense_3" => {
            Place::Head
        }
        "rope_freqs" | "rope_factors_long" | "rope_factors_short" => Place::EachDevice,
        "v" | "a" | "mm" | "resampler" => Place::Beside,
        _ => Place::Unknown,
    };
    let class = if stem.ends_with("norm") { TensorClass::Norms } else { TensorClass::Other };
    (place, class)
}

/// `rest` is what stands behind `blk.N.`.
fn class_of_gguf(rest: &str) -> TensorClass {
    let stem = rest.split('.').next().unwrap_or_default();
    // `ffn_gate_exps.weight`, and `ffn_gate.3.weight` as early files have it.
    let numbered = || rest.split('.').nth(1).is_some_and(|part| part.parse::<u32>().is_ok());
    if stem.contains("norm") {
        TensorClass::Norms
    } else if stem.starts_with("ffn_") && (stem.ends_with("_exps") || stem.ends_with("_chexps") || numbered())
    {
        TensorClass::Experts
    } else if stem.starts_with("ffn_") || stem == "exp_probs_b" {
        TensorClass::FeedForward
    } else if stem.starts_with("attn_") {
        TensorClass::Attention
    } else {
        TensorClass::Other
    }
}

/// Whether a GGUF is of a model with an encoder of its own, whose blocks are counted apart.
pub(crate) fn has_two_stacks(name: &str) -> bool {
    name.starts_with("enc.blk.") || name.starts_with("dec.blk.")
}

/// Reads a name of a checkpoint as transformers writes them.
#[cfg(feature = "safetensors")]
pub(crate) fn of_checkpoint(name: &str) -> (Place, TensorClass) {
    let parts: Vec<&str> = name.split('.').collect();
    let sees = |part: &&str| {
        let roots = [
            "vision",
            "visual",
            "audio",
            "multi_modal",
            "mm_",
            "embed_vision",
            "embed_audio",
            "image_newline",
        ];
        roots.iter().any(|root| part.starts_with(root))
    };
    if parts.iter().take(2).any(sees) {
        return (Place::Beside, TensorClass::Other);
    }
    let roots = parts.iter().take(2);
    if roots.clone().any(|part| *part == "mtp") {
        return (Place::Nextn, TensorClass::Other);
    }
    for pair in parts.windows(2) {
        if let (&["layers" | "layer" | "h" | "blocks" | "block"], Ok(index)) = (&pair[..1], pair[1].parse()) {
            let at = parts.iter().position(|part| *part == pair[0]).map_or(0, |at| at + 2);
            return (Place::Block(index), class_of_checkpoint(&parts[at..]));
        }
    }
    let has = |names: &[&str]| parts.iter().any(|part| names.contains(part));
    if has(&["lm_head", "output", "embed_out"]) {
        (Place::Head, TensorClass::Other)
    } else if has(&["norm", "norm_f", "ln_f", "final_layernorm", "final_layer_norm", "embedding_norm"]) {
        (Place::Head, TensorClass::Norms)
    } else if has(&[
        "embed_tokens",
        "wte",
        "wpe",
        "word_embeddings",
        "embeddings",
        "embed_in",
        "embed_positions",
    ]) || has(&[
        "embedding",
        "tok_embeddings",
        "embed_tokens_per_layer",
        "word_embeddings_layernorm",
    ]) || has(&["per_layer_model_projection", "per_layer_projection_norm"])
    {
        (Place::Input, TensorClass::Other)
    } else {
        (Place::Unknown, TensorClass::Other)
    }
}

/// `parts` are what stands behind the number of the layer.
#[cfg(feature = "safetensors")]
fn class_of_checkpoint(parts: &[&str]) -> TensorClass {
    let any = |test: fn(&str) -> bool| parts.iter().any(|part| test(part));
    let is_norm = |part: &str| {
        part.contains("norm") || part == "ln_attn" || part == "ln_mlp" || part == "ln_1" || part == "ln_2"
    };
    if parts.contains(&"experts") && !any(|part| part.starts_with("shared_expert")) {
        TensorClass::Experts
    } else if any(is_norm) {
        TensorClass::Norms
    } else if any(|part| part.contains("attn") || part.contains("attention"))
        && !parts.contains(&"linear_attn")
    {
        TensorClass::Attention
    } else if any(|part| {
        ["mlp", "ffn", "feed_forward", "block_sparse_moe", "moe", "router", "shared_mlp"].contains(&part)
            || part.starts_with("shared_expert")
    }) {
        TensorClass::FeedForward
    } else {
        TensorClass::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_gguf_say_place_and_class() {
        use TensorClass::{Attention, Experts, FeedForward, Norms, Other};
        for (name, place, class) in [
            ("blk.7.attn_q.weight", Place::Block(7), Attention),
            ("blk.7.attn_q_norm.weight", Place::Block(7), Norms),
            ("blk.7.post_attention_norm.weight", Place::Block(7), Norms),
            ("blk.0.ffn_gate_inp.weight", Place::Block(0), FeedForward),
            ("blk.0.ffn_up_exps.weight", Place::Block(0), Experts),
            ("blk.0.ffn_up_shexp.weight", Place::Block(0), FeedForward),
            ("blk.0.ffn_up.3.weight", Place::Block(0), Experts),
            ("blk.0.ffn_up.weight", Place::Block(0), FeedForward),
            ("blk.0.ssm_in.weight", Place::Block(0), Other),
            ("token_embd.weight", Place::Input, Other),
            ("token_embd_norm.weight", Place::Block(0), Norms),
            ("output_norm.bias", Place::Head, Norms),
            ("output.weight", Place::Head, Other),
            ("rope_freqs.weight", Place::EachDevice, Other),
            ("v.blk.0.attn_q.weight", Place::Beside, Other),
            ("blk.x.attn_q.weight", Place::Unknown, Other),
            ("", Place::Unknown, Other),
        ] {
            assert_eq!(of_gguf(name), (place, class), "{name}");
        }
    }

    #[cfg(feature = "safetensors")]
    #[test]
    fn names_of_checkpoints_say_place_and_class() {
        use TensorClass::{Attention, Experts, FeedForward, Norms, Other};
        for (name, place, class) in [
            ("model.layers.3.self_attn.q_proj.weight", Place::Block(3), Attention),
            ("model.layers.3.self_attn.q_norm.weight", Place::Block(3), Norms),
            ("model.layers.3.input_layernorm.weight", Place::Block(3), Norms),
            ("model.layers.3.mlp.gate.weight", Place::Block(3), FeedForward),
            ("model.layers.3.mlp.experts.12.up_proj.weight", Place::Block(3), Experts),
            ("model.layers.3.mlp.experts.gate_up_proj_blocks", Place::Block(3), Experts),
            ("model.layers.3.mlp.shared_experts.up_proj.weight", Place::Block(3), FeedForward),
            ("model.layers.3.block_sparse_moe.experts.0.w1.weight", Place::Block(3), Experts),
            ("transformer.h.0.self_attention.dense.weight", Place::Block(0), Attention),
            ("transformer.h.0.mlp.dense_h_to_4h.weight", Place::Block(0), FeedForward),
            ("transformer.h.0.ln_attn.weight", Place::Block(0), Norms),
            ("model.language_model.layers.9.linear_attn.in_proj_qkvz.weight", Place::Block(9), Other),
            ("backbone.layers.5.mixer.in_proj.weight", Place::Block(5), Other),
            ("model.embed_tokens.weight", Place::Input, Other),
            ("transformer.wte.weight", Place::Input, Other),
            ("model.norm.weight", Place::Head, Norms),
            ("transformer.ln_f.bias", Place::Head, Norms),
            ("lm_head.weight", Place::Head, Other),
            ("mtp.layers.0.mlp.gate.weight", Place::Nextn, Other),
            ("vision_tower.vision_model.encoder.layers.3.mlp.fc1.weight", Place::Beside, Other),
            ("model.visual.blocks.3.mlp.fc1.weight", Place::Beside, Other),
            ("something.weight", Place::Unknown, Other),
        ] {
            assert_eq!(of_checkpoint(name), (place, class), "{name}");
        }
    }
}
