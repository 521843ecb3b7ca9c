//! A model as its files describe it.

mod adapter;
mod builder;
mod error;
mod footprint;
#[cfg(feature = "safetensors")]
mod from_checkpoint;
mod from_gguf;
#[cfg(feature = "list")]
mod from_list;
pub(crate) mod names;
mod of_rank;
#[cfg(any(feature = "gguf", feature = "list", feature = "safetensors"))]
mod open;
mod parts;
mod placed;
mod weights;

use plimsoll_units::Bytes;

pub use adapter::{AdapterError, adapter_bytes};
pub use error::{ModelWarning, SpecError};
#[cfg(feature = "http")]
pub use open::open_url;
#[cfg(any(feature = "gguf", feature = "list", feature = "safetensors"))]
pub use open::{OpenError, open};
pub use parts::{LayerPart, tensor_bytes};
pub use placed::{PlacedTensor, TensorPlace};
pub use weights::{ClassBytes, TensorClass};

use crate::arch::{LayerShape, Shape};
use crate::header::GgufHeader;
use crate::request::Padding;
use weights::{Weight, padded_sum};

/// What a model was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelFormat {
    /// A GGUF, which llama.cpp runs.
    Gguf,
    /// A safetensors checkpoint.
    Safetensors,
    /// A list of layers.
    List,
}

/// The tensors of one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) weights: Vec<Weight>,
    /// Whether no stage may end right after it.
    pub(crate) uncut: bool,
}

/// A model as its files describe it: which tensors belong to which layer, and what each layer keeps for every token.
///
/// It never changes, and knows no request: [`ModelSpec::footprint`] resolves it for one. Layers are the repeating
/// blocks; blocks for next-token prediction are counted apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    format: ModelFormat,
    name: String,
    architecture: String,
    // Invariant: as many layers in `shape` as blocks; the last `shape.nextn` of both predict further tokens.
    shape: Shape,
    blocks: Vec<Block>,
    /// Next-token tensors outside of any block.
    beyond: Vec<Weight>,
    input: Vec<Weight>,
    head: Vec<Weight>,
    each_device: Vec<Weight>,
    /// The part of the input that stands in for the output matrix.
    tied: Vec<Weight>,
    missing_bytes: Bytes,
    warnings: Vec<ModelWarning>,
}

impl ModelSpec {
    /// Reads the header of a GGUF as a model.
    ///
    /// # Errors
    ///
    /// Not a model of its own; an architecture that is not known and lacks the keys of ordinary attention; a known one
    /// without keys that it needs; keys with values that do not fit; a tensor of a layer that is not counted; no token
    /// embedding.
    pub fn from_gguf(header: &GgufHeader) -> Result<Self, SpecError> {
        from_gguf::from_gguf(header)
    }

    /// What it was read from.
    pub const fn format(&self) -> ModelFormat {
        self.format
    }

    /// Its name; the architecture where it tells none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same model under another name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Its architecture, as its format calls it.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// How many layers it has, without next-token blocks.
    pub fn layer_count(&self) -> usize {
        self.blocks.len().saturating_sub(self.shape.nextn)
    }

    /// How many blocks for next-token prediction follow the layers.
    pub fn nextn_count(&self) -> usize {
        self.shape.nextn
    }

    /// What the next-token blocks would take in a device's buffer, were they loaded.
    pub fn nextn_bytes(&self, padding: Padding) -> Bytes {
        let blocks = self.blocks[self.layer_count()..].iter().flat_map(|block| &block.weights);
        padded_sum(blocks.chain(&self.beyond), padding)
    }

    /// Whether the token embedding is the output matrix as well.
    pub fn is_tied(&self) -> bool {
        !self.tied.is_empty()
    }

    /// What the files lack of the bytes that their tables promise; zero for whole files.
    pub const fn missing_bytes(&self) -> Bytes {
        self.missing_bytes
    }

    /// What is odd about it.
    pub fn warnings(&self) -> &[ModelWarning] {
        &self.warnings
    }

    /// The tokens of one sequence that it was trained for, where that is told.
    pub const fn trained_context(&self) -> Option<u64> {
        self.shape.trained_context
    }

    /// The values of one token between layers; zero where that is not told.
    pub const fn embedding_length(&self) -> u64 {
        self.shape.embedding
    }

    /// How many tokens it knows; zero where that is not told.
    pub const fn vocabulary_size(&self) -> u64 {
        self.shape.vocabulary
    }

    /// The widest dense feed-forward part of its layers.
    pub fn feed_forward_length(&self) -> u64 {
        self.layers_shape().iter().map(|l| l.feed_forward).max().unwrap_or(0)
    }

