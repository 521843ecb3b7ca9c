//! Adapters that llama.cpp loads beside a model.

use plimsoll_export::llama_cpp::parse_flags;
use plimsoll_export::{EngineError, PlanFile};
use plimsoll_model::{AdapterError, GgufHeader, ModelSpec, adapter_bytes};
use plimsoll_units::Bytes;

use crate::engine::Engine;
use crate::job::Job;
use crate::parts;

/// The flag of an adapter at its full strength.
pub(crate) const PLAIN: &str = "--lora";

/// The flag of an adapter with a strength of its own.
pub(crate) const SCALED: &str = "--lora-scaled";

/// What stands between the adapters of one flag.
const SEPARATOR: char = ',';

/// What holds a name together; the engine drops it.
const QUOTE: char = '"';

/// What stands between an adapter and its strength.
const SCALE: char = ':';

/// An adapter to load beside a model.
#[derive(Clone, Copy, Debug)]
pub struct Adapter<'a> {
    /// The file, as the person gave it.
    pub path: &'a str,
    /// How strongly it is applied; `None` is in full. Memory does not depend on it.
    pub scale: Option<f32>,
    /// Its header.
    pub header: &'a GgufHeader,
}

/// Why a model cannot have these adapters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// One does not belong to the model.
    #[error("{path} cannot be loaded beside '{model}'")]
    Adapter {
        /// The adapter.
        path: String,
        /// The model.
        model: String,
        /// Why.
        source: Box<AdapterError>,
    },
    /// One is named twice; the engine would hold and apply it twice.
    #[error("{path} is named twice: name it once, with the strength that it should have")]
    Twice {
        /// The adapter.
        path: String,
    },
    /// A name that the engine would read otherwise.
    #[error(
        "{path} has a {mark} in its name, which the engine does not take as a part of it: rename the file"
    )]
    Mark {
        /// The adapter.
        path: String,
        /// The letter.
        mark: char,
    },
}

/// A model with its adapters.
#[derive(Clone, Debug)]
pub struct Adapted {
    model: ModelSpec,
    loaded: Vec<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    path: String,
    scale: Option<f32>,
    bytes: Bytes,
    missing: Bytes,
}

impl Adapted {
    /// A model with adapters loaded beside it, as [`ModelSpec::with_adapter`] says.
    ///
    /// # Errors
    ///
    /// An adapter that does not belong to the model, is named twice, or has a name that the engine would read otherwise.
    pub fn new(model: &ModelSpec, adapters: &[Adapter<'_>]) -> Result<Self, AdaptError> {
        let mut adapted = Self { model: model.clone(), loaded: Vec::new() };
        for Adapter { path, scale, header } in adapters {
            let marks: &[char] =
                if scale.is_some() { &[SEPARATOR, QUOTE, SCALE] } else { &[SEPARATOR, QUOTE] };
            if let Some(&mark) = marks.iter().find(|mark| path.contains(**mark)) {
                return Err(AdaptError::Mark { path: (*path).to_owned(), mark });
            }
            if adapted.loaded.iter().any(|loaded| loaded.path == *path) {
                return Err(AdaptError::Twice { path: (*path).to_owned() });
            }
            adapted.model = adapted.model.with_adapter(header).map_err(|source| AdaptError::Adapter {
                path: (*path).to_owned(),
                model: model.name().to_owned(),
                source: Box::new(source),
            })?;
            adapted.loaded.push(Loaded {
                path: (*path).to_owned(),
                scale: *scale,
                bytes: adapter_bytes(header),
                missing: header.missing_bytes,
            });
        }
        Ok(adapted)
    }

    /// The model: what adapters hold counts with the tensors that they change.
    pub const fn model(&self) -> &ModelSpec {
        &self.model
    }

    /// The words of a command line that load them.
    pub(crate) fn words(&self) -> Vec<String> {
        let words = |Loaded { path, scale, .. }: &Loaded| match scale {
            None => [PLAIN.to_owned(), path.clone()],
            Some(scale) => [SCALED.to_owned(), format!("{path}{SCALE}{scale}")],
        };
        self.loaded.iter().flat_map(words).collect()
    }

    /// What a person should know of them.
    pub(crate) fn notes(&self) -> Vec<String> {
        let lies = |Loaded { path, bytes, .. }: &Loaded| {
            format!(
                "adapter {path}: its {} ({} bytes) count with the tensors that they change",
                bytes.scaled(),
                bytes.get()
            )
        };
        let ends = |Loaded { path, missing, .. }: &Loaded| {
            let missing = (!missing.is_zero()).then(|| missing.get());
            missing.map(|bytes| format!("adapter {path}: the file ends {bytes} bytes before its tensors do"))
        };
        let ends: Vec<String> = self.loaded.iter().filter_map(ends).collect();
        let unknown = "what adapters take to compute is not charged: only the margin covers it";
        let unknown = (!self.loaded.is_empty()).then(|| unknown.to_owned());
        self.loaded.iter().map(lies).chain(ends).chain(unknown).collect()
    }
}

/// The adapters that a saved plan loads, with a strength where it tells one: what they take is in its layers.
pub fn adapters_of(file: &PlanFile) -> Vec<(String, Option<f32>)> {
    let words = parts::words_of(&file.engine_words());
    parse_flags(&words).map(|flags| flags.beside.adapters).unwrap_or_default()
}

impl Engine {
    /// Whether plans with adapters can be made for it.
    ///
    /// # Errors
    ///
    /// It takes none, or takes memory for them that is not known here.
    pub const fn takes_adapters(self) -> Result<(), EngineError> {
        let why = match self {
            Self::LlamaCpp => return Ok(()),
            Self::Vllm => {
                "it sets memory apart for them by --max-loras and --max-lora-rank, which is not counted here"
            }
            Self::Sglang => {
                "it sets memory apart for them by --max-loras-per-batch and --max-lora-rank, which is not counted here"
            }
            _ => "where it keeps them is not known here",
        };
        Err(EngineError::NoAdapters { engine: self.name(), why })
    }
}

impl<'a> Job<'a> {
    /// The same job for the model with its adapters; under llama.cpp.
    #[must_use]
    pub fn with_adapters(self, adapted: &'a Adapted) -> Self {
        Self { model: &adapted.model, adapted: Some(adapted).filter(|all| !all.loaded.is_empty()), ..self }
    }
}
