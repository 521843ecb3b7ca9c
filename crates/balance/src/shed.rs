//! Moving load off devices that are almost full.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_model::LayerSpec;
use plimsoll_units::{Bytes, DeviceRef};

use crate::plan::{Plan, Stage};
use crate::skew::{Room, rooms};
use crate::workload::Workload;

/// A device with less than this share available, in percent, gives something away; nobody is filled beyond it.
const LOW: u64 = 20;

/// A device with more than this share available, in percent, takes something.
const HIGH: u64 = 50;

/// Something to move from one device to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// From where.
    pub from: DeviceRef,
    /// To where.
    pub to: DeviceRef,
    /// What it takes where it goes.
    pub bytes: Bytes,
    /// Which layers, where a plan is in force: the first or the last ones of a stage.
    pub layers: Option<Range<u32>>,
}

/// What should leave devices that are almost full, and where it should go: at most `limit` transfers.
///
/// A device of an active node gives when less than 20 % of its capacity are available, and takes when more than 50 % are;
/// see [`skew`](crate::skew()) for what is available. The fullest gives first. It gives what brings it back to 20 %, to the
/// device with the most available bytes left after what that was already given, and to the next one where a target would
/// itself come below 20 %. Hosts take no part, no device gives to itself or within its pool, and ties break on ids.
///
/// Where a plan is in force (with the workload that it places), only its layers move, and its stages stay in one piece: a
/// stage gives its first layers to the device of the stage before it, or its last ones to that of the stage behind, as few
/// as bring it back to 20 %, as many as the other can take. A stage with the input or the head keeps a layer.
pub fn shed_load(
    snapshot: &ClusterSnapshot,
    in_force: Option<(&Plan, &Workload)>,
    limit: usize,
) -> Vec<Transfer> {
    let rooms = rooms(snapshot);
    let mut sources: Vec<usize> = (0..rooms.len()).filter(|&at| rooms[at].has_less_than(LOW)).collect();
    sources.sort_by(|&a, &b| rooms[a].compare(&rooms[b]).then_with(|| rooms[a].id().cmp(&rooms[b].id())));
    match in_force {
        None => by_bytes(&rooms, &sources, limit),
        Some((plan, workload)) => by_layers(&rooms, &sources, plan, workload, limit),
    }
}

/// A share of a capacity, rounded up: with it, no less than that share is there.
fn share(capacity: u64, percent: u64) -> u64 {
    let share = (u128::from(capacity) * u128::from(percent)).div_ceil(100);
    u64::try_from(share).unwrap_or(u64::MAX)
}

fn by_bytes(rooms: &[Room<'_>], sources: &[usize], limit: usize) -> Vec<Transfer> {
    let targets = (0..rooms.len()).filter(|&at| rooms[at].has_more_than(HIGH));
    // The most available first; of those with as much, the one of the smaller name, which a snapshot lists first.
    let mut targets: BinaryHeap<(u64, Reverse<(&str, &str)>, usize)> =
        targets.map(|at| (rooms[at].available, Reverse(rooms[at].id()), at)).collect();
    let mut transfers = Vec::new();
    for &source in sources {
        let from = &rooms[source];
        let mut needs = share(from.capacity, LOW).saturating_sub(from.available);
        while needs > 0 && transfers.len() < limit {
            let Some((left, id, target)) = targets.pop() else { return transfers };
            let to = &rooms[target];
            let bytes = needs.min(left.saturating_sub(share(to.capacity, LOW)));
            if bytes == 0 {
                continue;
            }
            needs -= bytes;
            targets.push((left - bytes, id, target));
            transfers.push(Transfer {
                from: from.reference(),
                to: to.reference(),
                bytes: Bytes::new(bytes),
                layers: None,
            });
        }
    }
    transfers
}

/// What each stage's neighbours can take.
struct Shedding<'a> {
    plan: &'a Plan,
    workload: &'a Workload,
    rooms: &'a [Room<'a>],
    /// Which room a device draws on.
    room_of: BTreeMap<(&'a str, &'a str), usize>,
    /// What is available after what was already given.
    left: Vec<u64>,
}

