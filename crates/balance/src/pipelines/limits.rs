//! How many tokens no choice of pipelines exceeds.

use super::team::{Team, Unit};
use crate::core::as_f64;

/// Beyond so many (device, item) pairs, fewer items are looked at.
const PAIRS: usize = 2_000_000;

/// What floating point may have taken from a bound on the way.
const ROUNDING: f64 = 1e-12;

/// No `pipelines` copies, or fewer, make more tokens in a second, however the devices are divided.
///
/// A pipeline of rate r keeps each of its devices busy for r times what it holds, so over all pipelines the rates times
/// what one copy costs are at most the devices' speeds together; and so for any part of the model and the devices that
/// can hold something of it. A device that holds at most m bytes is busy for at most m times all rates together. And a
/// single item is on one device of every pipeline: the fastest ones that can hold it.
pub(super) fn most_tokens(team: &Team<'_>, pipelines: usize) -> f64 {
    let limit = team.context.limit;
    let by_speed = heavy_parts(team, limit);
    let by_item = single_items(team, pipelines.min(limit));
    let most = by_speed.min(by_item).min(by_room(team, by_speed));
    most * (1.0 + ROUNDING)
}

/// Whether a unit can hold an item.
fn holds(team: &Team<'_>, unit: &Unit, item: usize) -> bool {
    let problem = team.problem();
    let fits = |slot: usize| problem.holds(&problem.slots[slot], item, item + 1);
    unit.alone.is_some() || unit.slot.is_some_and(fits)
}

/// The sum of the largest `count` of these.
fn largest(mut rates: Vec<f64>, count: usize) -> f64 {
    rates.sort_by(|a, b| b.total_cmp(a));
    rates.truncate(count);
    rates.into_iter().sum()
}

/// Everything that takes at least so much, and the devices that can hold at least that.
fn heavy_parts(team: &Team<'_>, limit: usize) -> f64 {
    let chain = &team.smallest;
    let mut items: Vec<(u64, u64)> =
        (0..chain.items()).map(|i| (chain.load(i, i + 1), chain.cost(i, i + 1))).collect();
    items.sort_unstable_by(|a, b| b.cmp(a));
    let mut best = f64::INFINITY;
    let mut cost = 0_u64;
    let step = (items.len().saturating_mul(team.units.len()) / PAIRS).max(1);
    for (at, &(load, own)) in items.iter().enumerate() {
        cost = cost.saturating_add(own);
        let last = at + 1 == items.len();
        let changes = items.get(at + 1).is_none_or(|next| next.0 < load);
        if !changes || (!last && at % step > 0) || cost == 0 {
            continue;
        }
        let holding = team.units.iter().filter(|unit| unit.alone.is_some() || unit.room >= load);
        let rates = largest(holding.map(|unit| unit.rate).collect(), limit);
        best = best.min(rates / as_f64(cost));
    }
    best
}

/// The fastest devices that can hold an item, one for each pipeline.
fn single_items(team: &Team<'_>, pipelines: usize) -> f64 {
    let chain = &team.smallest;
    let mut items: Vec<usize> = (0..chain.items()).collect();
    items.sort_by_key(|&i| (u64::MAX - chain.cost(i, i + 1), i));
    items.truncate((PAIRS / team.units.len().max(1)).max(1));
    let mut best = f64::INFINITY;
    for item in items {
        let cost = chain.cost(item, item + 1);
        if cost > 0 {
            let holding = team.units.iter().filter(|unit| holds(team, unit, item));
            best = best.min(largest(holding.map(|unit| unit.rate).collect(), pipelines) / as_f64(cost));
        }
    }
    best
}

/// The most tokens under which what devices have room for is busy no longer than there is time.
fn by_room(team: &Team<'_>, most: f64) -> f64 {
    let problem = team.problem();
    let items = team.smallest.items();
    if items.saturating_mul(team.units.len()) > PAIRS || !most.is_finite() {
        return most;
    }
    let held = |unit: &Unit| match (unit.alone, unit.slot) {
        (None, Some(slot)) => {
            let slot = &problem.slots[slot];
            let chain = problem.chain(slot);
            let runs = (0..items).map(|start| chain.cost(start, chain.reach(start, slot.room)));
            as_f64(runs.max().unwrap_or(0))
        }
        _ => f64::INFINITY,
    };
    let held: Vec<f64> = team.units.iter().map(held).collect();
    let enough = |rate: f64| {
        let busy = team.units.iter().zip(&held).map(|(unit, held)| unit.rate.min(held * rate));
        busy.sum::<f64>() >= team.total * rate * (1.0 - ROUNDING)
    };
    let (mut low, mut high) = (0.0, most);
    if enough(high) {
        return high;
    }
    for _ in 0..64 {
        let middle = low + (high - low) / 2.0;
        if enough(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}
