//! Slots in a fixed order, and the fewest bytes that have to move for everything to fit.

use crate::core::as_f64;
use crate::core::chain::Chain;
use crate::core::minmax::most_within;

/// One slot of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat<'a> {
    /// What items take and cost here.
    pub(crate) chain: &'a Chain,
    /// The most resident bytes of items.
    pub(crate) room: u64,
    /// What its cost starts with once it holds anything.
    pub(crate) fixed: u64,
    /// What its cost is divided by.
    pub(crate) rate: f64,
    /// Prefix sums of what has to be sent for an item to come here, from anywhere.
    pub(crate) sent: &'a [u64],
    /// The items that are here already.
    pub(crate) holds: (usize, usize),
    /// Items that have to be here; none where the range is empty.
    pub(crate) must: (usize, usize),
}

impl Seat<'_> {
    /// The most that items here may cost for a stage to stay within a bound.
    pub(crate) fn most(&self, bound: f64) -> Option<u64> {
        if bound == f64::INFINITY {
            return Some(u64::MAX);
        }
        most_within(bound, self.rate).checked_sub(self.fixed)
    }

    #[inline]
    pub(crate) fn takes(&self, start: usize, end: usize, most: Option<u64>) -> bool {
        start >= end
            || most.is_some_and(|most| {
                self.chain.fits(start, end, self.room) && self.chain.cost(start, end) <= most
            })
    }

    fn reach(&self, start: usize, most: Option<u64>) -> usize {
        most.map_or(start, |most| self.chain.reach_within(start, self.room, most, start))
    }

    /// What has to be sent for the items before `at`, but for those that are here: between two places, the difference.
    #[inline]
    pub(crate) fn sent_before(&self, at: usize) -> u64 {
        let (first, last) = self.holds;
        self.sent[at] - (self.sent[at.clamp(first, last)] - self.sent[first])
    }

    fn cost(&self, start: usize, end: usize) -> f64 {
        if start >= end {
            return 0.0;
        }
        as_f64(self.chain.cost(start, end).saturating_add(self.fixed)) / self.rate
    }
}

/// Slots in the order in which they take items.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) seats: Vec<Seat<'a>>,
    pub(crate) items: usize,
}

/// Between which places each slot's items may end.
pub(crate) struct Windows {
    pub(crate) low: Vec<usize>,
    pub(crate) high: Vec<usize>,
}

