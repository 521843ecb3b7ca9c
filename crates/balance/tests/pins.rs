//! Pins, cuts, caps, drained nodes and nodes that were not asked: every planner against a search over every plan.

mod kit;

use std::collections::BTreeMap;

use kit::instance::{Instance, around_a_host, ordinary};
use kit::oracle::{Best, Run, every_plan_where};
use kit::{device, device_ref, float, node, node_id, pool, snapshot};
use plimsoll_balance::{
    Certificate, EngineRules, Finding, HostUse, Objective, Optimality, Pin, PinProblem, Plan, PlanError,
    PlanOptions, StoppedBy, Strategy, Transfers, Verdict, audit, plan,
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
    let best =
        every_plan_where(&asked.capped(instance), None, &|host, runs| asked.allows(instance, host, runs));
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
        for strategy in [Strategy::CapacityDescending, Strategy::GivenOrder] {
            let options = PlanOptions { strategy, ..options.clone() };
            in_one_order(&plan(&snapshot, &workload, &rules, &options), optimum(&best, objective))?;
            if let Ok(plan) = plan(&snapshot, &workload, &rules, &options) {
                prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
            }
        }
    }
    Ok(())
}

/// The same where what passes is part of a stage's time.
fn keeps_to_what_was_asked_with_transfers(instance: &Instance, asked: &Asked) -> Result<(), TestCaseError> {
    let (snapshot, workload, rules) = (asked.snapshot(instance), instance.workload(), instance.rules());
    let best =
        every_plan_where(&asked.capped(instance), None, &|host, runs| asked.allows(instance, host, runs));
    for (transfers, optimum) in [(Transfers::Overlapped, best.overlapped), (Transfers::Added, best.added)] {
        let options = PlanOptions { transfers, ..asked.options(instance, Objective::Throughput) };
        match (plan(&snapshot, &workload, &rules, &options), optimum) {
            (Ok(plan), Some(optimum)) => {
                prop_assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
                let value = plan.value.value.expect("it is told");
                prop_assert!(close(value, optimum), "{transfers:?}: {value} and not {optimum}\n{plan:#?}");
                prop_assert_eq!(plan.value.optimality, Optimality::Proven, "{:?}", transfers);
            }
            (Err(PlanError::DoesNotFit(refusal)), None) => {
                let proven = matches!(refusal.verdict, Verdict::ProvenInfeasible(_));
                prop_assert!(proven, "{transfers:?}: {refusal:?}");
            }
            (Err(PlanError::Pin { .. } | PlanError::NoDevices { .. }), None) => {}
            (found, expected) => prop_assert!(false, "{transfers:?}: {found:#?} and not {expected:?}"),
        }
        for strategy in [Strategy::CapacityDescending, Strategy::GivenOrder] {
            let options = PlanOptions { strategy, ..options.clone() };
            let found = plan(&snapshot, &workload, &rules, &options);
            if let Ok(plan) = &found {
                prop_assert_eq!(audit(plan, &snapshot, &workload, &rules, &options), Ok(()));
            }
            in_one_order(&found, optimum)?;
        }
    }
    Ok(())
}

/// A plan in one order is no better than the best of all, and nothing is said to be impossible that is not.
fn in_one_order(found: &Result<Plan, PlanError>, optimum: Option<f64>) -> Result<(), TestCaseError> {
    match (found, optimum) {
        (Ok(plan), Some(optimum)) => {
            let lower = plan.value.lower_bound.expect("it is told");
            prop_assert!(lower <= optimum * (1.0 + 1e-9), "{lower} above {optimum}\n{plan:#?}");
        }
        (Ok(plan), None) => prop_assert!(false, "no plan keeps to what was asked: {plan:#?}"),
        (Err(PlanError::DoesNotFit(refusal)), Some(_)) => {
            prop_assert_eq!(&refusal.verdict, &Verdict::Unknown);
        }
        (Err(error), Some(_)) => prop_assert!(false, "{error:?}"),
        (Err(_), None) => {}
    }
    Ok(())
}

/// A row of layers dealt out to devices in some order, and pins that this keeps.
#[derive(Clone, Debug)]
struct Dealt {
    sizes: Vec<u64>,
    rooms: Vec<u64>,
    pins: Vec<Pin>,
}

