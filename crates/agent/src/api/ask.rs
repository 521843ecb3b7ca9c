//! What can be asked of the planner, in the words of the command.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use plimsoll::balance::{Objective, Pin, Pipelines, PlanOptions, Strategy, Transfers};
use plimsoll::cluster::ClusterSnapshot;
use plimsoll::model::{CacheType, ContextLength, FlashAttention, ModelFormat, ModelSpec, Request};
use plimsoll::units::{Bytes, DeviceRef, NodeId};
use plimsoll::{Engine, Offload, PartPlace};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{ApiError, chain};

/// A model, and what is asked of it and of the planner. The keys are the flags of `plimsoll plan` with `_` for `-`, and
/// what is left out is as it is there.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The model as a path below the agent's folder of models. Either this or `list`.
    pub model: Option<String>,
    /// The model as a layer list: `{"name": …, "layers": [{"count": 80, "bytes": "800MB"}]}`, as in a file.
    #[schema(value_type = Option<Object>)]
    pub list: Option<Box<RawValue>>,
    /// The context of one sequence, in tokens.
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub ctx: Option<Tokens>,
    /// The context of all sequences together. Not together with `ctx`.
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub ctx_total: Option<Tokens>,
    /// How many sequences at once.
    #[serde(default = "one")]
    #[schema(default = 1, minimum = 1)]
    pub parallel: u32,
    /// All sequences share one cache.
    #[serde(default)]
    #[schema(default = false)]
    pub unified_kv: bool,
    /// The form of keys in the cache.
    #[serde(default = "f16")]
    #[schema(default = "f16")]
    pub cache_type_k: String,
    /// The form of values in the cache.
    #[serde(default = "f16")]
    #[schema(default = "f16")]
    pub cache_type_v: String,
    /// Whether flash attention is used.
    #[serde(default)]
    #[schema(default = "auto")]
    pub flash_attn: FlashWord,
    /// Tokens computed at once.
    #[serde(default = "micro_batch")]
    #[schema(default = 512, minimum = 1)]
    pub ubatch: u32,
    /// Layers with a sliding window keep the full context.
    #[serde(default)]
    #[schema(default = false)]
    pub swa_full: bool,
    /// Who will run it; left out: llama.cpp for a GGUF file, none otherwise.
    pub engine: Option<EngineWord>,
    /// Share every layer between this many equal devices of a node; for vllm and sglang.
    #[serde(default = "one")]
    #[schema(default = 1, minimum = 1)]
    pub tensor_parallel: u32,
    /// Where the experts of layers on devices lie; under llama.cpp.
    #[serde(default)]
    #[schema(default = "auto")]
    pub experts: PlaceWord,
    /// The same for the feed-forward blocks of a model without experts.
    #[serde(default = "on_device")]
    #[schema(default = "device")]
    pub ffn: PlaceWord,
    /// A projector to load beside the model, as a path below the agent's folder of models; under llama.cpp.
    pub mmproj: Option<String>,
    /// A draft model to load beside the model, as such a path; under llama.cpp.
    pub draft: Option<String>,
    /// Adapters to load beside the model, as such paths; under llama.cpp.
    #[serde(default)]
    pub lora: Vec<String>,
    /// Adapters with a strength of their own (`terms.gguf:0.5`).
    #[serde(default)]
    pub lora_scaled: Vec<String>,
    /// What the plan should be good at.
    #[serde(default)]
    #[schema(default = "latency")]
    pub objective: ObjectiveWord,
    /// In which orders devices are tried.
    #[serde(default)]
    #[schema(default = "portfolio")]
    pub strategy: StrategyWord,
    /// Keep this much free on every pool: bytes, or a text such as 1GiB.
    #[schema(value_type = Option<u64>)]
    pub reserve: Option<Bytes>,
    /// Use at most this many devices, the host not counted.
    pub max_devices: Option<u32>,
    /// Use only these nodes.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub only: Vec<NodeId>,
    /// Use at most this much of a device (`tower/CUDA0=20GiB`).
    #[serde(default)]
    pub cap: Vec<String>,
    /// Keep layers on a device (`0-8=tower/CUDA0`: layers 0 to 7).
    #[serde(default)]
    pub pin: Vec<String>,
    /// Run this many copies side by side, or as many as pay (`auto`).
    #[serde(default)]
    #[schema(value_type = u32, default = 1, minimum = 1)]
    pub pipelines: Copies,
    /// How a stage's time counts what it passes on.
    #[serde(default)]
    #[schema(default = "apart")]
    pub transfers: TransfersWord,
}

