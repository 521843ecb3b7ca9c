//! Tables over (last used slot, items placed), for whatever is counted along a line of stages.
//!
//! Three things are counted in the same way: the sum of times and hops; what a stage receives, computes and sends; and
//! that with sending beside computing. Each has a label for "this slot is the last one used and so many items are
//! placed", the smaller the better whatever follows, and a rule that says with which label the next slot begins.

use super::ways::Way;
use super::{Placement, Problem, Slot, as_f64};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Times and hops are added up; sums above `most` are of no interest.
    Sum {
        /// The largest sum that is looked at.
        most: f64,
    },
    /// Every stage receives, computes and sends within `bound`. The label is what the last one took so far.
    Added {
        /// What no stage may exceed.
        bound: f64,
    },
    /// Every stage computes within `bound` and sends within it.
    Overlapped {
        /// What neither may exceed.
        bound: f64,
    },
}

impl Rule {
    /// Whether the two links of a way through the main group overlap.
    pub(crate) const fn slower(self) -> bool {
        matches!(self, Self::Overlapped { .. })
    }

    /// The largest label that is of any use.
    pub(crate) const fn most(self) -> f64 {
        match self {
            Self::Sum { most } => most,
            Self::Added { bound } | Self::Overlapped { bound } => bound,
        }
    }

    /// What no single stage may cost.
    pub(crate) const fn stage(self) -> f64 {
        match self {
            Self::Sum { .. } => f64::INFINITY,
            Self::Added { bound } | Self::Overlapped { bound } => bound,
        }
    }

    /// With which label a slot begins behind one with this label; infinite where it may not.
    pub(crate) fn arrive(self, label: f64, hop: f64) -> f64 {
        let (arrival, within) = match self {
            Self::Sum { .. } => (label + hop, true),
            Self::Added { bound } => (hop, label + hop <= bound),
            Self::Overlapped { bound } => (0.0, label <= bound && hop <= bound),
        };
        if within && label < f64::INFINITY { arrival } else { f64::INFINITY }
    }
}

/// Labels of the items from `first` to `last`, as starts of a run.
pub(crate) struct Starts<'a> {
    pub(crate) labels: &'a [f64],
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// The starts that may still be the best ones, the next best behind the best.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Vec<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    label: f64,
    load: u64,
    cost: u64,
    start: usize,
}

/// Every end up to `upto` that a slot reaches, with its least label and the start that has it.
///
/// A monotone queue: the room on a slot is a window that only moves forward, and of two starts the later one stays better
/// once it is. Starts are compared by what lies between them and not by sums from the first item on, so that rounding is
/// relative to what is compared.
pub(crate) fn extend(
    problem: &Problem,
    slot: &Slot,
    starts: &Starts<'_>,
    upto: usize,
    queue: &mut Queue,
    mut take: impl FnMut(usize, usize, f64),
) {
    let items = problem.items();
    let chain = problem.chain(slot);
    let per_byte = 1.0 / slot.rate;
    let (first, top) = (starts.first, upto.min(items.saturating_sub(1)));
    let waiting = &mut queue.waiting;
    waiting.clear();
    let mut head = 0;
    // Without the first item's own entry, ends and starts are one step apart.
    let before = starts.labels[first..].iter().zip(chain.sums()[first..].iter().zip(&chain.costs()[first..]));
    let behind = chain.sums()[first + 1..].iter().zip(&chain.costs()[first + 1..]);
    for (end, ((&label, (&load, &cost)), (&load_end, &cost_end))) in (first + 1..=top).zip(before.zip(behind))
    {
        if end <= starts.last + 1 && label < f64::INFINITY {
            while let Some(back) = waiting.last()
                && back.label + as_f64(cost - back.cost) * per_byte > label
                && waiting.len() > head
            {
                waiting.pop();
            }
            waiting.push(Waiting { label, load, cost, start: end - 1 });
        }
        while let Some(front) = waiting.get(head)
            && load_end - front.load > slot.room
        {
            head += 1;
        }
        match waiting.get(head) {
            Some(front) => {
                let bytes = (cost_end - front.cost).saturating_add(slot.fixed);
                take(end, front.start, front.label + as_f64(bytes) * per_byte);
            }
            None if end > starts.last => break,
            None => {}
        }
    }
    if upto < items {
        return;
    }
    // With the last item a run may be lighter or forbidden: every start is looked at.
    for start in first..=starts.last.min(items.saturating_sub(1)) {
        if starts.labels[start] < f64::INFINITY && chain.fits(start, items, slot.room) {
            take(items, start, starts.labels[start] + problem.cost(slot, start, items));
        }
    }
}

