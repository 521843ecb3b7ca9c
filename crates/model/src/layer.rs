//! A model as a planner sees it: a chain of amounts.

use plimsoll_units::Bytes;

/// One repeating block, resolved for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// Its place in the model, from 0.
    pub index: u32,
    /// The bytes of its weights as they lie in the device's buffer.
    pub weights_bytes: Bytes,
    /// The bytes of its key-value cells and recurrent state for the whole request.
    pub kv_bytes: Bytes,
    /// The bytes of weights that one token reads: all of them, but of the experts only the share that is used.
    pub read_bytes: Bytes,
    /// How many weights it has.
    pub num_weights: u64,
    /// Whether a stage may end right after it.
    pub cut_after: bool,
}

impl LayerSpec {
    /// A layer of `weights_bytes` without key-value bytes, all of it read for every token, with a legal cut behind it.
    pub const fn of_weights(index: u32, weights_bytes: Bytes) -> Self {
        Self {
            index,
            weights_bytes,
            kv_bytes: Bytes::ZERO,
            read_bytes: weights_bytes,
            num_weights: 0,
            cut_after: true,
        }
    }

    /// What it takes on its device: weights and key-value bytes, saturating.
    pub const fn resident_bytes(&self) -> Bytes {
        self.weights_bytes.saturating_add(self.kv_bytes)
    }

    /// What one token reads of it: used weights and key-value bytes, saturating.
    pub const fn touched_bytes(&self) -> Bytes {
        self.read_bytes.saturating_add(self.kv_bytes)
    }
}

/// A whole model for one request and one kind of buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The repeating layers, in order, without next-token blocks.
    pub layers: Vec<LayerSpec>,
    /// The token embedding, and what an engine looks up beside it for every token.
    pub input_bytes: Bytes,
    /// Final norm and output matrix where they do not share a device with the input: a tied matrix is copied, so it
    /// counts again.
    pub head_bytes: Bytes,
    /// Final norm and output matrix where they lie beside the input: a tied matrix counts nothing here.
    pub head_beside_input_bytes: Bytes,
    /// Small tensors that every device with a layer keeps a copy of (rotary frequencies).
    pub each_device_bytes: Bytes,
    /// How many next-token blocks follow the layers: no bytes unless loaded, but an index each.
    pub nextn: u32,
    /// The context as the engine lays it out.
    pub context: ResolvedContext,
}

/// A context as the engine lays it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedContext {
    /// All cells (llama.cpp's `n_ctx`, what its `-c` comes out as).
    pub total: u64,
    /// The cells one sequence can use.
    pub per_sequence: u64,
    /// How many separate caches there are: the parallel sequences, or 1 when the cache is unified.
    pub streams: u64,
}
