//! What is really used of memory, beside what is booked of it: the host's as `/proc` tells it, NVIDIA's cards as their
//! driver does.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::profile::isolated::Look;
use plimsoll::profile::{Absence, Presence, ProcessMemory};
use plimsoll::residency::{Attribution, Book, Booking, OutsideUse, Owners, ProcOwners, Standing, attribute};
use plimsoll::units::{Bytes, PoolId};
use plimsoll::{Place, Processes, cluster};

use crate::{input, look};

/// The pool that is this machine's whole memory, so that what is used of it can be compared.
pub(super) const HOST: &str = cluster::Pool::RAM;

/// What the first namespace of process numbers is called; drivers number processes as it does.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// A book with what was measured, and where the memory is gone. Only what was measured counts in that book: how full the
/// pools are is said by the one that it was made from.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) book: Book,
    /// The host's first, then the cards' in the order of pools.
    pub(super) attributions: Vec<(PoolId, Attribution)>,
    /// Why something could not be measured that should have been.
    pub(super) unknown: Vec<String>,
}

/// What the owners of the bookings use now.
pub(super) fn look(book: &Book, owners: &ProcOwners) -> Measured {
    let has_devices = book.pools().any(|pool| !is_host(&pool.id));
    // No driver is loaded for a ledger that has no card.
    let devices = if has_devices { Devices::of(&look::with_holders()) } else { Devices::default() };
    let processes = Processes::look();
    let trees = book.bookings().filter_map(|booking| {
        let tree = tree(booking, owners, &processes)?;
        Some((booking.instance().to_owned(), tree))
    });
    let trees = trees.collect();
    let mut measured = Measured { book: book.clone(), attributions: Vec::new(), unknown: devices.unknown };
    measured.take_in_host(&trees, &processes);
    let first = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == FIRST_NAMESPACE);
    let alike =
        first || devices.seen.values().flat_map(|seen| &seen.held).all(|held| processes.has(held.pid));
    for (pool, seen) in &devices.seen {
        measured.take_in_device(pool, seen, alike.then_some((&trees, &processes)));
    }
    measured
}

/// The processes of each booking, by its instance.
type Trees = BTreeMap<String, BTreeSet<u32>>;

impl Measured {
    /// Nothing was measured.
    pub(super) fn nothing(book: &Book) -> Self {
        Self { book: book.clone(), attributions: Vec::new(), unknown: Vec::new() }
    }

    fn take_in_host(&mut self, trees: &Trees, processes: &Processes) {
        for held in self.book.holders().iter().filter(|held| is_host(&held.pool)) {
            if let Some(tree) = trees.get(&held.instance) {
                self.book.measure(&held.instance, &held.pool, processes.resident(tree));
            }
        }
        let Some((host, (total, free))) = PoolId::new(HOST).ok().zip(input::host_memory()) else { return };
        let known = trees.values().flatten().copied().collect();
        let outside = processes.others(&known).into_iter().filter(|(.., bytes)| !bytes.is_zero());
        let outside =
            outside.map(|(name, pid, bytes)| OutsideUse { process: format!("{name} (pid {pid})"), bytes });
        let told = attribute(&self.book, &host, total.saturating_sub(free), outside);
        self.attributions.extend(told.map(|told| (host, told)));
    }

    /// `numbered` are the processes, where the driver numbers them as we do: else nobody's use is known, only everybody's.
    fn take_in_device(&mut self, pool: &PoolId, seen: &Seen, numbered: Option<(&Trees, &Processes)>) {
        let mut outside = Vec::new();
        if let Some((trees, processes)) = numbered {
            for held in self.book.holders().iter().filter(|held| held.pool == *pool) {
                let uses = trees.get(&held.instance).and_then(|tree| seen.held_by(tree));
                if let Some(bytes) = uses {
                    self.book.measure(&held.instance, pool, bytes);
                }
            }
            let known: BTreeSet<u32> = trees.values().flatten().copied().collect();
            let others = seen.held.iter().filter(|held| !known.contains(&held.pid));
            outside.extend(others.filter_map(|held| {
                let bytes = held.bytes.filter(|bytes| !bytes.is_zero())?;
                let name = processes.name(held.pid).unwrap_or("a process that is hidden");
                Some(OutsideUse { process: format!("{name} (pid {})", held.pid), bytes })
            }));
        }
        let told = seen.used.and_then(|used| attribute(&self.book, pool, used, outside));
        self.attributions.extend(told.map(|told| (pool.clone(), told)));
    }
}

/// What a driver tells of one card.
#[derive(Debug)]
struct Seen {
    /// What is used of it in all, where that is known.
    used: Option<Bytes>,
    held: Vec<ProcessMemory>,
}

impl Seen {
    /// What these processes hold together; `None` where that is not told of one of them.
    fn held_by(&self, pids: &BTreeSet<u32>) -> Option<Bytes> {
        let theirs = self.held.iter().filter(|held| pids.contains(&held.pid));
        theirs.map(|held| held.bytes).try_fold(Bytes::ZERO, |sum, bytes| Some(sum.saturating_add(bytes?)))
    }
}

