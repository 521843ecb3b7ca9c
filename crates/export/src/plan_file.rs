//! A saved plan: all that is needed to check it, compare it and move from it.

mod convert;
mod model;
mod request;
mod stage;
mod words;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use plimsoll_units::{DeviceId, Generation, NodeId};
use serde::{Deserialize, Serialize};

pub use convert::Saved;
pub use model::layer_digest;
pub use words::{assumption_text, objective_word, stopped_text, transfers_word};

/// The format that is written, and the only one that is read.
pub const PLAN_FORMAT: &str = "plimsoll.plan/1";

/// The most layers a saved plan may describe: far above any model, far below what would fill memory.
const MOST_LAYERS: u64 = 1_000_000;

/// Why a text is not a saved plan. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Not JSON, or not with these keys.
    #[error("not a plan: {0}")]
    Json(#[from] serde_json::Error),
    /// Another format, or a newer version of this one.
    #[error("the format is '{found}', and this plimsoll reads '{PLAN_FORMAT}'")]
    Version {
        /// What the file says.
        found: String,
    },
    /// A word that has no meaning at its place.
    #[error("{key} is '{value}'; known are {known}")]
    Word {
        /// The key.
        key: &'static str,
        /// What the file says.
        value: String,
        /// What it may say.
        known: &'static str,
    },
    /// Runs that add up to another number of layers than the model has.
    #[error("the runs describe {described} layers and the model has {layers}")]
    Runs {
        /// How many the runs describe.
        described: u64,
        /// How many the model has.
        layers: u64,
    },
    /// Something in the file is not what was saved.
    #[error("the plan was changed by hand: its seal is {stored}, and its text gives {computed}")]
    Seal {
        /// What the text gives.
        computed: String,
        /// What the file says.
        stored: String,
    },
    /// The stored facts are not those that the stored digest was taken of.
    #[error(
        "the layer facts have the digest {computed}, and the plan says {stored}: the file was changed by hand"
    )]
    Digest {
        /// What the facts give.
        computed: String,
        /// What the file says.
        stored: String,
    },
}

/// A plan as it lies in a file. Integers are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// [`PLAN_FORMAT`].
    pub format: String,
    /// What is placed.
    pub model: ModelRecord,
    /// What was asked.
    pub request: RequestRecord,
    /// What it was computed from.
    pub basis: BasisRecord,
    /// Where everything goes, in order.
    pub stages: Vec<StageRecord>,
    /// Parts of layers that lie elsewhere than their layer.
    #[serde(default)]
    pub overrides: Vec<OverrideRecord>,
    /// Parts beside the layers (projector, draft).
    #[serde(default)]
    pub parts: Vec<PartRecord>,
    /// What was assumed, in words.
    pub assumed: Vec<String>,
    /// The same as data, so that a check can tell what was assumed from what has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<AssumptionRecord>,
    /// How good it is.
    pub value: ValueRecord,
    /// What was met on the way.
    pub report: ReportRecord,
    /// SHA-256 of all the rest, which shows an edit by hand; absent in plans that were written elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// What to type on which node to carry it out, shell-quoted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
    /// What the engine reads beside its command line, as files: a device map, a topology, an instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRecord>,
}

/// A file that an engine reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// What the command line calls it.
    pub name: String,
    /// What is in it: JSON as it is, any other text as a string.
    pub content: serde_json::Value,
}

/// Parts of layers that lie elsewhere than their layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideRecord {
    /// The layers, half open.
    pub layers: [u32; 2],
    /// `experts`, `ffn` or `tensors`.
    pub class: String,
    /// The node where the parts lie.
    pub node: NodeId,
    /// The device there.
    pub device: DeviceId,
    /// What they take there.
    pub bytes: u64,
}

/// Something that takes room beside the layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRecord {
    /// What it is.
    pub name: String,
    /// The node where it lies.
    pub node: NodeId,
    /// The device there.
    pub device: DeviceId,
    /// What it takes.
    pub bytes: u64,
}

/// A line to type on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRecord {
    /// Where.
    pub node: NodeId,
    /// The line.
    pub line: String,
}

