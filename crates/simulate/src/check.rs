//! What must hold whatever was decided: counted from the plans and the truth, by nothing that decides.

use std::collections::BTreeMap;

use plimsoll_balance::PoolPeak;
use plimsoll_units::Bytes;

use crate::run::Run;
use crate::world::{Place, clock};

/// The most violations that are told of one run: one is a fault already.
const MOST: usize = 100;

impl Run<'_> {
    pub(crate) fn violation(&mut self, what: String) {
        if self.report.violations.len() < MOST {
            self.report.violations.push(format!("{}: {what}", clock(self.now)));
        }
    }

    /// Checks everything that models hold at this moment.
    pub(crate) fn check(&mut self) {
        let mut tally: BTreeMap<Place, Bytes> = BTreeMap::new();
        for model in &self.models {
            for (place, bytes) in model.placed.iter().flat_map(|placed| &placed.held) {
                let sum = tally.entry(place.clone()).or_insert(Bytes::ZERO);
                *sum = sum.saturating_add(*bytes);
            }
        }
        let mut wrong = Vec::new();
        for (place, held) in &tally {
            let before = self.tally.get(place).copied().unwrap_or(Bytes::ZERO);
            let answers = self.world.machines.get(&place.0).is_some_and(|machine| machine.is_up());
            let room = self.world.room(place);
            if answers && *held > before && *held > room {
                let ((node, pool), held, room) = (place, held.get(), room.get());
                wrong.push(format!("{node}/{pool} was filled with {held} bytes and has room for {room}"));
            }
        }
        for (place, id) in &self.pools {
            let booked = self.book.pool(id.as_str()).map_or(Bytes::ZERO, |pool| pool.used);
            let held = tally.get(place).copied().unwrap_or(Bytes::ZERO);
            if booked != held {
                let ((node, pool), booked, held) = (place, booked.get(), held.get());
                wrong.push(format!("the ledger has {booked} bytes of {node}/{pool} and the plans {held}"));
            }
        }
        for model in &self.models {
            let Some(placed) = &model.placed else { continue };
            let layers =
                model.wanted.workload.footprints.first().map_or(0, |footprint| footprint.layers.len());
            let ranges = placed.plan.stages.iter().map(|stage| stage.layers.clone());
            let held: u64 =
                ranges.clone().map(|range| u64::from(range.end.saturating_sub(range.start))).sum();
            let joined = ranges.clone().zip(ranges.skip(1)).all(|(one, next)| one.end == next.start);
            if u64::try_from(layers) != Ok(held) || !joined {
                wrong.push(format!("the plan of '{}' holds {held} of {layers} layers", model.wanted.name));
            }
        }
        for what in wrong {
            self.violation(what);
        }
        self.tally = tally;
    }

    /// A step of a rebalancing that needs more room than there is; what was above at the start may stay there.
    pub(crate) fn check_peak(&mut self, i: usize, peak: &PoolPeak) {
        let place = (peak.node.clone(), peak.pool.clone());
        let before = self.models[i].placed.as_ref().and_then(|placed| placed.held.get(&place)).copied();
        if peak.peak_bytes > before.unwrap_or(Bytes::ZERO) {
            let (node, pool) = &place;
            let (bytes, budget) = (peak.peak_bytes.get(), peak.budget_bytes.get());
            let text = format!("a move fills {node}/{pool} with {bytes} bytes, whose budget is {budget}");
            self.violation(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_balance::{PlanOptions, Workload};
    use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node, NodeStatus, Pool};
    use plimsoll_model::{Footprint, LayerSpec, ResolvedContext};
    use plimsoll_units::Generation;

    use super::*;
    use crate::{Scenario, Wanted};

    /// One card of 10 bytes and a model of 8 that lies there.
    fn scenario() -> Scenario {
        let pool = Pool {
            id: "gpu0".parse().unwrap(),
            total: Bytes::new(10),
            reserve: None,
            cap: None,
            free: Some(Bytes::new(10)),
            held: Bytes::ZERO,
        };
        let device = Device {
            id: "gpu0".parse().unwrap(),
            name: None,
            pool: pool.id.clone(),
            limit: None,
            backend: GpuBackend::Cuda,
            bandwidth: None,
            uuid: None,
        };
        let node = Node {
            id: "a".parse().unwrap(),
            status: NodeStatus::Active,
            drained: false,
            main: false,
            rpc: None,
            pools: vec![pool],
            devices: vec![device],
        };
        let start = ClusterSnapshot { generation: Generation::FIRST, nodes: vec![node], links: Vec::new() };
        let footprint = Footprint {
            layers: (0..4).map(|index| LayerSpec::of_weights(index, Bytes::new(2))).collect(),
            input_bytes: Bytes::ZERO,
            head_bytes: Bytes::ZERO,
            head_beside_input_bytes: Bytes::ZERO,
            each_device_bytes: Bytes::ZERO,
            nextn: 0,
            context: ResolvedContext { total: 0, per_sequence: 0, streams: 1 },
        };
        let mut scenario = Scenario::new("one card", start);
        scenario.models.push(Wanted::new("model", Workload::uniform(footprint), PlanOptions::default()));
        scenario
    }

    fn violations(spoil: impl FnOnce(&mut Run<'_>)) -> Vec<String> {
        let scenario = scenario();
        let mut still = || Duration::ZERO;
        let mut run = Run::new(&scenario, &mut still);
        run.look();
        assert!(run.report.violations.is_empty(), "{:?}", run.report.violations);
        spoil(&mut run);
        run.check();
        run.report.violations
    }

    #[test]
    fn what_is_held_above_the_room_is_found() {
        let found = violations(|run| {
            let held = run.models[0].placed.as_mut().unwrap().held.values_mut();
            held.for_each(|bytes| *bytes = Bytes::new(11));
        });
        assert_eq!(found[0], "0:00:00: a/gpu0 was filled with 11 bytes and has room for 10");
        assert_eq!(found[1], "0:00:00: the ledger has 8 bytes of a/gpu0 and the plans 11");
    }

    #[test]
    fn a_booking_that_nobody_holds_is_found() {
        let found = violations(|run| run.models[0].placed.as_mut().unwrap().held.clear());
        assert_eq!(found, ["0:00:00: the ledger has 8 bytes of a/gpu0 and the plans 0"]);
    }

    #[test]
    fn a_layer_that_lies_nowhere_is_found() {
        let found = violations(|run| run.models[0].placed.as_mut().unwrap().plan.stages[0].layers.end = 3);
        assert_eq!(found, ["0:00:00: the plan of 'model' holds 3 of 4 layers"]);
    }
}
