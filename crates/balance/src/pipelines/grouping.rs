//! Groups of many devices: dealt out by room, then improved by moves and exchanges.

use super::team::{Line, Score, Team};
use super::{Count, MOST};
use crate::core::as_f64;
use crate::core::walk::Random;

/// Walks over single devices that one search may take in all, roughly.
const STEPS: usize = 20_000_000;

/// Moves for each device in the first round for one number of groups.
const FIRST: usize = 3;

/// Moves for each device in all on the numbers of groups that are left at the end: so many times the devices, at most.
const LAST: usize = 10;
const MOST_LAST: usize = 480;

/// How many numbers of groups are left at the end.
const FINALISTS: usize = 3;

/// The share of two groups' rates that a change may cost at first; none at the end.
const PATIENCE: f64 = 0.005;

/// Drawn sequences of moves from one start, and the first of their numbers.
const SEEDS: u64 = 2;
const LAST_SEED: u64 = 100;

/// Squares of group sizes, in all, up to which groups are solved in any order.
const SOLVED: usize = 24_000;

/// What floating point may take from a sum of two rates.
const ROUNDING: f64 = 1e-12;

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
        if order.len() > team.context.limit {
            // What has pins is in a group.
            order.sort_by_key(|&unit| !team.units[unit].pinned);
        }
        let bench = order.split_off(order.len().min(team.context.limit));
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut rooms = vec![0_u128; count];
        for unit in order {
            let parted = |group: &Vec<usize>| {
                team.units[unit].pinned && !team.go_together(&[group.as_slice(), &[unit]].concat())
            };
            let least = (0..count).min_by_key(|&group| (parted(&groups[group]), rooms[group], group));
            let least = least.unwrap_or(0);
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
    fn try_one(&mut self, team: &Team<'_>, random: &mut Random, patience: f64) -> bool {
        let count = self.groups.len();
        let places = count + usize::from(!self.bench.is_empty());
        let to = random.below(count);
        let from = (to + 1 + random.below(places.max(2) - 1)) % places;
        let giving = if from < count { &self.groups[from] } else { &self.bench };
        if from == to || giving.is_empty() {
            return false;
        }
        let unit = giving[random.below(giving.len())];
        // A place more than there are units: nothing comes back.
        let pick = random.below(self.groups[to].len() + 1);
        let back = self.groups[to].get(pick).copied();
        let full = from == count && self.used() >= team.context.limit;
        if (back.is_none() && full) || back.is_some_and(|back| team.alike(unit, back)) {
            return false;
        }
        if from == count && back.is_some_and(|back| team.units[back].pinned) {
            return false;
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
        let on_bench = from == count;
        let old_score = if on_bench { nothing } else { self.scores[from] };
        let sum = |a: Score, b: Score| (a.short.saturating_add(b.short), a.rate + b.rate);
        let before = sum(old_score, self.scores[to]);
        let least = before.1 * (1.0 - patience);
        let fits = before.0 == 0;
        // Most changes are no good, and that can mostly be seen in one walk over each group.
        let reaches = |group: &[usize], rate: f64| {
            !fits || rate <= 0.0 || team.within(group, 1.0 / (rate * (1.0 - ROUNDING)))
        };
        let rest = if on_bench { 0.0 } else { team.most(&new_from) };
        if !reaches(&new_to, least - rest) {
            return false;
        }
        let score = team.score(&new_to);
        if !on_bench && !reaches(&new_from, least - score.rate) {
            return false;
        }
        let new_score = if on_bench { nothing } else { team.score(&new_from) };
        let after = sum(new_score, score);
        let better = after.0 < before.0 || (after.0 == before.0 && after.1 >= least);
        if better {
            *self.group(from) = new_from;
            if from < count {
                self.scores[from] = new_score;
            }
            self.groups[to] = new_to;
            self.scores[to] = score;
        }
        better
    }

    fn used(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    /// Tries so many moves and exchanges, and ends with the best groups that came up.
    fn improve(&mut self, team: &Team<'_>, tries: usize, seed: u64) {
        if self.groups.len() < 2 && self.bench.is_empty() {
            return;
        }
        let mut random = Random(seed);
        let mut best = self.clone();
        let mut most = self.total();
        for step in 0..tries {
            // Up to a point a little less is taken as well: single moves seldom lead on from groups that are good.
            let patience = PATIENCE * (1.0 - fraction(step, tries));
            if self.try_one(team, &mut random, patience) {
                let total = self.total();
                if total.0 < most.0 || (total.0 == most.0 && total.1 > most.1) {
                    most = total;
                    best.clone_from(self);
                }
            }
        }
        *self = best;
    }

    /// Steps of solving every group in whatever order is best, roughly.
    fn weight(&self) -> usize {
        self.groups.iter().map(|group| group.len().saturating_pow(2)).fold(0, usize::saturating_add)
    }

    /// Whether every unit with pins is in a group that fits.
    fn keeps_pins(&self, team: &Team<'_>) -> bool {
        let groups = self.groups.iter().zip(&self.scores).filter(|(_, score)| score.short > 0);
        groups.flat_map(|(group, _)| group).all(|&unit| !team.units[unit].pinned)
    }

    /// What the devices of each group hold, of those that fit; in whatever order is best where that is not too much.
    /// Nothing where a group does not fit that has pins.
    fn finished(self, team: &Team<'_>) -> Vec<Line> {
        let free = self.weight() <= SOLVED;
        let line = |group: &Vec<usize>| if free { team.line(group) } else { team.line_in_order(group) };
        let pinned = |group: &Vec<usize>| group.iter().any(|&unit| team.units[unit].pinned);
        let lines = self.groups.iter().map(|group| (line(group), pinned(group)));
        let kept: Option<Vec<Option<Line>>> =
            lines.map(|(line, pinned)| if line.is_none() && pinned { None } else { Some(line) }).collect();
        kept.unwrap_or_default().into_iter().flatten().collect()
    }
}

/// Tokens in a second.
fn rate(lines: &[Line]) -> f64 {
    lines.iter().map(|line| 1.0 / line.seconds).sum()
}

/// The best groups found; none where nothing was found that fits, and then how many bytes were short.
pub(super) fn search(team: &Team<'_>, count: Count) -> (Vec<Line>, u64) {
    match count {
        Count::Exactly(count) => exactly(team, count),
        Count::UpTo(most) => (up_to(team, most.min(MOST)), 0),
    }
}

/// `part` of `all`, as a share.
fn fraction(part: usize, all: usize) -> f64 {
    let float = |n: usize| as_f64(u64::try_from(n).unwrap_or(u64::MAX));
    float(part) / float(all.max(1))
}

/// How many bytes are left over in the best attempt at so many groups.
pub(super) fn shortest(team: &Team<'_>, count: usize) -> u64 {
    exactly(team, count).1
}

/// So many moves for each device that `searches` as many stay within the steps of a search.
fn tries(team: &Team<'_>, count: usize, searches: usize, each: usize) -> usize {
    // A move is mostly a walk over one group or two, and sometimes a dozen of them.
    let walk = (team.units.len() / count.max(1)).max(1) * 12;
    let most = STEPS / searches.max(1) / walk;
    team.units.len().saturating_mul(each).min(most).max(16)
}

/// The better one first: what keeps pins, what fits, then what is fast, then fewer groups.
fn rank(team: &Team<'_>, groups: &mut [Groups]) {
    let key = |groups: &Groups| {
        let fits = groups.fitting() >= groups.groups.len().min(2);
        ((!groups.keeps_pins(team), !fits), groups.total().1)
    };
    groups.sort_by(|a, b| {
        let ((a_short, a_rate), (b_short, b_rate)) = (key(a), key(b));
        a_short.cmp(&b_short).then(b_rate.total_cmp(&a_rate)).then(a.groups.len().cmp(&b.groups.len()))
    });
}

fn exactly(team: &Team<'_>, count: usize) -> (Vec<Line>, u64) {
    if count > team.units.len() {
        return (Vec::new(), team.smallest.load(0, team.smallest.items()).max(1));
    }
    let ends = improved(team, &Groups::dealt(team, count), 1);
    let short = ends.iter().map(|groups| groups.total().0).min().unwrap_or(0).max(1);
    // In another order a group may still fit that does not in the one in which groups are tried.
    let lines = ends.into_iter().map(|groups| groups.finished(team)).find(|lines| lines.len() == count);
    (lines.unwrap_or_default(), short)
}

/// The ends of several drawn sequences of moves, the best one first.
fn improved(team: &Team<'_>, start: &Groups, finalists: usize) -> Vec<Groups> {
    let searches = finalists * usize::try_from(SEEDS).unwrap_or(1);
    let each = (team.units.len() * LAST).min(MOST_LAST) / searches;
    let tries = tries(team, start.groups.len(), searches, each);
    let drawn = (0..SEEDS).map(|seed| {
        let mut groups = start.clone();
        groups.improve(team, tries, LAST_SEED + seed);
        groups
    });
    let mut ends: Vec<Groups> = drawn.collect();
    rank(team, &mut ends);
    ends
}

/// For each number of groups a few moves; for the better half of them twice as many, and so on.
fn up_to(team: &Team<'_>, most: usize) -> Vec<Line> {
    let most = most.min(team.units.len());
    let mut all: Vec<Groups> = (2..=most).map(|count| Groups::dealt(team, count)).collect();
    let mut each = FIRST;
    let mut seed = 0;
    while all.len() > FINALISTS {
        let searches = all.len() * 4;
        for groups in &mut all {
            groups.improve(team, tries(team, groups.groups.len(), searches, each), seed);
        }
        rank(team, &mut all);
        all.truncate(all.len().div_ceil(2));
        each *= 2;
        seed += 1;
    }
    let finalists = all.len();
    let mut ends: Vec<Groups> =
        all.iter().filter_map(|start| improved(team, start, finalists).into_iter().next()).collect();
    rank(team, &mut ends);
    if ends.iter().map(Groups::weight).sum::<usize>() > SOLVED {
        ends.truncate(1);
    }
    let mut best: Vec<Line> = Vec::new();
    for lines in ends.into_iter().map(|groups| groups.finished(team)) {
        if lines.len() > 1 && (best.is_empty() || rate(&lines) > rate(&best)) {
            best = lines;
        }
    }
    best
}
