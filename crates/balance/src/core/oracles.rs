//! Planners against plain searches, on small whole numbers with many ties.

use super::chain::Chain;
use super::effort::Effort;
use super::solve::{Goal, Solved, Tries, solve};
use super::subset::{self, Found};
use super::walk::Random;
use super::{Hops, Placement, Problem, Slot, bounds, class, fit, free, leximax, minmax};

const INSTANCES: u64 = 2_000;

fn chance(random: &mut Random, percent: usize) -> bool {
    random.below(100) < percent
}

fn whole(random: &mut Random, below: usize) -> u64 {
    u64::try_from(random.below(below)).unwrap()
}

/// Up to nine items on up to seven slots, with everything that a chain or a slot can have.
fn drawn(seed: u64, most_slots: usize) -> Problem {
    let mut random = Random(seed);
    let items = 1 + random.below(9);
    let slots = 1 + random.below(most_slots);
    let unequal = chance(&mut random, 40);
    let zeros = chance(&mut random, 20);
    let base: Vec<(u64, u64)> = (0..items)
        .map(|_| {
            let size = if zeros { whole(&mut random, 4) } else { 1 + whole(&mut random, 20) };
            (size, if unequal { whole(&mut random, 20) } else { size })
        })
        .collect();
    let may_hold_all = !chance(&mut random, 15);
    let lighter = if chance(&mut random, 20) { whole(&mut random, 3) } else { 0 };
    let classes = if chance(&mut random, 30) { 1 + random.below(3) } else { 1 };
    let chains: Vec<Chain> = (0..classes)
        .map(|_| {
            let more = whole(&mut random, 3);
            // Some item that slots of this class cannot take.
            let barred = if classes > 1 && chance(&mut random, 30) { random.below(items) } else { items };
            let (mut loads, mut costs) = (vec![0], vec![0]);
            for (item, (load, cost)) in base.iter().enumerate() {
                let load = load + more + if item == barred { 10_000 } else { 0 };
                loads.push(loads[item] + load);
                costs.push(costs[item] + if unequal { *cost } else { load });
            }
            let less = lighter.min(loads[items] - loads[items - 1]).min(costs[items] - costs[items - 1]);
            Chain::new(loads, costs, may_hold_all).with_lighter_tail(less, if unequal { 0 } else { less })
        })
        .collect();
    let fixed = if chance(&mut random, 30) { 4 } else { 1 };
    let kinds = if chance(&mut random, 30) { 2 } else { 60 };
    let total = usize::try_from(base.iter().map(|item| item.0).sum::<u64>()).unwrap();
    let largest = 2 * total / slots + 10;
    let slots: Vec<Slot> = (0..slots)
        .map(|_| {
            let mut kind = Random(seed * 100 + whole(&mut random, kinds));
            Slot {
                class: kind.below(classes),
                room: whole(&mut kind, largest),
                fixed: whole(&mut kind, fixed),
                rate: super::as_f64(1 + whole(&mut kind, 5)),
                group: 0,
            }
        })
        .collect();
    let limit = if chance(&mut random, 25) { 1 + random.below(slots.len()) } else { slots.len() };
    Problem { chains: chains.into(), slots, hops: Hops::default(), limit }
}

/// The best of every placement there is: by the number of slots and then by costs, and by costs alone.
#[derive(Default)]
struct Every {
    fewest: Option<(usize, Vec<f64>)>,
    even: Option<Vec<f64>>,
    // Costs decide only here, so that what is worse already is not followed.
    counts: bool,
}

impl Every {
    fn of(problem: &Problem, counts: bool) -> Self {
        let mut every = Self { counts, ..Self::default() };
        every.extend(problem, 0, 0, &mut Vec::new());
        every
    }

