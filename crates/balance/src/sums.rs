//! What layers take and how many weights they have, summed up.

use std::ops::Range;

use plimsoll_model::LayerSpec;
use plimsoll_units::Bytes;

use crate::core::chain::last_within;
use crate::distribution::TensorSlice;
use crate::error::PlanError;
use crate::items::{by_index, check_row};

/// Layers as prefix sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// The index of the first layer.
    first: u32,
    /// One more entry than there are layers, except without any.
    bytes: Vec<u64>,
    weights: Weights,
    /// For each number of layers, the most that end in a legal cut; `None` where every number does.
    cuts: Option<Box<[u32]>>,
}

/// How many weights layers have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Weights {
    /// All as many.
    Each(u64),
    /// Prefix sums, one more than there are layers.
    Sums(Vec<u64>),
}

impl Default for Weights {
    fn default() -> Self {
        Self::Each(0)
    }
}

impl Weights {
    /// `None` when they add up to too much.
    fn of(layers: &[LayerSpec]) -> Option<Self> {
        let (mut counted, mut sound) = (0_u64, true);
        let mut sums = Vec::with_capacity(layers.len() + 1);
        sums.push(counted);
        sums.extend(layers.iter().map(|layer| {
            let (next, over) = counted.overflowing_add(layer.num_weights);
            sound &= !over;
            counted = next;
            counted
        }));
        sound.then_some(Self::Sums(sums))
    }
}

impl Sums {
    /// Sums up layers, which may come in any order.
    pub(crate) fn new(layers: &[LayerSpec]) -> Result<Self, PlanError> {
        if let Some(sums) = Self::in_a_row(layers) {
            return Ok(sums);
        }
        let sorted = by_index(layers);
        check_row(&sorted)?;
        Self::in_a_row(&sorted).ok_or(PlanError::Overflow { what: "layers" })
    }

    /// `None` when the layers do not follow each other, or add up to too much.
    fn in_a_row(layers: &[LayerSpec]) -> Option<Self> {
        let Some(LayerSpec { index: first, num_weights, .. }) = layers.first().copied() else {
            return Some(Self::default());
        };
        let count = u32::try_from(layers.len()).ok()?;
        first.checked_add(count)?;
        let (mut sound, mut anywhere, mut alike) = (true, true, true);
        let mut taken = 0_u64;
        let mut bytes = Vec::with_capacity(layers.len() + 1);
        bytes.push(taken);
        // A pass without a branch is faster than one that stops at the first fault.
        bytes.extend(layers.iter().zip(first..=u32::MAX).map(|(layer, index)| {
            let (takes, too_much) = layer.weights_bytes.get().overflowing_add(layer.kv_bytes.get());
            let (next, over) = taken.overflowing_add(takes);
            sound &= !too_much & !over & (layer.index == index);
            anywhere &= layer.cut_after;
            alike &= layer.num_weights == num_weights;
            taken = next;
            taken
        }));
        let weights = if alike {
            num_weights.checked_mul(u64::from(count))?;
            Weights::Each(num_weights)
        } else {
            Weights::of(layers)?
        };
        let cuts = (!anywhere).then(|| legal_cuts(layers));
        sound.then_some(Self { first, bytes, weights, cuts })
    }

    /// How many layers there are.
    pub(crate) fn layers(&self) -> usize {
        self.bytes.len().saturating_sub(1)
    }

    /// The layers from the `start`-th on and before the `end`-th, counted from the first.
    pub(crate) fn slice(&self, start: usize, end: usize) -> TensorSlice {
        let between = |sums: &[u64]| match (sums.get(start), sums.get(end)) {
            (Some(before), Some(all)) => all.saturating_sub(*before),
            _ => 0,
        };
        let layers = u64::try_from(end.saturating_sub(start)).unwrap_or(u64::MAX);
        TensorSlice {
            layer_range: self.index(start)..self.index(end),
            size: Bytes::new(between(&self.bytes)),
            num_weights: match &self.weights {
                Weights::Each(each) => each.saturating_mul(layers),
                Weights::Sums(sums) => between(sums),
            },
        }
    }

    fn index(&self, position: usize) -> u32 {
        self.first.saturating_add(u32::try_from(position).unwrap_or(u32::MAX))
    }

    /// Where layers stand, counted from the first.
    pub(crate) fn positions(&self, layers: &Range<u32>) -> (usize, usize) {
        let position = |index: u32| usize::try_from(index.saturating_sub(self.first)).unwrap_or(usize::MAX);
        (position(layers.start), position(layers.end))
    }

    /// Fills devices in this order, each as far as it goes; whether everything fits so. `ends` becomes how many layers
    /// lie on each or before it, up to the last device that takes some.
    pub(crate) fn fill<'a>(&self, budgets: impl Iterator<Item = &'a Bytes>, ends: &mut Vec<usize>) -> bool {
        let layers = self.layers();
        ends.clear();
        let mut start = 0;
        for budget in budgets {
            if start == layers {
                break;
            }
            let most = self.bytes[start].saturating_add(budget.get());
            let end = last_within(&self.bytes, start, layers, most);
            start = match &self.cuts {
                None => end,
                Some(cuts) => usize::try_from(cuts[end]).unwrap_or(end),
            };
            ends.push(start);
        }
        start == layers
    }

    /// The layers as far as they are known: what they take counts as weights.
    pub(crate) fn specs(&self) -> Vec<LayerSpec> {
        let legal = |end: usize| {
            self.cuts.as_ref().is_none_or(|cuts| cuts.get(end).copied() == u32::try_from(end).ok())
        };
        let spec = |at: usize| {
            let slice = self.slice(at, at + 1);
            LayerSpec {
                num_weights: slice.num_weights,
                cut_after: legal(at + 1),
                ..LayerSpec::of_weights(slice.layer_range.start, slice.size)
            }
        };
        (0..self.layers()).map(spec).collect()
    }
}

fn legal_cuts(layers: &[LayerSpec]) -> Box<[u32]> {
    let mut last = 0;
    let all = u32::try_from(layers.len()).unwrap_or(u32::MAX);
    let ends = layers.iter().zip(1..).map(|(layer, end)| {
        if layer.cut_after || end == all {
            last = end;
        }
        last
    });
    std::iter::once(0).chain(ends).collect()
}
