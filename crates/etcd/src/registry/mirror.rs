//! A copy of who is there that follows every change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_cluster::{ClusterEvent, ClusterSnapshot, ClusterState, Moment};
use plimsoll_units::NodeId;
use plimsoll_watcher::{Announcer, OwnedTask, Subscription};
use tokio::time::{Instant, sleep, sleep_until};

use super::merge::{Merge, Merged};
use super::{Basis, prefixes};
use crate::EtcdError;
use crate::cluster::Shared;
use crate::connection::{Connection, Listing};
use crate::feed::{Change, Feed, FeedEnd};
use crate::keys::Keys;

/// How often a quiet registry is asked whether it is still the latest.
const ASK: Duration = Duration::from_secs(1);

/// The pause before a feed that broke is opened anew.
const PAUSE: Duration = Duration::from_millis(100);

/// What happened to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryEvent {
    /// To its machines.
    Cluster(ClusterEvent),
    /// The ledger has changed.
    Ledger,
    /// Another plan is in force, or none.
    Plan,
    /// Something stands there that cannot be used.
    Problem {
        /// What.
        what: String,
    },
    /// No majority answers: what is known grows old.
    Silent {
        /// What the last attempt met.
        reason: String,
    },
    /// A majority answers again, and nothing was missed.
    Heard,
}

impl fmt::Display for RegistryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(event) => event.fmt(f),
            Self::Ledger => f.write_str("the ledger has changed"),
            Self::Plan => f.write_str("the plan in force has changed"),
            Self::Problem { what } => f.write_str(what),
            Self::Silent { reason } => write!(f, "no majority of etcd answers ({reason})"),
            Self::Heard => f.write_str("etcd answers again"),
        }
    }
}

/// A copy of who is there that follows every change, until it is dropped.
///
/// Whether a machine lives is told by its lease alone: nobody has to sweep the state.
#[derive(Debug)]
#[must_use = "dropping it ends what follows the registry"]
pub struct Mirror {
    copy: Arc<Copy>,
    _task: OwnedTask,
    _shared: Arc<Shared>,
}

#[derive(Debug)]
struct Copy {
    state: Arc<ClusterState>,
    told: Announcer<RegistryEvent>,
    start: Instant,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    merge: Merge,
    /// When what is known was certainly the latest.
    latest: Instant,
    /// Why nobody answers, while that is so.
    silent: Option<String>,
}

impl Mirror {
    pub(super) fn begin(shared: &Arc<Shared>, grace: Duration) -> Result<Self, EtcdError> {
        let keys = shared.keys.clone();
        let start = Instant::now();
        let copy = Arc::new(Copy {
            state: Arc::new(ClusterState::new()),
            told: Announcer::new(),
            start,
            known: Mutex::new(Known { merge: Merge::new(keys.clone()), latest: start, silent: None }),
        });
        let follower = Follower { copy: Arc::clone(&copy), keys, grace, leaving: BTreeMap::new() };
        let task = shared.run(|connection| async move {
            let mut follower = follower;
            let revision = follower.list(&connection).await?;
            Ok(OwnedTask::spawn(async move { follower.follow(&connection, revision).await }))
        })?;
        Ok(Self { copy, _task: task, _shared: Arc::clone(shared) })
    }

    /// The cluster as it lives.
    pub fn state(&self) -> &Arc<ClusterState> {
        &self.copy.state
    }

    /// What planners read, and what a plan that is computed from it names when it is put in force.
    pub fn snapshot(&self) -> (ClusterSnapshot, Basis) {
        let known = self.copy.lock();
        let basis = known.merge.basis();
        (ClusterSnapshot { generation: basis.generation, ..(*self.copy.state.snapshot()).clone() }, basis)
    }

    /// How long ago what is shown was certainly the latest: a second or two, or more while no majority answers.
    pub fn age(&self) -> Duration {
        self.copy.lock().latest.elapsed()
    }

    /// Why no majority answers, while that is so.
    pub fn silent(&self) -> Option<String> {
        self.copy.lock().silent.clone()
    }

    /// Tells all that happens from now on.
    pub fn subscribe(&self) -> Subscription<RegistryEvent> {
        self.copy.told.subscribe()
    }
}

impl Copy {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        Moment::after_start(self.start.elapsed())
    }
}

/// What keeps a copy up to date.
struct Follower {
    copy: Arc<Copy>,
    keys: Keys,
    grace: Duration,
    /// When whoever has failed leaves.
    leaving: BTreeMap<NodeId, Instant>,
}

