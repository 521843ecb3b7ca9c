//! The planners on plain numbers: a chain of items, slots with rooms and rates, seconds between groups.
//!
//! Nothing here knows nodes, pools or engines. Whatever an engine charges has already been folded in: what every used
//! slot pays is gone from its room, what only the first or the last one pays lies on the first or last item. Glued
//! layers are one item, so that every boundary between two items is a legal cut.

pub(crate) mod beam;
pub(crate) mod bounds;
pub(crate) mod chain;
pub(crate) mod class;
pub(crate) mod effort;
pub(crate) mod fewest;
pub(crate) mod fit;
pub(crate) mod free;
pub(crate) mod latency;
pub(crate) mod leximax;
pub(crate) mod masks;
pub(crate) mod minmax;
#[cfg(test)]
mod oracles;
pub(crate) mod orders;
#[cfg(test)]
mod path_oracles;
pub(crate) mod rates;
pub(crate) mod sets;
pub(crate) mod shared;
pub(crate) mod sites;
pub(crate) mod solve;
pub(crate) mod subset;
pub(crate) mod sum;
pub(crate) mod table;
pub(crate) mod ties;
pub(crate) mod transfer;
pub(crate) mod walk;
pub(crate) mod ways;

use std::collections::BTreeMap;
use std::sync::Arc;

use chain::Chain;

/// A place that takes one run of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slot {
    /// Whose sums its bytes follow: an index into [`Problem::chains`].
    pub(crate) class: usize,
    /// The most resident bytes of items.
    pub(crate) room: u64,
    /// What its cost starts with once it holds anything.
    pub(crate) fixed: u64,
    /// What its cost is divided by; above zero, unless the room is zero as well.
    pub(crate) rate: f64,
    /// Its group: hops are paid between groups.
    pub(crate) group: usize,
}

/// What the ways between groups cost, in seconds, at the boundary that sends least.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hops {
    /// Between any two groups that are not told.
    pub(crate) usual: f64,
    /// Between two groups, the smaller number first.
    pub(crate) told: BTreeMap<(usize, usize), f64>,
    /// The group that everything passes, and where the input lies.
    pub(crate) through: Option<usize>,
    /// What boundaries send beyond the least of them; `None` where all send alike.
    pub(crate) uneven: Option<ways::Uneven>,
}

impl Hops {
    fn direct(&self, a: usize, b: usize) -> f64 {
        if a == b {
            return 0.0;
        }
        self.told.get(&(a.min(b), a.max(b))).copied().unwrap_or(self.usual)
    }

    /// From one group to another.
    pub(crate) fn seconds(&self, from: usize, to: usize) -> f64 {
        match self.through {
            Some(main) if from != to => self.direct(from, main) + self.direct(main, to),
            _ => self.direct(from, to),
        }
    }

    /// Into the group that holds the first item.
    pub(crate) fn first_hop(&self, to: usize) -> f64 {
        self.through.map_or(0.0, |main| self.direct(main, to))
    }
}

/// Items to place on slots.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// The same items, once for every class of slots. All have the same number of items.
    pub(crate) chains: Arc<[Chain]>,
    /// The slots, in an order that does not depend on how anybody lists them.
    pub(crate) slots: Vec<Slot>,
    /// What hops cost.
    pub(crate) hops: Hops,
    /// The most slots that may be used.
    pub(crate) limit: usize,
}

impl Problem {
    /// How many items there are.
    pub(crate) fn items(&self) -> usize {
        self.chains.first().map_or(0, Chain::items)
    }

    /// The sums that a slot follows.
    pub(crate) fn chain(&self, slot: &Slot) -> &Chain {
        &self.chains[slot.class]
    }

    /// What items `start..end` cost on a slot.
    pub(crate) fn cost(&self, slot: &Slot, start: usize, end: usize) -> f64 {
        if start >= end {
            return 0.0;
        }
        as_f64(self.chain(slot).cost(start, end).saturating_add(slot.fixed)) / slot.rate
    }

    /// Whether a slot can hold items `start..end`.
    pub(crate) fn holds(&self, slot: &Slot, start: usize, end: usize) -> bool {
        start >= end || self.chain(slot).fits(start, end, slot.room)
    }
}

/// A way to place everything: slots in order, and where each one's items end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placement {
    /// The slots, as indices.
    pub(crate) order: Vec<usize>,
    /// Where the items of each end; those of the first start at 0.
    pub(crate) ends: Vec<usize>,
}

impl Placement {
    /// The slots that hold something, with their items.
    pub(crate) fn stages(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.order
            .iter()
            .zip(starts.zip(&self.ends))
            .map(|(&slot, (start, &end))| (slot, start, end))
            .filter(|s| s.1 < s.2)
    }

    /// How many slots hold something.
    pub(crate) fn used(&self) -> usize {
        self.stages().count()
    }
}

/// A count as a floating-point number, for costs.
pub(crate) const fn as_f64(n: u64) -> f64 {
    plimsoll_units::Bytes::new(n).as_f64()
}
