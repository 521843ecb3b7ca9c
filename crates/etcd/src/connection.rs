//! The connection: one member at a time, another one when that one fails.
//!
//! A client that is given all members keeps asking a dead one; so it is given one, and a failure of the transport moves
//! on to the next. What a failure leaves open is read back, and a change is sent again only under guards that let it be
//! made once.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::classify::{Failure, Fate};
use crate::writes::{Guard, Kv, MOST_KEYS, Writes};
use crate::{ClusterUrl, EtcdError, Options};

/// The pause before a request is tried again: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// The connection of one process to the members.
pub(crate) struct Connection {
    url: ClusterUrl,
    options: Options,
    sticky: Mutex<Sticky>,
}

#[derive(Default)]
struct Sticky {
    current: usize,
    client: Option<Client>,
    // Counts connections, so that one failure is not taken for two.
    epoch: u64,
}

/// Keys at one revision of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) revision: i64,
    pub(crate) kvs: Vec<Kv>,
}

/// What a key shows about a change whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Made,
    NotMade,
    Unknown,
}

/// How a guarded change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It was made, at the latest at this revision.
    Yes { revision: i64 },
    /// A guard did not hold: nothing was changed.
    Outrun,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(url: ClusterUrl, options: Options) -> Self {
        Self { url, options, sticky: Mutex::default() }
    }

    pub(crate) fn url(&self) -> &ClusterUrl {
        &self.url
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// A client of the present member, and which connection that is.
    pub(crate) async fn client(&self) -> Result<(Client, u64), Failure> {
        let mut sticky = self.sticky.lock().await;
        if let Some(client) = &sticky.client {
            return Ok((client.clone(), sticky.epoch));
        }
        let endpoint = &self.url.endpoints()[sticky.current];
        let scheme = if self.url.tls() { "https" } else { "http" };
        let connecting = Client::connect([format!("{scheme}://{endpoint}")], Some(self.connect_options()));
        let connected = match timeout(self.options.attempt, connecting).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(Failure::of(&error)),
            Err(_) => Err(Failure::ambiguous(format!("{endpoint} lets nobody in"))),
        };
        match connected {
            Ok(client) => {
                sticky.client = Some(client.clone());
                Ok((client, sticky.epoch))
            }
            // Whatever went wrong, nothing of ours was sent.
            Err(failure) => {
                sticky.rotate(self.url.endpoints().len());
                let fate = if failure.fate == Fate::Ambiguous { Fate::NotSent } else { failure.fate };
                Err(Failure { fate, ..failure })
            }
        }
    }

    fn connect_options(&self) -> ConnectOptions {
        let second = Duration::from_secs(1);
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.options.connect)
            .with_keep_alive(second, second)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(credentials) = self.options.credentials.as_ref().or(self.url.credentials()) {
            options = options.with_user(&credentials.user, &credentials.password);
        }
        #[cfg(feature = "tls")]
        if self.url.tls() {
            options = options.with_tls(self.options.tls.client());
        }
        options
    }

    /// Leaves the member of this connection, unless somebody did already.
    pub(crate) async fn rotate(&self, epoch: u64) {
        let mut sticky = self.sticky.lock().await;
        if sticky.epoch == epoch {
            sticky.rotate(self.url.endpoints().len());
        }
    }

    /// Tries a request once, on the present member.
    pub(crate) async fn attempt<T, F>(&self, request: impl FnOnce(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let (client, epoch) = self.client().await?;
        let failure = match timeout(self.options.attempt, request(client)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => Failure::ambiguous(format!("no answer within {} ms", self.options.attempt.as_millis())),
        };
        if failure.rotate {
            self.rotate(epoch).await;
        }
        Err(failure)
    }

    /// Runs a request that may be repeated as often as one likes, until it is answered or patience ends.
    pub(crate) async fn repeat<T, F>(
        &self,
        what: &'static str,
        request: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut tries = Tries::new(self.options.patience);
        loop {
            match self.attempt(&request).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => match failure.fate {
                    Fate::NotSent | Fate::Ambiguous => {
                        if !tries.pause().await {
                            return Err(self.unavailable(what, tries.waited(), failure.reason));
                        }
                    }
                    Fate::Refused | Fate::LeaseOver | Fate::Compacted => {
                        return Err(self.refused(what, failure));
                    }
                },
            }
        }
    }

    /// Every key below these prefixes as it is now: all of one revision, agreed on by a majority.
    pub(crate) async fn list(&self, what: &'static str, prefixes: &[String]) -> Result<Listing, EtcdError> {
        let gets: Vec<TxnOp> = prefixes
            .iter()
            .map(|prefix| TxnOp::get(prefix.as_str(), Some(GetOptions::new().with_prefix())))
            .collect();
        let txn = Txn::new().and_then(gets);
        let answer = self
            .repeat(what, |mut client| {
                let txn = txn.clone();
                async move { client.txn(txn).await }
            })
            .await?;
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let mut kvs = Vec::new();
        for response in answer.op_responses() {
            if let TxnOpResponse::Get(found) = response {
                for kv in found.kvs() {
                    kvs.push(kv_of(kv)?);
                }
            }
        }
        Ok(Listing { revision, kvs })
    }

    /// Makes a change whose guards hold at most once.
    ///
    /// Where an answer is lost, `settled` is asked whether what now stands at `witness` shows that the change was made;
    /// where it was not, the same change is sent again, and its guards see to it that it is made once.
    pub(crate) async fn commit(
        &self,
        what: &'static str,
        writes: &Writes,
        witness: &str,
        settled: impl Fn(Option<&Kv>) -> Settled,
    ) -> Result<Committed, EtcdError> {
        if writes.keys() > MOST_KEYS {
            return Err(EtcdError::TooMany { what, keys: writes.keys(), most: MOST_KEYS });
        }
        let txn = transaction(writes, witness);
        let mut tries = Tries::new(self.options.patience);
        let mut open = false;
        loop {
            let sent = txn.clone();
            let failure = match self.attempt(|mut client| async move { client.txn(sent).await }).await {
                Ok(answer) => {
                    let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
                    if answer.succeeded() {
                        return Ok(Committed::Yes { revision });
                    }
                    let shown = if open { settled(found(&answer)?.as_ref()) } else { Settled::NotMade };
                    return match shown {
                        Settled::Made => Ok(Committed::Yes { revision }),
                        Settled::NotMade => Ok(Committed::Outrun),
                        Settled::Unknown => {
                            Err(self.unknown(what, tries.waited(), "others have written since".to_owned()))
                        }
                    };
                }
                Err(failure) => failure,
            };
            match failure.fate {
                Fate::NotSent => {}
                // Read back by the next attempt: its guards fail where this one was made, and it shows the witness.
                Fate::Ambiguous => open = true,
                Fate::Refused | Fate::LeaseOver | Fate::Compacted if open => {
                    return match self.witnessed(what, witness, &settled).await {
                        Ok((Settled::Made, revision)) => Ok(Committed::Yes { revision }),
                        Ok((Settled::NotMade, _)) => Err(self.refused(what, failure)),
                        Ok((Settled::Unknown, _)) | Err(_) => {
                            Err(self.unknown(what, tries.waited(), failure.reason))
                        }
                    };
                }
                Fate::Refused | Fate::LeaseOver | Fate::Compacted => return Err(self.refused(what, failure)),
            }
            if !tries.pause().await {
                return Err(if open {
                    self.unknown(what, tries.waited(), failure.reason)
                } else {
                    self.unavailable(what, tries.waited(), failure.reason)
                });
            }
        }
    }

    /// What the witness shows, and at which revision.
    async fn witnessed(
        &self,
        what: &'static str,
        witness: &str,
        settled: impl Fn(Option<&Kv>) -> Settled,
    ) -> Result<(Settled, i64), EtcdError> {
        let listing = self.list(what, &[witness.to_owned()]).await?;
        let shown = listing.kvs.iter().find(|kv| kv.key == witness);
        Ok((settled(shown), listing.revision))
    }

    pub(crate) fn unavailable(&self, what: &'static str, waited: Duration, reason: String) -> EtcdError {
        EtcdError::Unavailable { place: self.url.place(), what, waited, reason }
    }

    fn unknown(&self, what: &'static str, waited: Duration, reason: String) -> EtcdError {
        EtcdError::Unknown { place: self.url.place(), what, waited, reason }
    }

    pub(crate) fn refused(&self, what: &'static str, failure: Failure) -> EtcdError {
        match failure.fate {
            Fate::LeaseOver => EtcdError::LeaseOver { what },
            _ => EtcdError::Refused { place: self.url.place(), what, reason: failure.reason },
        }
    }
}

