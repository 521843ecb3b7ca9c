//! What is asked of a model: how much context, for how many, in which form.

use std::fmt;
use std::str::FromStr;

/// How long the context is, and what that length counts.
///
/// The two are different types of question: four parallel sequences of 32,768 tokens each are 131,072 cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextLength {
    /// The tokens of **one** sequence. Without a unified cache the engine gets this many for each.
    PerSequence(u64),
    /// The engine's own total, shared by all sequences (llama.cpp's `-c`).
    Total(u64),
}

/// Whether flash attention is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashAttention {
    /// Used. Needed for quantised values in the cache.
    On,
    /// Not used.
    Off,
    /// The engine chooses; it chooses it where it can.
    #[default]
    Auto,
}

/// How the cells of a key-value cache are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheType {
    /// 4 bytes.
    F32,
    /// 2 bytes.
    #[default]
    F16,
    /// 2 bytes.
    Bf16,
    /// 34 bytes for 32.
    Q8_0,
    /// 24 bytes for 32.
    Q5_1,
    /// 22 bytes for 32.
    Q5_0,
    /// 20 bytes for 32.
    Q4_1,
    /// 18 bytes for 32.
    Q4_0,
    /// 18 bytes for 32.
    Iq4Nl,
}

impl CacheType {
    /// Every type, in the order of the engine's help.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Iq4Nl,
        Self::Q5_0,
        Self::Q5_1,
    ];

    /// The engine's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q5_1 => "q5_1",
            Self::Q5_0 => "q5_0",
            Self::Q4_1 => "q4_1",
            Self::Q4_0 => "q4_0",
            Self::Iq4Nl => "iq4_nl",
        }
    }

    /// (values in a block, bytes of a block).
    pub const fn block(self) -> (u64, u64) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q5_1 => (32, 24),
            Self::Q5_0 => (32, 22),
            Self::Q4_1 => (32, 20),
            Self::Q4_0 | Self::Iq4Nl => (32, 18),
        }
    }

    /// Whether values of this type need flash attention.
    pub const fn is_quantised(self) -> bool {
        self.block().0 > 1
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A cache type that no engine knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown cache type '{text}'; known are f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1")]
pub struct UnknownCacheType {
    /// The text as it came.
    pub text: String,
}

impl FromStr for CacheType {
    type Err = UnknownCacheType;

    fn from_str(text: &str) -> Result<Self, UnknownCacheType> {
        let known = Self::ALL.into_iter().find(|t| t.name() == text);
        known.ok_or_else(|| UnknownCacheType { text: text.to_owned() })
    }
}

/// How an engine lays out a context. The constants of each engine stand here and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineProfile {
    /// The engine's name as the command spells it.
    pub name: &'static str,
    /// Cells are allocated in multiples of this.
    pub cell_multiple: u64,
    /// Whether a sliding window gets the cells of one micro-batch on top.
    pub window_holds_micro_batch: bool,
    /// Whether a sliding window on an architecture listed as ignored by the engine is stored in full.
    pub ignores_some_windows: bool,
    /// Whether each head, not only the whole row, must fill whole blocks of a quantised cache under flash attention.
    pub whole_blocks_per_head: bool,
    /// Whether, without flash attention, the values of every layer get rows as wide as the widest layer's.
    pub values_alike_without_flash: bool,
    /// How its buffers round tensors where nothing is said of the device.
    pub padding: Padding,
    /// What a layer with a sliding window keeps.
    pub window_store: WindowStore,
    /// How much of a device's memory it takes unless it is told otherwise, in per cent.
    pub memory_percent: u32,
}

/// What an engine keeps of a layer with a sliding window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowStore {
    /// The tokens of the window, and what [`EngineProfile::window_holds_micro_batch`] says on top.
    #[default]
    Window,
    /// Blocks of [`EngineProfile::cell_multiple`] cells for the window and a batch of new tokens, and one block more,
    /// because a window need not begin where a block does.
    Blocks,
    /// The whole context.
    Context,
}

impl EngineProfile {
    /// llama.cpp, from its source and binary b11434.
    pub const LLAMA_CPP: Self = Self {
        name: "llama.cpp",
        cell_multiple: 256,
        window_holds_micro_batch: true,
        ignores_some_windows: true,
        whole_blocks_per_head: true,
        values_alike_without_flash: true,
        padding: Padding::Cpu,
        window_store: WindowStore::Window,
        memory_percent: 100,
    };

    /// vLLM, from its source (version 1 of its engine): a pool of blocks of 16 tokens on each device, from which every
    /// sequence takes whole ones. [`Request::batch`] stands for its `max_num_batched_tokens`.
    pub const VLLM: Self = Self {
        name: "vllm",
        cell_multiple: 16,
        window_store: WindowStore::Blocks,
        memory_percent: 90,
        ..Self::NONE
    };

    /// SGLang, from its source: a pool of single tokens. What it keeps of windows is a share of the whole pool, not an
    /// amount for each sequence, so that windows are charged the whole context.
    pub const SGLANG: Self =
        Self { name: "sglang", window_store: WindowStore::Context, memory_percent: 88, ..Self::NONE };

    /// No engine: exactly what the layers need, no padding.
    pub const NONE: Self = Self {
        name: "none",
        cell_multiple: 1,
        window_holds_micro_batch: false,
        ignores_some_windows: false,
        whole_blocks_per_head: false,
        values_alike_without_flash: false,
        padding: Padding::None,
        window_store: WindowStore::Window,
        memory_percent: 100,
    };
}

/// How a device's buffer rounds the tensors in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Padding {
    /// Nothing is rounded.
    #[default]
    None,
    /// Every tensor begins at a multiple of 32 bytes: llama.cpp on the CPU, and over rpc on a CPU server.
    Cpu,
    /// Every tensor begins at a multiple of 128 bytes, and a quantised tensor whose rows are not a multiple of 512 values
    /// long gets the rest of one row: llama.cpp on CUDA.
    Cuda,
}

/// What is asked of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How much context; `None` takes what the model was trained for, for each sequence.
    pub context: Option<ContextLength>,
    /// How many sequences at once; at least 1.
    pub parallel: u32,
    /// Whether all sequences share one cache.
    pub unified_kv: bool,
    /// The form of keys.
    pub cache_type_k: CacheType,
    /// The form of values.
    pub cache_type_v: CacheType,
    /// Whether flash attention is used.
    pub flash_attention: FlashAttention,
    /// The tokens that are computed at once (llama.cpp's `-ub`).
    pub micro_batch: u32,
    /// The tokens that are submitted at once (llama.cpp's `-b`).
    pub batch: u32,
    /// Whether layers with a sliding window keep the full context all the same.
    pub full_window: bool,
    /// How many equal devices share every layer (tensor parallelism); at least 1. A footprint is then what one of them
    /// holds.
    pub ranks: u32,
    /// How the engine lays it out.
    pub engine: EngineProfile,
}

impl Default for Request {
    /// One sequence of the trained context, f16 cells, as llama.cpp lays it out.
    fn default() -> Self {
        Self {
            context: None,
            parallel: 1,
            unified_kv: false,
            cache_type_k: CacheType::F16,
            cache_type_v: CacheType::F16,
            flash_attention: FlashAttention::Auto,
            micro_batch: 512,
            batch: 2048,
            full_window: false,
            ranks: 1,
            engine: EngineProfile::LLAMA_CPP,
        }
    }
}
