//! Paths and transfers against a search over every placement, on small numbers.

use std::collections::BTreeMap;

use super::chain::Chain;
use super::masks::{self, Tables};
use super::sets::Sets;
use super::solve::Tries;
use super::table::{self, Rule};
use super::transfer::{self, Counted};
use super::walk::Random;
use super::ways::Uneven;
use super::{Hops, Placement, Problem, Slot, as_f64, bounds, latency, sum};

fn number(random: &mut Random, below: usize) -> u64 {
    u64::try_from(random.below(below)).unwrap()
}

fn sums(items: &[u64]) -> Vec<u64> {
    let mut sums = vec![0];
    for item in items {
        sums.push(sums[sums.len() - 1] + item);
    }
    sums
}

/// Small numbers, so that there are ties: a few groups, told and untold ways, one class or two, now and then a main group
/// that everything passes, boundaries that send unequally, a lighter tail, and one slot that may not hold everything.
pub(super) fn drawn(seed: u64, most_items: usize, most_slots: usize) -> Problem {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9));
    let random = &mut random;
    let items = 1 + random.below(most_items);
    let slots = 1 + random.below(most_slots);
    let loads: Vec<u64> = (0..items).map(|_| number(random, 9)).collect();
    let costs: Vec<u64> =
        loads.iter().map(|&load| if load > 0 { number(random, 9).min(load) } else { 0 }).collect();
    let apart = random.below(2) == 0;
    let whole = random.below(4) > 0;
    let lighter = number(random, 3).min(loads[items - 1]);
    let classes = 1 + random.below(2);
    let chain = |class: usize| {
        let more = u64::from(class == 1);
        let loads: Vec<u64> = loads.iter().map(|load| load + more).collect();
        let chain = if apart {
            Chain::new(sums(&loads), sums(&costs), whole)
        } else {
            Chain::plain(sums(&loads), whole)
        };
        chain.with_lighter_tail(lighter, if apart { 0 } else { lighter })
    };
    let chains: Vec<Chain> = (0..classes).map(chain).collect();
    let groups = 1 + random.below(4);
    let tight = 2 + usize::try_from(loads.iter().sum::<u64>()).unwrap() * (1 + random.below(3)) / slots;
    let slots: Vec<Slot> = (0..slots)
        .map(|_| Slot {
            class: random.below(classes),
            room: number(random, tight * 2),
            fixed: number(random, 8) / 7,
            rate: as_f64(1 + number(random, 4)),
            group: random.below(groups),
        })
        .collect();
    let limit = if random.below(3) == 0 { 1 + random.below(slots.len()) } else { slots.len() };
    Problem { chains: chains.into(), hops: drawn_hops(random, groups, items), slots, limit }
}

fn drawn_hops(random: &mut Random, groups: usize, items: usize) -> Hops {
    let mut told = BTreeMap::new();
    let mut per_byte = BTreeMap::new();
    if random.below(3) > 0 {
        for a in 0..groups {
            for b in a + 1..groups {
                if random.below(4) > 0 {
                    told.insert((a, b), as_f64(number(random, 7)));
                    per_byte.insert((a, b), as_f64(number(random, 3)));
                }
            }
        }
    }
    let uneven = (random.below(3) == 0).then(|| Uneven {
        beyond: (0..=items).map(|_| as_f64(number(random, 3))).collect(),
        usual: as_f64(number(random, 2)),
        told: per_byte,
    });
    let through = (random.below(3) == 0).then(|| random.below(groups));
    Hops { usual: as_f64(number(random, 4)), told, through, uneven }
}

/// The least values of all placements: the sum, and the largest stage time with transfers beside and on top.
#[derive(Debug)]
struct Least {
    sum: f64,
    used: usize,
    overlapped: f64,
    added: f64,
}

struct Every<'a> {
    problem: &'a Problem,
    /// Whether slots come only as they are listed.
    listed: bool,
    least: Least,
}

/// What has been placed so far: the sum, the largest stage times, and what the last stage receives and computes.
#[derive(Clone, Copy)]
struct Line {
    start: usize,
    used: u64,
    last: Option<usize>,
    sum: f64,
    overlapped: f64,
    added: f64,
    open: f64,
}

