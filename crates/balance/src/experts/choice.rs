//! Which parts one stage gives away: how many of each kind.

use crate::core::as_f64;
use crate::experts::parts::Kind;

/// More combinations of numbers than this are not tried for one stage.
const COMBINATIONS: u64 = 4096;

/// What has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// At least so many bytes of the device.
    pub(crate) bytes: u64,
    /// At least so much of what a token reads there.
    pub(crate) read: u64,
    /// Everything that can.
    pub(crate) everything: bool,
}

/// So many parts of each kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// One number for each kind.
    pub(crate) counts: Vec<u32>,
    /// What they take on the host.
    pub(crate) there: u64,
    /// What it costs.
    pub(crate) cost: f64,
}

/// The choices none of which is worse than another one in both bytes on the host and cost, and whether these are all;
/// beside them those that let a single part go, where none has to.
///
/// `have` parts of each kind are there, and moving one of a kind costs `unit` more, which may be negative. Costs are linear,
/// so of the kind that is tried last only the fewest need to be looked at where moving one costs something.
pub(crate) fn choices(kinds: &[Kind], have: &[u32], demand: &Demand, unit: &[f64]) -> (Vec<Choice>, bool) {
    let give = |kind: usize, n: u32| kinds[kind].here.saturating_mul(u64::from(n));
    let read = |kind: usize, n: u32| kinds[kind].read_here.saturating_mul(u64::from(n));
    let choice = |counts: Vec<u32>| {
        let each = counts.iter().enumerate();
        let there = each
            .clone()
            .fold(0_u64, |sum, (k, n)| sum.saturating_add(kinds[k].there.saturating_mul(u64::from(*n))));
        let cost = each.map(|(k, n)| unit[k] * as_f64(u64::from(*n))).sum();
        Choice { counts, there, cost }
    };
    let all = |of: &dyn Fn(usize, u32) -> u64| {
        have.iter().enumerate().fold(0_u64, |sum, (kind, n)| sum.saturating_add(of(kind, *n)))
    };
    if all(&give) < demand.bytes || all(&read) < demand.read {
        return (Vec::new(), true);
    }
    if demand.everything {
        return (vec![choice(have.to_vec())], true);
    }
    let mut there: Vec<usize> = (0..kinds.len()).filter(|&kind| have[kind] > 0).collect();
    // The kind with most parts is not counted through.
    there.sort_by_key(|&kind| (have[kind], kind));
    let Some((&last, others)) = there.split_last() else {
        return (vec![choice(vec![0; kinds.len()])], true);
    };
    let combinations = others.iter().fold(1_u64, |n, &kind| n.saturating_mul(u64::from(have[kind]) + 1));
    if combinations > COMBINATIONS {
        return (with_one(vec![choice(greedy(kinds, have, demand, unit))], &there, choice), false);
    }
    let mut found = Vec::new();
    let mut counts = vec![0_u32; kinds.len()];
    loop {
        let given = others.iter().fold(0_u64, |sum, &kind| sum.saturating_add(give(kind, counts[kind])));
        let spared = others.iter().fold(0_u64, |sum, &kind| sum.saturating_add(read(kind, counts[kind])));
        let left = (demand.bytes.saturating_sub(given), demand.read.saturating_sub(spared));
        if let Some(fewest) = fewest(&kinds[last], left).filter(|fewest| *fewest <= have[last]) {
            let mut with = |n: u32| {
                counts[last] = n;
                found.push(choice(counts.clone()));
                counts[last] = 0;
            };
            with(fewest);
            // Where moving pays, every number more is cheaper and takes more of the host.
            let more = if unit[last] < 0.0 { have[last] } else { fewest };
            (fewest + 1..=more).for_each(&mut with);
        }
        let Some(&next) = others.iter().find(|&&kind| counts[kind] < have[kind]) else { break };
        for &kind in others.iter().take_while(|&&kind| kind != next) {
            counts[kind] = 0;
        }
        counts[next] += 1;
    }
    (with_one(undominated(found), &there, choice), true)
}

/// Where nothing has to go, the choices to let one part go all the same: an engine may charge less as soon as one does.
fn with_one(mut chosen: Vec<Choice>, there: &[usize], choice: impl Fn(Vec<u32>) -> Choice) -> Vec<Choice> {
    let Some(none) = chosen.iter().find(|choice| choice.counts.iter().all(|n| *n == 0)) else {
        return chosen;
    };
    let kinds = none.counts.len();
    let one = |kind: &usize| choice((0..kinds).map(|other| u32::from(other == *kind)).collect());
    let more = undominated(there.iter().map(one).collect());
    chosen.extend(more.into_iter().filter(|one| !chosen.contains(one)).collect::<Vec<_>>());
    chosen
}

