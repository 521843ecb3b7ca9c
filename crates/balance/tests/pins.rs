//! Pins, cuts, caps, drained nodes and nodes that were not asked: every planner against a search over every plan.

mod kit;

use std::collections::BTreeMap;

use kit::instance::{Instance, around_a_host, ordinary};
use kit::oracle::{Best, Run, every_plan_where};
use kit::{device, device_ref, float, node, node_id, pool, snapshot};
use plimsoll_balance::{
    Certificate, EngineRules, Finding, HostUse, Objective, Optimality, Pin, PinProblem, Plan, PlanError,
    PlanOptions, StoppedBy, Verdict, audit, plan,
};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, NodeStatus, Pool};
use plimsoll_units::{Bytes, DeviceRef};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, TestCaseError, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use proptest::strategy::Strategy as Draw;

const OBJECTIVES: [Objective; 4] =
    [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced];

/// What is asked beside the objective.
#[derive(Clone, Debug)]
struct Asked {
    /// Which place (devices by their numbers, the host last) holds which layers.
    pins: Vec<(usize, usize, usize)>,
    /// The most of single places.
    caps: BTreeMap<usize, u64>,
    drained: Option<usize>,
    only: Option<Vec<usize>>,
}

/// What is asked, before it is known how many devices and layers there are.
#[derive(Clone, Debug)]
struct Drawn {
    pins: Vec<(Index, Index, Index)>,
    caps: Vec<(Index, u64)>,
    drained: Option<usize>,
    only: Option<Vec<usize>>,
}

fn drawn() -> impl Draw<Value = Drawn> {
    let parts = (
        vec((any::<Index>(), any::<Index>(), any::<Index>()), 0..=3),
        vec((any::<Index>(), 0_u64..40), 0..=1),
        prop::option::weighted(0.15, 0_usize..4),
        prop::option::weighted(0.15, vec(0_usize..4, 1..=3)),
    );
    parts.prop_map(|(pins, caps, drained, only)| Drawn { pins, caps, drained, only })
}

impl Asked {
    fn new(instance: &Instance, drawn: Drawn) -> Self {
        let places = instance.devices.len() + usize::from(instance.host.is_some());
        let layers = instance.layers.len();
        let pin = |(place, start, length): (Index, Index, Index)| {
            let start = start.index(layers);
            (place.index(places), start, start + 1 + length.index((layers - start).min(3)))
        };
        // A main node that is drained is an error of its own.
        let drained = drawn.drained.filter(|node| instance.host.is_none() || *node != 0);
        Self {
            pins: drawn.pins.into_iter().map(pin).collect(),
            caps: drawn.caps.into_iter().map(|(place, cap)| (place.index(places), cap)).collect(),
            drained,
            only: drawn.only,
        }
    }

    fn name(instance: &Instance, place: usize) -> DeviceRef {
        match instance.devices.get(place) {
            Some(dev) => device_ref(&format!("n{}", dev.node), &format!("d{place}")),
            None => device_ref("n0", Device::HOST),
        }
    }

    fn options(&self, instance: &Instance, objective: Objective) -> PlanOptions {
        let index = |n: usize| u32::try_from(n).expect("few");
        let pin = |&(place, start, end): &(usize, usize, usize)| Pin {
            device: Self::name(instance, place),
            layers: (index(start)..index(end)).into(),
        };
        PlanOptions {
            objective,
            pins: self.pins.iter().map(pin).collect(),
            caps: self
                .caps
                .iter()
                .map(|(&place, &cap)| (Self::name(instance, place), Bytes::new(cap)))
                .collect(),
            only: self.only.as_ref().map(|nodes| nodes.iter().map(|n| node_id(&format!("n{n}"))).collect()),
            ..PlanOptions::default()
        }
    }

    fn snapshot(&self, instance: &Instance) -> ClusterSnapshot {
        let mut snapshot = instance.snapshot();
        if let Some(node) = self.drained.and_then(|n| snapshot.nodes.get_mut(n)) {
            node.drained = true;
        }
        snapshot
    }

    /// The instance with the caps as limits of its own.
    fn capped(&self, instance: &Instance) -> Instance {
        let mut capped = instance.clone();
        for (&place, &cap) in &self.caps {
            let dev = capped.devices.get_mut(place).or(capped.host.as_mut());
            let dev = dev.expect("the place is there");
            dev.limit = Some(dev.limit.map_or(cap, |limit| limit.min(cap)));
        }
        capped
    }

