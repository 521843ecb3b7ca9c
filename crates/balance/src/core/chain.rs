//! A chain of items as prefix sums.

/// Items in a row: what they take and what they cost, as prefix sums.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    resident: Vec<u64>,
    // `None` where items cost what they take: half the memory to walk through.
    cost: Option<Vec<u64>>,
    // Items per byte, on average: a guess at how far a run goes.
    density: f64,
    // What the last item takes less when it lies alone (a head without a layer needs no copy of the shared tensors).
    tail_less: u64,
    tail_cost_less: u64,
    // Whether one slot may hold everything.
    whole: bool,
}

impl Chain {
    /// From prefix sums of one more entry than there are items, the first being the smallest.
    pub(crate) fn new(resident: Vec<u64>, cost: Vec<u64>, whole: bool) -> Self {
        debug_assert_eq!(resident.len(), cost.len());
        let cost = (cost != resident).then_some(cost);
        Self { cost, ..Self::plain(resident, whole) }
    }

    /// The same where items cost what they take.
    pub(crate) fn plain(resident: Vec<u64>, whole: bool) -> Self {
        let total = resident.last().map_or(0, |last| last - resident[0]).max(1);
        let items = u64::try_from(resident.len().saturating_sub(1)).unwrap_or(u64::MAX);
        let density = super::as_f64(items) / super::as_f64(total);
        Self { resident, cost: None, density, tail_less: 0, tail_cost_less: 0, whole }
    }

    /// The same, the last item taking less where it lies alone.
    pub(crate) fn with_lighter_tail(mut self, resident_less: u64, cost_less: u64) -> Self {
        self.tail_less = resident_less;
        self.tail_cost_less = cost_less;
        self
    }

    /// The item by item smallest of several chains: no slot takes less.
    pub(crate) fn smallest(chains: &[Self]) -> Self {
        let items = chains.first().map_or(0, Self::items);
        let least = |part: fn(&Self, usize) -> u64| {
            let mut sums = Vec::with_capacity(items + 1);
            let mut sum = 0_u64;
            sums.push(sum);
            for item in 0..items {
                sum = sum.saturating_add(chains.iter().map(|c| part(c, item)).min().unwrap_or(0));
                sums.push(sum);
            }
            sums
        };
        let whole = chains.iter().any(|c| c.whole);
        // One by one, the last item is already as light as it gets.
        Self::new(least(|c, i| c.load(i, i + 1)), least(|c, i| c.cost(i, i + 1)), whole)
    }

    /// How many items there are.
    pub(crate) fn items(&self) -> usize {
        self.resident.len().saturating_sub(1)
    }

    /// Whether one slot may hold everything.
    pub(crate) fn whole(&self) -> bool {
        self.whole
    }

    fn is_lone_tail(&self, start: usize, end: usize) -> bool {
        start + 1 == end && end == self.items()
    }

    /// What items `start..end` take.
    pub(crate) fn load(&self, start: usize, end: usize) -> u64 {
        if start >= end {
            return 0;
        }
        let less = if self.is_lone_tail(start, end) { self.tail_less } else { 0 };
        (self.resident[end] - self.resident[start]).saturating_sub(less)
    }

    /// The sums of what items take.
    pub(crate) fn sums(&self) -> &[u64] {
        &self.resident
    }

    /// The sums of what items cost.
    pub(crate) fn costs(&self) -> &[u64] {
        self.cost.as_deref().unwrap_or(&self.resident)
    }

    /// Whether every run costs what it takes.
    pub(crate) fn costs_what_it_takes(&self) -> bool {
        self.cost.is_none() && self.tail_less == self.tail_cost_less
    }

    /// The sums, where every run within a room takes and costs just what lies between two of them.
    pub(crate) fn plain_sums(&self, room: u64) -> Option<&[u64]> {
        let alike = self.cost.is_none() && self.tail_less == 0 && self.tail_cost_less == 0;
        // That one slot may not hold everything is no matter where it could not.
        (alike && (self.whole || self.load(0, self.items()) > room)).then_some(&self.resident[..])
    }

    /// What items `start..end` cost.
    pub(crate) fn cost(&self, start: usize, end: usize) -> u64 {
        if start >= end {
            return 0;
        }
        let less = if self.is_lone_tail(start, end) { self.tail_cost_less } else { 0 };
        (self.costs()[end] - self.costs()[start]).saturating_sub(less)
    }

    /// Where a run from `start` ends at the latest, whatever the room.
    fn top(&self, start: usize) -> usize {
        let items = self.items();
        if start == 0 && !self.whole { items.saturating_sub(1) } else { items }
    }

    /// Whether `room` holds items `start..end`.
    pub(crate) fn fits(&self, start: usize, end: usize, room: u64) -> bool {
        end <= self.top(start) && self.load(start, end) <= room
    }

