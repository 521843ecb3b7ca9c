//! A book as records, for stores that keep one elsewhere.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_units::{Bytes, PoolId};
use serde::{Deserialize, Serialize};

use crate::book::{Book, Booking, Measured, Share, Waiter};
use crate::{InferenceSpec, Owners, ProcessId, Request, Terms, Timestamp};

/// All that a book holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BookRecord {
    /// Pools and what each may hold; `None` is no limit.
    pub pools: Vec<(PoolId, Option<Bytes>)>,
    /// The number that the next wait gets.
    pub next_ticket: u64,
    /// Who holds what.
    pub bookings: Vec<BookingRecord>,
    /// Who waits.
    pub waits: Vec<WaitRecord>,
}

/// A booking as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BookingRecord {
    /// The running copy that holds it.
    pub instance: String,
    /// What it is and what it needs.
    pub spec: InferenceSpec,
    /// What it holds of which pool.
    pub shares: Vec<ShareRecord>,
    /// On what terms.
    terms: TermsRecord,
    /// Since when.
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    #[serde(default)]
    in_use: u32,
    /// The number with which it waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<u64>,
}

/// What a booking holds of one pool, as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareRecord {
    /// The pool.
    pub pool: PoolId,
    /// What was booked.
    pub booked: Bytes,
    /// What was last seen in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured_before: Option<Bytes>,
}

/// A place in the queue as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitRecord {
    /// Its number.
    pub ticket: u64,
    /// The running copy that it will be.
    pub instance: String,
    /// What it is and what it needs.
    pub spec: InferenceSpec,
    /// On what terms.
    terms: TermsRecord,
    /// Since when.
    pub since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_until: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TermsRecord {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    owners: Vec<ProcessId>,
    #[serde(default)]
    pinned: bool,
    #[serde(default)]
    priority: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

/// What one operation changed, for a store to keep: all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "what is not kept is lost"]
pub struct Changes {
    /// All pools, where any has changed.
    pub pools: Option<Vec<(PoolId, Option<Bytes>)>>,
    /// The number that the next wait gets, where it has changed.
    pub next_ticket: Option<u64>,
    /// By instance; `None` is no longer held.
    pub bookings: Vec<(String, Option<BookingRecord>)>,
    /// By number; `None` waits no more.
    pub waits: Vec<(u64, Option<WaitRecord>)>,
}

/// Records of which no book can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A booking of memory that is not there.
    #[error("'{instance}' holds memory of an unknown pool '{pool}'")]
    UnknownPool {
        /// Who.
        instance: String,
        /// Of what.
        pool: PoolId,
    },
    /// A wait for memory that is not there.
    #[error("'{instance}' waits for memory that is not there: {why}")]
    UnknownWait {
        /// Who.
        instance: String,
        /// For what.
        why: String,
    },
}

impl BookingRecord {
    /// The processes that it lives with; none when nobody owns it.
    pub fn owners(&self) -> &[ProcessId] {
        &self.terms.owners
    }
}

impl WaitRecord {
    /// The processes that it lives with; none when nobody owns it.
    pub fn owners(&self) -> &[ProcessId] {
        &self.terms.owners
    }
}

impl Changes {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Book {
    /// The book that these records describe.
    ///
    /// # Errors
    ///
    /// Records that name pools which are not among them.
    pub fn from_records(records: BookRecord) -> Result<Self, RecordError> {
        let mut book = Self::new(records.pools);
        book.start_tickets_at(records.next_ticket);
        for record in records.bookings {
            let booking = record.booking(&book)?;
            book.put(Box::new(booking));
        }
        for record in records.waits {
            let waiter = record.waiter(&book)?;
            book.insert_waiter(waiter);
        }
        book.keep_track();
        Ok(book)
    }

