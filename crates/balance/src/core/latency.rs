//! The smallest sum of stage times and hops in a given order, exactly.
//!
//! A dynamic programme over (last used slot, items placed). Where the cost of a way is a part for leaving and a part for
//! arriving, the best of all earlier slots is the best for every later one, and one row stands for all of them; slots of
//! a group with several members have a row of their own beside it, since within a group nothing is paid. Otherwise every
//! earlier group is looked at.

use std::collections::BTreeMap;
use std::ops::Range;

use super::table::{self, Queue, Rule, Starts, Windows};
use super::{Placement, Problem};

/// Beside a start: the end became the best one of all slots so far.
const OF_ALL: u32 = 1 << 31;
/// Beside a start: the end became the best one of the slot's group so far.
const OF_GROUP: u32 = 1 << 30;
/// Beside a start: the slot came from within its group.
const NEAR: u32 = 1 << 29;
/// Only the start.
const START: u32 = NEAR - 1;
/// No run ends here.
const NOWHERE: u32 = START;

/// Whether a way's cost is a part for leaving and a part for arriving.
pub(crate) fn is_uniform(problem: &Problem) -> bool {
    let hops = &problem.hops;
    hops.uneven.is_none() && (hops.told.is_empty() || hops.through.is_some())
}

/// How many (slot, item) pairs a programme over an order looks at, at most.
pub(crate) fn steps(problem: &Problem, order: &[usize]) -> usize {
    let pairs = order.len().saturating_mul(problem.items());
    if is_uniform(problem) {
        return pairs;
    }
    let mut groups: Vec<usize> = order.iter().map(|&slot| problem.slots[slot].group).collect();
    groups.sort_unstable();
    groups.dedup();
    pairs.saturating_mul(groups.len().max(1))
}

/// The smallest sum and a placement that has it; `None` when the order does not fit.
pub(crate) fn in_order(problem: &Problem, order: &[usize]) -> Option<(f64, Placement)> {
    let small = u32::try_from(problem.items()).is_ok_and(|items| items < NOWHERE);
    if is_uniform(problem) && small {
        return Line::new(problem, order)?.solve();
    }
    table::in_order(problem, order, Rule::Sum { most: f64::INFINITY }, 0.0)
}

/// The ends of one slot, from `first` on.
struct Ends {
    first: usize,
    marks: Vec<u32>,
}

impl Ends {
    fn mark(&self, end: usize) -> u32 {
        end.checked_sub(self.first).and_then(|at| self.marks.get(at)).copied().unwrap_or(NOWHERE)
    }
}

struct Line<'a> {
    problem: &'a Problem,
    order: &'a [usize],
    windows: Windows,
    /// The least seconds with so many items placed, on the way out of whatever slot came last.
    all: Vec<f64>,
    /// The same, still within a group, for groups that have more than one slot.
    groups: BTreeMap<usize, Vec<f64>>,
    ends: Vec<Ends>,
    /// The least seconds with everything placed, and the place of the last slot.
    best: (f64, usize),
}

impl<'a> Line<'a> {
    fn new(problem: &'a Problem, order: &'a [usize]) -> Option<Self> {
        let windows = Windows::new(problem, order, f64::INFINITY)?;
        let items = problem.items();
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for &slot in order {
            *sizes.entry(problem.slots[slot].group).or_insert(0) += 1;
        }
        let several = sizes.into_iter().filter(|(_, size)| *size > 1);
        let groups = several.map(|(group, _)| (group, vec![f64::INFINITY; items + 1])).collect();
        Some(Self {
            problem,
            order,
            windows,
            all: vec![f64::INFINITY; items + 1],
            groups,
            ends: Vec::with_capacity(order.len()),
            best: (f64::INFINITY, 0),
        })
    }