/// The fewest parts of a kind that give so many bytes and spare so much reading.
fn fewest(kind: &Kind, (bytes, read): (u64, u64)) -> Option<u32> {
    let of = |need: u64, each: u64| match (need, each) {
        (0, _) => Some(0),
        (_, 0) => None,
        (need, each) => Some(need.div_ceil(each)),
    };
    u32::try_from(of(bytes, kind.here)?.max(of(read, kind.read_here)?)).ok()
}

/// The kinds whose bytes cost least first, as far as they are needed.
fn greedy(kinds: &[Kind], have: &[u32], demand: &Demand, unit: &[f64]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    let per_byte = |kind: usize| unit[kind] / as_f64(kinds[kind].here.max(1));
    order.sort_by(|&a, &b| per_byte(a).total_cmp(&per_byte(b)).then(a.cmp(&b)));
    let mut counts = vec![0_u32; kinds.len()];
    let mut left = (demand.bytes, demand.read);
    for kind in order {
        // A kind of which none spares reading is given whole only where bytes ask for it.
        let wanted = fewest(&kinds[kind], left).or_else(|| fewest(&kinds[kind], (left.0, 0)));
        let n = wanted.unwrap_or(have[kind]).min(have[kind]);
        counts[kind] = n;
        left.0 = left.0.saturating_sub(kinds[kind].here.saturating_mul(u64::from(n)));
        left.1 = left.1.saturating_sub(kinds[kind].read_here.saturating_mul(u64::from(n)));
    }
    counts
}

fn undominated(mut found: Vec<Choice>) -> Vec<Choice> {
    found.sort_by(|a, b| {
        a.there.cmp(&b.there).then(a.cost.total_cmp(&b.cost)).then_with(|| a.counts.cmp(&b.counts))
    });
    let mut kept: Vec<Choice> = Vec::new();
    for choice in found {
        if kept.last().is_none_or(|last| choice.cost < last.cost) {
            kept.push(choice);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Every number of every kind, one after the other.
    fn every(have: &[u32]) -> Vec<Vec<u32>> {
        have.iter().fold(vec![Vec::new()], |all, &most| {
            let longer = all.iter().flat_map(|counts| {
                (0..=most).map(move |n| counts.iter().copied().chain([n]).collect::<Vec<u32>>())
            });
            longer.collect()
        })
    }

    proptest! {
        #[test]
        fn no_combination_is_better_than_all_that_are_chosen(
            drawn in vec((1_u64..9, 0_u64..9, 1_u64..9, 0_u32..4, -4_i8..9), 1..4),
            bytes in 0_u64..40,
            read in 0_u64..20,
        ) {
            let kinds: Vec<Kind> = drawn
                .iter()
                .map(|&(here, read_here, there, ..)| Kind { here, read_here, there, read_there: 0 })
                .collect();
            let have: Vec<u32> = drawn.iter().map(|d| d.3).collect();
            let unit: Vec<f64> = drawn.iter().map(|d| f64::from(d.4)).collect();
            let (chosen, all) = choices(&kinds, &have, &Demand { bytes, read, everything: false }, &unit);
            prop_assert!(all);
            let sum = |counts: &[u32], of: &dyn Fn(&Kind) -> u64| -> u64 {
                counts.iter().zip(&kinds).map(|(n, kind)| u64::from(*n) * of(kind)).sum()
            };
            for counts in every(&have) {
                let enough = sum(&counts, &|k| k.here) >= bytes && sum(&counts, &|k| k.read_here) >= read;
                let there = sum(&counts, &|k| k.there);
                let cost: f64 = counts.iter().zip(&unit).map(|(n, unit)| f64::from(*n) * unit).sum();
                let beaten = chosen.iter().any(|c| c.there <= there && c.cost <= cost + 1e-9);
                prop_assert_eq!(!enough || beaten, true, "{:?} beats {:?}", counts, &chosen);
                if let Some(same) = chosen.iter().find(|c| c.counts == counts) {
                    prop_assert!(enough && same.there == there && (same.cost - cost).abs() < 1e-9);
                }
            }
        }
    }
}
