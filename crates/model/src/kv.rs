//! Contexts as an engine lays them out, and the bytes that layers keep in them.

use plimsoll_units::Bytes;

use crate::arch::{Cache, LayerShape, Row};
use crate::layer::ResolvedContext;
use crate::request::{CacheType, ContextLength, FlashAttention, Padding, Request, WindowStore};

/// Why a request cannot be estimated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// No sequence at all.
    #[error("a request for 0 parallel sequences; at least 1 is needed")]
    NoSequences,
    /// No token is computed at once.
    #[error("a batch of {batch} tokens in micro-batches of {micro_batch}; both must be at least 1")]
    NoBatch {
        /// The tokens submitted at once.
        batch: u32,
        /// The tokens computed at once.
        micro_batch: u32,
    },
    /// A context without cells.
    #[error("a context of {asked} cells for {parallel} sequences leaves no cell for each")]
    NoCells {
        /// The length that was asked for.
        asked: u64,
        /// How many sequences share it.
        parallel: u32,
    },
    /// The model was trained for no known context, and none is asked for.
    #[error("model '{model}' does not tell the context it was trained for, so the request must tell one")]
    ContextNeeded {
        /// The model.
        model: String,
    },
    /// Quantised values without flash attention.
    #[error("values of type {cache_type} in the cache need flash attention, which is off")]
    FlashAttentionNeeded {
        /// The form of the values.
        cache_type: CacheType,
    },
    /// The values of a row do not fill whole blocks.
    #[error(
        "layer {layer} has {width} {what} in {unit} of the cache, not a multiple of the {block} in a block of {cache_type}"
    )]
    PartialBlock {
        /// The layer.
        layer: u32,
        /// Keys or values.
        what: &'static str,
        /// A head or a row.
        unit: &'static str,
        /// How many it has.
        width: u64,
        /// How many a block holds.
        block: u64,
        /// The form of the cache.
        cache_type: CacheType,
    },
    /// Latent attention keeps values inside of keys, so both have one form.
    #[error(
        "the cache of this model holds values inside of keys, so {keys} keys and {values} values do not go together"
    )]
    LatentTypesDiffer {
        /// The form of keys.
        keys: CacheType,
        /// The form of values.
        values: CacheType,
    },
    /// Heads that cannot be shared out evenly.
    #[error(
        "the {heads} heads and {kv_heads} key-value heads of layer {layer} cannot be shared out evenly to {ranks} ranks"
    )]
    HeadsDoNotDivide {
        /// The layer.
        layer: u32,
        /// Its query heads.
        heads: u64,
        /// Its key-value heads.
        kv_heads: u64,
        /// How many devices share them.
        ranks: u32,
    },
    /// More than 2^64 - 1 of something.
    #[error("{what} are more than 18446744073709551615 (2^64 - 1): {factors}")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// The numbers that were multiplied.
        factors: String,
    },
}

/// A request, settled against one model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// The context.
    pub(crate) context: ResolvedContext,
    /// The tokens that are computed at once, as the engine lowers them.
    pub(crate) micro_batch: u64,
    /// The tokens that are submitted at once.
    batch: u64,
    /// Whether flash attention is used.
    flash: bool,
    /// The widest row of values of the model.
    widest_values: u64,
}

/// What a model tells a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Its name, for errors.
    pub(crate) model: &'a str,
    /// The context it was trained for.
    pub(crate) trained_context: Option<u64>,
    /// Whether any layer grows with the context.
    pub(crate) needs_context: bool,
    /// The widest row of values of any block.
    pub(crate) widest_values: u64,
}

