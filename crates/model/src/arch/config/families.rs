//! What is known of the families of transformers beyond the keys of their configs.

use super::Config;
use crate::arch::facts::{mamba_state, square_heads};
use crate::arch::{Window, windowed_by_period};
use crate::spec::SpecError;

/// How the layers of a family mix tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Attention in every layer.
    Attention,
    /// Attention that keeps nothing.
    Encoder,
    /// A recurrent state in every layer.
    Recurrent,
    /// A recurrent state in layers that the config names by kind, period or pattern.
    Hybrid,
    /// Attention and a recurrent state in every layer.
    Both,
}

impl Family {
    pub(crate) const ORDINARY: Self = Self::Attention;

    /// Whether some of its layers keep keys and values.
    pub(crate) const fn attends(self) -> bool {
        matches!(self, Self::Attention | Self::Hybrid | Self::Both)
    }

    /// Whether it goes on with a text, and so has an output matrix.
    pub(crate) const fn goes_on(self) -> bool {
        !matches!(self, Self::Encoder)
    }
}

/// The family of a `model_type`; `None` for one that is not listed.
pub(crate) fn family(model_type: &str) -> Option<Family> {
    let family = match model_type {
        "bert" | "distilbert" | "modernbert" | "mpnet" | "nomic_bert" | "roberta" | "xlm-roberta" => {
            Family::Encoder
        }
        "mamba" | "mamba2" | "falcon_mamba" => Family::Recurrent,
        "jamba" | "granitemoehybrid" | "nemotron_h" | "qwen3_next" | "qwen3_5_text" | "qwen3_5_moe_text"
        | "lfm2" | "lfm2_moe" | "minimax" | "minimax_text_01" => Family::Hybrid,
        "falcon_h1" => Family::Both,
        "apertus" | "arcee" | "bloom" | "codegen" | "cohere" | "cohere2" | "dbrx" | "deepseek"
        | "deepseek_v2" | "deepseek_v3" | "dots1" | "ernie4_5" | "ernie4_5_moe" | "exaone" | "exaone4"
        | "falcon" | "gemma" | "gemma2" | "gemma3" | "gemma3_text" | "gemma3n_text" | "gemma4_text"
        | "glm" | "glm4" | "glm4_moe" | "gpt2" | "gpt_neox" | "gpt_oss" | "gptj" | "granite"
        | "granitemoe" | "hunyuan_v1_dense" | "hunyuan_v1_moe" | "internlm2" | "kimi_k2" | "llama"
        | "llama4" | "llama4_text" | "minicpm" | "minicpm3" | "minimax_m2" | "mistral" | "mistral3"
        | "mixtral" | "mpt" | "nemotron" | "nemotron-nas" | "olmo" | "olmo2" | "olmo3" | "olmoe" | "opt"
        | "phi" | "phi3" | "phimoe" | "qwen2" | "qwen2_5_vl" | "qwen2_5_vl_text" | "qwen2_moe"
        | "qwen2_vl" | "qwen3" | "qwen3_moe" | "qwen3_vl_moe_text" | "qwen3_vl_text" | "seed_oss"
        | "smollm3" | "stablelm" | "starcoder2" => Family::Attention,
        _ => return None,
    };
    Some(family)
}

/// How every layer mixes tokens.
pub(crate) struct Mixes {
    pub(crate) attention: Vec<bool>,
    pub(crate) recurrent: Vec<bool>,
    /// The 32-bit values of a recurrent layer for one sequence.
    pub(crate) state: [u64; 2],
}

/// How a layer mixes tokens, by its kind in the config.
fn kind(word: &str) -> (bool, bool) {
    match word {
        "mamba" | "mamba2" | "linear_attention" | "conv" | "recurrent" | "M" => (false, true),
        "-" | "E" | "mlp" | "moe" => (false, false),
        _ => (true, false),
    }
}

