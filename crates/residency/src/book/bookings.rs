//! Bookings by instance, in order.
//!
//! The tree is keyed by the first bytes of a name as a number, so that finding a name compares numbers that lie side by
//! side. Names are compared as text only where those bytes are the same.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Booking;

/// Bookings in the order of instances.
#[derive(Clone, Debug, Default)]
pub(super) struct Bookings {
    heads: BTreeMap<u128, Alike>,
    len: usize,
}

/// Bookings whose instances begin alike, in order; mostly there is one. Boxed, so that the tree stays dense.
#[derive(Clone, Debug)]
struct Alike {
    first: Box<Booking>,
    #[expect(clippy::vec_box, reason = "the first one changes places with them")]
    others: Vec<Box<Booking>>,
}

/// The first bytes of a name. They are in the order of names as far as they differ.
fn head(name: &str) -> u128 {
    let mut bytes = [0; 16];
    let shown = name.len().min(bytes.len());
    bytes[..shown].copy_from_slice(&name.as_bytes()[..shown]);
    u128::from_be_bytes(bytes)
}

impl Alike {
    fn iter(&self) -> impl Iterator<Item = &Booking> {
        std::iter::once(&self.first).chain(&self.others).map(|booking| &**booking)
    }

    fn place(&self, instance: &str) -> Result<usize, usize> {
        self.others.binary_search_by(|booking| (*booking.instance).cmp(instance))
    }
}

impl Bookings {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, instance: &str) -> Option<&Booking> {
        let alike = self.heads.get(&head(instance))?;
        if &*alike.first.instance == instance {
            return Some(&alike.first);
        }
        Some(&alike.others[alike.place(instance).ok()?])
    }

    pub(super) fn get_mut(&mut self, instance: &str) -> Option<&mut Booking> {
        let alike = self.heads.get_mut(&head(instance))?;
        if &*alike.first.instance == instance {
            return Some(&mut alike.first);
        }
        let place = alike.place(instance).ok()?;
        Some(&mut alike.others[place])
    }

    /// Adds the booking of an instance that has none.
    pub(super) fn insert(&mut self, mut booking: Box<Booking>) {
        match self.heads.entry(head(&booking.instance)) {
            Entry::Vacant(entry) => {
                entry.insert(Alike { first: booking, others: Vec::new() });
            }
            Entry::Occupied(entry) => {
                let alike = entry.into_mut();
                if booking.instance < alike.first.instance {
                    std::mem::swap(&mut booking, &mut alike.first);
                }
                let (Ok(place) | Err(place)) = alike.place(&booking.instance);
                alike.others.insert(place, booking);
            }
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, instance: &str) -> Option<Box<Booking>> {
        let Entry::Occupied(mut entry) = self.heads.entry(head(instance)) else {
            return None;
        };
        let alike = entry.get_mut();
        let removed = if &*alike.first.instance != instance {
            let place = alike.place(instance).ok()?;
            alike.others.remove(place)
        } else if alike.others.is_empty() {
            entry.remove().first
        } else {
            let next = alike.others.remove(0);
            std::mem::replace(&mut alike.first, next)
        };
        self.len -= 1;
        Some(removed)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Booking> {
        Counted { inner: self.heads.values().flat_map(Alike::iter), left: self.len }
    }
}

/// An iterator that knows how much is left.
struct Counted<I> {
    inner: I,
    left: usize,
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let next = self.inner.next()?;
        self.left = self.left.saturating_sub(1);
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }

    // Going through all of them is quicker than asking for each.
    fn fold<B, F: FnMut(B, I::Item) -> B>(self, init: B, f: F) -> B {
        self.inner.fold(init, f)
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{InferenceSpec, Request};

    fn booking(instance: &str) -> Box<Booking> {
        Booking::drafted(Request::new(instance, InferenceSpec::new("role", "x")))
    }

    /// Names that often begin alike, are each other's beginnings, or end in the lowest of characters.
    fn name() -> impl Strategy<Value = String> {
        ("(a{13,18}|a{0,3}|é{6,9})", "[ab\0é]{0,3}").prop_map(|(head, tail)| head + &tail)
    }

    proptest! {
        #[test]
        fn bookings_stand_in_the_order_of_their_names_and_are_found_by_them(
            steps in prop::collection::vec((name(), any::<bool>()), 0..60),
        ) {
            let (mut bookings, mut names) = (Bookings::default(), BTreeSet::new());
            for (name, add) in steps {
                if !add {
                    let removed = bookings.remove(&name);
                    prop_assert_eq!(removed.map(|booking| booking.instance().to_owned()), names.take(&name));
                } else if names.insert(name.clone()) {
                    bookings.insert(booking(&name));
                }
                prop_assert_eq!(bookings.get(&name).is_some(), names.contains(&name));
                prop_assert_eq!(bookings.get_mut(&name).map(|b| b.instance().to_owned()), names.get(&name).cloned());
                prop_assert_eq!((bookings.len(), bookings.iter().len()), (names.len(), names.len()));
                prop_assert!(bookings.iter().map(Booking::instance).eq(names.iter().map(String::as_str)));
            }
        }
    }
}