const fn one() -> u32 {
    1
}

const fn micro_batch() -> u32 {
    512
}

const fn on_device() -> PlaceWord {
    PlaceWord::Device
}

fn f16() -> String {
    CacheType::default().name().to_owned()
}

/// A word of a fixed list, with what it stands for.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident for $target:ty { $($(#[$attr:meta])* $variant:ident => $value:expr,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$attr])* $variant,)+ }

        impl From<$name> for $target {
            fn from(word: $name) -> Self {
                match word { $($name::$variant => $value,)+ }
            }
        }
    };
}

words! {
    /// What a plan should be good at.
    ObjectiveWord for Objective {
        Fit => Self::Fit,
        Throughput => Self::Throughput,
        #[default] Latency => Self::Latency,
        Balanced => Self::Balanced,
    }
}

words! {
    /// In which orders devices are tried.
    StrategyWord for Strategy {
        #[default] Portfolio => Self::Portfolio,
        CapacityDescending => Self::CapacityDescending,
        GivenOrder => Self::GivenOrder,
    }
}

words! {
    /// How a stage's time counts what it passes on.
    TransfersWord for Transfers {
        #[default] Apart => Self::Apart,
        Overlapped => Self::Overlapped,
        Added => Self::Added,
    }
}

words! {
    /// Whether flash attention is used.
    FlashWord for FlashAttention {
        On => Self::On,
        Off => Self::Off,
        #[default] Auto => Self::Auto,
    }
}

words! {
    /// Who will run it.
    EngineWord for Engine {
        #[serde(rename = "llama.cpp")] LlamaCpp => Self::LlamaCpp,
        #[serde(rename = "ik_llama.cpp")] IkLlamaCpp => Self::IkLlamaCpp,
        Vllm => Self::Vllm,
        Sglang => Self::Sglang,
        #[serde(rename = "mistral.rs")] MistralRs => Self::MistralRs,
        #[serde(alias = "transformers")] Accelerate => Self::Accelerate,
        Petals => Self::Petals,
        Exo => Self::Exo,
        #[default] None => Self::None,
    }
}

words! {
    /// Where a part of a layer lies.
    PlaceWord for PartPlace {
        #[default] Auto => Self::Auto,
        Device => Self::Device,
        Host => Self::Host,
    }
}

/// A number of tokens, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens(u64);

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Told;
        impl Visitor<'_> for Told {
            type Value = Tokens;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens from 1 on")
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Tokens, E> {
                if n == 0 { Err(E::invalid_value(Unexpected::Unsigned(n), &self)) } else { Ok(Tokens(n)) }
            }
        }
        deserializer.deserialize_u64(Told)
    }
}

/// How many copies side by side: a number from 1 on, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies(Pipelines);

impl Default for Copies {
    fn default() -> Self {
        Self(Pipelines::One)
    }
}

