//! Everything that planning looks at, checked and summed up.

use std::collections::BTreeMap;

use plimsoll_cluster::{ClusterSnapshot, GpuBackend};
use plimsoll_units::{Bytes, DeviceRef, NodeId};

use crate::core::transfer::Counted;
use crate::core::{Hops, as_f64};
use crate::error::PlanError;
use crate::fleet::{Candidate, Fleet};
use crate::items::{Class, Items};
use crate::links::Links;
use crate::pins::Pins;
use crate::plan::StoppedBy;
use crate::workload::{EngineRules, Objective, Pin, PlanOptions, StageCharges, Transfers, Workload};

/// The rate that every device is taken to have when some have none that is known.
const EQUAL_RATE: f64 = 100e9;

/// Everything that planning looks at.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) rules: &'a EngineRules,
    pub(crate) options: &'a PlanOptions,
    pub(crate) snapshot: &'a ClusterSnapshot,
    pub(crate) items: Items,
    pub(crate) fleet: Fleet,
    pub(crate) pins: Pins,
    pub(crate) links: Links<'a>,
    pub(crate) hops: Hops,
    groups: BTreeMap<&'a NodeId, usize>,
    /// For each footprint what the lightest piece takes that is pinned nowhere, and where it begins.
    lightest: Vec<Option<(u64, usize)>>,
    /// Whether all devices are taken as equally fast.
    pub(crate) equal_speeds: bool,
    /// The most devices, the main host not counted.
    pub(crate) limit: usize,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        snapshot: &'a ClusterSnapshot,
        workload: &'a Workload,
        rules: &'a EngineRules,
        options: &'a PlanOptions,
    ) -> Result<Self, PlanError> {
        if options.transfers != Transfers::Apart && options.objective != Objective::Throughput {
            return Err(PlanError::TransfersApart { objective: options.objective });
        }
        snapshot.validate().map_err(PlanError::Snapshot)?;
        let mut items = Items::new(workload, rules)?;
        let fleet = Fleet::new(snapshot, rules, options)?;
        let host_node = fleet.host.as_ref().map(|host| host.place.device.node.clone());
        let main = snapshot.nodes.iter().map(|n| &n.id).find(|&id| Some(id) == host_node.as_ref());
        let groups: BTreeMap<&NodeId, usize> = snapshot.nodes.iter().map(|n| &n.id).zip(0..).collect();
        let links = Links::new(snapshot, main);
        let hops = links.numbered(&groups, &activations(workload, items.layers())?);
        let limits = [rules.max_devices, options.max_devices].into_iter().flatten();
        let limit = limits.filter_map(|limit| usize::try_from(limit).ok()).min().unwrap_or(usize::MAX);
        let several = options.pipelines.may_be_several() && fleet.host.is_none();
        let pins = if several {
            Pins::in_any_pipeline(snapshot, &options.pins, &fleet, &items, limit)?
        } else {
            Pins::new(snapshot, &options.pins, &fleet, &mut items, limit)?
        };
        let mut context = Self {
            workload,
            rules,
            options,
            snapshot,
            lightest: lightest(&items, &pins),
            items,
            fleet,
            pins,
            links,
            hops,
            groups,
            equal_speeds: false,
            limit,
        };
        let unknown = context.places().any(|place| place.speed.is_none());
        context.equal_speeds = unknown;
        Ok(context)
    }

    /// The same for a pipeline that has these of the devices with pins and no others: what is pinned to them lies there.
    pub(crate) fn pinning(&self, devices: &[usize]) -> Result<Self, PlanError> {
        let here = |pin: &&Pin| devices.iter().any(|&device| self.fleet.devices[device].device == pin.device);
        let pins: Vec<Pin> = self.options.pins.iter().filter(here).cloned().collect();
        let mut items = self.items.clone();
        let pins = Pins::new(self.snapshot, &pins, &self.fleet, &mut items, self.limit)?;
        Ok(Self {
            lightest: lightest(&items, &pins),
            items,
            pins,
            fleet: self.fleet.clone(),
            links: self.links.clone(),
            hops: self.hops.clone(),
            groups: self.groups.clone(),
            ..*self
        })
    }

    /// The places that could hold a layer, the main host first.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Candidate> {
        let host = self.fleet.host.iter().filter(|host| host.takes_layers).map(|host| &host.place);
        host.chain(&self.fleet.devices).filter(|place| self.too_small(place).is_none())
    }

    /// The footprint in a device's buffers.
    pub(crate) fn class(&self, backend: GpuBackend) -> &Class {
        &self.items.classes[self.class_index(backend)]
    }

    pub(crate) fn class_index(&self, backend: GpuBackend) -> usize {
        self.items.class_of(self.workload, backend)
    }

    /// What ways cost where the items begin at a cut.
    pub(crate) fn hops_from(&self, cut: usize) -> Hops {
        let mut hops = self.hops.clone();
        if let Some(uneven) = &mut hops.uneven {
            let cuts = &self.items.cuts;
            // Behind the last layer there may be the head as an item of its own.
            let boundaries = cuts[cut..].iter().chain(cuts.last());
            uneven.beyond = boundaries.map(|&layers| uneven.beyond[layers]).collect();
        }
        hops
    }

    /// How a stage's time counts what passes between stages; `None` where it does not.
    pub(crate) fn counted(&self) -> Option<Counted> {
        match self.options.transfers {
            Transfers::Apart => None,
            Transfers::Overlapped => Some(Counted::Overlapped),
            Transfers::Added => Some(Counted::Added),
        }
    }

    /// What passes between two stages, the first of which ends before the layer at a place.
    pub(crate) fn activation(&self, place: usize) -> Bytes {
        self.workload.sent_after(place)
    }

    /// The number of a node in [`Context::hops`].
    pub(crate) fn group(&self, node: &NodeId) -> usize {
        self.groups.get(node).copied().unwrap_or(0)
    }

    /// What is divided by to get seconds.
    pub(crate) fn rate(&self, place: &Candidate) -> f64 {
        match place.speed {
            Some(speed) if !self.equal_speeds => speed.rate.as_f64(),
            _ => EQUAL_RATE,
        }
    }

    /// Whether layers lie on the main host only where no device can take them.
    ///
    /// That holds where speed is not what counts, or is not known: a host is then no device like any other.
    pub(crate) fn host_comes_last(&self) -> bool {
        self.equal_speeds || matches!(self.options.objective, Objective::Fit | Objective::Balanced)
    }

    /// Whether costs are times.
    pub(crate) fn timed(&self) -> bool {
        matches!(self.options.objective, Objective::Throughput | Objective::Latency)
    }

    /// The least that an engine charges a used device, whatever the others do.
    pub(crate) fn least_charge(&self) -> u64 {
        let charges = &self.rules.charges;
        let least = |c: &StageCharges| c.each;
        let several = if self.fleet.host.is_some() {
            least(&charges.split).min(least(&charges.partial))
        } else {
            least(&charges.split)
        };
        several.min(charges.alone).get()
    }

    /// Why a device can hold nothing whatever the others do, and how many bytes it lacks.
    pub(crate) fn too_small(&self, place: &Candidate) -> Option<(StoppedBy, u64)> {
        let class = self.class(place.backend);
        let budget = self.fleet.budget(place);
        let is_host = self.fleet.host.as_ref().is_some_and(|host| host.place.device == place.device);
        let charge = match is_host {
            true => {
                self.rules.charges.host.min(self.rules.charges.host_alone).get().saturating_add(class.input)
            }
            false => self.least_charge(),
        };
        let bytes = Bytes::new;
        let Some(room) = budget.checked_sub(charge) else {
            return Some((
                StoppedBy::Overhead { needs: bytes(charge), budget: bytes(budget) },
                charge - budget,
            ));
        };
        let pinned = !self.pins.hulls.is_empty();
        let number = if pinned { self.number(place) } else { None };
        let own = if pinned { self.pins.of(number) } else { None };
        // What is pinned here has to lie here, and what is pinned elsewhere cannot.
        let piece = match own {
            Some(hull) => lightest_of(&self.items.cuts, class, &hull.layers),
            None => self.lightest[self.class_index(place.backend)],
        };
        // Where the head may lie alone, a device that takes no layer may still take that.
        let lone_head = self.fleet.host.is_some() && !is_host && own.is_none();
        let alone = if lone_head { class.head } else { u64::MAX };
        let Some((needs, first)) = piece else {
            let pinned = self.items.cuts.first().and_then(|&first| self.pinned_elsewhere(number, first));
            return pinned.filter(|_| alone > room).map(|reason| (reason, 0));
        };
        let (needs, index) = (needs.saturating_add(class.each_device), self.items.index(first));
        if needs.min(alone) <= room {
            return None;
        }
        Some((StoppedBy::Layer { index, needs: bytes(needs), room: bytes(room) }, needs - room))
    }

    /// A place as an index into the fleet; `None` for the main host.
    pub(crate) fn number(&self, place: &Candidate) -> Option<usize> {
        self.number_of(&place.device)
    }

    /// A device as an index into the fleet.
    pub(crate) fn number_of(&self, device: &DeviceRef) -> Option<usize> {
        self.fleet.devices.binary_search_by(|other| other.device.cmp(device)).ok()
    }

    /// Why a device cannot hold the layer at a place, where that is pinned to another one.
    pub(crate) fn pinned_elsewhere(&self, device: Option<usize>, place: usize) -> Option<StoppedBy> {
        let hull = self.pins.elsewhere(device, place)?;
        Some(StoppedBy::Pinned { index: self.items.index(place), device: hull.named.device.clone() })
    }

    /// Seconds for one token to pass layers on a place.
    pub(crate) fn seconds(&self, place: &Candidate, layers: &std::ops::Range<usize>, head: bool) -> f64 {
        let class = self.class(place.backend);
        let read = class.touched(layers.start, layers.end) + if head { class.head } else { 0 };
        as_f64(read) / self.rate(place)
    }
}

