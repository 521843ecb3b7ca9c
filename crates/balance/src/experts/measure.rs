//! From a placement with parts on the main host to a plan's numbers.

use std::ops::Range;

use plimsoll_units::Bytes;

use crate::assemble::{Assembled, Draft};
use crate::core::as_f64;
use crate::error::PlanError;
use crate::experts::parts::Parts;
use crate::experts::search::Found;
use crate::fleet::Candidate;
use crate::plan::{Override, Stage};
use crate::workload::Objective;

/// A placement with the places of layers whose parts lie on the main host, device by device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) host: usize,
    pub(crate) devices: Vec<(usize, Range<usize>, Vec<usize>)>,
}

/// A placement with all its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) assembled: Assembled,
    pub(crate) overrides: Vec<Override>,
    /// How many bytes it is short of fitting.
    pub(crate) short: u64,
    /// What of the layers lies on the main host.
    pub(crate) on_host: u64,
}

impl Moved {
    /// Which layers give their part away, where so many of each kind do.
    ///
    /// The first ones of every stage where that makes them the first ones of the model, which engines have a short word
    /// for; else the last ones.
    pub(crate) fn of(parts: &Parts<'_>, found: &Found) -> Self {
        let devices = &parts.context.fleet.devices;
        let gives_all = |(device, layers, counts): &(usize, Range<usize>, Vec<u32>)| {
            let table = parts.table(&devices[*device]);
            counts.iter().enumerate().all(|(kind, n)| *n == table.count(kind, layers.start, layers.end))
        };
        let gives = |stage: &&(usize, Range<usize>, Vec<u32>)| stage.2.iter().any(|n| *n > 0);
        let last = found.devices.iter().rposition(|stage| gives(&stage)).unwrap_or(0);
        let firsts = found.devices.iter().take(last).all(gives_all);
        let of_stage = |(device, layers, counts): &(usize, Range<usize>, Vec<u32>)| {
            let table = parts.table(&devices[*device]);
            let mut places = Vec::new();
            for (kind, n) in counts.iter().enumerate() {
                let all = layers.clone().filter(|place| table.of.get(*place) == Some(&Some(kind)));
                let n = usize::try_from(*n).unwrap_or(usize::MAX);
                if firsts {
                    places.extend(all.take(n));
                } else {
                    places.extend(all.rev().take(n));
                }
            }
            places.sort_unstable();
            (*device, layers.clone(), places)
        };
        Self { host: found.host, devices: found.devices.iter().map(of_stage).collect() }
    }

    /// A placement that somebody else decided: devices with their layers, the last one with the head, and the places of
    /// layers whose part moves.
    pub(crate) fn told(
        host: usize,
        devices: Vec<(usize, Range<usize>, bool)>,
        moved: &[usize],
    ) -> Result<Self, PlanError> {
        let elsewhere = |place: &&usize| !devices.iter().any(|(_, layers, _)| layers.contains(place));
        if let Some(place) = moved.iter().find(elsewhere) {
            return Err(PlanError::BrokenPlacement { at: *place, expected: host });
        }
        let of_stage = |(device, layers, _): (usize, Range<usize>, bool)| {
            let mut here: Vec<usize> = moved.iter().copied().filter(|place| layers.contains(place)).collect();
            here.sort_unstable();
            here.dedup();
            (device, layers, here)
        };
        Ok(Self { host, devices: devices.into_iter().map(of_stage).collect() })
    }

    /// All numbers.
    pub(crate) fn measure(&self, parts: &Parts<'_>) -> Measured {
        let context = parts.context;
        let rows = self.rows(parts);
        let mut short = 0_u64;
        let mut stages = Vec::with_capacity(rows.len());
        let (mut seconds, mut costs) = (0.0, Vec::with_capacity(rows.len()));
        for (at, row) in rows.iter().enumerate() {
            let others =
                rows.iter().enumerate().filter(|(other, r)| *other != at && r.place.pool == row.place.pool);
            let others = others.map(|(_, r)| r.uses()).fold(0_u64, u64::saturating_add);
            let pool = context.fleet.pools.get(row.place.pool).copied().unwrap_or(0);
            let budget = pool.saturating_sub(others).min(row.place.limit);
            short = short.max(row.uses().saturating_add(others).saturating_sub(pool));
            short = short.max(row.uses().saturating_sub(budget));
            let time = as_f64(row.read) / context.rate(row.place);
            if at > 0 {
                let (from, to) = (&rows[at - 1].place.device.node, &row.place.device.node);
                seconds += context.links.seconds(from, to, context.activation(row.layers.start));
            }
            seconds += time + row.trips;
            if row.works {
                costs.push(if context.timed() { time } else { as_f64(row.uses()) / as_f64(budget.max(1)) });
            }
            stages.push(Stage {
                pipeline: 0,
                device: row.place.device.clone(),
                layers: context.items.index(row.layers.start)..context.items.index(row.layers.end),
                input: at == 0,
                head: row.head,
                weights_bytes: Bytes::new(row.weights),
                kv_bytes: Bytes::new(row.kv),
                overhead_bytes: Bytes::new(row.overhead),
                budget_bytes: Bytes::new(budget),
                slack_bytes: Bytes::new(budget.saturating_sub(row.uses())),
                seconds: (!context.equal_speeds).then_some(time),
            });
        }
        costs.sort_by(|a, b| b.total_cmp(a));
        let value = match context.options.objective {
            Objective::Fit => as_f64(u64::try_from(costs.len()).unwrap_or(u64::MAX)),
            Objective::Latency => seconds,
            Objective::Throughput | Objective::Balanced => costs.first().copied().unwrap_or(0.0),
        };
        let last = self.devices.len().saturating_sub(1);
        let devices = self.devices.iter().enumerate();
        let devices =
            devices.map(|(at, (device, layers, _))| (*device, layers.clone(), at == last)).collect();
        let host = &rows[0];
        let on_host = host.weights.saturating_add(host.kv);
        let draft = Draft { host: self.host, devices };
        let assembled = Assembled { draft, stages, value, costs };
        Measured { assembled, overrides: self.overrides(parts), short, on_host }
    }