impl Follower {
    /// Lists everything; the revision at which it was so.
    async fn list(&mut self, connection: &Connection) -> Result<i64, EtcdError> {
        let asked = Instant::now();
        let listing: Listing = connection.list("reading who is there", &prefixes(&self.keys)).await?;
        let now = self.copy.now();
        let merged = {
            let mut known = self.copy.lock();
            let merged = known.merge.list(&self.copy.state, &listing.kvs, now);
            known.merge.stood_at(listing.revision);
            merged
        };
        self.take(merged);
        self.heard(asked);
        Ok(listing.revision)
    }

    async fn follow(mut self, connection: &Connection, mut revision: i64) {
        loop {
            let mut feed = Feed::after(self.keys.root().to_owned(), revision);
            loop {
                match self.news(connection, &mut feed).await {
                    Ok(()) => {}
                    Err(FeedEnd::Compacted) => break,
                    Err(FeedEnd::Broken { reason }) => {
                        self.broken(reason);
                        sleep(PAUSE).await;
                    }
                }
            }
            // What happened meanwhile is no longer kept: it shows in what stands there now.
            revision = loop {
                match self.list(connection).await {
                    Ok(revision) => break revision,
                    Err(error) => self.broken(error.to_string()),
                }
                sleep(PAUSE).await;
            };
            // Whether they changed meanwhile is not known.
            self.copy.told.tell(&RegistryEvent::Ledger);
            self.copy.told.tell(&RegistryEvent::Plan);
        }
    }

    /// Waits for one piece of news, or for a moment at which something is due.
    async fn news(&mut self, connection: &Connection, feed: &mut Feed) -> Result<(), FeedEnd> {
        let ask = Instant::now() + ASK;
        let due = self.leaving.values().min().copied().map_or(ask, |first| first.min(ask));
        tokio::select! {
            changes = feed.changes(connection) => self.changed(changes?),
            () = sleep_until(due) => {
                self.leave();
                if Instant::now() >= ask {
                    self.ask(connection).await;
                }
            }
        }
        Ok(())
    }

    fn changed(&mut self, changes: Vec<Change>) {
        let key = |change: &Change| match change {
            Change::Put(kv) => kv.key.clone(),
            Change::Delete { key, .. } => key.clone(),
        };
        let keys: Vec<String> = changes.iter().map(key).collect();
        let now = self.copy.now();
        let merged = self.copy.lock().merge.apply(&self.copy.state, changes, now);
        self.take(merged);
        if keys.iter().any(|key| key.starts_with(&self.keys.ledger())) {
            self.copy.told.tell(&RegistryEvent::Ledger);
        }
        if keys.contains(&self.keys.plan()) {
            self.copy.told.tell(&RegistryEvent::Plan);
        }
    }

    fn take(&mut self, merged: Merged) {
        let due = Instant::now() + self.grace;
        self.leaving.extend(merged.gone.into_iter().map(|node| (node, due)));
        for node in &merged.came {
            self.leaving.remove(node);
        }
        for event in &merged.events {
            self.copy.told.tell(event);
        }
    }

    /// Takes out whoever failed and did not come back in time.
    fn leave(&mut self) {
        let now = Instant::now();
        let due: Vec<NodeId> =
            self.leaving.iter().filter(|(_, due)| **due <= now).map(|(node, _)| node.clone()).collect();
        for node in due {
            self.leaving.remove(&node);
            if let Ok(event) = self.copy.state.deregister(&node) {
                self.copy.told.tell(&RegistryEvent::Cluster(event));
            }
        }
    }

    /// Asks a majority for anything at all: whoever answers knows of all that was before, and the feed tells it.
    async fn ask(&mut self, connection: &Connection) {
        let asked = Instant::now();
        let key = self.keys.head();
        match connection.attempt(|mut client| async move { client.get(key, None).await }).await {
            Ok(_) => self.heard(asked),
            Err(failure) => self.broken(failure.reason),
        }
    }

    fn heard(&self, asked: Instant) {
        let mut known = self.copy.lock();
        known.latest = asked;
        if known.silent.take().is_some() {
            drop(known);
            self.copy.told.tell(&RegistryEvent::Heard);
        }
    }

    fn broken(&self, reason: String) {
        let mut known = self.copy.lock();
        // One member that went away is none of anybody's business while the others answer.
        if known.latest.elapsed() > 3 * ASK && known.silent.replace(reason.clone()).is_none() {
            drop(known);
            self.copy.told.tell(&RegistryEvent::Silent { reason });
        }
    }
}
