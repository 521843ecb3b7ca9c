//! What can be wrong with a model's description, and what is only odd.

use plimsoll_units::Bytes;

use crate::header::shown;

/// Why a header cannot be read as a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The header does not say what it is.
    #[error("the header has no 'general.architecture'")]
    NoArchitecture,
    /// An adapter, a projector, a vocabulary.
    #[error("the file is of type '{}', not a model of its own", shown(.kind))]
    NotAModel {
        /// What it says it is.
        kind: String,
    },
    /// An architecture with an encoder beside the decoder.
    #[error(
        "architecture '{}' has an encoder beside its decoder (tensor '{}'), which cannot be split by layers",
        shown(.architecture), shown(.tensor)
    )]
    TwoStacks {
        /// The architecture.
        architecture: String,
        /// A tensor that shows it.
        tensor: String,
    },
    /// An architecture that is not known, and whose header lacks the keys of the ordinary rule.
    #[error("unknown architecture '{}', and the header lacks {} of the ordinary rule", shown(.architecture), list(.missing))]
    UnknownArchitecture {
        /// The architecture.
        architecture: String,
        /// The keys that the ordinary rule needs.
        missing: Vec<String>,
    },
    /// A known architecture without keys that it needs.
    #[error("the header of a '{}' model lacks {}", shown(.architecture), list(.missing))]
    MissingKeys {
        /// The architecture.
        architecture: String,
        /// The keys.
        missing: Vec<String>,
    },
    /// A key with a value of the wrong kind.
    #[error("key '{}' holds {}, not {expected}", shown(.key), shown(.found))]
    BadKey {
        /// The key.
        key: String,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A list that does not fit the layers.
    #[error("key '{}' lists {found} items for {expected} layers", shown(.key))]
    WrongLength {
        /// The key.
        key: String,
        /// How many it lists.
        found: usize,
        /// How many blocks there are.
        expected: usize,
    },
    /// More layers than any model has.
    #[error("the header counts {found} layers; at most {most} are believed")]
    TooManyLayers {
        /// How many it counts.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// More next-token blocks than blocks.
    #[error("the header counts {nextn} next-token blocks among {blocks} blocks")]
    TooManyNextn {
        /// Next-token blocks.
        nextn: u64,
        /// All blocks.
        blocks: u64,
    },
    /// A tensor of a layer that the header does not count.
    #[error("tensor '{}' belongs to layer {layer}, but only {layers} layers are counted", shown(.tensor))]
    LayerOutOfRange {
        /// The tensor.
        tensor: String,
        /// Its layer, from 0.
        layer: u64,
        /// How many there are.
        layers: usize,
    },
    /// A tensor without which there is no model.
    #[error("tensor '{name}' is missing")]
    MissingTensor {
        /// Its name, or what it is.
        name: &'static str,
    },
    /// A product of hyperparameters above 2^64 - 1.
    #[error("{what} has more values than 18446744073709551615 (2^64 - 1)")]
    TooLarge {
        /// What is so large.
        what: &'static str,
    },
    /// A checkpoint without `config.json`.
    #[error("the checkpoint has no config.json, which tells its layers and heads")]
    NoConfig,
    /// A `config.json` without a `model_type`.
    #[error("config.json has no 'model_type'")]
    NoModelType,
}

/// Something odd about a model that does not keep it from being planned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelWarning {
    /// The architecture is not known; its layers were taken for ordinary attention.
    OrdinaryRule {
        /// The architecture.
        architecture: String,
    },
    /// The files end before their tensors do.
    MissingBytes {
        /// How much is missing.
        bytes: Bytes,
    },
    /// Tensors that belong to no part that is known, counted with the input.
    Unplaced {
        /// The first of them.
        tensor: String,
        /// How many.
        count: usize,
        /// Their bytes.
        bytes: Bytes,
    },
    /// Norms of an adapter, which the engine leaves in its file.
    AdapterNorms {
        /// How many.
        count: usize,
    },
    /// What the reader of the files had to say.
    Reader {
        /// Its words.
        text: String,
    },
}

impl std::fmt::Display for ModelWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OrdinaryRule { architecture } => {
                let name = shown(architecture);
                write!(f, "architecture '{name}' is not known; its layers are taken for ordinary attention")
            }
            Self::MissingBytes { bytes } => {
                let bytes = bytes.get();
                write!(
                    f,
                    "the files end {bytes} bytes before their tensors do; sizes are those of the tensors"
                )
            }
            Self::Unplaced { tensor, count, bytes } => {
                let (tensor, size) = (shown(tensor), bytes.scaled());
                write!(
                    f,
                    "tensors of no known part count with the input: {count} with {size}, the first is '{tensor}'"
                )
            }
            Self::AdapterNorms { count } => {
                let norms = if *count == 1 { "norm" } else { "norms" };
                write!(f, "the engine does not load the {count} {norms} of the adapter")
            }
            Self::Reader { text } => f.write_str(text),
        }
    }
}

/// `'a', 'b' and 'c'`.
fn list(items: &[String]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| format!("'{}'", shown(item))).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
