//! Which engine a plan is for.

use std::fmt;
use std::str::FromStr;

use plimsoll_balance::EngineRules;
use plimsoll_export::llama_cpp::{self, Blocks};
use plimsoll_export::{accelerate, exo, mistral_rs, petals, vllm};
use plimsoll_model::{EngineProfile, Footprint, ModelFormat, ModelSpec, Request};
use plimsoll_units::Bytes;

/// Which engine will carry a plan out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// llama.cpp: its own bytes, its own margin, its command line.
    LlamaCpp,
    /// ik_llama.cpp, and llama.cpp as it was in February 2025: `-ngl` counts without the output layer.
    IkLlamaCpp,
    /// vLLM: a pipeline of ranks.
    Vllm,
    /// SGLang: a pipeline of ranks.
    Sglang,
    /// mistral.rs: a number of layers for each device.
    MistralRs,
    /// transformers under a device map of accelerate.
    Accelerate,
    /// Petals: blocks for each server.
    Petals,
    /// exo: a ring of nodes.
    Exo,
    /// None: exactly the layers' bytes, nothing kept free.
    None,
}

impl Engine {
    /// Every engine, and none, in the order in which help lists them.
    pub const ALL: [Self; 9] = [
        Self::LlamaCpp,
        Self::IkLlamaCpp,
        Self::Vllm,
        Self::Sglang,
        Self::MistralRs,
        Self::Accelerate,
        Self::Petals,
        Self::Exo,
        Self::None,
    ];

    /// Its name on the command line and in files.
    pub const fn name(self) -> &'static str {
        self.profile().name
    }

    /// How it lays out a context.
    pub const fn profile(self) -> EngineProfile {
        match self {
            Self::LlamaCpp => EngineProfile::LLAMA_CPP,
            Self::IkLlamaCpp => EngineProfile::IK_LLAMA_CPP,
            Self::Vllm => EngineProfile::VLLM,
            Self::Sglang => EngineProfile::SGLANG,
            Self::MistralRs => EngineProfile::MISTRAL_RS,
            Self::Accelerate => EngineProfile::ACCELERATE,
            Self::Petals => EngineProfile::PETALS,
            Self::Exo => EngineProfile::EXO,
            Self::None => EngineProfile::NONE,
        }
    }

    /// Whether it is llama.cpp in any of its forms.
    pub(crate) const fn is_llama_cpp(self) -> bool {
        matches!(self, Self::LlamaCpp | Self::IkLlamaCpp)
    }

    /// Whether it can share every layer between equal devices.
    pub(crate) const fn shares_layers(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }

    /// Whether plans for models of this form make sense. A list stands for a model in any form, and a checkpoint can be
    /// converted for llama.cpp.
    pub(crate) const fn runs(self, format: ModelFormat) -> bool {
        match format {
            ModelFormat::List | ModelFormat::Safetensors => true,
            ModelFormat::Gguf => {
                matches!(self, Self::LlamaCpp | Self::IkLlamaCpp | Self::MistralRs | Self::None)
            }
        }
    }

    /// The model as it places it.
    pub(crate) fn places(self, footprint: Footprint) -> Footprint {
        match self {
            Self::MistralRs => mistral_rs::without_ends(footprint),
            // Embedding and head lie with every client.
            Self::Petals => mistral_rs::without_ends(footprint),
            Self::Exo => exo::on_every_node(footprint),
            // A head that is the embedding is not copied: it lies where the embedding does.
            Self::Accelerate => Footprint { head_bytes: footprint.head_beside_input_bytes, ..footprint },
            Self::LlamaCpp | Self::IkLlamaCpp | Self::Vllm | Self::Sglang | Self::None => footprint,
        }
    }

    /// What it charges and which plans it can carry out. `whole` is the model before [`Engine::places`].
    pub(crate) fn rules(
        self,
        model: &ModelSpec,
        request: &Request,
        whole: &Footprint,
        cache_ram: Bytes,
    ) -> EngineRules {
        let facts = compute_facts(model);
        let facts = facts.as_ref();
        match self {
            Self::None => EngineRules::none(),
            Self::LlamaCpp | Self::IkLlamaCpp => llama_cpp::rules(facts, request, &whole.context, cache_ram),
            Self::Vllm | Self::Sglang => vllm::rules(facts, request),
            Self::MistralRs => mistral_rs::rules(facts, request, whole),
            Self::Accelerate => accelerate::rules(facts, request, &whole.context),
            Self::Petals => petals::rules(facts, request),
            Self::Exo => exo::rules(facts, request),
        }
    }
}

/// The facts that compute buffers depend on; `None` for a layer list, which tells none.
pub(crate) fn compute_facts(model: &ModelSpec) -> Option<llama_cpp::ComputeFacts> {
    let (embedding_length, vocabulary) = (model.embedding_length(), model.vocabulary_size());
    let experts = model.expert_feed_forward_length().saturating_mul(model.experts_used());
    (embedding_length > 0 && vocabulary > 0).then(|| llama_cpp::ComputeFacts {
        embedding_length,
        feed_forward_length: model.feed_forward_length().max(experts),
        vocabulary,
        heads: model.head_count(),
        blocks: blocks(model),
    })
}

fn blocks(model: &ModelSpec) -> Blocks {
    let windows = model.has_windows();
    match (model.has_recurrent_layers(), model.has_latent_attention(), model.has_experts()) {
        (true, false, _) if !windows => Blocks::Recurrent,
        (false, true, _) if !windows => Blocks::Latent,
        (false, false, true) if windows => Blocks::WindowedExperts,
        (false, false, true) => Blocks::Experts,
        (false, false, false) if windows => Blocks::Windows,
        (false, false, false) if model.dense_shape().is_some() => Blocks::Dense,
        _ => Blocks::Mixed,
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An engine that plans cannot be made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown engine '{text}'; plans are made for {}", known())]
pub struct UnknownEngine {
    /// The text as it came.
    pub text: String,
}

fn known() -> String {
    let names: Vec<&str> = Engine::ALL.iter().map(|engine| engine.name()).collect();
    names.join(", ")
}

impl FromStr for Engine {
    type Err = UnknownEngine;

    /// By name; `transformers` is accelerate.
    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        let name = if text == "transformers" { Self::Accelerate.name() } else { text };
        let known = Self::ALL.into_iter().find(|engine| engine.name() == name);
        known.ok_or_else(|| UnknownEngine { text: text.to_owned() })
    }
}