    fn rows<'a>(&self, parts: &'a Parts<'_>) -> Vec<Row<'a>> {
        let context = parts.context;
        let movable = parts.movable;
        let part = |place: &Candidate, layer: usize| {
            let row = movable.parts.get(context.class_index(place.backend));
            row.and_then(|row| row.get(layer)).copied().unwrap_or_default()
        };
        let sum = |place: &Candidate, layers: &[usize], of: &dyn Fn(crate::Part) -> Bytes| {
            layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(of(part(place, *layer)).get()))
        };
        let given: Vec<usize> = self.devices.iter().flat_map(|(_, _, moved)| moved.iter().copied()).collect();
        let host = &parts.host.place;
        let class = context.class(host.backend);
        let shared = if self.host == 0 { 0 } else { class.each_device };
        let mut rows = vec![Row {
            place: host,
            layers: 0..self.host,
            head: false,
            works: self.host > 0 || !given.is_empty(),
            weights: class
                .weights(0, self.host)
                .saturating_add(shared)
                .saturating_add(class.input)
                .saturating_add(sum(host, &given, &|part| part.weights_bytes)),
            kv: class.kv(0, self.host),
            overhead: context.rules.charges.host.get(),
            read: class.touched(0, self.host).saturating_add(sum(host, &given, &|part| part.read_bytes)),
            trips: 0.0,
        }];
        let charges = if given.is_empty() && self.host == 0 {
            &context.rules.charges.split
        } else if given.is_empty() {
            &context.rules.charges.partial
        } else {
            &movable.charges
        };
        for (at, (device, layers, moved)) in self.devices.iter().enumerate() {
            let place = &context.fleet.devices[*device];
            let class = context.class(place.backend);
            let head = at + 1 == self.devices.len();
            let on = |yes: bool, bytes: u64| if yes { bytes } else { 0 };
            let held = [
                class.weights(layers.start, layers.end),
                on(!layers.is_empty(), class.each_device),
                on(head, class.head),
            ];
            let charged = [
                charges.each.get(),
                on(at == 0, charges.first_more.get()),
                on(head, charges.last_more.get()),
            ];
            let read = class.touched(layers.start, layers.end).saturating_add(on(head, class.head));
            rows.push(Row {
                place,
                layers: layers.clone(),
                head,
                works: true,
                weights: held.into_iter().fold(0_u64, u64::saturating_add).saturating_sub(sum(
                    place,
                    moved,
                    &|part| part.weights_bytes,
                )),
                kv: class.kv(layers.start, layers.end),
                overhead: charged.into_iter().fold(0_u64, u64::saturating_add),
                read: read.saturating_sub(sum(place, moved, &|part| part.read_bytes)),
                trips: parts.trip(place) * as_f64(u64::try_from(moved.len()).unwrap_or(u64::MAX)),
            });
        }
        rows
    }

    /// Neighbours of one stage taken together.
    fn overrides(&self, parts: &Parts<'_>) -> Vec<Override> {
        let context = parts.context;
        let host_class = context.class_index(parts.host.place.backend);
        let bytes = |place: usize| {
            let row = parts.movable.parts.get(host_class);
            row.and_then(|row| row.get(place)).map_or(Bytes::ZERO, |part| part.weights_bytes)
        };
        let mut overrides: Vec<Override> = Vec::new();
        for (_, _, moved) in &self.devices {
            let mut open: Option<usize> = None;
            for &place in moved {
                let index = context.items.index(place);
                match overrides.last_mut().filter(|_| open.is_some_and(|last| last + 1 == place)) {
                    Some(last) => {
                        last.layers.end = index.saturating_add(1);
                        last.bytes = last.bytes.saturating_add(bytes(place));
                    }
                    None => overrides.push(Override {
                        layers: index..index.saturating_add(1),
                        class: parts.movable.class,
                        device: parts.host_device().clone(),
                        bytes: bytes(place),
                    }),
                }
                open = Some(place);
            }
        }
        overrides
    }
}

/// What lies on one device.
struct Row<'a> {
    place: &'a Candidate,
    layers: Range<usize>,
    head: bool,
    works: bool,
    weights: u64,
    kv: u64,
    overhead: u64,
    read: u64,
    /// Seconds that pass between it and the main host for parts that lie there.
    trips: f64,
}

impl Row<'_> {
    fn uses(&self) -> u64 {
        self.weights.saturating_add(self.kv).saturating_add(self.overhead)
    }
}