/// What is placed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// What people call it.
    pub name: String,
    /// The family whose rules it follows.
    pub architecture: String,
    /// How many repeating layers there are.
    pub layers: u64,
    /// SHA-256 of the canonical layer facts (see [`ModelRecord::layer_digest`]).
    pub digest: String,
    /// The layers, equal neighbours taken together.
    pub runs: Vec<RunRecord>,
    /// The token embedding.
    pub input_bytes: u64,
    /// The head where it does not lie beside the input.
    pub head_bytes: u64,
    /// The head where it lies beside the input.
    pub head_beside_input_bytes: u64,
    /// What every device with a layer keeps a copy of.
    #[serde(default)]
    pub each_device_bytes: u64,
    /// Next-token blocks behind the layers.
    #[serde(default)]
    pub nextn: u32,
    /// What passes between stages for one token.
    #[serde(default)]
    pub activation_bytes: u64,
    /// The same model in buffers that round differently, by backend.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, VariantRecord>,
    /// Parts of the layers that may lie on the main host, apart from their layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movable: Option<MovableRecord>,
    /// The files as the person gave them, for an engine whose command line does not name them with `-m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The modules of the checkpoint, for an engine that is told of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<crate::accelerate::Modules>,
}

/// Parts of layers that may lie on the main host, apart from their layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MovableRecord {
    /// `experts`, `ffn` or `tensors`.
    pub class: String,
    /// `needed` or `always`.
    pub when: String,
    /// What devices pay where some part lies on the host: each, the first one on top, the one with the head on top.
    pub charges: [u64; 3],
    /// The part of each layer.
    pub parts: Vec<PartRunRecord>,
}

/// Equal parts of layers that follow each other; of zero bytes where a layer has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRunRecord {
    /// How many.
    pub count: u64,
    /// What each takes.
    pub bytes: u64,
    /// What one token reads of each.
    pub read_bytes: u64,
}

/// A model in the buffers of one backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantRecord {
    /// The layers.
    pub runs: Vec<RunRecord>,
    /// The token embedding.
    pub input_bytes: u64,
    /// The head apart from the input.
    pub head_bytes: u64,
    /// The head beside the input.
    pub head_beside_input_bytes: u64,
    /// What every device with a layer keeps a copy of.
    #[serde(default)]
    pub each_device_bytes: u64,
    /// The part of each layer that may lie on the main host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartRunRecord>,
}

/// Equal layers that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// How many.
    pub count: u64,
    /// Weights of each.
    pub weights_bytes: u64,
    /// Key-value cells and state of each.
    pub kv_bytes: u64,
    /// Weights that one token reads of each.
    pub read_bytes: u64,
    /// Whether a stage may end after each.
    pub cut: bool,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestRecord {
    /// Tokens that one sequence can use.
    pub ctx: u64,
    /// Cells in all.
    pub ctx_total: u64,
    /// Sequences at once.
    pub parallel: u32,
    /// Whether they share one cache.
    pub unified_kv: bool,
    /// The form of keys.
    pub cache_type_k: String,
    /// The form of values.
    pub cache_type_v: String,
    /// `on`, `off` or `auto`.
    pub flash_attn: String,
    /// Tokens computed at once.
    pub ubatch: u32,
    /// Tokens submitted at once.
    pub batch: u32,
    /// Whether windows are stored in full.
    pub swa_full: bool,
    /// `fit`, `throughput`, `latency` or `balanced`.
    pub objective: String,
    /// `portfolio`, `capacity-descending` or `given-order`.
    pub strategy: String,
    /// How many equal devices share every layer; absent for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_parallel: Option<u32>,
    /// The most devices that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_devices: Option<u32>,
    /// The only nodes that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<NodeId>>,
    /// Caps that were asked for, by `node/device`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub caps: BTreeMap<String, u64>,
    /// The reserve that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<u64>,
    /// Layers that have to lie on certain devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinRecord>,
    /// How many copies of the model were asked for: a number or `auto`; absent for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipelines: Option<PipelinesRecord>,
    /// How what passes between stages counts: `overlapped` or `added`; absent for `apart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<String>,
    /// Who will carry it out.
    pub engine: EngineRecord,
}

/// Layers that have to lie on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinRecord {
    /// Its node.
    pub node: NodeId,
    /// The device.
    pub device: DeviceId,
    /// The layers, half open.
    pub layers: [u32; 2],
}