/// Settles context, micro-batch and flash attention.
///
/// Without a length, the context of **each** sequence is the trained one. llama.cpp pads the total, shares it out, pads
/// each share and takes the sum as the new total; with a unified cache all sequences share the total.
pub(crate) fn settle(asked: &Asked<'_>, request: &Request) -> Result<Settled, EstimateError> {
    if request.parallel == 0 {
        return Err(EstimateError::NoSequences);
    }
    if request.batch == 0 || request.micro_batch == 0 {
        return Err(EstimateError::NoBatch { batch: request.batch, micro_batch: request.micro_batch });
    }
    let context = request.context.or(asked.trained_context.map(ContextLength::PerSequence));
    let (requested, context) = match context {
        Some(length) => lay_out(length, request)?,
        None if asked.needs_context => {
            return Err(EstimateError::ContextNeeded { model: asked.model.to_owned() });
        }
        None => (u64::MAX, ResolvedContext { total: 0, per_sequence: 0, streams: 1 }),
    };
    let batch = u64::from(request.batch).min(requested);
    Ok(Settled {
        context,
        micro_batch: u64::from(request.micro_batch).min(batch),
        batch,
        // Left to the engine, it is used: that is the form which every cache type allows.
        flash: request.flash_attention != FlashAttention::Off,
        widest_values: asked.widest_values,
    })
}

/// The requested total, and the context that an engine makes of it.
fn lay_out(length: ContextLength, request: &Request) -> Result<(u64, ResolvedContext), EstimateError> {
    let parallel = u64::from(request.parallel);
    let (asked, requested) = match length {
        ContextLength::Total(n) => (n, Some(n)),
        ContextLength::PerSequence(n) if request.unified_kv => (n, Some(n)),
        ContextLength::PerSequence(n) => (n, n.checked_mul(parallel)),
    };
    let too_large = || EstimateError::TooLarge {
        what: "the cells of the context",
        factors: format!("{asked} for {parallel} sequences"),
    };
    let multiple = request.engine.cell_multiple.max(1);
    let requested = requested.ok_or_else(too_large)?;
    let padded = requested.checked_next_multiple_of(multiple).ok_or_else(too_large)?;
    let context = if request.unified_kv {
        ResolvedContext { total: padded, per_sequence: padded, streams: 1 }
    } else {
        let share = padded / parallel;
        let per_sequence = share.checked_next_multiple_of(multiple).ok_or_else(too_large)?;
        let total = per_sequence.checked_mul(parallel).ok_or_else(too_large)?;
        ResolvedContext { total, per_sequence, streams: parallel }
    };
    if context.per_sequence == 0 {
        return Err(EstimateError::NoCells { asked, parallel: request.parallel });
    }
    Ok((requested, context))
}

impl Settled {
    /// The cells of one stream that a layer keeps.
    fn cells(&self, cache: &Cache, request: &Request) -> Result<u64, EstimateError> {
        let all = self.context.per_sequence;
        let engine = &request.engine;
        let window = cache.window.filter(|w| !(w.often_ignored && engine.ignores_some_windows));
        let Some(window) = window.filter(|_| !request.full_window) else { return Ok(all) };
        let sequences = if request.unified_kv { u64::from(request.parallel) } else { 1 };
        let multiple = engine.cell_multiple.max(1);
        let kept = |of_sequence: u64, batch: u64, spare: u64| {
            let cells = of_sequence.saturating_mul(sequences).saturating_add(batch).min(all);
            let padded = cells.checked_next_multiple_of(multiple);
            padded.and_then(|cells| cells.checked_add(spare)).unwrap_or(u64::MAX)
        };
        Ok(match engine.window_store {
            WindowStore::Context => all,
            WindowStore::Window if engine.window_holds_micro_batch => {
                kept(window.tokens, self.micro_batch, 0)
            }
            WindowStore::Window => kept(window.tokens, 0, 0),
            WindowStore::Blocks => kept(window.tokens.saturating_sub(1), self.batch, multiple),
        })
    }

