//! Looks at a machine again and again, and tells what changed.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use plimsoll_profile::SystemProfile;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use crate::damp::{Damper, Verdict};
use crate::describe_changes;
use crate::hot_plug::HotPlug;
use crate::look::{LookError, Probe, look};
use crate::subscription::{Announcer, Mailbox, ProfileChange, Subscription};
use crate::task::{OwnedTask, WatchThread};

/// Between two looks at least so much passes.
const SHORTEST: Duration = Duration::from_millis(1);

/// A probe gets at least so long to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// News of hardware come in bursts; a look begins so long after the first of them.
const BURST: Duration = Duration::from_millis(250);

/// Looks at a machine, remembers what it is, and tells subscribers what changed. Clones share all of it.
///
/// It looks when it is asked to ([`poll_once`](Self::poll_once)) or by itself
/// ([`start_background`](Self::start_background)). Subscribers and [`current_profile`](Self::current_profile) know the same
/// at all times.
#[derive(Clone)]
pub struct SystemProfileWatcher {
    shared: Arc<Shared>,
    interval: Duration,
    patience: Duration,
    hot_plug: bool,
}

struct Shared {
    probe: Probe,
    begun: Instant,
    // The look under way. Locked for as long as somebody waits for it.
    under_way: tokio::sync::Mutex<Option<JoinHandle<Result<SystemProfile, LookError>>>>,
    // Somebody wants a look soon.
    soon: Arc<Notify>,
    failures: Announcer<LookError>,
    /// The number of each look that was good.
    good: Announcer<u64>,
    state: Mutex<State>,
}

struct State {
    // What subscribers know.
    told: Arc<SystemProfile>,
    // What the last good look showed, where that is something else.
    held: Option<SystemProfile>,
    damper: Damper,
    mailboxes: Vec<Weak<Mailbox<ProfileChange>>>,
    looks: Looks,
}

/// How the looks went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// So many came back with a profile.
    pub good: u64,
    /// So many did not.
    pub failed: u64,
    /// So many of the last ones did not.
    pub failed_in_a_row: u64,
    /// So many showed a change that was not told yet, because changes came too fast.
    pub held: u64,
    /// Why the last one that failed did.
    pub last_failure: Option<LookError>,
}

impl fmt::Debug for SystemProfileWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemProfileWatcher")
            .field("interval", &self.interval)
            .field("looks", &self.looks())
            .finish_non_exhaustive()
    }
}

impl SystemProfileWatcher {
    /// Watches what this probe shows, and looks once before it returns. The probe may block: all later looks are made
    /// where blocking is allowed.
    ///
    /// # Errors
    ///
    /// The first look failed.
    pub fn with_probe(
        interval: Duration,
        probe: impl Fn() -> Result<SystemProfile, LookError> + Send + Sync + 'static,
    ) -> Result<Self, LookError> {
        let probe: Probe = Arc::new(probe);
        let first = look(&probe)?;
        Ok(Self::knowing(interval, probe, first))
    }

    /// Watches this machine, and looks once before it returns. On Linux it also looks when the kernel says that a device
    /// came or went.
    #[cfg(feature = "detect")]
    pub fn new(interval: Duration) -> Self {
        let first = SystemProfile::detect();
        Self::knowing(interval, Arc::new(|| Ok(SystemProfile::detect())), first).with_hot_plug()
    }

    fn knowing(interval: Duration, probe: Probe, first: SystemProfile) -> Self {
        let interval = interval.max(SHORTEST);
        let state = State {
            told: Arc::new(first),
            held: None,
            damper: Damper::default(),
            mailboxes: Vec::new(),
            looks: Looks { good: 1, ..Looks::default() },
        };
        let shared = Shared {
            probe,
            begun: Instant::now(),
            under_way: tokio::sync::Mutex::new(None),
            soon: Arc::new(Notify::new()),
            failures: Announcer::new(),
            good: Announcer::new(),
            state: Mutex::new(state),
        };
        Self { shared: Arc::new(shared), interval, patience: interval.max(PATIENCE), hot_plug: false }
    }

    /// The same, which in the background also looks when the kernel says that a device came or went. Only Linux says so;
    /// elsewhere it changes nothing.
    #[must_use]
    pub fn with_hot_plug(self) -> Self {
        Self { hot_plug: true, ..self }
    }

    /// The same, which waits so long for a probe to answer: else the longer of the interval and ten seconds.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// What the machine is, as far as subscribers know.
    pub fn current_profile(&self) -> Arc<SystemProfile> {
        Arc::clone(&self.shared.lock().told)
    }

    /// How the looks went.
    pub fn looks(&self) -> Looks {
        self.shared.lock().looks.clone()
    }

    /// What changed since `last`, without looking: descriptions, and then what the machine is now. Nothing when it is the
    /// same.
    pub fn check_for_changes(&self, last: &SystemProfile) -> Vec<ProfileChange> {
        changes(last, &self.current_profile())
    }

    /// Tells a new subscriber what the machine is now, and from then on every change.
    pub fn subscribe(&self) -> Subscription {
        let (subscription, mailbox) = Subscription::new();
        let mut state = self.shared.lock();
        // Nobody waits for it yet, so nobody has to be woken.
        drop(mailbox.push(ProfileChange::Updated(Arc::clone(&state.told))));
        state.mailboxes.retain(|known| known.strong_count() > 0);
        state.mailboxes.push(Arc::downgrade(&mailbox));
        subscription
    }

    /// Tells a new subscriber when looks begin to fail, and from then on when they do so for another reason.
    pub fn failures(&self) -> Subscription<LookError> {
        self.shared.failures.subscribe()
    }

    /// Tells a new subscriber of every look from now on that came back with a profile, as its number, also where nothing
    /// changed; what did was told before.
    pub fn good_looks(&self) -> Subscription<u64> {
        self.shared.good.subscribe()
    }