    fn extend(&mut self, problem: &Problem, used: u32, start: usize, costs: &mut Vec<f64>) {
        if start == problem.items() {
            let mut sorted = costs.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            if self.even.as_ref().is_none_or(|best| leximax::compare(&sorted, best).is_lt()) {
                self.even = Some(sorted.clone());
            }
            let better = |(count, best): &(usize, Vec<f64>)| {
                sorted.len() < *count || (sorted.len() == *count && leximax::compare(&sorted, best).is_lt())
            };
            if self.fewest.as_ref().is_none_or(better) {
                self.fewest = Some((sorted.len(), sorted));
            }
            return;
        }
        let most = self.fewest.as_ref().filter(|_| self.counts).map_or(problem.limit, |best| best.0);
        if costs.len() >= most.min(problem.limit) {
            return;
        }
        for (index, slot) in problem.slots.iter().enumerate().filter(|(index, _)| used & (1 << index) == 0) {
            for end in start + 1..=problem.items() {
                let cost = problem.cost(slot, start, end);
                let worse = self.even.as_ref().is_some_and(|best| cost > best[0]);
                if !problem.holds(slot, start, end) || (worse && !self.counts) {
                    break;
                }
                costs.push(cost);
                self.extend(problem, used | 1 << index, end, costs);
                costs.pop();
            }
        }
    }
}

/// Every item once, on slots that hold it, no more of them than may be used.
fn check(problem: &Problem, placement: &Placement) {
    let mut next = 0;
    let mut used = Vec::new();
    for (slot, start, end) in placement.stages() {
        assert_eq!(start, next);
        assert!(problem.holds(&problem.slots[slot], start, end));
        assert!(!used.contains(&slot));
        used.push(slot);
        next = end;
    }
    assert_eq!(next, problem.items());
    assert!(used.len() <= problem.limit);
}

fn costs(problem: &Problem, solved: &Solved) -> Option<Vec<f64>> {
    solved.placement.as_ref().map(|placement| {
        check(problem, placement);
        leximax::costs(problem, placement)
    })
}

#[test]
fn the_smallest_largest_cost_and_all_ties_are_those_of_every_order() {
    let mut fitting = 0;
    for seed in 0..INSTANCES {
        let problem = drawn(seed, 7);
        let every = Every::of(&problem, false);
        let solved = solve(&problem, Goal::MinMax, &Tries::Portfolio);
        assert_eq!(costs(&problem, &solved), every.even, "{seed}: {problem:?}");
        let optimum = every.even.as_ref().map_or(f64::INFINITY, |costs| costs[0]);
        assert_eq!(solved.lower, optimum, "{seed}: {problem:?}");
        if every.even.is_some() {
            assert!(bounds::min_max(&problem) <= optimum, "{seed}: {problem:?}");
            fitting += 1;
        }
    }
    assert_eq!(fitting, FITTING);
}

#[test]
fn whether_it_fits_and_on_how_few_is_what_every_order_says() {
    let mut fitting = 0;
    for seed in 0..INSTANCES {
        let problem = drawn(seed, 7);
        let every = Every::of(&problem, true);
        let count = every.fewest.as_ref().map(|best| best.0);
        let solved = solve(&problem, Goal::Fewest, &Tries::Portfolio);
        assert_eq!(costs(&problem, &solved), every.fewest.map(|best| best.1), "{seed}: {problem:?}");
        let lower = count.map_or(f64::INFINITY, super::solve::counted);
        assert_eq!(solved.lower, lower, "{seed}: {problem:?}");
        // Each way of deciding it alone.
        assert!(count.is_none() || !bounds::hopeless(&problem), "{seed}: {problem:?}");
        let sets = class::Sets::new(&problem).expect("few");
        assert_eq!(sets.fewest().map(|order| order.len()), count, "{seed}: {problem:?}");
        match subset::search(&problem, problem.limit, subset::WIDE, &Effort::new(u64::MAX)) {
            Found::Fits(order) => assert_eq!(Some(order.len()), count, "{seed}: {problem:?}"),
            Found::Never => assert_eq!(count, None, "{seed}: {problem:?}"),
            Found::Unknown => panic!("{seed}: {problem:?}"),
        }
        assert!(
            count.is_some() || fit::any(&problem, &Effort::new(u64::MAX)).is_none(),
            "{seed}: {problem:?}"
        );
        // The bytes that are short make it fit, on some slot.
        if let Some(missing) = sets.missing().filter(|_| count.is_none()) {
            let larger = (0..problem.slots.len()).any(|slot| {
                let mut larger = problem.clone();
                larger.slots[slot].room += missing;
                class::Sets::new(&larger).expect("few").any().is_some()
            });
            assert!(larger, "{seed}: {missing} more for {problem:?}");
        }
        fitting += u64::from(count.is_some());
    }
    assert_eq!(fitting, FITTING);
}

