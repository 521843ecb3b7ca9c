//! The plan in force, checked against the cluster and the model of now.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plimsoll_cluster::NodeStatus;
use plimsoll_units::DeviceRef;

use super::error::RebalanceError;
use super::types::{Piece, RebalanceOptions};
use crate::context::Context;
use crate::items::Class;
use crate::plan::{Plan, Stage};
use crate::workload::{LayerRange, Objective, Pipelines, Transfers};

/// A place that something lies on or may lie on.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) device: DeviceRef,
    /// Its pool, as an index into the fleet's; `None` where its contents are lost.
    pub(crate) pool: Option<usize>,
    /// The most of the pool that it can use.
    pub(crate) limit: u64,
    /// Whose bytes its buffers follow.
    pub(crate) class: usize,
    /// What takes part in planning: the main host is `Some(None)`, a device of the fleet its number.
    pub(crate) candidate: Option<Option<usize>>,
}

/// Runs of a model's parts on places, from front to back.
///
/// The parts are numbered: 0 is the input, then come the layers, and last the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lay {
    pub(crate) runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// An index into [`Given::places`].
    pub(crate) place: usize,
    pub(crate) parts: Range<usize>,
    /// What the engine takes beside: charges, and what every device keeps a copy of.
    pub(crate) own: u64,
}

/// Everything that is known of now.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    pub(crate) context: &'a Context<'a>,
    /// Every device that the snapshot or the plan has.
    pub(crate) places: Vec<Place>,
    numbers: BTreeMap<DeviceRef, usize>,
    /// The plan in force.
    pub(crate) old: Lay,
    /// Moves under way: parts, from, to.
    pub(crate) in_flight: Vec<(Range<usize>, usize, usize)>,
}

