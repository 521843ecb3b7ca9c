//! The auditor notices whatever is changed in a plan.

mod kit;

use kit::{device, device_ref, footprint, node, node_id, pool, snapshot};
use plimsoll_balance::{
    Assumption, Charges, EngineRules, Finding, HostUse, LayerSpec, Objective, Optimality, Plan, PlanOptions,
    StageCharges, StoppedBy, Workload, audit, plan,
};
use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, NodeStatus, Pool};
use plimsoll_units::{Bytes, BytesPerSec, Generation};

struct Made {
    snapshot: ClusterSnapshot,
    workload: Workload,
    rules: EngineRules,
    options: PlanOptions,
    plan: Plan,
}

/// A tower with two cards and a box behind rpc; everything is used and everything is charged.
fn made(objective: Objective) -> Made {
    let tower = node(
        "tower",
        vec![pool("ram", 60), pool("v0", 50), pool("v1", 50)],
        vec![
            device(Device::HOST, Pool::RAM, GpuBackend::Cpu, Some(10)),
            device("CUDA0", "v0", GpuBackend::Cuda, Some(100)),
            device("CUDA1", "v1", GpuBackend::Cuda, Some(100)),
        ],
    );
    let mut far = node("far", vec![pool("v", 70)], vec![device("CUDA0", "v", GpuBackend::Cuda, Some(90))]);
    far.rpc = Some("10.0.0.2:1".to_owned());
    let mut gone = node("gone", vec![pool("v", 70)], vec![device("CUDA0", "v", GpuBackend::Cuda, Some(90))]);
    gone.rpc = Some("10.0.0.3:1".to_owned());
    gone.status = NodeStatus::Failed;
    let snapshot = snapshot(vec![far, gone, tower]);
    let layer = |index| LayerSpec {
        kv_bytes: Bytes::new(2),
        cut_after: index != 6,
        ..LayerSpec::of_weights(index, Bytes::new(8))
    };
    let mut print = footprint((0..17).map(layer).collect());
    print.input_bytes = Bytes::new(5);
    print.head_bytes = Bytes::new(7);
    print.head_beside_input_bytes = Bytes::new(1);
    print.each_device_bytes = Bytes::new(1);
    let mut workload = Workload::uniform(print);
    workload.activation_bytes = Bytes::new(1_000_000);
    let charges = Charges {
        host: Bytes::new(3),
        host_alone: Bytes::new(4),
        alone: Bytes::new(5),
        split: StageCharges { each: Bytes::new(2), first_more: Bytes::new(1), last_more: Bytes::new(1) },
        partial: StageCharges { each: Bytes::new(2), first_more: Bytes::new(1), last_more: Bytes::new(3) },
    };
    let rules =
        EngineRules { host: HostUse::FirstLayersOfMain, max_devices: Some(3), margin: Bytes::ZERO, charges };
    let options = PlanOptions { objective, ..PlanOptions::default() };
    let plan = plan(&snapshot, &workload, &rules, &options).expect("it fits");
    assert!(plan.stages.len() >= 4, "{plan:#?}");
    Made { snapshot, workload, rules, options, plan }
}

impl Made {
    fn findings(&self, plan: &Plan) -> usize {
        audit(plan, &self.snapshot, &self.workload, &self.rules, &self.options)
            .map_or_else(|f| f.len(), |()| 0)
    }

    fn notices(&self, what: &str, change: impl Fn(&mut Plan)) {
        let mut plan = self.plan.clone();
        change(&mut plan);
        assert_ne!(plan, self.plan, "{what} changes nothing");
        assert!(self.findings(&plan) > 0, "{what} goes unnoticed");
    }
}

fn one_more(bytes: &mut Bytes) {
    *bytes = bytes.saturating_add(Bytes::new(1));
}

