//! The smallest sum of stage times and hops in a given order, exactly.
//!
//! A dynamic programme over (last used slot, items placed). A step to slot j takes the cheapest way from any earlier used
//! slot, so that hops are paid between the groups that really follow each other; the limit on a slot's room is a window
//! that only moves forward, and a monotone queue keeps its minimum.

use std::collections::{BTreeMap, VecDeque};

use super::{Placement, Problem, Slot};

/// Where a state came from.
#[derive(Clone, Copy)]
struct From {
    start: usize,
    previous: Option<usize>,
}

/// The state of one slot: the least seconds with the items up to here placed and this slot the last one used.
struct Row {
    least: Vec<f64>,
    from: Vec<From>,
}

/// The smallest sum and a placement that has it; `None` when the order does not fit.
pub(crate) fn in_order(problem: &Problem, order: &[usize]) -> Option<(f64, Placement)> {
    let items = problem.items();
    let mut rows: Vec<Row> = Vec::with_capacity(order.len());
    let mut departures = Departures::new(items);
    for (place, &index) in order.iter().enumerate() {
        let slot = &problem.slots[index];
        let arrivals: Vec<Arrival> = if is_uniform(problem) {
            (0..items).map(|start| departures.to(problem, slot, start)).collect()
        } else {
            (0..items).map(|start| cheapest(problem, order, &rows, slot, start)).collect()
        };
        let row = row(problem, slot, &arrivals);
        departures.add(problem, slot.group, place, &row);
        rows.push(row);
    }
    let (mut last, mut value) = (None, f64::INFINITY);
    for (place, row) in rows.iter().enumerate() {
        if row.least[items] < value {
            (last, value) = (Some(place), row.least[items]);
        }
    }
    let last = last?;
    let mut ends = vec![None; order.len()];
    let (mut place, mut end) = (last, items);
    loop {
        ends[place] = Some(end);
        let from = rows[place].from[end];
        end = from.start;
        match from.previous {
            Some(previous) => place = previous,
            None => break,
        }
    }
    let mut reached = 0;
    let ends = ends
        .into_iter()
        .map(|end| {
            reached = end.unwrap_or(reached);
            reached
        })
        .collect();
    Some((value, Placement { order: order.to_vec(), ends }))
}

/// Whether a way's cost is a part for leaving and a part for arriving: then the best of all earlier slots is the best for
/// every later one, and no pair has to be looked at.
pub(crate) fn is_uniform(problem: &Problem) -> bool {
    problem.hops.told.is_empty() || problem.hops.through.is_some()
}

/// The least seconds with which a slot begins at some item, and after which slot.
type Arrival = (f64, Option<usize>);

/// Of all earlier slots, the cheapest way to leave with so many items placed.
struct Departures {
    all: Vec<Arrival>,
    by_group: BTreeMap<usize, Vec<Arrival>>,
}

impl Departures {
    fn new(items: usize) -> Self {
        Self { all: vec![(f64::INFINITY, None); items + 1], by_group: BTreeMap::new() }
    }

    fn add(&mut self, problem: &Problem, group: usize, place: usize, row: &Row) {
        let leaving = problem.hops.through.map_or(0.0, |main| problem.hops.seconds(group, main));
        let inside =
            self.by_group.entry(group).or_insert_with(|| vec![(f64::INFINITY, None); row.least.len()]);
        for ((&least, all), inside) in row.least.iter().zip(&mut self.all).zip(inside) {
            if least + leaving < all.0 {
                *all = (least + leaving, Some(place));
            }
            if least < inside.0 {
                *inside = (least, Some(place));
            }
        }
    }

    fn to(&self, problem: &Problem, slot: &Slot, start: usize) -> Arrival {
        if start == 0 {
            return (problem.hops.first_hop(slot.group), None);
        }
        let arriving =
            problem.hops.through.map_or(problem.hops.usual, |main| problem.hops.seconds(main, slot.group));
        let (seconds, previous) = self.all[start];
        let far = (seconds + arriving, previous);
        // From within the group nothing is paid, and more never helps.
        match self.by_group.get(&slot.group).map(|group| group[start]) {
            Some(near) if near.0 <= far.0 => near,
            _ => far,
        }
    }
}

/// The same with every earlier slot looked at.
fn cheapest(problem: &Problem, order: &[usize], rows: &[Row], slot: &Slot, start: usize) -> Arrival {
    if start == 0 {
        return (problem.hops.first_hop(slot.group), None);
    }
    let (mut least, mut previous) = (f64::INFINITY, None);
    for (place, row) in rows.iter().enumerate() {
        let seconds = row.least[start] + problem.hops.seconds(problem.slots[order[place]].group, slot.group);
        if seconds < least {
            (least, previous) = (seconds, Some(place));
        }
    }
    (least, previous)
}

fn row(problem: &Problem, slot: &Slot, arrivals: &[Arrival]) -> Row {
    let items = problem.items();
    let chain = problem.chain(slot);
    let seconds = |start, end| problem.cost(slot, start, end);
    let none = From { start: 0, previous: None };
    let mut row = Row { least: vec![f64::INFINITY; items + 1], from: vec![none; items + 1] };
    let mut take = |start: usize, end: usize| {
        let value = arrivals[start].0 + seconds(start, end);
        if value < row.least[end] {
            row.least[end] = value;
            row.from[end] = From { start, previous: arrivals[start].1 };
        }
    };
    // Up to the item before the last one, what a run takes is a difference of sums: the window only moves forward.
    let offset = |start: usize| arrivals[start].0 - seconds(0, start);
    let mut window: VecDeque<usize> = VecDeque::new();
    for end in 1..items {
        let newest = end - 1;
        if arrivals[newest].0.is_finite() {
            while window.back().is_some_and(|&start| offset(start) > offset(newest)) {
                window.pop_back();
            }
            window.push_back(newest);
        }
        while window.front().is_some_and(|&start| chain.load(start, end) > slot.room) {
            window.pop_front();
        }
        if let Some(&start) = window.front() {
            take(start, end);
        }
    }
    // With the last item a run may be lighter or forbidden: every start is looked at.
    for (start, arrival) in arrivals.iter().enumerate() {
        if arrival.0.is_finite() && chain.fits(start, items, slot.room) {
            take(start, items);
        }
    }
    row
}
