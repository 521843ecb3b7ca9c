//! What a model weighs, layer by layer.

mod arch;
mod header;
mod kv;
mod layer;
mod request;
mod spec;
mod tensor;

pub use kv::EstimateError;
pub use header::{GgufHeader, Tensor, Value};
pub use layer::{Footprint, LayerSpec, ResolvedContext};
pub use request::{
    CacheType, ContextLength, EngineProfile, FlashAttention, Padding, Request, UnknownCacheType,
};
#[cfg(any(feature = "gguf", feature = "list", feature = "safetensors"))]
pub use spec::{OpenError, open};
pub use spec::{
    ClassBytes, DenseShape, LayerTensor, ModelFormat, ModelSpec, ModelWarning, SpecError, TensorClass,
};
pub use tensor::TensorType;
