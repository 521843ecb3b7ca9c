//! What moves from one saved plan to another.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plimsoll_export::{FormatError, PlanFile, RunRecord};
use plimsoll_units::{Bytes, DeviceRef};

/// Why two plans cannot be compared. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A file holds words without a meaning.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// They place different models.
    #[error("the plans are for different models: {old} ({old_digest}) and {new} ({new_digest})")]
    OtherModel {
        /// What the old plan places.
        old: String,
        /// Its digest.
        old_digest: String,
        /// What the new plan places.
        new: String,
        /// Its digest.
        new_digest: String,
    },
    /// Parts of layers lie apart, and the files do not tell what they take, or tell different parts.
    #[error(
        "parts of layers lie apart from them, and the plans do not tell the same parts of the same layers"
    )]
    OtherParts,
}

/// What moves from one plan to another. Bytes are those of the new plan's request, as the model's own tensors have them.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// Whether both plans are for the same request; otherwise the same layers take other key-value bytes, which are then
    /// made anew and do not move.
    pub same_request: bool,
    /// Every device of either plan, by id.
    pub devices: Vec<DeviceDiff>,
    /// What changes its device, in the order of the layers.
    pub moves: Vec<Moved>,
    /// Everything that is placed: layers, input and head.
    pub total: Bytes,
}

/// One device in both plans.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceDiff {
    /// The device.
    pub device: DeviceRef,
    /// What it holds in the old plan.
    pub old: Held,
    /// And in the new one.
    pub new: Held,
}

/// What a device holds in one plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Runs of layers, in order; one for each copy of the model it is part of.
    pub layers: Vec<Range<u32>>,
    /// Whether the input lies here.
    pub input: bool,
    /// Whether the head lies here.
    pub head: bool,
    /// All that lies here, charges included.
    pub used: Bytes,
    /// What may be used here; zero where the plan does not use the device.
    pub budget: Bytes,
}

/// Something that changes its device.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// What.
    pub what: What,
    /// Where it lies in the old plan; `None` where nothing there gives it up: it is copied or loaded.
    pub from: Option<DeviceRef>,
    /// Where it lies in the new plan; `None` where it is only given up.
    pub to: Option<DeviceRef>,
    /// Weights, and key-value cells where the request is the same.
    pub bytes: Bytes,
}

/// What changes its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The token embedding.
    Input,
    /// Layers in a row; without the part that lies elsewhere in either plan.
    Layers(Range<u32>),
    /// Parts of layers in a row: experts, say.
    Parts(Range<u32>),
    /// The output.
    Head,
}

/// Compares two saved plans for the same model.
///
/// # Errors
///
/// Plans for different models. The same model with another context or another form of the cache is no different model.
pub fn diff(old: &PlanFile, new: &PlanFile) -> Result<Diff, DiffError> {
    let same_request = old.model.digest == new.model.digest;
    if !same_request && !same_weights(old, new) {
        return Err(DiffError::OtherModel {
            old: old.model.name.clone(),
            old_digest: old.model.digest.clone(),
            new: new.model.name.clone(),
            new_digest: new.model.digest.clone(),
        });
    }
    let bytes = layer_bytes(new, same_request);
    let (input, head) = (Bytes::new(new.model.input_bytes), Bytes::new(new.model.head_bytes));
    let layers = bytes.iter().copied();
    let total = Bytes::saturating_sum(layers.chain([input, head]));
    let (before, after) = (by_device(old), by_device(new));
    let mut moves = Vec::new();
    moves.extend(changes(&before, &after, |held| held.input).map(|(from, to)| Moved {
        what: What::Input,
        from,
        to,
        bytes: input,
    }));
    let apart = Apart::new(old, new)?;
    for (index, bytes) in (0_u32..).zip(&bytes) {
        let holds = |held: &Held| held.layers.iter().any(|run| run.contains(&index));
        let part = apart.bytes(index);
        for (from, to) in changes(&before, &after, holds) {
            let bytes = bytes.saturating_sub(part.unwrap_or(Bytes::ZERO));
            moves.push(Moved { what: What::Layers(index..index + 1), from, to, bytes });
        }
        let Some(bytes) = part else { continue };
        let places = [(old, &before), (new, &after)].map(|(file, held)| part_at(file, held, index));
        if let [from, to] = places
            && from != to
        {
            moves.push(Moved { what: What::Parts(index..index + 1), from, to, bytes });
        }
    }
    for (from, to) in changes(&before, &after, |held| held.head) {
        let beside = to.as_ref().and_then(|to| after.get(to)).is_some_and(|held| held.input);
        let bytes = if beside { Bytes::new(new.model.head_beside_input_bytes) } else { head };
        moves.push(Moved { what: What::Head, from, to, bytes });
    }
    let all: BTreeSet<&DeviceRef> = before.keys().chain(after.keys()).collect();
    let held = |plan: &BTreeMap<DeviceRef, Held>, device| plan.get(device).cloned().unwrap_or_default();
    let devices = all.into_iter().map(|device| DeviceDiff {
        device: device.clone(),
        old: held(&before, device),
        new: held(&after, device),
    });
    Ok(Diff { same_request, devices: devices.collect(), moves: together(moves), total })
}

