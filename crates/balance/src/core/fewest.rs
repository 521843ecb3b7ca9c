//! The fewest slots that hold everything, and the evenest use of so many.

use super::class::Sets;
use super::effort::Effort;
use super::solve::{Solved, Tries, counted, in_orders, missing, orders_of};
use super::subset::{self, Found};
use super::{Problem, bounds, fit, free, orders, walk};

/// The most looks at a slot for all counts together, where sets of slots are searched.
const LOOKS: u64 = 64_000_000;

/// Slots whose count is known to be needed at least, and an order of few ones that fits.
struct Few {
    least: usize,
    order: Option<Vec<usize>>,
}

/// Solves a problem that is not hopeless.
pub(crate) fn fewest(problem: &Problem, tries: &Tries) -> Solved {
    let most = problem.limit.min(problem.slots.len());
    let effort = Effort::new(if problem.slots.len() > subset::SLOTS { fit::STEPS } else { LOOKS });
    let few = match tries {
        Tries::Portfolio => any_order(problem, most, &effort),
        Tries::LargestFirst | Tries::Given(_) => these_orders(problem, tries, most, &effort),
    };
    let Some(order) = few.order else {
        let lower = if few.least > most { f64::INFINITY } else { counted(few.least) };
        return Solved { placement: None, lower, missing: missing(problem, tries) };
    };
    let mut small = problem.clone();
    small.limit = order.len();
    let solved = match tries {
        Tries::Portfolio => free::min_max(&small, Some(&order)),
        Tries::LargestFirst | Tries::Given(_) => in_orders(&small, tries, Some(&order)),
    };
    Solved { lower: counted(few.least), ..solved }
}

/// Of every order.
fn any_order(problem: &Problem, most: usize, effort: &Effort) -> Few {
    let least = bounds::fewest(problem).unwrap_or(usize::MAX);
    let known = filled(problem, &[orders::largest_first(problem)]);
    if let Some(order) = known.as_ref().filter(|order| order.len() <= least) {
        return Few { least, order: Some(order.clone()) };
    }
    if let Some(sets) = Sets::new(problem) {
        let order = sets.fewest();
        return Few { least: order.as_ref().map_or(usize::MAX, Vec::len), order };
    }
    let mut small = problem.clone();
    if problem.slots.len() > subset::SLOTS {
        let known = known.or_else(|| {
            small.limit = most;
            effort.part(2, |effort| fit::any(&small, effort))
        });
        let order = halved(least, known, |count| {
            small.limit = count;
            effort.part(8, |effort| fit::any(&small, effort))
        });
        return Few { least, order };
    }
    let mut few = Few { least, order: known };
    let mut count = least;
    while count < few.order.as_ref().map_or(most + 1, Vec::len) && !effort.is_over() {
        small.limit = count;
        let beam = if few.order.is_some() { subset::NARROW } else { subset::WIDE };
        let found = fit::any(&small, effort);
        match found.map_or_else(|| subset::search(problem, count, beam, effort), Found::Fits) {
            Found::Fits(order) => few.order = Some(order),
            Found::Never if few.least == count => few.least = count + 1,
            Found::Never | Found::Unknown => {}
        }
        count += 1;
    }
    few
}

/// Of the orders that were asked for; that fewer do not suffice is proven of every order.
fn these_orders(problem: &Problem, tries: &Tries, most: usize, effort: &Effort) -> Few {
    let mut least = bounds::fewest(problem).unwrap_or(usize::MAX);
    let orders = orders_of(problem, tries);
    let mut order = filled(problem, &orders);
    let sets = Sets::new(problem);
    if let Some(sets) = sets.as_ref().filter(|_| order.as_ref().is_none_or(|order| order.len() > least)) {
        least = sets.fewest().map_or(usize::MAX, |order| order.len());
    }
    let mut small = problem.clone();
    // A walk uses the slots as they come: which ones to leave out, a search has to choose.
    let mut shorter = |count: usize| {
        small.limit = count;
        let choices: Vec<Vec<usize>> =
            orders.iter().flat_map(|order| orders::shortened(&small, order).0).collect();
        effort.take(choices.iter().map(Vec::len).sum());
        filled(&small, &choices)
    };
    if problem.slots.len() > subset::SLOTS {
        // What does not fit on all of them does not on some.
        let order = order.and_then(|order| halved(least, Some(order), shorter));
        return Few { least, order };
    }
    let mut count = least;
    while count < order.as_ref().map_or(most.saturating_add(1), Vec::len) {
        if sets.is_none()
            && least == count
            && matches!(subset::search(problem, count, subset::WIDE, effort), Found::Never)
        {
            least = count + 1;
        }
        if let Some(found) = shorter(count) {
            order = Some(found);
        }
        count += 1;
    }
    Few { least, order }
}

