//! What happens, as it happens.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::app::{App, Seen};
use crate::error::ApiError;

/// So many entries are taken from the journal at once: what is taken waits for this reader.
const BATCH: usize = 16;

/// What whoever wants all that is kept names as the last event.
const FIRST: &str = "first";

/// How often something is sent where nothing happens.
const ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct After {
    /// The name of the last event that was seen, or `first` for all that is kept; the header `Last-Event-ID` says the same, and goes first.
    after: Option<String>,
}

#[derive(Serialize)]
struct Hello<'a> {
    node: &'a str,
    version: &'static str,
    life: &'a str,
    generation: u64,
}

#[derive(Serialize)]
struct Lost {
    /// `None` when it cannot be told.
    count: Option<u64>,
}

#[derive(Serialize)]
struct Cluster {
    generation: u64,
}

/// One reader. It reads the journal at its own speed: what it does not read in time is gone, and counted.
struct Reader {
    app: Arc<App>,
    seen: u64,
    waiting: VecDeque<Event>,
    news: watch::Receiver<u64>,
    moment: watch::Receiver<Seen>,
    stop: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

/// What happens, as server-sent events with data in JSON: `hello` first, then `hardware`, `tuned`, `node`, `budget`, `plan`, `booking`,
/// `refusal`, `membership` (of a cluster that was joined), `failed` as they come. `cluster` says that the cluster has changed, and at
/// which generation it is, and `lost` how many events
/// came too fast to be kept; these two and `hello` have no name to go on from.
#[utoipa::path(
    get,
    path = "/v1/events",
    params(After, ("Last-Event-ID" = Option<String>, Header, description = "The last event that was seen: what came after it and is still kept is sent first.")),
    responses(
        (status = 200, description = "Events, until either side ends.", body = String, content_type = "text/event-stream"),
        (status = 503, description = "Too many readers.", body = crate::error::Problem),
    )
)]
pub(super) async fn events(
    State(app): State<Arc<App>>,
    Query(after): Query<After>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        ApiError::busy(format!("{} event streams are open, and that is the most", app.limits.streams))
    })?;
    let named =
        headers.get("last-event-id").and_then(|name| name.to_str().ok()).map(str::to_owned).or(after.after);
    let mut sse = Sse::new(stream(Reader::new(app, named.as_deref(), place)))
        .keep_alive(KeepAlive::new().interval(ALIVE))
        .into_response();
    sse.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(sse)
}

fn stream(reader: Reader) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    })
}

impl Reader {
    fn new(app: Arc<App>, after: Option<&str>, place: OwnedSemaphorePermit) -> Self {
        let mut waiting = VecDeque::new();
        let mut moment = app.moment.subscribe();
        let hello = Hello {
            node: app.node.as_str(),
            version: env!("CARGO_PKG_VERSION"),
            life: app.journal.life(),
            generation: moment.borrow_and_update().generation,
        };
        waiting.extend(event("hello", &hello));
        let news = app.journal.news();
        let seen = match after {
            // Somebody new: what is told from now on.
            None => app.journal.last(),
            Some(FIRST) => 0,
            Some(name) => app.journal.number(name).unwrap_or_else(|| {
                // Of another life of the agent: what is missing in between, nobody knows.
                waiting.extend(event("lost", &Lost { count: None }));
                0
            }),
        };
        let stop = app.stop.clone();
        Self { app, seen, waiting, news, moment, stop, _place: place }
    }

    /// What is told next; `None` when the agent stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if *self.stop.borrow() {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.read() {
                continue;
            }
            tokio::select! {
                changed = self.stop.changed() => changed.ok()?,
                changed = self.news.changed() => changed.ok()?,
                changed = self.moment.changed() => {
                    changed.ok()?;
                    let generation = self.moment.borrow_and_update().generation;
                    self.waiting.extend(event("cluster", &Cluster { generation }));
                }
            }
        }
    }

    /// Takes what is new from the journal; whether there was anything.
    fn read(&mut self) -> bool {
        self.news.borrow_and_update();
        // A name of this life that was never given.
        self.seen = self.seen.min(self.app.journal.last());
        let read = self.app.journal.after(self.seen, BATCH);
        if let Some(count @ 1..) = read.lost {
            self.waiting.extend(event("lost", &Lost { count: Some(count) }));
        }
        for entry in read.entries {
            self.seen = entry.number;
            let name = self.app.journal.name(entry.number);
            self.waiting.push_back(Event::default().event(entry.kind).id(name).data(&entry.data));
        }
        !self.waiting.is_empty()
    }
}

/// An event without a name to go on from; `None` for what JSON cannot say.
fn event(kind: &str, what: &impl Serialize) -> Option<Event> {
    let data = serde_json::to_string(what).ok()?;
    Some(Event::default().event(kind).data(data))
}
