//! The handle for many questions agrees with slower ways to answer them.

mod kit;

use plimsoll_balance::{ClusterIndex, EngineRules, LayerSpec, ModelIndex, PlanError, PlanOptions};
use plimsoll_cluster::GpuBackend;
use plimsoll_units::{Bytes, BytesPerSec};
use proptest::collection::vec;
use proptest::prelude::*;

fn specs(layers: &[(u64, u64, bool)]) -> Vec<LayerSpec> {
    let spec = |(&(weights, read, cut_after), index): (&(u64, u64, bool), u32)| LayerSpec {
        read_bytes: Bytes::new(read),
        cut_after,
        ..LayerSpec::of_weights(index, Bytes::new(weights))
    };
    layers.iter().zip(0..).map(spec).collect()
}

/// Fills device after device, one glued piece at a time.
fn filled(layers: &[LayerSpec], budgets: &[u64]) -> (Vec<u32>, bool) {
    let mut next = 0;
    let mut ends = Vec::new();
    for &budget in budgets {
        let mut room = budget;
        while next < layers.len() {
            let last = (next..layers.len()).find(|&i| layers[i].cut_after).unwrap_or(layers.len() - 1);
            let piece: u64 = layers[next..=last].iter().map(|l| l.weights_bytes.get()).sum();
            if piece > room {
                break;
            }
            room -= piece;
            next = last + 1;
        }
        ends.push(u32::try_from(next).expect("few"));
    }
    (ends, next == layers.len())
}

/// The smallest largest time by a programme over (device, layers placed).
fn programme(layers: &[LayerSpec], devices: &[(u64, u64)]) -> f64 {
    let count = layers.len();
    let mut least = vec![f64::INFINITY; count + 1];
    least[0] = 0.0;
    for &(room, rate) in devices {
        let before = least.clone();
        for start in 0..count {
            for end in start + 1..=count {
                let legal = end == count || layers[end - 1].cut_after;
                let held: u64 = layers[start..end].iter().map(|l| l.weights_bytes.get()).sum();
                let read: u64 = layers[start..end].iter().map(|l| l.read_bytes.get()).sum();
                if legal && held <= room && rate > 0 {
                    least[end] = least[end].min(before[start].max(kit::float(read) / kit::float(rate)));
                }
            }
        }
    }
    least[count]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn filling_in_order_is_what_one_layer_after_the_other_gives(
        layers in vec((0_u64..20, 0_u64..20, prop::bool::weighted(0.8)), 0..120),
        plain in any::<bool>(),
        budgets in vec(0_u64..900, 0..8),
    ) {
        let mut layers = specs(&layers);
        for layer in layers.iter_mut().filter(|_| plain) {
            layer.cut_after = true;
            layer.read_bytes = layer.weights_bytes;
        }
        let index = ModelIndex::new(&layers).expect("layers in a row");
        let mut ends = vec![7];
        let fits = index.fit_in_order(&budgets.iter().map(|&b| Bytes::new(b)).collect::<Vec<_>>(), &mut ends);
        prop_assert_eq!((ends, fits), filled(&layers, &budgets));
    }

    #[test]
    fn the_smallest_largest_time_is_the_one_of_a_full_programme(
        layers in vec((0_u64..20, 0_u64..40, prop::bool::weighted(0.8)), 1..40),
        devices in vec((0_u64..250, 0_u64..6), 1..6),
    ) {
        let layers = specs(&layers);
        let index = ModelIndex::new(&layers).expect("layers in a row");
        let budgets: Vec<Bytes> = devices.iter().map(|d| Bytes::new(d.0)).collect();
        let rates: Vec<BytesPerSec> = devices.iter().map(|d| BytesPerSec::new(d.1)).collect();
        let mut ends = Vec::new();
        let found = index.min_max_in_order(&budgets, &rates, &mut ends);
        let least = programme(&layers, &devices);
        // A device without a rate can still hold layers that take nothing: the programme leaves these out.
        let weightless = layers.iter().any(|l| l.weights_bytes.is_zero()) && rates.iter().any(|r| r.is_zero());
        match found {
            Some(value) if weightless => prop_assert!(value.is_finite()),
            Some(value) => prop_assert!((value - least).abs() <= 1e-12 * least.max(1.0), "{value} {least}"),
            None => prop_assert_eq!(least, f64::INFINITY),
        }
    }
}

