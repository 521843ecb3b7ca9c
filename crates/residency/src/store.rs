//! What every ledger can do, whatever keeps its book.

use plimsoll_units::{Bytes, PoolId};

use crate::advise::{Advice, Eviction, NoAdvice, eviction_advice};
use crate::book::{Book, Booking, Claim, PoolUse, Queued, WaitEnd};
use crate::explain::{Explanation, explain};
use crate::{CoResidency, InferenceSpec, ProcessId, Request, StoreError, Timestamp};

/// Why a ledger did not do what it was asked. Nothing changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It does not fit, or may not.
    #[error(transparent)]
    Refused(#[from] CoResidency),
    /// Nobody holds this.
    #[error("nothing is held by '{instance}'")]
    NotHeld {
        /// What was asked about.
        instance: String,
    },
    /// Its book could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A place in the queue.
#[derive(Clone, Debug)]
#[must_use = "who waits has to ask, and to cancel when it no longer wants to"]
pub struct Ticket {
    pub(crate) number: u64,
    pub(crate) request: Request,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) last: Option<CoResidency>,
}

impl Ticket {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The instance that it will be.
    pub fn instance(&self) -> &str {
        &self.request.instance
    }

    /// What stood in its way when it was last asked about.
    pub fn reason(&self) -> Option<&CoResidency> {
        self.last.as_ref()
    }
}

/// How things stand with a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It is booked now.
    Admitted,
    /// It still waits, because of this.
    Pending(CoResidency),
    /// It waits no more.
    Ended(WaitEnd),
}

/// What keeps a book, and so all that a ledger can do.
///
/// Two methods are a store's own. All others are the same for every store: they run one operation on the book in one
/// transaction, and every decision in it is [`admit`](crate::admit).
pub trait Store: std::fmt::Debug + Send + Sync {
    /// Runs one operation on the book and keeps what it changed, all of it or nothing. Before it, whoever is dead or
    /// due at `now` is taken out; after it, whoever waits and fits now is let in.
    ///
    /// A store that finds that another writer was first runs the operation again, on the book as it is then: only what
    /// the last run did counts.
    ///
    /// # Errors
    ///
    /// The book could not be read or written; then nothing changed.
    fn transact(&self, now: Timestamp, operation: &mut dyn FnMut(&mut Book)) -> Result<(), StoreError>;

    /// Shows the book as it is; whoever is dead but not yet taken out is still in it.
    ///
    /// # Errors
    ///
    /// The book could not be read.
    fn view(&self, look: &mut dyn FnMut(&Book)) -> Result<(), StoreError>;

    /// Books a request, or resizes what its instance holds. True when something changed; false when the instance held
    /// the same spec already.
    ///
    /// # Errors
    ///
    /// Refused: then nothing is reserved, and what stood before still stands.
    fn request(&self, request: &Request, now: Timestamp) -> Result<bool, LedgerError> {
        // Made before any lock is taken; only a store that runs it again makes another.
        let mut drafted = Some(Booking::drafted(request.clone()));
        Ok(transacted(self, now, |book| {
            let booking = drafted.take().unwrap_or_else(|| Booking::drafted(request.clone()));
            book.reserve_drafted(booking, now)
        })??)
    }

    /// Ends what this instance holds; false when it held nothing.
    ///
    /// # Errors
    ///
    /// The store's.
    fn release_instance(&self, instance: &str, now: Timestamp) -> Result<bool, StoreError> {
        transacted(self, now, |book| book.release(instance).is_some())
    }

    /// Ends what every instance of this role holds; the instances.
    ///
    /// # Errors
    ///
    /// The store's.
    fn release_role(&self, role: &str, now: Timestamp) -> Result<Vec<String>, StoreError> {
        transacted(self, now, |book| {
            let instances: Vec<String> = book.instances_of(role).map(str::to_owned).collect();
            for instance in &instances {
                book.release(instance);
            }
            instances
        })
    }

    /// Changes the spec of what this instance holds: its own bytes count as free. False when it is the same already.
    ///
    /// # Errors
    ///
    /// Not held, or refused: then the old booking stands.
    fn resize(&self, instance: &str, spec: &InferenceSpec, now: Timestamp) -> Result<bool, LedgerError> {
        transacted(self, now, |book| {
            if book.get(instance).is_none() {
                return Err(LedgerError::NotHeld { instance: instance.to_owned() });
            }
            Ok(book.reserve(&Request::new(instance, spec.clone()), now)?)
        })?
    }

