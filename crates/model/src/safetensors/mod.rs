//! safetensors checkpoints: headers, index and `config.json`.
//!
//! Only headers are read. A checkpoint is exactly the files that its index names, each once.

mod error;

use plimsoll_units::Bytes;
use serde_json::Value;

pub use error::{SafetensorsError, Warning};

use crate::header::Tensor;

/// A checkpoint: the headers of all its files, and the model's hyperparameters beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// `config.json`, where there is one beside the weights.
    pub config: Option<Value>,
    /// The tensors of all files, by name. Sides are in GGUF's order, the contiguous one first.
    pub tensors: Vec<Tensor>,
    /// How many bytes of tensor data the headers promise beyond the end of the files; zero for a whole checkpoint.
    pub missing_bytes: Bytes,
    /// What is odd, but changes no size.
    pub warnings: Vec<Warning>,
}
