//! A lease that is renewed as long as its owner lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_watcher::OwnedTask;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::classify::Fate;
use crate::cluster::Shared;
use crate::connection::Connection;
use crate::{Cluster, EtcdError};

/// A lease of this process. Whatever lives on it is gone soon after the process ends or is cut off, and at once when this
/// is dropped.
///
/// A lease that was lost is never taken back: others may have got what lived on it.
#[derive(Debug)]
#[must_use = "dropping it ends the lease, and with it all that lives on it"]
pub struct Session {
    shared: Arc<Shared>,
    lease: i64,
    lasts: Duration,
    lost: watch::Receiver<Option<Lost>>,
    keeper: Option<OwnedTask>,
    ended: AtomicBool,
}

/// Why a lease no longer counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// etcd says that it has ended.
    #[error("etcd ended the lease")]
    Ended,
    /// It could not be renewed for as long as it lasts, so it may have ended.
    #[error("the lease could not be renewed for {} s: {reason}", silent.as_secs())]
    Silent {
        /// How long.
        silent: Duration,
        /// What the last attempt met.
        reason: String,
    },
}

impl Session {
    pub(crate) fn begin(cluster: &Cluster) -> Result<Self, EtcdError> {
        let shared = Arc::clone(&cluster.shared);
        cluster.shared.run(|_| Self::granted(shared))
    }

    /// On the runtime of the connection.
    pub(crate) async fn granted(shared: Arc<Shared>) -> Result<Self, EtcdError> {
        let asked = shared.connection.options().lease.as_secs();
        let seconds = i64::try_from(asked).unwrap_or(i64::MAX);
        let granted = Instant::now();
        // One that was granted unheard lives its time and holds nothing.
        let grant = shared
            .connection
            .repeat("a lease", |mut client| async move { client.lease_grant(seconds, None).await })
            .await?;
        let (lease, lasts) = (grant.id(), Duration::from_secs(u64::try_from(grant.ttl()).unwrap_or(asked)));
        let (tell, lost) = watch::channel(None);
        let connection = Arc::clone(&shared.connection);
        let keeper = OwnedTask::spawn(async move {
            let why = keep(&connection, lease, lasts, granted).await;
            tell.send_replace(Some(why));
        });
        Ok(Self { shared, lease, lasts, lost, keeper: Some(keeper), ended: AtomicBool::new(false) })
    }

    /// Waits until it no longer counts, without keeping it.
    pub(crate) fn until_lost(&self) -> impl Future<Output = Option<Lost>> + use<> {
        until_lost(self.lost.clone())
    }

    /// The lease, as etcd numbers it.
    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// How long what lives on it outlives us.
    pub fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Why it no longer counts, once that is so.
    pub fn lost(&self) -> Option<Lost> {
        self.lost.borrow().clone()
    }

    /// Ends it now, and waits until that is so, a second at most; where nobody answers it ends by itself.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.shared.bridge.wait(self.revoke());
    }

    fn revoke(&self) -> impl Future<Output = ()> + Send + 'static {
        let lease = self.lease;
        let connection = Arc::clone(&self.shared.connection);
        async move {
            let ended = connection.attempt(|mut client| async move { client.lease_revoke(lease).await });
            drop(timeout(Duration::from_secs(1), ended).await);
        }
    }

    /// Waits until it no longer counts, at most this long.
    pub fn wait_lost(&self, at_most: Duration) -> Option<Lost> {
        let lost = self.lost.clone();
        let known = async move { timeout(at_most, until_lost(lost)).await.ok().flatten() };
        self.shared.bridge.wait(known).flatten()
    }
}

async fn until_lost(mut lost: watch::Receiver<Option<Lost>>) -> Option<Lost> {
    lost.wait_for(Option::is_some).await.ok()?.clone()
}

impl Drop for Session {
    fn drop(&mut self) {
        self.keeper = None;
        if self.ended.load(Ordering::SeqCst) || self.lost().is_some() {
            return;
        }
        let revoke = self.revoke();
        if tokio::runtime::Handle::try_current().is_ok() {
            // On a runtime nobody may wait.
            self.shared.bridge.handle().spawn(revoke);
        } else {
            self.shared.bridge.wait(revoke);
        }
    }
}

/// Renews a lease until it no longer counts.
async fn keep(connection: &Connection, lease: i64, lasts: Duration, granted: Instant) -> Lost {
    // Counted from when a renewal that succeeded was sent: the lease lasts at least that long.
    let mut renewed = granted;
    loop {
        sleep(lasts / 4).await;
        loop {
            let sent = Instant::now();
            // A stream for each renewal: one that was cut off looks like one on which nothing comes.
            let renewal =
                connection.attempt(|mut client| async move { client.lease_keep_alive(lease).await });
            match renewal.await {
                Ok(_) => {
                    renewed = sent;
                    break;
                }
                Err(failure) if failure.fate == Fate::LeaseOver => return Lost::Ended,
                Err(failure) if renewed.elapsed() >= lasts => {
                    return Lost::Silent { silent: renewed.elapsed(), reason: failure.reason };
                }
                Err(_) => {}
            }
            sleep(Duration::from_millis(100).min(lasts / 8)).await;
        }
    }
}
