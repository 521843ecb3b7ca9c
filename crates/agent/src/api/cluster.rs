//! The cluster that is planned on.

use std::sync::Arc;

use axum::body::Bytes as Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use plimsoll::balance::{Share, SkewReport, skew};
use plimsoll::cluster::{ClusterView, Device, Link, MemberView, Node, NodeMetrics, NodeStatus, Pool, Signal};
use plimsoll::units::{Bytes, BytesPerSec};
use serde::Serialize;

use super::read;
use crate::app::App;
use crate::error::{ApiError, chain};
use crate::joined::Joined;

/// The machines, what is free on them, and how unequally they are used. Integers are bytes.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ClusterRecord {
    /// `plimsoll.cluster/1`.
    format: &'static str,
    /// Where it comes from: `machine` (this one alone), `described` (a file), `shared`.
    source: &'static str,
    /// The machine that the agent runs on; it is none of the nodes where the cluster is described.
    agent: String,
    /// Which moment this is: it moves whenever anything here changes but for metrics.
    generation: u64,
    /// The machines, by name.
    nodes: Vec<NodeRecord>,
    /// What is known of the ways between them.
    links: Vec<LinkRecord>,
    /// How unequally devices are used.
    skew: SkewRecord,
    /// Its place in a cluster that is kept in etcd; null without one.
    membership: Option<MembershipRecord>,
}

/// A place in a cluster that is kept in etcd.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct MembershipRecord {
    /// Where it is kept.
    cluster: String,
    /// Whether the agent's machine is registered there.
    registered: bool,
    /// Whether a majority of etcd answers.
    answers: bool,
    /// What is wrong.
    trouble: Option<String>,
    /// How long ago all that is shown was certainly the latest.
    age_seconds: f64,
}

/// A machine.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NodeRecord {
    /// Its name.
    id: String,
    /// `active`, `degraded` or `failed`.
    status: &'static str,
    /// Whether nothing new is placed there.
    drained: bool,
    /// Whether it runs the engine.
    main: bool,
    /// Where its rpc server listens.
    rpc: Option<String>,
    /// Its memories.
    pools: Vec<PoolRecord>,
    /// What holds layers.
    devices: Vec<DeviceRecord>,
    /// What was measured of it.
    metrics: MetricsRecord,
}

/// A memory.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PoolRecord {
    /// Its name.
    id: String,
    /// All of it.
    total_bytes: u64,
    /// What is free; null when nobody knows.
    free_bytes: Option<u64>,
    /// What is used; null when nobody knows.
    used_bytes: Option<u64>,
    /// What the plan in force holds.
    held_bytes: u64,
    /// What is to be kept free; null leaves that to the engine.
    reserve_bytes: Option<u64>,
    /// The most that may be used.
    cap_bytes: Option<u64>,
}

/// Something that holds layers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DeviceRecord {
    /// Its name for the engine.
    id: String,
    /// What people call it.
    name: Option<String>,
    /// The memory that it draws from.
    pool: String,
    /// The most of that memory that it can use.
    limit_bytes: Option<u64>,
    /// What drives it.
    backend: &'static str,
    /// How fast it reads its memory; null when not told.
    bandwidth_bytes_per_second: Option<u64>,
    /// The driver's lasting name for it.
    uuid: Option<String>,
}

/// What was measured of a machine.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct MetricsRecord {
    /// All of its memory.
    total_bytes: u64,
    /// What is used of it, or not known to be free.
    used_bytes: u64,
    /// What is free of it.
    available_bytes: u64,
    /// How long an answer takes, in seconds.
    latency_seconds: Option<SignalRecord>,
    /// Which share of messages arrives.
    delivery_ratio: Option<SignalRecord>,
    /// How many bytes arrive in a second.
    throughput_bytes_per_second: Option<SignalRecord>,
    /// Layers on their way to it.
    streaming_layers: Vec<u32>,
}

/// Samples of one thing.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SignalRecord {
    /// The last one.
    last: f64,
    /// The smallest.
    min: f64,
    /// The largest.
    max: f64,
    /// The moving average.
    average: f64,
}

/// A way between two machines.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LinkRecord {
    /// Its ends.
    between: [String; 2],
    /// How much passes in a second; null when not told.
    bandwidth_bytes_per_second: Option<u64>,
    /// How long the first byte takes; null when not told.
    latency_seconds: Option<f64>,
}

/// How unequally devices are used.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SkewRecord {
    /// The largest available share divided by the smallest; null when the smallest is nothing and the largest is not.
    ratio: Option<f64>,
    /// From which ratio on devices are used unequally.
    threshold: f64,
    /// Whether they are.
    skewed: bool,
    /// The device with the smallest available share.
    fullest: Option<ShareRecord>,
    /// The device with the largest.
    emptiest: Option<ShareRecord>,
    /// How many devices were compared.
    devices: usize,
}

/// How much of a device is available.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ShareRecord {
    /// The device.
    device: String,
    /// What may still be placed there.
    available_bytes: u64,
    /// What could be if nothing lay there.
    capacity_bytes: u64,
}