    /// Runs one operation on a book that was made of records, as every store does: whoever is dead or due at `now` is
    /// taken out before it, and whoever waits and fits is let in after it. What has changed since the records were read.
    pub fn turn(
        &mut self,
        owners: &dyn Owners,
        now: Timestamp,
        operation: &mut dyn FnMut(&mut Self),
    ) -> Changes {
        self.set_boot(owners.boot());
        self.reclaim(owners, now);
        self.expire_waits(now);
        operation(self);
        self.promote(now);
        let touched = self.touched();
        Changes {
            pools: touched.pools.then(|| self.pools().map(|pool| (pool.id, pool.budget)).collect()),
            next_ticket: touched.next_ticket.then(|| self.next_ticket_number()),
            bookings: touched
                .bookings
                .iter()
                .map(|instance| {
                    let record = self.get(instance).map(|booking| BookingRecord::of(self, booking));
                    (instance.to_string(), record)
                })
                .collect(),
            waits: touched
                .tickets
                .iter()
                .map(|ticket| (*ticket, self.waiter(*ticket).map(WaitRecord::of)))
                .collect(),
        }
    }
}

impl BookingRecord {
    fn of(book: &Book, booking: &Booking) -> Self {
        let share = |share: &Share| ShareRecord {
            pool: book.pool_id(share.pool).clone(),
            booked: share.booked,
            measured: share.measured.last,
            measured_before: share.measured.before,
        };
        Self {
            instance: booking.instance.to_string(),
            spec: booking.spec.clone(),
            shares: booking.shares.iter().map(share).collect(),
            terms: TermsRecord::of(&booking.terms),
            since: booking.since,
            lease_until: booking.lease_until,
            expires: booking.expires,
            boot: booking.boot.as_deref().map(str::to_owned),
            in_use: booking.in_use,
            ticket: booking.ticket,
        }
    }

    fn booking(self, book: &Book) -> Result<Booking, RecordError> {
        let share = |record: ShareRecord| match book.place(record.pool.as_str()) {
            Some(pool) => {
                let measured = Measured { last: record.measured, before: record.measured_before };
                Ok(Share { pool, booked: record.booked, measured })
            }
            None => Err(RecordError::UnknownPool { instance: self.instance.clone(), pool: record.pool }),
        };
        let shares = self.shares.into_iter().map(share).collect::<Result<_, RecordError>>()?;
        Ok(Booking {
            instance: self.instance.into(),
            spec: self.spec,
            shares,
            terms: self.terms.terms(),
            since: self.since,
            lease_until: self.lease_until,
            expires: self.expires,
            boot: self.boot.map(Arc::from),
            in_use: self.in_use,
            ticket: self.ticket,
        })
    }
}

impl WaitRecord {
    fn of(waiter: &Waiter) -> Self {
        Self {
            ticket: waiter.ticket,
            instance: waiter.request.instance.clone(),
            spec: waiter.request.spec.clone(),
            terms: TermsRecord::of(&waiter.request.terms),
            since: waiter.since,
            deadline: waiter.deadline,
            lease_until: waiter.lease_until,
        }
    }

    fn waiter(self, book: &Book) -> Result<Waiter, RecordError> {
        let unknown = |why| RecordError::UnknownWait { instance: self.instance.clone(), why };
        let shares = book.shares(&self.spec).map_err(|refusal| unknown(refusal.to_string()))?;
        let request = Request { instance: self.instance, spec: self.spec, terms: self.terms.terms() };
        Ok(Waiter {
            ticket: self.ticket,
            request,
            shares,
            since: self.since,
            deadline: self.deadline,
            lease_until: self.lease_until,
        })
    }
}

impl TermsRecord {
    fn of(terms: &Terms) -> Self {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            owners: terms.owners.clone(),
            pinned: terms.pinned,
            priority: terms.priority,
            lease_ms: terms.lease.map(millis),
            ttl_ms: terms.ttl.map(millis),
        }
    }

