//! How much a search may look at, counted in steps: the same on every machine, and never a time.

use std::cell::Cell;

/// The most looks of a search, and those it took. One step is one look at where the run of one slot would end.
#[derive(Debug)]
pub(crate) struct Effort {
    most: u64,
    taken: Cell<u64>,
}

impl Effort {
    /// So many steps.
    pub(crate) const fn new(most: u64) -> Self {
        Self { most, taken: Cell::new(0) }
    }

    /// Counts steps that are about to be taken; `false` where there are none left. The last ones may be more than that.
    pub(crate) fn take(&self, steps: usize) -> bool {
        let left = !self.is_over();
        self.count(u64::try_from(steps).unwrap_or(u64::MAX));
        left
    }

    fn count(&self, steps: u64) {
        self.taken.set(self.taken.get().saturating_add(steps));
    }

    /// Whether there are none left.
    pub(crate) const fn is_over(&self) -> bool {
        self.taken.get() >= self.most
    }

    /// How many were taken.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Does a part of the work, with no more than one in `parts` of all steps there were.
    pub(crate) fn part<T>(&self, parts: u64, work: impl FnOnce(&Self) -> T) -> T {
        let share = Self::new((self.most / parts).min(self.most.saturating_sub(self.taken())));
        let done = work(&share);
        self.count(share.taken());
        done
    }
}