#[test]
fn layers_may_come_in_any_order_and_must_be_a_row() {
    let mut layers = specs(&[(1, 1, true), (2, 2, true), (3, 3, true)]);
    layers.reverse();
    let index = ModelIndex::new(&layers).expect("layers in a row");
    let mut ends = Vec::new();
    assert!(index.fit_in_order(&[Bytes::new(3), Bytes::new(3)], &mut ends));
    assert_eq!((ends, index.layers()), (vec![2, 3], 3));
    layers[1].index = 9;
    assert!(matches!(ModelIndex::new(&layers), Err(PlanError::MissingLayer { missing: 1, .. })));
    layers[1].index = 0;
    assert!(matches!(ModelIndex::new(&layers), Err(PlanError::DuplicateLayer { index: 0 })));
    for read in [0, 1] {
        let huge = specs(&[(u64::MAX, u64::MAX * read, true), (1, read, true)]);
        assert!(matches!(ModelIndex::new(&huge), Err(PlanError::Overflow { .. })));
    }
}

proptest! {
    #[test]
    fn devices_stay_in_order_through_any_changes(
        changes in vec((0_u32..12, prop::option::weighted(0.8, (0_u64..6, 0_u64..4))), 0..60),
    ) {
        let name = |n: u32| kit::device_ref(&format!("n{}", n / 3), &format!("d{}", n % 3));
        let mut index = ClusterIndex::new();
        let mut plain = std::collections::BTreeMap::new();
        for (device, change) in changes {
            match change {
                Some((room, rate)) => {
                    index.set(name(device), Bytes::new(room), BytesPerSec::new(rate));
                    plain.insert(name(device), (Bytes::new(room), BytesPerSec::new(rate)));
                }
                None => prop_assert_eq!(index.remove(&name(device)), plain.remove(&name(device)).is_some()),
            }
        }
        // The same as built from nothing, and as sorted by hand.
        let built = ClusterIndex::from_devices(plain.iter().map(|(n, &(room, rate))| (n.clone(), room, rate)));
        prop_assert_eq!(index.largest_first(), built.largest_first());
        prop_assert_eq!(index.fastest_first(), built.fastest_first());
        prop_assert!(index.kinds().eq(built.kinds()));
        prop_assert_eq!(index.kinds().map(|kind| kind.2).sum::<usize>(), index.len());
        let mut sorted: Vec<_> = plain.iter().collect();
        sorted.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        prop_assert!(index.largest_first().iter().eq(sorted.iter().map(|(name, _)| *name)));
        sorted.sort_by(|(a, (r, s)), (b, (q, t))| t.cmp(s).then(q.cmp(r)).then(a.cmp(b)));
        prop_assert!(index.fastest_first().iter().eq(sorted.iter().map(|(name, _)| *name)));
        for (name, held) in &plain {
            prop_assert_eq!(index.get(name), Some(*held));
        }
    }
}

#[test]
fn an_index_of_a_snapshot_holds_what_a_plan_may_use() {
    let card = |id: &str, bandwidth| kit::device(id, &format!("p{id}"), GpuBackend::Cuda, bandwidth);
    let (a, b) = (card("d0", Some(10)), card("d1", Some(20)));
    let mut snapshot = kit::snapshot(vec![
        kit::node("a", vec![kit::pool("pd0", 6)], vec![a.clone()]),
        kit::node("b", vec![kit::pool("pd0", 9), kit::pool("pd1", 4)], vec![a.clone(), b]),
        kit::node("c", vec![kit::pool("pd0", 50)], vec![a]),
    ]);
    snapshot.nodes[2].drained = true;
    let index =
        ClusterIndex::from_snapshot(&snapshot, &EngineRules::none(), &PlanOptions::default()).expect("sound");
    let names: Vec<String> = index.largest_first().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["b/d0", "a/d0", "b/d1"]);
    assert_eq!(index.kinds().len(), 3);
}