pub(super) fn mixes(
    config: &Config<'_>,
    model_type: &str,
    family: &Family,
    layers: usize,
) -> Result<Mixes, SpecError> {
    let by_kind = config.words("layer_types", layers)?;
    let pattern = config.get(&["hybrid_override_pattern"]).and_then(|(_, value)| value.as_str());
    let kinds: Vec<(bool, bool)> = match (family, by_kind, pattern) {
        (Family::Attention, None, _) => vec![(true, false); layers],
        (Family::Encoder, ..) => vec![(false, false); layers],
        (Family::Recurrent, ..) => vec![(false, true); layers],
        (Family::Both, ..) => vec![(true, true); layers],
        (_, Some(words), _) => words.into_iter().map(kind).collect(),
        (Family::Hybrid, None, Some(pattern)) => pattern_kinds(pattern, layers)?,
        (Family::Hybrid, None, None) => match config.per_layer(&["attn_type_list"], layers)? {
            Some(types) => types.into_iter().map(|full| (full > 0, full == 0)).collect(),
            None => periodic_kinds(config, layers)?,
        },
    };
    let (attention, recurrent): (Vec<bool>, Vec<bool>) = kinds.into_iter().unzip();
    let state = if recurrent.contains(&true) { state(config, model_type)? } else { [0, 0] };
    Ok(Mixes { attention, recurrent, state })
}

fn pattern_kinds(pattern: &str, layers: usize) -> Result<Vec<(bool, bool)>, SpecError> {
    let mut letters = [0; 4];
    let kinds: Vec<_> = pattern.chars().map(|letter| kind(letter.encode_utf8(&mut letters))).collect();
    if kinds.len() == layers {
        return Ok(kinds);
    }
    let key = "hybrid_override_pattern".to_owned();
    Err(SpecError::WrongLength { key, found: kinds.len(), expected: layers })
}

/// Attention in one layer of each period.
fn periodic_kinds(config: &Config<'_>, layers: usize) -> Result<Vec<(bool, bool)>, SpecError> {
    let interval = config.number(&["full_attention_interval", "attn_layer_period"])?.filter(|&n| n > 0);
    // Neither kinds, nor a pattern, nor a period: ordinary attention, which is never too small.
    let Some(interval) = interval else { return Ok(vec![(true, false); layers]) };
    let offset = config.number_or(&["attn_layer_offset"], interval - 1)?;
    let attends = |i: u64| i % interval == offset;
    Ok((0..).map(|i| (attends(i), !attends(i))).take(layers).collect())
}

/// What a family calls the width of its convolution and the size of its state.
const fn state_keys(model_type: &str) -> [&'static str; 2] {
    match model_type.as_bytes() {
        b"mamba" | b"mamba2" | b"falcon_mamba" => ["conv_kernel", "state_size"],
        b"nemotron_h" => ["conv_kernel", "ssm_state_size"],
        b"qwen3_next" | b"qwen3_5_text" | b"qwen3_5_moe_text" => {
            ["linear_conv_kernel_dim", "linear_key_head_dim"]
        }
        _ => ["mamba_d_conv", "mamba_d_state"],
    }
}