impl Every<'_> {
    fn run(problem: &Problem, lead: f64, listed: bool) -> Least {
        let least = Least { sum: f64::INFINITY, used: 0, overlapped: f64::INFINITY, added: f64::INFINITY };
        let mut every = Every { problem, listed, least };
        let open = if problem.hops.through.is_some() { lead } else { 0.0 };
        every.place(Line { start: 0, used: 0, last: None, sum: 0.0, overlapped: open, added: 0.0, open });
        every.least
    }

    /// Links that a way passes, with their seconds at a boundary.
    fn links(&self, from: usize, to: usize, boundary: usize) -> Vec<f64> {
        let hops = &self.problem.hops;
        let link = |a: usize, b: usize| {
            let pair = (a.min(b), a.max(b));
            let seconds = hops.told.get(&pair).copied().unwrap_or(hops.usual);
            let beyond = hops.uneven.as_ref().map_or(0.0, |uneven| {
                uneven.beyond[boundary] * uneven.told.get(&pair).copied().unwrap_or(uneven.usual)
            });
            if a == b { 0.0 } else { seconds + beyond }
        };
        match hops.through {
            _ if from == to => Vec::new(),
            Some(main) => vec![link(from, main), link(main, to)],
            None => vec![link(from, to)],
        }
    }

    fn place(&mut self, line: Line) {
        let items = self.problem.items();
        if line.start == items {
            let count = usize::try_from(line.used.count_ones()).unwrap();
            // Sums of the same numbers in another order are the same.
            if close(line.sum, self.least.sum) {
                self.least.used = self.least.used.min(count);
                self.least.sum = self.least.sum.min(line.sum);
            } else if line.sum < self.least.sum {
                (self.least.sum, self.least.used) = (line.sum, count);
            }
            self.least.overlapped = self.least.overlapped.min(line.overlapped);
            self.least.added = self.least.added.min(line.added.max(line.open));
            return;
        }
        if usize::try_from(line.used.count_ones()).unwrap() == self.problem.limit {
            return;
        }
        for (index, slot) in self.problem.slots.iter().enumerate() {
            let behind = !self.listed || line.last.is_none_or(|last| last < index);
            if line.used & 1 << index != 0 || !behind {
                continue;
            }
            let from = line.last.map_or(self.problem.hops.through, |l| Some(self.problem.slots[l].group));
            let links = from.map_or(Vec::new(), |from| self.links(from, slot.group, line.start));
            let both: f64 = links.iter().sum();
            let slower = links.into_iter().fold(0.0, f64::max);
            for end in line.start + 1..=items {
                if !self.problem.holds(slot, line.start, end) {
                    continue;
                }
                let own = self.problem.cost(slot, line.start, end);
                self.place(Line {
                    start: end,
                    used: line.used | 1 << index,
                    last: Some(index),
                    sum: line.sum + both + own,
                    overlapped: line.overlapped.max(slower).max(own),
                    added: line.added.max(line.open + both),
                    open: both + own,
                });
            }
        }
    }
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_finite() && b.is_finite() && (a - b).abs() <= 1e-11 * a.abs().max(b.abs()))
}

/// Every item once, in order, on slots that hold them, each once.
fn is_sound(problem: &Problem, placement: &Placement) -> bool {
    let mut next = 0;
    let mut seen = vec![false; problem.slots.len()];
    let sound = placement.stages().all(|(slot, start, end)| {
        let fresh = !std::mem::replace(&mut seen[slot], true);
        let follows = std::mem::replace(&mut next, end) == start;
        fresh && follows && problem.holds(&problem.slots[slot], start, end)
    });
    sound && next == problem.items() && placement.used() <= problem.limit
}

fn counted(counted: Counted, least: &Least) -> f64 {
    if counted == Counted::Added { least.added } else { least.overlapped }
}

fn small(seed: u64) -> Problem {
    if seed.is_multiple_of(4) { drawn(seed, 6, 6) } else { drawn(seed, 10, 4) }
}

