//! What runs a model.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// What runs a model: one of the engines that are known by name, or any other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// llama.cpp.
    LlamaCpp,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// mistral.rs.
    MistralRs,
    /// Hugging Face transformers.
    Transformers,
    /// Another, by its name.
    Other(String),
}

impl Runtime {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::MistralRs => "mistral.rs",
            Self::Transformers => "transformers",
            Self::Other(name) => name,
        }
    }
}

/// The known engine of this name, else another of that name.
impl From<&str> for Runtime {
    fn from(name: &str) -> Self {
        let known = [Self::LlamaCpp, Self::Vllm, Self::Sglang, Self::MistralRs, Self::Transformers];
        known
            .into_iter()
            .find(|runtime| runtime.name() == name)
            .unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl From<String> for Runtime {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl FromStr for Runtime {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(Self::from(name))
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