/// How many of the instances fit: neither nearly all of them nor nearly none.
const FITTING: u64 = 1_020;

#[test]
fn what_is_found_by_drawing_is_a_placement_within_its_bound() {
    let mut optimal = 0;
    for seed in 0..INSTANCES {
        let problem = drawn(seed, 7);
        if bounds::hopeless(&problem) {
            continue;
        }
        let exact = solve(&problem, Goal::MinMax, &Tries::Portfolio);
        match free::drawn_orders(&problem, None) {
            Some((Some(placement), lower)) => {
                check(&problem, &placement);
                let value = leximax::costs(&problem, &placement)[0];
                assert!(lower <= exact.lower && exact.lower <= value, "{seed}: {problem:?}");
                optimal += u64::from(value <= exact.lower);
            }
            Some((None, _)) => panic!("{seed}: a search over all sets decides: {problem:?}"),
            None => assert_eq!(exact.lower, f64::INFINITY, "{seed}: {problem:?}"),
        }
    }
    assert!(optimal > FITTING * 3 / 4, "{optimal}");
}

/// The smallest largest cost in an order: a programme over slots and items, every run looked at.
fn by_programme(problem: &Problem, order: &[usize]) -> f64 {
    let items = problem.items();
    let mut least = vec![f64::INFINITY; items + 1];
    least[0] = 0.0;
    for &index in order {
        let slot = &problem.slots[index];
        let before = least.clone();
        for (start, before) in before.iter().enumerate() {
            for (end, least) in least.iter_mut().enumerate().skip(start + 1) {
                if problem.holds(slot, start, end) {
                    *least = least.min(before.max(problem.cost(slot, start, end)));
                }
            }
        }
    }
    least[items]
}

#[test]
fn in_an_order_the_smallest_largest_cost_is_that_of_a_programme() {
    for seed in 0..INSTANCES {
        let problem = drawn(seed, 7);
        let mut random = Random(seed);
        let mut order: Vec<usize> = (0..problem.slots.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, random.below(place + 1));
        }
        let found = minmax::in_order(&problem, &order, 0.0);
        let value = found.as_ref().map_or(f64::INFINITY, |found| found.0);
        assert_eq!(value, by_programme(&problem, &order), "{seed}: {order:?} of {problem:?}");
    }
}

/// Items and slots of all sizes, with so many per cent more room than is needed.
fn tight(seed: u64, percent: usize) -> Problem {
    let mut random = Random(seed);
    let items = 24 + random.below(57);
    let mut sums = vec![0];
    for item in 0..items {
        sums.push(sums[item] + 50 + whole(&mut random, 101));
    }
    let shares: Vec<u64> = (0..4 + random.below(9)).map(|_| 8 + whole(&mut random, 73)).collect();
    let room = sums[items] * u64::try_from(100 + percent).unwrap() / 100;
    let all = shares.iter().sum::<u64>();
    let slot = |share: &u64| Slot {
        class: 0,
        room: room * share / all,
        fixed: 0,
        rate: super::as_f64(1 + share % 7),
        group: 0,
    };
    let slots: Vec<Slot> = shares.iter().map(slot).collect();
    let limit = slots.len();
    Problem { chains: [Chain::plain(sums, true)].into(), slots, hops: Hops::default(), limit }
}