/// The cards with memory of their own whose driver tells who holds it, by their pools.
#[derive(Debug, Default)]
struct Devices {
    seen: BTreeMap<PoolId, Seen>,
    unknown: Vec<String>,
}

impl Devices {
    fn of(look: &Look) -> Self {
        let mut devices = Self::default();
        let cards = match &look.held {
            Presence::Found(cards) => cards,
            // Where there is no such card there is nothing to know.
            Presence::Absent(Absence::NoLibrary { .. } | Absence::NotCompiled { .. } | Absence::NoDevice) => {
                return devices;
            }
            Presence::Absent(why) => {
                devices.unknown.push(format!("who uses the accelerators is not known: {why}"));
                return devices;
            }
        };
        let machine = cluster::this_machine(input::node_name(), &look.profile, &look.free);
        for node in &machine.nodes {
            for device in node.devices.iter().filter(|device| !is_host(&device.pool)) {
                let accelerator = look
                    .profile
                    .accelerators
                    .iter()
                    .find(|accelerator| accelerator.uuid.is_some() && accelerator.uuid == device.uuid);
                let Some(accelerator) = accelerator else { continue };
                match cards.get(&accelerator.id) {
                    Some(Presence::Found(held)) => {
                        let pool = node.pools.iter().find(|pool| pool.id == device.pool);
                        let used = pool.and_then(|pool| Some(pool.total.saturating_sub(pool.free?)));
                        devices.seen.insert(device.pool.clone(), Seen { used, held: held.clone() });
                    }
                    Some(Presence::Absent(why)) => {
                        devices.unknown.push(format!("who uses {} is not known: {why}", device.pool));
                    }
                    None => {}
                }
            }
        }
        devices
    }
}

fn is_host(pool: &PoolId) -> bool {
    Place::of_pool(Some(pool)) == Place::OneMemory
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

#[cfg(test)]
mod tests {
    use plimsoll::residency::{InferenceSpec, Request, Timestamp};

    use super::*;

    fn held(pid: u32, bytes: Option<u64>) -> ProcessMemory {
        ProcessMemory { pid, bytes: bytes.map(Bytes::new) }
    }

    /// A card on which `a` booked 10 bytes and `b` 8.
    fn booked() -> (Measured, PoolId) {
        let pool = PoolId::new("CUDA0").unwrap();
        let mut book = Book::new([(pool.clone(), Some(Bytes::new(24)))]);
        for (name, bytes) in [("a", 10), ("b", 8)] {
            let spec = InferenceSpec::new(name, "x").with_memory(Bytes::new(bytes), Bytes::ZERO);
            book.reserve(&Request::new(name, spec), Timestamp::ZERO).unwrap();
        }
        (Measured { book, attributions: Vec::new(), unknown: Vec::new() }, pool)
    }

    #[test]
    fn what_the_tree_of_an_owner_holds_on_a_card_stands_beside_its_booking() {
        let (mut measured, pool) = booked();
        let trees = Trees::from([
            ("a".to_owned(), BTreeSet::from([50, 51])),
            ("b".to_owned(), BTreeSet::from([60, 61])),
        ]);
        let all =
            vec![held(50, Some(4)), held(51, Some(8)), held(60, Some(5)), held(9, Some(2)), held(8, None)];
        let seen = Seen { used: Some(Bytes::new(22)), held: all };
        measured.take_in_device(&pool, &seen, Some((&trees, &Processes::default())));
        let told = &measured.attributions[0].1;
        let sum = |parts: &[plimsoll::residency::Holding]| {
            parts.iter().map(|part| (part.instance.clone(), part.bytes.get())).collect::<Vec<_>>()
        };
        assert_eq!(sum(&told.over_use), [("a".to_owned(), 2)]);
        assert_eq!(sum(&told.estimate_error), [("b".to_owned(), 3)]);
        assert_eq!(told.outside.len(), 1);
        assert_eq!(told.outside[0].process, "a process that is hidden (pid 9)");
        assert_eq!((told.outside[0].bytes.get(), told.unexplained.get()), (2, 3));
    }

    #[test]
    fn what_is_not_told_of_one_process_is_not_measured_of_its_booking() {
        let (mut measured, pool) = booked();
        let trees = Trees::from([("a".to_owned(), BTreeSet::from([50, 51]))]);
        let seen = Seen { used: None, held: vec![held(50, Some(4)), held(51, None)] };
        measured.take_in_device(&pool, &seen, Some((&trees, &Processes::default())));
        assert!(measured.book.holders().iter().all(|holder| holder.measured.is_none()));
        assert!(measured.attributions.is_empty(), "nobody knows how much is used");
    }

    #[test]
    fn numbers_of_another_namespace_are_nobodys() {
        let (mut measured, pool) = booked();
        let seen = Seen { used: Some(Bytes::new(20)), held: vec![held(50, Some(20))] };
        measured.take_in_device(&pool, &seen, None);
        assert!(measured.book.holders().iter().all(|holder| holder.measured.is_none()));
        let told = &measured.attributions[0].1;
        assert_eq!((told.booked.get(), told.unexplained.get()), (18, 2));
        assert!(told.outside.is_empty());
    }
}
