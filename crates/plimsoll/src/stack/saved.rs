//! A plan that comes from a file, as something that can be in force.

use plimsoll_cluster::ClusterSnapshot;
use plimsoll_export::{FormatError, PlanFile};
use plimsoll_units::Generation;

use super::Standing;
use super::shared::standing;
use crate::Planned;

impl Planned {
    /// What a saved plan places, as if it had been computed from this generation of a cluster: whoever takes it into force
    /// there audits it first.
    ///
    /// # Errors
    ///
    /// The file holds words without a meaning.
    pub fn from_saved(file: &PlanFile, basis: Generation) -> Result<Self, FormatError> {
        let mut plan = file.plan()?;
        plan.basis = basis;
        Self::instead_of(file, plan)
    }
}

impl Standing {
    /// How a plan stands in a cluster, and what to do where it does not hold.
    pub fn of(planned: &Planned, snapshot: &ClusterSnapshot) -> Self {
        standing(planned, snapshot)
    }
}