#[test]
fn the_smallest_sum_over_every_order_is_the_one_of_a_full_search() {
    let mut fits = 0;
    for seed in 0..2_400 {
        let problem = small(seed);
        let least = Every::run(&problem, 0.0, false);
        let sets = Sets::new(&problem).unwrap();
        let found =
            masks::search(&problem, &sets, Rule::Sum { most: f64::INFINITY }, 0.0, &mut Tables::default());
        match &found {
            Some((value, placement)) => {
                fits += 1;
                assert!(is_sound(&problem, placement), "{seed}: {placement:?} {problem:#?}");
                assert!(close(*value, least.sum), "{seed}: {value} {least:?} {placement:?} {problem:#?}");
                assert!(close(sum::sum(&problem, placement), least.sum), "{seed}: {placement:?}");
                assert_eq!(placement.used(), least.used, "{seed}: {placement:?} {problem:#?}");
                let bound = bounds::latency(&problem);
                assert!(bound <= least.sum, "{seed}: {bound} {least:?} {problem:#?}");
            }
            None => assert_eq!(least.sum, f64::INFINITY, "{seed}: {problem:#?}"),
        }
        // With the search around it, which stops looking at what is no better than a first plan.
        let solved = super::solve::solve(&problem, super::solve::Goal::Sum, &Tries::Portfolio);
        assert!(close(solved.lower, least.sum), "{seed}: {} {least:?} {problem:#?}", solved.lower);
        let value = solved.placement.as_ref().map_or(f64::INFINITY, |p| sum::sum(&problem, p));
        assert!(close(value, least.sum), "{seed}: {solved:?} {least:?}");
        assert_eq!(solved.placement.map_or(0, |p| p.used()), least.used, "{seed}: {problem:#?}");
    }
    assert!(fits > 800, "{fits}");
}

#[test]
fn the_smallest_sum_in_one_order_is_the_one_of_a_full_search() {
    for seed in 0..2_400 {
        let mut problem = drawn(seed, 10, 6);
        problem.limit = problem.slots.len();
        let order: Vec<usize> = (0..problem.slots.len()).collect();
        let least = Every::run(&problem, 0.0, true);
        let both = [
            latency::in_order(&problem, &order),
            table::in_order(&problem, &order, Rule::Sum { most: f64::INFINITY }, 0.0),
        ];
        for found in both {
            match found {
                Some((value, placement)) => {
                    assert!(is_sound(&problem, &placement), "{seed}: {placement:?}");
                    assert!(close(value, least.sum), "{seed}: {value} {least:?} {problem:#?}");
                    assert!(close(sum::sum(&problem, &placement), value), "{seed}: {placement:?}");
                }
                None => assert_eq!(least.sum, f64::INFINITY, "{seed}: {problem:#?}"),
            }
        }
    }
}

const BOTH: [Counted; 2] = [Counted::Overlapped, Counted::Added];

fn lead(problem: &Problem, seed: u64) -> f64 {
    if problem.hops.through.is_some() { as_f64(seed % 5) } else { 0.0 }
}

#[test]
fn the_smallest_largest_stage_with_transfers_is_the_one_of_a_full_search() {
    for seed in 0..2_000_u64 {
        let problem = if seed.is_multiple_of(8) { drawn(seed, 6, 6) } else { drawn(seed, 8, 4) };
        let lead = lead(&problem, seed);
        let every = Every::run(&problem, lead, false);
        for how in BOTH {
            let least = counted(how, &every);
            let solved = transfer::solve(&problem, how, lead, &Tries::Portfolio);
            match &solved.placement {
                Some(placement) => {
                    assert!(is_sound(&problem, placement), "{how:?} {seed}: {placement:?} {problem:#?}");
                    let value = transfer::largest(&problem, how, lead, placement);
                    assert!(close(value, least), "{how:?} {seed}: {value} {least} {problem:#?}");
                    assert!(close(solved.lower, least), "{how:?} {seed}: {} {least}", solved.lower);
                }
                None => {
                    assert_eq!((least, solved.lower), (f64::INFINITY, f64::INFINITY), "{how:?} {seed}");
                }
            }
        }
    }
}

