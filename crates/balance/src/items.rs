//! A workload, checked, as prefix sums.

use plimsoll_cluster::GpuBackend;
use plimsoll_model::{Footprint, LayerSpec};

use crate::core::chain::Chain;
use crate::error::PlanError;
use crate::workload::{EngineRules, Workload};

/// The layers as every kind of buffer holds them.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    /// The index of the first layer.
    pub(crate) first: u32,
    /// Where a stage may end, as numbers of layers: from 0 to all of them.
    pub(crate) cuts: Vec<usize>,
    /// One for each footprint.
    pub(crate) classes: Vec<Class>,
}

/// One footprint. Sums have one more entry than there are layers.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    weights: Vec<u64>,
    kv: Vec<u64>,
    touched: Vec<u64>,
    pub(crate) input: u64,
    pub(crate) head: u64,
    pub(crate) head_beside_input: u64,
    pub(crate) each_device: u64,
    /// All of it, with every charge: nothing that a plan adds up is more.
    everything: u64,
}

impl Class {
    /// The weights of layers `start..end`.
    pub(crate) fn weights(&self, start: usize, end: usize) -> u64 {
        self.weights[end] - self.weights[start]
    }

    /// The key-value bytes of layers `start..end`.
    pub(crate) fn kv(&self, start: usize, end: usize) -> u64 {
        self.kv[end] - self.kv[start]
    }

    /// What layers `start..end` take.
    pub(crate) fn resident(&self, start: usize, end: usize) -> u64 {
        self.weights(start, end) + self.kv(start, end)
    }

    /// What a token reads of layers `start..end`.
    pub(crate) fn touched(&self, start: usize, end: usize) -> u64 {
        self.touched[end] - self.touched[start]
    }
}

/// What is folded into a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    /// The cut at which the chain begins, as an index into [`Items::cuts`].
    pub(crate) from: usize,
    /// Whether the input lies with the first item.
    pub(crate) input: bool,
    /// What the slot with the first item pays on top.
    pub(crate) first_more: u64,
    /// What the slot with the head pays on top.
    pub(crate) last_more: u64,
    /// Whether the head is an item of its own.
    pub(crate) lone_head: bool,
    /// Whether one slot may hold everything.
    pub(crate) whole: bool,
    /// Whether costs are what a token reads; otherwise what lies there.
    pub(crate) touched: bool,
}

impl Items {
    /// Checks a workload and sums it up.
    pub(crate) fn new(workload: &Workload, rules: &EngineRules) -> Result<Self, PlanError> {
        let mut first = 0;
        let mut classes = Vec::with_capacity(workload.footprints.len());
        let mut cut_after: Vec<bool> = Vec::new();
        for (number, footprint) in workload.footprints.iter().enumerate() {
            let layers = by_index(&footprint.layers);
            check_row(&layers)?;
            let own_first = layers.first().map_or(0, |l| l.index);
            if number == 0 {
                first = own_first;
                cut_after = layers.iter().map(|l| l.cut_after).collect();
            } else {
                same_layers(first, cut_after.len(), own_first, layers.len())?;
                for (cut, layer) in cut_after.iter_mut().zip(&layers) {
                    *cut &= layer.cut_after;
                }
            }
            classes.push(class(footprint, &layers, rules)?);
        }
        let mut cuts = vec![0];
        for (layer, cut) in cut_after.iter().enumerate() {
            if *cut || layer + 1 == cut_after.len() {
                cuts.push(layer + 1);
            }
        }
        Ok(Self { first, cuts, classes })
    }

    /// How many layers there are.
    pub(crate) fn layers(&self) -> usize {
        self.cuts.last().copied().unwrap_or(0)
    }

    /// The index of the layer at a place.
    pub(crate) fn index(&self, place: usize) -> u32 {
        u32::try_from(place).map_or(u32::MAX, |place| self.first.saturating_add(place))
    }

    /// Takes away the cuts inside a range of places, and gives the whole pieces that it lies in.
    pub(crate) fn glue(&mut self, layers: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        self.cuts.retain(|&cut| cut <= layers.start || cut >= layers.end);
        self.pieces(layers)
    }

    /// The whole pieces that a range of places lies in.
    pub(crate) fn pieces(&self, layers: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        let start = self.cuts.iter().rev().find(|&&cut| cut <= layers.start);
        let end = self.cuts.iter().find(|&&cut| cut >= layers.end);
        start.copied().unwrap_or(0)..end.copied().unwrap_or(layers.end)
    }

    /// More bytes than `largest`, and so few that `times` as many and everything that is placed still add up.
    pub(crate) fn heavier_than(&self, largest: u64, times: usize) -> Option<u64> {
        let heavy = largest.checked_add(1)?;
        let everything = self.classes.iter().map(|class| class.everything).max().unwrap_or(0);
        heavy.checked_mul(u64::try_from(times).ok()?)?.checked_add(everything)?;
        Some(heavy)
    }

    /// Which footprint a backend's buffers follow.
    pub(crate) fn class_of(&self, workload: &Workload, backend: GpuBackend) -> usize {
        let index = workload.by_backend.get(&backend).copied().unwrap_or(0);
        if index < self.classes.len() { index } else { 0 }
    }

    /// How many items a fold has.
    pub(crate) fn count(&self, fold: &Fold) -> usize {
        self.cuts.len() - 1 - fold.from + usize::from(fold.lone_head)
    }

    /// The item of a fold that holds the layer at a place behind its start.
    pub(crate) fn item(&self, fold: &Fold, place: usize) -> usize {
        (self.cuts.partition_point(|&cut| cut <= place) - 1).saturating_sub(fold.from)
    }

