//! Who waits, in which order, and who goes next.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use super::admit::{Decision, taken};
use super::{Book, Booking, Share, Shares};
use crate::spec::bare;
use crate::{CoResidency, InferenceSpec, Request, Timestamp, footprint};

/// Waiting requests, the next one first: by priority, and within it by arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiters: BTreeMap<Place, Waiter>,
    places: BTreeMap<u64, Place>,
    // Tickets are never given twice, not even by processes that share a file.
    next: u64,
}

type Place = (Reverse<u32>, u64);

/// One that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) ticket: u64,
    pub(crate) request: Request,
    pub(crate) shares: Shares,
    pub(crate) since: Timestamp,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) lease_until: Option<Timestamp>,
}

/// One that waits, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Its ticket.
    pub ticket: u64,
    /// The instance that it will be.
    pub instance: String,
    /// Its role.
    pub role: String,
    /// All that it waits for.
    pub need: Bytes,
    /// Its priority.
    pub priority: u32,
    /// Since when it waits.
    pub since: Timestamp,
    /// Until when it waits at most.
    pub deadline: Option<Timestamp>,
}

/// Why a wait ended without a booking.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitEnd {
    /// It can never be admitted, or not any more.
    #[error(transparent)]
    Refused(CoResidency),
    /// Its time was up; the reason is the one that held then.
    #[error("timed out: {0}")]
    TimedOut(CoResidency),
    /// Nobody knows its ticket: it was cancelled, or its owner was taken for dead.
    #[error("ticket {ticket} waits no more")]
    Gone {
        /// The ticket.
        ticket: u64,
    },
}

/// How things stand with a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Admitted,
    Pending(CoResidency),
    Gone,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Waiter> {
        self.waiters.values()
    }

    /// The first that waits for the same memory, or excludes it, with at least this priority.
    pub(super) fn ahead_of(
        &self,
        spec: &InferenceSpec,
        shares: &[Share],
        priority: u32,
    ) -> Option<CoResidency> {
        let ahead = self
            .waiters
            .values()
            .take_while(|waiter| waiter.request.terms.priority >= priority)
            .find(|waiter| competes(&waiter.request.spec, &waiter.shares, spec, shares))?;
        Some(behind(spec, ahead))
    }
}

impl Waiter {
    fn shown(&self) -> Queued {
        Queued {
            ticket: self.ticket,
            instance: self.request.instance.clone(),
            role: bare(&self.request.spec.role).to_owned(),
            need: footprint(&self.request.spec),
            priority: self.request.terms.priority,
            since: self.since,
            deadline: self.deadline,
        }
    }
}

/// Whether admitting one can delay the other.
fn competes(a: &InferenceSpec, a_shares: &[Share], b: &InferenceSpec, b_shares: &[Share]) -> bool {
    let wants = |share: &&Share| !share.booked.is_zero();
    let same_pool = |share: &Share| b_shares.iter().filter(wants).any(|other| other.pool == share.pool);
    let excludes = |x: &InferenceSpec, y: &InferenceSpec| {
        let role = bare(&y.role);
        x.excludes.iter().any(|excluded| bare(excluded) == role)
    };
    a_shares.iter().filter(wants).any(same_pool) || excludes(a, b) || excludes(b, a)
}

fn behind(spec: &InferenceSpec, ahead: &Waiter) -> CoResidency {
    CoResidency::Behind {
        role: bare(&spec.role).to_owned(),
        waiting: bare(&ahead.request.spec.role).to_owned(),
        need: footprint(&ahead.request.spec),
    }
}