/// A run of parts that changes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) parts: Range<usize>,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl<'a> Given<'a> {
    /// Reads the plan in force.
    pub(crate) fn read(
        context: &'a Context<'a>,
        current: &Plan,
        options: &RebalanceOptions,
    ) -> Result<Self, RebalanceError> {
        check_request(context, current, options)?;
        let mut given = Self {
            context,
            places: Vec::new(),
            numbers: BTreeMap::new(),
            old: Lay { runs: Vec::new() },
            in_flight: Vec::new(),
        };
        given.add_places(options);
        given.read_stages(current, options)?;
        given.read_in_flight(options)?;
        Ok(given)
    }

    /// Every device of the snapshot; pools are numbered as the fleet numbers them.
    fn add_places(&mut self, options: &RebalanceOptions) {
        let context = self.context;
        let fleet = &context.fleet;
        let host = fleet.host.as_ref();
        let mut pools = 0;
        for node in &context.snapshot.nodes {
            let first = pools;
            pools += node.pools.len();
            for device in &node.devices {
                let reference = DeviceRef { node: node.id.clone(), device: device.id.clone() };
                let lost = node.status == NodeStatus::Failed || options.lost.contains(&reference);
                let pool = node.pools.iter().position(|pool| pool.id == device.pool).map(|at| first + at);
                let is_host = host.is_some_and(|host| host.place.device == reference);
                let number = fleet.devices.binary_search_by(|c| c.device.cmp(&reference)).ok();
                let limit = match (is_host, number) {
                    (true, _) => host.map(|host| host.place.limit),
                    (false, Some(number)) => Some(fleet.devices[number].limit),
                    (false, None) => None,
                };
                self.add(Place {
                    pool: pool.filter(|_| !lost),
                    limit: limit.unwrap_or(u64::MAX),
                    class: context.class_index(device.backend),
                    candidate: if is_host { Some(None) } else { number.map(Some) },
                    device: reference,
                });
            }
        }
    }

    fn add(&mut self, place: Place) -> usize {
        let number = self.places.len();
        self.numbers.insert(place.device.clone(), number);
        self.places.push(place);
        number
    }

    pub(crate) fn number(&self, device: &DeviceRef) -> Option<usize> {
        self.numbers.get(device).copied()
    }

    /// The place of a device of the fleet.
    pub(crate) fn of_candidate(&self, device: usize) -> usize {
        self.number(&self.context.fleet.devices[device].device).unwrap_or(0)
    }

    /// The place of the main host.
    pub(crate) fn of_host(&self) -> Option<usize> {
        self.number(&self.context.fleet.host.as_ref()?.place.device)
    }

    /// How many parts there are.
    pub(crate) fn parts(&self) -> usize {
        self.context.items.layers() + 2
    }

    fn read_stages(&mut self, current: &Plan, options: &RebalanceOptions) -> Result<(), RebalanceError> {
        let context = self.context;
        let items = &context.items;
        let (start, end) = (items.index(0), items.index(items.layers()));
        let held = |stage: Option<&Stage>, at: fn(&Stage) -> u32| stage.map_or(0, at);
        let plan_start = held(current.stages.first(), |s| s.layers.start);
        let plan_end = held(current.stages.last(), |s| s.layers.end);
        if items.layers() == 0 && current.stages.is_empty() {
            return Ok(());
        }
        if (plan_start, plan_end) != (start, end) {
            return Err(RebalanceError::OtherLayers { plan_start, plan_end, start, end });
        }
        let mut seen = BTreeSet::new();
        let mut next = start;
        let count = current.stages.len();
        for (at, stage) in current.stages.iter().enumerate() {
            let device = stage.device.clone();
            if !seen.insert(&stage.device) {
                return Err(RebalanceError::RepeatedDevice { device });
            }
            let place_of = |index: u32| usize::try_from(index.saturating_sub(start)).unwrap_or(usize::MAX);
            let (from, to) = (place_of(stage.layers.start), place_of(stage.layers.end));
            let ends = (stage.input, stage.head) == (at == 0, at + 1 == count);
            let cuts = items.cuts.binary_search(&from).is_ok() && items.cuts.binary_search(&to).is_ok();
            if stage.layers.start != next || to < from || !ends || !cuts {
                return Err(RebalanceError::BrokenPlan { device, at: stage.layers.start });
            }
            next = stage.layers.end;
            let first = if stage.input { 0 } else { from + 1 };
            let last = if stage.head { to + 2 } else { to + 1 };
            let place = match self.number(&stage.device) {
                Some(place) => {
                    self.same_bytes(stage, place, first..last)?;
                    place
                }
                None => self.vanished(current, &stage.device, options)?,
            };
            let copies = if from < to { self.class(place).each_device } else { 0 };
            let own = stage.overhead_bytes.get().saturating_add(copies);
            self.old.runs.push(Run { place, parts: first..last, own });
        }
        Ok(())
    }

    /// A device that the snapshot does not have: lost, when it may have been there before.
    fn vanished(
        &mut self,
        current: &Plan,
        device: &DeviceRef,
        options: &RebalanceOptions,
    ) -> Result<usize, RebalanceError> {
        let generation = self.context.snapshot.generation;
        if current.basis == generation && !options.lost.contains(device) {
            return Err(RebalanceError::UnknownDevice { device: device.clone(), generation });
        }
        Ok(self.add(Place { device: device.clone(), pool: None, limit: 0, class: 0, candidate: None }))
    }

    fn same_bytes(&self, stage: &Stage, place: usize, parts: Range<usize>) -> Result<(), RebalanceError> {
        let copies = if stage.layers.is_empty() { 0 } else { self.class(place).each_device };
        let model = self.size_with(place, &parts, stage.input).saturating_add(copies);
        let plan = stage.weights_bytes.saturating_add(stage.kv_bytes).get();
        if plan == model {
            return Ok(());
        }
        let (start, end) = (stage.layers.start, stage.layers.end);
        Err(RebalanceError::OtherModel { device: stage.device.clone(), start, end, plan, model })
    }

    fn read_in_flight(&mut self, options: &RebalanceOptions) -> Result<(), RebalanceError> {
        for moving in &options.in_flight {
            let Piece { layers, input, head } = moving.what;
            let wrong =
                || RebalanceError::InFlight { start: layers.start, end: layers.end, to: moving.to.clone() };
            let base = self.context.items.index(0);
            let at = |index: u32| index.checked_sub(base).and_then(|at| usize::try_from(at).ok());
            let (start, end) = at(layers.start).zip(at(layers.end)).ok_or_else(wrong)?;
            let start = if input { 0 } else { start + 1 };
            let end = if head { end + 2 } else { end + 1 };
            let from = self.number(&moving.from).ok_or_else(wrong)?;
            let to = self.number(&moving.to).ok_or_else(wrong)?;
            let lies = self.old.runs.iter().any(|run| {
                run.place == from && run.parts.start <= start && end <= run.parts.end && start < end
            });
            let apart = self.in_flight.iter().all(|(parts, _, _)| parts.end <= start || end <= parts.start);
            let alive = self.places[from].pool.is_some() && self.places[to].pool.is_some();
            if !lies || !apart || !alive || from == to || self.places[to].candidate.is_none() {
                return Err(wrong());
            }
            self.in_flight.push((start..end, from, to));
        }
        Ok(())
    }

    /// The bytes that a place's buffers follow.
    pub(crate) fn class(&self, place: usize) -> &Class {
        &self.context.items.classes[self.places[place].class]
    }

    /// What parts take on a place, where the input lies there or not.
    pub(crate) fn size_with(&self, place: usize, parts: &Range<usize>, with_input: bool) -> u64 {
        let class = self.class(place);
        let layers = self.layers(parts);
        let input = if parts.contains(&0) { class.input } else { 0 };
        let head = match (parts.end == self.parts() && !parts.is_empty(), with_input) {
            (false, _) => 0,
            (true, true) => class.head_beside_input,
            (true, false) => class.head,
        };
        class.resident(layers.start, layers.end).saturating_add(input).saturating_add(head)
    }

    /// The places of layers among parts.
    pub(crate) fn layers(&self, parts: &Range<usize>) -> Range<usize> {
        let all = self.context.items.layers();
        let at = |part: usize| part.saturating_sub(1).min(all);
        at(parts.start)..at(parts.end)
    }

    /// How many key-value bytes are among parts on a place.
    pub(crate) fn kv(&self, place: usize, parts: &Range<usize>) -> u64 {
        let layers = self.layers(parts);
        self.class(place).kv(layers.start, layers.end)
    }

    /// Parts as people name them.
    pub(crate) fn piece(&self, parts: &Range<usize>) -> Piece {
        let layers = self.layers(parts);
        let index = |at| self.context.items.index(at);
        Piece {
            layers: LayerRange { start: index(layers.start), end: index(layers.end) },
            input: parts.contains(&0),
            head: parts.end == self.parts() && !parts.is_empty(),
        }
    }

    /// Where parts lie once the moves under way have come to their end, run by run.
    pub(crate) fn settled(&self) -> Vec<(usize, Range<usize>)> {
        let mut moving = self.in_flight.clone();
        moving.sort_by_key(|(parts, _, _)| parts.start);
        let mut runs = Vec::new();
        for run in &self.old.runs {
            let mut at = run.parts.start;
            for (parts, _, to) in moving.iter().filter(|m| run.parts.contains(&m.0.start)) {
                runs.push((run.place, at..parts.start));
                runs.push((*to, parts.clone()));
                at = parts.end;
            }
            runs.push((run.place, at..run.parts.end));
        }
        runs.retain(|(_, parts)| !parts.is_empty());
        runs
    }

    /// What changes its place on the way to a target.
    pub(crate) fn changes(&self, target: &Lay) -> Vec<Change> {
        let old = self.settled();
        let (mut a, mut b) = (0, 0);
        let mut changes: Vec<Change> = Vec::new();
        while let (Some((from, old)), Some(new)) = (old.get(a), target.runs.get(b)) {
            let parts = old.start.max(new.parts.start)..old.end.min(new.parts.end);
            if !parts.is_empty() && *from != new.place {
                match changes.last_mut() {
                    Some(last) if (last.from, last.to, last.parts.end) == (*from, new.place, parts.start) => {
                        last.parts.end = parts.end;
                    }
                    _ => changes.push(Change { parts: parts.clone(), from: *from, to: new.place }),
                }
            }
            if old.end <= new.parts.end {
                a += 1;
            }
            if new.parts.end <= old.end {
                b += 1;
            }
        }
        changes
    }

    /// What a change takes where it goes.
    pub(crate) fn arrives(&self, target: &Lay, change: &Change) -> u64 {
        self.size_with(change.to, &change.parts, target.has_input(change.to))
    }

    /// What a change takes where it lies.
    pub(crate) fn leaves(&self, change: &Change) -> u64 {
        self.size_with(change.from, &change.parts, self.old.has_input(change.from))
    }

    /// Bytes that a target moves, and bytes that it has to load.
    pub(crate) fn bytes(&self, target: &Lay) -> (u64, u64) {
        let mut bytes = (0_u64, 0_u64);
        for change in self.changes(target) {
            let size = self.arrives(target, &change);
            let lost = self.places[change.from].pool.is_none();
            let sum = if lost { &mut bytes.1 } else { &mut bytes.0 };
            *sum = sum.saturating_add(size);
        }
        bytes
    }

    /// Bytes that any target has to send: what lies where nothing may.
    pub(crate) fn forced(&self) -> u64 {
        let classes = &self.context.items.classes;
        let runs = self.settled().into_iter().filter(|(place, _)| self.places[*place].candidate.is_none());
        let least = |parts: &Range<usize>| {
            let layers = self.layers(parts);
            let sizes = classes.iter().map(|class| {
                let head = class.head.min(class.head_beside_input);
                let head = if parts.end == self.parts() { head } else { 0 };
                let input = if parts.start == 0 { class.input } else { 0 };
                class.resident(layers.start, layers.end).saturating_add(head).saturating_add(input)
            });
            sizes.min().unwrap_or(0)
        };
        runs.map(|(_, parts)| least(&parts)).fold(0, u64::saturating_add)
    }
}

