//! One operation on the ledger: from what is listed to what is to be written. Nothing here asks anybody.

use plimsoll_residency::{Book, BookingRecord, Changes, Owners, ProcessId, Timestamp, WaitRecord};

use super::listing::{Head, Listed, Mark, Pools};
use crate::keys::Keys;
use crate::writes::{Guard, Put, Writes};
use crate::{EtcdError, wire};

/// What this process can book on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lease {
    Id(i64),
    None,
    Lost,
}

/// One operation on the book of one revision.
pub(super) struct Turn {
    listed: Listed,
    book: Book,
}

impl Turn {
    pub(super) fn begin(listed: Listed) -> Result<Self, EtcdError> {
        let book = listed.book()?;
        Ok(Self { listed, book })
    }

    pub(super) fn run(
        &mut self,
        owners: &dyn Owners,
        now: Timestamp,
        operation: &mut dyn FnMut(&mut Book),
    ) -> Changes {
        self.book.turn(owners, now, operation)
    }

    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    pub(super) fn revision(&self) -> i64 {
        self.listed.revision
    }

    pub(super) fn base(&self) -> &Head {
        &self.listed.head
    }

    /// What is to be written, all of it and only while nobody else wrote: every change writes the head, so the head
    /// guards against every other change. Keys that are written or removed are guarded by themselves too, because a lease
    /// that ends removes them without writing the head.
    pub(super) fn writes(
        &self,
        keys: &Keys,
        changes: &Changes,
        lease: Lease,
        mark: &Mark,
    ) -> Result<Writes, EtcdError> {
        let mut writes = Writes::default();
        writes.guards.push(Guard::At { key: keys.head(), revision: self.listed.head_revision });
        let mut head = self.listed.head.marked(mark);
        if let Some(next) = changes.next_ticket {
            head.next_ticket = next;
        }
        writes.puts.push(Put { key: keys.head(), value: wire::encode(&head), lease: 0 });
        if let Some(pools) = &changes.pools {
            let value = wire::encode(&Pools { pools: pools.iter().cloned().collect() });
            writes.puts.push(Put { key: keys.pools(), value, lease: 0 });
        }
        for (instance, record) in &changes.bookings {
            let key = keys.booking(instance);
            let was = self.listed.bookings.get(instance);
            let value = match record {
                None => None,
                Some(record) => Some((wire::encode(record), self.lease_of_booking(record, lease)?)),
            };
            put(&mut writes, key, was.map(|was| was.revision), value);
        }
        for (ticket, record) in &changes.waits {
            let was = self.listed.waits.get(ticket);
            let value = match record {
                None => None,
                Some(record) => Some((wire::encode(record), self.lease_of_wait(record, lease)?)),
            };
            put(&mut writes, keys.wait(*ticket), was.map(|was| was.revision), value);
        }
        Ok(writes)
    }

    /// The lease on which a booking is to live: its own, as long as one of its owners stays; of the one that waited, when
    /// its wait is over; else ours.
    fn lease_of_booking(&self, record: &BookingRecord, ours: Lease) -> Result<i64, EtcdError> {
        if record.owners().is_empty() {
            return Ok(0);
        }
        let kept = self.listed.bookings.get(&record.instance).map(|was| (was.record.owners(), was.lease));
        if let Some(lease) =
            kept.filter(|(owners, _)| shares_one(owners, record.owners())).map(|(_, lease)| lease)
            && lease != 0
        {
            return Ok(lease);
        }
        let waited = record.ticket.and_then(|ticket| self.listed.waits.get(&ticket));
        match waited.filter(|wait| wait.record.instance == record.instance && wait.lease != 0) {
            Some(wait) => Ok(wait.lease),
            None => owned(ours),
        }
    }

    fn lease_of_wait(&self, record: &WaitRecord, ours: Lease) -> Result<i64, EtcdError> {
        match self.listed.waits.get(&record.ticket) {
            Some(was) => Ok(was.lease),
            None if record.owners().is_empty() => Ok(0),
            None => owned(ours),
        }
    }
}

fn put(writes: &mut Writes, key: String, was: Option<i64>, value: Option<(Vec<u8>, i64)>) {
    if let Some(revision) = was {
        writes.guards.push(Guard::At { key: key.clone(), revision });
    }
    match (value, was) {
        (Some((value, lease)), _) => writes.puts.push(Put { key, value, lease }),
        (None, Some(_)) => writes.deletes.push(key),
        // It came and went within the operation.
        (None, None) => {}
    }
}

