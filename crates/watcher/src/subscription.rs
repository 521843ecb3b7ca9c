//! What a subscriber is told, in its own time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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

/// What one subscriber is told; of a machine that is first what it is now, then every change.
///
/// It has its own copy of everything. One that is slow loses what is oldest, never what is newest, and stays subscribed.
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Subscription<T = ProfileChange> {
    mailbox: Arc<Mailbox<T>>,
}

/// What waits for one subscriber.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    letters: Mutex<Letters<T>>,
}

#[derive(Debug)]
struct Letters<T> {
    waiting: VecDeque<T>,
    lost: u64,
    closed: bool,
    waker: Option<Waker>,
}

impl<T> Mailbox<T> {
    fn lock(&self) -> MutexGuard<'_, Letters<T>> {
        // Nothing is left half done under this lock.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds something, and gives back who is to be woken: outside of any lock, as it may run anything.
    pub(crate) fn push(&self, change: T) -> Option<Waker> {
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

impl<T> Subscription<T> {
    pub(crate) fn new() -> (Self, Arc<Mailbox<T>>) {
        let letters = Letters { waiting: VecDeque::new(), lost: 0, closed: false, waker: None };
        let mailbox = Arc::new(Mailbox { letters: Mutex::new(letters) });
        (Self { mailbox: Arc::clone(&mailbox) }, mailbox)
    }

    /// What is told next; `None` once the watcher and all that it started are gone. Giving up on it loses nothing.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Subscription::next`], by hand.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
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
    pub fn try_next(&mut self) -> Option<T> {
        self.mailbox.lock().waiting.pop_front()
    }

    /// As [`Subscription::next`], on this thread and without a runtime.
    pub fn next_blocking(&mut self) -> Option<T> {
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

/// Tells any number of subscribers the same, each in its own time; when it is dropped they have heard all.
#[derive(Debug)]
pub struct Announcer<T> {
    mailboxes: Mutex<Vec<Weak<Mailbox<T>>>>,
}

impl<T> Default for Announcer<T> {
    fn default() -> Self {
        Self { mailboxes: Mutex::new(Vec::new()) }
    }
}

impl<T: Clone> Announcer<T> {
    /// Nobody listens yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells a new subscriber all from now on.
    pub fn subscribe(&self) -> Subscription<T> {
        let (subscription, mailbox) = Subscription::new();
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        mailboxes.retain(|known| known.strong_count() > 0);
        mailboxes.push(Arc::downgrade(&mailbox));
        subscription
    }

    /// Tells this to everybody who listens.
    pub fn tell(&self, news: &T) {
        let listening: Vec<_> = {
            let mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
            mailboxes.iter().filter_map(Weak::upgrade).collect()
        };
        // Outside the lock: a waker may run anything.
        listening.iter().filter_map(|mailbox| mailbox.push(news.clone())).for_each(Waker::wake);
    }
}

impl<T> Drop for Announcer<T> {
    fn drop(&mut self) {
        let mailboxes = std::mem::take(self.mailboxes.get_mut().unwrap_or_else(PoisonError::into_inner));
        let listening = mailboxes.iter().filter_map(Weak::upgrade);
        listening.filter_map(|mailbox| mailbox.close()).for_each(Waker::wake);
    }
}

/// Wakes a thread that parked.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