    /// The items of a fold that hold whole pieces behind its start.
    pub(crate) fn items_of(&self, fold: &Fold, pieces: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        let start = self.item(fold, pieces.start);
        start..self.item(fold, pieces.end.saturating_sub(1)) + 1
    }

    /// The layers of items `start..end` of a fold, and whether the head is among them.
    pub(crate) fn unfold(&self, fold: &Fold, start: usize, end: usize) -> (std::ops::Range<usize>, bool) {
        let last = self.cuts.len() - 1;
        let cut = |item: usize| self.cuts[(fold.from + item).min(last)];
        (cut(start)..cut(end), end == self.count(fold))
    }

    /// The chain of one class.
    pub(crate) fn chain(&self, class: usize, fold: &Fold) -> Chain {
        self.chain_with(class, fold, |_| 0)
    }

    /// The same where pieces take so many bytes more as `more` says of their first place. They cost no more.
    pub(crate) fn chain_with(&self, class: usize, fold: &Fold, more: impl Fn(usize) -> u64) -> Chain {
        let class = &self.classes[class];
        let count = self.count(fold);
        let mut resident = Vec::with_capacity(count + 1);
        let mut touched = Vec::with_capacity(count + 1);
        let mut own = Vec::with_capacity(count + 1);
        let (mut bytes, mut read, mut on_top) = (0_u64, 0_u64, 0_u64);
        resident.push(bytes);
        touched.push(read);
        own.push(bytes);
        for item in 0..count {
            let (layers, head) = self.unfold(fold, item, item + 1);
            bytes = bytes.saturating_add(class.resident(layers.start, layers.end));
            read = read.saturating_add(class.touched(layers.start, layers.end));
            if !layers.is_empty() {
                on_top = on_top.saturating_add(more(layers.start));
            }
            if item == 0 {
                bytes = bytes.saturating_add(fold.first_more);
                bytes = bytes.saturating_add(if fold.input { class.input } else { 0 });
            }
            if head {
                bytes = bytes.saturating_add(class.head).saturating_add(fold.last_more);
                read = read.saturating_add(class.head);
            }
            resident.push(bytes.saturating_add(on_top));
            touched.push(read);
            own.push(bytes);
        }
        let less = if fold.lone_head { class.each_device } else { 0 };
        if fold.touched {
            Chain::new(resident, touched, fold.whole).with_lighter_tail(less, 0)
        } else {
            Chain::new(resident, own, fold.whole).with_lighter_tail(less, less)
        }
    }
}

/// Layers ordered by their index.
pub(crate) fn by_index(layers: &[LayerSpec]) -> Vec<LayerSpec> {
    let mut layers = layers.to_vec();
    layers.sort_by_key(|layer| layer.index);
    layers
}

/// Refuses repeats and gaps among ordered layers.
pub(crate) fn check_row(layers: &[LayerSpec]) -> Result<(), PlanError> {
    for pair in layers.windows(2) {
        let (before, after) = (pair[0].index, pair[1].index);
        if before == after {
            return Err(PlanError::DuplicateLayer { index: before });
        }
        if after - before > 1 {
            return Err(PlanError::MissingLayer { missing: before + 1, before, after });
        }
    }
    Ok(())
}

/// A footprint that lists other layers than the first one lacks some of them.
fn same_layers(first: u32, count: usize, other_first: u32, other_count: usize) -> Result<(), PlanError> {
    let end = |first: u32, count: usize| first.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    let (end, other_end) = (end(first, count), end(other_first, other_count));
    if (first, end) == (other_first, other_end) {
        return Ok(());
    }
    let missing = if first == other_first { end.min(other_end) } else { first.min(other_first) };
    Err(PlanError::MissingLayer {
        missing,
        before: missing.saturating_sub(1),
        after: missing.saturating_add(1),
    })
}

fn class(footprint: &Footprint, layers: &[LayerSpec], rules: &EngineRules) -> Result<Class, PlanError> {
    let sums = |of: fn(&LayerSpec) -> Option<u64>| {
        let mut sums = Vec::with_capacity(layers.len() + 1);
        let mut sum = 0_u64;
        sums.push(sum);
        for layer in layers {
            sum = of(layer)?.checked_add(sum)?;
            sums.push(sum);
        }
        Some(sums)
    };
    let too_much = || PlanError::Overflow { what: "layers and charges" };
    let weights = sums(|l| Some(l.weights_bytes.get())).ok_or_else(too_much)?;
    let kv = sums(|l| Some(l.kv_bytes.get())).ok_or_else(too_much)?;
    let touched = sums(|l| l.read_bytes.checked_add(l.kv_bytes).map(|b| b.get())).ok_or_else(too_much)?;
    let charges = &rules.charges;
    let charged = [charges.host, charges.host_alone, charges.alone]
        .into_iter()
        .chain(
            [&charges.split, &charges.partial].into_iter().flat_map(|c| [c.each, c.first_more, c.last_more]),
        )
        .map(|b| b.get());
    let ends = |sums: &[u64]| sums.last().copied().unwrap_or(0);
    let class = Class {
        input: footprint.input_bytes.get(),
        head: footprint.head_bytes.get(),
        head_beside_input: footprint.head_beside_input_bytes.get(),
        each_device: footprint.each_device_bytes.get(),
        everything: 0,
        weights,
        kv,
        touched,
    };
    // Whatever a plan adds up is less than this, so that nothing below has to be checked again.
    let head = class.head.max(class.head_beside_input);
    let everything = [ends(&class.weights), ends(&class.kv), class.input, head, class.each_device];
    let everything = everything.into_iter().chain(charged).try_fold(0_u64, u64::checked_add);
    let class = Class { everything: everything.ok_or_else(too_much)?, ..class };
    ends(&class.touched).checked_add(class.head).ok_or_else(too_much)?;
    Ok(class)
}
