//! Whether parts that lie elsewhere than their layer are told rightly.

use plimsoll_units::Bytes;

use super::{Case, Finding};
use crate::plan::Stage;
use crate::workload::{Movable, MoveWhen, Part};

impl Case<'_> {
    /// The parts of a row of buffers that may move, by the index of their layer.
    fn parts(&self, row: usize) -> impl Iterator<Item = (u32, Part)> + '_ {
        let told = self.workload.movable.as_ref().and_then(|movable| movable.parts.get(row));
        let layers = self.layers.first().map_or(&[][..], Vec::as_slice);
        layers.iter().map(|layer| layer.index).zip(told.into_iter().flatten().copied())
    }

    /// Which row of buffers a stage's device has.
    fn row(&self, stage: &Stage) -> usize {
        let named = self.workload.by_backend.get(&self.backend(stage)).copied();
        named.filter(|row| *row < self.layers.len()).unwrap_or(0)
    }

    /// Whether the part of a layer lies elsewhere than the layer.
    fn is_moved(&self, index: u32) -> bool {
        self.plan.overrides.iter().any(|moved| moved.layers.contains(&index))
    }

    /// What a stage has not of its layers, or a main host of other stages' layers: bytes that lie there, and bytes that a
    /// token reads.
    pub(super) fn parts_of(&self, stage: &Stage) -> (u128, u128) {
        let host = self.is_main_host(&stage.device);
        let mine = |index: u32| self.is_moved(index) && (host || stage.layers.contains(&index));
        let parts = self.parts(self.row(stage)).filter(|(index, _)| mine(*index));
        parts.fold((0, 0), |(bytes, read), (_, part)| {
            (bytes + u128::from(part.weights_bytes.get()), read + u128::from(part.read_bytes.get()))
        })
    }

    /// Whether a stage computes: it holds a layer, the head, or parts of other stages' layers.
    pub(super) fn computes(&self, stage: &Stage) -> bool {
        Self::works(stage) || (self.is_main_host(&stage.device) && !self.plan.overrides.is_empty())
    }

    /// Seconds in which a token goes to the main host and comes back, once for each part there of a layer elsewhere.
    pub(super) fn trips(&self) -> f64 {
        let Some(main) = self.main.map(|node| &node.id) else { return 0.0 };
        let mut seconds = 0.0;
        for stage in self.plan.stages.iter().filter(|stage| stage.device.node != *main) {
            let moved = stage.layers.clone().filter(|index| self.is_moved(*index)).count();
            let (rate, latency, _) = self.link(main, &stage.device.node);
            let told = self.workload.boundary_bytes.iter().flatten().chain([&self.workload.activation_bytes]);
            let largest = told.max().copied().unwrap_or(Bytes::ZERO);
            let way =
                latency.as_secs_f64() + largest.as_f64() / if rate.is_zero() { 1.0 } else { rate.as_f64() };
            seconds += 2.0 * way * f64::from(u32::try_from(moved).unwrap_or(u32::MAX));
        }
        seconds
    }

    /// Where they lie, which layers they belong to, and what they take.
    pub(super) fn overrides(&self, findings: &mut Vec<Finding>) {
        let mut next = 0;
        for moved in &self.plan.overrides {
            let (start, end) = (moved.layers.start, moved.layers.end);
            if let Some(reason) = self.wrong(moved, next) {
                findings.push(Finding::Override { device: moved.device.clone(), start, end, reason });
            }
            next = next.max(end);
        }
        let always = |movable: &Movable| movable.when == MoveWhen::Always;
        if !self.workload.movable.as_ref().is_some_and(always) {
            return;
        }
        for stage in self.plan.stages.iter().filter(|stage| !self.is_main_host(&stage.device)) {
            let mut parts = self.parts(self.row(stage)).filter(|(index, _)| stage.layers.contains(index));
            let kept = parts.find(|(index, part)| !part.weights_bytes.is_zero() && !self.is_moved(*index));
            if let Some((start, _)) = kept {
                let (device, end) = (stage.device.clone(), start.saturating_add(1));
                findings.push(Finding::Override {
                    device,
                    start,
                    end,
                    reason: "its part was to move and did not",
                });
            }
        }
    }

    fn wrong(&self, moved: &crate::Override, next: u32) -> Option<&'static str> {
        let Some(movable) = &self.workload.movable else { return Some("nothing of this model may move") };
        if moved.class != movable.class {
            return Some("that part of a layer may not move");
        }
        if moved.layers.is_empty() || moved.layers.start < next {
            return Some("the ranges are not in order");
        }
        let Some(host) = self.plan.stages.first().filter(|stage| stage.device == moved.device) else {
            return Some("parts move only to the main node's host");
        };
        if !self.is_main_host(&host.device) {
            return Some("parts move only to the main node's host");
        }
        let inside = |stage: &&Stage| {
            !self.is_main_host(&stage.device)
                && stage.layers.start <= moved.layers.start
                && moved.layers.end <= stage.layers.end
        };
        if !self.plan.stages.iter().any(|stage| inside(&stage)) {
            return Some("the layers do not all lie on one device");
        }
        let parts = || self.parts(self.row(host)).filter(|(index, _)| moved.layers.contains(index));
        if parts().count() != moved.layers.len() || parts().any(|(_, part)| part.weights_bytes.is_zero()) {
            return Some("a layer has no such part");
        }
        let bytes: u128 = parts().map(|(_, part)| u128::from(part.weights_bytes.get())).sum();
        (bytes != u128::from(moved.bytes.get())).then_some("its bytes are not what adding up gives")
    }
}