#[test]
fn the_smallest_largest_stage_with_transfers_in_one_order_is_the_one_of_a_full_search() {
    for seed in 0..2_400 {
        let problem = drawn(seed, 10, 5);
        let lead = lead(&problem, seed);
        let every = Every::run(&problem, lead, true);
        for how in BOTH {
            let least = counted(how, &every);
            let order: Vec<usize> = (0..problem.slots.len()).collect();
            let solved = transfer::solve(&problem, how, lead, &Tries::Given(order));
            let value = solved
                .placement
                .as_ref()
                .map_or(f64::INFINITY, |p| transfer::largest(&problem, how, lead, p));
            assert!(close(value, least), "{how:?} {seed}: {value} {least} {problem:#?}");
        }
    }
}

#[test]
fn bounds_hold_whatever_the_order() {
    for seed in 0..600 {
        let problem = drawn(seed, 6, 4);
        let lead = lead(&problem, seed);
        let every = Every::run(&problem, lead, false);
        let order: Vec<usize> = (0..problem.slots.len()).collect();
        for how in BOTH {
            let solved = transfer::solve(&problem, how, lead, &Tries::Given(order.clone()));
            assert!(solved.lower <= counted(how, &every) * (1.0 + 1e-11), "{how:?} {seed}: {solved:?}");
        }
        let solved = super::solve::solve(&problem, super::solve::Goal::Sum, &Tries::Given(order));
        assert!(solved.lower <= every.sum * (1.0 + 1e-11), "{seed}: {solved:?} {every:?}");
    }
}

/// Many unlike slots, each in a group of its own or two to a group.
fn fleet(seed: u64, items: usize, slots: usize, slack: usize) -> Problem {
    let random = &mut Random(seed);
    let kinds: [(u64, f64); 6] =
        [(8, 272.0), (12, 360.0), (16, 448.0), (24, 936.0), (32, 1_792.0), (48, 960.0)];
    let slot = |index: usize| {
        let (room, rate) = kinds[random.below(6)];
        let room = room * 1_000 - number(random, 500);
        Slot { class: 0, room, fixed: 0, rate: rate + as_f64(number(random, 100)), group: index / 2 }
    };
    let slots: Vec<Slot> = (0..slots).map(slot).collect();
    let room: u64 = slots.iter().map(|slot| slot.room).sum();
    let mean = usize::try_from(room).unwrap() / slack / items;
    let sizes: Vec<u64> = (0..items).map(|_| u64::try_from(mean / 2 + random.below(mean)).unwrap()).collect();
    let hops = Hops { usual: as_f64(1 + seed % 40) / 20.0, ..Hops::default() };
    let limit = slots.len();
    Problem { chains: [Chain::plain(sums(&sizes), true)].into(), slots, hops, limit }
}

#[test]
fn with_the_first_slots_of_the_linear_programme_sums_are_hardly_larger_than_with_all() {
    let settings = [(40, 40, 3), (50, 40, 3), (40, 60, 5), (60, 50, 4), (30, 70, 6), (80, 40, 2)];
    let mut larger = 0;
    for seed in 0..18 {
        let (items, slots, slack) = settings[usize::try_from(seed % 6).unwrap()];
        let problem = fleet(seed, items, slots, slack);
        let full = sum::of_all_slots(&problem);
        let first = sum::of_the_first_slots(&problem);
        assert!(first <= full * 1.01, "{seed}: {first} {full} {}", first / full);
        larger += usize::from(first > full * (1.0 + 1e-9));
        // So few slots and items that all of them are looked at.
        let solved = super::solve::solve(&problem, super::solve::Goal::Sum, &Tries::Portfolio);
        let value = sum::sum(&problem, &solved.placement.unwrap());
        assert!(value <= full * (1.0 + 1e-9), "{seed}: {value} {full} {}", value / full);
        assert!(solved.lower <= value, "{seed}");
    }
    assert!(larger <= 3, "{larger} of 18 are larger");
}
