//! The cheapest set of items that covers a need: a knapsack turned round, solved by branch and bound.
//!
//! Items are tried by cost per byte. The bound is the linear relaxation, in which one item may be taken in part; with
//! several resources it is the largest of those of each resource alone. The first incumbent is the best of all greedy
//! beginnings that one more item completes. Ties are broken in a second, shorter search.

use std::cmp::Ordering;

/// Something that can be taken.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// What taking it costs.
    pub(super) cost: u64,
    /// What decides between sets of equal cost: the less, the better.
    pub(super) bytes: u64,
    /// What it gives of each resource.
    pub(super) sizes: Vec<u64>,
}

/// A set that covers the need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Places of the items that were given, ascending.
    pub(super) chosen: Vec<usize>,
    /// Whether no cheaper set exists.
    pub(super) proven: bool,
}

/// How many nodes the search for a better set of the same cost may visit.
const TIE_NODES: u32 = 5_000;

/// The set of least cost that covers `need`, and among those the one of least bytes, fewest items, first places. After
/// `limit` nodes the best one found is returned unproven. `None` when all items together do not cover it.
pub(super) fn cheapest(items: &[Item], need: &[u64], limit: u32) -> Option<Choice> {
    if need.iter().all(|need| *need == 0) {
        return Some(Choice { chosen: Vec::new(), proven: true });
    }
    let mut search = Search::new(items, need);
    let rest: Vec<i128> = need.iter().map(|need| i128::from(*need)).collect();
    if !search.reachable(0, &rest) {
        return None;
    }
    search.start(&rest);
    let proven = search.run(&rest, limit, Phase::Cost);
    if proven {
        search.run(&rest, TIE_NODES, Phase::Ties);
    }
    let mut chosen = search.best.taken;
    drop_redundant(items, &rest, &mut chosen);
    chosen.sort_unstable();
    Some(Choice { chosen, proven })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Look only for less cost.
    Cost,
    /// Look at everything of the same cost.
    Ties,
}

struct Search<'a> {
    items: &'a [Item],
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
    /// When positions are in that order already: sums of sizes and costs before each position.
    sums: Option<(Vec<i128>, Vec<u128>)>,
}

#[derive(Default)]
struct Best {
    cost: u128,
    bytes: u128,
    /// Places of items, in the order in which they were taken.
    taken: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(items: &'a [Item], need: &[u64]) -> Self {
        let mut order: Vec<usize> =
            (0..items.len()).filter(|i| items[*i].sizes.iter().any(|s| *s > 0)).collect();
        if let [need] = need {
            order.sort_by(|a, b| by_ratio(&items[*a], &items[*b], 0, *need).then(a.cmp(b)));
        } else {
            let weight: Vec<f64> = items.iter().map(|item| ratio(item, need)).collect();
            order.sort_by(|a, b| weight[*a].total_cmp(&weight[*b]).then(a.cmp(b)));
        }
        let mut next_kind = vec![order.len(); order.len()];
        for at in (0..order.len().saturating_sub(1)).rev() {
            let same = same_kind(&items[order[at]], &items[order[at + 1]]);
            next_kind[at] = if same { next_kind[at + 1] } else { at + 1 };
        }
        let lines = (0..need.len()).map(|d| Line::new(items, &order, d, need)).collect();
        Self { items, order, next_kind, lines, best: Best::default() }
    }

