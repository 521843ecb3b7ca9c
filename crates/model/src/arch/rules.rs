//! What llama.cpp knows of an architecture beyond the keys of its header. Facts of its source at b11434.

/// How the layers of an architecture mix tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixer {
    /// Attention in every layer.
    Attention,
    /// Attention that keeps nothing: the model embeds a text, it does not go on.
    Encoder,
    /// Attention that keeps nothing: the model writes all of a text at once.
    Diffusion,
    /// A recurrent state in every layer.
    Recurrent,
    /// A recurrent state where a layer has no key-value heads, attention elsewhere.
    ByHeads,
    /// As before, but a layer with a feed-forward part is that and nothing else.
    ByHeadsWithoutFeedForward,
    /// Attention in every n-th layer, told by a key; a recurrent state elsewhere.
    ByInterval,
    /// Attention in every eighth layer, unless a key tells another period; elsewhere a square matrix for each head.
    Lightning,
    /// Attention and a recurrent state in every layer.
    Both,
}

/// Which layers have a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowRule {
    /// The engine reads no window for it: a window in the header means the layers, but not the cache.
    Ignored,
    /// Those that a pattern in the header names.
    Told,
    /// All but one in every `period` layers.
    Every {
        /// How many layers make a group.
        period: u64,
        /// Whether the layer without a window is the first of the group, not the last.
        dense_first: bool,
        /// The window when the header tells none; zero for no window.
        unless_told: u64,
        /// The window whatever the header tells, as long as it does not tell zero.
        always: Option<u64>,
    },
}

/// What is known of an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// How it mixes tokens.
    pub(crate) mixer: Mixer,
    /// Which layers have a window.
    pub(crate) window: WindowRule,
    /// How many layers keep keys and values of their own, whatever the header tells.
    pub(crate) kv_from_start: Option<u64>,
    /// How many layers a model has whose window the engine reads; any number where that is not told.
    pub(crate) windowed_layers: Option<u64>,
}

impl Rule {
    /// The ordinary rule.
    pub(crate) const ORDINARY: Self = Self::of(Mixer::Attention, WindowRule::Ignored);

    /// The rule for an architecture that nobody listed: ordinary, but a pattern in its header is believed.
    pub(crate) const UNLISTED: Self = Self::of(Mixer::Attention, WindowRule::Told);

    const fn of(mixer: Mixer, window: WindowRule) -> Self {
        Self { mixer, window, kv_from_start: None, windowed_layers: None }
    }
}

const fn every(period: u64, unless_told: u64) -> WindowRule {
    WindowRule::Every { period, dense_first: false, unless_told, always: None }
}

/// The rule for an architecture by llama.cpp's name; `None` for one that is not listed.
pub(crate) fn rule(architecture: &str) -> Option<Rule> {
    use Mixer::{
        Attention, Both, ByHeads, ByHeadsWithoutFeedForward, ByInterval, Diffusion, Encoder, Lightning,
        Recurrent,
    };
    use WindowRule::{Every, Ignored, Told};
    let rule = match architecture {
        "gemma2" => Rule::of(Attention, every(2, 4096)),
        "gemma3" => Rule::of(Attention, every(6, 0)),
        "gemma3n" => Rule { kv_from_start: Some(20), ..Rule::of(Attention, every(5, 0)) },
        "gemma4" | "granite_swa" | "maple" | "mellum" | "mimo2" | "spark2_5" | "step35" => {
            Rule::of(Attention, Told)
        }
        "gpt-oss" => Rule::of(Attention, every(2, 0)),
        "afmoe" | "cohere2" | "cohere2moe" | "muse-glimmer" | "olmo2" => Rule::of(Attention, every(4, 0)),
        "exaone4" => Rule { windowed_layers: Some(64), ..Rule::of(Attention, every(4, 0)) },
        "exaone-moe" => Rule::of(Attention, every(4, 128)),
        "plamo3" => Rule::of(Attention, every(8, 0)),
        "deepseek4" => Rule::of(Attention, every(0, 0)),
        "llama4" => {
            let chunks = Every { period: 4, dense_first: false, unless_told: 8192, always: Some(8192) };
            Rule::of(Attention, chunks)
        }
        "smallthinker" => {
            let window = Every { period: 4, dense_first: true, unless_told: 0, always: Some(4096) };
            Rule::of(Attention, window)
        }
        "mamba" | "mamba2" | "rwkv6" | "rwkv6qwen2" | "rwkv7" | "arwkv7" => Rule::of(Recurrent, Ignored),
        "jamba" | "granitehybrid" | "plamo2" | "lfm2" | "lfm2moe" | "kimi-linear" => {
            Rule::of(ByHeads, Ignored)
        }
        "nemotron_h" | "nemotron_h_moe" => Rule::of(ByHeadsWithoutFeedForward, Ignored),
        "qwen3next" | "qwen35" | "qwen35moe" => Rule::of(ByInterval, Ignored),
        "minimax-01" => Rule::of(Lightning, Ignored),
        "falcon-h1" => Rule::of(Both, Ignored),
        "bert" | "nomic-bert" | "nomic-bert-moe" | "jina-bert-v2" | "jina-bert-v3" | "neo-bert"
        | "modern-bert" | "eurobert" | "gemma-embedding" => Rule::of(Encoder, Ignored),
        "dream" | "llada" | "llada-moe" | "rnd1" => Rule::of(Diffusion, Ignored),
        _ if ORDINARY.contains(&architecture) => Rule::ORDINARY,
        _ => return None,
    };
    Some(rule)
}

/// Architectures whose layers all attend to the whole context, in alphabetical order.
const ORDINARY: &[&str] = &[
    "apertus",
    "arcee",
    "arctic",
    "baichuan",
    "bailingmoe",
    "bailingmoe2",
    "bitnet",
    "bloom",
    "chameleon",
    "chatglm",
    "codeshell",
    "cogvlm",
    "command-r",
    "dbrx",
    "deci",
    "deepseek",
    "deepseek2",
    "deepseek2-ocr",
    "deepseek32",
    "dots1",
    "ernie4_5",
    "ernie4_5-moe",
    "exaone",
    "falcon",
    "gemma",
    "glm-dsa",
    "glm4",
    "glm4moe",
    "gpt2",
    "gptneox",
    "granite",
    "granitemoe",
    "grok",
    "grovemoe",
    "hunyuan-dense",
    "hunyuan-moe",
    "hunyuan_vl",
    "internlm2",
    "jais",
    "jais2",
    "llama",
    "maincoder",
    "minicpm",
    "minicpm3",
    "minimax-m2",
    "mistral3",
    "mistral4",
    "mpt",
    "nanbeige",
    "nemotron",
    "olmo",
    "olmoe",
    "openelm",
    "orion",
    "paddleocr",
    "pangu-embedded",
    "phi2",
    "phi3",
    "phimoe",
    "plamo",
    "plm",
    "qwen",
    "qwen2",
    "qwen2moe",
    "qwen2vl",
    "qwen3",
    "qwen3moe",
    "qwen3vl",
    "qwen3vlmoe",
    "refact",
    "seed_oss",
    "smollm3",
    "stablelm",
    "starcoder",
    "starcoder2",
    "talkie",
    "xverse",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_ordinary_architectures_is_sorted_and_says_nothing_twice() {
        assert!(ORDINARY.is_sorted_by(|a, b| a < b));
        for name in ORDINARY {
            assert_eq!(rule(name), Some(Rule::ORDINARY), "{name} has a rule of its own as well");
        }
    }
}
