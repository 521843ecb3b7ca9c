//! Rosters: the models of a machine and the memory they share, as a TOML file.
//!
//! ```toml
//! budget = "96GB"                  # or [pools] with a budget for each
//!
//! [[role]]
//! role = "coder-daily"
//! model = "coder.gguf"             # sized for this context, its path counted from the roster's folder
//! ctx = 32768
//! excludes = ["planner"]
//!
//! [[role]]
//! role = "planner"
//! weights = "48GB"                 # or needs = ".."; or pools = { CUDA0 = "20GB", ram = "4GB" }
//! kv = "7GB"
//! pinned = true
//! ```

mod error;
mod written;

use std::path::Path;

use plimsoll_residency::{
    InferenceSpec, LatencyClass, Needs, RoleSets, Runtime, SetsError, Terms, UNIFIED_MEMORY, footprint,
    maximal_sets,
};
use plimsoll_units::{Bytes, PoolId};

use crate::size::{Place, Size, size};

pub use error::{RosterError, RosterProblem};
use written::{RoleEntry, Written};

/// The most that is read of a roster, in bytes.
const LIMIT: u64 = 1 << 20;

/// The models of a machine and the memory they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// The memories, each with its budget, in the order of ids.
    pub pools: Vec<(PoolId, Option<Bytes>)>,
    /// The models, in the order of the file.
    pub roles: Vec<RosterRole>,
}

/// A model of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterRole {
    /// What it is and what it needs: never nothing.
    pub spec: InferenceSpec,
    /// On what terms it stays.
    pub terms: Terms,
    /// Whether its size was computed from the model's header.
    pub computed: bool,
}

impl Roster {
    /// Reads a roster, and the header of every model whose size it leaves out.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or something in it is wrong: the error names the line.
    pub fn read(path: &Path) -> Result<Self, RosterError> {
        let text = error::read(path, LIMIT)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).map_err(|error| error.in_file(path))
    }

    /// The roster of this text; the paths in it count from `folder`.
    ///
    /// # Errors
    ///
    /// As [`Roster::read`].
    pub fn parse(text: &str, folder: &Path) -> Result<Self, RosterError> {
        let written: Written = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            RosterError::at(text, at, RosterProblem::Text { message: error.message().replace('\n', "; ") })
        })?;
        let pools = pools(&written).map_err(|problem| RosterError::at(text, 0, problem))?;
        let mut roles: Vec<RosterRole> = Vec::with_capacity(written.role.len());
        for entry in &written.role {
            let fault = |problem| RosterError::at(text, entry.span().start, problem);
            let role = role(entry.get_ref(), &pools, folder).map_err(fault)?;
            if roles.iter().any(|other| other.spec.role == role.spec.role) {
                return Err(fault(RosterProblem::Twice { role: role.spec.role }));
            }
            roles.push(role);
        }
        if roles.is_empty() {
            return Err(RosterError::at(text, 0, RosterProblem::NoRoles));
        }
        Ok(Self { pools, roles })
    }

    /// Which of its roles can be resident together, and which never can.
    ///
    /// # Errors
    ///
    /// Too many roles, or too many sets.
    pub fn sets(&self) -> Result<RoleSets, SetsError> {
        let specs: Vec<InferenceSpec> = self.roles.iter().map(|role| role.spec.clone()).collect();
        maximal_sets(&self.pools, &specs)
    }

    /// The role of this name.
    pub fn role(&self, name: &str) -> Option<&RosterRole> {
        self.roles.iter().find(|role| role.spec.role == name)
    }
}

impl RosterRole {
    /// What its going would cost: of its weights every byte, which would have to be loaded again, times one more than its
    /// priority.
    pub fn eviction_cost(&self) -> u128 {
        let weights = match &self.spec.needs {
            Needs::Memory { weights, .. } => *weights,
            Needs::Pools(_) => footprint(&self.spec),
        };
        u128::from(weights.get()) * (u128::from(self.terms.priority) + 1)
    }
}

fn pools(written: &Written) -> Result<Vec<(PoolId, Option<Bytes>)>, RosterProblem> {
    match (written.budget, &written.pools) {
        (Some(_), Some(_)) => Err(RosterProblem::TwoBudgets),
        (Some(budget), None) => {
            let unified = PoolId::new(UNIFIED_MEMORY).map_err(RosterProblem::Id)?;
            Ok(vec![(unified, Some(budget))])
        }
        (None, Some(pools)) if !pools.is_empty() => {
            Ok(pools.iter().map(|(id, budget)| (id.clone(), Some(*budget))).collect())
        }
        (None, _) => Err(RosterProblem::NoBudget),
    }
}