    /// The bytes that a layer keeps for the whole request.
    pub(crate) fn bytes(
        &self,
        layer: u32,
        shape: &LayerShape,
        request: &Request,
        padding: Padding,
    ) -> Result<Bytes, EstimateError> {
        let cache = &shape.cache;
        let rows = Rows::of(self, layer, cache, request)?;
        let cells = self.cells(cache, request)?;
        let tensor = |row: Option<StoredRow>| match row {
            Some(row) => row.tensor(cells, self.context.streams, padding),
            None => Ok(Bytes::ZERO),
        };
        let state = |values: u64| {
            let bytes =
                Bytes::new(4).checked_mul(values).and_then(|b| b.checked_mul(u64::from(request.parallel)));
            bytes.map(|b| padding.plain(b)).ok_or_else(|| EstimateError::TooLarge {
                what: "the bytes of a recurrent state",
                factors: format!("{values} values of 4 bytes for {} sequences", request.parallel),
            })
        };
        let told = cache.per_cell.checked_mul(self.context.total).and_then(|b| b.checked_add(cache.fixed));
        let told = told.ok_or_else(|| EstimateError::TooLarge {
            what: "the bytes of a cache",
            factors: format!("{} bytes a cell in {} cells", cache.per_cell.get(), self.context.total),
        })?;
        let compressed = |row: Option<StoredRow>| match (row, cache.compressed) {
            (Some(row), Some(compressed)) => {
                let multiple = request.engine.cell_multiple.max(1);
                let groups = self.context.per_sequence.div_ceil(compressed.tokens.max(1));
                let cells = groups.checked_next_multiple_of(multiple).unwrap_or(u64::MAX);
                row.tensor(cells, self.context.streams, padding)
            }
            _ => Ok(Bytes::ZERO),
        };
        let parts = [
            compressed(rows.compressed)?,
            compressed(rows.compressed_indexer)?,
            tensor(rows.keys)?,
            tensor(rows.values)?,
            tensor(rows.indexer)?,
            state(cache.recurrent[0])?,
            state(cache.recurrent[1])?,
            told,
        ];
        Bytes::checked_sum(parts).ok_or_else(|| EstimateError::TooLarge {
            what: "the bytes that a layer keeps",
            factors: format!("layer {layer}"),
        })
    }

    /// What one more cell costs in a layer that keeps the whole context; nothing where a window ends it.
    pub(crate) fn bytes_per_cell(
        &self,
        layer: u32,
        shape: &LayerShape,
        request: &Request,
    ) -> Result<Bytes, EstimateError> {
        let cache = &shape.cache;
        let rows = Rows::of(self, layer, cache, request)?;
        let window = cache.window.filter(|w| !(w.often_ignored && request.engine.ignores_some_windows));
        let bounded = request.engine.window_store != WindowStore::Context && !request.full_window;
        let tokens = cache.compressed.map_or(1, |compressed| compressed.tokens.max(1));
        let compressed = [rows.compressed, rows.compressed_indexer].into_iter().flatten();
        let compressed = Bytes::saturating_sum(compressed.map(|row| row.bytes)).get().div_ceil(tokens);
        if window.is_some_and(|_| bounded) {
            return Ok(cache.per_cell.saturating_add(Bytes::new(compressed)));
        }
        let rows = [rows.keys, rows.values, rows.indexer].into_iter().flatten().map(|row| row.bytes);
        Ok(Bytes::saturating_sum(rows.chain([cache.per_cell, Bytes::new(compressed)])))
    }
}

/// The rows of one layer as they are stored.
struct Rows {
    keys: Option<StoredRow>,
    values: Option<StoredRow>,
    indexer: Option<StoredRow>,
    compressed: Option<StoredRow>,
    compressed_indexer: Option<StoredRow>,
}