    /// Whether a plan keeps to what was asked.
    fn allows(&self, instance: &Instance, host: usize, runs: &[Run]) -> bool {
        let asked = |node: usize| self.only.as_ref().is_none_or(|only| only.contains(&node));
        let usable = |node: usize| asked(node) && self.drained != Some(node);
        let on_host = host > 0 || runs.is_empty();
        if instance.host.is_some() && on_host && !usable(0) {
            return false;
        }
        if runs.iter().any(|run| !usable(instance.devices[run.0].node)) {
            return false;
        }
        self.pins.iter().all(|&(place, start, end)| {
            let dev = instance.devices.get(place).or(instance.host.as_ref()).expect("the place is there");
            // Nothing can be pinned to a device of which nothing may be used, not even layers without a byte.
            let most = [Some(instance.pools[dev.pool]), dev.limit, self.caps.get(&place).copied()];
            if most.contains(&Some(0)) {
                return false;
            }
            if place == instance.devices.len() {
                return end <= host;
            }
            runs.iter().any(|run| run.0 == place && run.1 <= start && end <= run.2)
        })
    }
}

fn optimum(best: &Best, objective: Objective) -> Option<f64> {
    match objective {
        Objective::Fit => best.fit.as_ref().map(|f| float(u64::try_from(f.1).expect("few"))),
        Objective::Throughput => best.throughput.as_ref().map(|t| t[0]),
        Objective::Latency => best.latency,
        Objective::Balanced => best.balanced.as_ref().map(|b| b.1[0]),
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Proven values are those of the search over every plan, and nothing is refused that has a plan.
fn keeps_to_what_was_asked(instance: &Instance, asked: &Asked) -> Result<(), TestCaseError> {
    let (snapshot, workload, rules) = (asked.snapshot(instance), instance.workload(), instance.rules());
    let best = every_plan_where(&asked.capped(instance), None, &|host, runs| {
        asked.allows(instance, host, runs)
    });
    let shared = |dev: &kit::instance::Dev| instance.host.is_some_and(|host| dev.pool == host.pool);
    let shared = instance.devices.iter().any(shared);
    for objective in OBJECTIVES {
        let options = asked.options(instance, objective);
        match (plan(&snapshot, &workload, &rules, &options), optimum(&best, objective)) {
            (Ok(plan), Some(optimum)) => {
                prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
                let value = plan.value.value.expect("it is told");
                if objective == Objective::Balanced && shared {
                    let lower = plan.value.lower_bound.expect("it is told");
                    prop_assert!(lower <= optimum * (1.0 + 1e-9), "{lower} above {optimum}\n{plan:#?}");
                    prop_assert!(optimum <= value * (1.0 + 1e-9), "{value} below {optimum}\n{plan:#?}");
                    continue;
                }
                prop_assert!(close(value, optimum), "{objective:?}: {value} and not {optimum}\n{plan:#?}");
                prop_assert_eq!(plan.value.optimality, Optimality::Proven, "{:?}", objective);
            }
            (Err(PlanError::DoesNotFit(refusal)), None) => {
                let proven = matches!(refusal.verdict, Verdict::ProvenInfeasible(_));
                prop_assert!(proven, "{objective:?}: {refusal:?}");
            }
            (Err(PlanError::Pin { .. } | PlanError::NoDevices { .. }), None) => {}
            (found, expected) => prop_assert!(false, "{objective:?}: {found:#?} and not {expected:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 700, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_pins_the_best_plan_is_found_and_proven(instance in ordinary(7, 5), drawn in drawn()) {
        keeps_to_what_was_asked(&instance, &Asked::new(&instance, drawn))?;
    }

    #[test]
    fn with_pins_the_best_plan_on_few_devices_is_found_and_proven(instance in ordinary(8, 3), drawn in drawn()) {
        keeps_to_what_was_asked(&instance, &Asked::new(&instance, drawn))?;
    }

    #[test]
    fn with_pins_the_best_plan_around_a_host_is_found_and_proven(
        instance in around_a_host(6, 4),
        drawn in drawn(),
    ) {
        keeps_to_what_was_asked(&instance, &Asked::new(&instance, drawn))?;
    }
}
