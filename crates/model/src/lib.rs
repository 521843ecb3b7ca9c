//! What a model weighs, layer by layer: headers of model files in, bytes of weights and caches out.
//!
//! It reads no weights, moves nothing, and knows no device: where layers go is for others to say.
//!
//! [`ModelSpec`] is a model as its files describe it, [`Request`] what is asked of it (context, sequences, form of the
//! cache, engine), and [`ModelSpec::footprint`] brings both together: the bytes of every layer, of the input and of the
//! head, as the engine lays them out.
//!
//! # Invariants
//!
//! - Weights and caches are those that llama.cpp allocates on CPUs and over its rpc, to the byte. For CUDA the engine's
//!   own rounding is applied ([`Padding::Cuda`]).
//! - Never a smaller number: what a header does not tell is an error or a [`ModelWarning`], and tensors that belong to no
//!   known part still count.
//! - Per-layer facts come from the header, never from the name of a quantisation.
//! - Nothing panics on outside input, and no arithmetic wraps.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use plimsoll_model::{ContextLength, GgufHeader, ModelSpec, Padding, Request, Tensor, TensorType, Value};
//! use plimsoll_units::Bytes;
//!
//! let facts = [("block_count", 2), ("embedding_length", 256), ("attention.head_count", 4)];
//! let facts = facts.map(|(key, n)| (format!("llama.{key}"), Value::Unsigned(n)));
//! let mut metadata = BTreeMap::from(facts);
//! metadata.insert("general.architecture".to_owned(), Value::Text("llama".to_owned()));
//! let matrix = |name: &str| Tensor {
//!     name: name.to_owned(),
//!     dims: vec![256, 256],
//!     kind: TensorType::F16,
//!     bytes: Bytes::kib(128),
//! };
//! let tensors = ["token_embd.weight", "blk.0.attn_k.weight", "blk.1.attn_k.weight", "output.weight"].map(matrix);
//! let header = GgufHeader { metadata, tensors: tensors.into(), missing_bytes: Bytes::ZERO };
//!
//! let model = ModelSpec::from_gguf(&header)?;
//! let request = Request { context: Some(ContextLength::PerSequence(1000)), ..Request::default() };
//! let footprint = model.footprint(&request, Padding::Cpu)?;
//! // 1000 cells become 1024; each holds 256 keys and 256 values of two bytes.
//! assert_eq!(footprint.context.total, 1024);
//! assert_eq!(footprint.layers[1].kv_bytes, Bytes::mib(1));
//! assert_eq!(footprint.layers[1].weights_bytes, Bytes::kib(128));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features: `gguf`, `safetensors` and `list` read models from files; without them a header is built by hand.
//! `http` reads those of GGUF and safetensors from servers, a few hundred kilobytes of each.

mod arch;
mod engines;
#[cfg(any(feature = "gguf", feature = "safetensors"))]
mod files;
#[cfg(feature = "gguf")]
pub mod gguf;
mod header;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "list", feature = "safetensors"))]
mod json;
mod kv;
mod layer;
#[cfg(feature = "list")]
pub mod list;
mod request;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod spec;
mod tensor;

pub use header::{GgufHeader, Tensor, Value};
pub use kv::EstimateError;
pub use layer::{Footprint, LayerSpec, ResolvedContext};
pub use request::{
    CacheType, ContextLength, EngineProfile, FlashAttention, Padding, Request, UnknownCacheType, WindowStore,
};
pub use spec::{
    AdapterError, ClassBytes, DenseShape, LayerPart, LayerTensor, ModelFormat, ModelSpec, ModelWarning,
    PlacedTensor, SpecError, TensorClass, TensorPlace, adapter_bytes, tensor_bytes,
};
#[cfg(any(feature = "gguf", feature = "list", feature = "safetensors"))]
pub use spec::{OpenError, open};
pub use tensor::TensorType;
