//! The cheapest set of items that covers a need: a knapsack turned round, solved by branch and bound.
//!
//! Items are tried by cost per byte. The bound is the linear relaxation, in which one item may be taken in part; with
//! several resources it is the largest of those of each resource alone. A single resource has a search of its own. The first incumbent is the best of all greedy
//! beginnings that one more item completes. Ties are broken on the way, or in a second search where there are many.

mod kind;
mod single;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use kind::{Kind, by_ratio};

pub(super) use single::{FEW, Offer, room};

/// Something that can be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// What taking it costs.
    pub(super) cost: u64,
    /// What decides between sets of equal cost: the less, the better.
    pub(super) bytes: u64,
}

/// What can be taken, and for what.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) items: Vec<Item>,
    /// What is needed of each resource.
    pub(super) need: Vec<u64>,
    /// Per resource, what each item gives.
    pub(super) sizes: Vec<Vec<u64>>,
}

/// A set that covers the need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Places of the items that were given, ascending.
    pub(super) chosen: Vec<usize>,
    /// Whether no cheaper set exists.
    pub(super) proven: bool,
}

/// How many nodes the search for a better set of the same cost may visit, where many sets cost the same.
const TIE_NODES: u32 = 5_000;

/// How many nodes a search for both at once may visit, which is enough where few sets cost the same.
const BOTH_NODES: u32 = 2_000;

/// The set of least cost that covers the need, and among those the one of least bytes, fewest items, first places. After
/// `limit` nodes the best one found is returned unproven. `None` when all items together do not cover it.
pub(super) fn cheapest(problem: &Problem, limit: u32) -> Option<Choice> {
    if problem.need.iter().all(|need| *need == 0) {
        return Some(Choice { chosen: Vec::new(), proven: true });
    }
    general(problem, limit)
}

/// The same where a single resource is short, of which `need` is needed and every item gives some.
pub(super) fn cheapest_of_one(offers: &[Offer], need: u64, limit: u32) -> Option<Choice> {
    if need > 0 && single::is_small(offers) {
        return single::cheapest(offers, need, limit);
    }
    let items = offers.iter().map(|offer| Item { cost: offer.cost, bytes: offer.bytes }).collect();
    let sizes = vec![offers.iter().map(|offer| offer.size).collect()];
    cheapest(&Problem { items, need: vec![need], sizes }, limit)
}

/// The search for any number of resources.
fn general(problem: &Problem, limit: u32) -> Option<Choice> {
    let rest: Vec<i128> = problem.need.iter().map(|need| i128::from(*need)).collect();
    let useful = |place: &usize| problem.sizes.iter().any(|sizes| sizes[*place] > 0);
    let mut search = Search::new(problem, (0..problem.items.len()).filter(useful).collect(), &rest);
    if !search.reachable(0, &rest) {
        return None;
    }
    search.start(&rest);
    let (proven, mut chosen) = search.solve(&rest, limit);
    drop_redundant(problem, &rest, &mut chosen);
    chosen.sort_unstable();
    Some(Choice { chosen, proven })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Look for less cost, and for better sets of the same cost on the way.
    Both,
    /// Look only for less cost.
    Cost,
    /// Look at everything of the same cost.
    Ties,
}

struct Search<'a> {
    problem: &'a Problem,
    /// Places of the items in the order in which they are tried.
    order: Vec<usize>,
    /// Per position, the next one that holds another kind of item. Of equal items, earlier ones are taken first.
    next_kind: Vec<usize>,
    /// Per resource.
    lines: Vec<Line>,
    best: Best,
}

/// One resource alone.
struct Line {
    /// Sizes by position, clipped to the need.
    size: Vec<u64>,
    /// Sums of sizes from each position to the end.
    left: Vec<i128>,
    /// Positions by cost per byte.
    by_ratio: Vec<usize>,
}

#[derive(Clone, Default)]
struct Best {
    cost: u128,
    bytes: u128,
    /// Places of items, in the order in which they were taken.
    taken: Vec<usize>,
}

impl<'a> Search<'a> {
    /// A search among the items at these places.
    fn new(problem: &'a Problem, mut order: Vec<usize>, need: &[i128]) -> Self {
        let kind = |place: usize| Kind { problem, place };
        let need: Vec<u64> = need.iter().map(|need| u64::try_from(*need).unwrap_or(0)).collect();
        if let [need] = *need {
            order = by_ratio(problem, order, 0, need);
        } else {
            let weight: Vec<f64> = (0..problem.items.len()).map(|place| kind(place).ratio(&need)).collect();
            order.sort_by(|a, b| weight[*a].total_cmp(&weight[*b]).then(a.cmp(b)));
        }
        let mut next_kind = vec![order.len(); order.len()];
        for at in (0..order.len().saturating_sub(1)).rev() {
            let same = kind(order[at]).is_same(kind(order[at + 1]));
            next_kind[at] = if same { next_kind[at + 1] } else { at + 1 };
        }
        let lines = (0..need.len()).map(|resource| Line::new(problem, &order, resource, &need)).collect();
        Self { problem, order, next_kind, lines, best: Best::default() }
    }

