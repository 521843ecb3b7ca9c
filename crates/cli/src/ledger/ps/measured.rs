//! What is really used of the host's memory, beside what is booked of it.

use std::collections::BTreeSet;

use plimsoll::residency::{Attribution, Book, Booking, OutsideUse, Owners, ProcOwners, Standing, attribute};
use plimsoll::units::{Bytes, PoolId};
use plimsoll::{Place, Processes, cluster};

/// The pool that is this machine's whole memory, so that what is used of it can be compared.
pub(super) const HOST: &str = cluster::Pool::RAM;

/// This book with what the owners of its bookings use now, and where the host's memory is gone. Only what was measured
/// counts in it: how full the pools are is said by the book itself.
pub(super) fn look(book: &Book, owners: &ProcOwners) -> (Book, Option<Attribution>) {
    let mut seen = book.clone();
    let attribution = take_in(&mut seen, owners);
    (seen, attribution)
}

fn take_in(book: &mut Book, owners: &ProcOwners) -> Option<Attribution> {
    let processes = Processes::look();
    let holders = book.holders();
    let mut known = BTreeSet::new();
    let mut measured: Vec<(String, PoolId, Bytes)> = Vec::new();
    for booking in book.bookings() {
        let Some(tree) = tree(booking, owners, &processes) else { continue };
        let hosts = holders.iter().filter(|held| held.instance == booking.instance());
        for held in hosts.filter(|held| Place::of_pool(Some(&held.pool)) == Place::OneMemory) {
            measured.push((held.instance.clone(), held.pool.clone(), processes.resident(&tree)));
        }
        known.extend(tree);
    }
    for (instance, pool, bytes) in measured {
        book.measure(&instance, &pool, bytes);
    }
    let host = PoolId::new(HOST).ok().filter(|host| book.pool(host.as_str()).is_some())?;
    let (total, free) = crate::input::host_memory()?;
    let outside = processes.others(&known).into_iter().filter(|(.., bytes)| !bytes.is_zero());
    let outside =
        outside.map(|(name, pid, bytes)| OutsideUse { process: format!("{name} (pid {pid})"), bytes });
    attribute(book, &host, total.saturating_sub(free), outside)
}

/// The processes that a booking stands for; `None` when they cannot be seen from here.
fn tree(booking: &Booking, owners: &ProcOwners, processes: &Processes) -> Option<BTreeSet<u32>> {
    let seen = booking.terms().owners.iter().filter(|owner| owners.standing(owner) == Standing::Alive);
    let mut all = BTreeSet::new();
    for owner in seen {
        all.extend(processes.tree(owner.pid));
        if booking.instance() == super::super::run::instance_of(booking.role(), owner.pid) {
            // What only watches over the command is not the command.
            all.remove(&owner.pid);
        }
    }
    (!all.is_empty()).then_some(all)
}
