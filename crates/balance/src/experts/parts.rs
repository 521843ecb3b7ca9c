//! Parts of layers that may lie on the main host, as the planner adds them up.

use plimsoll_units::{Bytes, DeviceRef};

use crate::context::Context;
use crate::error::PlanError;
use crate::fleet::{Candidate, Host};
use crate::workload::{EngineRules, Movable, Workload};

/// Layers whose parts take and cost the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// What the part takes on its device.
    pub(crate) here: u64,
    /// What a token reads of it there.
    pub(crate) read_here: u64,
    /// What it takes on the main host.
    pub(crate) there: u64,
    /// What a token reads of it there.
    pub(crate) read_there: u64,
}

/// The parts of one footprint beside those of the main host's.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// All kinds, in order.
    pub(crate) kinds: Vec<Kind>,
    /// The kind of the part of each layer; `None` where nothing can move.
    pub(crate) of: Vec<Option<usize>>,
    /// For each kind, how many of the first layers have it.
    counts: Vec<Vec<u32>>,
}

impl Table {
    fn new(movable: &Movable, class: usize, host_class: usize) -> Self {
        let parts = |class: usize| movable.parts.get(class).map_or(&[][..], Vec::as_slice);
        let pairs = parts(class).iter().zip(parts(host_class));
        let kind_of = pairs.map(|(here, there)| {
            (!here.weights_bytes.is_zero()).then_some(Kind {
                here: here.weights_bytes.get(),
                read_here: here.read_bytes.get(),
                there: there.weights_bytes.get(),
                read_there: there.read_bytes.get(),
            })
        });
        let kind_of: Vec<Option<Kind>> = kind_of.collect();
        let mut kinds: Vec<Kind> = kind_of.iter().flatten().copied().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let of: Vec<Option<usize>> =
            kind_of.iter().map(|kind| kinds.binary_search(kind.as_ref()?).ok()).collect();
        let counts = (0..kinds.len()).map(|kind| {
            let mut sum = 0_u32;
            let mut sums = vec![sum];
            for layer in &of {
                sum += u32::from(*layer == Some(kind));
                sums.push(sum);
            }
            sums
        });
        Self { counts: counts.collect(), kinds, of }
    }

    /// How many layers of a kind lie between two places.
    pub(crate) fn count(&self, kind: usize, start: usize, end: usize) -> u32 {
        self.counts[kind][end] - self.counts[kind][start]
    }
}

/// What can move, and where to.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) movable: &'a Movable,
    pub(crate) host: &'a Host,
    /// One for each footprint.
    tables: Vec<Table>,
}

impl<'a> Parts<'a> {
    /// What can move; `None` where nothing may.
    pub(crate) fn new(context: &'a Context<'a>) -> Option<Self> {
        let movable = context.workload.movable.as_ref()?;
        let host = context.fleet.host.as_ref().filter(|host| host.takes_layers)?;
        let host_class = context.class_index(host.place.backend);
        let tables = (0..context.items.classes.len()).map(|class| Table::new(movable, class, host_class));
        Some(Self { context, movable, host, tables: tables.collect() })
    }

    /// The parts as a device's buffers hold them.
    pub(crate) fn table(&self, place: &Candidate) -> &Table {
        &self.tables[self.context.class_index(place.backend)]
    }

    /// What passes to the main host and back for one layer on a device, in seconds.
    pub(crate) fn trip(&self, place: &Candidate) -> f64 {
        let (host, node) = (&self.host.place.device.node, &place.device.node);
        if host == node {
            return 0.0;
        }
        let context = self.context;
        // What is told of single boundaries differs little from layer to layer; the largest is charged.
        let largest = (0..=context.items.layers()).map(|layer| context.activation(layer)).max();
        2.0 * context.links.seconds(host, node, largest.unwrap_or(Bytes::ZERO))
    }

    /// Whether every pool has one device at most, the main host counted.
    pub(crate) fn pools_apart(&self) -> bool {
        let devices = &self.context.fleet.devices;
        devices.iter().enumerate().all(|(at, device)| {
            device.pool != self.host.place.pool && devices[..at].iter().all(|d| d.pool != device.pool)
        })
    }

    /// Devices that are one like the other to this search.
    pub(crate) fn alike(&self, a: usize, b: usize) -> bool {
        let context = self.context;
        let (x, y) = (&context.fleet.devices[a], &context.fleet.devices[b]);
        x.device.node == y.device.node
            && context.class_index(x.backend) == context.class_index(y.backend)
            && context.fleet.budget(x) == context.fleet.budget(y)
            && context.rate(x).total_cmp(&context.rate(y)).is_eq()
            && context.pins.hulls.is_empty()
    }

    /// The main host's name.
    pub(crate) fn host_device(&self) -> &'a DeviceRef {
        &self.host.place.device
    }
}

/// Whether the parts that may move are parts of the layers, and whether the engine knows a main host.
pub(crate) fn check(workload: &Workload, rules: &EngineRules) -> Result<(), PlanError> {
    let Some(movable) = &workload.movable else { return Ok(()) };
    if rules.host == crate::HostUse::Ordinary {
        return Err(PlanError::NothingMoves);
    }
    let footprints = &workload.footprints;
    if movable.parts.len() != footprints.len() {
        return Err(PlanError::Parts { told: movable.parts.len(), layers: footprints.len() });
    }
    for (parts, footprint) in movable.parts.iter().zip(footprints) {
        if parts.len() != footprint.layers.len() {
            return Err(PlanError::Parts { told: parts.len(), layers: footprint.layers.len() });
        }
        let layers = crate::items::by_index(&footprint.layers);
        for (part, layer) in parts.iter().zip(&layers) {
            let inside = part.weights_bytes <= layer.weights_bytes
                && part.read_bytes <= layer.read_bytes.min(part.weights_bytes);
            if !inside {
                return Err(PlanError::PartTooLarge { index: layer.index });
            }
        }
    }
    Ok(())
}