#[test]
fn every_changed_number_of_every_stage_is_noticed() {
    for objective in [Objective::Fit, Objective::Throughput, Objective::Latency, Objective::Balanced] {
        let made = made(objective);
        assert_eq!(made.findings(&made.plan), 0);
        for at in 0..made.plan.stages.len() {
            made.notices("weights", |p| one_more(&mut p.stages[at].weights_bytes));
            made.notices("kv", |p| one_more(&mut p.stages[at].kv_bytes));
            made.notices("overhead", |p| one_more(&mut p.stages[at].overhead_bytes));
            made.notices("budget", |p| one_more(&mut p.stages[at].budget_bytes));
            made.notices("slack", |p| one_more(&mut p.stages[at].slack_bytes));
            made.notices("seconds", |p| p.stages[at].seconds = Some(p.stages[at].seconds.unwrap() + 0.1));
            made.notices("no seconds", |p| p.stages[at].seconds = None);
            made.notices("start", |p| p.stages[at].layers.start += 1);
            made.notices("end", |p| p.stages[at].layers.end += 1);
            made.notices("input", |p| p.stages[at].input = !p.stages[at].input);
            made.notices("head", |p| p.stages[at].head = !p.stages[at].head);
            made.notices("a stage less", |p| drop(p.stages.remove(at)));
            made.notices("a stage twice", |p| p.stages.insert(at, p.stages[at].clone()));
            made.notices("no such device", |p| p.stages[at].device = device_ref("tower", "CUDA7"));
            made.notices("no such node", |p| p.stages[at].device = device_ref("moon", "CUDA0"));
            made.notices("a failed node", |p| p.stages[at].device = device_ref("gone", "CUDA0"));
        }
        made.notices("basis", |p| p.basis = Generation::new(9));
        made.notices("another objective", |p| {
            p.objective = if p.objective == Objective::Fit { Objective::Latency } else { Objective::Fit };
        });
        made.notices("value", |p| p.value.value = p.value.value.map(|v| v * 1.01));
        made.notices("no value", |p| p.value.value = None);
        made.notices("bound above", |p| p.value.lower_bound = p.value.value.map(|v| v * 1.01));
        made.notices("no bound", |p| p.value.lower_bound = None);
        made.notices("a bound that proves less", |p| {
            p.value.optimality = Optimality::Proven;
            p.value.lower_bound = p.value.value.map(|v| v * 0.9);
        });
        made.notices("a gap that is not", |p| p.value.optimality = Optimality::Within(0.77));
        made.notices("no link assumed", |p| p.assumed.clear());
        made.notices("an assumption too many", |p| {
            p.assumed.push(Assumption::UnknownSpeed { device: device_ref("tower", "CUDA0") });
        });
        made.notices("a link too many", |p| {
            let Some(Assumption::Link { rate, latency, .. }) = p.assumed.first().cloned() else { panic!() };
            p.assumed.push(Assumption::Link { between: [node_id("far"), node_id("gone")], rate, latency });
        });
        made.notices("a stop twice", |p| p.stopped.push(p.stopped[0].clone()));
        for at in 0..made.plan.stopped.len() {
            made.notices("short bytes", |p| one_more(&mut p.stopped[at].short_bytes));
            made.notices("a drained node", |p| p.stopped[at].reason = StoppedBy::Drained);
        }
    }
}

/// What a main node lists as a processor is its host once more: a plan uses one of the two.
#[test]
fn a_plan_that_uses_a_host_under_two_names_is_noticed() {
    let tower = node(
        "tower",
        vec![pool(Pool::RAM, 60)],
        vec![
            device(Device::HOST, Pool::RAM, GpuBackend::Cpu, Some(10)),
            device("cpu0", Pool::RAM, GpuBackend::Cuda, Some(90)),
        ],
    );
    let mut snapshot = snapshot(vec![tower]);
    let workload = kit::layers(&[10; 4]);
    let rules = EngineRules { host: HostUse::FirstLayersOfMain, ..EngineRules::none() };
    let options = PlanOptions::default();
    let plan = plan(&snapshot, &workload, &rules, &options).expect("it fits");
    assert_eq!(plan.stages.len(), 2);
    snapshot.nodes[0].devices[1].backend = GpuBackend::Cpu;
    let device = device_ref("tower", "cpu0");
    let reason = "to the engine it is the main node's host";
    let found = audit(&plan, &snapshot, &workload, &rules, &options);
    assert_eq!(found, Err(vec![Finding::Unusable { device, reason }]));
}

