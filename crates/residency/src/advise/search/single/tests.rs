//! The search of one resource against that of several.

use proptest::prelude::*;

use super::super::{Item, Problem, general};
use super::*;

fn problem(offers: &[Offer], need: u64) -> Problem {
    Problem {
        items: offers.iter().map(|offer| Item { cost: offer.cost, bytes: offer.bytes }).collect(),
        need: vec![need],
        sizes: vec![offers.iter().map(|offer| offer.size).collect()],
    }
}

/// Up to so many items with steps between sizes, so that both sets and items are often alike.
fn offers(count: usize) -> impl Strategy<Value = Vec<Offer>> {
    let step = prop_oneof![Just(1_u64), Just(1_000), Just(20_000)];
    (step, prop::collection::vec((1_u64..100_000, 0_u64..4, 0_u64..10), 0..count)).prop_map(
        |(step, items)| {
            let offer = |(size, priority, share): (u64, u64, u64)| {
                let size = size.next_multiple_of(step);
                Offer { cost: size / 10 * share * (priority + 1), bytes: size, size }
            };
            items.into_iter().map(offer).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn one_resource_is_searched_as_several_are(offers in offers(16), percent in 1_u64..=101) {
        let all: u64 = offers.iter().map(|offer| offer.size).sum();
        let need = (all * percent / 100).max(1);
        prop_assert!(is_small(&offers));
        prop_assert_eq!(cheapest(&offers, need, 2_000_000), general(&problem(&offers, need), 2_000_000));
    }

    #[test]
    fn many_items_are_searched_as_few_are(offers in offers(20), more in FEW..3 * FEW, percent in 1_u64..=100) {
        // Items that are too dear to be taken change nothing, but need room.
        let all: u64 = offers.iter().map(|offer| offer.size).sum();
        prop_assume!(all > 0);
        let need = (all * percent / 100).max(1);
        let dear = Offer { cost: 1_000_000_000, bytes: 1, size: 1 };
        let with_more: Vec<Offer> = offers.iter().copied().chain(std::iter::repeat_n(dear, more)).collect();
        prop_assert_eq!(cheapest(&with_more, need, 2_000_000), cheapest(&offers, need, 2_000_000));
    }
}

#[test]
fn sums_that_do_not_fit_are_told() {
    let offer = Offer { cost: 1, bytes: 1, size: 1 };
    let most = u64::MAX;
    assert!(is_small(&[offer; 3]));
    assert!(is_small(&[Offer { cost: most - 1, bytes: most - 1, size: most - 1 }, offer]));
    for large in
        [Offer { cost: most, ..offer }, Offer { bytes: most, ..offer }, Offer { size: most, ..offer }]
    {
        assert!(is_small(&[large]));
        assert!(!is_small(&[large, offer]), "{large:?}");
    }
}
