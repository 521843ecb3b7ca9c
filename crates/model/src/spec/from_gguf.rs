//! A model from the header of a GGUF.

use crate::arch::Shape;
use crate::arch::facts::{Evidence, Facts, shape};
use crate::arch::rules::{Mixer, Rule, rule};
use crate::header::{GgufHeader, Tensor};
use crate::spec::builder::{Builder, Tie};
use crate::spec::names::{has_two_stacks, of_gguf};
use crate::spec::{ModelFormat, ModelSpec, ModelWarning, SpecError};

pub(super) fn from_gguf(header: &GgufHeader) -> Result<ModelSpec, SpecError> {
    let text = |key: &str| header.metadata.get(key).and_then(|value| value.as_text());
    let architecture = text("general.architecture").ok_or(SpecError::NoArchitecture)?;
    match text("general.type") {
        None | Some("model") if architecture != "clip" => {}
        kind => {
            let kind = kind.filter(|kind| *kind != "model").unwrap_or(architecture);
            return Err(SpecError::NotAModel { kind: kind.to_owned() });
        }
    }
    let mut warnings = Vec::new();
    let known = rule(architecture);
    if known.is_none() {
        warnings.push(ModelWarning::OrdinaryRule { architecture: architecture.to_owned() });
    }
    let rule = known.unwrap_or(Rule::UNLISTED);
    let facts = Facts { metadata: &header.metadata, architecture };
    check_keys(&facts, known, header)?;

    let shape = read_shape(&facts, rule, header)?;
    let mut builder = Builder::new(ModelFormat::Gguf, text("general.name"), architecture, shape);
    builder.warn(warnings);
    for tensor in &header.tensors {
        if has_two_stacks(&tensor.name) {
            let (architecture, tensor) = (architecture.to_owned(), tensor.name.clone());
            return Err(SpecError::TwoStacks { architecture, tensor });
        }
        let (place, class) = of_gguf(&tensor.name);
        builder.tensor(tensor, place, class)?;
    }
    builder.missing(header.missing_bytes);
    let has_output = rule.mixer != Mixer::Encoder;
    builder.finish(has_output.then_some(&TIE))
}

const TIE: Tie = Tie {
    is_output: |name| name == "output.weight",
    is_embedding: |name| name == "token_embd.weight",
    what: "token_embd.weight",
};

/// Whether the header has the keys that its rule needs.
fn check_keys(facts: &Facts<'_>, known: Option<Rule>, header: &GgufHeader) -> Result<(), SpecError> {
    let attends = known.is_none_or(|rule| !matches!(rule.mixer, Mixer::Recurrent | Mixer::Encoder));
    // A header without heads is that of a model without attention, unless its tensors tell otherwise.
    let has_keys = |t: &Tensor| t.name.contains(".attn_k.") || t.name.contains(".attn_kv_a_mqa.");
    let needs_heads = known.is_none() || (attends && header.tensors.iter().any(has_keys));
    let needed: &[&str] = if needs_heads {
        &["block_count", "embedding_length", "attention.head_count"]
    } else {
        &["block_count", "embedding_length"]
    };
    let mut missing = Vec::new();
    for key in needed {
        let full = format!("{}.{key}", facts.architecture);
        if !header.metadata.contains_key(&full) {
            missing.push(full);
        }
    }
    let architecture = || facts.architecture.to_owned();
    match (missing.is_empty(), known) {
        (true, _) => Ok(()),
        (false, Some(_)) => Err(SpecError::MissingKeys { architecture: architecture(), missing }),
        (false, None) => Err(SpecError::UnknownArchitecture { architecture: architecture(), missing }),
    }
}

fn read_shape(facts: &Facts<'_>, rule: Rule, header: &GgufHeader) -> Result<Shape, SpecError> {
    let block_of = |t: &Tensor| {
        let (index, rest) = t.name.strip_prefix("blk.")?.split_once('.')?;
        rest.starts_with("ssm_").then(|| index.parse().ok())?
    };
    let recurrent = header.tensors.iter().filter_map(block_of).collect();
    let embedding = header.tensors.iter().find(|t| t.name == "token_embd.weight");
    let vocabulary = embedding.and_then(|t| t.dims.get(1)).copied();
    shape(facts, rule, &Evidence { recurrent, vocabulary })
}