/// The 32-bit values of a recurrent layer for one sequence: those of its convolution, those of its state.
fn state(config: &Config<'_>, model_type: &str) -> Result<[u64; 2], SpecError> {
    let too_large = || SpecError::TooLarge { what: "a recurrent state" };
    let embedding = config.number_or(super::EMBEDDING, 0)?;
    if matches!(model_type, "minimax" | "minimax_text_01") {
        let heads = config.number_or(super::HEADS, 0)?;
        let natural = embedding.checked_div(heads).unwrap_or(0);
        return Ok([0, square_heads(&[heads], config.number_or(&["head_dim"], natural)?)?]);
    }
    if let Some(cached) = config.number(&["conv_L_cache"])?.filter(|&n| n > 0) {
        let convolution = embedding.checked_mul(cached - 1).ok_or_else(too_large)?;
        return Ok([convolution, 0]);
    }
    let product = |heads: &[&str], width: &[&str]| -> Result<Option<u64>, SpecError> {
        match (config.number(heads)?, config.number(width)?) {
            (Some(heads), Some(width)) => heads.checked_mul(width).ok_or_else(too_large).map(Some),
            _ => Ok(None),
        }
    };
    let heads = ["mamba_n_heads", "mamba_num_heads", "linear_num_value_heads"];
    let widths = ["mamba_d_head", "mamba_head_dim", "linear_value_head_dim"];
    let told = match config.number(&["mamba_d_ssm"])? {
        Some(inner) => Some(inner),
        None => product(&heads, &widths)?,
    };
    let inner = match told {
        Some(inner) => inner,
        None => {
            let expand = config.number_or(&["mamba_expand", "expand"], 2)?;
            embedding.checked_mul(expand).ok_or_else(too_large)?
        }
    };
    let above_zero = |keys: &[&str]| config.number(keys).map(|n| n.filter(|&n| n > 0));
    let kernel = above_zero(&["conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"])?;
    let state = above_zero(&["state_size", "mamba_d_state", "ssm_state_size", "linear_key_head_dim"])?;
    let (Some(kernel), Some(state)) = (kernel, state) else {
        let short_only = matches!(model_type, "lfm2" | "lfm2_moe");
        let needed = state_keys(model_type).into_iter().zip([kernel, state]);
        let missing = needed.filter(|(_, told)| told.is_none()).map(|(key, _)| key.to_owned());
        return Err(SpecError::MissingKeys {
            architecture: model_type.to_owned(),
            missing: if short_only { vec!["conv_L_cache".to_owned()] } else { missing.collect() },
        });
    };
    let groups = config.number_or(&["n_groups", "mamba_n_groups", "linear_num_key_heads"], 0)?;
    match mamba_state(kernel - 1, inner, state, groups) {
        [Some(convolution), Some(state)] => Ok([convolution, state]),
        _ => Err(too_large()),
    }
}

/// The sliding window of each layer.
pub(super) fn windows(
    config: &Config<'_>,
    model_type: &str,
    layers: usize,
) -> Result<Vec<Option<Window>>, SpecError> {
    let chunks = config.number_or(&["attention_chunk_size"], 0)?;
    let told = config.number_or(&["sliding_window"], 0)?;
    let tokens = if chunks > 0 { chunks } else { told };
    let switched_off = config.flag("use_sliding_window") == Some(false);
    if tokens == 0 || switched_off {
        return Ok(vec![None; layers]);
    }
    let by_kind = config.words("layer_types", layers)?;
    let period = |unless_told: u64| {
        config.number_or(&["sliding_window_pattern", "no_rope_layer_interval"], unless_told)
    };
    // llama.cpp reads no window for these families.
    let often_ignored =
        matches!(model_type, "mistral" | "mixtral" | "phi3" | "qwen2" | "qwen2_moe" | "starcoder2");
    let slides: Vec<bool> = match (by_kind, model_type) {
        (Some(words), _) => {
            words.iter().map(|word| matches!(*word, "sliding_attention" | "chunked_attention")).collect()
        }
        (None, "gemma2" | "gpt_oss") => windowed_by_period(layers, 2, false),
        (None, "gemma3" | "gemma3_text") => windowed_by_period(layers, period(6)?, false),
        (None, "gemma3n_text") => windowed_by_period(layers, period(5)?, false),
        (None, "cohere2" | "llama4" | "llama4_text" | "exaone4" | "olmo3") => {
            windowed_by_period(layers, period(4)?, false)
        }
        (None, "mistral" | "mixtral" | "phi3" | "phimoe" | "starcoder2") => vec![true; layers],
        (None, "qwen2" | "qwen2_moe" | "qwen3" | "qwen3_moe") => {
            // The first layers attend to everything.
            let whole = config.number_or(&["max_window_layers"], 0)?;
            (0..).map(|i: u64| i >= whole).take(layers).collect()
        }
        // A window that says nothing of its layers: the whole context is never too small.
        (None, _) => vec![false; layers],
    };
    let window = Window { tokens, often_ignored };
    Ok(slides.into_iter().map(|slides| slides.then_some(window)).collect())
}