impl<'de> Deserialize<'de> for Copies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Told;
        impl Visitor<'_> for Told {
            type Value = Copies;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of copies from 1 on or \"auto\"")
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Copies, E> {
                match u32::try_from(n).ok().and_then(std::num::NonZeroU32::new) {
                    Some(n) if n.get() == 1 => Ok(Copies(Pipelines::One)),
                    Some(n) => Ok(Copies(Pipelines::Exactly(n))),
                    None => Err(E::invalid_value(Unexpected::Unsigned(n), &self)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Copies, E> {
                match text {
                    "auto" => Ok(Copies(Pipelines::Auto)),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Told)
    }
}

impl PlanRequest {
    /// The engine that was named, else the one that suits the model.
    pub(super) fn engine(&self, model: &ModelSpec) -> Engine {
        self.engine.map_or(
            match model.format() {
                ModelFormat::Gguf => Engine::LlamaCpp,
                ModelFormat::Safetensors | ModelFormat::List => Engine::None,
            },
            Engine::from,
        )
    }

    /// What is asked of the model.
    pub(super) fn request(&self, engine: Engine) -> Result<Request, ApiError> {
        let context = match (self.ctx, self.ctx_total) {
            (Some(_), Some(_)) => {
                return Err(ApiError::input(
                    "ctx and ctx_total are both given; one of them says the context",
                ));
            }
            (Some(Tokens(tokens)), None) => Some(ContextLength::PerSequence(tokens)),
            (None, Some(Tokens(tokens))) => Some(ContextLength::Total(tokens)),
            (None, None) => None,
        };
        let numbers =
            [("parallel", self.parallel), ("ubatch", self.ubatch), ("tensor_parallel", self.tensor_parallel)];
        for (key, number) in numbers {
            if number == 0 {
                return Err(ApiError::input(format!("{key} is 0, and must be at least 1")));
            }
        }
        let cache_type = |key: &str, word: &str| {
            word.parse::<CacheType>().map_err(|error| ApiError::input(format!("{key}: {error}")))
        };
        Ok(Request {
            context,
            parallel: self.parallel,
            unified_kv: self.unified_kv,
            cache_type_k: cache_type("cache_type_k", &self.cache_type_k)?,
            cache_type_v: cache_type("cache_type_v", &self.cache_type_v)?,
            flash_attention: self.flash_attn.into(),
            micro_batch: self.ubatch,
            batch: Request::default().batch.max(self.ubatch),
            full_window: self.swa_full,
            ranks: self.tensor_parallel,
            engine: engine.profile(),
        })
    }

    /// Where parts of layers lie.
    pub(super) fn offload(&self) -> Offload {
        Offload { experts: self.experts.into(), feed_forward: self.ffn.into() }
    }

    /// What is asked of the planner. Names that the cluster does not have are wrong input.
    pub(super) fn options(&self, snapshot: &ClusterSnapshot) -> Result<PlanOptions, ApiError> {
        if let Some(node) = self.only.iter().find(|id| snapshot.node(id).is_none()) {
            return Err(ApiError::input(format!(
                "only names node '{node}', and the cluster has {}",
                few(snapshot.nodes.iter().map(|node| node.id.to_string()))
            )));
        }
        let pins: Vec<Pin> = self.pin.iter().map(|text| pin(text)).collect::<Result<_, _>>()?;
        let mut caps = BTreeMap::new();
        for text in &self.cap {
            let (device, cap) = parse_cap(text)?;
            known("cap", &device, snapshot)?;
            if caps.insert(device.clone(), cap).is_some() {
                return Err(ApiError::input(format!("cap names device '{device}' twice")));
            }
        }
        for pin in &pins {
            known("pin", &pin.device, snapshot)?;
        }
        let limits = PlanOptions {
            max_devices: self.max_devices,
            only: (!self.only.is_empty()).then(|| self.only.iter().cloned().collect::<BTreeSet<_>>()),
            caps,
            reserve: self.reserve,
            pins,
            ..PlanOptions::default()
        };
        Ok(PlanOptions {
            objective: self.objective.into(),
            strategy: self.strategy.into(),
            pipelines: self.pipelines.0,
            transfers: self.transfers.into(),
            ..limits
        })
    }
}

fn pin(text: &str) -> Result<Pin, ApiError> {
    text.parse()
        .map_err(|error: plimsoll::balance::ParsePinError| ApiError::input(format!("pin: {}", chain(&error))))
}

fn parse_cap(text: &str) -> Result<(DeviceRef, Bytes), ApiError> {
    let wrong = |why: String| ApiError::input(format!("cap '{text}': {why}"));
    let parts = text.split_once('=').and_then(|(device, cap)| Some((device.split_once('/')?, cap)));
    let ((node, device), cap) = parts.ok_or_else(|| wrong("not of the form node/device=20GiB".to_owned()))?;
    let node = node.parse().map_err(|error| wrong(format!("{error}")))?;
    let device = device.parse().map_err(|error| wrong(format!("{error}")))?;
    let cap = cap.parse().map_err(|error| wrong(format!("{error}")))?;
    Ok((DeviceRef { node, device }, cap))
}

fn known(key: &str, device: &DeviceRef, snapshot: &ClusterSnapshot) -> Result<(), ApiError> {
    if snapshot.device(device).is_some() {
        return Ok(());
    }
    let all = snapshot
        .nodes
        .iter()
        .flat_map(|node| node.devices.iter().map(move |device| format!("{}/{}", node.id, device.id)));
    Err(ApiError::input(format!("{key} names device '{device}', and the cluster has {}", few(all))))
}

/// The first of many names.
fn few(names: impl Iterator<Item = String>) -> String {
    const MOST: usize = 20;
    let mut names = names.peekable();
    let mut told: Vec<String> = names.by_ref().take(MOST).collect();
    let rest = names.count();
    if rest > 0 {
        told.push(format!("{rest} more"));
    }
    told.join(", ")
}
