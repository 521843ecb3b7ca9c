//! The one decision that every ledger makes.

use std::sync::Arc;

use plimsoll_units::{Bytes, PoolId};

use super::{Book, Booking, Measured, Pool, Share, Shares};
use crate::refusal::UNIFIED_MEMORY;
use crate::spec::bare;
use crate::{CoResidency, InferenceSpec, Needs, Request, Terms, Timestamp, footprint};

/// What a request that was admitted does to the book it was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an admission changes nothing until it is entered"]
pub enum Admission {
    /// Nothing: this instance holds the same spec already.
    Unchanged,
    /// A new booking.
    New(Booking),
    /// A booking in place of the one that this instance holds.
    Resized(Booking),
}

/// Whether this request can be resident in this book now.
///
/// Exclusions are checked before budgets, holders in the order of instances, and what the newcomer declares before what
/// the holder does. A request for several pools is admitted for all or none. An instance that is held already is
/// resized: its own bytes count as free, its own role does not stand in its way, and giving back is always admitted,
/// even from a pool that holds more than its budget.
///
/// # Errors
///
/// The first reason against it. The book is as it was.
pub fn admit(book: &Book, request: &Request, now: Timestamp) -> Result<Admission, CoResidency> {
    Ok(match book.decide(&request.instance, &request.spec, &request.terms)? {
        Decision::Unchanged => Admission::Unchanged,
        Decision::New(shares) => {
            let mut booking = Booking::drafted(request.clone());
            book.settle(&mut booking, shares, now);
            Admission::New(*booking)
        }
        Decision::Resized(own, shares) => Admission::Resized(resized(own, request.spec.clone(), shares)),
    })
}

/// What is to be done about a request, before anything is made of it.
pub(super) enum Decision<'a> {
    Unchanged,
    New(Shares),
    Resized(&'a Booking, Shares),
}

impl Book {
    /// The decision itself.
    pub(super) fn decide(
        &self,
        instance: &str,
        spec: &InferenceSpec,
        terms: &Terms,
    ) -> Result<Decision<'_>, CoResidency> {
        let decision = self.fits(instance, spec, terms)?;
        if let Decision::New(shares) = &decision
            && let Some(refusal) = self.queue.ahead_of(spec, shares, terms.priority)
        {
            return Err(refusal);
        }
        Ok(decision)
    }

    /// Whether a request can be resident, whoever waits.
    pub(super) fn fits(
        &self,
        instance: &str,
        spec: &InferenceSpec,
        terms: &Terms,
    ) -> Result<Decision<'_>, CoResidency> {
        let own = self.get(instance);
        if let Some(own) = own
            && !terms.owners.is_empty()
            && terms.owners != own.terms.owners
        {
            return Err(taken(own));
        }
        let shares = self.shares(spec)?;
        if let Some(own) = own
            && same(&own.spec, spec)
            && same_shares(&own.shares, &shares)
        {
            return Ok(Decision::Unchanged);
        }
        if let Some(refusal) = self.conflict(spec, instance) {
            return Err(refusal);
        }
        if let Some(refusal) = shares.iter().find_map(|share| self.shortage(spec, own, share)) {
            return Err(refusal);
        }
        Ok(match own {
            Some(own) => Decision::Resized(own, shares),
            None => Decision::New(shares),
        })
    }

    /// Why a request cannot be resident, whoever waits.
    pub(crate) fn refusal(&self, request: &Request) -> Option<CoResidency> {
        self.fits(&request.instance, &request.spec, &request.terms).err()
    }

    /// What a spec asks of which pool, in the order of ids.
    pub(crate) fn shares(&self, spec: &InferenceSpec) -> Result<Shares, CoResidency> {
        let share = |pool, booked| Share { pool, booked, measured: Measured::default() };
        match &spec.needs {
            Needs::Memory { .. } => match (self.place(UNIFIED_MEMORY), self.pools.len()) {
                (Some(pool), _) => Ok(share(pool, footprint(spec)).into()),
                (None, 1) => Ok(share(0, footprint(spec)).into()),
                (None, _) => Err(self.unknown_pool(spec, None)),
            },
            Needs::Pools(pools) => pools
                .iter()
                .map(|(id, bytes)| match self.place(id.as_str()) {
                    Some(pool) => Ok(share(pool, *bytes)),
                    None => Err(self.unknown_pool(spec, Some(id))),
                })
                .collect(),
        }
    }

    fn unknown_pool(&self, spec: &InferenceSpec, pool: Option<&PoolId>) -> CoResidency {
        CoResidency::UnknownPool {
            role: bare(&spec.role).to_owned(),
            pool: pool.cloned(),
            known: self.places.keys().cloned().collect(),
        }
    }

    /// The first instance that may not be beside this spec, other than `own`.
    fn conflict(&self, spec: &InferenceSpec, own: &str) -> Option<CoResidency> {
        let role = bare(&spec.role);
        let first = spec
            .excludes
            .iter()
            .filter_map(|role| other(self.index.holders(bare(role)), own))
            .chain(other(self.index.excluders(role), own))
            .min()?;
        let with = self.get(first)?.role();
        let declared_by = if spec.excludes.iter().any(|role| bare(role) == with) { role } else { with };
        Some(CoResidency::Excluded {
            role: role.to_owned(),
            with: with.to_owned(),
            declared_by: declared_by.to_owned(),
        })
    }

    /// Every booking that may not be beside this spec, other than `own`; one that both sides exclude comes twice.
    pub(crate) fn conflicts(&self, spec: &InferenceSpec, own: &str) -> impl Iterator<Item = &Booking> {
        let excluded = spec.excludes.iter().flat_map(|role| self.index.holders(bare(role)));
        excluded
            .chain(self.index.excluders(bare(&spec.role)))
            .filter(move |instance| &***instance != own)
            .filter_map(|instance| self.get(instance))
    }

    /// What a pool may hold and what is held, where it has a limit.
    pub(crate) fn limit_of(&self, pool: usize) -> Option<(Bytes, u128)> {
        let pool = &self.pools[pool];
        Some((pool.limit()?, pool.used))
    }

    /// Why a share does not fit into its pool.
    pub(crate) fn shortage(
        &self,
        spec: &InferenceSpec,
        own: Option<&Booking>,
        share: &Share,
    ) -> Option<CoResidency> {
        let pool = &self.pools[share.pool];
        let limit = pool.limit()?;
        let own = own.and_then(|own| own.share(share.pool));
        let held = own.map_or(Bytes::ZERO, Share::current);
        if own.is_some_and(|own| share.booked <= own.booked) {
            return None;
        }
        let others = pool.used.saturating_sub(u128::from(held.get()));
        let free = u128::from(limit.get()).saturating_sub(others);
        if u128::from(share.booked.get()) <= free {
            return None;
        }
        Some(CoResidency::OverBudget {
            role: bare(&spec.role).to_owned(),
            pool: pool.id.clone(),
            need: share.booked,
            free: Bytes::new(u64::try_from(free).unwrap_or(u64::MAX)),
            budget: pool.budget.unwrap_or(limit),
            holders: self.holders_of(share.pool).into_iter().chain(pool.kept()).collect(),
        })
    }

    /// Makes a drafted booking one of this book, held from now on.
    pub(super) fn settle(&self, booking: &mut Booking, shares: Shares, now: Timestamp) {
        booking.shares = shares;
        booking.since = now;
        booking.lease_until = booking.terms.lease.map(|lease| now.saturating_add(lease));
        booking.expires = booking.terms.ttl.map(|ttl| now.saturating_add(ttl));
        booking.boot.clone_from(&self.boot);
    }

    /// Roles and bytes of those who hold a pool, in the order of instances.
    pub(crate) fn holders_of(&self, pool: usize) -> Vec<(String, Bytes)> {
        let holding =
            |booking: &Booking| booking.share(pool).map(|share| (booking.role().to_owned(), share.current()));
        self.bookings().filter_map(holding).collect()
    }
}

