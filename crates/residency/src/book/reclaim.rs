//! Whose time is up.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_units::Bytes;

use super::{Book, Booking};
use crate::{Owners, ProcessId, Standing, Timestamp};

/// A booking that ended without being released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// What held it.
    pub instance: String,
    /// Its role.
    pub role: String,
    /// What came back.
    pub bytes: Bytes,
    /// Why.
    pub ended: Ended,
}

/// Why a booking ended without being released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// None of its owners is left.
    OwnerGone,
    /// Its owners cannot be seen from here and its lease ran out.
    LeaseOver,
    /// It was made for a limited time.
    Expired,
    /// It was nobody's, and the machine has booted since.
    Rebooted,
}

impl Book {
    /// Ends every booking and every wait whose owner is gone or whose time is up.
    pub(crate) fn reclaim(&mut self, owners: &dyn Owners, now: Timestamp) -> Vec<Reclaimed> {
        if self.index.is_lasting() && self.queue.is_empty() {
            return Vec::new();
        }
        let mut ended = Vec::new();
        self.find_expired(now, &mut ended);
        self.find_rebooted(owners, &mut ended);
        self.find_ownerless(owners, now, &mut ended);
        let mut reclaimed = Vec::with_capacity(ended.len());
        for (instance, why) in ended {
            if let Some(booking) = self.release(&instance) {
                reclaimed.push(Reclaimed {
                    instance: instance.to_string(),
                    role: booking.role().to_owned(),
                    bytes: booking.bytes(),
                    ended: why,
                });
            }
        }
        self.drop_dead_waiters(owners, now);
        reclaimed
    }

    fn find_expired(&self, now: Timestamp, ended: &mut Vec<(Arc<str>, Ended)>) {
        let due = self.index.expiries.iter().take_while(|(expires, _)| *expires <= now);
        ended.extend(due.map(|(_, instance)| (Arc::clone(instance), Ended::Expired)));
    }

    fn find_rebooted(&self, owners: &dyn Owners, ended: &mut Vec<(Arc<str>, Ended)>) {
        let Some(here) = owners.boot() else { return };
        for (boot, instances) in &self.index.boots {
            if &**boot != here {
                ended.extend(instances.iter().map(|instance| (Arc::clone(instance), Ended::Rebooted)));
            }
        }
    }

    fn find_ownerless(&self, owners: &dyn Owners, now: Timestamp, ended: &mut Vec<(Arc<str>, Ended)>) {
        let mut asked: BTreeSet<&str> = BTreeSet::new();
        for (owner, instances) in &self.index.owners {
            let standing = owners.standing(owner);
            if standing == Standing::Alive {
                continue;
            }
            for instance in instances {
                if asked.insert(instance)
                    && let Some(booking) = self.get(instance)
                    && let Some(why) = over(&booking.terms.owners, booking.lease_until, owners, now)
                {
                    ended.push((Arc::clone(instance), why));
                }
            }
        }
    }

    fn drop_dead_waiters(&mut self, owners: &dyn Owners, now: Timestamp) {
        let dead: Vec<u64> = self
            .queue
            .iter()
            .filter(|waiter| {
                let terms = &waiter.request.terms;
                !terms.owners.is_empty() && over(&terms.owners, waiter.lease_until, owners, now).is_some()
            })
            .map(|waiter| waiter.ticket)
            .collect();
        for ticket in dead {
            self.remove_waiter(ticket);
        }
    }
}

/// Why a booking with these owners is over, if it is.
fn over(
    all: &[ProcessId],
    lease_until: Option<Timestamp>,
    owners: &dyn Owners,
    now: Timestamp,
) -> Option<Ended> {
    let mut hidden = false;
    for owner in all {
        match owners.standing(owner) {
            Standing::Alive => return None,
            Standing::Dead => {}
            // Without a lease, only another boot tells that it has ended.
            Standing::Elsewhere => match lease_until {
                Some(until) if until > now => return None,
                Some(_) => hidden = true,
                None if owners.boot().is_some_and(|boot| boot != owner.boot) => {}
                None => return None,
            },
        }
    }
    Some(if hidden { Ended::LeaseOver } else { Ended::OwnerGone })
}

impl Booking {
    /// Whether nobody owns it.
    pub fn is_unowned(&self) -> bool {
        self.terms.owners.is_empty()
    }
}