    fn terms(self) -> Terms {
        Terms {
            owners: self.owners,
            lease: self.lease_ms.map(Duration::from_millis),
            ttl: self.ttl_ms.map(Duration::from_millis),
            pinned: self.pinned,
            priority: self.priority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoOwners, footprint};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn pool() -> PoolId {
        PoolId::new("CUDA0").unwrap()
    }

    fn request(role: &str, bytes: u64) -> Request {
        Request::new(role, InferenceSpec::new(role, "vllm").with_pools([(pool(), Bytes::new(bytes))]))
    }

    fn empty() -> Book {
        Book::from_records(BookRecord {
            pools: vec![(pool(), Some(Bytes::new(10)))],
            ..BookRecord::default()
        })
        .unwrap()
    }

    #[test]
    fn a_book_comes_back_from_what_its_operations_changed() {
        let mut book = empty();
        let changes = book.turn(&NoOwners, at(1), &mut |book| {
            book.reserve(&request("a", 6), at(1)).unwrap();
            book.measure("a", &pool(), Bytes::new(7));
            book.enqueue(&request("b", 5), at(1), Some(at(9))).unwrap();
        });
        assert_eq!((changes.bookings.len(), changes.waits.len(), changes.next_ticket), (1, 1, Some(1)));
        assert_eq!(changes.pools, None);
        let records = BookRecord {
            pools: vec![(pool(), Some(Bytes::new(10)))],
            next_ticket: 1,
            bookings: changes.bookings.into_iter().filter_map(|(_, record)| through_text(record)).collect(),
            waits: changes.waits.into_iter().filter_map(|(_, record)| through_text(record)).collect(),
        };
        let mut again = Book::from_records(records).unwrap();
        assert_eq!(again.holders(), book.holders());
        assert_eq!(again.waiting().collect::<Vec<_>>(), book.waiting().collect::<Vec<_>>());
        // Whoever waits is let in by whatever makes room, and both are told.
        let changes = again.turn(&NoOwners, at(2), &mut |book| drop(book.release("a")));
        let told: Vec<_> =
            changes.bookings.iter().map(|(instance, record)| (instance.as_str(), record.is_some())).collect();
        assert_eq!(told, [("a", false), ("b", true)]);
        assert_eq!(changes.waits, [(0, None)]);
        assert_eq!(again.get("b").map(|b| footprint(b.spec())), Some(Bytes::new(5)));
    }

    fn through_text<T: Serialize + serde::de::DeserializeOwned>(record: Option<T>) -> Option<T> {
        record.map(|record| serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap())
    }

    #[test]
    fn looking_changes_nothing() {
        assert!(empty().turn(&NoOwners, at(1), &mut |_| {}).is_empty());
    }

    #[test]
    fn a_ceiling_is_obeyed_and_named_and_never_written_down() {
        let mut book = empty();
        let changes = book.turn(&NoOwners, at(1), &mut |book| {
            book.reserve(&request("a", 2), at(1)).unwrap();
            assert!(book.set_ceiling(&pool(), Bytes::new(6), "others"));
            assert_eq!(book.room("CUDA0"), Some(Bytes::new(4)));
            let refusal = book.reserve(&request("b", 5), at(1)).unwrap_err().to_string();
            assert!(refusal.contains("only 0.0 GB") && refusal.contains("others"), "{refusal}");
            // Its own memory is not in its way.
            assert!(book.reserve(&request("a", 6), at(1)).unwrap());
        });
        assert_eq!(changes.pools, None);
        assert_eq!(book.pool("CUDA0").unwrap().budget, Some(Bytes::new(10)));
    }

    #[test]
    fn records_of_an_unknown_pool_make_no_book() {
        let mut book = empty();
        let changes = book.turn(&NoOwners, at(1), &mut |book| {
            book.reserve(&request("a", 6), at(1)).unwrap();
        });
        let bookings = changes.bookings.into_iter().filter_map(|(_, record)| record).collect();
        let error = Book::from_records(BookRecord { bookings, ..BookRecord::default() }).unwrap_err();
        assert_eq!(error.to_string(), "'a' holds memory of an unknown pool 'CUDA0'");
    }
}