impl Book {
    /// Everyone who waits, the next one first.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = Queued> {
        self.queue.iter().map(Waiter::shown)
    }

    /// Everyone before whom a newcomer would have to wait.
    pub(crate) fn ahead(&self, request: &Request) -> Vec<Queued> {
        let shares = self.shares(&request.spec).unwrap_or_default();
        self.queue
            .iter()
            .take_while(|waiter| waiter.request.terms.priority >= request.terms.priority)
            .filter(|waiter| competes(&waiter.request.spec, &waiter.shares, &request.spec, &shares))
            .map(Waiter::shown)
            .collect()
    }

    /// Queues a request and gives its ticket. It may be admitted at once: ask with [`Book::claim`].
    pub(crate) fn enqueue(
        &mut self,
        request: &Request,
        now: Timestamp,
        deadline: Option<Timestamp>,
    ) -> Result<u64, CoResidency> {
        if let Some(own) = self.get(&request.instance) {
            return Err(taken(own));
        }
        let shares = self.shares(&request.spec)?;
        if self.queue.iter().any(|waiter| waiter.request.instance == request.instance) {
            return Err(CoResidency::Taken {
                role: bare(&request.spec.role).to_owned(),
                instance: request.instance.clone(),
                owner: "another that waits".to_owned(),
            });
        }
        let mut waiter = Waiter {
            ticket: 0,
            request: request.clone(),
            shares,
            since: now,
            deadline,
            lease_until: request.terms.lease.map(|lease| now.saturating_add(lease)),
        };
        if let Some(hopeless) = self.hopeless(&waiter.request, &waiter.shares) {
            return Err(hopeless);
        }
        waiter.ticket = self.next_ticket();
        let ticket = waiter.ticket;
        self.insert_waiter(waiter);
        Ok(ticket)
    }

    pub(crate) fn insert_waiter(&mut self, waiter: Waiter) {
        let place = (Reverse(waiter.request.terms.priority), waiter.ticket);
        self.touch_ticket(waiter.ticket);
        self.queue.places.insert(waiter.ticket, place);
        self.queue.waiters.insert(place, waiter);
    }

    pub(crate) fn remove_waiter(&mut self, ticket: u64) -> Option<Waiter> {
        let place = self.queue.places.remove(&ticket)?;
        self.touch_ticket(ticket);
        self.queue.waiters.remove(&place)
    }

    fn touch_ticket(&mut self, ticket: u64) {
        if let Some(touched) = &mut self.touched {
            touched.tickets.insert(ticket);
        }
    }

    /// How things stand with a ticket.
    pub(crate) fn claim(&self, ticket: u64, instance: &str) -> Claim {
        if let Some(waiter) = self.queue.places.get(&ticket).and_then(|place| self.queue.waiters.get(place)) {
            return Claim::Pending(self.why_waiting(waiter));
        }
        match self.get(instance) {
            Some(booking) if booking.ticket == Some(ticket) => Claim::Admitted,
            _ => Claim::Gone,
        }
    }

    /// What stands in the way of one that waits.
    pub(crate) fn why_waiting(&self, waiter: &Waiter) -> CoResidency {
        match self.fits(&waiter.request.instance, &waiter.request.spec, &waiter.request.terms) {
            Err(refusal) => refusal,
            Ok(_) => self
                .queue
                .iter()
                .take_while(|ahead| ahead.ticket != waiter.ticket)
                .find(|ahead| {
                    competes(&ahead.request.spec, &ahead.shares, &waiter.request.spec, &waiter.shares)
                })
                .map_or_else(
                    || behind(&waiter.request.spec, waiter),
                    |ahead| behind(&waiter.request.spec, ahead),
                ),
        }
    }

    /// Gives up a place, or what was booked for it meanwhile; true when there was something to give up.
    pub(crate) fn cancel(&mut self, ticket: u64, instance: &str) -> bool {
        if self.remove_waiter(ticket).is_some() {
            return true;
        }
        let booked = self.get(instance).is_some_and(|booking| booking.ticket == Some(ticket));
        booked && self.release(instance).is_some()
    }

    /// Renews the lease of one that waits, once a quarter of it is over: a store writes down what changes.
    pub(crate) fn renew_wait(&mut self, ticket: u64, now: Timestamp) {
        let place = self.queue.places.get(&ticket);
        let Some(waiter) = place.and_then(|place| self.queue.waiters.get_mut(place)) else {
            return;
        };
        let Some(lease) = waiter.request.terms.lease else {
            return;
        };
        if waiter.lease_until.is_none_or(|until| until.saturating_since(now) <= lease - lease / 4) {
            waiter.lease_until = Some(now.saturating_add(lease));
            self.touch_ticket(ticket);
        }
    }

    /// Whether this ticket still waits.
    pub(crate) fn is_waiting(&self, ticket: u64) -> bool {
        self.queue.places.contains_key(&ticket)
    }

    /// A number that no booking and no wait had before.
    pub(crate) fn next_ticket(&mut self) -> u64 {
        let ticket = self.queue.next;
        self.queue.next = ticket.saturating_add(1);
        if let Some(touched) = &mut self.touched {
            touched.next_ticket = true;
        }
        ticket
    }

    /// Ends the waits whose deadline has come.
    pub(crate) fn expire_waits(&mut self, now: Timestamp) {
        if self.queue.is_empty() {
            return;
        }
        let due = |waiter: &&Waiter| waiter.deadline.is_some_and(|deadline| deadline <= now);
        let due: Vec<u64> = self.queue.iter().filter(due).map(|waiter| waiter.ticket).collect();
        for ticket in due {
            self.remove_waiter(ticket);
        }
    }

    /// Admits, in order, everyone who fits and overtakes nobody; those who never can leave the queue.
    pub(crate) fn promote(&mut self, now: Timestamp) {
        if self.queue.is_empty() {
            return;
        }
        let order: Vec<Waiter> = self.queue.iter().cloned().collect();
        let mut blocked: Vec<&Waiter> = Vec::new();
        for waiter in &order {
            let spec = &waiter.request.spec;
            let overtakes =
                |ahead: &&Waiter| competes(&ahead.request.spec, &ahead.shares, spec, &waiter.shares);
            if self.hopeless(&waiter.request, &waiter.shares).is_some() {
                self.remove_waiter(waiter.ticket);
            } else if !blocked.iter().any(overtakes)
                && let Ok(Decision::New(shares)) =
                    self.fits(&waiter.request.instance, &waiter.request.spec, &waiter.request.terms)
            {
                let mut booking = Booking::drafted(waiter.request.clone());
                self.settle(&mut booking, shares, now);
                booking.ticket = Some(waiter.ticket);
                self.remove_waiter(waiter.ticket);
                self.put(booking);
            } else {
                blocked.push(waiter);
            }
        }
    }

    /// Why this request can never be admitted, whatever else is released.
    pub(crate) fn never(&self, request: &Request) -> Option<CoResidency> {
        match self.shares(&request.spec) {
            Ok(shares) => self.hopeless(request, &shares),
            Err(refusal) => Some(refusal),
        }
    }

    fn hopeless(&self, request: &Request, shares: &[Share]) -> Option<CoResidency> {
        if let Some(own) = self.get(&request.instance) {
            return Some(taken(own));
        }
        shares.iter().find_map(|share| {
            let budget = self.pools[share.pool].budget?;
            (share.booked > budget).then(|| self.shortage(&request.spec, None, share)).flatten()
        })
    }
}

#[cfg(feature = "serde")]
impl Book {
    pub(crate) fn waiter(&self, ticket: u64) -> Option<&Waiter> {
        self.queue.waiters.get(self.queue.places.get(&ticket)?)
    }

    pub(crate) fn next_ticket_number(&self) -> u64 {
        self.queue.next
    }

    pub(crate) fn start_tickets_at(&mut self, next: u64) {
        self.queue.next = next;
    }
}
