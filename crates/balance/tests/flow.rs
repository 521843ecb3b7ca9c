//! Flows through a model, against the least cut of all.

mod kit;

use std::num::NonZeroU32;

use kit::instance::ordinary;
use plimsoll_balance::flow::{
    Flow, FlowError, Served, evaluate, evaluate_over_ways, layerwise_bound, of_plan,
};
use plimsoll_balance::{Objective, Pipelines, PlanOptions, plan};
use proptest::collection::vec;
use proptest::prelude::*;

/// What a device serves, in plain numbers: from, to, rate.
type Piece = (u32, u32, u32);

fn served(pieces: &[Piece]) -> Vec<Served> {
    let one = |(number, &(start, end, rate)): (usize, &Piece)| Served {
        device: kit::device_ref(&format!("n{number}"), "d"),
        layers: start..end,
        rate: f64::from(rate),
    };
    pieces.iter().enumerate().map(one).collect()
}

/// The least cut, by trying all of them.
///
/// Every device and every boundary is before or behind the cut. A device before it whose end is behind it is cut at no
/// limit; one that a boundary before it leads to is either before it, or cut off by its own rate.
fn least_cut(layers: u32, pieces: &[Piece], way: &dyn Fn(usize, usize) -> Option<u32>) -> u64 {
    // Vertices: the start (always before), the end (always behind), and two doors of each device.
    let doors = pieces.len() * 2;
    let mut least = u64::MAX;
    'cuts: for cut in 0..1_u32 << doors {
        let before = |door: usize| cut & (1 << door) != 0;
        let mut sum = 0_u64;
        for (at, &(start, end, rate)) in pieces.iter().enumerate() {
            let (inside, outside) = (before(2 * at), before(2 * at + 1));
            if inside && !outside {
                sum += u64::from(rate);
            }
            let empty = start == end;
            if (start == 0 && !empty && !inside) || (end == layers && !empty && outside) {
                continue 'cuts;
            }
            for (other, &(from, to, _)) in pieces.iter().enumerate() {
                if other == at || empty || !(from..to).contains(&end) || !outside || before(2 * other) {
                    continue;
                }
                match way(at, other) {
                    Some(limit) => sum += u64::from(limit),
                    None => continue 'cuts,
                }
            }
        }
        least = least.min(sum);
    }
    least
}

/// Every route is a way through the model, no device and no way carries more than it may, and routes add up.
fn routes_hold(
    layers: u32,
    pieces: &[Piece],
    flow: &Flow,
    way: &dyn Fn(usize, usize) -> Option<u32>,
) -> Result<(), TestCaseError> {
    let mut carried = vec![0.0; pieces.len()];
    let mut passed = std::collections::BTreeMap::new();
    let mut all = 0.0;
    for route in &flow.routes {
        let mut next = 0;
        for (number, range) in &route.steps {
            prop_assert_eq!(range.start, next);
            prop_assert!(pieces[*number].0 <= range.start && range.start < range.end);
            prop_assert_eq!(range.end, pieces[*number].1);
            next = range.end;
            carried[*number] += route.tokens_per_second;
        }
        for pair in route.steps.windows(2) {
            *passed.entry((pair[0].0, pair[1].0)).or_insert(0.0) += route.tokens_per_second;
        }
        prop_assert_eq!(next, layers);
        all += route.tokens_per_second;
    }
    prop_assert_eq!(all, flow.tokens_per_second);
    for (carried, piece) in carried.iter().zip(pieces) {
        prop_assert!(*carried <= f64::from(piece.2));
    }
    for ((from, to), carried) in passed {
        prop_assert!(way(from, to).is_none_or(|limit| carried <= f64::from(limit)));
    }
    Ok(())
}

fn pieces() -> impl Strategy<Value = (u32, Vec<Piece>)> {
    let piece =
        |layers: u32| (0..=layers, 0..=layers, 0_u32..12).prop_map(|(a, b, rate)| (a.min(b), a.max(b), rate));
    (1_u32..6).prop_flat_map(move |layers| (Just(layers), vec(piece(layers), 1..6)))
}

