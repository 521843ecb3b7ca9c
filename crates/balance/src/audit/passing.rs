//! How long it takes from stage to stage, and what that makes of stage times.

use plimsoll_units::Bytes;

use super::Case;
use crate::workload::Transfers;

impl Case<'_> {
    /// What passes before a layer, by its index: what is told behind the one before it, if anything is.
    fn activation(&self, index: u32) -> Bytes {
        let Some(told) = &self.workload.boundary_bytes else { return self.workload.activation_bytes };
        let layers = self.layers.first().map_or(&[][..], Vec::as_slice);
        let before = layers.iter().zip(told).rfind(|(layer, _)| layer.index < index);
        before.map_or(self.workload.activation_bytes, |(_, bytes)| *bytes)
    }

    /// Seconds on every link between a stage and the one before it; none where both lie on one node.
    pub(super) fn links_before(&self, at: usize) -> Vec<f64> {
        let (Some(from), Some(to)) = (self.plan.stages.get(at.wrapping_sub(1)), self.plan.stages.get(at))
        else {
            return Vec::new();
        };
        let (here, there) = (&from.device.node, &to.device.node);
        if here == there {
            return Vec::new();
        }
        let bytes = self.activation(to.layers.start).as_f64();
        let seconds = |a, b| {
            let (rate, latency, _) = self.link(a, b);
            let rate = if rate.is_zero() { 1.0 } else { rate.as_f64() };
            latency.as_secs_f64() + bytes / rate
        };
        match self.main.map(|node| &node.id) {
            Some(main) if here != main && there != main => vec![seconds(here, main), seconds(main, there)],
            _ => vec![seconds(here, there)],
        }
    }

    /// The largest stage time: of each its own seconds and, where that is asked for, those in which it receives and sends.
    pub(super) fn largest(&self, seconds: &[f64]) -> f64 {
        let mut largest = 0.0_f64;
        for (at, &own) in seconds.iter().enumerate() {
            let (received, sent) = (self.links_before(at), self.links_before(at + 1));
            let time = match self.options.transfers {
                Transfers::Apart => own,
                Transfers::Overlapped => sent.into_iter().fold(own, f64::max),
                Transfers::Added => own + received.iter().chain(&sent).sum::<f64>(),
            };
            largest = largest.max(time);
        }
        largest
    }
}
