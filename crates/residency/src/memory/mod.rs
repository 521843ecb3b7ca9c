//! The ledger in memory.

mod guard;
mod wait;

use std::collections::BTreeMap;
use std::fmt;
use std::task::Waker;

use plimsoll_units::{Bytes, PoolId};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::advise::{Advice, Eviction, NoAdvice, eviction_advice};
use crate::refusal::UNIFIED_MEMORY;
use crate::{
    Book, Booking, CoResidency, InferenceSpec, NoOwners, Owners, PoolUse, Request, Store, StoreError,
    Timestamp,
};

pub use guard::{InUse, Reservation};
pub use wait::Waiting;

/// Who holds how much, in the memory of this process. Clones share one book.
///
/// The clock is the caller's: calls that take no moment use the latest one that was told.
#[derive(Clone)]
pub struct ResidencyLedger {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Mutex<Inner>,
    owners: std::sync::Arc<dyn Owners>,
}

#[derive(Default)]
struct Inner {
    book: Book,
    // The latest moment that was told.
    clock: Timestamp,
    // By ticket, of those who wait.
    wakers: BTreeMap<u64, Waker>,
}

impl fmt::Debug for ResidencyLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResidencyLedger").field("pools", &self.pools()).finish_non_exhaustive()
    }
}

impl ResidencyLedger {
    /// A ledger over a single memory; with `None` it has no limit and only exclusions are checked.
    pub fn new(budget: Option<Bytes>) -> Self {
        let pool = PoolId::new(UNIFIED_MEMORY).expect("the name has no white space");
        Self::with_pools([(pool, budget)])
    }

    /// A ledger over these pools; `None` is a pool without a limit.
    pub fn with_pools(pools: impl IntoIterator<Item = (PoolId, Option<Bytes>)>) -> Self {
        Self::with_owners(pools, std::sync::Arc::new(NoOwners))
    }

    /// A ledger over these pools that asks about the owners of bookings.
    pub fn with_owners(
        pools: impl IntoIterator<Item = (PoolId, Option<Bytes>)>,
        owners: std::sync::Arc<dyn Owners>,
    ) -> Self {
        let mut book = Book::new(pools);
        book.set_boot(owners.boot());
        let inner = Inner { book, ..Inner::default() };
        Self { shared: Arc::new(Shared { inner: Mutex::new(inner), owners }) }
    }

    /// Books what this model needs, for this running copy of it. True when it was reserved or resized; false when the
    /// instance held the same spec already.
    ///
    /// # Errors
    ///
    /// It does not fit or may not: then nothing is reserved, and what the instance held before still stands.
    pub fn reserve(&self, instance: &str, spec: &InferenceSpec) -> Result<bool, CoResidency> {
        // Made before the lock is taken, and dropped after it is given back: the lock is held for as short as can be.
        let booking = Booking::drafted(Request::new(instance, spec.clone()));
        self.run(None, |book, now| book.reserve_drafted(booking, now))
    }

    /// Ends what this instance holds; false when it held nothing.
    pub fn release(&self, instance: &str) -> bool {
        self.run(None, |book, _| book.take(instance)).is_some()
    }

    /// What is held, over all pools.
    pub fn used(&self) -> Bytes {
        Bytes::saturating_sum(self.pools().iter().map(|pool| pool.used))
    }

    /// What may be held, over all pools; `None` when one of them has no limit.
    pub fn budget(&self) -> Option<Bytes> {
        self.pools()
            .iter()
            .map(|pool| pool.budget)
            .try_fold(Bytes::ZERO, |sum, budget| Some(sum.saturating_add(budget?)))
    }

    /// Roles and bytes, in the order of their instances.
    pub fn snapshot(&self) -> Vec<(String, Bytes)> {
        self.look(|book| book.bookings().map(|held| (held.role().to_owned(), held.bytes())).collect())
    }

    /// How full every pool is, in the order of ids.
    pub fn pools(&self) -> Vec<PoolUse> {
        self.look(|book| book.pools().collect())
    }

    /// Changes the budget of the only pool, or of the unnamed one; how full it is then. Nobody is thrown out: when more
    /// is held than it allows, the pool's [`PoolUse::excess`] says so.
    pub fn set_budget(&self, budget: Option<Bytes>) -> Option<PoolUse> {
        self.run(None, |book, _| {
            let pool = book.unnamed_pool()?;
            Some(book.set_budget(&pool, budget))
        })
    }

    /// The cheapest bookings to end so that this request fits; none when it fits already. Nothing is changed.
    ///
    /// # Errors
    ///
    /// Nothing that may be evicted would do.
    pub fn eviction_advice(
        &self,
        request: &Request,
        policy: &Eviction,
        now: Timestamp,
    ) -> Result<Advice, NoAdvice> {
        self.run(Some(now), |book, now| eviction_advice(book, request, policy, now))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The book is never left half changed, so a panic elsewhere under this lock does not matter.
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<R>(&self, look: impl FnOnce(&Book) -> R) -> R {
        look(&self.lock().book)
    }

    /// Runs one operation, and wakes those whose wait ended with it. Without a moment, it is the latest one told.
    fn run<R>(&self, now: Option<Timestamp>, operation: impl FnOnce(&mut Book, Timestamp) -> R) -> R {
        let mut inner = self.lock();
        if let Some(now) = now {
            inner.clock = inner.clock.max(now);
        }
        let now = inner.clock;
        inner.book.reclaim(&*self.shared.owners, now);
        inner.book.expire_waits(now);
        let given = operation(&mut inner.book, now);
        inner.book.promote(now);
        let woken = if inner.wakers.is_empty() { Vec::new() } else { inner.take_settled() };
        drop(inner);
        // Outside the lock: a waker may run anything.
        woken.into_iter().for_each(Waker::wake);
        given
    }
}

impl Inner {
    fn take_settled(&mut self) -> Vec<Waker> {
        let Self { book, wakers, .. } = self;
        wakers.extract_if(.., |ticket, _| !book.is_waiting(*ticket)).map(|(_, waker)| waker).collect()
    }
}

impl Store for ResidencyLedger {
    fn transact(&self, now: Timestamp, operation: &mut dyn FnMut(&mut Book)) -> Result<(), StoreError> {
        self.run(Some(now), |book, _| operation(book));
        Ok(())
    }

    fn view(&self, look: &mut dyn FnMut(&Book)) -> Result<(), StoreError> {
        self.look(look);
        Ok(())
    }
}
