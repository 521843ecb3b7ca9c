//! Who holds how much, for all machines of a cluster.

mod listing;
mod turn;

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_residency::{Book, Changes, Owners, ProcessId, Standing, Store, StoreError, Timestamp};
use tokio::time::Instant;

use crate::connection::{Committed, Listing};
use crate::writes::Kv;
use crate::{Cluster, EtcdError, Session};
use listing::{Listed, Mark};
use turn::{Lease, Turn};

/// How often an operation is tried when others are first.
const ATTEMPTS: u32 = 64;

/// How many of those may fail because a lease ended meanwhile.
const LEASES: u32 = 8;

/// Who holds how much, for all machines of a cluster.
///
/// Every operation reads the book at one revision of the store, decides as every ledger does, and writes what has
/// changed in one transaction that is made only if nobody wrote meanwhile; else it begins anew. Pools are named
/// [`node:pool`](crate::ledger_pool).
///
/// What processes own lives on the lease of the session that booked it, and ends with it whoever is left to notice. What
/// may be booked of a pool is the least of what its budget leaves and what was measured to be free, less what was booked
/// since then: a process that goes on after its lease was lost still counts.
///
/// [`Store::view`] and what is built on it show what a majority agrees on, or fail; [`EtcdLedger::last_seen`] shows what
/// was seen last, and how old that is.
pub struct EtcdLedger {
    cluster: Cluster,
    session: Option<Arc<Session>>,
    owners: Arc<dyn Owners>,
    // One change at a time, each with a number of its own.
    writer: Mutex<Mark>,
    seen: Mutex<Option<Seen>>,
}

struct Seen {
    at: Instant,
    revision: i64,
    book: Book,
}

/// A book as it was seen.
#[derive(Clone, Debug)]
pub struct Dated {
    /// The book.
    pub book: Book,
    /// The revision of the store at which it was so.
    pub revision: i64,
    /// How long ago that was the latest.
    pub age: Duration,
}

impl fmt::Debug for EtcdLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLedger").field("url", self.cluster.url()).finish_non_exhaustive()
    }
}

/// Owners for a ledger of many machines: what is nobody's does not end because another machine runs another boot, and
/// processes of other machines live as long as their leases.
#[derive(Debug)]
pub struct ManyMachines<O>(pub O);

impl<O: Owners> Owners for ManyMachines<O> {
    fn boot(&self) -> Option<&str> {
        None
    }

    fn standing(&self, process: &ProcessId) -> Standing {
        self.0.standing(process)
    }
}

impl EtcdLedger {
    pub(crate) fn new(cluster: Cluster, session: Option<Arc<Session>>, owners: Arc<dyn Owners>) -> Self {
        let writer = Mark { writer: random(), change: 0 };
        Self { cluster, session, owners, writer: Mutex::new(writer), seen: Mutex::new(None) }
    }

    /// The book as it was last seen, by whatever operation, and how old that is; `None` when nothing was seen yet. Asks
    /// nobody.
    pub fn last_seen(&self) -> Option<Dated> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.as_ref()?;
        Some(Dated { book: seen.book.clone(), revision: seen.revision, age: seen.at.elapsed() })
    }

    /// The book as a majority has it; where none answers, as it was last seen, with its age and why.
    ///
    /// # Errors
    ///
    /// Nobody answers and nothing was seen before, or what stands there cannot be read.
    pub fn look(&self) -> Result<(Dated, Option<EtcdError>), EtcdError> {
        match self.read() {
            Ok((_, listed)) => {
                let revision = listed.revision;
                let book = listed.book()?;
                self.note(Instant::now(), revision, &book);
                Ok((Dated { book, revision, age: Duration::ZERO }, None))
            }
            Err(error @ (EtcdError::Unavailable { .. } | EtcdError::Unknown { .. })) => {
                match self.last_seen() {
                    Some(dated) => Ok((dated, Some(error))),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn note(&self, at: Instant, revision: i64, book: &Book) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref().is_none_or(|seen| seen.revision <= revision) {
            *seen = Some(Seen { at, revision, book: book.clone() });
        }
    }

    fn read(&self) -> Result<(Instant, Listed), EtcdError> {
        let keys = &self.cluster.shared.keys;
        let prefixes = [keys.ledger(), keys.metrics(), keys.drained()];
        let asked = Instant::now();
        let listing: Listing = self
            .cluster
            .shared
            .run(|connection| async move { connection.list("reading the ledger", &prefixes).await })?;
        Ok((asked, Listed::of(keys, listing)?))
    }

    /// Runs one operation, again and again until nobody else was first.
    fn operate(&self, now: Timestamp, operation: &mut dyn FnMut(&mut Book)) -> Result<(), EtcdError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut leases_over = 0;
        for _ in 0..ATTEMPTS {
            let (asked, listed) = self.read()?;
            let mut turn = Turn::begin(listed)?;
            let changes = turn.run(&*self.owners, now, operation);
            if changes.is_empty() {
                self.note(asked, turn.revision(), turn.book());
                return Ok(());
            }
            writer.change += 1;
            match self.write(&turn, &changes, &writer) {
                Ok(Committed::Yes { revision }) => {
                    self.note(asked, revision, turn.book());
                    return Ok(());
                }
                Ok(Committed::Outrun) => {}
                // One that ended since we read: what lived on it is gone by the next look, unless it is our own.
                Err(EtcdError::LeaseOver { .. }) if self.lease() != Lease::Lost && leases_over < LEASES => {
                    leases_over += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Err(EtcdError::Contended { what: "the ledger", attempts: ATTEMPTS })
    }

    fn write(&self, turn: &Turn, changes: &Changes, mark: &Mark) -> Result<Committed, EtcdError> {
        let keys = &self.cluster.shared.keys;
        let writes = turn.writes(keys, changes, self.lease(), mark)?;
        let (witness, mark, base) = (keys.head(), mark.clone(), turn.base().clone());
        self.cluster.shared.run(|connection| async move {
            let settled = |head: Option<&Kv>| listing::settled(head, &mark, &base);
            connection.commit("a change of the ledger", &writes, &witness, settled).await
        })
    }

    fn lease(&self) -> Lease {
        match &self.session {
            None => Lease::None,
            Some(session) if session.lost().is_some() => Lease::Lost,
            Some(session) => Lease::Id(session.lease()),
        }
    }

    fn told(&self, error: EtcdError) -> StoreError {
        StoreError::Remote { place: self.cluster.url().to_string(), source: error.into() }
    }
}

impl Store for EtcdLedger {
    fn transact(&self, now: Timestamp, operation: &mut dyn FnMut(&mut Book)) -> Result<(), StoreError> {
        self.operate(now, operation).map_err(|error| self.told(error))
    }

    fn view(&self, look: &mut dyn FnMut(&Book)) -> Result<(), StoreError> {
        let seen = self.read().and_then(|(asked, listed)| {
            let revision = listed.revision;
            let book = listed.book()?;
            self.note(asked, revision, &book);
            Ok(book)
        });
        look(&seen.map_err(|error| self.told(error))?);
        Ok(())
    }
}

/// What no two writers share.
fn random() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}
