//! The keys of a roster file.

use std::collections::BTreeMap;

use plimsoll_model::{CacheType, ContextLength, Request};
use plimsoll_units::{Bytes, PoolId};

use super::RosterProblem;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) budget: Option<Bytes>,
    pub(super) pools: Option<BTreeMap<PoolId, Bytes>>,
    #[serde(default)]
    pub(super) role: Vec<toml::Spanned<RoleEntry>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoleEntry {
    pub(super) role: String,
    pub(super) model: Option<String>,
    pub(super) ctx: Option<u64>,
    parallel: Option<u32>,
    cache_type_k: Option<String>,
    cache_type_v: Option<String>,
    pub(super) pool: Option<PoolId>,
    pub(super) needs: Option<Bytes>,
    pub(super) weights: Option<Bytes>,
    pub(super) kv: Option<Bytes>,
    pub(super) pools: Option<BTreeMap<PoolId, Bytes>>,
    #[serde(default)]
    pub(super) excludes: Vec<String>,
    #[serde(default)]
    pub(super) pinned: bool,
    #[serde(default)]
    pub(super) sticky: bool,
    #[serde(default)]
    pub(super) priority: u32,
    pub(super) latency_class: Option<String>,
    pub(super) runtime: Option<String>,
}

impl RoleEntry {
    /// The request that its size is computed for.
    pub(super) fn request(&self, role: &str, ctx: u64) -> Result<Request, RosterProblem> {
        let usual = Request::default();
        let cache_type = |text: &Option<String>, usual: CacheType| match text {
            None => Ok(usual),
            Some(text) => text.parse().map_err(|why| RosterProblem::CacheType { role: role.to_owned(), why }),
        };
        Ok(Request {
            context: Some(ContextLength::PerSequence(ctx)),
            parallel: self.parallel.unwrap_or(usual.parallel),
            cache_type_k: cache_type(&self.cache_type_k, usual.cache_type_k)?,
            cache_type_v: cache_type(&self.cache_type_v, usual.cache_type_v)?,
            ..usual
        })
    }
}
