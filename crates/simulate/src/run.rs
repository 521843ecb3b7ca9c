//! Made-up time, from one moment at which something happens to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_balance::{Hysteresis, Plan, skew};
use plimsoll_cluster::{ClusterEvent, ClusterState, Identity, Moment, NodeStatus};
use plimsoll_residency::Book;
use plimsoll_units::{Bytes, DeviceRef, NodeId, PoolId};

use crate::chance::all_events;
use crate::report::{ModelReport, Mood, Report};
use crate::scenario::{Scenario, Unsound, Wanted};
use crate::world::{Place, Told, World};

/// Runs a scenario to its end.
///
/// `clock` tells how much time has really passed, and is read around every question to a planner: a monotone clock of the
/// process, or one that stands still where nobody wants to know.
///
/// # Errors
///
/// The scenario is not sound ([`Scenario::validate`]); nothing was run then.
pub fn simulate(scenario: &Scenario, clock: &mut dyn FnMut() -> Duration) -> Result<Report, Unsound> {
    scenario.validate()?;
    let mut run = Run::new(scenario, clock);
    run.run();
    Ok(run.report)
}

/// One run.
pub(crate) struct Run<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) clock: &'a mut dyn FnMut() -> Duration,
    pub(crate) world: World,
    pub(crate) state: ClusterState,
    pub(crate) book: Book,
    /// What the ledger calls a pool of the cluster.
    pub(crate) pools: BTreeMap<Place, PoolId>,
    pub(crate) models: Vec<Model<'a>>,
    /// The models by priority, the first first.
    pub(crate) order: Vec<usize>,
    pub(crate) report: Report,
    pub(crate) now: Duration,
    /// Counts what may make room or speed: memory given back, nodes that come.
    pub(crate) better: u64,
    /// What the models held at the last check.
    pub(crate) tally: BTreeMap<Place, Bytes>,
    told: BTreeMap<Place, (Bytes, Bytes)>,
    dirty: BTreeSet<NodeId>,
    out_of_balance: bool,
}

/// A model and where it is.
pub(crate) struct Model<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) placed: Option<Placed>,
    pub(crate) hysteresis: Hysteresis,
    /// At which count of improvements a place was looked for last, in vain.
    pub(crate) tried: Option<u64>,
}

/// A model that has a place.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) plan: Plan,
    /// What it holds where; while layers move, the most that it will.
    pub(crate) held: BTreeMap<Place, Bytes>,
    /// From when on everything is loaded.
    pub(crate) ready: Duration,
    pub(crate) moving: Option<Moving>,
    /// Devices of the plan whose contents are known to be gone.
    pub(crate) lost: BTreeSet<DeviceRef>,
    /// How often each of its nodes had been started when it came there.
    pub(crate) starts: BTreeMap<NodeId, u32>,
    /// At which count of improvements it could not be mended.
    pub(crate) mended: Option<u64>,
    /// What a rebalancing would gain, and at which count of improvements that was so.
    pub(crate) gain: Option<(u64, f64)>,
}

