//! The ledger as it stands in the store.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_residency::{Book, BookRecord, BookingRecord, WaitRecord};
use plimsoll_units::{Bytes, PoolId};
use serde::{Deserialize, Serialize};

use crate::connection::{Listing, Settled};
use crate::keys::Keys;
use crate::registry::{MetricsRecord, ledger_pool};
use crate::writes::Kv;
use crate::{EtcdError, wire};

/// The most writers that are remembered.
const WRITERS: usize = 64;

/// What every change of the ledger writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    pub(super) next_ticket: u64,
    /// The last change of each of the latest writers, the latest at the end.
    writers: Vec<Mark>,
    /// How many writers were forgotten in all.
    forgotten: u64,
}

/// One change of one writer. A writer makes one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    pub(super) writer: String,
    pub(super) change: u64,
}

impl Head {
    /// The same after this change.
    pub(super) fn marked(&self, mark: &Mark) -> Self {
        let mut next = self.clone();
        next.writers.retain(|known| known.writer != mark.writer);
        next.writers.push(mark.clone());
        if next.writers.len() > WRITERS {
            next.writers.remove(0);
            next.forgotten += 1;
        }
        next
    }

    /// Whether this change, which was decided on `base`, was made before this head was written.
    fn settles(&self, mark: &Mark, base: &Self) -> Settled {
        match self.writers.iter().find(|known| known.writer == mark.writer) {
            Some(known) if known.change >= mark.change => Settled::Made,
            Some(_) => Settled::NotMade,
            // Nobody else takes a writer's last change away, except by forgetting the writer.
            None if self.forgotten == base.forgotten => Settled::NotMade,
            None => Settled::Unknown,
        }
    }
}

/// Whether what stands at the head shows that this change, which was decided on `base`, was made.
pub(super) fn settled(head: Option<&Kv>, mark: &Mark, base: &Head) -> Settled {
    match head {
        None => Settled::NotMade,
        Some(kv) => match wire::decode::<Head>(&kv.key, &kv.value) {
            Ok(head) => head.settles(mark, base),
            Err(_) => Settled::Unknown,
        },
    }
}

/// What each pool may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pools {
    pub(super) pools: BTreeMap<PoolId, Option<Bytes>>,
}

/// A record, and what etcd knows of its key.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    pub(super) record: T,
    pub(super) revision: i64,
    pub(super) lease: i64,
}

/// The ledger at one revision of the store, and what is known of the memory that it is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    pub(super) revision: i64,
    pub(super) head: Head,
    pub(super) head_revision: i64,
    pub(super) pools: Pools,
    pub(super) bookings: BTreeMap<String, Entry<BookingRecord>>,
    pub(super) waits: BTreeMap<u64, Entry<WaitRecord>>,
    /// What was free of a pool, and when that was written.
    free: BTreeMap<PoolId, (Bytes, i64)>,
    drained: BTreeSet<String>,
}

impl Listed {
    /// Reads what was listed below the ledger, the metrics and the drained nodes.
    pub(super) fn of(keys: &Keys, listing: Listing) -> Result<Self, EtcdError> {
        let mut listed = Self { revision: listing.revision, ..Self::default() };
        for kv in &listing.kvs {
            listed.take(keys, kv)?;
        }
        Ok(listed)
    }

    fn take(&mut self, keys: &Keys, kv: &Kv) -> Result<(), EtcdError> {
        let (key, value) = (kv.key.as_str(), kv.value.as_slice());
        if key == keys.head() {
            self.head = wire::decode(key, value)?;
            self.head_revision = kv.mod_revision;
        } else if key == keys.pools() {
            self.pools = wire::decode(key, value)?;
        } else if let Some(instance) = key.strip_prefix(&keys.bookings()) {
            let record: BookingRecord = wire::decode(key, value)?;
            named(key, instance, &record.instance)?;
            self.bookings.insert(instance.to_owned(), entry(record, kv));
        } else if key.starts_with(&keys.waits()) {
            let record: WaitRecord = wire::decode(key, value)?;
            named(key, key, &keys.wait(record.ticket))?;
            self.waits.insert(record.ticket, entry(record, kv));
        } else if let Some(node) = key.strip_prefix(&keys.metrics()) {
            let metrics: MetricsRecord = wire::decode(key, value)?;
            for (pool, free) in metrics.free {
                if let Ok(pool) = ledger_pool(node, pool.as_str()) {
                    self.free.insert(pool, (free, kv.mod_revision));
                }
            }
        } else if let Some(node) = key.strip_prefix(&keys.drained()) {
            self.drained.insert(node.to_owned());
        }
        Ok(())
    }