/// The fewest slots on which an order is found, at least so many, from one that is known.
///
/// For searches that find an order on more slots where they find one on fewer, as they mostly do: the steps from below
/// double, and what lies between is halved.
fn halved(
    least: usize,
    known: Option<Vec<usize>>,
    mut found_on: impl FnMut(usize) -> Option<Vec<usize>>,
) -> Option<Vec<usize>> {
    let mut best = known?;
    let (mut low, mut step) = (least, 1);
    // Fewer than `low` are not enough.
    while low < best.len() {
        let count = if step > 0 { low + step - 1 } else { low + (best.len() - low) / 2 };
        let doubled = step * 2;
        match found_on(count.min(best.len() - 1)) {
            Some(order) => (best, step) = (order, 0),
            None => (low, step) = (count.min(best.len() - 1) + 1, doubled),
        }
    }
    Some(best)
}

/// The slots of the first of these orders that fits on the fewest slots.
fn filled(problem: &Problem, orders: &[Vec<usize>]) -> Option<Vec<usize>> {
    let placements = orders.iter().filter_map(|order| {
        let first: Vec<usize> = order.iter().copied().take(problem.limit).collect();
        walk::fill(problem, &first)
    });
    let fewest = placements.min_by_key(super::Placement::used)?;
    Some(fewest.stages().map(|stage| stage.0).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::core::chain::Chain;
    use crate::core::walk::Random;
    use crate::core::{Hops, Slot};

    /// Items on slots that hold `percent` of them together, of so many kinds.
    fn drawn(items: usize, slots: usize, kinds: usize, percent: u64) -> Problem {
        let mut random = Random(7);
        let rooms: Vec<u64> =
            (0..kinds).map(|_| 8_000 + u64::try_from(random.below(72_000)).unwrap()).collect();
        let room = |random: &mut Random| rooms[random.below(kinds)];
        let slots: Vec<Slot> = (0..slots)
            .map(|_| Slot { class: 0, room: room(&mut random), fixed: 0, rate: 1.0, group: 0 })
            .collect();
        let all: u64 = slots.iter().map(|slot| slot.room).sum();
        let mean = usize::try_from(all * 100 / percent).unwrap() / items;
        let mut sums = vec![0];
        for item in 0..items {
            sums.push(sums[item] + u64::try_from(mean / 2 + random.below(mean)).unwrap());
        }
        let limit = slots.len();
        Problem { chains: [Chain::plain(sums, true)].into(), slots, hops: Hops::default(), limit }
    }

    #[test]
    fn many_slots_take_no_more_looks_than_there_are() {
        const STEPS: u64 = 400_000;
        for (kinds, percent) in [(8, 160), (5_000, 110)] {
            let problem = drawn(10_000, 10_000, kinds, percent);
            for tries in [Tries::Portfolio, Tries::LargestFirst] {
                let effort = Effort::new(STEPS);
                let few = match tries {
                    Tries::Portfolio => any_order(&problem, problem.limit, &effort),
                    _ => these_orders(&problem, &tries, problem.limit, &effort),
                };
                let last = u64::try_from(problem.slots.len()).unwrap();
                assert!(effort.taken() <= STEPS + last, "{}", effort.taken());
                if let Some(order) = few.order {
                    assert!(few.least <= order.len() && walk::fill(&problem, &order).is_some());
                }
            }
        }
    }

    #[test]
    fn halving_finds_the_fewest_in_few_tries() {
        for least in [1, 40, 900] {
            for fewest in [least, least + 1, least + 37, 1_000] {
                let tries = Cell::new(0);
                let found = halved(least, Some(vec![0; 1_000]), |count| {
                    tries.set(tries.get() + 1);
                    (count >= fewest).then(|| vec![0; count])
                });
                assert_eq!(found.map(|order| order.len()), Some(fewest), "from {least}");
                assert!(tries.get() <= 21, "{} tries", tries.get());
            }
        }
    }
}
