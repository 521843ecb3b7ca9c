//! What the controller does when it looks: the decisions are those of the libraries, the order is made here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_balance::{
    Decision, EngineRules, Plan, PlanError, Rebalance, RebalanceError, RebalanceOptions, Step, Verdict,
    audit, decide, plan, rebalance_plan,
};
use plimsoll_cluster::{ClusterSnapshot, Node};
use plimsoll_residency::{Eviction, InferenceSpec, Request, Terms, Timestamp, eviction_advice};
use plimsoll_units::{Bytes, DeviceRef, PoolId};

use crate::run::{Moving, Placed, Run};
use crate::world::Place;

impl Run<'_> {
    pub(crate) fn control(&mut self) {
        for i in 0..self.models.len() {
            if self.models[i].placed.is_some() && !self.models[i].wanted.is_wanted(self.now) {
                self.let_go(i);
            }
        }
        let order = self.order.clone();
        // Who matters least moves first.
        for i in order.iter().rev() {
            self.mend(*i);
        }
        for i in &order {
            self.place(*i);
        }
        for i in &order {
            self.improve(*i);
        }
    }

    /// The cluster as a model sees it: what the models in `ours` hold may be used.
    fn view(&self, ours: &[usize]) -> ClusterSnapshot {
        let mut view = ClusterSnapshot::clone(&self.state.snapshot());
        for node in &mut view.nodes {
            let id = node.id.clone();
            for pool in node.pools.iter_mut().filter(|pool| !pool.held.is_zero()) {
                let place = (id.clone(), pool.id.clone());
                let held = ours.iter().filter_map(|i| self.models[*i].placed.as_ref()?.held.get(&place));
                pool.held = Bytes::saturating_sum(held.copied());
            }
        }
        view
    }

    /// Asks a planner, and takes the time.
    fn ask<T>(&mut self, question: impl FnOnce() -> T) -> T {
        let before = (self.clock)();
        let answer = question();
        self.report.planning += (self.clock)().saturating_sub(before);
        self.report.planned += 1;
        answer
    }

    fn name(&self, i: usize) -> &str {
        &self.models[i].wanted.name
    }

    fn place(&mut self, i: usize) {
        let model = &self.models[i];
        if model.placed.is_some() || !model.wanted.is_wanted(self.now) || model.tried == Some(self.better) {
            return;
        }
        let wanted = model.wanted;
        let view = self.view(&[i]);
        let found = self.ask(|| plan(&view, &wanted.workload, &EngineRules::none(), &wanted.options));
        let found = match found {
            Err(error) if is_too_little(&error) => self.make_room(i).ok_or(error),
            found => found.map(|plan| (plan, view)),
        };
        match found {
            Ok((plan, view)) => self.adopt(i, plan, &view),
            Err(error) => {
                self.report.refuse(reason(&error));
                self.report.note(self.now, format!("'{}' finds no place: {error}", wanted.name));
                self.models[i].tried = Some(self.better);
            }
        }
    }

    /// Pushes out models of less priority, as the ledger advises, where that makes room; nobody goes in vain.
    fn make_room(&mut self, i: usize) -> Option<(Plan, ClusterSnapshot)> {
        let wanted = self.models[i].wanted;
        let lower = |j: &usize| self.models[*j].wanted.priority < wanted.priority;
        let (mut ours, others): (Vec<usize>, Vec<usize>) = (0..self.models.len()).partition(lower);
        if !ours.iter().any(|j| self.models[*j].placed.is_some()) {
            return None;
        }
        ours.push(i);
        let view = self.view(&ours);
        let rules = EngineRules::none();
        let found = self.ask(|| plan(&view, &wanted.workload, &rules, &wanted.options)).ok()?;
        let request = self.request(i, &held_by(&found, &view));
        let mut book = self.book.clone();
        for j in others {
            book.set_pinned(self.name(j), true);
        }
        let policy = Eviction { min_age: self.scenario.policy.min_age, ..Eviction::default() };
        let Ok(advice) = eviction_advice(&book, &request, &policy, self.timestamp()) else {
            self.report.refuse("no eviction makes room");
            return None;
        };
        for victim in &advice.victims {
            let Some(j) = (0..self.models.len()).find(|j| self.name(*j) == victim.instance) else { continue };
            let text = format!("'{}' makes room for '{}'", victim.instance, wanted.name);
            self.report.note(self.now, text);
            self.report.models[j].evicted += 1;
            self.let_go(j);
            // It waits until something else changes, and not for its own room.
            self.models[j].tried = Some(self.better);
        }
        let view = self.view(&[i]);
        let found = self.ask(|| plan(&view, &wanted.workload, &rules, &wanted.options)).ok()?;
        Some((found, view))
    }

    /// A model gets its first place, and is loaded there.
    fn adopt(&mut self, i: usize, plan: Plan, view: &ClusterSnapshot) {
        self.check_plan(i, &plan, view);
        let held = held_by(&plan, view);
        let bytes = placed_bytes(&plan);
        let load = self.scenario.policy.load_rate.time_for(bytes).unwrap_or_default();
        let report = &mut self.report.models[i];
        report.placed += 1;
        report.loaded_bytes = report.loaded_bytes.saturating_add(bytes);
        let text = format!("'{}' is placed on {}", self.name(i), devices(&plan));
        self.report.note(self.now, text);
        let starts = self.starts(&plan);
        self.models[i].placed = Some(Placed {
            plan,
            held: BTreeMap::new(),
            ready: self.now.saturating_add(load),
            moving: None,
            lost: BTreeSet::new(),
            starts,
            mended: None,
            gain: None,
        });
        self.hold(i, held);
    }

    /// Moves what can no longer stay: layers of lost or drained nodes, and what no longer fits.
    fn mend(&mut self, i: usize) {
        let Some(placed) = &self.models[i].placed else { return };
        if placed.moving.is_some() || (placed.mended == Some(self.better) && placed.lost.is_empty()) {
            return;
        }
        let lost = placed.lost.clone();
        let view = self.view(&[i]);
        if lost.is_empty() && !must_move(placed, &view) {
            if let Some(placed) = &mut self.models[i].placed {
                placed.mended = None;
            }
            return;
        }
        match self.rebalance(i, &view, &lost) {
            Ok(rebalance) => self.follow(i, rebalance, &view, &lost),
            Err(error) => self.not_mended(i, &error, !lost.is_empty()),
        }
    }

    fn not_mended(&mut self, i: usize, error: &RebalanceError, lost: bool) {
        if lost {
            // Whether there is another place is asked next, and told then.
            let text = format!("'{}' loses its place", self.name(i));
            self.report.note(self.now, text);
            self.let_go(i);
            return;
        }
        self.report.refuse(match error {
            RebalanceError::Plan(error) => reason(error),
            _ => "no rebalancing",
        });
        let text = format!("'{}' has to stay where it is: {error}", self.name(i));
        self.report.note(self.now, text);
        if let Some(placed) = &mut self.models[i].placed {
            placed.mended = Some(self.better);
        }
    }

    fn rebalance(
        &mut self,
        i: usize,
        view: &ClusterSnapshot,
        lost: &BTreeSet<DeviceRef>,
    ) -> Result<Rebalance, RebalanceError> {
        let policy = &self.scenario.policy;
        let options = RebalanceOptions {
            tolerance: policy.tolerance,
            max_concurrent: policy.max_concurrent,
            load_rate: Some(policy.load_rate),
            local_rate: Some(policy.local_rate),
            lost: lost.clone(),
            propose: false,
            ..RebalanceOptions::default()
        };
        let wanted = self.models[i].wanted;
        let current = self.models[i].placed.as_ref().map(|placed| placed.plan.clone());
        let current = current.expect("only placed models are rebalanced");
        let rules = EngineRules::none();
        self.ask(|| rebalance_plan(&current, view, &wanted.workload, &rules, &wanted.options, &options))
    }

    /// Moves for speed, where that is worth it and has been for long enough.
    fn improve(&mut self, i: usize) {
        let Some(placed) = &self.models[i].placed else { return };
        if placed.moving.is_some() || !placed.lost.is_empty() || self.now < placed.ready {
            return;
        }
        let gain = match placed.gain {
            Some((at, gain)) if at == self.better => gain,
            _ => {
                let view = self.view(&[i]);
                let gain = self.rebalance(i, &view, &BTreeSet::new()).ok().and_then(|found| found.gain());
                let gain = gain.filter(|gain| gain.is_finite()).unwrap_or(0.0);
                if let Some(placed) = &mut self.models[i].placed {
                    placed.gain = Some((self.better, gain));
                }
                gain
            }
        };
        if decide(&mut self.models[i].hysteresis, self.now, true, gain) != Decision::Go {
            return;
        }
        let (view, nothing) = (self.view(&[i]), BTreeSet::new());
        if let Ok(rebalance) = self.rebalance(i, &view, &nothing) {
            self.follow(i, rebalance, &view, &nothing);
        }
    }

    /// Carries a rebalancing out.
    fn follow(&mut self, i: usize, found: Rebalance, view: &ClusterSnapshot, lost: &BTreeSet<DeviceRef>) {
        self.check_plan(i, &found.target, &without_room(view, lost));
        let then = held_by(&found.target, view);
        let (held, seconds) = match &found.schedule {
            Ok(schedule) => {
                let peak = |peak: &plimsoll_balance::PoolPeak| {
                    ((peak.node.clone(), peak.pool.clone()), peak.peak_bytes)
                };
                let peaks: BTreeMap<Place, Bytes> = schedule.peaks.iter().map(peak).collect();
                for peak in schedule.peaks.iter().filter(|peak| peak.peak_bytes > peak.budget_bytes) {
                    self.check_peak(i, peak);
                }
                (peaks, schedule.seconds.unwrap_or(0.0))
            }
            Err(blocked) => return self.load_anew(i, &blocked.to_string()),
        };
        let sources =
            found.schedule.iter().flat_map(|schedule| &schedule.rounds).flat_map(|round| &round.steps);
        let sources = sources.filter_map(|timed| match &timed.step {
            Step::Move { from, bytes, .. } => Some((from.clone(), *bytes)),
            Step::Spill { .. } | Step::Drop { .. } | Step::Load { .. } | Step::Charge { .. } => None,
        });
        let sources: Vec<(DeviceRef, Bytes)> = sources.collect();
        let ends = self.now.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        let report = &mut self.report.models[i];
        report.moves += 1;
        report.moved_bytes = report.moved_bytes.saturating_add(found.moved_bytes);
        report.loaded_bytes = report.loaded_bytes.saturating_add(found.loaded_bytes);
        let text = format!(
            "'{}' moves {} and loads {} in {:.1} s: {}",
            self.name(i),
            found.moved_bytes.scaled(),
            found.loaded_bytes.scaled(),
            seconds,
            devices(&found.target)
        );
        self.report.note(self.now, text);
        let starts = self.starts(&found.target);
        if let Some(placed) = &mut self.models[i].placed {
            placed.plan = found.target;
            placed.starts = starts;
            placed.lost.clear();
            placed.mended = None;
            placed.gain = None;
            placed.moving = Some(Moving { ends, then, sources });
            if !found.loaded_bytes.is_zero() {
                placed.ready = ends;
            }
        }
        self.hold(i, held);
    }

    /// Where moves wait for each other for ever, everything goes and is loaded anew.
    fn load_anew(&mut self, i: usize, why: &str) {
        self.report.refuse("moves wait for each other");
        let text = format!("'{}' is loaded anew: {why}", self.name(i));
        self.report.note(self.now, text);
        self.let_go(i);
        self.place(i);
    }

    /// How often each node of a plan has been started, as far as the truth goes.
    fn starts(&self, plan: &Plan) -> BTreeMap<plimsoll_units::NodeId, u32> {
        let nodes = plan.stages.iter().map(|stage| &stage.device.node);
        nodes.filter_map(|id| Some((id.clone(), self.world.machines.get(id)?.starts))).collect()
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp::after_epoch(self.now)
    }

    /// What the ledger is asked for a model; the pools have their budgets of now.
    fn request(&mut self, i: usize, held: &BTreeMap<Place, Bytes>) -> Request {
        let snapshot = self.state.snapshot();
        let mut pools = Vec::with_capacity(held.len());
        for (place, bytes) in held {
            let number = self.pools.len();
            let fresh = || PoolId::new(format!("pool{number}")).expect("letters and digits are a pool id");
            let id = self.pools.entry(place.clone()).or_insert_with(fresh).clone();
            let pool = snapshot.node(&place.0).and_then(|node| node.pool(&place.1));
            let budget = pool.map_or(Bytes::ZERO, |pool| pool.budget(Bytes::ZERO));
            self.book.set_budget(&id, Some(budget));
            pools.push((id, *bytes));
        }
        let wanted = self.models[i].wanted;
        let spec = InferenceSpec::new(&wanted.name, "none").with_pools(pools);
        let terms = Terms { priority: wanted.priority, ..Terms::default() };
        Request::new(wanted.name.clone(), spec).on(terms)
    }

    /// Books what a model holds from now on.
    pub(crate) fn book_for(&mut self, i: usize, held: &BTreeMap<Place, Bytes>) {
        let request = self.request(i, held);
        let now = self.timestamp();
        if let Err(refusal) = self.book.reserve(&request, now) {
            let name = self.name(i);
            let text = format!("the ledger refuses what the planner placed of '{name}': {refusal}");
            self.violation(text);
        }
    }

    fn check_plan(&mut self, i: usize, plan: &Plan, view: &ClusterSnapshot) {
        let wanted = self.models[i].wanted;
        let found = audit(plan, view, &wanted.workload, &EngineRules::none(), &wanted.options);
        for finding in found.err().into_iter().flatten() {
            let text = format!("the auditor says of the plan of '{}': {finding}", wanted.name);
            self.violation(text);
        }
    }
}

