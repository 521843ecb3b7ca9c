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
    /// Experts, latent attention or sliding windows: charged the worst that was measured of such models.
    Mixed,
    /// Recurrent state in some layers: charged the worst that was measured of such models.
    Recurrent,
}

/// How far above the charge a measured buffer of such models lay at most, in per cent.
///
/// Nothing is said of how far below: the host is charged the larger of two ways to split, and models that are not dense the
/// worst that was measured of their kind.
pub const fn most_above(blocks: Blocks) -> u32 {
    match blocks {
        Blocks::Dense => 7,
        Blocks::Mixed | Blocks::Recurrent => 0,
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
    let ComputeFacts { embedding_length: d, feed_forward_length: ff, vocabulary, heads, .. } = *facts;
    let floats = |per_token: u64| Bytes::new(4).saturating_mul(batch).saturating_mul(per_token);
    let mask = |per_cell: u64| Bytes::new(per_cell).saturating_mul(cells).saturating_mul(batch);
    let wide = |a: u64, n: u64| a.saturating_mul(n);

    // Scores are kept in full when flash attention is off.
    let (scores, host_split_scores, host_scores) = match request.flash_attention {
        FlashAttention::Off => {
            (bounded(facts, mask(wide(4, heads).saturating_add(8)), 120), mask(12), mask(3))
        }
        FlashAttention::On | FlashAttention::Auto => (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO),
    };
    let add = Bytes::saturating_add;
    let quarter = |n: u64| n / 4;

    // Several devices: four copies of every input, so that devices work at the same time.
    let block = floats(quarter(wide(58, d)).saturating_add(wide(2, ff)));
    let mid = add(mask(8), block);
    let logits = add(mask(8), floats(vocabulary.saturating_add(wide(9, d))));
    let split = staged(facts, [mid, floats(wide(5, d)), logits], scores);
    let split_host = add(add(mask(8), floats(wide(10, d))), host_split_scores);

    // One device, or some layers on the host: one copy.
    let block = floats(quarter(wide(29, d)).saturating_add(wide(2, ff)));
    let logits = floats(vocabulary.saturating_add(wide(4, d)));
    let alone = add(add(bounded(facts, block.max(logits), 180), mask(2)), scores);
    let partial = staged(facts, [add(block, mask(2)), Bytes::ZERO, add(logits, mask(2))], scores);
    // A host that computes layers needs what a device would.
    let host = add(bounded(facts, split_host, 175).max(add(partial.each, host_scores)), cache_ram);

    // The server keeps one row of logits for each sequence.
    let rows = Bytes::new(4).saturating_mul(vocabulary).saturating_mul(u64::from(request.parallel));
    Charges { host: add(host, rows), host_alone: add(add(alone, cache_ram), rows), alone, split, partial }
}

/// Charges by place from the buffers of a middle stage, what the first one has on top, and that of the last one.
fn staged(facts: &ComputeFacts, [mid, first_more, last]: [Bytes; 3], scores: Bytes) -> StageCharges {
    let each = bounded(facts, mid, if facts.blocks == Blocks::Recurrent { 210 } else { 180 });
    let last = bounded(facts, last, 130).max(each);
    StageCharges {
        each: each.saturating_add(scores),
        first_more: bounded(facts, first_more, 180),
        last_more: last.saturating_sub(each),
    }
}

/// The estimate for dense models; for others the estimate times the worst factor that was measured, in per cent.
fn bounded(facts: &ComputeFacts, estimate: Bytes, per_cent: u64) -> Bytes {
    if facts.blocks == Blocks::Dense {
        return estimate;
    }
    Bytes::new(estimate.get() / 100).saturating_mul(per_cent)
}
