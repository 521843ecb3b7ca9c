//! Which engine a plan is for.

use std::fmt;
use std::str::FromStr;

use plimsoll_balance::EngineRules;
use plimsoll_export::llama_cpp::{self, Blocks};
use plimsoll_model::{EngineProfile, ModelSpec, Request, ResolvedContext};
use plimsoll_units::Bytes;

/// Which engine will carry a plan out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// llama.cpp: its own bytes, its own margin, its command line.
    LlamaCpp,
    /// None: exactly the layers' bytes, nothing kept free.
    None,
}

impl Engine {
    /// Its name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => EngineProfile::LLAMA_CPP.name,
            Self::None => EngineProfile::NONE.name,
        }
    }

    /// How it lays out a context.
    pub const fn profile(self) -> EngineProfile {
        match self {
            Self::LlamaCpp => EngineProfile::LLAMA_CPP,
            Self::None => EngineProfile::NONE,
        }
    }

    /// What it charges and which plans it can carry out.
    pub(crate) fn rules(
        self,
        model: &ModelSpec,
        request: &Request,
        context: &ResolvedContext,
        cache_ram: Bytes,
    ) -> EngineRules {
        match self {
            Self::None => EngineRules::none(),
            Self::LlamaCpp => llama_cpp::rules(compute_facts(model).as_ref(), request, context, cache_ram),
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
#[error("unknown engine '{text}'; plans are made for llama.cpp and none")]
pub struct UnknownEngine {
    /// The text as it came.
    pub text: String,
}

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        let known = [Self::LlamaCpp, Self::None].into_iter().find(|engine| engine.name() == text);
        known.ok_or_else(|| UnknownEngine { text: text.to_owned() })
    }
}
