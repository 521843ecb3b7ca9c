//! What engines that compute in 16 bits take beside the layers, the same on every device: an estimate.

use plimsoll_balance::{Charges, EngineRules, HostUse, StageCharges};
use plimsoll_model::Request;
use plimsoll_units::Bytes;

use crate::llama_cpp::ComputeFacts;

/// Six rows of the embedding's width and three of the feed-forward block's for each token of a batch, and `fixed` for the
/// process; `margin` stays free.
pub(crate) fn rules(
    facts: Option<&ComputeFacts>,
    request: &Request,
    fixed: Bytes,
    margin: Bytes,
) -> EngineRules {
    let each = facts.map_or(Bytes::ZERO, |facts| {
        let wide = facts
            .embedding_length
            .saturating_mul(6)
            .saturating_add(facts.feed_forward_length.saturating_mul(3));
        Bytes::new(2).saturating_mul(wide).saturating_mul(u64::from(request.batch))
    });
    let each = each.saturating_add(fixed);
    let split = StageCharges { each, ..StageCharges::default() };
    EngineRules {
        host: HostUse::Ordinary,
        max_devices: None,
        margin,
        charges: Charges { alone: each, split, partial: split, ..Charges::default() },
    }
}
