//! What changes a book. Every way in and out of `bookings` is here, so that totals and index follow.

use std::sync::Arc;

use plimsoll_units::{Bytes, PoolId};

use super::admit::{Decision, resized, taken};
use super::{Book, Booking, Ceiling, Pool, Share};
use crate::refusal::UNIFIED_MEMORY;
use crate::{CoResidency, Request, Timestamp};

/// How full a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolUse {
    /// Its name.
    pub id: PoolId,
    /// What it may hold; `None` when there is no limit.
    #[cfg_attr(feature = "serde", serde(rename = "budget_bytes"))]
    pub budget: Option<Bytes>,
    /// What is held.
    #[cfg_attr(feature = "serde", serde(rename = "used_bytes"))]
    pub used: Bytes,
}

impl PoolUse {
    /// What is left; `None` when there is no limit.
    pub fn free(&self) -> Option<Bytes> {
        self.budget.map(|budget| budget.saturating_sub(self.used))
    }

    /// How much more is held than the budget allows: after the budget shrank, or by measured use above what was booked.
    pub fn excess(&self) -> Bytes {
        self.budget.map_or(Bytes::ZERO, |budget| self.used.saturating_sub(budget))
    }
}

impl Book {
    /// Books a request, or changes what its instance holds; true when something changed.
    ///
    /// # Errors
    ///
    /// As [`admit`](crate::admit); nothing changed then.
    pub fn reserve(&mut self, request: &Request, now: Timestamp) -> Result<bool, CoResidency> {
        self.reserve_drafted(Booking::drafted(request.clone()), now)
    }

    /// As [`Book::reserve`], for a booking that was drafted before.
    pub(crate) fn reserve_drafted(
        &mut self,
        mut booking: Box<Booking>,
        now: Timestamp,
    ) -> Result<bool, CoResidency> {
        match self.decide(&booking.instance, &booking.spec, &booking.terms)? {
            Decision::Unchanged => Ok(false),
            Decision::New(shares) => {
                self.settle(&mut booking, shares, now);
                self.enter(booking);
                Ok(true)
            }
            Decision::Resized(own, shares) => {
                *booking = resized(own, booking.spec, shares);
                self.put(booking);
                Ok(true)
            }
        }
    }

    /// Ends a booking; what it was, or `None` when there was none.
    pub fn release(&mut self, instance: &str) -> Option<Booking> {
        self.take(instance).map(|booking| *booking)
    }

    /// As [`Book::release`], without moving the booking.
    pub(crate) fn take(&mut self, instance: &str) -> Option<Box<Booking>> {
        let booking = self.bookings.remove(instance)?;
        self.index.remove(&booking);
        self.count(&booking.shares, false);
        self.touch(&booking.instance);
        Some(booking)
    }

    /// As [`Book::reserve`] for an instance that holds nothing yet; the number by which its booking is known.
    pub(crate) fn hold(&mut self, request: &Request, now: Timestamp) -> Result<u64, CoResidency> {
        if let Some(own) = self.get(&request.instance) {
            return Err(taken(own));
        }
        self.reserve(request, now)?;
        Ok(self.numbered(&request.instance).expect("it was just booked"))
    }

    /// The number by which a booking is known from a later one of the same instance.
    pub(crate) fn numbered(&mut self, instance: &str) -> Option<u64> {
        if let Some(ticket) = self.get(instance)?.ticket {
            return Some(ticket);
        }
        let ticket = self.next_ticket();
        self.amend(instance, |booking| booking.ticket = Some(ticket)).then_some(ticket)
    }

    /// Ends the booking that has this number.
    pub(crate) fn release_ticket(&mut self, instance: &str, ticket: u64) -> Option<Booking> {
        let same = self.get(instance).is_some_and(|booking| booking.ticket == Some(ticket));
        if same { self.release(instance) } else { None }
    }

    /// Enters a booking in place of the one that its instance holds.
    pub(crate) fn put(&mut self, booking: Box<Booking>) {
        self.take(&booking.instance);
        self.enter(booking);
    }

    /// Enters a booking of an instance that holds none.
    fn enter(&mut self, booking: Box<Booking>) {
        self.index.add(&booking);
        self.count(&booking.shares, true);
        self.touch(&booking.instance);
        self.bookings.insert(booking);
    }

    fn count(&mut self, shares: &[Share], add: bool) {
        for share in shares {
            let used = &mut self.pools[share.pool].used;
            let bytes = u128::from(share.current().get());
            *used = if add { used.saturating_add(bytes) } else { used.saturating_sub(bytes) };
        }
    }

    fn touch(&mut self, instance: &Arc<str>) {
        if let Some(touched) = &mut self.touched {
            touched.bookings.insert(Arc::clone(instance));
        }
    }

    /// Changes what is neither counted nor looked up: pins, priority, uses, leases.
    pub(crate) fn amend(&mut self, instance: &str, change: impl FnOnce(&mut Booking)) -> bool {
        let Some(booking) = self.bookings.get_mut(instance) else {
            return false;
        };
        change(booking);
        if let Some(touched) = &mut self.touched {
            touched.bookings.insert(Arc::clone(&booking.instance));
        }
        true
    }

    /// Pins a booking, or lets it go; false when there is none.
    pub fn set_pinned(&mut self, instance: &str, pinned: bool) -> bool {
        self.amend(instance, |booking| booking.terms.pinned = pinned)
    }

