//! A plan in an engine's own words, each proven by replaying the engine's rule.
//!
//! It does not plan and does not start anything: it turns a [`plimsoll_balance::Plan`] into text, and text back.
//!
//! # Invariants
//!
//! - What [`llama_cpp::command`] emits comes back as the same plan under [`llama_cpp::assign`], the engine's own rule.
//! - A saved plan ([`PlanFile`]) holds all that is needed to check it later, without the model at hand. Unknown versions
//!   are refused.
//!
//! ```
//! use plimsoll_export::llama_cpp::{Place, assign};
//!
//! // 32 blocks on two cards: "16,16" would put 17 on the first one, for the head counts as well.
//! let places = assign(32, 33, &[16.0, 17.0]);
//! assert_eq!(places[15], Place::Device(0));
//! assert_eq!(places[16], Place::Device(1));
//! assert_eq!(places[32], Place::Device(1), "the head");
//! ```

pub mod accelerate;
mod activations;
mod engine_error;
pub mod exo;
mod fraction;
mod launch;
pub mod llama_cpp;
pub mod llama_swap;
pub mod mistral_rs;
pub mod petals;
mod plan_file;
pub mod vllm;

pub use engine_error::EngineError;
pub use fraction::Share;
pub use launch::{Export, ExportFile, TOGETHER};

pub use plan_file::{
    AssumptionRecord, BasisRecord, ChargesRecord, CommandRecord, EngineRecord, FileRecord, FormatError,
    ModelRecord, MovableRecord, OptimalityRecord, OverrideRecord, PLAN_FORMAT, PartRecord, PartRunRecord,
    PinRecord, PipelinesRecord, PlanFile, ReportRecord, RequestRecord, RunRecord, Saved, StageRecord,
    StoppedRecord, ValueRecord, VariantRecord, assumption_text, layer_digest, objective_word, stopped_text,
    transfers_word,
};

/// The version of an engine whose rules its exports follow; empty for none.
pub fn engine_version(name: &str) -> &'static str {
    match name {
        "llama.cpp" => llama_cpp::VERSION,
        "ik_llama.cpp" => llama_cpp::OLDER_VERSION,
        "vllm" => vllm::VLLM_VERSION,
        "sglang" => vllm::SGLANG_VERSION,
        "mistral.rs" => mistral_rs::VERSION,
        "accelerate" => accelerate::VERSION,
        "petals" => petals::VERSION,
        "exo" => exo::VERSION,
        _ => "",
    }
}
