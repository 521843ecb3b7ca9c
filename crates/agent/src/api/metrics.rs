//! Figures for those who watch many machines.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use plimsoll::units::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::app::App;
use crate::error::{ApiError, chain};

/// What the text says that it is.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PoolLabels {
    node: String,
    pool: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NodeLabels {
    status: &'static str,
}

type PoolGauge = Family<PoolLabels, Gauge<f64, AtomicU64>>;

/// What is counted as it happens.
pub(crate) struct Reckoning {
    refusals: Family<ReasonLabels, Counter>,
    requests: Family<StatusLabels, Counter>,
    planning: Histogram,
}

impl fmt::Debug for Reckoning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reckoning").finish_non_exhaustive()
    }
}

impl Reckoning {
    /// Nothing has happened yet.
    pub(crate) fn new() -> Self {
        // From 50 microseconds to 26 seconds.
        let planning = Histogram::new(exponential_buckets(0.000_05, 2.0, 20));
        Self { refusals: Family::default(), requests: Family::default(), planning }
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn answered(&self, status: u16) {
        self.requests.get_or_create(&StatusLabels { status }).inc();
    }

    pub(crate) fn planned(&self, took: Duration) {
        self.planning.observe(took.as_secs_f64());
    }
}

/// The figures, as OpenMetrics.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, description = "OpenMetrics text.", body = String, content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"))
)]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let text = app.blocking(|app| app.figures()).await?;
    let text = text.map_err(|error| ApiError::fault(chain(&error)))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

impl App {
    fn figures(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("plimsoll");
        self.pools(&mut registry);
        self.bookings(&mut registry);
        let skew: Gauge<f64, AtomicU64> = Gauge::default();
        let report = self.skew();
        skew.set(report.ratio);
        registry.register(
            "skew_ratio",
            "The largest available share of a device divided by the smallest",
            skew,
        );
        let threshold: Gauge<f64, AtomicU64> = Gauge::default();
        threshold.set(report.threshold);
        registry.register("skew_threshold", "From which ratio on devices count as used unequally", threshold);
        let generation: Gauge = Gauge::default();
        generation.set(i64::try_from(self.snapshot().generation.get()).unwrap_or(i64::MAX));
        registry.register("cluster_generation", "At which generation the cluster is", generation);
        let holds: Gauge = Gauge::default();
        if let Some(plan) = self.in_force() {
            holds.set(i64::from(plan.standing.holds()));
            registry.register("plan_holds", "Whether the plan in force holds (absent without one)", holds);
        }
        self.membership(&mut registry);
        let streams: Gauge = Gauge::default();
        let open = self.limits.streams.saturating_sub(self.streams.available_permits());
        streams.set(i64::try_from(open).unwrap_or(i64::MAX));
        registry.register("event_streams", "How many event streams are open", streams);
        let reckoning = &self.reckoning;
        registry.register("refusals", "Refusals by reason", reckoning.refusals.clone());
        registry.register(
            "http_requests",
            "Requests by the status of their answers",
            reckoning.requests.clone(),
        );
        registry.register_with_unit(
            "planning",
            "How long plans took that were not made before",
            Unit::Seconds,
            reckoning.planning.clone(),
        );
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    fn pools(&self, registry: &mut Registry) {
        let (total, used, held) = (PoolGauge::default(), PoolGauge::default(), PoolGauge::default());
        let shown = self.shown();
        for node in &shown.snapshot.nodes {
            for pool in &node.pools {
                let labels = PoolLabels { node: node.id.to_string(), pool: pool.id.to_string() };
                total.get_or_create(&labels).set(pool.total.as_f64());
                held.get_or_create(&labels).set(pool.held.as_f64());
                // What nobody knows has no figure.
                if let Some(free) = pool.free {
                    used.get_or_create(&labels).set(pool.total.saturating_sub(free).as_f64());
                }
            }
        }
        registry.register_with_unit("pool_total", "All of a memory", Unit::Bytes, total);
        registry.register_with_unit("pool_used", "What is used of a memory, by whomever", Unit::Bytes, used);
        registry.register_with_unit(
            "pool_held",
            "What the plan in force holds of a memory",
            Unit::Bytes,
            held,
        );
    }

    /// Of a cluster that was joined.
    fn membership(&self, registry: &mut Registry) {
        let Some(joined) = &self.joined else { return };
        let held: Gauge = Gauge::default();
        held.set(i64::from(joined.lost().is_none()));
        registry.register("lease_held", "Whether the machine is registered, on a lease that lives", held);
        let answers: Gauge = Gauge::default();
        answers.set(i64::from(joined.silent().is_none()));
        registry.register("etcd_answers", "Whether a majority of etcd answers", answers);
        let age: Gauge<f64, AtomicU64> = Gauge::default();
        age.set(joined.age().as_secs_f64());
        let told = "How long ago what is shown of the cluster was certainly the latest";
        registry.register_with_unit("cluster_age", told, Unit::Seconds, age);
        let nodes: Family<NodeLabels, Gauge> = Family::default();
        for node in &self.cluster.snapshot().nodes {
            nodes.get_or_create(&NodeLabels { status: super::cluster::status(node.status) }).inc();
        }
        registry.register("nodes", "Machines by how they answer", nodes);
    }

    /// Of the ledger, which is the agent's machine's; nothing when it does not answer.
    fn bookings(&self, registry: &mut Registry) {
        let (booked, budget, unexplained) =
            (PoolGauge::default(), PoolGauge::default(), PoolGauge::default());
        let labels = |id: &str| {
            // A cluster's ledger names a pool after its node too.
            let of_cluster = self.joined.as_ref().and_then(|_| id.split_once(':'));
            let (node, pool) = of_cluster.unwrap_or((self.node.as_str(), id));
            PoolLabels { node: node.to_owned(), pool: pool.to_owned() }
        };
        let book = match self.book() {
            Ok(book) => book,
            Err(error) => {
                tracing::warn!("{error}");
                return;
            }
        };
        for pool in book.pools() {
            booked.get_or_create(&labels(pool.id.as_str())).set(pool.used.as_f64());
            if let Some(most) = pool.budget {
                budget.get_or_create(&labels(pool.id.as_str())).set(most.as_f64());
            }
            // What others use of it is what keeps the room below what the budget leaves.
            if let (true, Some(left), Some(room)) =
                (self.joined.is_some(), pool.free(), book.room(pool.id.as_str()))
            {
                unexplained.get_or_create(&labels(pool.id.as_str())).set(left.saturating_sub(room).as_f64());
            }
        }
        let occupancy = self.occupancy(&book);
        for told in occupancy.attribution.iter().chain(&occupancy.devices) {
            unexplained.get_or_create(&labels(&told.pool)).set(Bytes::new(told.unexplained_bytes).as_f64());
        }
        registry.register_with_unit("pool_booked", "What is booked of a memory", Unit::Bytes, booked);
        registry.register_with_unit("pool_budget", "What may be booked of a memory", Unit::Bytes, budget);
        registry.register_with_unit(
            "pool_unexplained",
            "What is used of a memory and nobody is known for",
            Unit::Bytes,
            unexplained,
        );
    }
}