    /// Looks once, off the threads of the runtime, and tells what changed; true when there was something to tell.
    /// When it is dropped before it ends, the look goes on, and a next call that comes in time waits for that one.
    ///
    /// Changes that come too fast are held back: after three within ten intervals, the next one is told when it has stood
    /// for three, or after ten in any case.
    ///
    /// # Errors
    ///
    /// The look failed: what was known before still stands, and the failure was counted.
    ///
    /// # Panics
    ///
    /// We are on no runtime of tokio, or on one without time.
    pub async fn poll_once(&self) -> Result<bool, LookError> {
        let mut under_way = self.shared.under_way.lock().await;
        // Somebody gave up on one that has ended since: it is old.
        if under_way.as_ref().is_some_and(JoinHandle::is_finished) {
            *under_way = None;
        }
        let probe = &self.shared.probe;
        let handle = under_way.get_or_insert_with(|| {
            let probe = Arc::clone(probe);
            spawn_blocking(move || look(&probe))
        });
        let outcome = match timeout(self.patience, &mut *handle).await {
            // Kept: a probe that hangs is never asked twice at once.
            Err(_) => Err(LookError::NoAnswer { waited: self.patience }),
            Ok(joined) => {
                *under_way = None;
                joined.unwrap_or(Err(LookError::RuntimeEnded))
            }
        };
        drop(under_way);
        match outcome {
            Ok(profile) => Ok(self.shared.take_in(profile, self.interval)),
            Err(error) => {
                self.shared.count_failure(&error);
                Err(error)
            }
        }
    }

    /// Has whoever looks in the background look soon, without waiting for the interval to pass.
    pub fn look_soon(&self) {
        self.shared.soon.notify_one();
    }

    /// Looks once an interval for as long as the task lives, on the runtime that we are on.
    ///
    /// # Panics
    ///
    /// We are on no runtime of tokio, or on one without time.
    pub fn start_background(&self) -> OwnedTask {
        let watcher = self.clone();
        OwnedTask::spawn(async move { watcher.run().await })
    }

    /// Looks once an interval for as long as the thread lives, where there is no runtime.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn start_thread(&self) -> io::Result<WatchThread> {
        WatchThread::start(self)
    }

    async fn run(&self) {
        let soon = Arc::clone(&self.shared.soon);
        let _listens = self.hot_plug.then(|| HotPlug::listen(move || soon.notify_one()));
        loop {
            if timeout(self.interval, self.shared.soon.notified()).await.is_ok() {
                sleep(BURST).await;
            }
            // A failure was counted and logged; the next look may be better.
            match self.poll_once().await {
                Ok(_) | Err(_) => {}
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a look showed; true when it was told.
    fn take_in(&self, seen: SystemProfile, interval: Duration) -> bool {
        let now = self.begun.elapsed();
        let mut state = self.lock();
        state.looks.good = state.looks.good.saturating_add(1);
        state.looks.failed_in_a_row = 0;
        let differs = seen != *state.told;
        let as_before = match &state.held {
            Some(held) => seen == *held,
            None => !differs,
        };
        let verdict = state.damper.judge(now, interval, as_before, differs);
        let told = match verdict {
            Verdict::Same => {
                state.held = None;
                Vec::new()
            }
            Verdict::Hold => {
                tracing::debug!("hardware changes too fast: not told yet");
                state.looks.held = state.looks.held.saturating_add(1);
                state.held = Some(seen);
                Vec::new()
            }
            Verdict::Tell => {
                state.held = None;
                let told = changes(&state.told, &Arc::new(seen));
                if let Some(ProfileChange::Updated(profile)) = told.last() {
                    state.told = Arc::clone(profile);
                }
                told
            }
        };
        let woken = state.tell(&told);
        let number = state.looks.good;
        drop(state);
        // Outside the lock: a waker may run anything.
        woken.into_iter().for_each(Waker::wake);
        for change in &told {
            if let ProfileChange::HardwareChange { description } = change {
                tracing::info!("hardware changed: {description}");
            }
        }
        self.good.tell(&number);
        verdict == Verdict::Tell
    }

    fn count_failure(&self, error: &LookError) {
        let mut state = self.lock();
        let looks = &mut state.looks;
        looks.failed = looks.failed.saturating_add(1);
        looks.failed_in_a_row = looks.failed_in_a_row.saturating_add(1);
        let before = looks.last_failure.replace(error.clone());
        let first = looks.failed_in_a_row == 1;
        drop(state);
        if first || before.as_ref() != Some(error) {
            self.failures.tell(error);
        }
        if first {
            tracing::warn!("{error}: the last good profile stands");
        } else {
            tracing::debug!("{error}");
        }
    }
}

impl State {
    /// Puts this into every mailbox, and gives back who is to be woken.
    fn tell(&mut self, told: &[ProfileChange]) -> Vec<Waker> {
        let mut woken = Vec::new();
        self.mailboxes.retain(|mailbox| {
            let Some(mailbox) = mailbox.upgrade() else { return false };
            woken.extend(told.iter().filter_map(|change| mailbox.push(change.clone())));
            true
        });
        woken
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mailboxes = std::mem::take(&mut state.mailboxes);
        mailboxes
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|mailbox| mailbox.close())
            .for_each(Waker::wake);
    }
}

/// What is told of a machine that was `old` and is `new`.
fn changes(old: &SystemProfile, new: &Arc<SystemProfile>) -> Vec<ProfileChange> {
    if *old == **new {
        return Vec::new();
    }
    let described = describe_changes(old, new).into_iter();
    described
        .map(|description| ProfileChange::HardwareChange { description })
        .chain([ProfileChange::Updated(Arc::clone(new))])
        .collect()
}