    /// Renews the lease of what this instance holds.
    ///
    /// # Errors
    ///
    /// Not held: its lease ran out and somebody reclaimed it.
    fn heartbeat(&self, instance: &str, now: Timestamp) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.heartbeat(instance, now))?, instance)
    }

    /// Lets what this instance holds live as long as this process too.
    ///
    /// # Errors
    ///
    /// Not held.
    fn add_owner(&self, instance: &str, owner: &ProcessId, now: Timestamp) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.add_owner(instance, owner.clone()))?, instance)
    }

    /// Makes what this instance holds live as long as these processes, and no longer as long as its old owners; without
    /// any it belongs to nobody.
    ///
    /// # Errors
    ///
    /// Not held.
    fn hand_over(&self, instance: &str, owners: &[ProcessId], now: Timestamp) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.hand_over(instance, owners))?, instance)
    }

    /// Pins what this instance holds, so that it is never advised for eviction, or lets it go.
    ///
    /// # Errors
    ///
    /// Not held.
    fn set_pinned(&self, instance: &str, pinned: bool, now: Timestamp) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.set_pinned(instance, pinned))?, instance)
    }

    /// Changes what this instance costs to evict.
    ///
    /// # Errors
    ///
    /// Not held.
    fn set_priority(&self, instance: &str, priority: u32, now: Timestamp) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.set_priority(instance, priority))?, instance)
    }

    /// Counts a use that begins; while any is under way the instance is never advised for eviction.
    ///
    /// # Errors
    ///
    /// Not held.
    fn begin_use(&self, instance: &str, now: Timestamp) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.begin_use(instance))?, instance)
    }

    /// Counts a use that ended.
    ///
    /// # Errors
    ///
    /// Not held.
    fn end_use(&self, instance: &str, now: Timestamp) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.end_use(instance))?, instance)
    }

    /// Takes in what was measured in use by this instance in this pool.
    ///
    /// # Errors
    ///
    /// It holds nothing there.
    fn measure(
        &self,
        instance: &str,
        pool: &PoolId,
        bytes: Bytes,
        now: Timestamp,
    ) -> Result<(), LedgerError> {
        held(transacted(self, now, |book| book.measure(instance, pool, bytes))?, instance)
    }

    /// Gives a pool another budget, or makes a new pool; how full it is then. Nobody is thrown out.
    ///
    /// # Errors
    ///
    /// The store's.
    fn set_budget(
        &self,
        pool: &PoolId,
        budget: Option<Bytes>,
        now: Timestamp,
    ) -> Result<PoolUse, StoreError> {
        transacted(self, now, |book| book.set_budget(pool, budget))
    }

    /// Gives a ledger that has no pool yet these ones, and leaves one that has any as it is; how full its pools are.
    ///
    /// # Errors
    ///
    /// The store's.
    fn init_pools(
        &self,
        pools: &[(PoolId, Option<Bytes>)],
        now: Timestamp,
    ) -> Result<Vec<PoolUse>, StoreError> {
        transacted(self, now, |book| {
            if book.pools().len() == 0 {
                for (pool, budget) in pools {
                    book.set_budget(pool, *budget);
                }
            }
            book.pools().collect()
        })
    }

    /// Takes out whoever is dead or due, and lets in whoever waits and fits.
    ///
    /// # Errors
    ///
    /// The store's.
    fn sweep(&self, now: Timestamp) -> Result<(), StoreError> {
        transacted(self, now, |_| ())
    }

    /// Every booking, in the order of instances.
    ///
    /// # Errors
    ///
    /// The store's.
    fn list(&self) -> Result<Vec<Booking>, StoreError> {
        viewed(self, |book| book.bookings().cloned().collect())
    }

    /// A copy of the whole book at one moment: pools, bookings, queue.
    ///
    /// # Errors
    ///
    /// The store's.
    fn book(&self) -> Result<Book, StoreError> {
        viewed(self, Book::clone)
    }

    /// The cheapest bookings to end so that this request fits; none when it fits already. Nothing is changed.
    ///
    /// # Errors
    ///
    /// Nothing that may be evicted would do, or the store's.
    fn advise(
        &self,
        request: &Request,
        policy: &Eviction,
        now: Timestamp,
    ) -> Result<Result<Advice, NoAdvice>, StoreError> {
        transacted(self, now, |book| eviction_advice(book, request, policy, now))
    }

    /// All that stands in the way of this request, with each holder. Nothing is changed.
    ///
    /// # Errors
    ///
    /// The store's.
    fn explain(
        &self,
        request: &Request,
        policy: &Eviction,
        now: Timestamp,
    ) -> Result<Explanation, StoreError> {
        transacted(self, now, |book| explain(book, request, policy, now))
    }

    /// Takes a place in the queue: first come, first served within a priority, and nobody overtakes another that waits
    /// for the same memory. Ask with [`Store::poll_wait`]; it may be admitted already.
    ///
    /// A request with owners leaves the queue when they die; one without waits until it is cancelled or its deadline
    /// comes.
    ///
    /// # Errors
    ///
    /// It can never be admitted, or its instance is held or waits already; or the store's.
    fn enqueue(
        &self,
        request: &Request,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Ticket, LedgerError> {
        let number = transacted(self, now, |book| book.enqueue(request, now, deadline))??;
        let mut ticket = Ticket { number, request: request.clone(), deadline, last: None };
        viewed(self, |book| {
            if let Claim::Pending(why) = book.claim(number, &request.instance) {
                ticket.last = Some(why);
            }
        })?;
        Ok(ticket)
    }

    /// How things stand with a place in the queue. Who asks is there: its lease is renewed.
    ///
    /// # Errors
    ///
    /// The store's; the place is kept then.
    fn poll_wait(&self, ticket: &mut Ticket, now: Timestamp) -> Result<Wait, StoreError> {
        transacted(self, now, |book| {
            book.renew_wait(ticket.number, now);
            ticket.look(book, now)
        })
    }

    /// Gives up a place in the queue, and what was booked for it if it was admitted meanwhile.
    ///
    /// # Errors
    ///
    /// The store's.
    fn cancel(&self, ticket: &Ticket, now: Timestamp) -> Result<(), StoreError> {
        transacted(self, now, |book| {
            book.cancel(ticket.number, &ticket.request.instance);
        })
    }

    /// Everyone who waits, the next one first.
    ///
    /// # Errors
    ///
    /// The store's.
    fn waiting(&self) -> Result<Vec<Queued>, StoreError> {
        viewed(self, |book| book.waiting().collect())
    }
}

