//! The keys of a scenario.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_cluster::Limits;
use plimsoll_units::{Bytes, BytesPerSec, NodeId, PoolId};
use serde::Deserialize;
use toml::{Spanned, Table};

use crate::scenario::{Chance, Policy, Scenario};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    pub(super) name: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) duration: Option<Span>,
    pub(super) sample: Option<Span>,
    pub(super) cluster: Option<PathBuf>,
    pub(super) defaults: Option<toml::Value>,
    #[serde(default)]
    pub(super) node: Vec<Table>,
    #[serde(default)]
    pub(super) link: Vec<Table>,
    #[serde(default)]
    pub(super) fleet: Vec<Spanned<Fleet>>,
    #[serde(default)]
    pub(super) join: Vec<Spanned<Join>>,
    #[serde(default)]
    pub(super) model: Vec<Spanned<ModelText>>,
    #[serde(default)]
    pub(super) event: Vec<Spanned<EventText>>,
    #[serde(default)]
    pub(super) flap: Vec<Flap>,
    #[serde(default)]
    pub(super) limits: LimitsText,
    #[serde(default)]
    pub(super) policy: PolicyText,
    #[serde(default)]
    pub(super) random: RandomText,
}

#[derive(Deserialize)]
pub(super) struct Fleet {
    pub(super) prefix: String,
    pub(super) count: u32,
    #[serde(flatten)]
    pub(super) node: Table,
}

#[derive(Deserialize)]
pub(super) struct Join {
    pub(super) at: Span,
    #[serde(flatten)]
    pub(super) node: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelText {
    pub(super) name: String,
    pub(super) file: Option<PathBuf>,
    pub(super) layers: Option<toml::Value>,
    pub(super) input_bytes: Option<Bytes>,
    pub(super) head_bytes: Option<Bytes>,
    pub(super) ctx: Option<u64>,
    #[serde(default = "one")]
    pub(super) parallel: u32,
    #[serde(default)]
    pub(super) objective: ObjectiveText,
    pub(super) max_devices: Option<u32>,
    #[serde(default)]
    pub(super) only: Vec<NodeId>,
    #[serde(default)]
    pub(super) priority: u32,
    #[serde(default)]
    pub(super) from: Span,
    pub(super) until: Option<Span>,
}

const fn one() -> u32 {
    1
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ObjectiveText {
    Fit,
    Throughput,
    #[default]
    Latency,
    Balanced,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventText {
    pub(super) at: Span,
    pub(super) lose: Option<NodeId>,
    pub(super) cut: Option<NodeId>,
    #[serde(rename = "return")]
    pub(super) back: Option<NodeId>,
    pub(super) leave: Option<NodeId>,
    pub(super) drain: Option<NodeId>,
    pub(super) undrain: Option<NodeId>,
    pub(super) outside: Option<Outside>,
    pub(super) link: Option<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outside {
    pub(super) node: NodeId,
    pub(super) pool: PoolId,
    pub(super) bytes: Bytes,
}

/// A node that is cut off again and again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flap {
    pub(super) node: NodeId,
    pub(super) from: Span,
    pub(super) until: Option<Span>,
    pub(super) every: Span,
    pub(super) down: Span,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsText {
    pub(super) degraded_after: Option<Span>,
    pub(super) failed_after: Option<Span>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyText {
    pub(super) threshold: Option<f64>,
    pub(super) least_gain: Option<f64>,
    pub(super) cool_down: Option<Span>,
    pub(super) samples: Option<u32>,
    pub(super) tolerance: Option<f64>,
    pub(super) max_concurrent: Option<NonZeroU32>,
    pub(super) load_rate: Option<BytesPerSec>,
    pub(super) local_rate: Option<BytesPerSec>,
    pub(super) min_age: Option<Span>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RandomText {
    pub(super) losses_per_hour: f64,
    pub(super) repair: Span,
    pub(super) drifts_per_hour: f64,
    pub(super) drift_share: f64,
}

/// A time such as `90s`, `5m`, `2h`, `500ms`, or a number of seconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Told {
            Seconds(u64),
            Text(String),
        }
        let wrong = |text: &dyn std::fmt::Display| {
            serde::de::Error::custom(format!("'{text}' is not a time such as 90s, 5m, 2h or 500ms"))
        };
        match Told::deserialize(deserializer).map_err(|_| wrong(&"a value of another kind"))? {
            Told::Seconds(seconds) => Ok(Self(Duration::from_secs(seconds))),
            Told::Text(text) => parse_span(&text).map(Self).ok_or_else(|| wrong(&text)),
        }
    }
}

fn parse_span(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let n: u64 = digits.parse().ok()?;
    let millis = match unit {
        "ms" => n,
        "s" => n.checked_mul(1_000)?,
        "m" | "min" => n.checked_mul(60_000)?,
        "h" => n.checked_mul(3_600_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(millis))
}

impl LimitsText {
    pub(super) fn limits(&self, sample: Duration) -> Limits {
        let usual = Scenario::limits_for(sample);
        Limits {
            degraded_after: self.degraded_after.map_or(usual.degraded_after, |span| span.0),
            failed_after: self.failed_after.map_or(usual.failed_after, |span| span.0),
            ..usual
        }
    }
}

impl PolicyText {
    pub(super) fn policy(&self) -> Policy {
        let usual = Policy::default();
        Policy {
            threshold: self.threshold.unwrap_or(usual.threshold),
            least_gain: self.least_gain.unwrap_or(usual.least_gain),
            cool_down: self.cool_down.map_or(usual.cool_down, |span| span.0),
            samples: self.samples.unwrap_or(usual.samples),
            tolerance: self.tolerance.unwrap_or(usual.tolerance),
            max_concurrent: self.max_concurrent.unwrap_or(usual.max_concurrent),
            load_rate: self.load_rate.unwrap_or(usual.load_rate),
            local_rate: self.local_rate.unwrap_or(usual.local_rate),
            min_age: self.min_age.map_or(usual.min_age, |span| span.0),
        }
    }
}

impl RandomText {
    pub(super) const fn chance(&self) -> Chance {
        Chance {
            losses_per_hour: self.losses_per_hour,
            repair: self.repair.0,
            drifts_per_hour: self.drifts_per_hour,
            drift_share: self.drift_share,
        }
    }
}