/// For each footprint the lightest piece that is pinned nowhere.
fn lightest(items: &Items, pins: &Pins) -> Vec<Option<(u64, usize)>> {
    let mut free = Vec::with_capacity(pins.hulls.len() + 1);
    let mut end = 0;
    // No two of them share a piece, and they come in the order of the layers.
    for hull in &pins.hulls {
        free.push(end..hull.layers.start);
        end = hull.layers.end;
    }
    free.push(end..items.layers());
    let of = |class| free.iter().filter_map(|layers| lightest_of(&items.cuts, class, layers)).min();
    items.classes.iter().map(of).collect()
}

/// What the lightest piece that begins among these layers takes, and where that is; of equals the first.
fn lightest_of(cuts: &[usize], class: &Class, layers: &std::ops::Range<usize>) -> Option<(u64, usize)> {
    let from = cuts.partition_point(|&cut| cut < layers.start);
    let pieces = cuts[from..].windows(2).take_while(|cut| cut[0] < layers.end);
    pieces.map(|cut| (class.resident(cut[0], cut[1]), cut[0])).min()
}

/// What passes behind so many layers, for every number of them.
fn activations(workload: &Workload, layers: usize) -> Result<Vec<Bytes>, PlanError> {
    match &workload.boundary_bytes {
        Some(told) if told.len() != layers => Err(PlanError::Boundaries { told: told.len(), layers }),
        _ => Ok((0..=layers).map(|place| workload.sent_after(place)).collect()),
    }
}
