//! What one of several equal devices holds when they share every layer.

use plimsoll_units::Bytes;

use crate::kv::{EstimateError, Settled};
use crate::layer::{Footprint, LayerSpec};
use crate::request::{Padding, Request};
use crate::spec::weights::{TensorClass, Weight};
use crate::spec::{Block, ModelSpec};

/// How a model is shared out.
struct Share {
    ranks: u64,
    heads: u64,
    kv_heads: u64,
}

impl ModelSpec {
    /// The most devices, at most `ranks` of which it is a divisor, that can share every layer: their number divides the
    /// heads, and divides the key-value heads or is a multiple of them.
    pub fn ranks_that_divide(&self, ranks: u32) -> u32 {
        let shared = |n: u32| self.layers_shape().iter().all(|layer| layer.on_rank(u64::from(n)).is_some());
        (1..=ranks).rev().find(|n| ranks.is_multiple_of(*n) && shared(*n)).unwrap_or(1)
    }

    /// The footprint of one of `request.ranks` devices. Projections are shared out by heads, feed-forward parts, experts,
    /// embedding and output matrix by rows; norms, routers and compressed projections are copied to all, and so is all
    /// that is not known to be shared out. Keys and values are copied when there are more ranks than their heads.
    pub(super) fn footprint_of_rank(
        &self,
        settled: &Settled,
        whole: Footprint,
        request: &Request,
        padding: Padding,
    ) -> Result<Footprint, EstimateError> {
        let ranks = request.ranks;
        let share = Share {
            ranks: u64::from(ranks.max(1)),
            heads: self.head_count(),
            kv_heads: self.kv_head_count(),
        };
        let sum = |weights: &[Weight]| share.sum(weights, padding);
        let head = sum(&self.head);
        let mut layers = Vec::with_capacity(whole.layers.len());
        let shapes = self.layers_shape().iter().zip(&self.blocks);
        for (layer, (shape, block)) in whole.layers.iter().zip(shapes) {
            let (heads, kv_heads) = (shape.heads, shape.kv_heads);
            let layer_index = layer.index;
            let on_rank = shape.on_rank(u64::from(ranks)).ok_or(EstimateError::HeadsDoNotDivide {
                layer: layer_index,
                heads,
                kv_heads,
                ranks,
            })?;
            layers.push(LayerSpec {
                weights_bytes: sum(&block.weights),
                kv_bytes: settled.bytes(layer.index, &on_rank, request, padding)?,
                read_bytes: share.read_bytes(layer, block, padding),
                ..*layer
            });
        }
        Ok(Footprint {
            layers,
            input_bytes: sum(&self.input),
            head_bytes: head.saturating_add(sum(&self.tied)),
            head_beside_input_bytes: head,
            ..whole
        })
    }
}

impl Share {
    fn sum(&self, weights: &[Weight], padding: Padding) -> Bytes {
        Bytes::saturating_sum(weights.iter().map(|weight| self.of(weight, padding)))
    }

    /// What one token reads: as much less than all as on a single device, rounded up.
    fn read_bytes(&self, whole: &LayerSpec, block: &Block, padding: Padding) -> Bytes {
        let all = u128::from(self.sum(&block.weights, padding).get());
        let (read, of) = (u128::from(whole.read_bytes.get()), u128::from(whole.weights_bytes.get().max(1)));
        let bytes = (all * read).div_ceil(of).min(all);
        u64::try_from(bytes).map_or(Bytes::MAX, Bytes::new)
    }

    /// What one rank holds of a tensor, rounded up.
    fn of(&self, weight: &Weight, padding: Padding) -> Bytes {
        let bytes = weight.padded(padding);
        let has = |parts: &[&str]| parts.iter().any(|part| weight.name.contains(part));
        let part = |of: u64, all: u64| {
            let share = (u128::from(bytes.get()) * u128::from(of)).div_ceil(u128::from(all.max(1)));
            u64::try_from(share).map_or(bytes, Bytes::new)
        };
        let (ranks, heads, kv) = (self.ranks, self.heads, self.kv_heads);
        let copied = ["kv_a_proj", "q_a_proj", "indexer", "mlp.gate.", "router", "attn_kv_a", "attn_q_a"];
        match weight.class {
            TensorClass::Norms => bytes,
            _ if has(&copied) => bytes,
            TensorClass::Attention if has(&["qkv", "query_key_value", "c_attn"]) => {
                let on_rank = (heads / ranks).max(1) + 2 * (kv / ranks).max(1);
                part(on_rank, heads.saturating_add(kv.saturating_mul(2)))
            }
            TensorClass::Attention if has(&["k_proj", "v_proj", "attn_k.", "attn_v."]) => {
                part(1, ranks.min(kv.max(1)))
            }
            TensorClass::Attention | TensorClass::FeedForward | TensorClass::Experts => part(1, ranks),
            TensorClass::Other
                if has(&["embed", "wte", "lm_head", "output"]) && !has(&["vision", "visual"]) =>
            {
                part(1, ranks)
            }
            TensorClass::Other => bytes,
        }
    }
}
