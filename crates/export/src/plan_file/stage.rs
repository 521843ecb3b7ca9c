//! Where everything lies, and how good that is: as records, and back.

use std::time::Duration;

use plimsoll_balance::{
    Assumption, FixedPart, Objective, Optimality, Override, Pin, PlanValue, Stage, Stopped,
};
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, DeviceRef, NodeId};

use super::words::{part_class, stopped_text};
use super::{
    AssumptionRecord, FormatError, OptimalityRecord, OverrideRecord, PartRecord, PinRecord, StageRecord,
    StoppedRecord, ValueRecord,
};

impl StageRecord {
    pub(super) fn from_stage(stage: &Stage) -> Self {
        Self {
            pipeline: stage.pipeline,
            node: stage.device.node.clone(),
            device: stage.device.device.clone(),
            layers: [stage.layers.start, stage.layers.end],
            input: stage.input,
            head: stage.head,
            weights_bytes: stage.weights_bytes.get(),
            kv_bytes: stage.kv_bytes.get(),
            overhead_bytes: stage.overhead_bytes.get(),
            budget_bytes: stage.budget_bytes.get(),
            slack_bytes: stage.slack_bytes.get(),
            seconds: stage.seconds,
        }
    }

    pub(super) fn to_stage(&self) -> Stage {
        Stage {
            pipeline: self.pipeline,
            device: DeviceRef { node: self.node.clone(), device: self.device.clone() },
            layers: self.layers[0]..self.layers[1],
            input: self.input,
            head: self.head,
            weights_bytes: Bytes::new(self.weights_bytes),
            kv_bytes: Bytes::new(self.kv_bytes),
            overhead_bytes: Bytes::new(self.overhead_bytes),
            budget_bytes: Bytes::new(self.budget_bytes),
            slack_bytes: Bytes::new(self.slack_bytes),
            seconds: self.seconds,
        }
    }
}

impl OverrideRecord {
    pub(super) fn from_override(moved: &Override) -> Self {
        Self {
            layers: [moved.layers.start, moved.layers.end],
            class: moved.class.name().to_owned(),
            node: moved.device.node.clone(),
            device: moved.device.device.clone(),
            bytes: moved.bytes.get(),
        }
    }

    pub(super) fn to_override(&self) -> Result<Override, FormatError> {
        Ok(Override {
            layers: self.layers[0]..self.layers[1],
            class: part_class("overrides.class", &self.class)?,
            device: DeviceRef { node: self.node.clone(), device: self.device.clone() },
            bytes: Bytes::new(self.bytes),
        })
    }
}

impl PartRecord {
    pub(super) fn from_part(part: &FixedPart) -> Self {
        let DeviceRef { node, device } = part.device.clone();
        Self { name: part.name.clone(), node, device, bytes: part.bytes.get() }
    }

    pub(super) fn to_part(&self) -> FixedPart {
        let device = DeviceRef { node: self.node.clone(), device: self.device.clone() };
        FixedPart { name: self.name.clone(), device, bytes: Bytes::new(self.bytes) }
    }
}

impl PinRecord {
    pub(super) fn from_pin(pin: &Pin) -> Self {
        let DeviceRef { node, device } = pin.device.clone();
        Self { node, device, layers: [pin.layers.start, pin.layers.end] }
    }

    pub(super) fn to_pin(&self) -> Pin {
        let device = DeviceRef { node: self.node.clone(), device: self.device.clone() };
        Pin { device, layers: (self.layers[0]..self.layers[1]).into() }
    }
}

impl AssumptionRecord {
    pub(super) fn from_assumption(assumption: &Assumption) -> Self {
        match assumption {
            Assumption::Bandwidth { device, rate, by_name } => Self::Bandwidth {
                node: device.node.clone(),
                device: device.device.clone(),
                bytes_per_second: rate.get(),
                by_name: *by_name,
            },
            Assumption::Link { between, rate, latency } => Self::Link {
                between: between.clone(),
                bytes_per_second: rate.get(),
                latency_ns: u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX),
            },
            Assumption::UnknownSpeed { device } => {
                Self::UnknownSpeed { node: device.node.clone(), device: device.device.clone() }
            }
        }
    }

    pub(super) fn to_assumption(&self) -> Assumption {
        let at = |node: &NodeId, device: &DeviceId| DeviceRef { node: node.clone(), device: device.clone() };
        match self {
            Self::Bandwidth { node, device, bytes_per_second, by_name } => Assumption::Bandwidth {
                device: at(node, device),
                rate: BytesPerSec::new(*bytes_per_second),
                by_name: *by_name,
            },
            Self::Link { between, bytes_per_second, latency_ns } => Assumption::Link {
                between: between.clone(),
                rate: BytesPerSec::new(*bytes_per_second),
                latency: Duration::from_nanos(*latency_ns),
            },
            Self::UnknownSpeed { node, device } => Assumption::UnknownSpeed { device: at(node, device) },
        }
    }
}

impl ValueRecord {
    pub(super) fn from_value(objective: Objective, value: &PlanValue) -> Self {
        let (optimality, gap) = match value.optimality {
            Optimality::Proven => (OptimalityRecord::Proven, Some(0.0)),
            Optimality::Within(gap) => (OptimalityRecord::Within, Some(gap)),
            Optimality::Unproven => (OptimalityRecord::Unproven, None),
        };
        let mut record = Self { lower_bound: value.lower_bound, optimality, gap, ..Self::default() };
        match objective {
            Objective::Fit => record.devices = Some(value.value.map(whole)),
            Objective::Throughput => record.bottleneck_seconds = Some(value.value),
            Objective::Latency => record.seconds_per_token = Some(value.value),
            Objective::Balanced => record.largest_fraction = Some(value.value),
        }
        record
    }

    pub(super) fn to_value(self, objective: Objective) -> PlanValue {
        let value = match objective {
            Objective::Fit => self.devices.map(|devices| devices.map(exact)),
            Objective::Throughput => self.bottleneck_seconds,
            Objective::Latency => self.seconds_per_token,
            Objective::Balanced => self.largest_fraction,
        };
        let optimality = match (self.optimality, self.gap) {
            (OptimalityRecord::Proven, _) => Optimality::Proven,
            (OptimalityRecord::Within, Some(gap)) => Optimality::Within(gap),
            (OptimalityRecord::Within, None) | (OptimalityRecord::Unproven, _) => Optimality::Unproven,
        };
        PlanValue { value: value.flatten(), lower_bound: self.lower_bound, optimality }
    }
}

/// A count that travelled as a floating-point number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of devices is small and whole"
)]
fn whole(count: f64) -> u64 {
    count.round().max(0.0) as u64
}

/// A count as the planner compares it.
fn exact(count: u64) -> f64 {
    Bytes::new(count).as_f64()
}

impl StoppedRecord {
    /// What stopped a device, in words.
    pub fn from_stopped(stopped: &Stopped) -> Self {
        Self {
            node: stopped.device.node.clone(),
            device: stopped.device.device.clone(),
            reason: stopped_text(&stopped.reason),
            short_bytes: stopped.short_bytes.get(),
        }
    }
}
