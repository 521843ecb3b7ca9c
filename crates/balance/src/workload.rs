//! What is to be placed, and under whose rules.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Range;

use plimsoll_cluster::GpuBackend;
use plimsoll_model::Footprint;
use plimsoll_units::{Bytes, DeviceRef, NodeId};

/// A model resolved for one request, as each kind of buffer holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// At least one. All have the same layers, with the same cuts and key-value bytes; weights may differ by padding.
    pub footprints: Vec<Footprint>,
    /// Which footprint a backend's buffers follow; the first one where a backend is not named.
    pub by_backend: BTreeMap<GpuBackend, usize>,
    /// What passes from one stage to the next for one token; zero when unknown.
    pub activation_bytes: Bytes,
    /// The same behind each layer, in the order of their indices, where it is not the same everywhere; what passes before
    /// the first layer is `activation_bytes`.
    pub boundary_bytes: Option<Vec<Bytes>>,
    /// Parts of layers that the engine can keep on the main host, apart from their layer; for
    /// [`HostUse::FirstLayersOfMain`].
    pub movable: Option<Movable>,
}

/// Parts of layers that an engine can keep on the main host while the rest of the layer, its key-value cells included,
/// lies on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movable {
    /// What they are.
    pub class: PartClass,
    /// When they move.
    pub when: MoveWhen,
    /// One row for each footprint; in it one part for each layer, in the order of their indices, of zero bytes where a
    /// layer has none.
    pub parts: Vec<Vec<Part>>,
    /// What each used device pays where some part lies on the host: in place of [`Charges::partial`].
    pub charges: StageCharges,
}

/// The part of one layer that can lie elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What it takes; contained in the layer's weights.
    pub weights_bytes: Bytes,
    /// What a token reads of it; contained in what a token reads of the layer.
    pub read_bytes: Bytes,
}

/// What a part of a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartClass {
    /// The experts, of which a token uses a few.
    Experts,
    /// The dense feed-forward block.
    FeedForward,
    /// Single tensors that a command line names.
    Tensors,
}

impl PartClass {
    /// Its name in machine-readable output: `experts`, `ffn`, `tensors`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Experts => "experts",
            Self::FeedForward => "ffn",
            Self::Tensors => "tensors",
        }
    }
}

/// When parts of layers move to the main host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveWhen {
    /// Only where the best plan of whole layers would keep some of them on the host, or where there is none; and then
    /// only if that is better.
    #[default]
    Needed,
    /// Those of every layer that a device holds.
    Always,
}

impl Workload {
    /// The same bytes on every device.
    pub fn uniform(footprint: Footprint) -> Self {
        Self {
            footprints: vec![footprint],
            by_backend: BTreeMap::new(),
            activation_bytes: Bytes::ZERO,
            boundary_bytes: None,
            movable: None,
        }
    }

    /// What passes behind the first `layers` layers.
    pub(crate) fn sent_after(&self, layers: usize) -> Bytes {
        let told = self.boundary_bytes.as_ref().zip(layers.checked_sub(1));
        told.and_then(|(told, at)| told.get(at)).copied().unwrap_or(self.activation_bytes)
    }

    /// The footprint in buffers of this backend.
    pub fn on(&self, backend: GpuBackend) -> Option<&Footprint> {
        let index = self.by_backend.get(&backend).copied().unwrap_or(0);
        self.footprints.get(index)
    }
}

/// Which plans an engine can carry out, and what it takes beside the layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRules {
    /// What the hosts' memory is to the engine.
    pub host: HostUse,
    /// The most devices it can split over, hosts not counted.
    pub max_devices: Option<u32>,
    /// What it keeps free on every pool that names no reserve.
    pub margin: Bytes,
    /// What it takes beside the layers.
    pub charges: Charges,
}

/// What the memory of hosts is to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostUse {
    /// Every node's host with memory is a device like any other. The input lies with the first layer, the head with the
    /// last.
    Ordinary,
    /// One node is the main node (`ClusterSnapshot::main_node`). Its host holds the input, and layers only as a prefix of
    /// the model; the head lies on the last device used, and may lie there alone; it lies on the host only when every
    /// layer does. Devices of backend cpu that the main node lists beside its host are that host once more and are left
    /// out; other nodes' hosts take part only where their file lists such a device. All traffic passes the
    /// main node: a hop between two other nodes pays both links.
    FirstLayersOfMain,
}

/// What an engine takes beside the layers: compute buffers and fixed overheads, per device that is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// On the main host, when at least one device is used.
    pub host: Bytes,
    /// On the main host, when no device is used: everything runs there.
    pub host_alone: Bytes,
    /// On the one device that is used and holds every layer.
    pub alone: Bytes,
    /// On each of several devices that hold every layer.
    pub split: StageCharges,
    /// On each device when the host holds some layers.
    pub partial: StageCharges,
}

