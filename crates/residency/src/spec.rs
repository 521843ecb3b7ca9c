//! What a resident model is.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_units::{Bytes, PoolId};

use crate::Runtime;

/// What a resident model is and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferenceSpec {
    /// The stable name of its purpose (`coder-daily`), without the prefix `role:`.
    pub role: String,
    /// Which model, where that is told.
    pub model: Option<String>,
    /// What runs it.
    pub runtime: Runtime,
    /// What it needs.
    pub needs: Needs,
    /// The roles that may not be resident beside it, without the prefix `role:`.
    pub excludes: BTreeSet<String>,
    /// How soon its answers are wanted.
    pub latency_class: LatencyClass,
    /// Whether it stays even when something else needs the room.
    pub sticky: bool,
}

/// How much memory a resident model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// So much, of a single memory.
    Memory {
        /// For its weights.
        weights: Bytes,
        /// For its key-value cache.
        kv_budget: Bytes,
    },
    /// So much of each of these pools.
    Pools(BTreeMap<PoolId, Bytes>),
}

/// Nothing.
impl Default for Needs {
    fn default() -> Self {
        Self::Memory { weights: Bytes::ZERO, kv_budget: Bytes::ZERO }
    }
}

/// How soon answers are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LatencyClass {
    /// Somebody waits.
    Interactive,
    /// Nobody does.
    #[default]
    Batch,
}

impl LatencyClass {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}

impl InferenceSpec {
    /// A model that needs nothing, excludes nobody, serves batches and may be evicted.
    pub fn new(role: impl AsRef<str>, runtime: impl Into<Runtime>) -> Self {
        Self {
            role: bare(role.as_ref()).to_owned(),
            model: None,
            runtime: runtime.into(),
            needs: Needs::default(),
            excludes: BTreeSet::new(),
            latency_class: LatencyClass::default(),
            sticky: false,
        }
    }

    /// The same, of this model.
    #[must_use]
    pub fn with_model(self, model: impl Into<String>) -> Self {
        Self { model: Some(model.into()), ..self }
    }

    /// The same, needing so much of a single memory.
    #[must_use]
    pub fn with_memory(self, weights: Bytes, kv_budget: Bytes) -> Self {
        Self { needs: Needs::Memory { weights, kv_budget }, ..self }
    }

    /// The same, needing so much of each pool.
    #[must_use]
    pub fn with_pools(self, pools: impl IntoIterator<Item = (PoolId, Bytes)>) -> Self {
        Self { needs: Needs::Pools(pools.into_iter().collect()), ..self }
    }

    /// The same, and these roles may not be resident beside it.
    #[must_use]
    pub fn excluding<R: AsRef<str>>(mut self, roles: impl IntoIterator<Item = R>) -> Self {
        self.excludes.extend(roles.into_iter().map(|role| bare(role.as_ref()).to_owned()));
        self
    }

    /// Whether this one says that `role` may not be resident beside it.
    pub fn excludes_role(&self, role: &str) -> bool {
        self.excludes.contains(bare(role))
    }
}

/// A role without the prefix `role:`.
pub(crate) fn bare(role: &str) -> &str {
    role.strip_prefix("role:").unwrap_or(role)
}

/// All that a model needs: weights and key-value cache, or the sum over its pools; [`Bytes::MAX`] when that is more than
/// can be said.
pub fn footprint(spec: &InferenceSpec) -> Bytes {
    match &spec.needs {
        Needs::Memory { weights, kv_budget } => weights.saturating_add(*kv_budget),
        Needs::Pools(pools) => Bytes::saturating_sum(pools.values().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str) -> PoolId {
        PoolId::new(name).unwrap()
    }

    #[test]
    fn a_new_spec_needs_nothing_and_asks_for_nothing() {
        let spec = InferenceSpec::new("role:coder", "vllm");
        assert_eq!((spec.role.as_str(), &spec.runtime), ("coder", &Runtime::Vllm));
        assert_eq!(footprint(&spec), Bytes::ZERO);
        assert_eq!((spec.latency_class, spec.sticky, spec.excludes.len()), (LatencyClass::Batch, false, 0));
    }

    #[test]
    fn a_footprint_is_a_sum_that_never_wraps() {
        let spec = InferenceSpec::new("a", "x");
        assert_eq!(footprint(&spec.clone().with_memory(Bytes::gib(3), Bytes::gib(4))), Bytes::gib(7));
        assert_eq!(footprint(&spec.clone().with_memory(Bytes::MAX, Bytes::new(1))), Bytes::MAX);
        let pools = [(pool("CUDA0"), Bytes::gib(1)), (pool("ram"), Bytes::gib(2))];
        assert_eq!(footprint(&spec.clone().with_pools(pools)), Bytes::gib(3));
        let pools = [(pool("a"), Bytes::MAX), (pool("b"), Bytes::MAX)];
        assert_eq!(footprint(&spec.with_pools(pools)), Bytes::MAX);
    }

    #[test]
    fn a_role_is_the_same_with_and_without_its_prefix() {
        let spec = InferenceSpec::new("a", "x").excluding(["role:b", "c"]);
        for (role, excluded) in [("b", true), ("role:b", true), ("c", true), ("role:c", true), ("a", false)] {
            assert_eq!(spec.excludes_role(role), excluded, "{role}");
        }
    }

    #[test]
    fn runtimes_are_known_by_name() {
        for name in ["llama.cpp", "vllm", "sglang", "mistral.rs", "transformers"] {
            let runtime = Runtime::from(name);
            assert!(!matches!(runtime, Runtime::Other(_)), "{name}");
            assert_eq!(runtime.to_string(), name);
        }
        assert_eq!(Runtime::from("mine"), Runtime::Other("mine".to_owned()));
    }
}
