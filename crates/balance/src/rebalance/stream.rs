//! The smallest sum of stage times and hops in a given order, with a price on bytes that have to be sent.

use std::collections::VecDeque;

use super::line::Line;
use crate::core::{Hops, as_f64};

/// So many prices are tried at most.
const PRICES: u32 = 48;

/// More (slot, item, count) states than this are not told apart.
const STATES: usize = 4_000_000;

/// A line with what its hops cost.
#[derive(Debug)]
pub(crate) struct Streams<'a> {
    line: Line<'a>,
    /// What steps from group to group cost behind each item.
    hops: Hops,
    groups: Vec<usize>,
    /// Which slots of the line given are tried.
    tried: Vec<usize>,
    all: usize,
    /// How many counts of used slots are told apart.
    levels: usize,
    counted: bool,
}

/// The least cost of the slots of one group with so many items placed, and which of them was the last.
#[derive(Clone, Debug)]
struct Reached {
    group: usize,
    least: Vec<(f64, usize)>,
}

/// A placement, its seconds and what has to be sent for it.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) ends: Vec<usize>,
    pub(crate) seconds: f64,
    pub(crate) moved: u64,
}

/// What lies behind a state: where its run began, and on which slot the one before lay.
#[derive(Clone, Copy)]
struct Back {
    start: usize,
    previous: usize,
}

const NOBODY: usize = usize::MAX;

impl<'a> Streams<'a> {
    /// Where no more than `limit` slots may be used, used ones are counted; where that is too much work, only so many
    /// slots are tried, those that hold something already first.
    pub(crate) fn new(line: &Line<'a>, hops: Hops, groups: &[usize], limit: usize) -> Self {
        let all = line.seats.len();
        let mut tried: Vec<usize> = (0..all).collect();
        let states = all.saturating_mul(line.items).saturating_mul(limit.min(all));
        let counted = limit < all && states <= STATES;
        if limit < all && !counted {
            tried.sort_by_key(|&at| {
                let seat = &line.seats[at];
                (seat.must.0 >= seat.must.1, seat.holds.0 >= seat.holds.1, at)
            });
            tried.truncate(limit);
            tried.sort_unstable();
        }
        let seats = tried.iter().map(|&at| line.seats[at]).collect();
        let groups = tried.iter().map(|&at| groups[at]).collect();
        let levels = if counted { limit } else { 1 };
        Self { line: Line { seats, items: line.items }, hops, groups, tried, all, levels, counted }
    }

    /// From one group to another where so many items have been placed.
    fn hop(&self, from: usize, to: usize, boundary: usize) -> f64 {
        self.hops.way(from, to, false).seconds(self.hops.beyond(boundary))
    }

    /// Into the group that holds the first item.
    fn first_hop(&self, to: usize) -> f64 {
        self.hops.through.map_or(0.0, |main| self.hop(main, to, 0))
    }