impl Sticky {
    fn rotate(&mut self, members: usize) {
        self.client = None;
        self.epoch = self.epoch.wrapping_add(1);
        self.current = (self.current + 1) % members.max(1);
    }
}

/// How often, and for how long, something was tried.
pub(crate) struct Tries {
    start: Instant,
    patience: Duration,
    pause: Duration,
}

impl Tries {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { start: Instant::now(), patience, pause: PAUSE.0 }
    }

    pub(crate) fn waited(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits a little before the next attempt; false when patience is at its end.
    pub(crate) async fn pause(&mut self) -> bool {
        if self.waited() + self.pause >= self.patience {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        true
    }
}

fn transaction(writes: &Writes, witness: &str) -> Txn {
    let guards: Vec<Compare> = writes
        .guards
        .iter()
        .map(|guard| match guard {
            Guard::At { key, revision } => Compare::mod_revision(key.as_str(), CompareOp::Equal, *revision),
            Guard::There { key } => Compare::create_revision(key.as_str(), CompareOp::Greater, 0),
            Guard::NoneSince { prefix, revision } => {
                Compare::mod_revision(prefix.as_str(), CompareOp::Less, revision.saturating_add(1))
                    .with_prefix()
            }
        })
        .collect();
    let mut operations = Vec::with_capacity(writes.puts.len() + writes.deletes.len());
    for put in &writes.puts {
        let options = (put.lease != 0).then(|| PutOptions::new().with_lease(put.lease));
        operations.push(TxnOp::put(put.key.as_str(), put.value.as_slice(), options));
    }
    operations.extend(writes.deletes.iter().map(|key| TxnOp::delete(key.as_str(), None)));
    Txn::new().when(guards).and_then(operations).or_else([TxnOp::get(witness, None)])
}

/// The witness that a change showed whose guards did not hold.
fn found(answer: &etcd_client::TxnResponse) -> Result<Option<Kv>, EtcdError> {
    for response in answer.op_responses() {
        if let TxnOpResponse::Get(found) = response {
            return found.kvs().first().map(kv_of).transpose();
        }
    }
    Ok(None)
}

pub(crate) fn kv_of(kv: &etcd_client::KeyValue) -> Result<Kv, EtcdError> {
    let key = match std::str::from_utf8(kv.key()) {
        Ok(key) => key.to_owned(),
        Err(_) => {
            let key = String::from_utf8_lossy(kv.key()).into_owned();
            return Err(EtcdError::Damaged { key, what: "its name is no text".to_owned() });
        }
    };
    Ok(Kv { key, value: kv.value().to_vec(), mod_revision: kv.mod_revision(), lease: kv.lease() })
}
