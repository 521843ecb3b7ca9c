//! The fewest bytes that have to be sent for everything to lie on a line: a dynamic programme.

use super::line::{Line, Seat, Windows};

/// Numbers of bytes and their differences.
trait Count: Copy + Ord {
    /// More than any answer.
    const NONE: Self;
    fn of(bytes: u64) -> Self;
    fn more(self, other: Self) -> Self;
    fn less(self, other: Self) -> Self;
}

impl Count for i64 {
    const NONE: Self = Self::MAX;

    #[inline]
    fn of(bytes: u64) -> Self {
        bytes.cast_signed()
    }

    #[inline]
    fn more(self, other: Self) -> Self {
        self + other
    }

    #[inline]
    fn less(self, other: Self) -> Self {
        self - other
    }
}

impl Count for i128 {
    const NONE: Self = Self::MAX;

    fn of(bytes: u64) -> Self {
        Self::from(bytes)
    }

    fn more(self, other: Self) -> Self {
        self + other
    }

    fn less(self, other: Self) -> Self {
        self - other
    }
}

/// More states than this are not searched: see [`Line::fewest_moved`].
const STATES: usize = 40_000_000;

/// Where the items of each slot end, and what has to be sent for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) ends: Vec<usize>,
    pub(crate) moved: u64,
    /// Whether nothing less is possible.
    pub(crate) exact: bool,
}

impl Seat<'_> {
    /// The best run here to every end of a row, from any start of the row before.
    fn runs<N: Count>(
        &self,
        (most, price): (u64, N),
        (low, before): (usize, &[N]),
        (first, row): (usize, &mut [N]),
        from: &mut [u32],
        queue: &mut Vec<(usize, N)>,
    ) {
        let (sums, costs) = (self.chain.sums(), self.chain.costs());
        let items = self.chain.items();
        queue.clear();
        let (mut head, mut next) = (0, low);
        for ((value, from), end) in row.iter_mut().zip(from).zip(first..) {
            while next < end && next - low < before.len() {
                let reached = before[next - low];
                if reached != N::NONE {
                    let key = reached.less(N::of(self.sent_before(next)));
                    while queue.len() > head && queue[queue.len() - 1].1 > key {
                        queue.pop();
                    }
                    queue.push((next, key));
                }
                next += 1;
            }
            if end < items {
                // Where nothing at the ends counts, what a run takes and costs are differences of sums.
                let least = sums[end].saturating_sub(self.room);
                let cheapest = costs[end].saturating_sub(most);
                while head < queue.len() && (sums[queue[head].0] < least || costs[queue[head].0] < cheapest) {
                    head += 1;
                }
            } else {
                while head < queue.len() && !self.takes(queue[head].0, end, Some(most)) {
                    head += 1;
                }
            }
            if let Some(&(start, key)) = queue.get(head) {
                let sent = key.more(N::of(self.sent_before(end))).more(price);
                if sent < *value {
                    *value = sent;
                    *from = to_u32(start);
                }
            }
        }
    }
}

