//! What keeps one machine registered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_cluster::NodeResources;
use plimsoll_residency::Timestamp;
use plimsoll_units::{Bytes, NodeId, PoolId};
use plimsoll_watcher::OwnedTask;
use tokio::time::sleep;

use super::record::MetricsRecord;
use super::{JoinError, publish};
use crate::cluster::Shared;
use crate::connection::{Committed, Settled};
use crate::writes::{Guard, Kv, Put, Writes};
use crate::{EtcdError, Session, wire};

/// What saying what is free is called in errors.
const REPORTING: &str = "reporting free memory";

/// The pause before a machine that lost its lease registers again.
const PAUSE: Duration = Duration::from_millis(500);

/// How things stand with a machine's place in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentState {
    /// It is there.
    Registered,
    /// Its lease was lost, and it tries to come back; what it met last.
    Lost(String),
    /// It was taken out.
    Left,
}

/// What keeps one machine registered, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it takes the machine out of the registry"]
pub struct Agent {
    held: Arc<Mutex<Held>>,
    shared: Arc<Shared>,
    // Taken when it leaves.
    task: Mutex<Option<OwnedTask>>,
}

#[derive(Debug)]
struct Held {
    resources: NodeResources,
    session: Option<Arc<Session>>,
    state: AgentState,
}

impl Agent {
    pub(super) fn begin(shared: &Arc<Shared>, resources: NodeResources) -> Result<Self, JoinError> {
        let on_runtime = Arc::clone(shared);
        let (held, task) = shared.run(|_| async move { Ok(begin(on_runtime, resources).await) })??;
        Ok(Self { held, shared: Arc::clone(shared), task: Mutex::new(Some(task)) })
    }

    /// The machine.
    pub fn node(&self) -> NodeId {
        lock(&self.held).resources.id.clone()
    }

    /// How things stand with it.
    pub fn state(&self) -> AgentState {
        lock(&self.held).state.clone()
    }

    /// The lease on which it is registered now.
    pub fn session(&self) -> Option<Arc<Session>> {
        lock(&self.held).session.clone()
    }

    /// Says that the machine brings something else from now on.
    ///
    /// # Errors
    ///
    /// Refused, or not registered at the moment; what it was registered with stays until it is lost.
    pub fn update(&self, resources: NodeResources) -> Result<(), JoinError> {
        let lease = self.lease("registering a node")?;
        let (keys, published) = (self.shared.keys.clone(), resources.clone());
        self.shared
            .run(|connection| async move { Ok(publish(&connection, &keys, &published, lease).await) })??;
        lock(&self.held).resources = resources;
        Ok(())
    }

    /// Says what is free of each pool, as it was measured at `now`. A machine that no longer stands there, because
    /// somebody took its place and left, or removed it, is registered again first.
    ///
    /// # Errors
    ///
    /// Not registered at the moment, or etcd's.
    pub fn report(&self, free: &[(PoolId, Bytes)], now: Timestamp) -> Result<(), JoinError> {
        if self.reported(free, now)? {
            return Ok(());
        }
        let resources = lock(&self.held).resources.clone();
        self.update(resources)?;
        if self.reported(free, now)? { Ok(()) } else { Err(EtcdError::LeaseOver { what: REPORTING }.into()) }
    }

    /// False when the machine does not stand there.
    fn reported(&self, free: &[(PoolId, Bytes)], now: Timestamp) -> Result<bool, EtcdError> {
        let lease = self.lease(REPORTING)?;
        let value =
            wire::encode(&MetricsRecord { at: now.as_millis(), free: free.iter().cloned().collect() });
        let (node, keys) = (self.node(), &self.shared.keys);
        let key = keys.metric(&node);
        let mut writes = Writes::default();
        writes.puts.push(Put { key: key.clone(), value: value.clone(), lease });
        // Only beside the machine itself.
        writes.guards.push(Guard::There { key: keys.node(&node) });
        let committed = self.shared.run(|connection| async move {
            let settled = |kv: Option<&Kv>| match kv {
                Some(kv) if kv.value == value => Settled::Made,
                _ => Settled::NotMade,
            };
            connection.commit(REPORTING, &writes, &key, settled).await
        })?;
        match committed {
            Committed::Yes { .. } => Ok(true),
            Committed::Outrun => Ok(false),
        }
    }

    /// Takes the machine out, and waits until that is so, a second at most; where nobody answers its lease ends by itself.
    pub fn leave(&self) {
        if let Some(session) = self.part() {
            session.end();
        }
    }

    /// Nobody registers it again. What ends its lease.
    fn part(&self) -> Option<Arc<Session>> {
        drop(self.task.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut held = lock(&self.held);
        held.state = AgentState::Left;
        held.session.take()
    }

    fn lease(&self, what: &'static str) -> Result<i64, EtcdError> {
        let held = lock(&self.held);
        let alive = held.session.as_ref().filter(|session| session.lost().is_none());
        alive.map(|session| session.lease()).ok_or(EtcdError::LeaseOver { what })
    }
}

impl Drop for Agent {
    /// The machine is gone when this returns, unless a runtime calls or nobody answers.
    fn drop(&mut self) {
        // What keeps it registered may still hold the rest for a moment.
        drop(self.part());
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn begin(
    shared: Arc<Shared>,
    resources: NodeResources,
) -> Result<(Arc<Mutex<Held>>, OwnedTask), JoinError> {
    let session = registered(&shared, &resources).await?;
    let held = Held { resources, session: Some(session), state: AgentState::Registered };
    let held = Arc::new(Mutex::new(held));
    let kept = Arc::clone(&held);
    let task = OwnedTask::spawn(async move { stay(&shared, &kept).await });
    Ok((held, task))
}

async fn registered(shared: &Arc<Shared>, resources: &NodeResources) -> Result<Arc<Session>, JoinError> {
    let session = Session::granted(Arc::clone(shared)).await?;
    publish(&shared.connection, &shared.keys, resources, session.lease()).await?;
    Ok(Arc::new(session))
}

/// Registers the machine again whenever its lease is lost.
async fn stay(shared: &Arc<Shared>, held: &Mutex<Held>) {
    loop {
        let lost = lock(held).session.as_deref().map(Session::until_lost);
        if let Some(lost) = lost {
            let why = lost.await;
            let told = why.map_or_else(|| "its lease is no longer renewed".to_owned(), |why| why.to_string());
            let mut held = lock(held);
            (held.session, held.state) = (None, AgentState::Lost(told));
        }
        let resources = lock(held).resources.clone();
        match registered(shared, &resources).await {
            Ok(session) => {
                let mut held = lock(held);
                (held.session, held.state) = (Some(session), AgentState::Registered);
            }
            Err(error) => {
                lock(held).state = AgentState::Lost(error.to_string());
                sleep(PAUSE).await;
            }
        }
    }
}
