//! A cluster that is kept in etcd.

use std::sync::Arc;

use plimsoll_residency::Owners;

use crate::bridge::Bridge;
use crate::connection::Connection;
use crate::keys::Keys;
use crate::{ClusterUrl, EtcdError, EtcdLedger, Options, Plans, Registry, Session};

/// A cluster that is kept in etcd. Clones share one connection, and with it one small runtime of its own; calls block.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) connection: Arc<Connection>,
    pub(crate) keys: Keys,
    // After the connection: its tasks end first.
    pub(crate) bridge: Bridge,
}

impl Cluster {
    /// Opens a cluster and asks once whether a majority answers.
    ///
    /// # Errors
    ///
    /// Nobody answers, or they do not let us in.
    pub fn open(url: ClusterUrl, options: Options) -> Result<Self, EtcdError> {
        let cluster = Self::unasked(url, options)?;
        let prefixes = [cluster.shared.keys.head()];
        cluster
            .shared
            .run(move |connection| async move { connection.list("opening the cluster", &prefixes).await })?;
        Ok(cluster)
    }

    /// Opens a cluster without asking whether anybody is there.
    ///
    /// # Errors
    ///
    /// Options that cannot be used.
    pub fn unasked(url: ClusterUrl, options: Options) -> Result<Self, EtcdError> {
        let unusable = |reason: &str| EtcdError::Options { place: url.place(), reason: reason.to_owned() };
        if url.tls() && !cfg!(feature = "tls") {
            return Err(unusable("etcds:// needs a build with the feature 'tls'"));
        }
        if options.lease.as_secs() < 2 {
            return Err(unusable("a lease lasts at least 2 seconds"));
        }
        if options.patience < options.attempt || options.attempt.is_zero() {
            return Err(unusable("a request is tried at least as long as one attempt takes"));
        }
        let bridge = Bridge::new().map_err(|error| unusable(&format!("no runtime: {error}")))?;
        let keys = Keys::new(url.name());
        let connection = Arc::new(Connection::new(url, options));
        Ok(Self { shared: Arc::new(Shared { connection, keys, bridge }) })
    }

    /// Where it is kept.
    pub fn url(&self) -> &ClusterUrl {
        self.shared.connection.url()
    }

    /// A lease of our own, renewed until it is dropped.
    ///
    /// # Errors
    ///
    /// Nobody answers, or they do not let us in.
    pub fn session(&self) -> Result<Session, EtcdError> {
        Session::begin(self)
    }

    /// Who is there.
    pub fn registry(&self) -> Registry {
        Registry::new(self.clone())
    }

    /// Who holds what. What a process owns is booked on the session's lease; without a session only what nobody owns can
    /// be booked.
    pub fn ledger(&self, session: Option<Arc<Session>>, owners: Arc<dyn Owners>) -> EtcdLedger {
        EtcdLedger::new(self.clone(), session, owners)
    }

    /// The plan in force.
    pub fn plans(&self) -> Plans {
        Plans::new(self.clone())
    }
}

impl Shared {
    /// Runs this on the connection, and waits for it.
    pub(crate) fn run<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Connection>) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>> + Send + 'static,
    {
        self.bridge.wait(work(Arc::clone(&self.connection))).unwrap_or(Err(EtcdError::Closed))
    }
}