impl Ticket {
    /// How things stand with it in this book.
    pub(crate) fn look(&mut self, book: &Book, now: Timestamp) -> Wait {
        match book.claim(self.number, &self.request.instance) {
            Claim::Admitted => Wait::Admitted,
            Claim::Pending(why) => {
                self.last = Some(why.clone());
                Wait::Pending(why)
            }
            Claim::Gone => Wait::Ended(self.end(book, now)),
        }
    }

    fn end(&self, book: &Book, now: Timestamp) -> WaitEnd {
        if let (Some(deadline), Some(last)) = (self.deadline, &self.last)
            && deadline <= now
        {
            return WaitEnd::TimedOut(last.clone());
        }
        match book.never(&self.request) {
            Some(refusal) => WaitEnd::Refused(refusal),
            None => WaitEnd::Gone { ticket: self.number },
        }
    }
}

fn held(found: bool, instance: &str) -> Result<(), LedgerError> {
    if found { Ok(()) } else { Err(LedgerError::NotHeld { instance: instance.to_owned() }) }
}

/// Runs an operation that gives something back.
fn transacted<S: Store + ?Sized, R>(
    store: &S,
    now: Timestamp,
    mut operation: impl FnMut(&mut Book) -> R,
) -> Result<R, StoreError> {
    let mut given = None;
    store.transact(now, &mut |book| given = Some(operation(book)))?;
    Ok(given.expect("a store that does not fail has run the operation"))
}

fn viewed<S: Store + ?Sized, R>(store: &S, look: impl FnOnce(&Book) -> R) -> Result<R, StoreError> {
    let mut look = Some(look);
    let mut given = None;
    store.view(&mut |book| given = look.take().map(|look| look(book)))?;
    Ok(given.expect("a store that does not fail has shown the book"))
}
