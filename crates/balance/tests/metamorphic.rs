//! What must not change a plan's value, and what must not make it worse.

mod kit;

use kit::instance::even::ordinary;
use kit::instance::{Instance, Layer};
use plimsoll_balance::{Objective, Plan, PlanError, PlanOptions, Strategy, plan};
use proptest::prelude::*;

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

/// On so many devices every objective is exact.
const FEW: usize = 4;

fn planned(instance: &Instance, objective: Objective) -> Result<Plan, PlanError> {
    let options = PlanOptions { objective, strategy: Strategy::Portfolio, ..PlanOptions::default() };
    plan(&instance.snapshot(), &instance.workload(), &instance.rules(), &options)
}

/// The value; infinite where nothing fits.
fn value(instance: &Instance, objective: Objective) -> f64 {
    planned(instance, objective).map_or(f64::INFINITY, |plan| plan.value.value.expect("it is told"))
}

/// All objectives that are exact on this many devices.
fn exact(instance: &Instance) -> impl Iterator<Item = Objective> {
    let few = instance.devices.len() <= FEW;
    OBJECTIVES.into_iter().filter(move |&objective| few || objective != Objective::Latency)
}

fn no_worse(before: f64, after: f64) -> bool {
    after <= before * (1.0 + 1e-9)
}

/// Everything in bytes so many times as large, and every device so many times as fast.
fn scaled(instance: &Instance, times: u64) -> Instance {
    let mut scaled = instance.clone();
    for layer in &mut scaled.layers {
        *layer = Layer {
            weights: layer.weights * times,
            kv: layer.kv * times,
            read: layer.read * times,
            ..*layer
        };
    }
    let parts = [
        &mut scaled.padding,
        &mut scaled.input,
        &mut scaled.head,
        &mut scaled.head_beside,
        &mut scaled.each_device,
        &mut scaled.activation,
    ];
    for bytes in parts.into_iter().chain(&mut scaled.charges).chain(&mut scaled.pools) {
        *bytes *= times;
    }
    for device in &mut scaled.devices {
        device.rate *= times;
        device.limit = device.limit.map(|limit| limit * times);
    }
    for link in &mut scaled.links {
        link.2 *= times;
    }
    scaled
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn larger_units_change_nothing(instance in ordinary(12, 8), power in 1_u32..20) {
        let larger = scaled(&instance, 1 << power);
        for objective in OBJECTIVES {
            let (before, after) = (planned(&instance, objective), planned(&larger, objective));
            match (before, after) {
                (Ok(before), Ok(after)) => {
                    // Powers of two change no digit of a value; bounds are added up in steps of other sizes.
                    prop_assert_eq!(before.value.value, after.value.value, "{:?}", objective);
                    let bounds = (before.value.lower_bound, after.value.lower_bound);
                    let near = bounds.0.zip(bounds.1).is_none_or(|(a, b)| (a - b).abs() <= 1e-10 * a.abs());
                    prop_assert!(near, "{objective:?}: {bounds:?}");
                    let ranges = |plan: &Plan| -> Vec<_> {
                        plan.stages.iter().map(|s| (s.device.clone(), s.layers.clone())).collect()
                    };
                    prop_assert_eq!(ranges(&before), ranges(&after), "{:?}", objective);
                }
                (before, after) => prop_assert!(before.is_err() && after.is_err(), "{objective:?}"),
            }
        }
    }

    #[test]
    fn other_names_change_no_value(instance in ordinary(12, 8), turn in 1_usize..8) {
        let mut renamed = instance.clone();
        let turn = turn % renamed.devices.len();
        renamed.devices.rotate_left(turn);
        for objective in exact(&instance) {
            let (before, after) = (value(&instance, objective), value(&renamed, objective));
            prop_assert!(no_worse(before, after) && no_worse(after, before), "{objective:?}: {before} and {after}");
        }
    }

    #[test]
    fn one_more_device_or_byte_is_never_worse(instance in ordinary(12, 8), more in 1_u64..20) {
        let mut roomier = instance.clone();
        for room in &mut roomier.pools {
            *room += more;
        }
        let mut larger = instance.clone();
        let mut added = larger.devices[0];
        added.pool = larger.pools.len();
        added.limit = None;
        larger.devices.push(added);
        larger.pools.push(more * 3);
        for after in [&roomier, &larger] {
            for objective in exact(after) {
                let (before, after) = (value(&instance, objective), value(after, objective));
                prop_assert!(no_worse(before, after), "{objective:?}: {before} became {after}");
            }
        }
    }

    #[test]
    fn a_layer_in_two_parts_is_never_worse(instance in ordinary(12, 6), at in any::<prop::sample::Index>()) {
        let mut instance = instance;
        // Padding is paid by layer: two parts would pay twice.
        instance.padding = 0;
        let mut split = instance.clone();
        let place = at.index(split.layers.len());
        let whole = split.layers[place];
        let half = |n: u64| n / 2;
        split.layers[place] =
            Layer { weights: half(whole.weights), kv: half(whole.kv), read: half(whole.read), cut: true };
        let rest = Layer {
            weights: whole.weights - half(whole.weights),
            kv: whole.kv - half(whole.kv),
            read: whole.read - half(whole.read),
            cut: whole.cut,
        };
        split.layers.insert(place + 1, rest);
        for objective in exact(&instance) {
            let (before, after) = (value(&instance, objective), value(&split, objective));
            prop_assert!(no_worse(before, after), "{objective:?}: {before} became {after}");
        }
    }

    #[test]
    fn listed_in_another_order_the_plan_is_the_same(instance in ordinary(16, 12), turn in 1_usize..12) {
        let (snapshot, workload, rules) = (instance.snapshot(), instance.workload(), instance.rules());
        let mut shuffled = snapshot.clone();
        shuffled.links.reverse();
        for node in &mut shuffled.nodes {
            let count = node.devices.len().max(1);
            node.devices.rotate_left(turn % count);
            node.pools.reverse();
        }
        for objective in OBJECTIVES {
            let options = PlanOptions { objective, ..PlanOptions::default() };
            let plan = |snapshot| plan(snapshot, &workload, &rules, &options);
            prop_assert_eq!(plan(&snapshot), plan(&shuffled), "{:?}", objective);
        }
    }

    #[test]
    fn asked_twice_the_answer_is_the_same_bit_for_bit(instance in ordinary(16, 12)) {
        for objective in OBJECTIVES {
            let (first, second) = (planned(&instance, objective), planned(&instance, objective));
            prop_assert_eq!(format!("{first:?}"), format!("{second:?}"));
        }
    }
}