fn shares_one(a: &[ProcessId], b: &[ProcessId]) -> bool {
    a.iter().any(|owner| b.contains(owner))
}

fn owned(ours: Lease) -> Result<i64, EtcdError> {
    match ours {
        Lease::Id(lease) => Ok(lease),
        Lease::None => Err(EtcdError::NoSession),
        Lease::Lost => Err(EtcdError::LeaseOver { what: "a booking of this process" }),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_residency::{InferenceSpec, NoOwners, Request, Terms};
    use plimsoll_units::{Bytes, PoolId};

    use super::*;
    use crate::connection::Listing;
    use crate::writes::Kv;

    fn keys() -> Keys {
        Keys::new("t")
    }

    fn mark(change: u64) -> Mark {
        Mark { writer: "w".to_owned(), change }
    }

    fn request(role: &str, gb: u64) -> Request {
        let pool = PoolId::new("tower:CUDA0").unwrap();
        let needs = [(pool, Bytes::new(gb * 1_000_000_000))];
        Request::new(role, InferenceSpec::new(role, "vllm").with_pools(needs))
    }

    fn owned_by(pid: u32) -> Terms {
        let owner = ProcessId { boot: "b".to_owned(), namespace: 1, pid, start: 1 };
        Terms { owners: vec![owner], ..Terms::default() }
    }

    /// A store of a few keys that obeys guards.
    #[derive(Default)]
    struct Store {
        revision: i64,
        kvs: Vec<Kv>,
    }

    impl Store {
        fn listed(&self) -> Listed {
            Listed::of(&keys(), Listing { revision: self.revision, kvs: self.kvs.clone() }).unwrap()
        }

        fn take(&mut self, writes: &Writes) -> bool {
            let at = |key: &str| self.kvs.iter().find(|kv| kv.key == key).map_or(0, |kv| kv.mod_revision);
            let holds = writes.guards.iter().all(|guard| match guard {
                Guard::At { key, revision } => at(key) == *revision,
                Guard::There { .. } | Guard::NoneSince { .. } => unreachable!("the ledger has none"),
            });
            if holds {
                self.revision += 1;
                self.kvs.retain(|kv| !writes.deletes.contains(&kv.key));
                for put in writes.puts.clone() {
                    self.kvs.retain(|kv| kv.key != put.key);
                    let Put { key, value, lease } = put;
                    self.kvs.push(Kv { key, value, mod_revision: self.revision, lease });
                }
            }
            holds
        }

        fn run(&mut self, lease: Lease, change: u64, operation: &mut dyn FnMut(&mut Book)) -> bool {
            let mut turn = Turn::begin(self.listed()).unwrap();
            let changes = turn.run(&NoOwners, Timestamp::ZERO, operation);
            let writes = turn.writes(&keys(), &changes, lease, &mark(change)).unwrap();
            self.take(&writes)
        }

        fn end_lease(&mut self, lease: i64) {
            self.revision += 1;
            self.kvs.retain(|kv| kv.lease != lease);
        }

        fn lease_of(&self, instance: &str) -> Option<i64> {
            let key = keys().booking(instance);
            self.kvs.iter().find(|kv| kv.key == key).map(|kv| kv.lease)
        }
    }

    fn with_pool() -> Store {
        let mut store = Store::default();
        let pool = PoolId::new("tower:CUDA0").unwrap();
        assert!(store.run(Lease::None, 1, &mut |book| {
            book.set_budget(&pool, Some(Bytes::new(10_000_000_000)));
        }));
        store
    }

    #[test]
    fn of_two_that_decide_on_the_same_book_one_is_outrun() {
        let mut store = with_pool();
        let mut decided = Vec::new();
        for role in ["a", "b"] {
            let mut turn = Turn::begin(store.listed()).unwrap();
            let changes = turn.run(&NoOwners, Timestamp::ZERO, &mut |book| {
                assert!(book.reserve(&request(role, 6), Timestamp::ZERO).unwrap());
            });
            decided.push(turn.writes(&keys(), &changes, Lease::None, &mark(2)).unwrap());
        }
        assert!(store.take(&decided[0]));
        assert!(!store.take(&decided[1]));
        assert_eq!(store.lease_of("b"), None);
    }

    #[test]
    fn what_a_process_owns_lives_on_its_lease_and_who_waited_is_let_in_on_its_own() {
        let mut store = with_pool();
        let now = Timestamp::ZERO;
        store.run(Lease::Id(7), 2, &mut |book| drop(book.reserve(&request("a", 8).on(owned_by(1)), now)));
        store.run(Lease::None, 3, &mut |book| drop(book.reserve(&request("x", 1), now)));
        assert_eq!((store.lease_of("a"), store.lease_of("x")), (Some(7), Some(0)));
        // Somebody else's change keeps the lease; memory that came free by the lease's end is given on the next change.
        store.run(Lease::Id(9), 4, &mut |book| {
            book.set_pinned("a", true);
        });
        assert_eq!(store.lease_of("a"), Some(7));
        store.end_lease(7);
        assert!(store.listed().bookings.keys().eq(["x"]));
    }

    #[test]
    fn a_booking_that_ended_with_its_lease_is_not_written_again() {
        let mut store = with_pool();
        store.run(Lease::Id(7), 2, &mut |book| {
            drop(book.reserve(&request("a", 8).on(owned_by(1)), Timestamp::ZERO));
        });
        let mut turn = Turn::begin(store.listed()).unwrap();
        let changes = turn.run(&NoOwners, Timestamp::ZERO, &mut |book| {
            book.set_pinned("a", true);
        });
        let writes = turn.writes(&keys(), &changes, Lease::None, &mark(3)).unwrap();
        store.end_lease(7);
        assert!(!store.take(&writes));
    }

    #[test]
    fn what_a_process_owns_needs_a_lease_that_lasts() {
        let store = with_pool();
        for (lease, lost) in [(Lease::None, false), (Lease::Lost, true)] {
            let mut turn = Turn::begin(store.listed()).unwrap();
            let changes = turn.run(&NoOwners, Timestamp::ZERO, &mut |book| {
                drop(book.reserve(&request("a", 8).on(owned_by(1)), Timestamp::ZERO));
            });
            let error = turn.writes(&keys(), &changes, lease, &mark(2)).unwrap_err();
            assert_eq!(matches!(error, EtcdError::LeaseOver { .. }), lost, "{error}");
        }
    }

    #[test]
    fn what_was_measured_counts_and_what_was_booked_since_comes_on_top() {
        let mut store = with_pool();
        let free = |gb: u64| format!(r#"{{"v":1,"at":0,"free":{{"CUDA0":{}}}}}"#, gb * 1_000_000_000);
        let measured = |store: &mut Store, gb: u64| {
            store.revision += 1;
            let (key, revision) = ("/plimsoll/t/metrics/tower".to_owned(), store.revision);
            store.kvs.retain(|kv| kv.key != key);
            store.kvs.push(Kv { key, value: free(gb).into_bytes(), mod_revision: revision, lease: 1 });
        };
        let refused = |store: &Store, role: &str, gb: u64| {
            Turn::begin(store.listed()).unwrap().book.reserve(&request(role, gb), Timestamp::ZERO).err()
        };
        // Somebody uses 4 of 10.
        measured(&mut store, 6);
        assert!(refused(&store, "a", 7).unwrap().to_string().ends_with("(held by others 4.0 GB)"));
        assert_eq!(refused(&store, "a", 6), None);
        // Booked and not yet loaded: it is not free twice.
        store.run(Lease::None, 2, &mut |book| drop(book.reserve(&request("a", 5), Timestamp::ZERO)));
        assert!(refused(&store, "b", 2).is_some());
        assert_eq!(refused(&store, "b", 1), None);
        // Loaded and measured.
        measured(&mut store, 1);
        assert!(refused(&store, "b", 2).is_some());
        assert_eq!(refused(&store, "b", 1), None);
    }

    #[test]
    fn a_drained_node_takes_nothing_new_and_keeps_what_it_holds() {
        let mut store = with_pool();
        store.run(Lease::None, 2, &mut |book| drop(book.reserve(&request("a", 5), Timestamp::ZERO)));
        let key = "/plimsoll/t/drained/tower".to_owned();
        store.kvs.push(Kv { key, value: br#"{"v":1}"#.to_vec(), mod_revision: 9, lease: 0 });
        let mut book = Turn::begin(store.listed()).unwrap().book;
        let refusal = book.reserve(&request("b", 1), Timestamp::ZERO).unwrap_err().to_string();
        assert!(refusal.contains("nobody while 'tower' is drained 5.0 GB"), "{refusal}");
        assert!(!book.reserve(&request("a", 5), Timestamp::ZERO).unwrap());
    }
}