/// So many devices with a few layers each, little room beside them, and pins to some.
fn dealt() -> impl Draw<Value = Dealt> {
    let device = (vec(1_u64..20, 1..5), 0_u64..4, prop::option::weighted(0.4, any::<(Index, Index)>()));
    (vec(device, 7..16), any::<Index>()).prop_map(|(devices, turn)| {
        let (mut sizes, mut rooms, mut pins) = (Vec::new(), Vec::new(), Vec::new());
        let turn = turn.index(devices.len());
        for (place, (layers, spare, pinned)) in devices.iter().enumerate() {
            // Names that do not follow the order of the layers.
            let number = (place * 5 + turn) % 97;
            if let Some((a, b)) = pinned {
                let (a, b) = (a.index(layers.len()), b.index(layers.len()));
                let at = |n: usize| u32::try_from(sizes.len() + n).expect("few");
                pins.push(Pin {
                    device: device_ref(&format!("n{number:02}"), "d0"),
                    layers: (at(a.min(b))..at(a.max(b) + 1)).into(),
                });
            }
            rooms.push((number, layers.iter().sum::<u64>() + spare));
            sizes.extend(layers);
        }
        rooms.sort_unstable();
        Dealt { sizes, rooms: rooms.iter().map(|room| room.1).collect(), pins: renumbered(&rooms, pins) }
    })
}

/// Pins with the names that devices get when they are listed by their numbers.
fn renumbered(rooms: &[(usize, u64)], pins: Vec<Pin>) -> Vec<Pin> {
    let name = |pin: &Pin| {
        let place = rooms.iter().position(|room| pin.device.node == node_id(&format!("n{:02}", room.0)));
        device_ref(&format!("n{:02}", place.expect("it is there")), "d0")
    };
    pins.into_iter().map(|pin| Pin { device: name(&pin), ..pin }).collect()
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 700, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_pins_and_transfers_the_best_plan_is_found_and_proven(instance in ordinary(6, 4), drawn in drawn()) {
        keeps_to_what_was_asked_with_transfers(&instance, &Asked::new(&instance, drawn))?;
    }

    #[test]
    fn with_pins_and_transfers_the_best_plan_around_a_host_is_found_and_proven(
        instance in around_a_host(6, 3),
        drawn in drawn(),
    ) {
        keeps_to_what_was_asked_with_transfers(&instance, &Asked::new(&instance, drawn))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_more_devices_a_plan_that_exists_is_never_excluded(dealt in dealt()) {
        let (cluster, workload) = (kit::devices(&dealt.rooms), kit::layers(&dealt.sizes));
        let rules = EngineRules::none();
        for objective in OBJECTIVES {
            let options = PlanOptions { objective, pins: dealt.pins.clone(), ..PlanOptions::default() };
            match plan(&cluster, &workload, &rules, &options) {
                Ok(plan) => prop_assert_eq!(audit(&plan, &cluster, &workload, &rules, &options), Ok(())),
                Err(PlanError::DoesNotFit(refusal)) => {
                    prop_assert_eq!(&refusal.verdict, &Verdict::Unknown, "{:?}", objective);
                }
                Err(error) => prop_assert!(false, "{objective:?}: {error:?}"),
            }
        }
    }
}

/// A tower with a host, two cards and a box behind rpc, and ten layers of ten bytes of which 4 and 5 stay together.
struct Home {
    snapshot: ClusterSnapshot,
    workload: plimsoll_balance::Workload,
    rules: EngineRules,
}

fn home() -> Home {
    let tower = node(
        "tower",
        vec![pool("ram", 60), pool("v0", 50), pool("v1", 50)],
        vec![
            device(Device::HOST, Pool::RAM, GpuBackend::Cpu, Some(10)),
            device("CPU", Pool::RAM, GpuBackend::Cpu, Some(10)),
            device("CUDA0", "v0", GpuBackend::Cuda, Some(100)),
            device("CUDA1", "v1", GpuBackend::Cuda, Some(50)),
        ],
    );
    let far = |id: &str| {
        let mut node = node(id, vec![pool("v", 70)], vec![device("CUDA0", "v", GpuBackend::Cuda, Some(90))]);
        node.rpc = Some(format!("{id}:1"));
        node
    };
    let (rig, mut gone, mut idle) = (far("rig"), far("gone"), far("idle"));
    gone.status = NodeStatus::Failed;
    idle.drained = true;
    let mut workload = kit::layers(&[10; 10]);
    workload.footprints[0].layers[4].cut_after = false;
    let rules = EngineRules { host: HostUse::FirstLayersOfMain, max_devices: Some(2), ..EngineRules::none() };
    Home { snapshot: snapshot(vec![gone, idle, rig, tower]), workload, rules }
}

fn pins(texts: &[&str]) -> Vec<Pin> {
    texts.iter().map(|text| text.parse().expect("a pin")).collect()
}

impl Home {
    fn plan(&self, options: &PlanOptions) -> Result<Plan, PlanError> {
        plan(&self.snapshot, &self.workload, &self.rules, options)
    }

    fn pinned(&self, texts: &[&str]) -> Result<Plan, PlanError> {
        self.plan(&PlanOptions { pins: pins(texts), ..PlanOptions::default() })
    }
}

fn held<'a>(plan: &'a Plan, device: &str) -> Option<&'a std::ops::Range<u32>> {
    plan.stages.iter().find(|s| s.device.to_string() == device).map(|s| &s.layers)
}