/// Layers under way.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) ends: Duration,
    /// What is held where afterwards.
    pub(crate) then: BTreeMap<Place, Bytes>,
    /// Where bytes come from.
    pub(crate) sources: Vec<(DeviceRef, Bytes)>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(scenario: &'a Scenario, clock: &'a mut dyn FnMut() -> Duration) -> Self {
        let state = ClusterState::with_limits(scenario.limits).expect("limits of a sound scenario");
        let policy = &scenario.policy;
        let model = |wanted| Model {
            wanted,
            placed: None,
            hysteresis: Hysteresis::new(policy.least_gain, policy.cool_down, policy.samples),
            tried: None,
        };
        let models: Vec<Model<'a>> = scenario.models.iter().map(model).collect();
        let mut order: Vec<usize> = (0..models.len()).collect();
        order.sort_by_key(|i| (std::cmp::Reverse(models[*i].wanted.priority), &models[*i].wanted.name));
        let named = |wanted: &Wanted| ModelReport { name: wanted.name.clone(), ..ModelReport::default() };
        let report = Report {
            name: scenario.name.clone(),
            seed: scenario.seed,
            duration: scenario.duration,
            nodes: scenario.start.nodes.len(),
            looks: 0,
            models: scenario.models.iter().map(named).collect(),
            refusals: BTreeMap::new(),
            out_of_balance: Duration::ZERO,
            largest_skew: 1.0,
            violations: Vec::new(),
            planned: 0,
            planning: Duration::ZERO,
            noted: Vec::new(),
            not_kept: 0,
        };
        let mut run = Self {
            scenario,
            clock,
            world: World::new(scenario),
            state,
            book: Book::new([]),
            pools: BTreeMap::new(),
            models,
            order,
            report,
            now: Duration::ZERO,
            better: 0,
            tally: BTreeMap::new(),
            told: BTreeMap::new(),
            dirty: BTreeSet::new(),
            out_of_balance: false,
        };
        run.start();
        run
    }

    fn start(&mut self) {
        for node in &self.scenario.start.nodes {
            self.register(&node.id);
            if node.drained {
                let _told = self.state.drain(&node.id);
            }
        }
        for link in &self.scenario.start.links {
            self.state.connect(link.clone()).expect("links of a sound snapshot join its nodes");
        }
    }

    fn run(&mut self) {
        let events = all_events(self.scenario);
        let mut coming = events.iter().peekable();
        let mut next_look = Duration::ZERO;
        loop {
            while let Some(event) = coming.next_if(|event| event.at <= self.now) {
                self.report.note(self.now, event.what.to_string());
                let told = self.world.happen(&event.what);
                self.tell_of(told, &event.what);
            }
            self.finish_moves();
            if next_look <= self.now {
                self.look();
                next_look += self.scenario.sample;
            }
            let at = self.next_moment(next_look, coming.peek().map(|event| event.at));
            self.spend(at);
            self.now = at;
            if at >= self.scenario.duration {
                break;
            }
        }
        self.finish();
    }

    fn next_moment(&self, look: Duration, event: Option<Duration>) -> Duration {
        let mut at = self.scenario.duration.min(look).min(event.unwrap_or(Duration::MAX));
        for model in &self.models {
            let placed = model.placed.as_ref();
            let moments = [
                Some(model.wanted.from),
                model.wanted.until,
                placed.map(|placed| placed.ready),
                placed.and_then(|placed| placed.moving.as_ref().map(|moving| moving.ends)),
            ];
            for moment in moments.into_iter().flatten().filter(|moment| *moment > self.now) {
                at = at.min(moment);
            }
        }
        at
    }

    /// Everything stays as it is until `at`.
    fn spend(&mut self, at: Duration) {
        for i in 0..self.models.len() {
            if let Some(mood) = self.mood(i) {
                self.report.models[i].spend(self.now, at, mood);
            }
        }
        if self.out_of_balance {
            self.report.out_of_balance += at.saturating_sub(self.now);
        }
    }

    fn mood(&self, i: usize) -> Option<Mood> {
        let model = &self.models[i];
        if !model.wanted.is_wanted(self.now) {
            return None;
        }
        let Some(placed) = &model.placed else { return Some(Mood::Waiting) };
        let gone = |(node, starts): (&NodeId, &u32)| {
            self.world.machines.get(node).is_none_or(|machine| !machine.is_up() || machine.starts != *starts)
        };
        Some(match placed {
            placed if placed.starts.iter().any(gone) => Mood::Stalled,
            placed if self.now < placed.ready => Mood::Loading,
            placed if placed.moving.is_some() => Mood::Moving,
            _ => Mood::Serving,
        })
    }

    fn finish_moves(&mut self) {
        for i in 0..self.models.len() {
            let placed = self.models[i].placed.as_mut();
            let Some(placed) =
                placed.filter(|placed| placed.moving.as_ref().is_some_and(|m| m.ends <= self.now))
            else {
                continue;
            };
            if let Some(moving) = placed.moving.take() {
                let then = moving.then;
                self.hold(i, then);
            }
        }
    }

    fn finish(&mut self) {
        for (model, report) in self.models.iter().zip(&mut self.report.models) {
            report.value = model.placed.as_ref().and_then(|placed| placed.plan.value.value);
        }
    }

    /// One look of the controller.
    pub(crate) fn look(&mut self) {
        self.report.looks += 1;
        self.tell();
        let moment = Moment::after_start(self.now);
        for (id, machine) in &self.world.machines {
            if machine.is_up()
                && let Ok(Some(event)) = self.state.heartbeat(id, moment)
            {
                self.report.note(self.now, event.to_string());
                self.better += 1;
            }
        }
        for event in self.state.sweep(moment) {
            self.hear(&event);
        }
        self.control();
        let report = skew(&self.state.snapshot(), self.scenario.policy.threshold);
        self.report.largest_skew = self.report.largest_skew.max(report.ratio);
        self.out_of_balance = self.is_out_of_balance();
        self.check();
    }

    fn is_out_of_balance(&self) -> bool {
        let least = self.scenario.policy.least_gain;
        let worse = |placed: &Placed| placed.gain.is_some_and(|(_, gain)| gain > 0.0 && gain >= least);
        self.models
            .iter()
            .filter_map(|model| model.placed.as_ref())
            .any(|placed| !placed.lost.is_empty() || placed.mended.is_some() || worse(placed))
    }

    /// Takes in what the cluster says of its nodes.
    fn hear(&mut self, event: &ClusterEvent) {
        self.report.note(self.now, event.to_string());
        match event {
            ClusterEvent::Status { node, to: NodeStatus::Failed, .. } | ClusterEvent::Left { node } => {
                self.contents_gone(node);
            }
            ClusterEvent::CameBack { node, rebooted: true } => {
                self.contents_gone(node);
                self.better += 1;
            }
            ClusterEvent::Status { node: _, to: NodeStatus::Active, .. }
            | ClusterEvent::CameBack { .. }
            | ClusterEvent::Joined { .. }
            | ClusterEvent::TookOver { .. }
            | ClusterEvent::Renamed { .. }
            | ClusterEvent::Undrained { .. } => self.better += 1,
            ClusterEvent::Status { .. }
            | ClusterEvent::Drained { .. }
            | ClusterEvent::FreeOutdated { .. } => {}
        }
    }

    /// What models held on a node is gone, and their bookings there with it.
    fn contents_gone(&mut self, node: &NodeId) {
        let load_rate = self.scenario.policy.load_rate;
        for i in 0..self.models.len() {
            let Some(placed) = &mut self.models[i].placed else { continue };
            let here = placed.plan.stages.iter().filter(|stage| stage.device.node == *node);
            let here: BTreeSet<DeviceRef> = here.map(|stage| stage.device.clone()).collect();
            let mut held = placed.held.clone();
            held.retain(|(at, _), _| at != node);
            if let Some(moving) = &mut placed.moving {
                moving.then.retain(|(at, _), _| at != node);
                // What had not arrived is read from the store instead, which takes its time.
                let missing = moving.sources.iter().filter(|(from, _)| from.node == *node);
                let missing = Bytes::saturating_sum(missing.map(|(_, bytes)| *bytes));
                if !missing.is_zero() {
                    moving.ends = moving.ends.saturating_add(load_rate.time_for(missing).unwrap_or_default());
                    placed.ready = placed.ready.max(moving.ends);
                    let report = &mut self.report.models[i];
                    report.loaded_bytes = report.loaded_bytes.saturating_add(missing);
                }
            }
            if here.is_empty() && held.len() == placed.held.len() {
                continue;
            }
            placed.lost.extend(here);
            self.hold(i, held);
        }
    }

    fn tell_of(&mut self, told: Told, what: &crate::Happening) {
        if let crate::Happening::Outside { node, .. } = what {
            self.dirty.insert(node.clone());
        }
        match told {
            Told::Nothing => {}
            Told::Register(id) => self.register(&id),
            Told::Deregister(id) => {
                if let Ok(event) = self.state.deregister(&id) {
                    self.told.retain(|(node, _), _| *node != id);
                    self.hear(&event);
                }
            }
            Told::Drain(id, drained) => {
                let event = if drained { self.state.drain(&id) } else { self.state.undrain(&id) };
                if let Ok(Some(event)) = event {
                    self.better += u64::from(matches!(event, ClusterEvent::Undrained { .. }));
                }
            }
            Told::Link(link) => {
                if self.state.connect(link).is_ok() {
                    self.better += 1;
                }
            }
        }
    }

    fn register(&mut self, id: &NodeId) {
        let Some(machine) = self.world.machines.get(id) else { return };
        let boot_id = Some(format!("{id}, start {}", machine.starts));
        let identity = Identity { boot_id, address: Some(id.to_string()) };
        match self.state.register_node(machine.node.clone(), identity) {
            Ok(event) => {
                if self.now > Duration::ZERO {
                    self.hear(&event);
                }
            }
            Err(error) => self.report.violations.push(format!("a node could not register: {error}")),
        }
        self.told.retain(|(node, _), _| node != id);
        self.dirty.insert(id.clone());
        // Whoever registers is heard of.
        let _active = self.state.heartbeat(id, Moment::after_start(self.now));
    }

    /// Tells the cluster what is free and held where that has changed, on nodes that answer.
    pub(crate) fn tell(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        let moment = Moment::after_start(self.now);
        for id in dirty {
            let Some(machine) = self.world.machines.get(&id).filter(|machine| machine.is_up()) else {
                self.dirty.insert(id);
                continue;
            };
            for pool in &machine.node.pools {
                let place = (id.clone(), pool.id.clone());
                let held = self.held_at(&place);
                let outside = machine.outside.get(&pool.id).copied().unwrap_or(Bytes::ZERO);
                let free = pool.total.saturating_sub(outside).saturating_sub(held);
                let before = self.told.insert(place, (free, held));
                if before == Some((free, held)) {
                    continue;
                }
                self.better += u64::from(before.is_none_or(|(was, _)| was < free));
                // Unknown figures stay unknown until somebody says them.
                if pool.free.is_none() && outside == pool.total {
                    continue;
                }
                let told = self.state.update_metrics(&id, |metrics| {
                    metrics.record_free(&pool.id, free, moment)?;
                    metrics.record_held(&pool.id, held)
                });
                if !matches!(told, Ok(Ok(()))) {
                    self.report
                        .violations
                        .push(format!("the cluster refuses what is told of {id}/{}", pool.id));
                }
            }
        }
    }

    /// What all models hold at a place.
    pub(crate) fn held_at(&self, place: &Place) -> Bytes {
        let held = self.models.iter().filter_map(|model| model.placed.as_ref()?.held.get(place));
        Bytes::saturating_sum(held.copied())
    }

    /// A model holds this from now on.
    pub(crate) fn hold(&mut self, i: usize, held: BTreeMap<Place, Bytes>) {
        let before = match &mut self.models[i].placed {
            Some(placed) => std::mem::replace(&mut placed.held, held.clone()),
            None => BTreeMap::new(),
        };
        self.dirty.extend(before.keys().chain(held.keys()).map(|(node, _)| node.clone()));
        self.book_for(i, &held);
        self.tell();
    }

    /// A model gives up its place.
    pub(crate) fn let_go(&mut self, i: usize) {
        let Some(placed) = self.models[i].placed.take() else { return };
        self.dirty.extend(placed.held.keys().map(|(node, _)| node.clone()));
        self.book.release(&self.models[i].wanted.name);
        self.models[i].tried = None;
        self.tell();
    }
}