/// Where a slot may begin and end in an order, whatever is sent: no stage beyond its room and `most`.
pub(crate) struct Windows {
    /// The first item of the slot at each place at the earliest, and one more: the number of items.
    pub(crate) earliest: Vec<usize>,
    /// The first item of the slot at each place at the latest, and one more.
    pub(crate) latest: Vec<usize>,
}

impl Windows {
    /// `None` where the order cannot hold everything.
    pub(crate) fn new(problem: &Problem, order: &[usize], most: f64) -> Option<Self> {
        let items = problem.items();
        let mut latest = Vec::with_capacity(order.len() + 1);
        latest.push(0);
        for (place, &index) in order.iter().enumerate() {
            let slot = &problem.slots[index];
            let start = latest[place];
            let reach = if most.is_finite() {
                super::minmax::reach(problem, slot, start, most)
            } else {
                problem.chain(slot).reach(start, slot.room)
            };
            latest.push(reach);
        }
        if latest.last().is_none_or(|&end| end < items) {
            return None;
        }
        let mut earliest = vec![items; order.len() + 1];
        for (place, &index) in order.iter().enumerate().rev() {
            earliest[place] = begins(problem, &problem.slots[index], earliest[place + 1], most);
        }
        Some(Self { earliest, latest })
    }
}

