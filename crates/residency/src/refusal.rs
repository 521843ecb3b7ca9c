//! Why a model cannot be resident now.

use std::fmt;

use plimsoll_units::{Bytes, PoolId};

/// The pool of a ledger with a single budget.
pub const UNIFIED_MEMORY: &str = "unified-memory";

/// Why a model cannot be resident now. Nothing was reserved, and what stood before still stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoResidency {
    /// It needs more than is free.
    #[error(
        "unplaceable: '{role}' needs {need} but only {free} of the {budget} {} budget is free (held by {})",
        PoolName(pool),
        Held(holders)
    )]
    OverBudget {
        /// What asked.
        role: String,
        /// The pool that is too small, the first in the order of ids.
        pool: PoolId,
        /// What it needs of that pool.
        need: Bytes,
        /// What is free there; its own old booking counts as free.
        free: Bytes,
        /// What the pool may hold.
        budget: Bytes,
        /// Who holds how much of it: roles and bytes, in the order of their instances.
        holders: Vec<(String, Bytes)>,
    },
    /// A resident model may not be beside it.
    #[error("unplaceable: '{role}' cannot be resident beside '{with}' ('{declared_by}' excludes it)")]
    Excluded {
        /// What asked.
        role: String,
        /// What is resident.
        with: String,
        /// Which of the two roles says so.
        declared_by: String,
    },
    /// It asks for a pool that this ledger does not have.
    #[error("unplaceable: '{role}' needs {} but the ledger knows {}", Asked(pool), Known(known))]
    UnknownPool {
        /// What asked.
        role: String,
        /// The pool it names, or none when it names none and there are several.
        pool: Option<PoolId>,
        /// The pools there are.
        known: Vec<PoolId>,
    },
    /// It would fit, but another has waited longer for the same memory.
    #[error("unplaceable: '{role}' would overtake '{waiting}', which waits for {need}")]
    Behind {
        /// What asked.
        role: String,
        /// The role that waits.
        waiting: String,
        /// All that it waits for.
        need: Bytes,
    },
    /// Another process holds this instance.
    #[error("unplaceable: instance '{instance}' of '{role}' is held by {owner}")]
    Taken {
        /// What is resident.
        role: String,
        /// The instance that was asked for.
        instance: String,
        /// Who holds it.
        owner: String,
    },
}

struct PoolName<'a>(&'a PoolId);

impl fmt::Display for PoolName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            UNIFIED_MEMORY => f.write_str(UNIFIED_MEMORY),
            name => write!(f, "'{name}'"),
        }
    }
}

struct Held<'a>(&'a [(String, Bytes)]);

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, (role, bytes)) in self.0.iter().enumerate() {
            write!(f, "{}{role} {bytes}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Asked<'a>(&'a Option<PoolId>);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pool) => write!(f, "pool '{pool}'"),
            None => f.write_str("memory without naming a pool"),
        }
    }
}

struct Known<'a>(&'a [PoolId]);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no pool");
        }
        f.write_str("only ")?;
        for (i, pool) in self.0.iter().enumerate() {
            write!(f, "{}'{pool}'", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
