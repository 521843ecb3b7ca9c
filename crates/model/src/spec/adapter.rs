//! Adapters: small matrices beside those of a model, which change what they compute.

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use crate::header::{GgufHeader, Tensor, shown};
use crate::spec::weights::Weight;
use crate::spec::{ModelFormat, ModelSpec, ModelWarning};

/// Why an adapter cannot be loaded beside a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// A file of another kind: a model, a projector.
    #[error("it is no adapter: its 'general.type' is {}", told(.kind.as_deref()))]
    NotAnAdapter {
        /// What it says it is, where it says so.
        kind: Option<String>,
    },
    /// An adapter of another kind.
    #[error("it is an adapter of the type {}, and only 'lora' is known", told(.kind.as_deref()))]
    NotLora {
        /// What it says it is, where it says so.
        kind: Option<String>,
    },
    /// An adapter for models of another family.
    #[error(
        "it is an adapter for the architecture {}, and the model is '{}'",
        told(.adapter.as_deref()), shown(.model)
    )]
    OtherArchitecture {
        /// The adapter's, where it tells one.
        adapter: Option<String>,
        /// The model's.
        model: String,
    },
    /// The model is no GGUF, so that its tensors have other names.
    #[error("adapters name the tensors of a GGUF, and '{}' is none", shown(.model))]
    NotAGguf {
        /// The model.
        model: String,
    },
    /// A tensor that is neither half of a pair.
    #[error("tensor '{}' ends neither in .lora_a nor in .lora_b", shown(.tensor))]
    UnknownTensor {
        /// The tensor.
        tensor: String,
    },
    /// One half of a pair without the other.
    #[error("tensor '{}' has no partner '{}'", shown(.tensor), shown(.partner))]
    NoPartner {
        /// The half that is there.
        tensor: String,
        /// The half that is not.
        partner: String,
    },
    /// No pair at all.
    #[error("it holds no pair of tensors")]
    Empty,
    /// It changes a tensor that the model does not load.
    #[error("tensor '{}' changes '{}', which is not among the tensors that '{}' loads", shown(.tensor), shown(.base), shown(.model))]
    NoBase {
        /// The first half of the pair.
        tensor: String,
        /// What it changes.
        base: String,
        /// The model.
        model: String,
    },
    /// The sides of a pair are not those of the tensor that it changes, or of each other.
    #[error(
        "'{base}.lora_a' is {} and '{base}.lora_b' is {}: that does not fit '{base}' of the model, which is {}",
        sides(.a), sides(.b), sides(.model), base = shown(.base)
    )]
    OtherShape {
        /// What the pair changes.
        base: String,
        /// The sides of the first half, the contiguous one first.
        a: Vec<u64>,
        /// The sides of the second half.
        b: Vec<u64>,
        /// The sides of the tensor in the model.
        model: Vec<u64>,
    },
    /// More bytes than 64 bits count.
    #[error("model and adapter together take more than 18446744073709551615 bytes (2^64 - 1)")]
    TooLarge,
}

fn told(fact: Option<&str>) -> String {
    fact.map_or_else(|| "not told".to_owned(), |fact| format!("'{}'", shown(fact)))
}

fn sides(dims: &[u64]) -> String {
    let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// Both halves of what changes one tensor.
#[derive(Default)]
struct Pair<'a> {
    a: Option<&'a Tensor>,
    b: Option<&'a Tensor>,
}

/// What the engine does not load although an adapter may hold it.
const NORM: &str = "_norm.weight";

/// The pairs of an adapter by the tensors that they change, and how many norms the engine leaves in the file.
fn pairs(header: &GgufHeader) -> Result<(BTreeMap<&str, Pair<'_>>, usize), AdapterError> {
    let mut pairs: BTreeMap<&str, Pair<'_>> = BTreeMap::new();
    let mut norms = 0;
    for tensor in &header.tensors {
        if let Some(base) = tensor.name.strip_suffix(".lora_a") {
            pairs.entry(base).or_default().a = Some(tensor);
        } else if let Some(base) = tensor.name.strip_suffix(".lora_b") {
            pairs.entry(base).or_default().b = Some(tensor);
        } else if tensor.name.ends_with(NORM) {
            norms += 1;
        } else {
            return Err(AdapterError::UnknownTensor { tensor: tensor.name.clone() });
        }
    }
    Ok((pairs, norms))
}

/// What the tensors of an adapter that an engine loads take in its file: all but norms, which llama.cpp leaves there.
pub fn adapter_bytes(header: &GgufHeader) -> Bytes {
    let loaded = header.tensors.iter().filter(|tensor| !tensor.name.ends_with(NORM));
    Bytes::saturating_sum(loaded.map(|tensor| tensor.bytes))
}