    /// The smallest sum of seconds and `price` for every byte that has to be sent; `None` when nothing fits.
    pub(crate) fn least(&self, price: f64) -> Option<Stream> {
        let items = self.line.items;
        let seats = &self.line.seats;
        // For each count of used slots, the least cost of every group with so many items placed.
        let mut reached: Vec<Vec<Reached>> = vec![Vec::new(); self.levels];
        let mut backs: Vec<Vec<Vec<Back>>> = Vec::with_capacity(seats.len());
        let mut passed_must = false;
        for (at, seat) in seats.iter().enumerate() {
            let group = self.groups[at];
            let rows: Vec<(Vec<f64>, Vec<Back>)> = (0..self.levels)
                .map(|level| {
                    let before = if self.counted { level.checked_sub(1) } else { Some(0) };
                    let first = if self.counted { level == 0 } else { true } && !passed_must;
                    let from = before.map_or(&[][..], |before| &reached[before]);
                    self.row(at, &self.arrivals(group, from, first), price)
                })
                .collect();
            if seat.must.0 < seat.must.1 {
                // Nothing that skips this slot is an answer.
                reached.iter_mut().for_each(Vec::clear);
                passed_must = true;
            }
            for (reached, (least, _)) in reached.iter_mut().zip(&rows) {
                match reached.iter_mut().find(|r| r.group == group) {
                    Some(Reached { least: best, .. }) => {
                        for (best, &cost) in best.iter_mut().zip(least) {
                            if cost < best.0 {
                                *best = (cost, at);
                            }
                        }
                    }
                    None => {
                        let least = least.iter().map(|&cost| (cost, at)).collect();
                        reached.push(Reached { group, least });
                    }
                }
            }
            backs.push(rows.into_iter().map(|(_, back)| back).collect());
        }
        let ends = reached.iter().enumerate().flat_map(|(level, reached)| {
            reached.iter().map(move |r| (r.least[items].0, level, r.least[items].1))
        });
        let (cost, level, slot) =
            ends.min_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))))?;
        cost.is_finite().then(|| self.backtrack(&backs, level, slot))
    }

    /// The least cost with which a slot of a group begins at each item, and after which slot; `first` when nothing need
    /// come before it.
    fn arrivals(&self, group: usize, from: &[Reached], first: bool) -> Vec<(f64, usize)> {
        let arrival = |start: usize| {
            if start == 0 {
                return (if first { self.first_hop(group) } else { f64::INFINITY }, NOBODY);
            }
            let ways = from.iter().map(|reached| {
                let (cost, slot) = reached.least[start];
                (cost + self.hop(reached.group, group, start), slot)
            });
            ways.fold((f64::INFINITY, NOBODY), |a, b| if b.0 < a.0 { b } else { a })
        };
        (0..self.line.items).map(arrival).collect()
    }

    /// The least cost with a slot the last one used and so many items placed.
    fn row(&self, at: usize, arrivals: &[(f64, usize)], price: f64) -> (Vec<f64>, Vec<Back>) {
        let items = self.line.items;
        let seat = &self.line.seats[at];
        let mut back = vec![Back { start: 0, previous: NOBODY }; items + 1];
        let mut least = vec![f64::INFINITY; items + 1];
        let (from, until) = if seat.must.0 < seat.must.1 { seat.must } else { (items, 0) };
        let run =
            |start, end| self.line.cost(at, start, end) + price * as_f64(self.line.sent(at, start, end));
        let mut take = |start: usize, end: usize| {
            let cost = arrivals[start].0 + run(start, end);
            if end >= until && cost < least[end] {
                least[end] = cost;
                back[end] = Back { start, previous: arrivals[start].1 };
            }
        };
        // Up to the item before the last one, what a run takes is a difference of sums: the window only moves forward.
        let offset = |start: usize| arrivals[start].0 - run(0, start);
        let mut window: VecDeque<usize> = VecDeque::new();
        for end in 1..items {
            let newest = end - 1;
            if arrivals[newest].0.is_finite() && newest <= from {
                while window.back().is_some_and(|&start| offset(start) > offset(newest)) {
                    window.pop_back();
                }
                window.push_back(newest);
            }
            while window.front().is_some_and(|&start| !self.line.takes(at, start, end)) {
                window.pop_front();
            }
            if let Some(&start) = window.front() {
                take(start, end);
            }
        }
        // With the last item a run may be lighter or forbidden: every start is looked at.
        for (start, arrival) in arrivals.iter().enumerate().take(from.saturating_add(1)) {
            if arrival.0.is_finite() && self.line.takes(at, start, items) {
                take(start, items);
            }
        }
        (least, back)
    }

    fn backtrack(&self, backs: &[Vec<Vec<Back>>], level: usize, last: usize) -> Stream {
        let mut runs: Vec<Option<usize>> = vec![None; self.line.seats.len()];
        let (mut slot, mut end, mut level) = (last, self.line.items, level);
        while slot != NOBODY {
            runs[slot] = Some(end);
            let back = backs[slot][level][end];
            level = level.saturating_sub(1);
            (slot, end) = (back.previous, back.start);
        }
        let mut reached = 0;
        let inner: Vec<usize> = runs
            .iter()
            .map(|end| {
                reached = end.unwrap_or(reached);
                reached
            })
            .collect();
        let seconds = self.seconds(&inner);
        let moved = self.line.moved(&inner);
        let mut ends = vec![0; self.all];
        let mut at = 0;
        for (slot, end) in ends.iter_mut().enumerate() {
            while at < self.tried.len() && self.tried[at] <= slot {
                at += 1;
            }
            *end = at.checked_sub(1).map_or(0, |at| inner[at]);
        }
        Stream { ends, seconds, moved }
    }

    fn seconds(&self, ends: &[usize]) -> f64 {
        let mut previous = None;
        let mut sum = 0.0;
        let mut start = 0;
        for (at, &end) in ends.iter().enumerate() {
            if start < end {
                let group = self.groups[at];
                sum += match previous {
                    Some(from) => self.hop(from, group, start),
                    None => self.first_hop(group),
                };
                sum += self.line.cost(at, start, end);
                previous = Some(group);
            }
            start = end;
        }
        sum
    }

    /// The ends with the fewest bytes to send among those that a price on bytes finds within `bound` seconds.
    ///
    /// Prices pick the corners of the lower hull of (bytes, seconds): each next price is the slope between the two corners
    /// that enclose the bound, so that no corner is passed over. Between corners something better may lie.
    pub(crate) fn within(&self, bound: f64) -> Option<Vec<usize>> {
        let mut fast = self.least(0.0).filter(|fast| fast.seconds <= bound)?;
        let Some(mut few) = self.least(self.dear()) else { return Some(fast.ends) };
        if few.seconds <= bound {
            return Some(few.ends);
        }
        for _ in 0..PRICES {
            if few.moved >= fast.moved || few.seconds <= fast.seconds {
                break;
            }
            let price = (few.seconds - fast.seconds) / as_f64(fast.moved - few.moved);
            let Some(middle) = self.least(price) else { break };
            let same = |a: &Stream, b: &Stream| a.ends == b.ends;
            if same(&middle, &fast) || same(&middle, &few) {
                break;
            }
            if middle.seconds <= bound {
                if middle.moved >= fast.moved {
                    break;
                }
                fast = middle;
            } else {
                if middle.moved <= few.moved {
                    break;
                }
                few = middle;
            }
        }
        Some(fast.ends)
    }

    /// A price under which one byte is worth more than any time that can be saved.
    fn dear(&self) -> f64 {
        let all = (0..self.line.seats.len()).map(|at| self.line.cost(at, 0, self.line.items)).sum::<f64>();
        let hops = self.groups.len() + 1;
        let beyond = (0..=self.line.items).map(|boundary| self.hops.beyond(boundary)).fold(0.0, f64::max);
        let longest = self
            .groups
            .iter()
            .flat_map(|&a| self.groups.iter().map(move |&b| (a, b)))
            .map(|(a, b)| self.hops.way(a, b, false).seconds(beyond))
            .fold(0.0, f64::max);
        (all + longest * as_f64(u64::try_from(hops).unwrap_or(u64::MAX))).max(1e-9)
    }
}