impl Pool {
    /// The most that may be held: its budget, or less where its memory is known to allow less.
    fn limit(&self) -> Option<Bytes> {
        let ceiling = self.ceiling.as_ref().map(|ceiling| ceiling.limit);
        self.budget.into_iter().chain(ceiling).min()
    }

    /// What keeps the rest of the budget, and how much that is.
    fn kept(&self) -> Option<(String, Bytes)> {
        let ceiling = self.ceiling.as_ref()?;
        let kept = self.budget?.saturating_sub(ceiling.limit);
        (!kept.is_zero()).then(|| (ceiling.why.to_string(), kept))
    }
}

impl Booking {
    /// What a request would hold, before anybody has decided on it. Made where no lock is held.
    pub(crate) fn drafted(request: Request) -> Box<Self> {
        let Request { instance, spec, terms } = request;
        Box::new(Self {
            instance: instance.into(),
            spec: normalised(spec),
            shares: Shares::default(),
            terms,
            since: Timestamp::ZERO,
            lease_until: None,
            expires: None,
            boot: None,
            in_use: 0,
            ticket: None,
        })
    }
}

/// The first of some instances that is not `own`: at most two looks.
fn other<'a>(mut instances: impl Iterator<Item = &'a Arc<str>>, own: &str) -> Option<&'a Arc<str>> {
    instances.find(|instance| &***instance != own)
}

pub(super) fn taken(own: &Booking) -> CoResidency {
    let owner = match &*own.terms.owners {
        [] => "a booking without an owner".to_owned(),
        [first, ..] => first.to_string(),
    };
    CoResidency::Taken { role: own.role().to_owned(), instance: own.instance.to_string(), owner }
}

/// Whether two specs say the same, with or without prefixes.
fn same(held: &InferenceSpec, asked: &InferenceSpec) -> bool {
    held == asked
        || (held.role == bare(&asked.role)
            && held.model == asked.model
            && held.runtime == asked.runtime
            && held.needs == asked.needs
            && held.latency_class == asked.latency_class
            && held.sticky == asked.sticky
            && held.excludes == asked.excludes.iter().map(|role| bare(role).to_owned()).collect())
}

fn same_shares(held: &[Share], asked: &[Share]) -> bool {
    held.len() == asked.len()
        && held.iter().zip(asked).all(|(held, asked)| held.pool == asked.pool && held.booked == asked.booked)
}

/// The spec with bare names, as the index wants them.
fn normalised(mut spec: InferenceSpec) -> InferenceSpec {
    if spec.role.starts_with("role:") {
        spec.role = bare(&spec.role).to_owned();
    }
    if spec.excludes.iter().any(|role| role.starts_with("role:")) {
        spec.excludes = spec.excludes.iter().map(|role| bare(role).to_owned()).collect();
    }
    spec
}

/// The booking with another spec. Measurements of a share that stays as large still hold.
pub(super) fn resized(own: &Booking, spec: InferenceSpec, mut shares: Shares) -> Booking {
    for share in shares.iter_mut() {
        if let Some(old) = own.share(share.pool)
            && old.booked == share.booked
        {
            share.measured = old.measured;
        }
    }
    Booking { spec: normalised(spec), shares, ..own.clone() }
}
