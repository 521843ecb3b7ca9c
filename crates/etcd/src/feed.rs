//! What changes, as it changes, from one revision on.

use etcd_client::{EventType, WatchOptions, WatchResponse, WatchStream};

use crate::EtcdError;
use crate::classify::{Failure, Fate};
use crate::connection::{Connection, kv_of};
use crate::writes::Kv;

/// One change of one key.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Kv),
    Delete { key: String, revision: i64 },
}

/// Changes of all keys below a prefix, each once and in order.
pub(crate) struct Feed {
    prefix: String,
    /// The revision from which on nothing was seen.
    next: i64,
    stream: Option<(WatchStream, u64)>,
}

/// Why a feed has nothing more to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FeedEnd {
    /// What comes next is no longer kept: all has to be listed anew.
    Compacted,
    /// The connection ended; asking again opens another.
    Broken { reason: String },
}

impl Feed {
    /// All that changes after this revision.
    pub(crate) fn after(prefix: String, revision: i64) -> Self {
        Self { prefix, next: revision.saturating_add(1), stream: None }
    }

    /// Waits for changes. May be dropped while it waits: nothing is lost.
    pub(crate) async fn changes(&mut self, connection: &Connection) -> Result<Vec<Change>, FeedEnd> {
        loop {
            let Some((stream, epoch)) = &mut self.stream else {
                self.stream = Some(self.open(connection).await?);
                continue;
            };
            let epoch = *epoch;
            let failure = match stream.message().await {
                Ok(Some(response)) => match self.taken(&response) {
                    Ok(changes) if changes.is_empty() => continue,
                    other => return other,
                },
                Ok(None) => Failure::ambiguous("the watch ended"),
                Err(error) => Failure::of(&error),
            };
            self.stream = None;
            if failure.fate == Fate::Compacted {
                return Err(FeedEnd::Compacted);
            }
            connection.rotate(epoch).await;
            return Err(FeedEnd::Broken { reason: failure.reason });
        }
    }

    async fn open(&self, connection: &Connection) -> Result<(WatchStream, u64), FeedEnd> {
        let broken = |failure: Failure| match failure.fate {
            Fate::Compacted => FeedEnd::Compacted,
            _ => FeedEnd::Broken { reason: failure.reason },
        };
        let (_, epoch) = connection.client().await.map_err(broken)?;
        let options = WatchOptions::new().with_prefix().with_start_revision(self.next);
        let prefix = self.prefix.clone();
        let opening =
            connection.attempt(|mut client| async move { client.watch(prefix, Some(options)).await });
        Ok((opening.await.map_err(broken)?, epoch))
    }

    fn taken(&mut self, response: &WatchResponse) -> Result<Vec<Change>, FeedEnd> {
        if response.canceled() {
            self.stream = None;
            if response.compact_revision() > 0 {
                return Err(FeedEnd::Compacted);
            }
            return Err(FeedEnd::Broken { reason: response.cancel_reason().to_owned() });
        }
        let damaged = |error: EtcdError| FeedEnd::Broken { reason: error.to_string() };
        let mut changes = Vec::new();
        for event in response.events() {
            let Some(kv) = event.kv() else { continue };
            let kv = kv_of(kv).map_err(damaged)?;
            self.next = self.next.max(kv.mod_revision.saturating_add(1));
            changes.push(match event.event_type() {
                EventType::Put => Change::Put(kv),
                EventType::Delete => Change::Delete { key: kv.key, revision: kv.mod_revision },
            });
        }
        Ok(changes)
    }
}
