//! What a model weighs, layer by layer.

#[cfg(feature = "gguf")]
pub mod gguf;
mod header;
mod layer;
#[cfg(feature = "list")]
pub mod list;
mod request;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod tensor;

pub use header::{GgufHeader, Tensor, Value};
pub use layer::{Footprint, LayerSpec, ResolvedContext};
pub use request::{
    CacheType, ContextLength, EngineProfile, FlashAttention, Padding, Request, UnknownCacheType,
};
pub use tensor::TensorType;