    fn records(&self) -> BookRecord {
        BookRecord {
            pools: self.pools.pools.iter().map(|(id, budget)| (id.clone(), *budget)).collect(),
            next_ticket: self.head.next_ticket,
            bookings: self.bookings.values().map(|entry| entry.record.clone()).collect(),
            waits: self.waits.values().map(|entry| entry.record.clone()).collect(),
        }
    }

    /// The book, with what is known of the memory as ceilings.
    pub(super) fn book(&self) -> Result<Book, EtcdError> {
        let damaged = |what| EtcdError::Damaged { key: "ledger".to_owned(), what };
        let mut book = Book::from_records(self.records()).map_err(|error| damaged(error.to_string()))?;
        for (pool, (free, measured_at)) in &self.free {
            let Some(used) = book.pool(pool.as_str()).map(|pool| pool.used) else { continue };
            let before = used.saturating_sub(self.booked_since(pool, *measured_at));
            book.set_ceiling(pool, before.saturating_add(*free), "others");
        }
        for pool in self.pools.pools.keys() {
            let Some(node) = self.drained.iter().find(|node| is_on(pool, node)) else { continue };
            let used = book.pool(pool.as_str()).map_or(Bytes::ZERO, |pool| pool.used);
            book.set_ceiling(pool, used, &format!("nobody while '{node}' is drained"));
        }
        Ok(book)
    }

    /// What was booked of a pool since a revision and was not seen in use: a measurement of then does not know of it.
    fn booked_since(&self, pool: &PoolId, revision: i64) -> Bytes {
        let later = self.bookings.values().filter(|entry| entry.revision > revision);
        let shares = later.flat_map(|entry| &entry.record.shares).filter(|share| share.pool == *pool);
        Bytes::saturating_sum(
            shares.map(|share| share.booked.saturating_sub(share.measured.unwrap_or(Bytes::ZERO))),
        )
    }
}

/// Whether a pool of the ledger is one of this node's.
fn is_on(pool: &PoolId, node: &str) -> bool {
    pool.as_str().strip_prefix(node).is_some_and(|rest| rest.starts_with(':'))
}

fn entry<T>(record: T, kv: &Kv) -> Entry<T> {
    Entry { record, revision: kv.mod_revision, lease: kv.lease }
}

fn named(key: &str, expected: &str, found: &str) -> Result<(), EtcdError> {
    if expected == found {
        return Ok(());
    }
    Err(EtcdError::Damaged { key: key.to_owned(), what: format!("it holds what belongs to '{found}'") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(writer: &str, change: u64) -> Mark {
        Mark { writer: writer.to_owned(), change }
    }

    #[test]
    fn a_head_tells_whether_a_change_was_made_however_many_came_after_it() {
        let base = Head::default().marked(&mark("a", 1));
        let made = base.marked(&mark("a", 2));
        assert_eq!(base.settles(&mark("a", 2), &base), Settled::NotMade);
        assert_eq!(made.settles(&mark("a", 2), &base), Settled::Made);
        let mut later = made.clone();
        for n in 0..1000 {
            later = later.marked(&mark("b", n));
        }
        assert_eq!(later.settles(&mark("a", 2), &base), Settled::Made);
        assert_eq!(later.settles(&mark("a", 3), &base), Settled::NotMade);
        // A newcomer that nobody knows has made nothing, until somebody was forgotten.
        assert_eq!(later.settles(&mark("c", 1), &base), Settled::NotMade);
        for n in 0..WRITERS {
            later = later.marked(&mark(&format!("w{n}"), 1));
        }
        assert_eq!(later.writers.len(), WRITERS);
        assert_eq!(later.settles(&mark("a", 2), &base), Settled::Unknown);
    }

    #[test]
    fn a_pool_is_on_a_node_by_its_whole_name() {
        let pool = PoolId::new("tower:CUDA0").unwrap();
        assert!(is_on(&pool, "tower"));
        assert!(!is_on(&pool, "tow"));
        assert!(!is_on(&pool, "tower:CUDA0"));
    }
}
