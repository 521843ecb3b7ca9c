//! Why something is refused, in full.

use plimsoll_units::{Bytes, PoolId};

use crate::advise::{Advice, Eviction, NoAdvice, eviction_advice};
use crate::spec::bare;
use crate::{Book, CoResidency, Queued, Request, Timestamp, admit};

/// All that stands in the way of a request, not only the first reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The first reason, as a refusal gives it; `None` when the request would be admitted.
    pub refusal: Option<CoResidency>,
    /// Who may not be beside it, in the order of instances.
    pub conflicts: Vec<Conflict>,
    /// Where it does not fit, in the order of pools.
    pub shortages: Vec<Shortage>,
    /// Who waits before it for the same memory.
    pub ahead: Vec<Queued>,
    /// What could be evicted for it.
    pub advice: Result<Advice, NoAdvice>,
}

/// A resident that may not be beside a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The running copy.
    pub instance: String,
    /// Its role.
    pub role: String,
    /// The roles that say so: the request's own first.
    pub declared_by: Vec<String>,
}

/// A pool in which a request does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The pool.
    pub pool: PoolId,
    /// What the request needs of it.
    pub need: Bytes,
    /// What is free there; its own old booking counts as free.
    pub free: Bytes,
    /// What the pool may hold.
    pub budget: Bytes,
    /// Who holds it, in the order of instances.
    pub holders: Vec<Holding>,
}

/// What one instance holds of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The running copy.
    pub instance: String,
    /// Its role.
    pub role: String,
    /// What counts against the budget.
    pub bytes: Bytes,
}

/// All that stands in the way of this request.
pub fn explain(book: &Book, request: &Request, policy: &Eviction, now: Timestamp) -> Explanation {
    let role = bare(&request.spec.role);
    let conflict = |held: &crate::Booking| {
        let ours = request.spec.excludes.iter().any(|excluded| bare(excluded) == held.role());
        let theirs = held.spec.excludes_role(role);
        let said = [ours.then(|| role.to_owned()), theirs.then(|| held.role().to_owned())];
        Conflict {
            instance: held.instance().to_owned(),
            role: held.role().to_owned(),
            declared_by: said.into_iter().flatten().collect(),
        }
    };
    let mut conflicts: Vec<Conflict> =
        book.conflicts(&request.spec, &request.instance).map(conflict).collect();
    conflicts.sort_by(|a, b| a.instance.cmp(&b.instance));
    conflicts.dedup();
    Explanation {
        refusal: admit(book, request, now).err(),
        conflicts,
        shortages: shortages(book, request),
        ahead: book.ahead(request),
        advice: eviction_advice(book, request, policy, now),
    }
}

fn shortages(book: &Book, request: &Request) -> Vec<Shortage> {
    let own = book.get(&request.instance);
    let shares = book.shares(&request.spec).unwrap_or_default();
    let shortage = |share: &crate::book::Share| match book.shortage(&request.spec, own, share)? {
        CoResidency::OverBudget { pool, need, free, budget, .. } => {
            let holding = |held: &crate::Booking| {
                Some(Holding {
                    instance: held.instance().to_owned(),
                    role: held.role().to_owned(),
                    bytes: held.share(share.pool)?.current(),
                })
            };
            Some(Shortage {
                pool,
                need,
                free,
                budget,
                holders: book.bookings().filter_map(holding).collect(),
            })
        }
        _ => None,
    };
    shares.iter().filter_map(shortage).collect()
}