    /// Changes what a booking costs to evict; false when there is none.
    pub fn set_priority(&mut self, instance: &str, priority: u32) -> bool {
        self.amend(instance, |booking| booking.terms.priority = priority)
    }

    /// Counts one more use; false when there is no such booking.
    pub fn begin_use(&mut self, instance: &str) -> bool {
        self.amend(instance, |booking| booking.in_use = booking.in_use.saturating_add(1))
    }

    /// Counts one use less; false when there is no such booking.
    pub fn end_use(&mut self, instance: &str) -> bool {
        self.amend(instance, |booking| booking.in_use = booking.in_use.saturating_sub(1))
    }

    /// Renews the lease of a booking; false when there is none.
    pub fn heartbeat(&mut self, instance: &str, now: Timestamp) -> bool {
        self.amend(instance, |booking| {
            booking.lease_until = booking.terms.lease.map(|lease| now.saturating_add(lease));
        })
    }

    /// Makes a booking live as long as this process too; false when there is none.
    pub fn add_owner(&mut self, instance: &str, owner: crate::ProcessId) -> bool {
        let Some(mut booking) = self.take(instance) else {
            return false;
        };
        if !booking.terms.owners.contains(&owner) {
            booking.terms.owners.push(owner);
        }
        self.enter(booking);
        true
    }

    /// Gives a booking these owners in place of its own, or none; false when there is none.
    pub fn hand_over(&mut self, instance: &str, owners: &[crate::ProcessId]) -> bool {
        let Some(mut booking) = self.take(instance) else {
            return false;
        };
        booking.terms.owners = owners.to_vec();
        self.enter(booking);
        true
    }

    /// Takes in what was measured in use; false when this instance holds nothing of that pool.
    ///
    /// Until it is measured twice, the larger of what was booked and measured counts against the budget; from then on the
    /// larger of the last two measurements.
    pub fn measure(&mut self, instance: &str, pool: &PoolId, bytes: Bytes) -> bool {
        let Some(place) = self.place(pool.as_str()) else {
            return false;
        };
        let Some(share) = self
            .bookings
            .get_mut(instance)
            .and_then(|booking| booking.shares.iter_mut().find(|share| share.pool == place))
        else {
            return false;
        };
        let was = share.current();
        share.measured.before = share.measured.last.replace(bytes);
        let is = share.current();
        let used = &mut self.pools[place].used;
        *used = used.saturating_sub(u128::from(was.get())).saturating_add(u128::from(is.get()));
        self.amend(instance, |_| {})
    }

    /// Gives a pool another budget, or makes a new pool. Nobody is thrown out: when more is held than the new budget
    /// allows, the pool's [`PoolUse::excess`] says so.
    pub fn set_budget(&mut self, id: &PoolId, budget: Option<Bytes>) -> PoolUse {
        let place = match self.place(id.as_str()) {
            Some(place) => place,
            None => {
                self.pools.push(Pool { id: id.clone(), budget, used: 0, ceiling: None });
                self.places.insert(id.clone(), self.pools.len() - 1);
                self.pools.len() - 1
            }
        };
        self.pools[place].budget = budget;
        if let Some(touched) = &mut self.touched {
            touched.pools = true;
        }
        self.pool_use(place)
    }

    /// Says that of this pool no more than `limit` may be held at this moment, whatever its budget allows; false when
    /// there is no such pool.
    ///
    /// A refusal then names `why` among the holders, with the part of the budget that it keeps. No store writes a
    /// ceiling down, and nobody is thrown out: it is for what is known of the memory itself, such as that somebody else
    /// uses it.
    pub fn set_ceiling(&mut self, id: &PoolId, limit: Bytes, why: &str) -> bool {
        let Some(place) = self.place(id.as_str()) else {
            return false;
        };
        self.pools[place].ceiling = Some(Ceiling { limit, why: why.into() });
        true
    }

    /// What of a pool may still be booked at this moment, under its budget and its ceiling; `None` when it has neither, or
    /// there is no such pool.
    pub fn room(&self, id: &str) -> Option<Bytes> {
        let (limit, used) = self.limit_of(self.place(id)?)?;
        let room = u128::from(limit.get()).saturating_sub(used);
        Some(Bytes::new(u64::try_from(room).unwrap_or(u64::MAX)))
    }

    /// How full every pool is, in the order of ids.
    pub fn pools(&self) -> impl ExactSizeIterator<Item = PoolUse> {
        self.places.values().map(|place| self.pool_use(*place))
    }

    /// How full this pool is.
    pub fn pool(&self, id: &str) -> Option<PoolUse> {
        self.place(id).map(|place| self.pool_use(place))
    }

    pub(crate) fn pool_use(&self, place: usize) -> PoolUse {
        let pool = &self.pools[place];
        let used = Bytes::new(u64::try_from(pool.used).unwrap_or(u64::MAX));
        PoolUse { id: pool.id.clone(), budget: pool.budget, used }
    }

    /// The pool that a need without a name draws from: the one of a single budget, or the only one.
    pub(crate) fn unnamed_pool(&self) -> Option<PoolId> {
        match (self.place(UNIFIED_MEMORY), &*self.pools) {
            (Some(place), _) => Some(self.pool_id(place).clone()),
            (None, [only]) => Some(only.id.clone()),
            _ => None,
        }
    }

    /// Says during which boot bookings are made from now on.
    pub(crate) fn set_boot(&mut self, boot: Option<&str>) {
        if self.boot.as_deref() != boot {
            self.boot = boot.map(Arc::from);
        }
    }
}