impl Line<'_> {
    /// Whether a slot has room for items, whatever they cost.
    pub(crate) fn takes(&self, at: usize, start: usize, end: usize) -> bool {
        self.seats[at].takes(start, end, Some(u64::MAX))
    }

    /// What items cost on a slot.
    pub(crate) fn cost(&self, at: usize, start: usize, end: usize) -> f64 {
        self.seats[at].cost(start, end)
    }

    /// What has to be sent to a slot for items to lie there.
    pub(crate) fn sent(&self, at: usize, start: usize, end: usize) -> u64 {
        let seat = &self.seats[at];
        seat.sent_before(end) - seat.sent_before(start)
    }

    /// Where each slot has to end at least, and may end at most, for the items that have their place.
    fn musts(&self) -> (Vec<usize>, Vec<usize>) {
        let count = self.seats.len();
        let (mut least, mut most) = (vec![0; count], vec![self.items; count]);
        for (at, seat) in self.seats.iter().enumerate() {
            let (first, last) = seat.must;
            if first < last {
                least[at] = last;
                if at > 0 {
                    most[at - 1] = first;
                } else if first > 0 {
                    // Nothing can lie before the first slot.
                    least[0] = self.items + 1;
                }
            }
        }
        for at in 1..count {
            least[at] = least[at].max(least[at - 1]);
        }
        for at in (1..count).rev() {
            most[at - 1] = most[at - 1].min(most[at]);
        }
        if let Some(last) = least.last_mut() {
            *last = (*last).max(self.items);
        }
        (least, most)
    }

    /// The window of each end: not before the slots behind could take the rest, not beyond what it and those before reach.
    pub(crate) fn windows(&self, most: &[Option<u64>]) -> Option<Windows> {
        let count = self.seats.len();
        let (least, mut high) = self.musts();
        let mut start = 0;
        for (at, seat) in self.seats.iter().enumerate() {
            start = seat.reach(start, most[at]).min(high[at]);
            if start < least[at] {
                return None;
            }
            high[at] = start;
        }
        let mut low = vec![self.items; count];
        for at in (1..count).rev() {
            let seat = &self.seats[at];
            // The first start from which the slot comes to its end: the further back, the more it has to take.
            let (end, mut bad, mut good) = (low[at], 0, low[at]);
            let mut step = 1;
            while good > 0 {
                let tried = good.saturating_sub(step);
                if seat.takes(tried, end, most[at]) {
                    good = tried;
                    step *= 2;
                } else {
                    bad = tried + 1;
                    break;
                }
            }
            while bad < good {
                let middle = bad + (good - bad) / 2;
                if seat.takes(middle, end, most[at]) {
                    good = middle;
                } else {
                    bad = middle + 1;
                }
            }
            low[at - 1] = good.max(least[at - 1]);
            if low[at - 1] > high[at - 1] {
                return None;
            }
        }
        (count > 0 || self.items == 0).then_some(Windows { low, high })
    }

    /// The fewest slots that hold everything; `None` when none do. Not more than `limit`.
    pub(crate) fn fewest(&self, limit: usize) -> Option<usize> {
        let most = vec![Some(u64::MAX); self.seats.len()];
        let reached = self.reaches(&most, limit, &mut |_, _, _| {})?;
        reached.iter().position(|&end| end == Some(self.items))
    }

    /// How far the line comes with each number of used slots up to `limit`; `None` when no number keeps the musts.
    ///
    /// `stopped` is told of each slot that could not go on, with the start and the end of its run.
    fn reaches(
        &self,
        most: &[Option<u64>],
        limit: usize,
        stopped: &mut impl FnMut(&Seat<'_>, usize, usize),
    ) -> Option<Vec<Option<usize>>> {
        // A used slot holds an item, and no more can be used than have been passed.
        let levels = limit.min(self.seats.len()).min(self.items);
        let (least, highest) = self.musts();
        let mut reached: Vec<Option<usize>> = vec![None; levels + 1];
        reached[0] = Some(0);
        for (at, seat) in self.seats.iter().enumerate() {
            for used in (0..=levels.min(at + 1)).rev() {
                let with = used.checked_sub(1).and_then(|before| reached[before]).map(|start| {
                    let end = seat.reach(start, most[at]).min(highest[at]);
                    if end < highest[at] {
                        stopped(seat, start, end);
                    }
                    end
                });
                let end = with.max(reached[used]);
                reached[used] = end.filter(|&end| end >= least[at]);
            }
        }
        reached.iter().any(Option::is_some).then_some(reached)
    }

    /// The smallest largest cost of a slot with at most `limit` used; `None` when nothing fits.
    ///
    /// As in [`minmax`](crate::core::minmax): both ends of the search are costs that some slot really has.
    pub(crate) fn least_bound(&self, limit: usize) -> Option<f64> {
        const PROBES: u32 = 400;
        let (done, _) = self.probe(f64::INFINITY, limit);
        let (mut high, mut low) = (done?, 0.0_f64);
        let mut bound = low;
        for _ in 0..PROBES {
            if low >= high {
                break;
            }
            match self.probe(bound, limit) {
                (Some(largest), _) => high = largest,
                (None, bid) => low = bid.max(bound.next_up()),
            }
            bound = low + (high - low) / 2.0;
            if bound >= high {
                bound = low;
            }
        }
        Some(high)
    }

    /// Whether everything fits under a bound: the largest cost that is really reached, else the least bound that changes
    /// something.
    fn probe(&self, bound: f64, limit: usize) -> (Option<f64>, f64) {
        let most: Vec<Option<u64>> = self.seats.iter().map(|seat| seat.most(bound)).collect();
        let mut bid = f64::INFINITY;
        if limit < self.seats.len() {
            let reached = self.reaches(&most, limit, &mut |seat, start, end| {
                if end < self.items && seat.takes(start, end + 1, Some(u64::MAX)) {
                    bid = bid.min(seat.cost(start, end + 1));
                }
            });
            let done = reached.is_some_and(|r| r.contains(&Some(self.items)));
            // Which slots the walk used is not known: the bound itself stands for what they cost, the largest of all
            // where there is none.
            let largest = if bound == f64::INFINITY { self.most_of_all() } else { bound };
            return (done.then_some(largest), bid);
        }
        let (least, highest) = self.musts();
        let (mut start, mut largest) = (0, 0.0_f64);
        let mut kept = true;
        for (at, seat) in self.seats.iter().enumerate() {
            let end = seat.reach(start, most[at]).min(highest[at]);
            if end < highest[at] && seat.takes(start, end + 1, Some(u64::MAX)) {
                bid = bid.min(seat.cost(start, end + 1));
            }
            kept &= end >= least[at];
            largest = largest.max(seat.cost(start, end));
            start = end;
        }
        ((kept && start == self.items).then_some(largest), bid)
    }

    fn most_of_all(&self) -> f64 {
        self.seats.iter().map(|seat| seat.cost(0, self.items)).fold(0.0, f64::max)
    }

    pub(crate) fn used(&self, ends: &[usize]) -> usize {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends).filter(|(start, end)| start < end).count()
    }

    /// The largest cost of a slot with these ends.
    pub(crate) fn largest(&self, ends: &[usize]) -> f64 {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let runs = self.seats.iter().zip(starts.zip(ends));
        runs.map(|(seat, (start, &end))| seat.cost(start, end)).fold(0.0, f64::max)
    }

    /// What has to be sent for these ends.
    pub(crate) fn moved(&self, ends: &[usize]) -> u64 {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let runs = self.seats.iter().zip(starts.zip(ends)).filter(|(_, (start, end))| start < *end);
        runs.map(|(seat, (start, &end))| seat.sent_before(end) - seat.sent_before(start))
            .fold(0, u64::saturating_add)
    }
}