/// The snapshot with no room on devices whose contents are lost.
fn without_room(view: &ClusterSnapshot, lost: &BTreeSet<DeviceRef>) -> ClusterSnapshot {
    let mut view = view.clone();
    for device in lost {
        let node = view.nodes.iter_mut().find(|node| node.id == device.node);
        let found = node.and_then(|node| node.devices.iter_mut().find(|found| found.id == device.device));
        if let Some(found) = found {
            found.limit = Some(Bytes::ZERO);
        }
    }
    view
}

/// Whether a plan cannot stay as it is: a node of it is drained, or a pool has less room than it takes.
fn must_move(placed: &Placed, view: &ClusterSnapshot) -> bool {
    let node = |device: &DeviceRef| view.node(&device.node);
    let drained = placed.plan.stages.iter().any(|stage| node(&stage.device).is_none_or(|node| node.drained));
    let short = |((id, pool), held): (&Place, &Bytes)| {
        let pool = view.node(id).and_then(|node| node.pool(pool));
        pool.is_none_or(|pool| *held > pool.budget(Bytes::ZERO))
    };
    drained || placed.held.iter().any(short)
}

/// What a plan holds where.
pub(crate) fn held_by(plan: &Plan, view: &ClusterSnapshot) -> BTreeMap<Place, Bytes> {
    let mut held = BTreeMap::new();
    for stage in &plan.stages {
        let pool = view.node(&stage.device.node).and_then(|node: &Node| node.device(&stage.device.device));
        if let Some(device) = pool {
            let sum = held.entry((stage.device.node.clone(), device.pool.clone())).or_insert(Bytes::ZERO);
            *sum = sum.saturating_add(stage.used_bytes());
        }
    }
    held
}

fn placed_bytes(plan: &Plan) -> Bytes {
    Bytes::saturating_sum(plan.stages.iter().map(|stage| stage.weights_bytes))
}

fn is_too_little(error: &PlanError) -> bool {
    matches!(error, PlanError::DoesNotFit(_) | PlanError::NoDevices { .. })
}

/// Why there is no plan, in a word or two.
const fn reason(error: &PlanError) -> &'static str {
    match error {
        PlanError::DoesNotFit(refusal) => match refusal.verdict {
            Verdict::ProvenInfeasible(_) => "proven infeasible",
            Verdict::Unknown => "no way found",
        },
        PlanError::NoDevices { .. } => "no device",
        _ => "no plan",
    }
}

/// `a/gpu0, b/gpu0`, or how many there are.
fn devices(plan: &Plan) -> String {
    let stages = plan.stages.iter().filter(|stage| stage.head || !stage.layers.is_empty());
    let named: Vec<String> =
        stages.map(|stage| format!("{} ({})", stage.device, stage.layers.end - stage.layers.start)).collect();
    match named.len() {
        0..=8 => named.join(", "),
        many => format!("{many} devices"),
    }
}
