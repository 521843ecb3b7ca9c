//! Groups of many devices: dealt out by room, then improved by moves and exchanges.

use super::team::{Score, Team};
use super::{Count, MOST};
use crate::core::walk::Random;

/// Walks over single devices that one search may take in all, roughly.
const STEPS: usize = 6_000_000;

/// The most moves tried for one number of groups at first, and for each of the best ones again.
const FIRST: usize = 600;
const AGAIN: usize = 6_000;

/// How many numbers of groups are looked at again.
const FINALISTS: usize = 3;

/// Devices in groups.
#[derive(Clone, Debug)]
struct Groups {
    groups: Vec<Vec<usize>>,
    scores: Vec<Score>,
    /// Units in no group: only where fewer devices may be used than there are.
    bench: Vec<usize>,
}

impl Groups {
    /// Units by room, the largest first, each to the group with the least room.
    fn dealt(team: &Team<'_>, count: usize) -> Self {
        let mut order: Vec<usize> = (0..team.units.len()).collect();
        order.sort_by_key(|&unit| (u64::MAX - team.units[unit].room, unit));
        let bench = order.split_off(order.len().min(team.context.limit));
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut rooms = vec![0_u128; count];
        for unit in order {
            let least = (0..count).min_by_key(|&group| (rooms[group], group)).unwrap_or(0);
            rooms[least] += u128::from(team.units[unit].room);
            team.insert(&mut groups[least], unit);
        }
        let scores = groups.iter().map(|group| team.score(group)).collect();
        Self { groups, scores, bench }
    }

    /// Bytes left over, and tokens in a second.
    fn total(&self) -> (u64, f64) {
        let short = self.scores.iter().map(|score| score.short).fold(0_u64, u64::saturating_add);
        (short, self.scores.iter().map(|score| score.rate).sum())
    }

    /// Groups that fit.
    fn fitting(&self) -> usize {
        self.scores.iter().filter(|score| score.short == 0).count()
    }

    fn group(&mut self, at: usize) -> &mut Vec<usize> {
        if at < self.groups.len() { &mut self.groups[at] } else { &mut self.bench }
    }

    /// Tries one move or exchange; keeps it where less is left over, or where no less is made.
    fn try_one(&mut self, team: &Team<'_>, random: &mut Random) {
        let count = self.groups.len();
        let places = count + usize::from(!self.bench.is_empty());
        let to = random.below(count);
        let from = (to + 1 + random.below(places.max(2) - 1)) % places;
        let giving = if from < count { &self.groups[from] } else { &self.bench };
        if from == to || giving.is_empty() {
            return;
        }
        let unit = giving[random.below(giving.len())];
        // A place more than there are units: nothing comes back.
        let pick = random.below(self.groups[to].len() + 1);
        let back = self.groups[to].get(pick).copied();
        let full = from == count && self.used() >= team.context.limit;
        if (back.is_none() && full) || back.is_some_and(|back| team.alike(unit, back)) {
            return;
        }
        let changed = |group: &[usize], out: Option<usize>, coming: Option<usize>| {
            let mut group: Vec<usize> = group.iter().copied().filter(|&u| Some(u) != out).collect();
            if let Some(unit) = coming {
                team.insert(&mut group, unit);
            }
            group
        };
        let new_from = changed(giving, Some(unit), back);
        let new_to = changed(&self.groups[to], back, Some(unit));
        let nothing = Score { short: 0, rate: 0.0 };
        let old_score = if from < count { self.scores[from] } else { nothing };
        let new_score = if from < count { team.score(&new_from) } else { nothing };
        let score = team.score(&new_to);
        let sum = |a: Score, b: Score| (a.short.saturating_add(b.short), a.rate + b.rate);
        let (before, after) = (sum(old_score, self.scores[to]), sum(new_score, score));
        if after.0 < before.0 || (after.0 == before.0 && after.1 >= before.1) {
            *self.group(from) = new_from;
            if from < count {
                self.scores[from] = new_score;
            }
            self.groups[to] = new_to;
            self.scores[to] = score;
        }
    }

    fn used(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    fn improve(&mut self, team: &Team<'_>, tries: usize, seed: u64) {
        let mut random = Random(seed);
        if self.groups.len() > 1 || !self.bench.is_empty() {
            for _ in 0..tries {
                self.try_one(team, &mut random);
            }
        }
    }

    /// Only the groups that fit, solved in whatever order is best; with their tokens in a second.
    fn finished(self, team: &Team<'_>) -> (f64, Vec<Vec<usize>>) {
        let mut rate = 0.0;
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in self.groups {
            if let Some(line) = team.line(&group) {
                rate += 1.0 / line.seconds;
                groups.push(group);
            }
        }
        (rate, groups)
    }
}

/// The best groups found; none where nothing was found that fits, and then how many bytes were short.
pub(super) fn search(team: &Team<'_>, count: Count) -> (Vec<Vec<usize>>, u64) {
    match count {
        Count::Exactly(count) => exactly(team, count),
        Count::UpTo(most) => (up_to(team, most.min(MOST)), 0),
    }
}

/// How many bytes are left over in the best attempt at so many groups.
pub(super) fn shortest(team: &Team<'_>, count: usize) -> u64 {
    if count > team.units.len() {
        return team.smallest.load(0, team.smallest.items()).max(1);
    }
    let mut groups = Groups::dealt(team, count);
    groups.improve(team, tries(team, count, 1, FIRST), 0);
    groups.total().0.max(1)
}

/// So many moves that all of them together stay within the steps of a search.
fn tries(team: &Team<'_>, count: usize, searches: usize, most: usize) -> usize {
    // A move looks at two groups, and a search of one of them takes about a dozen walks.
    let each = (2 * team.units.len() / count.max(1)).max(1) * 12;
    (STEPS / searches.max(1) / each).clamp(32, most)
}

fn exactly(team: &Team<'_>, count: usize) -> (Vec<Vec<usize>>, u64) {
    const SEEDS: u64 = 4;
    let mut short = u64::MAX;
    if count > team.units.len() {
        return (Vec::new(), shortest(team, count));
    }
    let mut best: (f64, Vec<Vec<usize>>) = (0.0, Vec::new());
    let dealt = Groups::dealt(team, count);
    for seed in 0..SEEDS {
        let mut groups = dealt.clone();
        groups.improve(team, tries(team, count, 4, AGAIN), seed);
        short = short.min(groups.total().0);
        let (rate, groups) = groups.finished(team);
        if groups.len() == count && (best.1.is_empty() || rate > best.0) {
            best = (rate, groups);
        }
    }
    (best.1, short.max(1))
}

fn up_to(team: &Team<'_>, most: usize) -> Vec<Vec<usize>> {
    let most = most.min(team.units.len());
    let mut all: Vec<Groups> = Vec::new();
    for count in 2..=most {
        let mut groups = Groups::dealt(team, count);
        groups.improve(team, tries(team, count, most, FIRST), 0);
        all.push(groups);
    }
    all.retain(|groups| groups.fitting() > 1);
    all.sort_by(|a, b| b.total().1.total_cmp(&a.total().1).then(a.groups.len().cmp(&b.groups.len())));
    all.truncate(FINALISTS);
    let mut best: (f64, Vec<Vec<usize>>) = (0.0, Vec::new());
    for mut groups in all {
        let count = groups.groups.len();
        groups.improve(team, tries(team, count, FINALISTS, AGAIN), 1);
        let (rate, groups) = groups.finished(team);
        if groups.len() > 1 && (best.1.is_empty() || rate > best.0) {
            best = (rate, groups);
        }
    }
    best.1
}