    fn solve(mut self) -> Option<(f64, Placement)> {
        let items = self.problem.items();
        let mut labels = vec![f64::INFINITY; items + 1];
        let mut near = vec![false; items + 1];
        let mut queue = Queue::default();
        for place in 0..self.order.len() {
            let (first, last) = (self.windows.earliest[place], self.windows.latest[place].min(items - 1));
            if first > last {
                self.ends.push(Ends { first: 0, marks: Vec::new() });
                continue;
            }
            self.arrive(place, first..last + 1, &mut labels, &mut near);
            let marks = self.extend(place, &Starts { labels: &labels, first, last }, &near, &mut queue);
            self.ends.push(Ends { first: first + 1, marks });
        }
        self.best.0.is_finite().then(|| (self.best.0, self.placement()))
    }

    /// The parts of a way for leaving a group and for arriving in it.
    fn parts(&self, group: usize) -> (f64, f64) {
        let hops = &self.problem.hops;
        match hops.through {
            Some(main) => (hops.seconds(group, main), hops.seconds(main, group)),
            None => (0.0, hops.usual),
        }
    }

    /// With how many seconds a slot begins at each item, and whether it comes from within its group.
    fn arrive(&self, place: usize, window: Range<usize>, labels: &mut [f64], near: &mut [bool]) {
        let group = self.problem.slots[self.order[place]].group;
        let (_, arriving) = self.parts(group);
        for (label, all) in labels[window.clone()].iter_mut().zip(&self.all[window.clone()]) {
            *label = all + arriving;
        }
        if let Some(inside) = self.groups.get(&group) {
            // From within the group nothing is paid, and more never helps.
            let labels = labels[window.clone()].iter_mut().zip(&mut near[window.clone()]);
            for ((label, near), &inside) in labels.zip(&inside[window.clone()]) {
                *near = inside <= *label;
                *label = label.min(inside);
            }
        } else {
            near[window.clone()].fill(false);
        }
        if window.start == 0 {
            labels[0] = self.problem.hops.first_hop(group);
        }
    }

    fn extend(&mut self, place: usize, starts: &Starts<'_>, near: &[bool], queue: &mut Queue) -> Vec<u32> {
        let (problem, items) = (self.problem, self.problem.items());
        let slot = &problem.slots[self.order[place]];
        let (leaving, _) = self.parts(slot.group);
        let first = starts.first + 1;
        let upto = self.windows.latest[place + 1];
        let mut marks = vec![NOWHERE; (upto + 1).saturating_sub(first)];
        let (all, best) = (&mut self.all, &mut self.best);
        let mut inside = self.groups.get_mut(&slot.group);
        table::extend(problem, slot, starts, upto, queue, |end, start, seconds| {
            let mut mark = u32::try_from(start).unwrap_or(NOWHERE) | if near[start] { NEAR } else { 0 };
            if end == items {
                if seconds < best.0 {
                    *best = (seconds, place);
                    marks[end - first] = mark;
                }
                return;
            }
            if seconds + leaving < all[end] {
                all[end] = seconds + leaving;
                mark |= OF_ALL;
            }
            if let Some(inside) = &mut inside
                && seconds < inside[end]
            {
                inside[end] = seconds;
                mark |= OF_GROUP;
            }
            marks[end - first] = mark;
        });
        marks
    }

    /// Goes back from the best end: each run came from the last slot before it that was then the best there.
    fn placement(&self) -> Placement {
        let mut ends = vec![None; self.order.len()];
        let (mut place, mut end) = (self.best.1, self.problem.items());
        loop {
            ends[place] = Some(end);
            let mark = self.ends[place].mark(end);
            let start = usize::try_from(mark & START).unwrap_or(0);
            if start == 0 {
                break;
            }
            let wanted = if mark & NEAR == 0 { OF_ALL } else { OF_GROUP };
            let group = self.problem.slots[self.order[place]].group;
            let came = (0..place).rev().find(|&before| {
                let mark = self.ends[before].mark(start);
                let same = self.problem.slots[self.order[before]].group == group;
                mark & START != NOWHERE && mark & wanted != 0 && (wanted == OF_ALL || same)
            });
            let Some(before) = came else { break };
            (place, end) = (before, start);
        }
        let mut reached = 0;
        let ends = ends.into_iter().map(|end| {
            reached = end.unwrap_or(reached);
            reached
        });
        Placement { order: self.order.to_vec(), ends: ends.collect() }
    }
}