fn whole(n: u64) -> f64 {
    kit::float(n)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_most_tokens_are_the_least_cut((layers, pieces) in pieces()) {
        let served = served(&pieces);
        let flow = evaluate(0..layers, &served).expect("all are rates");
        prop_assert_eq!(flow.tokens_per_second, whole(least_cut(layers, &pieces, &|_, _| None)));
        routes_hold(layers, &pieces, &flow, &|_, _| None)?;
        prop_assert!(flow.tokens_per_second <= layerwise_bound(0..layers, &served));
        let unlimited = evaluate_over_ways(0..layers, &served, |_, _| None).expect("all are rates");
        prop_assert_eq!(unlimited.tokens_per_second, flow.tokens_per_second);
    }

    #[test]
    fn ways_between_devices_limit_the_tokens((layers, pieces) in pieces(), limits in vec(prop::option::of(0_u32..8), 25)) {
        let served = served(&pieces);
        let way = |from: usize, to: usize| limits[from * 5 + to];
        let flow = evaluate_over_ways(0..layers, &served, |from, to| way(from, to).map(f64::from));
        let flow = flow.expect("all are rates");
        prop_assert_eq!(flow.tokens_per_second, whole(least_cut(layers, &pieces, &way)));
        routes_hold(layers, &pieces, &flow, &way)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pipelines_make_what_flows_through_them(instance in ordinary(8, 5)) {
        let mut instance = instance;
        for room in &mut instance.pools {
            *room *= 3;
        }
        let options = |pipelines| PlanOptions {
            objective: Objective::Throughput,
            pipelines,
            ..PlanOptions::default()
        };
        for pipelines in [Pipelines::Auto, Pipelines::Exactly(NonZeroU32::new(2).expect("not zero"))] {
            let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
            let Ok(plan) = plan(&snapshot, &workload, &rules, &options(pipelines)) else { continue };
            let Some(served) = of_plan(&plan) else { continue };
            let model = 0..u32::try_from(instance.layers.len()).expect("few");
            let same = |from: usize, to: usize| {
                let apart = plan.stages[from].pipeline != plan.stages[to].pipeline;
                apart.then_some(0.0)
            };
            let flow = evaluate_over_ways(model.clone(), &served, same).expect("all are rates");
            let tokens = 1.0 / plan.value.value.expect("it is told");
            prop_assert!((flow.tokens_per_second - tokens).abs() <= 1e-12 * tokens, "{flow:?} {plan:#?}");
            let free = evaluate(model, &served).expect("all are rates");
            prop_assert!(free.tokens_per_second >= flow.tokens_per_second);
        }
    }
}

#[test]
fn a_token_may_come_in_in_the_middle_of_a_range() {
    // Four layers: the first device passes 5, the second one takes its tokens in the middle of what it holds.
    let served = served(&[(0, 2, 5), (1, 4, 3), (2, 4, 1)]);
    let flow = evaluate(0..4, &served).expect("all are rates");
    assert_eq!(flow.tokens_per_second, 4.0);
    assert_eq!(flow.routes[0].steps, [(0, 0..2), (1, 2..4)]);
    assert_eq!(flow.routes[0].tokens_per_second, 3.0);
    assert_eq!(flow.routes[1].steps, [(0, 0..2), (2, 2..4)]);
    assert_eq!(layerwise_bound(0..4, &served), 4.0);
}

#[test]
fn rates_of_very_different_size_count_to_the_last_digit() {
    let mut devices = served(&[(0, 1, 0), (0, 1, 0)]);
    devices[0].rate = 1e300;
    devices[1].rate = 1e292;
    assert_eq!(evaluate(0..1, &devices).expect("rates").tokens_per_second, 1e300 + 1e292);
    devices[0].rate = 0.1;
    devices[1].rate = f64::MIN_POSITIVE;
    assert_eq!(evaluate(0..1, &devices).expect("rates").tokens_per_second, 0.1);
    devices[0].rate = f64::MIN_POSITIVE / 4.0;
    devices[1].rate = 0.0;
    assert_eq!(evaluate(0..1, &devices).expect("rates").tokens_per_second, f64::MIN_POSITIVE / 4.0);
}

#[test]
fn what_is_no_rate_and_what_lies_outside_is_refused() {
    for rate in [-1.0, f64::NAN, f64::INFINITY] {
        let mut devices = served(&[(0, 1, 0)]);
        devices[0].rate = rate;
        assert!(matches!(evaluate(0..1, &devices), Err(FlowError::Rate { .. })));
        assert!(matches!(evaluate_over_ways(0..1, &devices, |_, _| None), Err(FlowError::Rate { .. })));
        let two = served(&[(0, 1, 1), (1, 2, 1)]);
        assert!(matches!(evaluate_over_ways(0..2, &two, |_, _| Some(rate)), Err(FlowError::Way { .. })));
    }
    let outside = evaluate(0..1, &served(&[(0, 2, 1)])).expect_err("there is one layer");
    assert_eq!(
        outside.to_string(),
        "n0/d serves the layers from 0 up to 2, and the model's are from 0 up to 1"
    );
    assert_eq!(layerwise_bound(0..2, &served(&[(0, 1, 1)])), 0.0);
    assert_eq!(evaluate(0..0, &[]).expect("nothing to pass").routes, []);
}