/// What a used device pays, by its place in the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCharges {
    /// Every one.
    pub each: Bytes,
    /// The first one (hosts not counted) on top.
    pub first_more: Bytes,
    /// The one that holds the head on top.
    pub last_more: Bytes,
}

impl EngineRules {
    /// No engine: exactly the layers' bytes, nothing kept free.
    pub fn none() -> Self {
        Self { host: HostUse::Ordinary, max_devices: None, margin: Bytes::ZERO, charges: Charges::default() }
    }
}

/// What a plan should be good at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Objective {
    /// The fewest devices, then the largest smallest share of slack. A main host that holds layers counts; it holds some
    /// only where no other plan fits, and that comes first.
    Fit,
    /// The smallest largest stage time: many requests at once.
    Throughput,
    /// The smallest sum of stage times and hops: one stream.
    #[default]
    Latency,
    /// The smallest largest used share of a budget, of devices that hold layers or the head. A main host holds layers
    /// only where no other plan fits, and that comes first.
    Balanced,
}

/// In which orders devices are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// Several orders, and an exact search where the devices are few.
    #[default]
    Portfolio,
    /// The largest budget first, ties by id.
    CapacityDescending,
    /// As the snapshot lists them.
    GivenOrder,
}

/// Layers that must lie on one device.
///
/// Several pins of one device are one: it holds everything from the first of their layers to the last. With several
/// pipelines it does so in the one that it belongs to, and the others are free of its pins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin {
    /// Where they must lie.
    pub device: DeviceRef,
    /// Which layers, by their indices.
    pub layers: LayerRange,
}

/// A half-open range of layers, ordered by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerRange {
    /// The first layer.
    pub start: u32,
    /// The layer after the last one.
    pub end: u32,
}

impl From<Range<u32>> for LayerRange {
    fn from(range: Range<u32>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// How many copies of the model run side by side, each on devices of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipelines {
    /// One copy, as most engines run.
    #[default]
    One,
    /// So many copies.
    Exactly(NonZeroU32),
    /// As many as make the most tokens in a second.
    Auto,
}

impl Pipelines {
    /// How many copies are asked for; `None` where that is left to the planner.
    pub const fn count(self) -> Option<NonZeroU32> {
        match self {
            Self::One => Some(NonZeroU32::MIN),
            Self::Exactly(count) => Some(count),
            Self::Auto => None,
        }
    }

    /// Whether a plan may have more than one copy.
    pub const fn may_be_several(self) -> bool {
        !matches!(self.count(), Some(NonZeroU32::MIN))
    }
}

/// How a stage's time counts what it passes on to the next one; for [`Objective::Throughput`].
///
/// Something passes between consecutive stages on different nodes: for as long as the hop takes, the latency of the link
/// included. Where all traffic passes a main node, it passes both links: at the same time where sending overlaps, so that
/// the slower one counts, and one after the other where it is added. What a main host sends on counts though it hold
/// nothing but the input. A stage's own time, as a plan lists it, never contains what passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transfers {
    /// Not at all: a stage's time is its own reading.
    #[default]
    Apart,
    /// Sending goes on while the device computes: the larger of the two counts.
    Overlapped,
    /// A device first receives, then computes, then sends: the three are added up.
    Added,
}

/// Something that takes room beside the layers: a projector, a draft model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FixedPart {
    /// What it is.
    pub name: String,
    /// Where it lies.
    pub device: DeviceRef,
    /// What it takes there.
    pub bytes: Bytes,
}

/// What a person may add to a request for a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// What the plan should be good at.
    pub objective: Objective,
    /// In which orders devices are tried.
    pub strategy: Strategy,
    /// The most devices to use, the main host not counted.
    pub max_devices: Option<u32>,
    /// The only nodes to use; all when `None`.
    pub only: Option<BTreeSet<NodeId>>,
    /// The most to use of single devices, beside what the snapshot says.
    pub caps: BTreeMap<DeviceRef, Bytes>,
    /// What to keep free on every pool, whatever the snapshot or the engine say.
    pub reserve: Option<Bytes>,
    /// Layers that must lie on certain devices; where several copies run, each keeps the pins of its own devices.
    pub pins: Vec<Pin>,
    /// What lies beside the layers, each part on a device that was chosen for it.
    pub parts: Vec<FixedPart>,
    /// How many copies of the model run side by side.
    pub pipelines: Pipelines,
    /// How a stage's time counts what passes between stages.
    pub transfers: Transfers,
}