impl Line<'_> {
    /// The fewest bytes that have to be sent for everything to lie on at most `limit` slots, none of which costs more than
    /// `bound`; `None` when that is not possible.
    ///
    /// A dynamic programme over (slot, where its items end), and over the number of used slots where that is limited: what
    /// a slot has to be sent for items `s..e` is a difference of sums, so that the best start is the minimum of a window
    /// that only moves forward, and a monotone queue keeps it. Only ends between the greedy walk from the front and the
    /// one from the back can be part of an answer.
    pub(crate) fn fewest_moved(&self, bound: f64, limit: usize) -> Option<Ends> {
        let most: Vec<Option<u64>> = self.seats.iter().map(|seat| seat.most(bound)).collect();
        let windows = self.windows(&most)?;
        if self.seats.is_empty() {
            return Some(Ends { ends: Vec::new(), moved: 0, exact: true });
        }
        let free = self.table(&most, &windows, 1, 0)?;
        if self.used(&free.ends) <= limit {
            return Some(free);
        }
        let states: usize = windows.low.iter().zip(&windows.high).map(|(low, high)| high - low + 1).sum();
        if states.saturating_mul(limit + 1) <= STATES {
            return self.table(&most, &windows, limit + 1, 0);
        }
        self.with_few(&most, &windows, limit)
    }

    /// The same where the slots are too many to count: each used one has a price, and the least price is taken under which
    /// few enough are used.
    fn with_few(&self, most: &[Option<u64>], windows: &Windows, limit: usize) -> Option<Ends> {
        let all = self.seats.iter().map(|seat| seat.sent[self.items]).max()?.saturating_add(1);
        let few = |price| {
            let tried = self.table(most, windows, 1, price)?;
            (self.used(&tried.ends) <= limit).then_some(Ends { exact: false, ..tried })
        };
        let (mut low, mut high, mut best) = (0, all, few(all)?);
        while low < high {
            let price = low + (high - low) / 2;
            match few(price) {
                Some(found) => (high, best) = (price, found),
                None => low = price + 1,
            }
        }
        Some(best)
    }

    /// The dynamic programme with `levels` counts of used slots, or with one and a price for each used slot.
    fn table(&self, most: &[Option<u64>], windows: &Windows, levels: usize, price: u64) -> Option<Ends> {
        let slots = u64::try_from(self.seats.len()).unwrap_or(u64::MAX);
        let all = self.seats.iter().map(|seat| seat.sent[self.items]).fold(0, u64::max);
        let largest = price.checked_mul(slots).and_then(|prices| prices.checked_add(all));
        // Whatever is added up below is less than this and one more run: mostly it fits into a word.
        if largest.is_some_and(|largest| largest < 1 << 61) {
            self.table_of::<i64>(most, windows, levels, price)
        } else {
            self.table_of::<i128>(most, windows, levels, price)
        }
    }

    fn table_of<N: Count>(
        &self,
        most: &[Option<u64>],
        windows: &Windows,
        levels: usize,
        price: u64,
    ) -> Option<Ends> {
        let counts = levels > 1;
        let price = N::of(price);
        let mut before = vec![N::NONE; levels];
        before[0] = N::of(0);
        let (mut low, mut high) = (0, 0);
        let mut from: Vec<u32> = Vec::new();
        let mut rows = Vec::with_capacity(self.seats.len());
        let mut queue: Vec<(usize, N)> = Vec::new();
        let mut row: Vec<N> = Vec::new();
        for (at, seat) in self.seats.iter().enumerate() {
            let (first, last) = (windows.low[at], windows.high[at]);
            let (width, old_width) = (last - first + 1, high - low + 1);
            let offset = from.len();
            rows.push(offset);
            row.clear();
            row.resize(width * levels, N::NONE);
            from.resize(offset + width * levels, u32::MAX);
            for level in 0..levels {
                // An empty slot leaves things as they are.
                let kept = low.max(first)..(high + 1).min(last + 1);
                for end in kept {
                    row[level * width + end - first] = before[level * old_width + end - low];
                    from[offset + level * width + end - first] = to_u32(end);
                }
                let source = if counts { level.checked_sub(1) } else { Some(0) };
                let (Some(source), Some(most)) = (source, most[at]) else { continue };
                let cells = level * width..(level + 1) * width;
                seat.runs(
                    (most, price),
                    (low, &before[source * old_width..(source + 1) * old_width]),
                    (first, &mut row[cells.clone()]),
                    &mut from[offset + cells.start..offset + cells.end],
                    &mut queue,
                );
            }
            std::mem::swap(&mut before, &mut row);
            (low, high) = (first, last);
        }
        self.backtrack(&before, &from, &rows, windows, levels)
    }

    /// The ends of the best answer of the table.
    fn backtrack<N: Count>(
        &self,
        last_row: &[N],
        from: &[u32],
        rows: &[usize],
        windows: &Windows,
        levels: usize,
    ) -> Option<Ends> {
        let count = self.seats.len();
        let mut width = windows.high[count - 1] - windows.low[count - 1] + 1;
        let at_end = |level: usize| last_row[level * width + self.items - windows.low[count - 1]];
        let mut level = (0..levels).min_by_key(|&level| (at_end(level), level))?;
        if at_end(level) == N::NONE {
            return None;
        }
        let mut ends = vec![0; count];
        let mut end = self.items;
        for at in (0..count).rev() {
            ends[at] = end;
            width = windows.high[at] - windows.low[at] + 1;
            let start = from[rows[at] + level * width + end - windows.low[at]];
            let start = usize::try_from(start).unwrap_or(0);
            if levels > 1 && start < end {
                level -= 1;
            }
            end = start;
        }
        let moved = self.moved(&ends);
        Some(Ends { ends, moved, exact: true })
    }
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