impl Lay {
    /// Whether the input lies on a place.
    pub(crate) fn has_input(&self, place: usize) -> bool {
        self.runs.first().is_some_and(|run| run.place == place && run.parts.start == 0)
    }

    /// What the engine takes beside on a place.
    pub(crate) fn own(&self, place: usize) -> u64 {
        self.runs.iter().filter(|run| run.place == place).map(|run| run.own).fold(0, u64::saturating_add)
    }
}

fn check_request(
    context: &Context<'_>,
    current: &Plan,
    options: &RebalanceOptions,
) -> Result<(), RebalanceError> {
    let tolerance = options.tolerance;
    if !tolerance.is_finite() || tolerance < 0.0 {
        return Err(RebalanceError::Tolerance { tolerance });
    }
    let copies = current.stages.iter().map(|stage| stage.pipeline.saturating_add(1)).max().unwrap_or(1);
    let transfers =
        context.options.objective == Objective::Throughput && context.options.transfers != Transfers::Apart;
    if copies > 1 || context.options.pipelines != Pipelines::One || transfers {
        return Err(RebalanceError::NotOnePipeline { copies });
    }
    let (plan, snapshot) = (current.basis, context.snapshot.generation);
    if plan > snapshot {
        return Err(RebalanceError::NewerPlan { plan, snapshot });
    }
    let (in_flight, limit) = (options.in_flight.len(), options.max_concurrent.get());
    if u32::try_from(in_flight).is_ok_and(|n| n < limit) || in_flight == 0 {
        Ok(())
    } else {
        Err(RebalanceError::Busy { in_flight, limit })
    }
}
