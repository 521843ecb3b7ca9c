//! How engines other than llama.cpp lay out a context: data, no code.

use crate::request::EngineProfile;

/// A cache in pages of 16 tokens; a window keeps the tokens of one step on top.
const PAGED: EngineProfile =
    EngineProfile { cell_multiple: 16, window_holds_micro_batch: true, ..EngineProfile::NONE };

impl EngineProfile {
    /// ik_llama.cpp, which counts `-ngl` as llama.cpp did in February 2025; it lays out a context as llama.cpp does.
    pub const IK_LLAMA_CPP: Self = Self { name: "ik_llama.cpp", ..Self::LLAMA_CPP };

    /// transformers under a device map of accelerate: a plain cache that grows on each layer's device.
    pub const ACCELERATE: Self = Self { name: "accelerate", ..Self::NONE };

    /// mistral.rs: pages of 32 tokens.
    pub const MISTRAL_RS: Self = Self { name: "mistral.rs", cell_multiple: 32, ..PAGED };

    /// Petals: plain tensors, allocated for the whole cache of a server.
    pub const PETALS: Self = Self { name: "petals", ..Self::NONE };

    /// exo on MLX: a cache that grows in steps of 256 tokens.
    pub const EXO: Self = Self { name: "exo", cell_multiple: 256, ..Self::NONE };

    /// Every engine, and none.
    pub const ALL: [Self; 9] = [
        Self::LLAMA_CPP,
        Self::IK_LLAMA_CPP,
        Self::VLLM,
        Self::SGLANG,
        Self::MISTRAL_RS,
        Self::ACCELERATE,
        Self::PETALS,
        Self::EXO,
        Self::NONE,
    ];

    /// The engine of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}
