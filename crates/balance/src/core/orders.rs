//! In which orders slots are tried.

use super::Problem;
use super::rates::LatencyRates;

/// More distinct orders than this are not tried one by one.
const EVERY: usize = 800;

/// Nor orders of so many slots together.
const SLOTS: usize = 1_000_000;

/// Every distinct order of as many slots as may be used, when these are few; slots that nothing tells apart count as one.
///
/// Slots may stay empty, so shorter orders are covered by longer ones.
pub(crate) fn every(problem: &Problem) -> Option<Vec<Vec<usize>>> {
    let kinds = kinds(problem);
    let length = problem.limit.min(problem.slots.len());
    let mut left: Vec<Vec<usize>> = vec![Vec::new(); kinds.iter().max().map_or(0, |k| k + 1)];
    for (slot, &kind) in kinds.iter().enumerate().rev() {
        left[kind].push(slot);
    }
    let mut orders = Vec::new();
    extend(&mut left, length, &mut Vec::with_capacity(length), &mut orders).then_some(orders)
}

fn extend(
    left: &mut [Vec<usize>],
    length: usize,
    prefix: &mut Vec<usize>,
    orders: &mut Vec<Vec<usize>>,
) -> bool {
    if prefix.len() == length {
        orders.push(prefix.clone());
        return orders.len() <= EVERY;
    }
    for kind in 0..left.len() {
        let Some(slot) = left[kind].pop() else { continue };
        prefix.push(slot);
        let few = extend(left, length, prefix, orders);
        prefix.pop();
        left[kind].push(slot);
        if !few {
            return false;
        }
    }
    true
}

/// A number for each slot: the same for slots that can change places without any difference.
fn kinds(problem: &Problem) -> Vec<usize> {
    let mut seen: Vec<(usize, u64, u64, u64, usize)> = Vec::new();
    let mut kind_of = |key| match seen.iter().position(|k| *k == key) {
        Some(kind) => kind,
        None => {
            seen.push(key);
            seen.len() - 1
        }
    };
    let slots = problem.slots.iter();
    slots.map(|s| kind_of((s.class, s.room, s.fixed, s.rate.to_bits(), s.group))).collect()
}

/// The largest room first; ties by index.
pub(crate) fn largest_first(problem: &Problem) -> Vec<usize> {
    sorted(problem, |p, a, b| p.slots[b].room.cmp(&p.slots[a].room))
}

/// A few plain orders, without repeats: by room, by rate, by what a byte costs with its share of the hop.
pub(crate) fn plain(problem: &Problem) -> Vec<Vec<usize>> {
    let rates = LatencyRates::new(problem);
    let mut orders = vec![
        largest_first(problem),
        sorted(problem, |p, a, b| p.slots[a].room.cmp(&p.slots[b].room)),
        sorted(problem, |p, a, b| p.slots[b].rate.total_cmp(&p.slots[a].rate)),
        sorted(problem, |_, a, b| rates.unit_cost(a).total_cmp(&rates.unit_cost(b))),
    ];
    let by_group = |mut order: Vec<usize>| {
        // The groups in the order in which they first come up, their slots together: no way is gone twice.
        let mut groups: Vec<usize> = Vec::new();
        for &slot in &order {
            let group = problem.slots[slot].group;
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        order.sort_by_key(|&slot| groups.iter().position(|g| *g == problem.slots[slot].group));
        order
    };
    if problem.slots.len() <= 256 {
        let together: Vec<_> = orders.iter().cloned().map(by_group).collect();
        orders.extend(together);
    }
    let mut distinct: Vec<Vec<usize>> = Vec::with_capacity(orders.len());
    for order in orders {
        if !distinct.contains(&order) {
            distinct.push(order);
        }
    }
    distinct
}

fn sorted(problem: &Problem, by: impl Fn(&Problem, usize, usize) -> std::cmp::Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.slots.len()).collect();
    order.sort_by(|&a, &b| by(problem, a, b).then(a.cmp(&b)));
    order
}

/// An order with the unused slots behind it, the fastest first, up to the limit.
pub(crate) fn extended(problem: &Problem, order: &[usize]) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..problem.slots.len()).collect();
    let mut used = vec![false; rest.len()];
    for &slot in order {
        used[slot] = true;
    }
    rest.retain(|&slot| !used[slot]);
    rest.sort_by(|&a, &b| problem.slots[b].rate.total_cmp(&problem.slots[a].rate).then(a.cmp(&b)));
    order.iter().copied().chain(rest).take(problem.limit).collect()
}

/// Orders of at most `problem.limit` slots that keep the sequence of `order`.
///
/// All of them where they are few, and then the answer is `true`; otherwise the slots with the most room and the fastest.
pub(crate) fn shortened(problem: &Problem, order: &[usize]) -> (Vec<Vec<usize>>, bool) {
    let length = problem.limit.min(order.len());
    if length == order.len() {
        return (vec![order.to_vec()], true);
    }
    let mut all = Vec::new();
    if choose(order, length, &mut Vec::with_capacity(length), &mut all) {
        return (all, true);
    }
    let keep = |better: &dyn Fn(usize, usize) -> std::cmp::Ordering| {
        let mut places: Vec<usize> = (0..order.len()).collect();
        places.sort_by(|&a, &b| better(order[a], order[b]).then(a.cmp(&b)));
        places.truncate(length);
        places.sort_unstable();
        places.into_iter().map(|place| order[place]).collect::<Vec<_>>()
    };
    let slots = &problem.slots;
    let roomy = keep(&|a, b| slots[b].room.cmp(&slots[a].room));
    let fast = keep(&|a, b| slots[b].rate.total_cmp(&slots[a].rate));
    (if roomy == fast { vec![roomy] } else { vec![roomy, fast] }, false)
}

/// Every choice of `length` of these, in their sequence; `false` when there are more than a few hundred.
fn choose(rest: &[usize], length: usize, prefix: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) -> bool {
    if length == 0 {
        all.push(prefix.clone());
        return all.len() <= EVERY.min(SLOTS / prefix.len().max(1));
    }
    for (at, &slot) in rest.iter().enumerate() {
        if rest.len() - at < length {
            break;
        }
        prefix.push(slot);
        let few = choose(&rest[at + 1..], length - 1, prefix, all);
        prefix.pop();
        if !few {
            return false;
        }
    }
    true
}
