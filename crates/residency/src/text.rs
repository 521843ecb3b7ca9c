//! [`InferenceSpec`] in the formats that serde knows.

use std::collections::BTreeMap;

use plimsoll_units::{Bytes, PoolId};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use crate::spec::bare;
use crate::{InferenceSpec, LatencyClass, Needs, Runtime};

/// The fields as they are written.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    runtime: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pools: Option<BTreeMap<PoolId, Bytes>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    excludes: Vec<String>,
    #[serde(default)]
    latency_class: Class,
    #[serde(default)]
    sticky: bool,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    weights_bytes: Bytes,
    #[serde(default)]
    kv_budget_bytes: Bytes,
}

#[derive(Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Class {
    Interactive,
    #[default]
    Batch,
}

impl Serialize for InferenceSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (memory, pools) = match &self.needs {
            Needs::Memory { weights, kv_budget } => {
                (Some(Memory { weights_bytes: *weights, kv_budget_bytes: *kv_budget }), None)
            }
            Needs::Pools(pools) => (None, Some(pools.clone())),
        };
        let written = Written {
            role: self.role.clone(),
            model: self.model.clone(),
            runtime: self.runtime.name().to_owned(),
            memory,
            pools,
            excludes: self.excludes.iter().cloned().collect(),
            latency_class: match self.latency_class {
                LatencyClass::Interactive => Class::Interactive,
                LatencyClass::Batch => Class::Batch,
            },
            sticky: self.sticky,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for InferenceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let needs = match (written.memory, written.pools) {
            (Some(_), Some(_)) => {
                return Err(D::Error::custom(format_args!(
                    "role '{}' has both 'memory' and 'pools'; give one of them",
                    written.role
                )));
            }
            (Some(Memory { weights_bytes, kv_budget_bytes }), None) => {
                Needs::Memory { weights: weights_bytes, kv_budget: kv_budget_bytes }
            }
            (None, Some(pools)) => Needs::Pools(pools),
            (None, None) => Needs::default(),
        };
        Ok(Self {
            role: bare(&written.role).to_owned(),
            model: written.model,
            runtime: Runtime::from(written.runtime),
            needs,
            excludes: written.excludes.iter().map(|role| bare(role).to_owned()).collect(),
            latency_class: match written.latency_class {
                Class::Interactive => LatencyClass::Interactive,
                Class::Batch => LatencyClass::Batch,
            },
            sticky: written.sticky,
        })
    }
}
