//! What a byte costs on each slot, and what no sum of times and hops is below.

use std::collections::BTreeMap;

use super::chain::Chain;
use super::{Problem, Slot, as_f64};

/// Beyond so many (kind of room, item) pairs, runs are not looked at one by one.
const PAIRS: usize = 2_000_000;

/// Where items cost what they take and a room holds so many of them, it is hardly more than the best run in it.
const MANY: usize = 20;

/// What floating point may have added to a bound on the way.
const ROUNDING: f64 = 1e-12;

/// What a byte costs on each slot, its share of the hop included.
pub(crate) struct LatencyRates {
    rates: Vec<Rate>,
    /// The largest hop that any slot pays a share of.
    largest_hop: f64,
}

struct Rate {
    per_byte: f64,
    /// The most bytes.
    most: f64,
    /// The share of the hop that every byte pays.
    share: f64,
}

impl LatencyRates {
    pub(crate) fn new(problem: &Problem) -> Self {
        let most = most_costs(problem);
        let mut groups: BTreeMap<usize, f64> = BTreeMap::new();
        for (slot, &most) in problem.slots.iter().zip(&most) {
            if most > 0 {
                *groups.entry(slot.group).or_insert(0.0) += as_f64(most);
            }
        }
        let hops = cheapest(problem, &groups);
        let rate = |(slot, most): (&Slot, u64)| {
            let (all, hop) = (groups.get(&slot.group), hops.get(&slot.group));
            let share = all.zip(hop).map_or(0.0, |(all, hop)| hop / all);
            Rate { per_byte: 1.0 / slot.rate, most: as_f64(most), share }
        };
        let rates = problem.slots.iter().zip(most).map(rate).collect();
        Self { rates, largest_hop: hops.into_values().fold(0.0, f64::max) }
    }

    /// Seconds for one byte when the group of the slot is full.
    pub(crate) fn unit_cost(&self, slot: usize) -> f64 {
        self.rates[slot].per_byte + self.rates[slot].share
    }

    /// The least that `total` bytes cost where every slot takes any part of its bytes and every byte pays `hops` times its
    /// share of the hop: filled by ascending unit cost, that is the optimum of a linear programme.
    fn filled(&self, total: f64, hops: f64) -> f64 {
        let unit = |rate: &Rate| rate.per_byte + hops * rate.share;
        let mut order: Vec<&Rate> = self.rates.iter().filter(|rate| rate.most > 0.0).collect();
        order.sort_by(|a, b| unit(a).total_cmp(&unit(b)));
        let (mut left, mut sum) = (total, 0.0);
        for rate in order {
            let take = left.min(rate.most);
            sum += take * unit(rate);
            left -= take;
        }
        sum
    }

    /// What no placement is below.
    ///
    /// Every group that is used is entered, the first one only where the input lies elsewhere: one hop, the largest, is
    /// given back. Where everything passes a main group, every group is entered and left over its own link, but for the
    /// last one.
    pub(crate) fn bound(&self, problem: &Problem) -> f64 {
        let total = as_f64(Chain::smallest(&problem.chains).cost(0, problem.items()));
        let bare = self.filled(total, 0.0);
        let entered = self.filled(total, 1.0);
        let bound = match problem.hops.through {
            Some(_) => entered.max(self.filled(total, 2.0) - self.largest_hop),
            None => entered - self.largest_hop,
        };
        (bare.max(bound) * (1.0 - ROUNDING)).max(0.0)
    }
}

/// No way into a group is cheaper, coming from another one of those that take anything.
fn cheapest(problem: &Problem, groups: &BTreeMap<usize, f64>) -> BTreeMap<usize, f64> {
    let hops = &problem.hops;
    if hops.through.is_some() {
        return groups.keys().map(|&group| (group, hops.first_hop(group))).collect();
    }
    // For each group how many ways to others are told, and the least of them.
    let mut told: BTreeMap<usize, (usize, f64)> = groups.keys().map(|&g| (g, (0, f64::INFINITY))).collect();
    for (&(a, b), &seconds) in &hops.told {
        if a != b && groups.contains_key(&a) && groups.contains_key(&b) {
            for group in [a, b] {
                if let Some((count, least)) = told.get_mut(&group) {
                    *count += 1;
                    *least = least.min(seconds);
                }
            }
        }
    }
    let others = groups.len().saturating_sub(1);
    let least = |(group, (count, least)): (usize, (usize, f64))| {
        let least = if count < others { least.min(hops.usual) } else { least };
        (group, if others > 0 { least } else { 0.0 })
    };
    told.into_iter().map(least).collect()
}

/// The most that items on each slot can cost, by its room alone.
pub(crate) fn most_costs(problem: &Problem) -> Vec<u64> {
    let mut known: BTreeMap<(usize, u64), u64> =
        problem.slots.iter().map(|slot| ((slot.class, slot.room), 0)).collect();
    let pairs = known.len().saturating_mul(problem.items());
    let ratios: Vec<(f64, u64)> = problem.chains.iter().map(dearest).collect();
    for (&(class, room), most) in &mut known {
        let chain = &problem.chains[class];
        let plain = std::ptr::eq(chain.costs(), chain.sums());
        let close = plain && problem.items() / problem.slots.len() >= MANY;
        let exact = pairs <= if close { PAIRS / 10 } else { PAIRS };
        *most = if exact { dearest_run(chain, room) } else { at_most(chain, ratios[class], room) };
    }
    problem.slots.iter().map(|slot| known.get(&(slot.class, slot.room)).copied().unwrap_or(0)).collect()
}

/// The run within a room that costs most. One slot is not kept from holding everything here.
fn dearest_run(chain: &Chain, room: u64) -> u64 {
    let (loads, costs, items) = (chain.sums(), chain.costs(), chain.items());
    let (mut end, mut most) = (0, 0);
    for start in 0..items {
        end = end.max(start);
        while end < items && loads[end + 1] - loads[start] <= room {
            end += 1;
        }
        most = most.max(costs[end] - costs[start]);
    }
    let lone = items.checked_sub(1).filter(|&last| chain.load(last, items) <= room);
    most.max(lone.map_or(0, |last| chain.cost(last, items)))
}

/// The most that a byte of an item costs, and what items cost that take nothing.
fn dearest(chain: &Chain) -> (f64, u64) {
    let (mut ratio, mut free) = (0.0_f64, 0_u64);
    for item in 0..chain.items() {
        match (chain.load(item, item + 1), chain.costs()[item + 1] - chain.costs()[item]) {
            (0, cost) => free = free.saturating_add(cost),
            (load, cost) => ratio = ratio.max(as_f64(cost) / as_f64(load)),
        }
    }
    (ratio, free)
}

fn at_most(chain: &Chain, (ratio, free): (f64, u64), room: u64) -> u64 {
    let all = chain.cost(0, chain.items());
    let by_room = as_f64(room) * ratio * (1.0 + 1e-9) + as_f64(free) + 1.0;
    if by_room < as_f64(all) { super::minmax::most_within(by_room, 1.0).min(all) } else { all }
}
