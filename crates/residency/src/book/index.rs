//! Roles, exclusions and ends, so that nothing has to look at every booking.

#[expect(clippy::disallowed_types, reason = "looked up by name and never walked through")]
use std::collections::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Booking;
use crate::{ProcessId, Timestamp};

/// What the bookings say, by what is asked of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    #[expect(clippy::disallowed_types, reason = "looked up by name and never walked through")]
    roles: HashMap<Box<str>, Named>,
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
            if named.holders.is_empty() && named.excluded_by.is_empty() {
                self.roles.remove(role);
            }
        }
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
