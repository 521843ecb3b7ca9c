//! Sets of slots as numbers: how many of each kind are used.

use super::Problem;

/// The most labels that one search may look at: sets × steps out of each × items × (groups + what a queue costs).
const LABELS: usize = 64_000_000;

/// What the queue of one step costs, in looks at a label.
const QUEUE: usize = 6;

/// More kinds than this have too many sets, whatever else there is.
const KINDS: usize = 20;

/// Slots by kind, and numbers for how many of each are used.
#[derive(Debug)]
pub(crate) struct Sets {
    /// Slots that nothing tells apart.
    pub(super) kinds: Vec<Vec<usize>>,
    /// What one slot of a kind adds to the number of a set.
    pub(super) strides: Vec<usize>,
    /// How many sets there are.
    pub(super) count: usize,
    /// The groups, in the order of their first slots.
    pub(super) groups: Vec<usize>,
    /// The group of each kind, as an index.
    pub(super) group_of: Vec<usize>,
}

impl Sets {
    /// `None` where there are so many that searching them takes too long.
    pub(crate) fn new(problem: &Problem) -> Option<Self> {
        let mut kinds: Vec<Vec<usize>> = Vec::new();
        let mut groups = Vec::new();
        for (index, slot) in problem.slots.iter().enumerate() {
            let kind = kinds.iter_mut().find(|kind| problem.slots[kind[0]] == *slot);
            match kind {
                Some(kind) => kind.push(index),
                None => kinds.push(vec![index]),
            }
            if kinds.len() > KINDS {
                return None;
            }
            if !groups.contains(&slot.group) {
                groups.push(slot.group);
            }
        }
        let mut count = 1_usize;
        let mut strides = Vec::with_capacity(kinds.len());
        for kind in &kinds {
            strides.push(count);
            count = count.checked_mul(kind.len() + 1)?;
        }
        // On average half the kinds are left at a set, and half the groups are in it.
        let looks = count
            .checked_mul(kinds.len())?
            .checked_mul(groups.len() / 2 + 1 + QUEUE)?
            .checked_mul(problem.items() + 1)?;
        if looks / 2 > LABELS || count.checked_mul(groups.len())? > LABELS / 16 {
            return None;
        }
        let place = |slot: usize| groups.iter().position(|g| *g == problem.slots[slot].group);
        let group_of = kinds.iter().map(|kind| place(kind[0]).unwrap_or(0)).collect();
        Some(Self { kinds, strides, count, groups, group_of })
    }

    /// How many slots of a kind are used in a set.
    pub(super) fn used(&self, set: usize, kind: usize) -> usize {
        set / self.strides[kind] % (self.kinds[kind].len() + 1)
    }

    /// How many slots are used in a set.
    pub(super) fn total(&self, set: usize) -> usize {
        (0..self.kinds.len()).map(|kind| self.used(set, kind)).sum()
    }
}