impl ModelSpec {
    /// The same model with a low-rank adapter loaded beside it, as llama.cpp does: both matrices of a pair lie in the
    /// buffer of the tensor that they change, so they count with its layer, the input or the head, go to the host where it
    /// goes there, and are read where it is read. What a tied output matrix is copied from lies with the input.
    ///
    /// What files and weights count ([`ModelSpec::file_bytes`], [`ModelSpec::num_weights`]) stays that of the model alone.
    ///
    /// # Errors
    ///
    /// No adapter, or one of another type or architecture; a model that is no GGUF; a tensor without its partner, whose
    /// base the model does not load, or of another shape.
    pub fn with_adapter(&self, header: &GgufHeader) -> Result<Self, AdapterError> {
        self.suits(header)?;
        let (pairs, norms) = pairs(header)?;
        if pairs.is_empty() {
            return Err(AdapterError::Empty);
        }
        let mut adapted = self.clone();
        {
            let mut bases = adapted.bases();
            for (base, pair) in pairs {
                let (a, b) = whole(base, &pair)?;
                let weight = bases.get_mut(base).ok_or_else(|| AdapterError::NoBase {
                    tensor: a.name.clone(),
                    base: base.to_owned(),
                    model: self.name.clone(),
                })?;
                fits(base, a, b, weight)?;
                weight.pairs.extend([a, b].map(|half| Weight::of_tensor(half, weight.class)));
            }
        }
        let all = adapted.all_weights().flat_map(|weight| weight.pairs.iter().chain([weight]));
        Bytes::checked_sum(all.map(|weight| weight.bytes)).ok_or(AdapterError::TooLarge)?;
        adapted.warnings.extend((norms > 0).then_some(ModelWarning::AdapterNorms { count: norms }));
        Ok(adapted)
    }

    /// Whether an adapter says that it is one, for models of this kind.
    fn suits(&self, header: &GgufHeader) -> Result<(), AdapterError> {
        let fact = |key: &str| header.metadata.get(key).and_then(|value| value.as_text()).map(str::to_owned);
        let kind = fact("general.type");
        if kind.as_deref() != Some("adapter") {
            return Err(AdapterError::NotAnAdapter { kind });
        }
        let kind = fact("adapter.type");
        if kind.as_deref() != Some("lora") {
            return Err(AdapterError::NotLora { kind });
        }
        if self.format != ModelFormat::Gguf {
            return Err(AdapterError::NotAGguf { model: self.name.clone() });
        }
        let adapter = fact("general.architecture");
        if adapter.as_deref() != Some(&self.architecture) {
            return Err(AdapterError::OtherArchitecture { adapter, model: self.architecture.clone() });
        }
        Ok(())
    }

    /// The tensors that the engine loads, by name; next-token blocks it does not.
    fn bases(&mut self) -> BTreeMap<String, &mut Weight> {
        let layers = self.layer_count();
        let blocks = self.blocks[..layers].iter_mut().flat_map(|block| &mut block.weights);
        let all = blocks.chain(&mut self.input).chain(&mut self.head);
        all.map(|weight| (weight.name.to_string(), weight)).collect()
    }
}

fn whole<'a>(base: &str, pair: &Pair<'a>) -> Result<(&'a Tensor, &'a Tensor), AdapterError> {
    let lone = |half: &Tensor, other: &str| AdapterError::NoPartner {
        tensor: half.name.clone(),
        partner: format!("{base}.{other}"),
    };
    match (pair.a, pair.b) {
        (Some(a), Some(b)) => Ok((a, b)),
        (Some(a), None) => Err(lone(a, "lora_b")),
        (None, Some(b)) => Err(lone(b, "lora_a")),
        (None, None) => Err(AdapterError::Empty),
    }
}

/// Whether a pair changes what it names: `b` times `a` has the sides of the base. For the token embedding, of which rows
/// are looked up, it is `a` that lies the other way round. A stack of experts has a pair for each.
fn fits(base: &str, a: &Tensor, b: &Tensor, weight: &Weight) -> Result<(), AdapterError> {
    let side = |tensor: &Tensor, at: usize| tensor.dims.get(at).copied().unwrap_or(1);
    let own = |at: usize| weight.dims().get(at).copied().unwrap_or(1);
    let embeds = base.ends_with("token_embd.weight");
    let product = match embeds {
        true => [side(b, 1), side(a, 1)],
        false => [side(a, 0), side(b, 1)],
    };
    let rank = if embeds { side(a, 0) } else { side(a, 1) };
    let deep = (2..4).all(|at| side(a, at) == own(at) && side(b, at) == own(at));
    if product == [own(0), own(1)] && rank == side(b, 0) && deep {
        return Ok(());
    }
    Err(AdapterError::OtherShape {
        base: base.to_owned(),
        a: a.dims.clone(),
        b: b.dims.clone(),
        model: weight.dims().to_vec(),
    })
}