    /// Searches from the incumbent on; whether the best set is proven, and which it is.
    fn solve(mut self, rest: &[i128], limit: u32) -> (bool, Vec<usize>) {
        if self.run(rest, BOTH_NODES.min(limit), Phase::Both) {
            return (true, self.best.taken);
        }
        let proven = self.run(rest, limit, Phase::Cost);
        if proven {
            self.run(rest, TIE_NODES, Phase::Ties);
        }
        (proven, self.best.taken)
    }

    fn item(&self, at: usize) -> &'a Item {
        &self.problem.items[self.order[at]]
    }

    /// Whether everything from `at` on covers what is left.
    fn reachable(&self, at: usize, rest: &[i128]) -> bool {
        self.lines.iter().zip(rest).all(|(line, rest)| line.left[at] >= *rest)
    }

    /// Whether this one item covers what is left.
    fn completes(&self, at: usize, rest: &[i128]) -> bool {
        self.lines.iter().zip(rest).all(|(line, rest)| i128::from(line.size[at]) >= *rest)
    }

    /// The first incumbent: the best greedy beginning with one item that completes it.
    fn start(&mut self, need: &[i128]) {
        let mut rest = need.to_vec();
        let mut cost = 0_u128;
        let mut best: Option<(u128, usize, usize)> = None;
        let largest: Vec<Vec<u64>> = self.lines.iter().map(Line::largest).collect();
        for begun in 0..self.order.len() {
            let hopeless =
                largest.iter().zip(&rest).any(|(largest, rest)| i128::from(largest[begun]) < *rest);
            let completing = (begun..self.order.len()).filter(|at| self.completes(*at, &rest));
            let last = if hopeless { None } else { completing.min_by_key(|at| self.item(*at).cost) };
            if let Some(last) = last {
                let total = cost + u128::from(self.item(last).cost);
                if best.is_none_or(|(least, _, _)| total < least) {
                    best = Some((total, begun, last));
                }
            }
            if self.completes(begun, &rest) {
                break;
            }
            cost += u128::from(self.item(begun).cost);
            self.take(begun, &mut rest);
        }
        let (cost, begun, last) = best.expect("all items together cover the need");
        let taken: Vec<usize> = self.order[..begun].iter().copied().chain([self.order[last]]).collect();
        let bytes = taken.iter().map(|place| u128::from(self.problem.items[*place].bytes)).sum();
        self.best = Best { cost, bytes, taken };
    }

    fn take(&self, at: usize, rest: &mut [i128]) {
        for (line, rest) in self.lines.iter().zip(rest) {
            *rest -= i128::from(line.size[at]);
        }
    }

    fn put_back(&self, at: usize, rest: &mut [i128]) {
        for (line, rest) in self.lines.iter().zip(rest) {
            *rest += i128::from(line.size[at]);
        }
    }

    /// Visits every node that can hold a better set; false when it had to stop before.
    fn run(&mut self, need: &[i128], limit: u32, phase: Phase) -> bool {
        let mut rest = need.to_vec();
        let mut taken: Vec<usize> = Vec::with_capacity(self.order.len());
        let (mut cost, mut bytes, mut at) = (0_u128, 0_u128, 0_usize);
        let mut nodes = 0_u32;
        loop {
            if nodes >= limit {
                return false;
            }
            nodes += 1;
            if at < self.order.len()
                && self.reachable(at, &rest)
                && !self.is_cut(at, &rest, cost, bytes, phase)
            {
                let item = self.item(at);
                if self.completes(at, &rest) {
                    self.offer(
                        &taken,
                        at,
                        cost + u128::from(item.cost),
                        bytes + u128::from(item.bytes),
                        phase,
                    );
                    at = self.next_kind[at];
                } else {
                    self.take(at, &mut rest);
                    taken.push(at);
                    cost += u128::from(item.cost);
                    bytes += u128::from(item.bytes);
                    at += 1;
                }
            } else {
                let Some(last) = taken.pop() else { return true };
                self.put_back(last, &mut rest);
                cost -= u128::from(self.item(last).cost);
                bytes -= u128::from(self.item(last).bytes);
                at = self.next_kind[last];
            }
        }
    }

    /// Whether nothing from here on can be better.
    fn is_cut(&self, at: usize, rest: &[i128], cost: u128, bytes: u128, phase: Phase) -> bool {
        let spare = self.best.cost.saturating_sub(cost);
        let limit = match phase {
            Phase::Cost => spare,
            Phase::Both | Phase::Ties => spare + 1,
        };
        if phase == Phase::Ties {
            let more = rest.iter().copied().max().unwrap_or(0).max(0);
            if bytes + more.unsigned_abs() > self.best.bytes {
                return true;
            }
        }
        self.lines.iter().zip(rest).any(|(line, rest)| *rest > 0 && line.costs(self, at, *rest, limit))
    }

    /// Takes note of a set that covers the need.
    fn offer(&mut self, taken: &[usize], last: usize, cost: u128, bytes: u128, phase: Phase) {
        let better = match (cost.cmp(&self.best.cost), phase) {
            (Ordering::Less, _) => true,
            (Ordering::Equal, Phase::Both | Phase::Ties) => {
                let count = taken.len() + 1;
                (bytes, count) < (self.best.bytes, self.best.taken.len())
                    || ((bytes, count) == (self.best.bytes, self.best.taken.len())
                        && sorted(self.places(taken, last)) < sorted(self.best.taken.clone()))
            }
            _ => false,
        };
        if better {
            self.best = Best { cost, bytes, taken: self.places(taken, last) };
        }
    }

    fn places(&self, taken: &[usize], last: usize) -> Vec<usize> {
        taken.iter().chain([&last]).map(|at| self.order[*at]).collect()
    }
}