#[test]
fn tight_fits_are_all_decided() {
    let (mut largest_first, mut drawn, mut fitting) = (0, 0, 0);
    for seed in 0..400 {
        let problem = tight(seed, 2 + usize::from(seed % 2 == 0));
        let sets = class::Sets::new(&problem).expect("twelve at most");
        let order = sets.any();
        if let Some(order) = &order {
            check(&problem, &super::walk::fill(&problem, order).expect("it fits"));
        }
        // A search of another kind, over sets by size, agrees.
        match subset::search(&problem, problem.limit, subset::WIDE, &Effort::new(u64::MAX)) {
            Found::Fits(other) => assert!(order.is_some() && super::walk::fill(&problem, &other).is_some()),
            Found::Never => assert_eq!(order, None, "{seed}"),
            Found::Unknown => panic!("{seed}"),
        }
        let by_size = super::walk::fill(&problem, &super::orders::largest_first(&problem));
        largest_first += u32::from(by_size.is_some());
        drawn += u32::from(fit::any(&problem, &Effort::new(u64::MAX)).is_some());
        fitting += u32::from(order.is_some());
    }
    assert_eq!((largest_first, fitting), (35, 284));
    assert!((largest_first..fitting).contains(&drawn), "{drawn}");
}

#[test]
fn a_search_of_another_kind_finds_nothing_below_what_is_proven() {
    for seed in 0..24 {
        let problem = tight(seed, 60);
        let solved = solve(&problem, Goal::MinMax, &Tries::Portfolio);
        let value = costs(&problem, &solved).expect("it fits")[0];
        assert_eq!(solved.lower, value);
        let mut below = problem.clone();
        for slot in &mut below.slots {
            slot.room = slot.room.min(minmax::most_within(value.next_down(), slot.rate));
        }
        assert!(
            matches!(subset::search(&below, below.limit, subset::WIDE, &Effort::new(u64::MAX)), Found::Never),
            "{seed}"
        );
    }
}

#[test]
fn slots_of_four_kinds_are_solved_exactly() {
    let mut problem = tight(7, 40);
    let kinds = problem.slots[..4].to_vec();
    problem.slots = (0..24).map(|slot| kinds[slot % 4]).collect();
    problem.limit = 24;
    let room: u64 = problem.slots.iter().map(|slot| slot.room).sum();
    let total = problem.chains[0].load(0, problem.items());
    for slot in &mut problem.slots {
        // Of four kinds still, and a third more than is needed.
        slot.room = slot.room * total * 4 / (room * 3) + 150;
    }
    let solved = solve(&problem, Goal::MinMax, &Tries::Portfolio);
    let value = costs(&problem, &solved).expect("it fits")[0];
    assert_eq!(solved.lower, value);
    // Whichever of equal slots are taken, nothing that is drawn is better.
    let (placement, lower) = free::drawn_orders(&problem, None).expect("it fits");
    let drawn = leximax::costs(&problem, &placement.expect("it fits"))[0];
    assert!(lower <= value && value <= drawn);
}

#[test]
fn sums_near_the_end_of_the_numbers_are_compared_exactly() {
    let half = u64::MAX / 2;
    let sums = vec![0, half, u64::MAX - 5, u64::MAX - 2, u64::MAX];
    let slot = |room, rate| Slot { class: 0, room, fixed: 0, rate, group: 0 };
    let slots = vec![slot(half, 1.0), slot(half - 5, 1.0), slot(u64::MAX, 4.0), slot(7, 1e-3)];
    let problem =
        Problem { chains: [Chain::plain(sums, true)].into(), slots, hops: Hops::default(), limit: 4 };
    for goal in [Goal::MinMax, Goal::Fewest] {
        let every = Every::of(&problem, goal == Goal::Fewest);
        let best = if goal == Goal::MinMax { every.even } else { every.fewest.map(|best| best.1) };
        assert_eq!(costs(&problem, &solve(&problem, goal, &Tries::Portfolio)), best);
    }
}