impl Diff {
    /// All that comes to a device which has not had it.
    pub fn moved(&self) -> Bytes {
        Bytes::saturating_sum(self.moves.iter().filter(|moved| moved.to.is_some()).map(|moved| moved.bytes))
    }

    /// How many layers come to a device which has not had them.
    pub fn moved_layers(&self) -> u32 {
        let coming = self.moves.iter().filter(|moved| moved.to.is_some());
        coming.map(|moved| moved.what.layers()).fold(0, u32::saturating_add)
    }

    /// What comes to a device, and what leaves it.
    pub fn of(&self, device: &DeviceRef) -> (Vec<&Moved>, Vec<&Moved>) {
        let come = self.moves.iter().filter(|moved| moved.to.as_ref() == Some(device));
        let go = self.moves.iter().filter(|moved| moved.from.as_ref() == Some(device));
        (come.collect(), go.collect())
    }
}

impl What {
    /// How many layers it is.
    pub fn layers(&self) -> u32 {
        match self {
            Self::Layers(layers) => layers.end.saturating_sub(layers.start),
            Self::Input | Self::Parts(_) | Self::Head => 0,
        }
    }
}

/// Whether both plans place layers with the same weights, whatever the request.
fn same_weights(old: &PlanFile, new: &PlanFile) -> bool {
    let (a, b) = (&old.model, &new.model);
    let ends = |m: &plimsoll_export::ModelRecord| {
        (m.layers, m.input_bytes, m.head_bytes, m.head_beside_input_bytes, m.each_device_bytes, m.nextn)
    };
    let alike = |x: &RunRecord, y: &RunRecord| {
        (x.weights_bytes, x.read_bytes, x.cut) == (y.weights_bytes, y.read_bytes, y.cut)
    };
    a.architecture == b.architecture
        && ends(a) == ends(b)
        && each(&a.runs).zip(each(&b.runs)).all(|(x, y)| alike(x, y))
}

/// The layers one by one.
fn each(runs: &[RunRecord]) -> impl Iterator<Item = &RunRecord> {
    runs.iter().flat_map(|run| (0..run.count).map(move |_| run))
}

/// What each layer takes when it moves.
fn layer_bytes(file: &PlanFile, with_kv: bool) -> Vec<Bytes> {
    let bytes = |run: &RunRecord| {
        let kv = if with_kv { run.kv_bytes } else { 0 };
        Bytes::new(run.weights_bytes).saturating_add(Bytes::new(kv))
    };
    each(&file.model.runs).map(bytes).collect()
}

fn by_device(file: &PlanFile) -> BTreeMap<DeviceRef, Held> {
    let mut devices: BTreeMap<DeviceRef, Held> = BTreeMap::new();
    for stage in &file.stages {
        let device = DeviceRef { node: stage.node.clone(), device: stage.device.clone() };
        let held = devices.entry(device).or_default();
        if stage.layers[0] < stage.layers[1] {
            held.layers.push(stage.layers[0]..stage.layers[1]);
        }
        held.input |= stage.input;
        held.head |= stage.head;
        let parts = [stage.weights_bytes, stage.kv_bytes, stage.overhead_bytes].map(Bytes::new);
        held.used = held.used.saturating_add(Bytes::saturating_sum(parts));
        held.budget = held.budget.max(Bytes::new(stage.budget_bytes));
    }
    devices
}

