//! The search against every subset.

use proptest::prelude::*;

use super::*;

/// Every subset, looked at one by one.
fn oracle(problem: &Problem) -> Option<Vec<usize>> {
    let count = problem.items.len();
    let sets = (0_u32..1 << count).map(|mask| (0..count).filter(|i| mask >> i & 1 == 1).collect());
    let covers = |set: &Vec<usize>| {
        let given = |sizes: &Vec<u64>| set.iter().map(|i| sizes[*i]).sum::<u64>();
        problem.need.iter().zip(&problem.sizes).all(|(need, sizes)| given(sizes) >= *need)
    };
    let key = |set: &Vec<usize>| {
        let sum = |of: fn(&Item) -> u64| set.iter().map(|i| of(&problem.items[*i])).sum::<u64>();
        (sum(|item| item.cost), sum(|item| item.bytes), set.len(), set.clone())
    };
    sets.filter(covers).min_by_key(key)
}

fn problem(resources: std::ops::Range<usize>, items: usize) -> impl Strategy<Value = Problem> {
    // Small numbers make ties, and ties find mistakes.
    let item = (0_u64..6, 0_u64..3);
    (resources, prop::collection::vec(item, 0..items)).prop_flat_map(|(resources, items)| {
        let sizes = prop::collection::vec(prop::collection::vec(0_u64..8, items.len()), resources);
        (Just(items), sizes, prop::collection::vec(0_u64..25, resources)).prop_map(|(items, sizes, need)| {
            let bytes = |place: usize| sizes.iter().map(|sizes| sizes[place]).sum::<u64>();
            let item = |(place, (cost, more))| Item { cost, bytes: bytes(place) + more };
            Problem { items: items.into_iter().enumerate().map(item).collect(), need, sizes }
        })
    })
}

/// The search for one resource, asked as the one for several is.
fn cheapest_of_one(problem: &Problem, limit: u32) -> Option<Choice> {
    let useful: Vec<usize> = (0..problem.items.len()).filter(|place| problem.sizes[0][*place] > 0).collect();
    let offer = |place: &usize| {
        let Item { cost, bytes } = problem.items[*place];
        Offer { cost, bytes, size: problem.sizes[0][*place] }
    };
    let offers: Vec<Offer> = useful.iter().map(offer).collect();
    let Choice { chosen, proven } = super::cheapest_of_one(&offers, problem.need[0], limit)?;
    Some(Choice { chosen: chosen.into_iter().map(|place| useful[place]).collect(), proven })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]
    #[test]
    fn the_set_is_the_best_of_all(problem in problem(1..4, 10)) {
        let found = cheapest(&problem, 2_000_000);
        prop_assert!(found.as_ref().is_none_or(|found| found.proven));
        prop_assert_eq!(found.map(|found| found.chosen), oracle(&problem));
    }

    #[test]
    fn in_a_single_resource_it_is_the_best_of_all_as_well(problem in problem(1..2, 11)) {
        let found = cheapest_of_one(&problem, 2_000_000);
        prop_assert!(found.as_ref().is_none_or(|found| found.proven));
        prop_assert_eq!(found.map(|found| found.chosen), oracle(&problem));
    }

    #[test]
    fn equal_items_do_not_slow_the_search_down(count in 1_usize..64, size in 1_u64..9, percent in 0_u64..=100) {
        let most = u64::try_from(count).unwrap() * size;
        let need = (most * percent / 100).max(1);
        let items = vec![Item { cost: 7, bytes: size }; count];
        let problem = Problem { items, need: vec![need], sizes: vec![vec![size; count]] };
        for found in [cheapest(&problem, 200).unwrap(), cheapest_of_one(&problem, 200).unwrap()] {
            prop_assert!(found.proven);
            prop_assert_eq!(found.chosen, Vec::from_iter(0..usize::try_from(need.div_ceil(size)).unwrap()));
        }
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let items = vec![Item { cost: u64::MAX, bytes: u64::MAX }; 64];
    for need in [vec![u64::MAX], vec![u64::MAX, u64::MAX]] {
        let sizes = vec![vec![u64::MAX - 1; 64]; need.len()];
        let problem = Problem { items: items.clone(), need, sizes };
        let found = cheapest(&problem, 1_000).unwrap();
        assert_eq!(found, Choice { chosen: vec![0, 1], proven: true });
        assert_eq!(cheapest_of_one(&problem, 1_000).unwrap(), found);
    }
}