#[test]
fn a_pin_that_nothing_can_keep_is_told_with_its_reason() {
    let home = home();
    let only = PlanOptions { only: Some([node_id("rig")].into()), ..PlanOptions::default() };
    let one = PlanOptions { max_devices: Some(1), ..PlanOptions::default() };
    let free = PlanOptions::default();
    for (texts, options, why) in [
        (&["0-2=tower/CUDA7"][..], &free, "pin 0-2=tower/CUDA7: there is no such device"),
        (&["0-2=attic/CUDA0"], &free, "pin 0-2=attic/CUDA0: there is no such device"),
        (&["8-11=tower/CUDA0"], &free, "pin 8-11=tower/CUDA0: the model's layers are 0-10 (the end"),
        (&["0-2=idle/CUDA0"], &free, "pin 0-2=idle/CUDA0: the device may not be used: its node is drained"),
        (
            &["0-2=gone/CUDA0"],
            &free,
            "pin 0-2=gone/CUDA0: the device may not be used: its node does not answer",
        ),
        (&["0-2=tower/CPU"], &free, "pin 0-2=tower/CPU: the engine puts no layers on this device"),
        (
            &["0-2=tower/CUDA0"],
            &only,
            "0-2=tower/CUDA0: the device may not be used: its node is not among the only",
        ),
        (
            &["0-2=tower/host"],
            &only,
            "0-2=tower/host: the device may not be used: its node is not among the only",
        ),
        (
            &["0-4=tower/CUDA0", "2-3=tower/CUDA1"],
            &free,
            "pin 2-3=tower/CUDA1: it overlaps 0-4=tower/CUDA0, and",
        ),
        // All that is pinned to one device counts as one.
        (
            &["0-1=tower/CUDA0", "7-8=tower/CUDA0", "3-4=tower/CUDA1"],
            &free,
            "pin 3-4=tower/CUDA1: it overlaps 0-8=tower/CUDA0",
        ),
        // A host holds everything before what is pinned to it.
        (&["3-4=tower/host", "0-2=tower/CUDA0"], &free, "pin 0-2=tower/CUDA0: it overlaps 0-4=tower/host"),
        (
            &["2-5=tower/CUDA0", "5-8=tower/CUDA1"],
            &free,
            "pin 5-8=tower/CUDA1: no stage may end between it and 2-5=tower/CUDA0: layers 2-8 cannot be cut",
        ),
        (
            &["0-1=tower/CUDA0", "3-4=tower/CUDA1"],
            &one,
            "pin 3-4=tower/CUDA1: layers are pinned to 2 devices, and at most 1 may be used",
        ),
        (
            &["0-1=tower/CUDA0", "3-4=tower/CUDA1", "8-9=rig/CUDA0"],
            &free,
            "pin 8-9=rig/CUDA0: layers are pinned to 3 devices, and at most 2 may be used",
        ),
    ] {
        let options = PlanOptions { pins: pins(texts), ..options.clone() };
        let error = home.plan(&options).expect_err(why);
        assert!(matches!(error, PlanError::Pin { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error} and not {why}");
    }
    let empty = Pin { device: device_ref("tower", "CUDA0"), layers: (3..3).into() };
    let options = PlanOptions { pins: vec![empty.clone()], ..PlanOptions::default() };
    assert_eq!(home.plan(&options), Err(PlanError::Pin { pin: empty, problem: PinProblem::Empty }));
}

#[test]
fn everything_between_the_pins_of_a_device_lies_there() {
    let plan = home().pinned(&["2-3=tower/CUDA1", "5-6=tower/CUDA1"]).expect("it fits");
    let layers = held(&plan, "tower/CUDA1").expect("it holds some");
    assert!(layers.start <= 2 && layers.end >= 6, "{layers:?}");
    let plan = home().pinned(&["1-3=tower/host"]).expect("it fits");
    assert_eq!(held(&plan, "tower/host"), Some(&(0..3)));
}

#[test]
fn what_is_pinned_to_a_device_must_fit_there() {
    let error = home().pinned(&["0-6=tower/CUDA0"]).expect_err("60 bytes on 50");
    let PlanError::DoesNotFit(refusal) = error else { panic!("{error:?}") };
    let pin = pins(&["0-6=tower/CUDA0"]).remove(0);
    let certificate = Certificate::Pinned { pin, needs: 60, budget: 50 };
    assert_eq!(refusal.verdict, Verdict::ProvenInfeasible(certificate));
    assert_eq!(refusal.short_bytes, Bytes::new(10));
}

#[test]
fn a_device_with_nothing_to_use_is_too_small_for_a_pin_as_any_small_one_is() {
    let home = home();
    let caps = [(device_ref("tower", "CUDA0"), Bytes::ZERO)].into();
    let options = PlanOptions { pins: pins(&["0-2=tower/CUDA0"]), caps, ..PlanOptions::default() };
    let error = home.plan(&options).expect_err("20 bytes on none");
    let PlanError::DoesNotFit(refusal) = error else { panic!("{error:?}") };
    let pin = pins(&["0-2=tower/CUDA0"]).remove(0);
    let certificate = Certificate::Pinned { pin, needs: 20, budget: 0 };
    assert_eq!(refusal.verdict, Verdict::ProvenInfeasible(certificate));
    assert_eq!(refusal.short_bytes, Bytes::new(20));
}

#[test]
fn what_stops_at_a_pin_of_another_device_says_so() {
    let plan = home().pinned(&["0-3=tower/CUDA0", "3-6=rig/CUDA0"]).expect("it fits");
    let before = plan.stages.iter().find(|s| s.layers.end == 3).expect("something ends there");
    let stopped = plan.stopped.iter().find(|s| s.device == before.device).expect("it is stopped");
    assert_eq!(stopped.reason, StoppedBy::Pinned { index: 3, device: device_ref("rig", "CUDA0") });
}

#[test]
fn amounts_that_no_longer_add_up_are_an_error() {
    let mut home = home();
    for node in &mut home.snapshot.nodes {
        for pool in &mut node.pools {
            pool.total = Bytes::MAX;
            pool.free = Some(Bytes::MAX);
        }
    }
    assert!(home.pinned(&[]).is_ok());
    let error = home.pinned(&["3-6=rig/CUDA0"]).expect_err("heavier than everything is not a number");
    assert_eq!(error, PlanError::Overflow { what: "layers, charges and pinned layers" });
}

#[test]
fn two_devices_of_one_pool_may_both_have_pins() {
    let card = |id: &str| device(id, "shared", GpuBackend::Cuda, Some(100));
    let cluster = snapshot(vec![node("a", vec![pool("shared", 50)], vec![card("one"), card("two")])]);
    let workload = kit::layers(&[10; 5]);
    let options = PlanOptions { pins: pins(&["0-1=a/one", "4-5=a/two"]), ..PlanOptions::default() };
    let rules = EngineRules::none();
    let made = plan(&cluster, &workload, &rules, &options).expect("50 bytes are enough for 50");
    assert_eq!(audit(&made, &cluster, &workload, &rules, &options), Ok(()));
    assert_eq!(made.stages.len(), 2);
}

#[test]
fn the_auditor_notices_layers_that_lie_elsewhere_than_pinned() {
    let home = home();
    let made = home.pinned(&["3-6=rig/CUDA0"]).expect("it fits");
    let options = PlanOptions { pins: pins(&["3-6=tower/CUDA1", "3-4=rig/CUDA0"]), ..PlanOptions::default() };
    let findings =
        audit(&made, &home.snapshot, &home.workload, &home.rules, &options).expect_err("it lies there");
    let expected = Finding::Pinned { device: device_ref("tower", "CUDA1"), start: 3, end: 6 };
    assert_eq!(findings, [expected]);
}
