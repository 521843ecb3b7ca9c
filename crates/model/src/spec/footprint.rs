//! A model resolved for one request.

use plimsoll_units::Bytes;

use crate::kv::{Asked, EstimateError, Settled, settle};
use crate::layer::{Footprint, LayerSpec, ResolvedContext};
use crate::request::{Padding, Request};
use crate::spec::ModelSpec;
use crate::spec::weights::{ClassBytes, padded_sum};

impl ModelSpec {
    /// What it takes for `request` in buffers that round like `padding`; with several ranks what one of them takes.
    ///
    /// # Errors
    ///
    /// No sequence, no batch, a context without cells, no context told by anybody; quantised values without flash
    /// attention; rows that do not fill whole blocks of the cache; two forms of cache for latent attention; heads
    /// that do not divide by the ranks; numbers beyond 64 bits.
    pub fn footprint(&self, request: &Request, padding: Padding) -> Result<Footprint, EstimateError> {
        let settled = self.settle(request)?;
        let head = padded_sum(&self.head, padding);
        let whole = Footprint {
            layers: self.resolve_layers(&settled, request, padding)?,
            input_bytes: padded_sum(&self.input, padding),
            head_bytes: head.saturating_add(padded_sum(&self.tied, padding)),
            head_beside_input_bytes: head,
            each_device_bytes: padded_sum(&self.each_device, padding),
            nextn: u32::try_from(self.nextn_count()).unwrap_or(u32::MAX),
            context: settled.context,
        };
        if request.ranks > 1 { self.footprint_of_rank(&settled, whole, request, padding) } else { Ok(whole) }
    }

    /// Its layers for `request`: as llama.cpp lays them out on a CPU, or without any rounding for no engine.
    ///
    /// # Errors
    ///
    /// As [`ModelSpec::footprint`].
    pub fn layers(&self, request: &Request) -> Result<Vec<LayerSpec>, EstimateError> {
        let settled = self.settle(request)?;
        self.resolve_layers(&settled, request, request.engine.padding)
    }

    /// The context that `request` comes out as.
    ///
    /// # Errors
    ///
    /// As [`ModelSpec::footprint`], but for the cache.
    pub fn context(&self, request: &Request) -> Result<ResolvedContext, EstimateError> {
        Ok(self.settle(request)?.context)
    }

    /// What one more token of context costs in all layers together. Layers that a sliding window bounds cost nothing,
    /// nor does a recurrent state.
    ///
    /// # Errors
    ///
    /// As [`ModelSpec::footprint`].
    pub fn kv_bytes_per_token(&self, request: &Request) -> Result<Bytes, EstimateError> {
        let settled = self.settle(request)?;
        let layers = (0_u32..).zip(self.layers_shape());
        let mut costs = layers.map(|(i, layer)| settled.bytes_per_cell(i, layer, request));
        costs.try_fold(Bytes::ZERO, |sum, cost| Ok(sum.saturating_add(cost?)))
    }

    /// What one more token of context costs each of `ranks` devices that share the heads of every layer. Key-value heads
    /// are copied when there are more ranks than heads.
    ///
    /// # Errors
    ///
    /// As [`ModelSpec::footprint`], or heads that do not divide.
    pub fn kv_bytes_per_token_of_rank(&self, request: &Request, ranks: u32) -> Result<Bytes, EstimateError> {
        let settled = self.settle(request)?;
        let mut sum = Bytes::ZERO;
        for (layer, shape) in (0_u32..).zip(self.layers_shape()) {
            let (heads, kv_heads) = (shape.heads, shape.kv_heads);
            let share = shape.on_rank(u64::from(ranks));
            let share = share.ok_or(EstimateError::HeadsDoNotDivide { layer, heads, kv_heads, ranks })?;
            sum = sum.saturating_add(settled.bytes_per_cell(layer, &share, request)?);
        }
        Ok(sum)
    }

    fn settle(&self, request: &Request) -> Result<Settled, EstimateError> {
        let asked = Asked {
            model: self.name(),
            trained_context: self.trained_context(),
            needs_context: self.needs_context(),
            widest_values: self.shape.widest_values(),
        };
        settle(&asked, request)
    }

    fn resolve_layers(
        &self,
        settled: &Settled,
        request: &Request,
        padding: Padding,
    ) -> Result<Vec<LayerSpec>, EstimateError> {
        let layers = (0_u32..).zip(self.layers_shape()).zip(&self.blocks);
        let resolve = |((index, shape), block): ((u32, _), &super::Block)| {
            let classes = ClassBytes::count(&block.weights, padding);
            let weights_bytes = classes.total();
            Ok(LayerSpec {
                index,
                weights_bytes,
                kv_bytes: settled.bytes(index, shape, request, padding)?,
                read_bytes: self.read_bytes(&classes),
                num_weights: block.weights.iter().fold(0, |sum, w| sum.saturating_add(w.elements)),
                cut_after: !block.uncut,
            })
        };
        let layers: Vec<LayerSpec> = layers.map(resolve).collect::<Result<_, _>>()?;
        let all = layers.iter().flat_map(|layer| [layer.weights_bytes, layer.kv_bytes]);
        let too_large = || EstimateError::TooLarge {
            what: "the bytes of all layers",
            factors: format!("{} layers, {} cells", layers.len(), settled.context.total),
        };
        Bytes::checked_sum(all).ok_or_else(too_large)?;
        Ok(layers)
    }

    /// All bytes of a layer, but of its experts only the share that a token uses, rounded down.
    pub(crate) fn read_bytes(&self, classes: &ClassBytes) -> Bytes {
        let (all, used) = (self.expert_count(), self.experts_used());
        if all == 0 || used == 0 || used >= all {
            return classes.total();
        }
        let experts = u128::from(classes.experts.get()) * u128::from(used) / u128::from(all);
        let experts = u64::try_from(experts).map_or(Bytes::MAX, Bytes::new);
        let dense = ClassBytes { experts: Bytes::ZERO, ..*classes };
        dense.total().saturating_add(experts)
    }
}
