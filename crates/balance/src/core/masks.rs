//! The least label over every order of every set of slots, exactly, where the slots are few.
//!
//! A dynamic programme over (set of used slots, group of the last one, items placed). Slots that nothing tells apart are
//! one kind, and a set is how many of each kind are used. Nothing is left out on the ground that another state came
//! further: without the triangle inequality a short stop on a third node can be the cheaper way, and such a state then
//! has completions that the further one lacks. For the same reason the slots of one group need not follow each other.
//! States are dropped only where what is left cannot be placed at all on the unused slots, whatever is sent, or where even
//! without any hop that would cost more than is of interest.

use super::chain::Chain;
use super::sets::Sets;
use super::table::{Queue, Rule, Starts, arrive, begin, begins, extend};
use super::ways::Way;
use super::{Placement, Problem, as_f64, rates};
use crate::keep::as_good_as;

/// What rounding may move a bound by, relative to it, with a margin.
const ROUNDING: f64 = 1e-9;

/// No row.
const NONE: u32 = u32::MAX;

/// The labels of one set with the last slot in one group.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Its place among all labels.
    at: usize,
    /// The fewest and the most items placed.
    first: usize,
    last: usize,
}

/// What does not change while sets are looked at.
struct Search<'a> {
    problem: &'a Problem,
    sets: &'a Sets,
    rule: Rule,
    lead: f64,
    /// From group to group, row by row.
    ways: Vec<Way>,
    /// What is left from each item on, at least: costs and loads.
    left: Vec<(f64, u64)>,
    /// The kinds, the fastest first, with the most that one of their slots can cost.
    fastest: Vec<(usize, f64)>,
    /// What a stage in each group receives at least, and sends at least: nothing where its group has another slot.
    least: Vec<f64>,
    /// The earliest item from which the slots of a set hold everything, whatever is sent.
    tails: Vec<usize>,
}

/// The memory of a search, to be used again by the next one.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// For each set and group the number of its row.
    of: Vec<u32>,
    rows: Vec<Row>,
    labels: Vec<f64>,
    /// What the items from each on cost at least on the slots that a set leaves; infinite where they do not fit.
    rest: Vec<f64>,
    arrivals: Vec<f64>,
    /// What one more slot makes of them; infinite between steps.
    reached: Vec<f64>,
    queue: Queue,
}

/// The least label with everything placed, over every order of at most `problem.limit` slots, and a placement whose label
/// is as good on the fewest slots; `None` when there is none within the rule.
pub(crate) fn search(
    problem: &Problem,
    sets: &Sets,
    rule: Rule,
    lead: f64,
    tables: &mut Tables,
) -> Option<(f64, Placement)> {
    let items = problem.items();
    let search = Search::new(problem, sets, rule, lead);
    tables.clear(sets, items);
    if search.tails.last().is_none_or(|&earliest| earliest > 0) {
        return None;
    }
    let mut ends: Vec<(usize, usize, usize, f64)> = Vec::new();
    let mut least = f64::INFINITY;
    for set in 0..sets.count {
        let total = sets.total(set);
        if set > 0 && !search.prune(set, tables) {
            continue;
        }
        for group in 0..sets.groups.len() {
            let label = tables.label(set * sets.groups.len() + group, items);
            if label.is_finite() {
                ends.push((total, set, group, label));
                least = least.min(label);
            }
        }
        // Whether a bound can be kept is all that is asked: the first way to do so will do.
        if !ends.is_empty() && !matches!(rule, Rule::Sum { .. }) {
            break;
        }
        if total < problem.limit {
            search.expand(set, tables);
        }
    }
    let good = ends.into_iter().filter(|end| end.3 <= as_good_as(least));
    let (_, set, group, _) = good.min_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)))?;
    Some((least, search.placement(set, group, tables)))
}

impl Tables {
    fn clear(&mut self, sets: &Sets, items: usize) {
        self.of.clear();
        self.of.resize(sets.count * sets.groups.len(), NONE);
        self.rows.clear();
        self.labels.clear();
        for row in [&mut self.rest, &mut self.arrivals, &mut self.reached] {
            row.clear();
            row.resize(items + 1, f64::INFINITY);
        }
    }