impl Rows {
    fn of(settled: &Settled, layer: u32, cache: &Cache, request: &Request) -> Result<Self, EstimateError> {
        let (k, v) = (request.cache_type_k, request.cache_type_v);
        if cache.latent && k != v {
            return Err(EstimateError::LatentTypesDiffer { keys: k, values: v });
        }
        // Without flash attention llama.cpp transposes values, and then every layer with an entry in the cache, even one
        // without heads, gets rows of the largest width.
        let alike = !settled.flash && request.engine.values_alike_without_flash;
        let values = match cache.values {
            _ if alike && cache.entry && !cache.latent => Row::new(1, settled.widest_values),
            values => values,
        };
        if cache.entry && v.is_quantised() && !settled.flash {
            return Err(EstimateError::FlashAttentionNeeded { cache_type: v });
        }
        let heads = request.engine.whole_blocks_per_head && settled.flash;
        let store =
            |row: Option<Row>, what, t| row.map(|row| StoredRow::new(layer, row, what, t, heads)).transpose();
        Ok(Self {
            keys: store(cache.keys, "keys", k)?,
            values: store(values, "values", v)?,
            indexer: store(cache.indexer, "indexer keys", k)?,
            compressed: store(cache.compressed.map(|c| c.keys), "compressed keys", k)?,
            compressed_indexer: store(cache.compressed.and_then(|c| c.indexer), "indexer keys", k)?,
        })
    }
}

/// A row in the form of a cache.
#[derive(Clone, Copy)]
struct StoredRow {
    width: u64,
    bytes: Bytes,
    cache_type: CacheType,
}

impl StoredRow {
    fn new(
        layer: u32,
        row: Row,
        what: &'static str,
        cache_type: CacheType,
        heads: bool,
    ) -> Result<Self, EstimateError> {
        let (block, size) = cache_type.block();
        let (unit, width) = if heads { ("a head", row.head) } else { ("a row", row.width) };
        if !width.is_multiple_of(block) || !row.width.is_multiple_of(block) {
            return Err(EstimateError::PartialBlock { layer, what, unit, width, block, cache_type });
        }
        let bytes = Bytes::new(size).checked_mul(row.width / block);
        let bytes = bytes.ok_or_else(|| EstimateError::TooLarge {
            what: "the bytes of a row in the cache",
            factors: format!("{} values of {cache_type}", row.width),
        })?;
        Ok(Self { width: row.width, bytes, cache_type })
    }

    /// The bytes of all cells of all streams, as they lie in the device's buffer.
    fn tensor(self, cells: u64, streams: u64, padding: Padding) -> Result<Bytes, EstimateError> {
        let bytes = self.bytes.checked_mul(cells).and_then(|b| b.checked_mul(streams));
        let bytes = bytes.ok_or_else(|| EstimateError::TooLarge {
            what: "the bytes of a cache",
            factors: format!("{} bytes a cell, {cells} cells, {streams} streams", self.bytes.get()),
        })?;
        let rest = row_rest(self.width, self.bytes, self.cache_type.is_quantised());
        Ok(padding.tensor(bytes, rest))
    }
}

/// What CUDA puts behind a quantised tensor whose rows of `width` values and `bytes` do not end at a multiple of 512
/// values.
pub(crate) fn row_rest(width: u64, bytes: Bytes, quantised: bool) -> Bytes {
    const STEP: u64 = 512;
    let over = width % STEP;
    if !quantised || over == 0 {
        return Bytes::ZERO;
    }
    // The rest is whole blocks, so that its share of the row's bytes is whole.
    let rest = u128::from(bytes.get()) * u128::from(STEP - over) / u128::from(width);
    u64::try_from(rest).map_or(Bytes::MAX, Bytes::new)
}

impl Padding {
    /// What a tensor takes: `bytes`, and on CUDA the rest of its last row; rounded up to the alignment, saturating.
    pub(crate) const fn tensor(self, bytes: Bytes, row_rest: Bytes) -> Bytes {
        match self {
            Self::None => bytes,
            Self::Cpu => bytes.padded_to(32),
            Self::Cuda => bytes.saturating_add(row_rest).padded_to(128),
        }
    }

    /// What a tensor of floating-point values takes.
    pub(crate) const fn plain(self, bytes: Bytes) -> Bytes {
        self.tensor(bytes, Bytes::ZERO)
    }
}