    /// How far items from `start` fit into `room`: the end of the longest run. It never falls when `start` grows.
    pub(crate) fn reach(&self, start: usize, room: u64) -> usize {
        let items = self.items();
        let top = self.top(start);
        if start >= top {
            return start.min(items);
        }
        if start + 1 == items {
            return if self.load(start, items) <= room { items } else { start };
        }
        last_near(&self.resident, start, top, self.resident[start].saturating_add(room), self.density)
    }

    /// The same, the cost being at most `most` as well. `known` is an end that is known to be within both.
    pub(crate) fn reach_within(&self, start: usize, room: u64, most: u64, known: usize) -> usize {
        let items = self.items();
        let top = self.top(start);
        if start >= top {
            return start.min(items);
        }
        if start + 1 == items {
            let fits = self.load(start, items) <= room && self.cost(start, items) <= most;
            return if fits { items } else { start };
        }
        let costs = self.costs();
        let end = last_near(costs, known, top, costs[start].saturating_add(most), self.density);
        // Mostly it is the cost that stops a run: only when it is not, the room is looked for as well.
        let target = self.resident[start].saturating_add(room);
        if self.resident[end] <= target { end } else { last_within(&self.resident, known, end, target) }
    }
}

/// [`last_within`], from a guess where a long run is expected: each step of a search far away is a line of memory.
#[inline]
fn last_near(sums: &[u64], low: usize, high: usize, target: u64, density: f64) -> usize {
    const LONG: f64 = 48.0;
    let expected = super::as_f64(target.saturating_sub(sums[low])) * density;
    if expected < LONG {
        return last_within(sums, low, high, target);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a guess: any number will do"
    )]
    let mut above = low.saturating_add(expected.min(1e15) as usize).min(high);
    if sums[above] <= target {
        return last_within(sums, above, high, target);
    }
    let mut step = 4;
    loop {
        let below = above.saturating_sub(step).max(low);
        if below == low || sums[below] <= target {
            return last_within(sums, below, above - 1, target);
        }
        above = below;
        step *= 4;
    }
}

/// The last index of `low..=high` whose sum is at most `target`; `low` when there is none. Sums never fall.
///
/// Gallops from `low`, doubling the step, and then halves without branches: the run of one slot is short beside the
/// chain, and a search that the processor cannot predict costs more than the steps it saves.
#[inline]
pub(crate) fn last_within(sums: &[u64], low: usize, high: usize, target: u64) -> usize {
    let mut base = low;
    let mut step = 1_usize;
    while base + step <= high && sums[base + step] <= target {
        base += step;
        step *= 2;
    }
    // The answer is at least `base` and less than `base + step`.
    let mut size = step.min(high - base + 1);
    while size > 1 {
        let half = size / 2;
        let middle = base + half;
        base = if sums[middle] <= target { middle } else { base };
        size -= half;
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(items: &[u64]) -> Vec<u64> {
        std::iter::once(0)
            .chain(items.iter().scan(0, |sum, n| {
                *sum += n;
                Some(*sum)
            }))
            .collect()
    }

    #[test]
    fn the_search_agrees_with_a_scan() {
        let sums = sums(&[3, 0, 0, 5, 1, 9, 2, 2, 0, 7, 1, 1, 1, 4]);
        for low in 0..sums.len() {
            for high in low..sums.len() {
                for target in sums[low]..40 {
                    let scan = (low..=high).rev().find(|&i| sums[i] <= target).unwrap_or(low);
                    assert_eq!(last_within(&sums, low, high, target), scan, "{low}..={high} at {target}");
                    for density in [0.1, 2.0, 30.0] {
                        assert_eq!(last_near(&sums, low, high, target, density), scan, "{density}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_lone_last_item_is_lighter() {
        let chain = Chain::new(sums(&[4, 4, 6]), sums(&[4, 4, 6]), true).with_lighter_tail(2, 0);
        assert_eq!(chain.reach(2, 4), 3);
        assert_eq!(chain.reach(2, 3), 2);
        assert_eq!(chain.reach(1, 9), 2);
        assert_eq!((chain.load(2, 3), chain.load(1, 3)), (4, 10));
    }

    #[test]
    fn one_slot_may_be_forbidden_to_hold_everything() {
        let chain = Chain::new(sums(&[1, 1, 1]), sums(&[1, 1, 1]), false);
        assert_eq!(chain.reach(0, 100), 2);
        assert_eq!(chain.reach(1, 100), 3);
        let single = Chain::new(sums(&[1]), sums(&[1]), false);
        assert_eq!(single.reach(0, 100), 0);
    }

    #[test]
    fn rooms_near_the_end_of_the_numbers_do_not_wrap() {
        let chain = Chain::new(vec![0, u64::MAX - 1, u64::MAX], vec![0, 1, 2], true);
        assert_eq!(chain.reach(1, u64::MAX), 2);
        assert_eq!(chain.reach(0, u64::MAX - 1), 1);
    }
}