/// From where to where a thing goes: devices that give it up and devices that get it, in pairs as far as there are both.
fn changes(
    before: &BTreeMap<DeviceRef, Held>,
    after: &BTreeMap<DeviceRef, Held>,
    holds: impl Fn(&Held) -> bool,
) -> impl Iterator<Item = (Option<DeviceRef>, Option<DeviceRef>)> {
    let among = |plan: &BTreeMap<DeviceRef, Held>| -> BTreeSet<DeviceRef> {
        plan.iter().filter(|(_, held)| holds(held)).map(|(device, _)| device.clone()).collect()
    };
    let (had, has) = (among(before), among(after));
    let mut from: Vec<DeviceRef> = had.difference(&has).cloned().collect();
    let mut to: Vec<DeviceRef> = has.difference(&had).cloned().collect();
    from.reverse();
    to.reverse();
    std::iter::from_fn(move || {
        let pair = (from.pop(), to.pop());
        (pair.0.is_some() || pair.1.is_some()).then_some(pair)
    })
}

/// Neighbouring layers that go the same way, as one.
fn together(moves: Vec<Moved>) -> Vec<Moved> {
    let mut out: Vec<Moved> = Vec::new();
    for moved in moves {
        if let What::Layers(layers) | What::Parts(layers) = &moved.what {
            let alike = |other: &What| {
                matches!(
                    (other, &moved.what),
                    (What::Layers(_), What::Layers(_)) | (What::Parts(_), What::Parts(_))
                )
            };
            let mut before = out.iter_mut().rev().filter(|other| alike(&other.what));
            let before = before.find(|other| other.from == moved.from && other.to == moved.to);
            if let Some(Moved { what: What::Layers(run) | What::Parts(run), bytes, .. }) = before
                && run.end == layers.start
            {
                run.end = layers.end;
                *bytes = bytes.saturating_add(moved.bytes);
                continue;
            }
        }
        out.push(moved);
    }
    out
}

/// Layers whose part lies apart in one of two plans.
struct Apart {
    /// What the part of each layer takes where it does; `None` where both plans keep the layer whole.
    bytes: Vec<Option<Bytes>>,
}

impl Apart {
    fn new(old: &PlanFile, new: &PlanFile) -> Result<Self, DiffError> {
        let apart = [old, new].into_iter().flat_map(|file| &file.overrides);
        let told = [new, old].into_iter().filter_map(|file| file.model.movable.as_ref());
        let mut bytes: Vec<Option<Bytes>> = Vec::new();
        let mut told = told.peekable();
        let Some(movable) = told.next() else {
            return if apart.count() == 0 { Ok(Self { bytes }) } else { Err(DiffError::OtherParts) };
        };
        let class = &movable.class;
        let other =
            |told: &plimsoll_export::MovableRecord| told.class != *class || told.parts != movable.parts;
        if apart.clone().count() > 0 && (told.any(other) || apart.clone().any(|moved| moved.class != *class))
        {
            return Err(DiffError::OtherParts);
        }
        let parts = movable.parts.iter().flat_map(|run| (0..run.count).map(|_| run.bytes));
        for (index, part) in (0_u32..).zip(parts) {
            let is_apart = apart.clone().any(|moved| (moved.layers[0]..moved.layers[1]).contains(&index));
            bytes.push(is_apart.then(|| Bytes::new(part)));
        }
        Ok(Self { bytes })
    }

    fn bytes(&self, layer: u32) -> Option<Bytes> {
        self.bytes.get(usize::try_from(layer).ok()?).copied().flatten()
    }
}

/// Where the part of a layer lies: where the plan says, else with the layer. Parts lie apart only where one copy runs.
fn part_at(file: &PlanFile, held: &BTreeMap<DeviceRef, Held>, layer: u32) -> Option<DeviceRef> {
    let apart = file.overrides.iter().find(|moved| (moved.layers[0]..moved.layers[1]).contains(&layer));
    let own = || held.iter().find(|(_, held)| held.layers.iter().any(|run| run.contains(&layer)));
    match apart {
        Some(moved) => Some(DeviceRef { node: moved.node.clone(), device: moved.device.clone() }),
        None => own().map(|(device, _)| device.clone()),
    }
}
