//! What a model weighs, layer by layer.

mod header;
mod layer;
mod request;
mod tensor;

pub use header::{GgufHeader, Tensor, Value};
pub use layer::{Footprint, LayerSpec, ResolvedContext};
pub use request::{
    CacheType, ContextLength, EngineProfile, FlashAttention, Padding, Request, UnknownCacheType,
};
pub use tensor::TensorType;