    fn label(&self, place: usize, item: usize) -> f64 {
        match self.row(place) {
            Some(row) if item <= row.last => self.labels[row.at + item],
            _ => f64::INFINITY,
        }
    }

    fn row(&self, place: usize) -> Option<Row> {
        let number = usize::try_from(self.of[place]).ok()?;
        self.rows.get(number).copied()
    }

    /// The number of a row, which is made when there is none.
    fn made(&mut self, place: usize, width: usize) -> usize {
        if self.of[place] == NONE {
            self.of[place] = u32::try_from(self.rows.len()).unwrap_or(NONE);
            self.rows.push(Row { at: self.labels.len(), first: usize::MAX, last: 0 });
            self.labels.resize(self.labels.len() + width, f64::INFINITY);
        }
        usize::try_from(self.of[place]).unwrap_or(usize::MAX)
    }
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, sets: &'a Sets, rule: Rule, lead: f64) -> Self {
        let smallest = Chain::smallest(&problem.chains);
        let items = problem.items();
        let left = (0..=items).map(|item| (as_f64(smallest.cost(item, items)), smallest.load(item, items)));
        let pairs = sets.groups.iter().flat_map(|&from| sets.groups.iter().map(move |&to| (from, to)));
        let ways = pairs.map(|(from, to)| problem.hops.way(from, to, rule.slower())).collect();
        let all = rates::most_costs(problem);
        let most = |kind: &[usize]| {
            let slot = &problem.slots[kind[0]];
            as_f64(all[kind[0]]).min(rule.stage() * slot.rate * (1.0 + ROUNDING))
        };
        let kinds = sets.kinds.iter().enumerate().map(|(kind, slots)| (kind, most(slots)));
        let mut fastest: Vec<(usize, f64)> = kinds.filter(|(_, most)| *most > 0.0).collect();
        let rate = |kind: usize| problem.slots[sets.kinds[kind][0]].rate;
        fastest.sort_by(|a, b| rate(b.0).total_cmp(&rate(a.0)).then(a.0.cmp(&b.0)));
        let mut search = Self {
            problem,
            sets,
            rule,
            lead,
            ways,
            left: left.collect(),
            fastest,
            least: Vec::new(),
            tails: Vec::new(),
        };
        search.least = (0..sets.groups.len()).map(|group| search.least_way(group)).collect();
        search.tails = search.tails();
        search
    }

    /// No way into a group, or out of it, takes less; only where that adds to a stage's time.
    fn least_way(&self, group: usize) -> f64 {
        let groups = self.sets.groups.len();
        let kinds = self.sets.kinds.iter().zip(&self.sets.group_of).filter(|(_, of)| **of == group);
        let members: usize = kinds.map(|(kind, _)| kind.len()).sum();
        if members > 1 || groups < 2 || !matches!(self.rule, Rule::Added { .. }) {
            return 0.0;
        }
        let others = (0..groups).filter(|&other| other != group);
        others.map(|other| self.ways[group * groups + other].seconds(0.0)).fold(f64::INFINITY, f64::min)
    }

    /// For every set the earliest item from which its slots hold everything, whatever the ways are beyond the least ones.
    /// Exact for that: to come further back is never worse, whatever comes before.
    fn tails(&self) -> Vec<usize> {
        let (problem, sets) = (self.problem, self.sets);
        let most = self.rule.stage() * (1.0 + ROUNDING);
        let mut tails = vec![problem.items(); sets.count];
        for set in 1..sets.count {
            for (kind, slots) in sets.kinds.iter().enumerate() {
                if sets.used(set, kind) == 0 {
                    continue;
                }
                let slot = &problem.slots[slots[0]];
                let end = tails[set - sets.strides[kind]];
                let way = self.least[sets.group_of[kind]];
                let sends = if end < problem.items() { way } else { 0.0 };
                let mut start = begins(problem, slot, end, most - sends - way);
                // Only the first stage of all may receive nothing.
                if problem.holds(slot, 0, end) && problem.cost(slot, 0, end) <= most - sends {
                    start = 0;
                }
                tails[set] = tails[set].min(start);
            }
        }
        tails
    }

    /// What is left from each item on costs at least, on the slots that a set leaves: filled by the fastest ones first.
    fn rest(&self, set: usize, rest: &mut [f64]) {
        let unused = |kind: usize| self.sets.kinds[kind].len() - self.sets.used(set, kind);
        let slot = |kind: usize| &self.problem.slots[self.sets.kinds[kind][0]];
        let room = (0..self.sets.kinds.len())
            .map(|kind| u128::from(slot(kind).room) * u128::try_from(unused(kind)).unwrap_or(0))
            .sum::<u128>();
        let mut fill = self.fastest.iter();
        let (mut filled, mut seconds) = (0.0, 0.0);
        let (mut capacity, mut rate) = (0.0, f64::INFINITY);
        // Backwards, so that more and more is left.
        for (rest, &(cost, load)) in rest.iter_mut().zip(&self.left).rev() {
            if u128::from(load) > room {
                *rest = f64::INFINITY;
                continue;
            }
            while cost > (filled + capacity) * (1.0 + ROUNDING) {
                let Some(&(kind, most)) = fill.next() else { break };
                seconds += capacity / rate;
                filled += capacity;
                capacity = most * as_f64(u64::try_from(unused(kind)).unwrap_or(u64::MAX));
                rate = slot(kind).rate;
            }
            let beyond = (cost - filled).max(0.0);
            *rest = if beyond > capacity * (1.0 + ROUNDING) + filled * ROUNDING {
                f64::INFINITY
            } else {
                seconds + beyond / rate
            };
        }
    }

    /// Drops labels that lead nowhere; whether any is left.
    fn prune(&self, set: usize, tables: &mut Tables) -> bool {
        let places = set * self.sets.groups.len()..(set + 1) * self.sets.groups.len();
        let numbers = places.map(|place| usize::try_from(tables.of[place]).unwrap_or(usize::MAX)).enumerate();
        let rows: Vec<_> = numbers.filter(|(_, row)| *row < tables.rows.len()).collect();
        if rows.is_empty() {
            return false;
        }
        self.rest(set, &mut tables.rest);
        let earliest = self.tails[self.sets.count - 1 - set];
        let items = self.problem.items();
        // Of stages that are bounded one by one only the last one is still open, and whether what is left fits.
        let (most, share) = match self.rule {
            Rule::Sum { most } => (most, 1.0 - ROUNDING),
            Rule::Added { bound } | Rule::Overlapped { bound } => (bound, 0.0),
        };
        let most = most * (1.0 + ROUNDING);
        let mut any = false;
        for (group, number) in rows {
            let Row { at, first, last } = tables.rows[number];
            let labels = &mut tables.labels[at..];
            let first = first.max(earliest);
            let kept = |item: usize, labels: &mut [f64]| {
                // What is infinite on either side is not kept.
                let rest = tables.rest[item];
                let sends = if item < items { self.least[group] } else { 0.0 };
                let keeps = labels[item] + rest * share + sends <= most && rest.max(labels[item]).is_finite();
                if !keeps {
                    labels[item] = f64::INFINITY;
                }
                keeps
            };
            let (mut low, mut high) = (usize::MAX, 0);
            for item in first..=last {
                if kept(item, labels) {
                    low = low.min(item);
                    high = item;
                }
            }
            tables.rows[number] = Row { at, first: low, last: high };
            any |= low <= high;
        }
        any
    }

    /// With which labels one more slot of a kind begins, from where to where; `None` when it nowhere does.
    fn arrivals(&self, set: usize, kind: usize, tables: &mut Tables) -> Option<(usize, usize)> {
        let slot = &self.problem.slots[self.sets.kinds[kind][0]];
        if set == 0 {
            tables.arrivals[0] = begin(self.problem, slot, self.rule, self.lead);
            return tables.arrivals[0].is_finite().then_some((0, 0));
        }
        let groups = self.sets.groups.len();
        let last_item = self.problem.items() - 1;
        let rows = || (0..groups).filter_map(|g| tables.row(set * groups + g).map(|row| (g, row)));
        let first = rows().map(|(_, row)| row.first).min()?;
        let last = rows().map(|(_, row)| row.last.min(last_item)).max()?;
        if first > last {
            return None;
        }
        tables.arrivals[first..=last].fill(f64::INFINITY);
        for group in 0..groups {
            let Some(row) = tables.row(set * groups + group).filter(|row| row.first <= row.last) else {
                continue;
            };
            let way = self.ways[group * groups + self.sets.group_of[kind]];
            let upto = row.last.min(last_item);
            let best = &tables.labels[row.at..=row.at + upto];
            arrive(self.problem, self.rule, way, best, row.first, &mut tables.arrivals[..=upto]);
        }
        Some((first, last))
    }

    /// Puts one more slot of every kind behind a set.
    fn expand(&self, set: usize, tables: &mut Tables) {
        let width = self.problem.items() + 1;
        for (kind, slots) in self.sets.kinds.iter().enumerate() {
            if self.sets.used(set, kind) == slots.len() {
                continue;
            }
            let Some((first, last)) = self.arrivals(set, kind, tables) else { continue };
            let slot = &self.problem.slots[slots[0]];
            let place = (set + self.sets.strides[kind]) * self.sets.groups.len() + self.sets.group_of[kind];
            let starts = Starts { labels: &tables.arrivals, first, last };
            let most = self.rule.most();
            let (mut low, mut high) = (usize::MAX, 0);
            let reached = &mut tables.reached;
            extend(self.problem, slot, &starts, self.problem.items(), &mut tables.queue, |end, _, label| {
                if label <= most && label < reached[end] {
                    reached[end] = label;
                    low = low.min(end);
                    high = end;
                }
            });
            if low > high {
                continue;
            }
            let number = tables.made(place, width);
            let Tables { rows, labels, reached, .. } = tables;
            let row = &mut rows[number];
            (row.first, row.last) = (row.first.min(low), row.last.max(high));
            for (label, reached) in
                labels[row.at + low..=row.at + high].iter_mut().zip(&mut reached[low..=high])
            {
                *label = label.min(*reached);
                *reached = f64::INFINITY;
            }
        }
    }

    /// Goes back from a set that holds everything: a step is one whose label comes out again.
    fn placement(&self, set: usize, group: usize, tables: &mut Tables) -> Placement {
        let (mut set, mut group, mut end) = (set, group, self.problem.items());
        let (mut kinds, mut ends) = (Vec::new(), Vec::new());
        while set > 0 {
            let label = tables.label(set * self.sets.groups.len() + group, end);
            let step = (0..self.sets.kinds.len())
                .filter(|&kind| self.sets.group_of[kind] == group && self.sets.used(set, kind) > 0)
                .find_map(|kind| self.step(set, kind, end, label, tables).map(|step| (kind, step)));
            let Some((kind, (start, before))) = step else { break };
            kinds.push(kind);
            ends.push(end);
            (set, group, end) = (set - self.sets.strides[kind], before, start);
        }
        let mut next = vec![0; self.sets.kinds.len()];
        let order = kinds.iter().rev().map(|&kind| {
            next[kind] += 1;
            self.sets.kinds[kind][next[kind] - 1]
        });
        Placement { order: order.collect(), ends: ends.into_iter().rev().collect() }
    }

    /// From which item and which group a slot of a kind came to this label.
    fn step(
        &self,
        set: usize,
        kind: usize,
        end: usize,
        label: f64,
        tables: &mut Tables,
    ) -> Option<(usize, usize)> {
        let before = set - self.sets.strides[kind];
        let (first, last) = self.arrivals(before, kind, tables)?;
        let slot = &self.problem.slots[self.sets.kinds[kind][0]];
        let starts = Starts { labels: &tables.arrivals, first, last: last.min(end - 1) };
        let mut found = None;
        extend(self.problem, slot, &starts, end, &mut tables.queue, |at, start, value| {
            if at == end && value <= label && found.is_none() {
                found = Some(start);
            }
        });
        let start = found?;
        if before == 0 {
            return Some((start, 0));
        }
        let groups = self.sets.groups.len();
        let arrival = tables.arrivals[start];
        let beyond = self.problem.hops.beyond(start);
        let came = (0..groups).find(|&group| {
            let way = self.ways[group * groups + self.sets.group_of[kind]];
            let label = tables.label(before * groups + group, start);
            self.rule.arrive(label, way.seconds(beyond)) <= arrival
        });
        came.map(|group| (start, group))
    }
}