impl Line {
    fn new(problem: &Problem, order: &[usize], resource: usize, need: &[u64]) -> Self {
        let need_here = need[resource];
        let sizes = &problem.sizes[resource];
        let size: Vec<u64> = order.iter().map(|place| sizes[*place].min(need_here)).collect();
        let mut left = vec![0_i128; size.len() + 1];
        for at in (0..size.len()).rev() {
            left[at] = left[at + 1] + i128::from(size[at]);
        }
        let mut at = vec![0; problem.items.len()];
        order.iter().enumerate().for_each(|(position, place)| at[*place] = position);
        let some = order.iter().copied().filter(|place| sizes[*place] > 0).collect();
        let mut positions = by_ratio(problem, some, resource, need_here);
        positions.iter_mut().for_each(|place| *place = at[*place]);
        Self { size, left, by_ratio: positions }
    }

    /// The largest size from each position to the end.
    fn largest(&self) -> Vec<u64> {
        let mut largest = self.size.clone();
        for at in (1..largest.len()).rev() {
            largest[at - 1] = largest[at - 1].max(largest[at]);
        }
        largest
    }

    /// Whether covering `rest` from position `at` on costs at least `limit`, even if one item may be taken in part.
    fn costs(&self, search: &Search<'_>, at: usize, rest: i128, limit: u128) -> bool {
        let (mut cost, mut rest) = (0_u128, rest);
        for position in self.by_ratio.iter().filter(|position| **position >= at) {
            let (item_cost, size) = (search.item(*position).cost, self.size[*position]);
            if i128::from(size) > rest {
                return reaches(cost, Some((item_cost, size)), rest, limit);
            }
            cost += u128::from(item_cost);
            rest -= i128::from(size);
            if rest == 0 || cost >= limit {
                break;
            }
        }
        cost >= limit
    }
}

/// Whether a whole cost and the part of one item that covers `left` come to at least `limit`, rounded up.
fn reaches(whole: u128, part: Option<(u64, u64)>, left: i128, limit: u128) -> bool {
    let Some(spare) = limit.checked_sub(whole).filter(|spare| *spare > 0) else {
        return true;
    };
    // ceil(cost * left / size) >= spare, without dividing. `left` is below `size`, so the left side fits.
    part.is_some_and(|(cost, size)| {
        u128::from(cost) * left.unsigned_abs() > (spare - 1).saturating_mul(u128::from(size))
    })
}

fn sorted(mut places: Vec<usize>) -> Vec<usize> {
    places.sort_unstable();
    places
}

/// Leaves out, dearest first, what the others cover as well.
fn drop_redundant(problem: &Problem, need: &[i128], chosen: &mut Vec<usize>) {
    let sum = |sizes: &Vec<u64>| chosen.iter().map(|place| i128::from(sizes[*place])).sum::<i128>();
    let mut spare: Vec<i128> =
        problem.sizes.iter().zip(need).map(|(sizes, need)| sum(sizes) - need).collect();
    let mut dearest = chosen.clone();
    let key = |place: &usize| (problem.items[*place].cost, problem.items[*place].bytes);
    dearest.sort_by_key(|place| (std::cmp::Reverse(key(place)), *place));
    for place in dearest {
        let gives = || problem.sizes.iter().map(|sizes| i128::from(sizes[place]));
        if gives().zip(&spare).all(|(size, spare)| size <= *spare) {
            spare.iter_mut().zip(gives()).for_each(|(spare, size)| *spare -= size);
            chosen.retain(|kept| *kept != place);
        }
    }
}
