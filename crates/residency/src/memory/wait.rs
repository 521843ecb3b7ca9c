//! Waiting for memory, with or without a runtime.

use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::super::sync::{Condvar, Mutex, PoisonError};
use super::{Reservation, ResidencyLedger};
use crate::store::{Ticket, Wait};
use crate::{CoResidency, Request, Timestamp, WaitEnd};

/// A request that waits for its turn. Polling it needs no runtime; dropping it gives up its place, and what was booked
/// for it if it was admitted meanwhile.
///
/// It knows no clock: its deadline comes when the ledger is told a moment at or after it, by any call that takes one.
#[derive(Debug)]
#[must_use = "a wait does nothing unless it is polled, and ends when it is dropped"]
pub struct Waiting {
    ledger: ResidencyLedger,
    ticket: Ticket,
    done: bool,
}

impl ResidencyLedger {
    /// Queues a request: first come, first served within a priority, and nobody overtakes another that waits for the
    /// same memory.
    ///
    /// # Errors
    ///
    /// It can never be admitted, or its instance is held or waits already.
    pub fn reserve_wait(
        &self,
        request: &Request,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Waiting, CoResidency> {
        let number = self.run(Some(now), |book, now| book.enqueue(request, now, deadline))?;
        let ticket = Ticket { number, request: request.clone(), deadline, last: None };
        let mut waiting = Waiting { ledger: self.clone(), ticket, done: false };
        waiting.look();
        Ok(waiting)
    }
}

impl Waiting {
    /// What stood in its way when it was last looked at; `None` when nothing did.
    pub fn reason(&self) -> Option<&CoResidency> {
        self.ticket.reason()
    }

    /// Waits on this thread, for at most so long; `None` waits for as long as it takes.
    ///
    /// # Errors
    ///
    /// Its time was up, or it can no longer be admitted.
    pub fn block(mut self, at_most: Option<Duration>) -> Result<Reservation, WaitEnd> {
        let bell = std::sync::Arc::new(Bell { rung: Mutex::new(false), ring: Condvar::new() });
        let waker = Waker::from(std::sync::Arc::clone(&bell));
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut self).poll(&mut Context::from_waker(&waker)) {
                return ended;
            }
            if !bell.wait(at_most) {
                // Admitted at the last moment is admitted.
                return match self.look() {
                    Wait::Pending(why) => Err(WaitEnd::TimedOut(why)),
                    wait => self.settled(wait),
                };
            }
        }
    }

    fn look(&mut self) -> Wait {
        let inner = self.ledger.lock();
        self.ticket.look(&inner.book, inner.clock)
    }

    fn settled(&mut self, wait: Wait) -> Result<Reservation, WaitEnd> {
        self.done = true;
        match wait {
            Wait::Admitted => Ok(Reservation::of(&self.ledger, self.ticket.instance(), self.ticket.number)),
            Wait::Pending(why) => Err(WaitEnd::TimedOut(why)),
            Wait::Ended(end) => Err(end),
        }
    }
}

impl Future for Waiting {
    type Output = Result<Reservation, WaitEnd>;

    /// The booking, or why there will be none. Polled again after that, it says that its ticket waits no more.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.done {
            return Poll::Ready(Err(WaitEnd::Gone { ticket: self.ticket.number }));
        }
        // Wakers are cloned and dropped outside the lock: they may run anything.
        let waker = cx.waker().clone();
        let this = &mut *self;
        let mut inner = this.ledger.lock();
        let wait = this.ticket.look(&inner.book, inner.clock);
        let old = match &wait {
            Wait::Pending(_) => inner.wakers.insert(this.ticket.number, waker),
            _ => inner.wakers.remove(&this.ticket.number),
        };
        drop(inner);
        drop(old);
        match wait {
            Wait::Pending(_) => Poll::Pending,
            wait => Poll::Ready(this.settled(wait)),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let old = self.ledger.lock().wakers.remove(&self.ticket.number);
        drop(old);
        self.ledger.run(None, |book, _| book.cancel(self.ticket.number, self.ticket.instance()));
    }
}

/// Wakes a thread.
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    /// Whether it rang within that time.
    fn wait(&self, at_most: Option<Duration>) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rung = match at_most {
            None => self.ring.wait_while(rung, |rung| !*rung).unwrap_or_else(PoisonError::into_inner),
            Some(at_most) => {
                self.ring
                    .wait_timeout_while(rung, at_most, |rung| !*rung)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        std::mem::take(&mut *rung)
    }
}

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ring.notify_one();
    }
}
