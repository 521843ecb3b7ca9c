//! Roles, exclusions and ends, so that nothing has to look at every booking.

#[expect(clippy::disallowed_types, reason = "looked up by name; its order is never seen")]
use std::collections::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Booking;
use crate::{ProcessId, Timestamp};

/// What the bookings say, by what is asked of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    // Who comes and goes keeps its place here for a while, so that it need not be made each time.
    #[expect(clippy::disallowed_types, reason = "looked up by name; its order is never seen")]
    roles: HashMap<Box<str>, Named>,
    // How many of the roles nobody says any more.
    vacant: usize,
    pub(super) owners: BTreeMap<ProcessId, BTreeSet<Arc<str>>>,
    // Bookings without an owner, by the boot that ends them.
    pub(super) boots: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    pub(super) expiries: BTreeSet<(Timestamp, Arc<str>)>,
}

/// Who says this role's name. Both lists are in order; most have one entry or none.
#[derive(Clone, Debug, Default)]
struct Named {
    holders: Vec<Arc<str>>,
    excluded_by: Vec<Arc<str>>,
}

/// So many vacant roles are kept in any case.
const FEW: usize = 64;

impl Named {
    fn is_vacant(&self) -> bool {
        self.holders.is_empty() && self.excluded_by.is_empty()
    }
}

impl Index {
    /// The instances of a role.
    pub(super) fn holders(&self, role: &str) -> impl Iterator<Item = &Arc<str>> {
        self.roles.get(role).into_iter().flat_map(|named| &named.holders)
    }

    /// The instances that exclude a role.
    pub(super) fn excluders(&self, role: &str) -> impl Iterator<Item = &Arc<str>> {
        self.roles.get(role).into_iter().flat_map(|named| &named.excluded_by)
    }

    pub(super) fn add(&mut self, booking: &Booking) {
        let instance = &booking.instance;
        self.name(booking.role(), |named| &mut named.holders, instance);
        for role in &booking.spec.excludes {
            self.name(role, |named| &mut named.excluded_by, instance);
        }
        for owner in &booking.terms.owners {
            self.owners.entry(owner.clone()).or_default().insert(Arc::clone(instance));
        }
        if let (Some(boot), []) = (&booking.boot, &*booking.terms.owners) {
            self.boots.entry(Arc::clone(boot)).or_default().insert(Arc::clone(instance));
        }
        if let Some(expires) = booking.expires {
            self.expiries.insert((expires, Arc::clone(instance)));
        }
    }

    pub(super) fn remove(&mut self, booking: &Booking) {
        let instance = &booking.instance;
        self.unname(booking.role(), |named| remove(&mut named.holders, instance));
        for role in &booking.spec.excludes {
            self.unname(role, |named| remove(&mut named.excluded_by, instance));
        }
        for owner in &booking.terms.owners {
            remove_from(&mut self.owners, owner, instance);
        }
        if let (Some(boot), []) = (&booking.boot, &*booking.terms.owners) {
            remove_from(&mut self.boots, boot, instance);
        }
        if let Some(expires) = booking.expires {
            self.expiries.remove(&(expires, Arc::clone(instance)));
        }
    }

    fn name(&mut self, role: &str, list: fn(&mut Named) -> &mut Vec<Arc<str>>, instance: &Arc<str>) {
        if let Some(named) = self.roles.get_mut(role) {
            if named.is_vacant() {
                self.vacant = self.vacant.saturating_sub(1);
            }
            insert(list(named), instance);
        } else {
            let mut named = Named::default();
            list(&mut named).push(Arc::clone(instance));
            self.roles.insert(role.into(), named);
        }
    }

    fn unname(&mut self, role: &str, remove: impl FnOnce(&mut Named)) {
        if let Some(named) = self.roles.get_mut(role) {
            remove(named);
            if named.is_vacant() {
                self.vacant += 1;
                self.sweep();
            }
        }
    }

    /// Forgets the roles that nobody says, once they are the most.
    fn sweep(&mut self) {
        if self.vacant > FEW && self.vacant > self.roles.len() / 2 {
            self.roles.retain(|_, named| !named.is_vacant());
            self.vacant = 0;
        }
    }

    /// Whether no booking can end by itself.
    pub(super) fn is_lasting(&self) -> bool {
        self.owners.is_empty() && self.boots.is_empty() && self.expiries.is_empty()
    }
}

fn insert(list: &mut Vec<Arc<str>>, instance: &Arc<str>) {
    if let Err(place) = list.binary_search(instance) {
        list.insert(place, Arc::clone(instance));
    }
}

fn remove(list: &mut Vec<Arc<str>>, instance: &Arc<str>) {
    if let Ok(place) = list.binary_search(instance) {
        list.remove(place);
    }
}

fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<Arc<str>>>, key: &K, instance: &Arc<str>) {
    if let Some(set) = map.get_mut(key) {
        set.remove(instance);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InferenceSpec, Request};

    #[test]
    fn roles_that_nobody_says_any_more_are_forgotten_in_time() {
        let mut index = Index::default();
        let booking = |i: usize| {
            let spec = InferenceSpec::new(format!("role-{i}"), "x").excluding([format!("other-{i}")]);
            Booking::drafted(Request::new(format!("instance-{i}"), spec))
        };
        let kept = booking(0);
        index.add(&kept);
        for i in 1..1_000 {
            let visitor = booking(i);
            index.add(&visitor);
            assert_eq!(index.holders(visitor.role()).count(), 1);
            index.remove(&visitor);
            assert_eq!(
                index.holders(visitor.role()).chain(index.excluders(&format!("other-{i}"))).count(),
                0
            );
            assert!(index.roles.len() <= 2 * FEW + 4, "{} roles are kept", index.roles.len());
        }
        assert_eq!((index.holders("role-0").count(), index.excluders("other-0").count()), (1, 1));
        index.remove(&kept);
        assert_eq!(index.vacant, index.roles.len());
    }
}