fn role(
    entry: &RoleEntry,
    pools: &[(PoolId, Option<Bytes>)],
    folder: &Path,
) -> Result<RosterRole, RosterProblem> {
    let role = entry.role.strip_prefix("role:").unwrap_or(&entry.role).to_owned();
    if role.is_empty() || role.chars().any(char::is_control) {
        return Err(RosterProblem::Name { role });
    }
    let (needs, computed) = needs(entry, &role, pools, folder)?;
    let mut spec = InferenceSpec::new(&role, Runtime::from(entry.runtime.as_deref().unwrap_or("llama.cpp")))
        .excluding(&entry.excludes);
    spec.model.clone_from(&entry.model);
    spec.needs = needs;
    spec.sticky = entry.sticky;
    spec.latency_class = match entry.latency_class.as_deref() {
        None | Some("batch") => LatencyClass::Batch,
        Some("interactive") => LatencyClass::Interactive,
        Some(other) => return Err(RosterProblem::LatencyClass { role, found: other.to_owned() }),
    };
    if footprint(&spec).is_zero() {
        return Err(RosterProblem::Nothing { role });
    }
    if let Needs::Pools(all) = &spec.needs
        && let Some(unknown) = all.keys().find(|id| !pools.iter().any(|(known, _)| known == *id))
    {
        return Err(RosterProblem::UnknownPool { role, pool: unknown.to_string(), known: known(pools) });
    }
    let terms = Terms { pinned: entry.pinned, priority: entry.priority, ..Terms::default() };
    Ok(RosterRole { spec, terms, computed })
}

fn known(pools: &[(PoolId, Option<Bytes>)]) -> String {
    pools.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(", ")
}

/// What a role needs, and whether that was computed.
fn needs(
    entry: &RoleEntry,
    role: &str,
    pools: &[(PoolId, Option<Bytes>)],
    folder: &Path,
) -> Result<(Needs, bool), RosterProblem> {
    let ways = [entry.needs.is_some(), entry.weights.is_some() || entry.kv.is_some(), entry.pools.is_some()];
    if ways.iter().filter(|way| **way).count() > 1 {
        return Err(RosterProblem::TwoSizes { role: role.to_owned() });
    }
    if let Some(several) = &entry.pools {
        if entry.pool.is_some() {
            return Err(RosterProblem::TwoSizes { role: role.to_owned() });
        }
        return Ok((Needs::Pools(several.clone()), false));
    }
    let pool = match (&entry.pool, pools) {
        (Some(pool), _) => Some(pool.clone()),
        (None, [_]) => None,
        (None, _) => {
            return Err(RosterProblem::WhichPool { role: role.to_owned(), known: known(pools) });
        }
    };
    let told = match (entry.needs, entry.weights, entry.kv) {
        (Some(needs), ..) => Some(Size { weights: needs, kv_and_buffers: Bytes::ZERO }),
        (None, None, None) => None,
        (None, weights, kv) => Some(Size {
            weights: weights.ok_or_else(|| RosterProblem::NoSize { role: role.to_owned() })?,
            kv_and_buffers: kv.unwrap_or(Bytes::ZERO),
        }),
    };
    let size = match told {
        Some(size) => size,
        None => computed(entry, role, pool.as_ref().or(pools.first().map(|(id, _)| id)), folder)?,
    };
    let needs = match pool {
        Some(pool) => Needs::Pools([(pool, size.total())].into()),
        None => Needs::Memory { weights: size.weights, kv_budget: size.kv_and_buffers },
    };
    Ok((needs, told.is_none()))
}

/// Sizes the model of a role from its header.
fn computed(
    entry: &RoleEntry,
    role: &str,
    pool: Option<&PoolId>,
    folder: &Path,
) -> Result<Size, RosterProblem> {
    let no_size = || RosterProblem::NoSize { role: role.to_owned() };
    let (model, ctx) = entry.model.as_ref().zip(entry.ctx).ok_or_else(no_size)?;
    let request = entry.request(role, ctx)?;
    let model = plimsoll_model::open(&folder.join(model))
        .map_err(|source| RosterProblem::Model { role: role.to_owned(), why: Box::new(source) })?;
    size(&model, &request, Place::of_pool(pool))
        .map_err(|source| RosterProblem::Model { role: role.to_owned(), why: Box::new(source) })
}

impl Place {
    /// The place that a pool of this name is: a host's memory holds everything, any other pool is a device's own.
    pub fn of_pool(pool: Option<&PoolId>) -> Self {
        // In the ledger of a cluster a pool is called after its node too: `tower:ram`.
        let own = |pool: &'_ PoolId| pool.as_str().rsplit(':').next().unwrap_or_default().to_owned();
        match pool.map(own).as_deref() {
            None | Some(UNIFIED_MEMORY | plimsoll_cluster::Pool::RAM) => Self::OneMemory,
            Some(_) => Self::Device,
        }
    }
}
