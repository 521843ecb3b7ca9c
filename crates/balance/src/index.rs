//! A model kept ready for many questions.

use std::sync::Arc;

use plimsoll_model::LayerSpec;
use plimsoll_units::{Bytes, BytesPerSec};

use crate::core::chain::{Chain, last_within};
use crate::core::{Hops, Problem, Slot, minmax};
use crate::error::PlanError;

/// Layers for each device, on average, from which on a run is long.
const LONG: usize = 48;

/// A model's layers as prefix sums: built once, asked often.
///
/// Answers are boundaries: for each device, in the given order, how many of the model's layers lie on it or before it.
/// [`plan`](crate::plan()) tells much more; this is for those who ask thousands of times.
#[derive(Clone, Debug)]
pub struct ModelIndex {
    chains: Arc<[Chain]>,
    // Where a stage may end, as numbers of layers; `None` when that is after every layer.
    cuts: Option<Box<[u32]>>,
    layers: u32,
    // Whether no layer is read more than it takes: only then does what fits bound what is read.
    read_within: bool,
}

impl ModelIndex {
    /// Sums up the layers, which may come in any order.
    ///
    /// # Errors
    ///
    /// Repeated or missing layers, and sums above 2^64 - 1.
    pub fn new(layers: &[LayerSpec]) -> Result<Self, PlanError> {
        if let Some((sums, count)) = plain_sums(layers) {
            let chains = [Chain::plain(sums, true)].into();
            return Ok(Self { chains, cuts: None, layers: count, read_within: true });
        }
        let sorted;
        let layers = if layers.is_sorted_by_key(|layer| layer.index) {
            layers
        } else {
            sorted = crate::items::by_index(layers);
            &sorted
        };
        crate::items::check_row(layers)?;
        let too_much = || PlanError::Overflow { what: "layers" };
        let glued = layers.iter().rev().skip(1).any(|layer| !layer.cut_after);
        let mut resident = Vec::with_capacity(layers.len() + 1);
        let all_read = layers.iter().all(|layer| layer.read_bytes == layer.weights_bytes);
        let mut touched = Vec::with_capacity(if all_read { 1 } else { layers.len() + 1 });
        let mut cuts = Vec::with_capacity(if glued { layers.len() + 1 } else { 0 });
        let (mut held, mut read, mut count) = (Bytes::ZERO, Bytes::ZERO, 0_u32);
        resident.push(0);
        touched.push(0);
        cuts.push(0);
        for (at, layer) in layers.iter().enumerate() {
            let takes = layer.weights_bytes.checked_add(layer.kv_bytes).and_then(|b| held.checked_add(b));
            let reads = layer.read_bytes.checked_add(layer.kv_bytes).and_then(|b| read.checked_add(b));
            held = takes.ok_or_else(too_much)?;
            read = reads.ok_or_else(too_much)?;
            count = count.saturating_add(1);
            if layer.cut_after || at + 1 == layers.len() {
                resident.push(held.get());
                if !all_read {
                    touched.push(read.get());
                }
                if glued {
                    cuts.push(count);
                }
            }
        }
        let chain = if all_read { Chain::plain(resident, true) } else { Chain::new(resident, touched, true) };
        let chains = [chain].into();
        let read_within = layers.iter().all(|layer| layer.read_bytes <= layer.weights_bytes);
        Ok(Self { chains, cuts: glued.then(|| cuts.into_boxed_slice()), layers: count, read_within })
    }

    /// How many layers there are.
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// Fills devices in the given order, each as far as it goes; whether everything fits so.
    ///
    /// `ends` becomes, for each device, how many layers lie on it or before it. Exact for the order.
    pub fn fit_in_order(&self, budgets: &[Bytes], ends: &mut Vec<u32>) -> bool {
        let chain = &self.chains[0];
        let (items, sums) = (chain.items(), chain.sums());
        // A guess is worth its arithmetic only where runs are long.
        let long = items / budgets.len().max(1) > LONG;
        ends.clear();
        ends.reserve(budgets.len());
        let mut start = 0;
        for budget in budgets {
            start = if long {
                chain.reach(start, budget.get())
            } else {
                last_within(sums, start, items, sums[start].saturating_add(budget.get()))
            };
            ends.push(self.layers_at(start));
            if start == items {
                break;
            }
        }
        let fits = start == items;
        ends.resize(budgets.len(), self.layers_at(start));
        fits
    }

    /// The smallest largest stage time in the given order, in seconds; `None` when the order does not fit.
    ///
    /// `ends` becomes, for each device, how many layers lie on it or before it. A device without a rate reads nothing and
    /// stays empty; so do those behind the shorter of the two lists.
    pub fn min_max_in_order(
        &self,
        budgets: &[Bytes],
        rates: &[BytesPerSec],
        ends: &mut Vec<u32>,
    ) -> Option<f64> {
        let slot = |(budget, rate): (&Bytes, &BytesPerSec)| Slot {
            class: 0,
            room: if rate.is_zero() { 0 } else { budget.get() },
            fixed: 0,
            rate: if rate.is_zero() { 1.0 } else { rate.as_f64() },
            group: 0,
        };
        let slots: Vec<Slot> = budgets.iter().zip(rates).map(slot).collect();
        let limit = slots.len();
        let problem = Problem { chains: Arc::clone(&self.chains), slots, hops: Hops::default(), limit };
        let order: Vec<usize> = (0..limit).collect();
        let floor = if self.read_within { minmax::waterfill(&problem, &order) } else { 0.0 };
        let mut best = vec![0; limit];
        let (value, _) = minmax::search(&problem, &order, floor, &mut best)?;
        ends.clear();
        ends.extend(best.into_iter().map(|end| self.layers_at(end)));
        ends.resize(budgets.len(), self.layers);
        Some(value)
    }

    /// The layers as a chain.
    pub(crate) fn chain(&self) -> &Chain {
        &self.chains[0]
    }

    /// How many items lie before a layer, one that is begun left out.
    pub(crate) fn items_at(&self, layer: u32) -> usize {
        match &self.cuts {
            Some(cuts) => cuts.partition_point(|&cut| cut <= layer).saturating_sub(1),
            None => usize::try_from(layer).unwrap_or(usize::MAX).min(self.chains[0].items()),
        }
    }

    /// How many layers lie before an item.
    pub(crate) fn layers_at(&self, item: usize) -> u32 {
        match &self.cuts {
            Some(cuts) => cuts[item],
            None => u32::try_from(item).unwrap_or(u32::MAX),
        }
    }
}

/// The sums of layers that are in order, may be cut anywhere and are read whole, in one pass; `None` for any others.
fn plain_sums(layers: &[LayerSpec]) -> Option<(Vec<u64>, u32)> {
    let first = layers.first()?.index;
    let count = u32::try_from(layers.len()).ok()?;
    let mut sums = Vec::with_capacity(layers.len() + 1);
    let (mut sum, mut plain) = (0_u64, true);
    sums.push(sum);
    sums.extend(layers.iter().zip(first..=u32::MAX).map(|(layer, index)| {
        let (takes, too_much) = layer.weights_bytes.get().overflowing_add(layer.kv_bytes.get());
        let (next, over) = sum.overflowing_add(takes);
        plain &= !too_much && !over && layer.index == index && layer.cut_after;
        plain &= layer.read_bytes == layer.weights_bytes;
        sum = next;
        sum
    }));
    (plain && sums.len() == layers.len() + 1).then_some((sums, count))
}
