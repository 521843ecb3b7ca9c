//! Opening a cluster that is kept in etcd.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use plimsoll::cluster::ClusterSnapshot;
use plimsoll::etcd::{Credentials, EtcdLedger, Options, Session};
use plimsoll::live::{Live, LiveError, Seen};
use plimsoll::residency::{Book, Owners, ProcOwners, ProcessId, Standing, Store, StoreError, Timestamp};

use crate::failure::Failure;

/// The environment variable with a user and a password, which would be seen by everybody in an address.
const USER: &str = "PLIMSOLL_ETCD_USER";

/// Environment variables with the files of certificates, as PEM: who vouches for the members, and who we are.
#[cfg(feature = "etcd-tls")]
const CERTIFICATES: [&str; 3] = ["PLIMSOLL_ETCD_CACERT", "PLIMSOLL_ETCD_CERT", "PLIMSOLL_ETCD_KEY"];

/// The certificates that the environment names.
#[cfg(feature = "etcd-tls")]
fn certificates() -> Result<plimsoll::etcd::Tls, Failure> {
    let read = |name: &str| {
        let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty()) else { return Ok(None) };
        let path = Path::new(&path);
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Input(format!("{name}: cannot read {}: {error}", path.display())))?;
        if text.contains("-----BEGIN ") {
            Ok(Some(text))
        } else {
            Err(Failure::Input(format!("{name}: {} holds no PEM", path.display())))
        }
    };
    let [ca, certificate, key] = CERTIFICATES.map(read);
    let identity = match (certificate?, key?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            let [_, certificate, key] = CERTIFICATES;
            return Err(Failure::Input(format!("{certificate} and {key} go together, and one is not set")));
        }
    };
    Ok(plimsoll::etcd::Tls { ca: ca?, identity, domain: None })
}

/// Opens the cluster of this address.
pub(super) fn open(url: &str) -> Result<Live, Failure> {
    open_with(url, "--cluster", Options::default())
}

/// The same with other options, for the address that was typed after this flag.
pub(super) fn open_with(url: &str, flag: &str, options: Options) -> Result<Live, Failure> {
    let credentials = match std::env::var(USER) {
        Ok(told) => match told.split_once(':') {
            Some((user, password)) if !user.is_empty() => Some(Credentials::new(user, password)),
            _ => return Err(Failure::Input(format!("{USER} is not USER:PASSWORD"))),
        },
        Err(_) => None,
    };
    let options = Options { credentials, ..options };
    #[cfg(feature = "etcd-tls")]
    let options = Options { tls: certificates()?, ..options };
    Live::open(url, options).map_err(|error| match error {
        LiveError::Url(error) => Failure::Input(format!("{flag}: {error}")),
        error => Failure::input(error),
    })
}

/// A cluster at this moment; what stands there and cannot be used is said.
pub(super) fn seen(live: &Live) -> Result<Seen, Failure> {
    let seen = live.seen().map_err(Failure::input)?;
    for problem in &seen.problems {
        crate::complain(&format!("note: {problem}"));
    }
    Ok(seen)
}

/// The machines of a cluster, less what is booked.
pub(crate) fn snapshot(url: &Path) -> Result<ClusterSnapshot, Failure> {
    let seen = seen(&open(url.to_str().unwrap_or_default())?)?;
    if seen.snapshot.nodes.is_empty() {
        return Err(Failure::Input(
            "nobody is in the cluster; run `plimsoll agent --join` or `plimsoll node join` on its machines"
                .to_owned(),
        ));
    }
    Ok(seen.snapshot)
}

/// The lease on which this process books. It is taken when the first booking needs it.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Lazy>);

impl Lease {
    /// Why it no longer counts, once that is so.
    pub(crate) fn lost(&self) -> Option<String> {
        self.0.held.get()?.0.lost().map(|why| why.to_string())
    }
}

/// A ledger that takes a lease when somebody is to own something.
#[derive(Debug)]
struct Lazy {
    live: Live,
    owners: Arc<ProcOwners>,
    without: EtcdLedger,
    held: OnceLock<(Arc<Session>, EtcdLedger)>,
}

/// The processes of this machine, shared.
#[derive(Debug)]
struct Here(Arc<ProcOwners>);

impl Owners for Here {
    fn boot(&self) -> Option<&str> {
        self.0.boot()
    }

    fn standing(&self, process: &ProcessId) -> Standing {
        self.0.standing(process)
    }
}

/// The ledger of the cluster of this address.
pub(crate) fn ledger(url: &str, owners: &Arc<ProcOwners>) -> Result<(Box<dyn Store>, Lease), Failure> {
    let live = open(url)?;
    let without = live.ledger(None, Here(Arc::clone(owners)));
    let lazy = Arc::new(Lazy { live, owners: Arc::clone(owners), without, held: OnceLock::new() });
    Ok((Box::new(Shared(Arc::clone(&lazy))), Lease(lazy)))
}

#[derive(Debug)]
struct Shared(Arc<Lazy>);

impl Store for Shared {
    fn transact(&self, now: Timestamp, operation: &mut dyn FnMut(&mut Book)) -> Result<(), StoreError> {
        let lazy = &*self.0;
        if let Some((_, ledger)) = lazy.held.get() {
            return ledger.transact(now, operation);
        }
        match lazy.without.transact(now, operation) {
            // Nothing was changed: it is asked again with a lease.
            Err(error) if needs_lease(&error) => {
                let session = Arc::new(lazy.live.session().map_err(|source| StoreError::Remote {
                    place: lazy.live.cluster().url().to_string(),
                    source: source.into(),
                })?);
                let ledger = lazy.live.ledger(Some(Arc::clone(&session)), Here(Arc::clone(&lazy.owners)));
                let (_, ledger) = lazy.held.get_or_init(|| (session, ledger));
                ledger.transact(now, operation)
            }
            done => done,
        }
    }

    fn view(&self, look: &mut dyn FnMut(&Book)) -> Result<(), StoreError> {
        match self.0.held.get() {
            Some((_, ledger)) => ledger.view(look),
            None => self.0.without.view(look),
        }
    }
}

fn needs_lease(error: &StoreError) -> bool {
    let StoreError::Remote { source, .. } = error else { return false };
    matches!(source.downcast_ref(), Some(plimsoll::etcd::EtcdError::NoSession))
}
