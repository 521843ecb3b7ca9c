//! What the layers of a model keep for every token, whatever format told it.

#[cfg(feature = "safetensors")]
pub(crate) mod config;
pub(crate) mod facts;
pub(crate) mod rules;

use plimsoll_units::Bytes;

/// More layers than any model has; a larger count in a header is damage, not a model.
pub(crate) const MOST_LAYERS: u64 = 65_536;

/// The hyperparameters that bytes depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The tokens of one sequence that the model was trained for.
    pub(crate) trained_context: Option<u64>,
    /// The values of one token between layers.
    pub(crate) embedding: u64,
    /// How many tokens it knows; zero where nothing tells.
    pub(crate) vocabulary: u64,
    /// Experts in a layer; zero for a dense model.
    pub(crate) experts: u64,
    /// Experts that one token uses.
    pub(crate) experts_used: u64,
    /// The inner width of one expert.
    pub(crate) expert_feed_forward: u64,
    /// Every block, those for next-token prediction last.
    pub(crate) layers: Vec<LayerShape>,
    /// How many of the blocks predict further tokens.
    pub(crate) nextn: usize,
}

impl Shape {
    /// The widest row of values of any block: what each layer gets when an engine wants them all alike.
    pub(crate) fn widest_values(&self) -> u64 {
        self.layers.iter().map(|l| l.value_width).max().unwrap_or(0)
    }
}

/// One block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerShape {
    /// Query heads; zero without attention.
    pub(crate) heads: u64,
    /// Key-value heads; zero without attention.
    pub(crate) kv_heads: u64,
    /// The inner width of its dense feed-forward part; zero without one.
    pub(crate) feed_forward: u64,
    /// Values in a row of its value heads, told by the header, stored or not.
    pub(crate) value_width: u64,
    /// What it keeps.
    pub(crate) cache: Cache,
}

impl LayerShape {
    /// What one of `ranks` devices keeps when heads are shared out evenly: key-value heads are copied when there are more
    /// ranks than heads, and compressed keys are copied to all. `None` where heads do not divide.
    pub(crate) fn on_rank(&self, ranks: u64) -> Option<Self> {
        let mut shape = self.clone();
        if self.kv_heads == 0 || !self.cache.entry {
            return Some(shape);
        }
        let copied = ranks.is_multiple_of(self.kv_heads);
        if ranks == 0 || !self.heads.is_multiple_of(ranks) || !(copied || self.kv_heads.is_multiple_of(ranks))
        {
            return None;
        }
        if !self.cache.latent {
            let heads = (self.kv_heads / ranks).max(1);
            // No wider than it was, so that it cannot overflow.
            let share = |row: Option<Row>| row.and_then(|row| Row::new(heads, row.head));
            shape.kv_heads = heads;
            (shape.cache.keys, shape.cache.values) = (share(self.cache.keys), share(self.cache.values));
        }
        Some(shape)
    }
}

/// What a layer keeps between tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cache {
    /// Whether the engine makes an entry for it, be it of no width.
    pub(crate) entry: bool,
    /// Keys of one token.
    pub(crate) keys: Option<Row>,
    /// Values of one token.
    pub(crate) values: Option<Row>,
    /// Keys that choose which tokens are attended to, of one token.
    pub(crate) indexer: Option<Row>,
    /// Whether the keys are compressed and hold the values as well.
    pub(crate) latent: bool,
    /// What it keeps of the whole context beside a window.
    pub(crate) compressed: Option<Compressed>,
    /// Only the last tokens count.
    pub(crate) window: Option<Window>,
    /// 32-bit values that one sequence keeps, of any length: those of the convolution, those of the state.
    pub(crate) recurrent: [u64; 2],
    /// Bytes that a list of layers tells, for the whole request.
    pub(crate) fixed: Bytes,
    /// Bytes that a list of layers tells, for each cell.
    pub(crate) per_cell: Bytes,
}

impl Cache {
    /// Whether it grows with the context.
    pub(crate) fn needs_context(&self) -> bool {
        self.keys.is_some() || self.values.is_some() || !self.per_cell.is_zero() || self.compressed.is_some()
    }

    /// Whether it keeps a state of constant size.
    pub(crate) fn is_recurrent(&self) -> bool {
        self.recurrent != [0, 0]
    }
}

/// One token's row in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Values of one head.
    pub(crate) head: u64,
    /// Values of all heads.
    pub(crate) width: u64,
}

impl Row {
    /// `heads` times `head` values; `None` for no values, or too many to count.
    pub(crate) fn new(heads: u64, head: u64) -> Option<Self> {
        let width = heads.checked_mul(head)?;
        (width > 0).then_some(Self { head, width })
    }
}

/// Keys of several tokens in one, of the whole context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compressed {
    /// How many tokens make one; at least 1.
    pub(crate) tokens: u64,
    /// Keys of one.
    pub(crate) keys: Row,
    /// Keys that choose which of them are attended to.
    pub(crate) indexer: Option<Row>,
}

/// A sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The tokens that count.
    pub(crate) tokens: u64,
    /// Whether llama.cpp keeps the whole context all the same.
    pub(crate) often_ignored: bool,
}

/// Which blocks slide: all but one in every `period`, which is the last of each group, or the first.
pub(crate) fn windowed_by_period(blocks: usize, period: u64, dense_first: bool) -> Vec<bool> {
    let slides = |i: u64| match period {
        0 => true,
        _ if dense_first => !i.is_multiple_of(period),
        _ => i % period < period - 1,
    };
    (0..).map(slides).take(blocks).collect()
}
