//! What llama.cpp takes beside the layers.
//!
//! The formulas were fitted to 312 buffers measured with build b11434 (13 models, micro-batches of 128, 512 and 2048,
//! contexts of 4,096 to 32,768, one and three devices). They are estimates, never exact: see [`most_above`].

use plimsoll_balance::{Charges, EngineRules, HostUse, StageCharges};
use plimsoll_model::{FlashAttention, Request, ResolvedContext};
use plimsoll_units::Bytes;

/// What `--cache-ram` lets the server keep in the host's memory unless it is told otherwise.
pub const CACHE_RAM: Bytes = Bytes::gib(8);

/// The facts of a model that its compute buffers depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeFacts {
    /// The width of an embedding.
    pub embedding_length: u64,
    /// The widest feed-forward block that a token passes.
    pub feed_forward_length: u64,
    /// The entries of the vocabulary.
    pub vocabulary: u64,
    /// The query heads of the layer that has most.
    pub heads: u64,
    /// What the layers are made of.
    pub blocks: Blocks,
}

/// What the layers of a model are made of, as far as compute buffers depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Plain attention and a dense feed-forward block: the models that the formulas were fitted to.
    Dense,
    /// Experts behind plain attention (three models were measured).
    Experts,
    /// Sliding windows in some layers, dense feed-forward blocks (one model).
    Windows,
    /// Sliding windows in some layers, and experts (one model).
    WindowedExperts,
    /// Latent attention, with experts (one model).
    Latent,
    /// Recurrent state in some layers, with experts (two models).
    Recurrent,
    /// Any other combination: charged the worst that was measured of all of them.
    Mixed,
}

/// How much more than a dense model one of another family is charged, in per cent: what was measured of the family at
/// most, and 1 % on top; 5 % where a single model was measured.
struct Band {
    /// How many masks there are: layers with a window have one of their own.
    masks: u64,
    /// Blocks of layers where several devices work at once.
    block: u64,
    /// Blocks of layers on one device.
    block_alone: u64,
    /// Logits.
    logits: u64,
    /// Scores without flash attention.
    scores: u64,
    /// What is copied from place to place.
    copies: u64,
}

impl Blocks {
    const fn band(self) -> Band {
        let dense = Band { masks: 1, block: 100, block_alone: 100, logits: 100, scores: 100, copies: 100 };
        match self {
            Self::Dense => dense,
            Self::Experts => Band { block: 143, block_alone: 143, logits: 101, copies: 101, ..dense },
            Self::Windows => {
                Band { masks: 2, block: 107, block_alone: 107, logits: 101, scores: 104, copies: 101 }
            }
            Self::WindowedExperts => {
                Band { masks: 2, block: 143, block_alone: 143, logits: 103, scores: 104, copies: 101 }
            }
            Self::Latent => Band { block: 188, block_alone: 238, logits: 101, copies: 101, ..dense },
            Self::Recurrent => Band { block: 167, block_alone: 167, logits: 125, copies: 101, ..dense },
            Self::Mixed => {
                Band { masks: 2, block: 188, block_alone: 238, logits: 125, scores: 120, copies: 101 }
            }
        }
    }
}

/// How far above the charge a measured buffer of such models lay at most, in per cent.
///
/// Nothing is said of how far below: the host is charged the larger of two ways to split, and without flash attention
/// what a device needs at worst.
pub const fn most_above(blocks: Blocks) -> u32 {
    match blocks {
        Blocks::Dense => 7,
        _ => 0,
    }
}

/// The rules of llama.cpp for a model and a request. `cache_ram` is what the server may cache in the host's memory.
pub fn rules(
    facts: Option<&ComputeFacts>,
    request: &Request,
    context: &ResolvedContext,
    cache_ram: Bytes,
) -> EngineRules {
    EngineRules {
        host: HostUse::FirstLayersOfMain,
        max_devices: Some(super::MAX_DEVICES),
        margin: Bytes::gib(1),
        charges: match facts {
            Some(facts) => charges(facts, request, context, cache_ram),
            None => Charges { host: cache_ram, host_alone: cache_ram, ..Charges::default() },
        },
    }
}

fn charges(facts: &ComputeFacts, request: &Request, context: &ResolvedContext, cache_ram: Bytes) -> Charges {
    let batch = u64::from(request.batch.min(request.micro_batch)).min(context.total);
    let cells = context.per_sequence;
    let ComputeFacts { embedding_length: d, feed_forward_length: ff, vocabulary, heads, blocks } = *facts;
    let band = blocks.band();
    let floats = |per_token: u64| Bytes::new(4).saturating_mul(batch).saturating_mul(per_token);
    let of_cells = |per_cell: u64| Bytes::new(per_cell).saturating_mul(cells).saturating_mul(batch);
    let masks = |per_cell: u64| of_cells(per_cell.saturating_mul(band.masks));
    let wide = |a: u64, n: u64| a.saturating_mul(n);
    let add = Bytes::saturating_add;

    // Scores are kept in full when flash attention is off.
    let (scores, host_split_scores, host_scores) = match request.flash_attention {
        FlashAttention::Off => {
            let scores = of_cells(wide(4, heads).saturating_add(8));
            (scaled(scores, band.scores), masks(12), masks(3))
        }
        FlashAttention::On | FlashAttention::Auto => (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO),
    };
    let block = |quarters: u64| floats((wide(quarters, d) / 4).saturating_add(wide(2, ff)));
    let logits = |widths: u64| scaled(floats(vocabulary.saturating_add(wide(widths, d))), band.logits);
    let copied = |widths: u64| scaled(floats(wide(widths, d)), band.copies);

    // Several devices: four copies of every input, so that devices work at the same time.
    let mid = add(masks(8), scaled(block(58), band.block));
    let split = staged([mid, copied(5), add(masks(8), logits(9))], scores);
    let split_host = add(add(masks(8), copied(10)), host_split_scores);

    // One device, or some layers on the host: one copy.
    let alone_block = scaled(block(29), band.block_alone);
    let alone = add(add(alone_block.max(logits(4)), masks(2)), scores);
    let partial = staged([add(alone_block, masks(2)), Bytes::ZERO, add(logits(4), masks(2))], scores);
    // A host that computes layers needs what a device would.
    let host = add(split_host.max(add(partial.each, host_scores)), cache_ram);

    // The server keeps one row of logits for each sequence.
    let rows = Bytes::new(4).saturating_mul(vocabulary).saturating_mul(u64::from(request.parallel));
    Charges { host: add(host, rows), host_alone: add(add(alone, cache_ram), rows), alone, split, partial }
}

/// Charges by place from the buffers of a middle stage, what the first one has on top, and that of the last one.
fn staged([each, first_more, last]: [Bytes; 3], scores: Bytes) -> StageCharges {
    StageCharges { each: each.saturating_add(scores), first_more, last_more: last.saturating_sub(each) }
}

/// So many per cent of an estimate, rounded up.
const fn scaled(estimate: Bytes, per_cent: u64) -> Bytes {
    match per_cent {
        100 => estimate,
        _ => Bytes::new(estimate.get().div_ceil(100)).saturating_mul(per_cent),
    }
}
