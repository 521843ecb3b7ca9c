//! What a subscriber is told, in its own time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use plimsoll_profile::SystemProfile;

/// What is told of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileChange {
    /// What the machine is from now on. It follows the descriptions of what changed.
    Updated(Arc<SystemProfile>),
    /// What came, went or changed, in words (`GPU 1 'RTX 4090' GPU-… gone`).
    HardwareChange {
        /// One change.
        description: String,
    },
}

/// So much waits for a subscriber that is slow.
const CAPACITY: usize = 64;

/// What one subscriber is told: first what the machine is now, then every change.
///
/// It has its own copy of everything. One that is slow loses what is oldest, never what is newest, and stays subscribed.
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    mailbox: Arc<Mailbox>,
}

/// What waits for one subscriber.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    letters: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    waiting: VecDeque<ProfileChange>,
    lost: u64,
    closed: bool,
    waker: Option<Waker>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Letters> {
        // Nothing is left half done under this lock.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds something, and gives back who is to be woken: outside of any lock, as it may run anything.
    pub(crate) fn push(&self, change: ProfileChange) -> Option<Waker> {
        let mut letters = self.lock();
        if letters.waiting.len() == CAPACITY {
            letters.waiting.pop_front();
            letters.lost = letters.lost.saturating_add(1);
        }
        letters.waiting.push_back(change);
        letters.waker.take()
    }

    /// Says that nothing more will come.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut letters = self.lock();
        letters.closed = true;
        letters.waker.take()
    }
}

impl Subscription {
    pub(crate) fn new() -> (Self, Arc<Mailbox>) {
        let mailbox = Arc::new(Mailbox::default());
        (Self { mailbox: Arc::clone(&mailbox) }, mailbox)
    }

    /// What is told next; `None` once the watcher and all that it started are gone. Giving up on it loses nothing.
    pub async fn next(&mut self) -> Option<ProfileChange> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Subscription::next`], by hand.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ProfileChange>> {
        // Cloned and dropped outside the lock: a waker may run anything.
        let waker = cx.waker().clone();
        let mut letters = self.mailbox.lock();
        let (next, old) = match letters.waiting.pop_front() {
            Some(change) => (Poll::Ready(Some(change)), None),
            None if letters.closed => (Poll::Ready(None), None),
            None => (Poll::Pending, letters.waker.replace(waker)),
        };
        drop(letters);
        drop(old);
        next
    }

    /// What waits already, without waiting.
    pub fn try_next(&mut self) -> Option<ProfileChange> {
        self.mailbox.lock().waiting.pop_front()
    }

    /// As [`Subscription::next`], on this thread and without a runtime.
    pub fn next_blocking(&mut self) -> Option<ProfileChange> {
        let waker = Waker::from(Arc::new(Sleeper(thread::current())));
        let mut next = pin!(self.next());
        loop {
            if let Poll::Ready(change) = next.as_mut().poll(&mut Context::from_waker(&waker)) {
                return change;
            }
            thread::park();
        }
    }

    /// How much was lost because it was not read in time.
    pub fn lost(&self) -> u64 {
        self.mailbox.lock().lost
    }
}

/// Wakes a thread that parked.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
