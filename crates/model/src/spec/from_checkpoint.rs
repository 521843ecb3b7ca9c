//! A model from a safetensors checkpoint.

use crate::arch::LayerShape;
use crate::arch::config::{Config, shape};
use crate::safetensors::Checkpoint;
use crate::spec::builder::{Builder, Tie};
use crate::spec::names::{Place, of_checkpoint};
use crate::spec::{ModelFormat, ModelSpec, ModelWarning, SpecError};

/// The most blocks for next-token prediction behind the layers; more are damage.
const MOST_NEXTN: usize = 64;

impl ModelSpec {
    /// Reads a checkpoint as a model; `name` is what to call it.
    ///
    /// Blocks beyond the `num_hidden_layers` of its `config.json` are those for next-token prediction, as many as it
    /// tells of.
    ///
    /// # Errors
    ///
    /// No `config.json`; a family that is not known and lacks the keys of ordinary attention; a known one without keys
    /// that it needs; keys with values that do not fit; no token embedding.
    pub fn from_checkpoint(name: &str, checkpoint: &Checkpoint) -> Result<Self, SpecError> {
        let config = Config::new(checkpoint.config.as_ref().ok_or(SpecError::NoConfig)?)?;
        let mut warnings: Vec<ModelWarning> = Vec::new();
        let (mut shape, family) = shape(&config, &mut warnings)?;
        let layers = shape.layers.len();

        let placed: Vec<_> = checkpoint.tensors.iter().map(|tensor| of_checkpoint(&tensor.name)).collect();
        let blocks = placed.iter().filter_map(|(place, _)| match place {
            Place::Block(index) => usize::try_from(*index).ok(),
            _ => None,
        });
        let beyond = blocks.max().map_or(0, |last| last.saturating_add(1).saturating_sub(layers));
        // A family without next-token blocks has no layers beyond those that it counts: one more is a wrong count.
        if beyond <= config.next_token_blocks()?.min(MOST_NEXTN) {
            shape.nextn = beyond;
            shape.layers.resize(layers + beyond, LayerShape::default());
        }

        let architecture = config.model_type().unwrap_or_default();
        let mut builder = Builder::new(ModelFormat::Safetensors, Some(name), architecture, shape);
        builder.warn(warnings);
        for (tensor, (place, class)) in checkpoint.tensors.iter().zip(placed) {
            builder.tensor(tensor, place, class)?;
        }
        builder.missing(checkpoint.missing_bytes);
        builder.warn(checkpoint.warnings.iter().map(|w| ModelWarning::Reader { text: w.to_string() }));
        builder.finish(family.goes_on().then_some(&TIE))
    }
}

const TIE: Tie = Tie {
    is_output: |name| {
        let mut parts = name.split('.');
        parts.any(|part| matches!(part, "lm_head" | "output" | "embed_out"))
    },
    is_embedding: |name| {
        let mut parts = name.split('.');
        parts.any(|part| {
            let names = [
                "embed_tokens",
                "wte",
                "word_embeddings",
                "embeddings",
                "embed_in",
                "embedding",
                "tok_embeddings",
            ];
            names.contains(&part)
        })
    },
    what: "embed_tokens.weight",
};