/// The cluster that plans are made on.
#[utoipa::path(
    get,
    path = "/v1/cluster",
    responses((status = 200, description = "The machines, with what is measured of them.", body = ClusterRecord))
)]
pub(super) async fn cluster(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    // Ten thousand machines take a while.
    let work = Arc::clone(&app).blocking(|app| serde_json::to_vec(&app.cluster_record()));
    let body = work.await?;
    let body = body.map_err(|error| ApiError::fault(chain(&error)))?;
    Ok(app.aged(read::json(StatusCode::OK, Body::from(body))))
}

impl App {
    /// How unequally the devices that are planned on are used.
    pub(super) fn skew(&self) -> SkewReport {
        skew(&self.snapshot(), self.stack.balancer().config().min_load_threshold)
    }

    /// The machines with what was measured of them, as they are shown: what is booked is told apart.
    pub(super) fn shown(&self) -> ClusterView {
        let mut view = self.cluster.view();
        if self.joined.is_some() {
            let mut snapshot = (*view.snapshot).clone();
            snapshot.generation = self.snapshot().generation;
            if let Some(plan) = self.in_force() {
                snapshot = plimsoll::holding(&snapshot, &plan.file);
            }
            view.snapshot = Arc::new(snapshot);
        }
        view
    }

    fn cluster_record(&self) -> ClusterRecord {
        let view = self.shown();
        let nodes = view.snapshot.nodes.iter().zip(&view.members);
        ClusterRecord {
            format: "plimsoll.cluster/1",
            source: self.source.word(),
            agent: self.node.to_string(),
            generation: view.snapshot.generation.get(),
            nodes: nodes.map(|(node, member)| record(node, member)).collect(),
            links: view.snapshot.links.iter().map(link).collect(),
            skew: skew_record(&self.skew()),
            membership: self.joined.as_ref().map(membership),
        }
    }

    /// The answer with how old it may be, where it is of a cluster.
    pub(super) fn aged(&self, mut answer: Response) -> Response {
        if let Some(joined) = &self.joined {
            answer.headers_mut().insert(header::AGE, HeaderValue::from(joined.age().as_secs()));
        }
        answer
    }
}

fn membership(joined: &Joined) -> MembershipRecord {
    let (lost, silent) = (joined.lost(), joined.silent());
    MembershipRecord {
        cluster: joined.place(),
        registered: lost.is_none(),
        answers: silent.is_none(),
        trouble: silent.or(lost),
        age_seconds: joined.age().as_secs_f64(),
    }
}

fn record(node: &Node, member: &MemberView) -> NodeRecord {
    NodeRecord {
        id: node.id.to_string(),
        status: status(node.status),
        drained: node.drained,
        main: node.main,
        rpc: node.rpc.clone(),
        pools: node.pools.iter().map(pool).collect(),
        devices: node.devices.iter().map(device).collect(),
        metrics: metrics(&member.metrics),
    }
}

/// How a machine answers, in a word.
pub(super) fn status(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Active => "active",
        NodeStatus::Degraded => "degraded",
        NodeStatus::Failed => "failed",
    }
}

fn pool(pool: &Pool) -> PoolRecord {
    PoolRecord {
        id: pool.id.to_string(),
        total_bytes: pool.total.get(),
        free_bytes: pool.free.map(Bytes::get),
        used_bytes: pool.free.map(|free| pool.total.saturating_sub(free).get()),
        held_bytes: pool.held.get(),
        reserve_bytes: pool.reserve.map(Bytes::get),
        cap_bytes: pool.cap.map(Bytes::get),
    }
}

fn device(device: &Device) -> DeviceRecord {
    DeviceRecord {
        id: device.id.to_string(),
        name: device.name.clone(),
        pool: device.pool.to_string(),
        limit_bytes: device.limit.map(Bytes::get),
        backend: device.backend.name(),
        bandwidth_bytes_per_second: device.bandwidth.map(BytesPerSec::get),
        uuid: device.uuid.clone(),
    }
}

fn metrics(metrics: &NodeMetrics) -> MetricsRecord {
    MetricsRecord {
        total_bytes: metrics.total().get(),
        used_bytes: metrics.used().get(),
        available_bytes: metrics.available().get(),
        latency_seconds: signal(metrics.latency()),
        delivery_ratio: signal(metrics.delivery_ratio()),
        throughput_bytes_per_second: signal(metrics.throughput()),
        streaming_layers: metrics.streaming_layers().iter().copied().collect(),
    }
}

/// `None` before the first sample.
fn signal(signal: &Signal) -> Option<SignalRecord> {
    Some(SignalRecord {
        last: signal.last()?,
        min: signal.min()?,
        max: signal.max()?,
        average: signal.average()?,
    })
}

fn link(link: &Link) -> LinkRecord {
    LinkRecord {
        between: link.between.each_ref().map(ToString::to_string),
        bandwidth_bytes_per_second: link.bandwidth.map(BytesPerSec::get),
        latency_seconds: link.latency.map(|latency| latency.as_secs_f64()),
    }
}

fn skew_record(report: &SkewReport) -> SkewRecord {
    let share = |share: &Share| ShareRecord {
        device: share.device.to_string(),
        available_bytes: share.available.get(),
        capacity_bytes: share.capacity.get(),
    };
    SkewRecord {
        ratio: report.ratio.is_finite().then_some(report.ratio),
        threshold: report.threshold,
        skewed: report.skewed,
        fullest: report.fullest.as_ref().map(share),
        emptiest: report.emptiest.as_ref().map(share),
        devices: report.devices,
    }
}