fn by_layers(
    rooms: &[Room<'_>],
    sources: &[usize],
    plan: &Plan,
    workload: &Workload,
    limit: usize,
) -> Vec<Transfer> {
    let mut room_of = BTreeMap::new();
    for (at, room) in rooms.iter().enumerate() {
        for device in room.node.devices.iter().filter(|d| d.pool == room.device.pool && !d.is_host()) {
            room_of.insert((room.node.id.as_str(), device.id.as_str()), at);
        }
    }
    let left = rooms.iter().map(|room| room.available).collect();
    let mut shedding = Shedding { plan, workload, rooms, room_of, left };
    let mut transfers = Vec::new();
    for &source in sources {
        let needs = share(rooms[source].capacity, LOW).saturating_sub(rooms[source].available);
        shedding.relieve(source, needs, limit, &mut transfers);
    }
    transfers
}

impl<'a> Shedding<'a> {
    fn room_of(&self, stage: &Stage) -> Option<usize> {
        self.room_of.get(&(stage.device.node.as_str(), stage.device.device.as_str())).copied()
    }

    /// The layers of a stage as its device's buffers hold them, by index.
    fn layers(&self, stage: &Stage, room: usize) -> Vec<&'a LayerSpec> {
        let device = self.rooms[room].node.device(&stage.device.device);
        let backend = device.unwrap_or(self.rooms[room].device).backend;
        let footprint = self.workload.on(backend).or_else(|| self.workload.footprints.first());
        let all = footprint.into_iter().flat_map(|footprint| &footprint.layers);
        let mut layers: Vec<_> = all.filter(|layer| stage.layers.contains(&layer.index)).collect();
        layers.sort_by_key(|layer| layer.index);
        layers
    }

    fn relieve(&mut self, source: usize, mut needs: u64, limit: usize, transfers: &mut Vec<Transfer>) {
        let plan = self.plan;
        for (number, stage) in plan.stages.iter().enumerate() {
            if self.room_of(stage) != Some(source) {
                continue;
            }
            let mut rest = stage.layers.clone();
            let beside = |at: Option<usize>| {
                let other = plan.stages.get(at?)?;
                (other.pipeline == stage.pipeline).then_some(other)
            };
            let sides = [(beside(number.checked_sub(1)), true), (beside(Some(number + 1)), false)];
            let mut sides: Vec<(&Stage, usize, bool)> = sides
                .into_iter()
                .filter_map(|(other, first)| other.and_then(|o| Some((o, self.room_of(o)?, first))))
                .filter(|&(_, room, _)| room != source && self.rooms[room].has_more_than(HIGH))
                .collect();
            sides.sort_by_key(|&(other, room, _)| (Reverse(self.left[room]), &other.device));
            for (other, room, first) in sides {
                if needs == 0 || transfers.len() >= limit {
                    return;
                }
                let given = self.give(stage, source, &rest, (other, room, first), needs);
                let Some((layers, freed, bytes)) = given else { continue };
                if first {
                    rest.start = layers.end;
                } else {
                    rest.end = layers.start;
                }
                needs = needs.saturating_sub(freed);
                self.left[room] = self.left[room].saturating_sub(bytes);
                transfers.push(Transfer {
                    from: stage.device.clone(),
                    to: other.device.clone(),
                    bytes: Bytes::new(bytes),
                    layers: Some(layers),
                });
            }
        }
    }

    /// The fewest layers at one end of what is left of a stage that free `needs` bytes, or as many as the other can take:
    /// the layers, what they free here, and what they take there.
    fn give(
        &self,
        stage: &Stage,
        source: usize,
        rest: &Range<u32>,
        (other, room, first): (&Stage, usize, bool),
        needs: u64,
    ) -> Option<(Range<u32>, u64, u64)> {
        let within = |layers: Range<u32>| Stage { layers, ..stage.clone() };
        let mine = self.layers(&within(rest.clone()), source);
        let there = self.layers(&Stage { layers: rest.clone(), ..other.clone() }, room);
        let most = self.left[room].saturating_sub(share(self.rooms[room].capacity, LOW));
        let keeps_one = stage.input || stage.head;
        let count = mine.len();
        if there.len() != count {
            return None;
        }
        let (mut freed, mut bytes, mut given) = (Bytes::ZERO, Bytes::ZERO, None);
        for taken in 1..=count {
            let at = if first { taken - 1 } else { count - taken };
            freed = freed.saturating_add(mine[at].resident_bytes());
            bytes = bytes.saturating_add(there[at].resident_bytes());
            if bytes.get() > most || (keeps_one && taken == count) {
                break;
            }
            let border = if first { Some(at) } else { at.checked_sub(1) };
            // At the end of the stage a cut is there already.
            let legal = border.is_none_or(|at| at + 1 == count || mine[at].cut_after);
            if legal {
                let layers = if first { rest.start..mine[at].index + 1 } else { mine[at].index..rest.end };
                given = Some((layers, freed.get(), bytes.get()));
                if freed.get() >= needs {
                    break;
                }
            }
        }
        given
    }
}
