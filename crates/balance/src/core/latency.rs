//! The smallest sum of stage times and hops in a given order, exactly.
//!
//! A dynamic programme over (last used slot, items placed). A step to slot j takes the cheapest way from any earlier used
//! slot, so that hops are paid between the groups that really follow each other; the limit on a slot's room is a window
//! that only moves forward, and a monotone queue keeps its minimum.

use std::collections::VecDeque;

use super::{Placement, Problem};

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
    for &index in order {
        let row = row(problem, order, &rows, index);
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

fn row(problem: &Problem, order: &[usize], rows: &[Row], index: usize) -> Row {
    let items = problem.items();
    let slot = &problem.slots[index];
    let chain = problem.chain(slot);
    let seconds = |start, end| problem.cost(slot, start, end);
    let into = |start: usize| -> (f64, Option<usize>) {
        if start == 0 {
            return (problem.hops.first_hop(slot.group), None);
        }
        let (mut least, mut previous) = (f64::INFINITY, None);
        for (place, row) in rows.iter().enumerate() {
            let ways = row.least[start] + problem.hops.seconds(problem.slots[order[place]].group, slot.group);
            if ways < least {
                (least, previous) = (ways, Some(place));
            }
        }
        (least, previous)
    };
    let arrivals: Vec<(f64, Option<usize>)> = (0..items).map(into).collect();
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