    fn item(&self, at: usize) -> &'a Item {
        &self.items[self.order[at]]
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
        for begun in 0..self.order.len() {
            let last = (begun..self.order.len())
                .filter(|at| self.completes(*at, &rest))
                .min_by_key(|at| self.item(*at).cost);
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
        let bytes = taken.iter().map(|place| u128::from(self.items[*place].bytes)).sum();
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
            Phase::Ties => spare + 1,
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
            (Ordering::Equal, Phase::Ties) => {
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
    fn new(items: &[Item], order: &[usize], resource: usize, need: &[u64]) -> Self {
        let need_here = need[resource];
        let size: Vec<u64> = order.iter().map(|place| items[*place].sizes[resource].min(need_here)).collect();
        let mut left = vec![0_i128; size.len() + 1];
        for at in (0..size.len()).rev() {
            left[at] = left[at + 1] + i128::from(size[at]);
        }
        let (mut positions, mut sums) = (Vec::new(), None);
        if need.len() == 1 {
            let (mut sizes, mut costs) = (vec![0_i128; size.len() + 1], vec![0_u128; size.len() + 1]);
            for at in 0..size.len() {
                sizes[at + 1] = sizes[at] + i128::from(size[at]);
                costs[at + 1] = costs[at] + u128::from(items[order[at]].cost);
            }
            sums = Some((sizes, costs));
        } else {
            positions = (0..order.len()).filter(|at| size[*at] > 0).collect();
            positions.sort_by(|a, b| {
                by_ratio(&items[order[*a]], &items[order[*b]], resource, need_here).then(a.cmp(b))
            });
        }
        Self { size, left, by_ratio: positions, sums }
    }

    /// Whether covering `rest` from position `at` on costs at least `limit`, even if one item may be taken in part.
    fn costs(&self, search: &Search<'_>, at: usize, rest: i128, limit: u128) -> bool {
        if let Some((sizes, costs)) = &self.sums {
            let whole = at + sizes[at + 1..].partition_point(|sum| sum - sizes[at] <= rest);
            let left = rest - (sizes[whole] - sizes[at]);
            let part = (left > 0).then(|| (search.item(whole).cost, self.size[whole]));
            return reaches(costs[whole] - costs[at], part, left, limit);
        }
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

/// By cost per byte of one resource, larger ones first among equals.
fn by_ratio(a: &Item, b: &Item, resource: usize, need: u64) -> Ordering {
    let (a_size, b_size) = (a.sizes[resource].min(need), b.sizes[resource].min(need));
    let a_first = u128::from(a.cost) * u128::from(b_size);
    let b_first = u128::from(b.cost) * u128::from(a_size);
    a_first
        .cmp(&b_first)
        .then(b_size.cmp(&a_size))
        .then(a.bytes.cmp(&b.bytes))
        .then_with(|| a.cost.cmp(&b.cost))
        .then_with(|| a.sizes.cmp(&b.sizes))
}

/// Cost per share of the whole need: only the order of trying depends on it.
fn ratio(item: &Item, need: &[u64]) -> f64 {
    let share = |(size, need): (&u64, &u64)| as_f64((*size).min(*need)) / as_f64(*need).max(1.0);
    let share: f64 = item.sizes.iter().zip(need).map(share).sum();
    as_f64(item.cost) / share.max(f64::MIN_POSITIVE)
}

fn as_f64(n: u64) -> f64 {
    plimsoll_units::Bytes::new(n).as_f64()
}

fn same_kind(a: &Item, b: &Item) -> bool {
    a.cost == b.cost && a.bytes == b.bytes && a.sizes == b.sizes
}

fn sorted(mut places: Vec<usize>) -> Vec<usize> {
    places.sort_unstable();
    places
}

/// Leaves out, dearest first, what the others cover as well.
fn drop_redundant(items: &[Item], need: &[i128], chosen: &mut Vec<usize>) {
    let mut spare: Vec<i128> = need
        .iter()
        .enumerate()
        .map(|(d, need)| chosen.iter().map(|place| i128::from(items[*place].sizes[d])).sum::<i128>() - need)
        .collect();
    let mut dearest = chosen.clone();
    dearest.sort_by_key(|place| (std::cmp::Reverse((items[*place].cost, items[*place].bytes)), *place));
    for place in dearest {
        let sizes = &items[place].sizes;
        if sizes.iter().zip(&spare).all(|(size, spare)| i128::from(*size) <= *spare) {
            spare.iter_mut().zip(sizes).for_each(|(spare, size)| *spare -= i128::from(*size));
            chosen.retain(|kept| *kept != place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every subset, looked at one by one.
    fn oracle(items: &[Item], need: &[u64]) -> Option<Vec<usize>> {
        let sets =
            (0_u32..1 << items.len()).map(|mask| (0..items.len()).filter(|i| mask >> i & 1 == 1).collect());
        let covers = |set: &Vec<usize>| {
            need.iter()
                .enumerate()
                .all(|(d, need)| set.iter().map(|i| items[*i].sizes[d]).sum::<u64>() >= *need)
        };
        let key = |set: &Vec<usize>| {
            let sum = |of: fn(&Item) -> u64| set.iter().map(|i| of(&items[*i])).sum::<u64>();
            (sum(|item| item.cost), sum(|item| item.bytes), set.len(), set.clone())
        };
        sets.filter(covers).min_by_key(key)
    }

    fn item(resources: usize) -> impl Strategy<Value = Item> {
        // Small numbers make ties, and ties find mistakes.
        (0_u64..6, 0_u64..3, prop::collection::vec(0_u64..8, resources))
            .prop_map(|(cost, more, sizes)| Item { cost, bytes: sizes.iter().sum::<u64>() + more, sizes })
    }

    fn problem() -> impl Strategy<Value = (Vec<Item>, Vec<u64>)> {
        (1_usize..4).prop_flat_map(|resources| {
            (prop::collection::vec(item(resources), 0..10), prop::collection::vec(0_u64..25, resources))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_500))]
        #[test]
        fn the_set_is_the_best_of_all((items, need) in problem()) {
            let found = cheapest(&items, &need, 2_000_000);
            prop_assert!(found.as_ref().is_none_or(|found| found.proven));
            prop_assert_eq!(found.map(|found| found.chosen), oracle(&items, &need));
        }

        #[test]
        fn equal_items_do_not_slow_the_search_down(count in 1_usize..64, size in 1_u64..9, percent in 0_u64..=100) {
            let items = vec![Item { cost: 7, bytes: size, sizes: vec![size] }; count];
            let most = u64::try_from(count).unwrap() * size;
            let need = (most * percent / 100).max(1);
            let found = cheapest(&items, &[need], 200).unwrap();
            prop_assert!(found.proven);
            prop_assert_eq!(found.chosen, Vec::from_iter(0..usize::try_from(need.div_ceil(size)).unwrap()));
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let huge = Item { cost: u64::MAX, bytes: u64::MAX, sizes: vec![u64::MAX, u64::MAX - 1] };
        let items = vec![huge; 64];
        let found = cheapest(&items, &[u64::MAX, u64::MAX], 1_000).unwrap();
        assert_eq!(found, Choice { chosen: vec![0, 1], proven: true });
    }
}