/// The earliest start from which a slot holds everything up to `end`; `end` where it holds nothing.
pub(crate) fn begins(problem: &Problem, slot: &Slot, end: usize, most: f64) -> usize {
    // Holding less is never harder, so that the starts that work are the last ones.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if problem.holds(slot, middle, end) && problem.cost(slot, middle, end) <= most {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// One place of an order: labels and starts for the ends from `first` on.
struct Row {
    first: usize,
    labels: Vec<f64>,
    starts: Vec<usize>,
}

impl Row {
    fn label(&self, end: usize) -> f64 {
        end.checked_sub(self.first).and_then(|at| self.labels.get(at)).copied().unwrap_or(f64::INFINITY)
    }
}

/// The least label with everything placed in this order, and a placement that has it; `None` when there is none.
///
/// Exact for the order, any slot of which may stay empty. `lead` is what the main group's own stage takes, where there is
/// one before the first item.
pub(crate) fn in_order(
    problem: &Problem,
    order: &[usize],
    rule: Rule,
    lead: f64,
) -> Option<(f64, Placement)> {
    let items = problem.items();
    let windows = Windows::new(problem, order, rule.stage())?;
    let mut rows: Vec<Row> = Vec::with_capacity(order.len());
    let mut groups: Vec<(usize, Vec<f64>)> = Vec::new();
    let mut queue = Queue::default();
    let mut labels = vec![f64::INFINITY; items + 1];
    for (place, &index) in order.iter().enumerate() {
        let slot = &problem.slots[index];
        let (first, last) = (windows.earliest[place], windows.latest[place].min(items - 1));
        let upto = windows.latest[place + 1];
        let mut row = Row { first: first + 1, labels: Vec::new(), starts: Vec::new() };
        if first <= last {
            labels[first..=last].fill(f64::INFINITY);
            if first == 0 {
                labels[0] = begin(problem, slot, rule, lead);
            }
            for (group, best) in &groups {
                let way = problem.hops.way(*group, slot.group, rule.slower());
                arrive(problem, rule, way, best, first.max(1), &mut labels[..=last]);
            }
            row.labels = vec![f64::INFINITY; upto.saturating_sub(first)];
            row.starts = vec![0; row.labels.len()];
            let starts = Starts { labels: &labels, first, last };
            extend(problem, slot, &starts, upto, &mut queue, |end, start, label| {
                let at = end - first - 1;
                if label <= rule.most() && label < row.labels[at] {
                    row.labels[at] = label;
                    row.starts[at] = start;
                }
            });
        }
        keep(&mut groups, slot.group, &row, items);
        rows.push(row);
    }
    let (mut last, mut value) = (None, f64::INFINITY);
    for (place, row) in rows.iter().enumerate() {
        if row.label(items) < value {
            (last, value) = (Some(place), row.label(items));
        }
    }
    Some((value, placement(problem, order, &rows, rule, last?)))
}

/// With which label a slot holds the first item.
pub(crate) fn begin(problem: &Problem, slot: &Slot, rule: Rule, lead: f64) -> f64 {
    let Some(main) = problem.hops.through else { return 0.0 };
    let way = problem.hops.way(main, slot.group, rule.slower());
    rule.arrive(lead, way.seconds(problem.hops.beyond(0)))
}

/// Lowers the labels from `first` on to what slots of one group arrive with.
pub(crate) fn arrive(
    problem: &Problem,
    rule: Rule,
    way: Way,
    best: &[f64],
    first: usize,
    labels: &mut [f64],
) {
    if first >= labels.len() {
        return;
    }
    let best = &best[first..labels.len()];
    if problem.hops.uneven.is_none() {
        let hop = way.seconds(0.0);
        for (label, &before) in labels[first..].iter_mut().zip(best) {
            *label = label.min(rule.arrive(before, hop));
        }
        return;
    }
    for (at, (label, &before)) in (first..).zip(labels[first..].iter_mut().zip(best)) {
        if before.is_finite() {
            *label = label.min(rule.arrive(before, way.seconds(problem.hops.beyond(at))));
        }
    }
}

fn keep(groups: &mut Vec<(usize, Vec<f64>)>, group: usize, row: &Row, items: usize) {
    if !row.labels.iter().any(|label| label.is_finite()) {
        return;
    }
    let at = groups.iter().position(|(other, _)| *other == group).unwrap_or_else(|| {
        groups.push((group, vec![f64::INFINITY; items + 1]));
        groups.len() - 1
    });
    for (best, &label) in groups[at].1[row.first..].iter_mut().zip(&row.labels) {
        *best = best.min(label);
    }
}

/// Goes back from the last place: each run begins where the table says, behind the place from which it arrived best.
fn placement(problem: &Problem, order: &[usize], rows: &[Row], rule: Rule, last: usize) -> Placement {
    let mut ends = vec![None; order.len()];
    let (mut place, mut end) = (last, problem.items());
    loop {
        ends[place] = Some(end);
        let start = rows[place].starts[end - rows[place].first];
        if start == 0 {
            break;
        }
        let to = problem.slots[order[place]].group;
        let beyond = problem.hops.beyond(start);
        let (mut from, mut least) = (0, f64::INFINITY);
        for (before, row) in rows[..place].iter().enumerate() {
            let way = problem.hops.way(problem.slots[order[before]].group, to, rule.slower());
            let label = row.label(start);
            let arrival = rule.arrive(label, way.seconds(beyond));
            if arrival < least {
                (from, least) = (before, arrival);
            }
        }
        (place, end) = (from, start);
    }
    let mut reached = 0;
    let ends = ends.into_iter().map(|end| {
        reached = end.unwrap_or(reached);
        reached
    });
    Placement { order: order.to_vec(), ends: ends.collect() }
}