/// A speed that nobody tells is the one of the tables.
#[test]
fn an_assumed_speed_that_is_not_in_the_tables_is_noticed() {
    let mut snapshot = kit::devices(&[30, 30]);
    for node in &mut snapshot.nodes {
        node.devices[0].bandwidth = None;
        node.devices[0].name = Some("RTX 4090".to_owned());
    }
    let (workload, rules, options) = (kit::layers(&[10; 5]), EngineRules::none(), PlanOptions::default());
    let mut plan = plan(&snapshot, &workload, &rules, &options).expect("it fits");
    assert_eq!(audit(&plan, &snapshot, &workload, &rules, &options), Ok(()));
    let found = |plan: &Plan| audit(plan, &snapshot, &workload, &rules, &options).unwrap_err();
    let what = "n00/d0".to_owned();
    for assumed in &mut plan.assumed {
        if let Assumption::Bandwidth { device, by_name, .. } = assumed
            && device.node == node_id("n00")
        {
            *by_name = false;
        }
    }
    assert_eq!(found(&plan), [Finding::Assumed { what: what.clone() }]);
    // Twice the speed, and every number that follows from it: only the tables tell.
    for assumed in &mut plan.assumed {
        if let Assumption::Bandwidth { rate, by_name, .. } = assumed {
            *rate = BytesPerSec::new(rate.get() * 2);
            *by_name = true;
        }
    }
    for stage in &mut plan.stages {
        let seconds = stage.seconds.as_mut().expect("it is told");
        let value = plan.value.value.as_mut().expect("it is told");
        *seconds /= 2.0;
        *value -= *seconds;
    }
    plan.value.lower_bound = plan.value.value;
    let other = Finding::Assumed { what: "n01/d0".to_owned() };
    assert_eq!(found(&plan), [Finding::Assumed { what }, other]);
}

/// A plan is right only for the cluster, workload, rules and options it was made for.
#[test]
fn every_changed_input_is_noticed() {
    type Change = fn(&mut Made);
    let changes: [(&str, Change); 14] = [
        ("a smaller pool", |m| m.snapshot.nodes[2].pools[1].free = Some(Bytes::new(20))),
        ("a reserve", |m| m.snapshot.nodes[2].pools[1].reserve = Some(Bytes::new(1))),
        ("a device limit", |m| m.snapshot.nodes[2].devices[1].limit = Some(Bytes::new(10))),
        ("a cap", |m| {
            m.options.caps.insert(device_ref("tower", "CUDA0"), Bytes::new(10));
        }),
        ("a margin", |m| m.rules.margin = Bytes::new(1)),
        ("an asked reserve", |m| m.options.reserve = Some(Bytes::new(2))),
        ("a drained node", |m| m.snapshot.nodes[0].drained = true),
        ("fewer devices", |m| m.options.max_devices = Some(2)),
        ("an engine's limit", |m| m.rules.max_devices = Some(2)),
        ("only some nodes", |m| m.options.only = Some([node_id("tower")].into())),
        ("unknown memory", |m| m.snapshot.nodes[0].pools[0].free = None),
        ("no cuts", |m| m.workload.footprints[0].layers.iter_mut().for_each(|l| l.cut_after = false)),
        ("a layer more", |m| {
            m.workload.footprints[0].layers.push(LayerSpec::of_weights(17, Bytes::ZERO));
        }),
        ("another main node", |m| m.snapshot.nodes[0].main = true),
    ];
    for (what, change) in changes {
        let mut made = made(Objective::Latency);
        change(&mut made);
        assert!(made.findings(&made.plan) > 0, "{what} goes unnoticed");
    }
}