    /// The most query heads of its layers; zero without attention.
    pub fn head_count(&self) -> u64 {
        self.layers_shape().iter().map(|l| l.heads).max().unwrap_or(0)
    }

    /// The most key-value heads of its layers; zero without attention.
    pub fn kv_head_count(&self) -> u64 {
        self.layers_shape().iter().map(|l| l.kv_heads).max().unwrap_or(0)
    }

    /// Experts in a layer; zero for a dense model.
    pub const fn expert_count(&self) -> u64 {
        self.shape.experts
    }

    /// The experts that one token uses.
    pub const fn experts_used(&self) -> u64 {
        self.shape.experts_used
    }

    /// The inner width of one expert.
    pub const fn expert_feed_forward_length(&self) -> u64 {
        self.shape.expert_feed_forward
    }

    /// Whether some of its layers have experts.
    pub const fn has_experts(&self) -> bool {
        self.shape.experts > 0
    }

    /// Whether some of its layers keep a recurrent state.
    pub fn has_recurrent_layers(&self) -> bool {
        self.layers_shape().iter().any(|l| l.cache.is_recurrent())
    }

    /// Whether its keys are compressed and hold the values as well.
    pub fn has_latent_attention(&self) -> bool {
        self.layers_shape().iter().any(|l| l.cache.latent)
    }

    /// Whether some of its layers see only the last tokens.
    pub fn has_windows(&self) -> bool {
        self.layers_shape().iter().any(|l| l.cache.window.is_some())
    }

    /// Whether the cache grows with the context.
    pub fn needs_context(&self) -> bool {
        self.layers_shape().iter().any(|l| l.cache.needs_context())
    }

    /// What the size of compute buffers of a dense model with ordinary attention depends on; `None` for any other.
    pub fn dense_shape(&self) -> Option<DenseShape> {
        let odd = self.has_experts() || self.has_recurrent_layers() || self.has_latent_attention();
        let shape = DenseShape {
            embedding_length: self.embedding_length(),
            feed_forward_length: self.feed_forward_length(),
            vocabulary_size: self.vocabulary_size(),
            head_count: self.head_count(),
        };
        let whole = shape.embedding_length > 0 && shape.vocabulary_size > 0 && shape.head_count > 0;
        (whole && !odd).then_some(shape)
    }

    /// The bytes of a layer by class; nothing for a layer that is not there.
    pub fn class_bytes(&self, layer: usize, padding: Padding) -> ClassBytes {
        let block = self.blocks[..self.layer_count()].get(layer);
        ClassBytes::count(block.map_or(&[], |block| &block.weights), padding)
    }

    /// The tensors of the layers, in the order of layers and files.
    pub fn layer_tensors(&self) -> impl Iterator<Item = LayerTensor<'_>> {
        let blocks = self.blocks[..self.layer_count()].iter();
        (0_u32..).zip(blocks).flat_map(|(layer, block)| {
            block.weights.iter().map(move |w| LayerTensor {
                name: &w.name,
                layer,
                class: w.class,
                bytes: w.bytes,
            })
        })
    }

    /// How many weights it has, next-token blocks included, a tied matrix counted once. For packed formats a stored
    /// value may hold several weights.
    pub fn num_weights(&self) -> u64 {
        self.all_weights().fold(0, |sum, weight| sum.saturating_add(weight.elements))
    }

    /// What all its tensors take in the files, next-token blocks included, a tied matrix counted once.
    pub fn file_bytes(&self) -> Bytes {
        Bytes::saturating_sum(self.all_weights().map(|weight| weight.bytes))
    }

    pub(crate) fn layers_shape(&self) -> &[LayerShape] {
        &self.shape.layers[..self.layer_count()]
    }

    fn all_weights(&self) -> impl Iterator<Item = &Weight> {
        let blocks = self.blocks.iter().flat_map(|block| &block.weights);
        blocks.chain(&self.beyond).chain(&self.input).chain(&self.head).chain(&self.each_device)
    }
}

/// A tensor of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerTensor<'a> {
    /// Its name in the files.
    pub name: &'a str,
    /// Its layer, from 0.
    pub layer: u32,
    /// What it is for.
    pub class: TensorClass,
    /// What it takes in the files.
    pub bytes: Bytes,
}

/// What the size of compute buffers of a dense model depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseShape {
    /// The values of one token between layers.
    pub embedding_length: u64,
    /// The widest feed-forward part.
    pub feed_forward_length: u64,
    /// How many tokens it knows.
    pub vocabulary_size: u64,
    /// The most query heads.
    pub head_count: u64,
}