/// How many copies of the model run side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PipelinesRecord {
    /// So many.
    Count(NonZeroU32),
    /// `auto`.
    Word(String),
}

/// An engine and what it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineRecord {
    /// Its name.
    pub name: String,
    /// The version whose rules were used.
    pub version: String,
    /// `ordinary` or `first-layers-of-main`.
    pub host: String,
    /// The most devices it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_devices: Option<u32>,
    /// What it keeps free on every pool without a reserve.
    pub margin_bytes: u64,
    /// What it takes beside the layers.
    pub charges: ChargesRecord,
    /// What the server may cache in the host's memory; absent where its default stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_ram_bytes: Option<u64>,
}

/// What an engine takes beside the layers, as in `plimsoll_balance::Charges`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of `Charges`, under the same names")]
pub struct ChargesRecord {
    pub host: u64,
    pub host_alone: u64,
    pub alone: u64,
    pub split: [u64; 3],
    pub partial: [u64; 3],
}

/// What a plan was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasisRecord {
    /// The snapshot's number.
    pub generation: Generation,
}

/// What one device holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of `Stage`, under the same names")]
pub struct StageRecord {
    pub pipeline: u32,
    pub node: NodeId,
    pub device: DeviceId,
    pub layers: [u32; 2],
    pub input: bool,
    pub head: bool,
    pub weights_bytes: u64,
    pub kv_bytes: u64,
    pub overhead_bytes: u64,
    pub budget_bytes: u64,
    pub slack_bytes: u64,
    pub seconds: Option<f64>,
}

/// How good a plan is. The key of the value follows the objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueRecord {
    /// Latency.
    #[serde(default, with = "present", skip_serializing_if = "Option::is_none")]
    pub seconds_per_token: Option<Option<f64>>,
    /// Throughput.
    #[serde(default, with = "present", skip_serializing_if = "Option::is_none")]
    pub bottleneck_seconds: Option<Option<f64>>,
    /// Balanced.
    #[serde(default, with = "present", skip_serializing_if = "Option::is_none")]
    pub largest_fraction: Option<Option<f64>>,
    /// Fit.
    #[serde(default, with = "present", skip_serializing_if = "Option::is_none")]
    pub devices: Option<Option<u64>>,
    /// No plan is better than this.
    pub lower_bound: Option<f64>,
    /// What is proven.
    pub optimality: OptimalityRecord,
    /// By how much a better plan could be better, as a share.
    pub gap: Option<f64>,
}

/// A key that is present and null is not the same as a key that is absent.
mod present {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S, T>(value: &Option<Option<T>>, to: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        T: Serialize + Copy,
    {
        value.flatten().serialize(to)
    }

    pub(super) fn deserialize<'de, D, T>(from: D) -> Result<Option<Option<T>>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        Option::deserialize(from).map(Some)
    }
}

/// What is proven of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimalityRecord {
    /// Nothing better exists.
    Proven,
    /// Nothing is better by more than the gap.
    Within,
    /// Nothing.
    #[default]
    Unproven,
}

/// Something that the snapshot did not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AssumptionRecord {
    /// A device's speed.
    Bandwidth {
        /// Its node.
        node: NodeId,
        /// The device.
        device: DeviceId,
        /// What was taken for it.
        bytes_per_second: u64,
        /// Whether its name is known, or only its kind.
        by_name: bool,
    },
    /// A way between two nodes.
    Link {
        /// The two nodes.
        between: [NodeId; 2],
        /// What was taken for it.
        bytes_per_second: u64,
        /// And how long the first byte takes, in nanoseconds.
        latency_ns: u64,
    },
    /// No speed is known of this device nor of its kind.
    UnknownSpeed {
        /// Its node.
        node: NodeId,
        /// The device.
        device: DeviceId,
    },
}

/// What was met on the way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportRecord {
    /// What stopped each device.
    pub stopped: Vec<StoppedRecord>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// What stopped one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoppedRecord {
    /// Its node.
    pub node: NodeId,
    /// The device.
    pub device: DeviceId,
    /// Why.
    pub reason: String,
    /// How many bytes more would have helped.
    pub short_bytes: u64,
}
