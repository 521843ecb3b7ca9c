//! What the machine is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use plimsoll::profile::{Accelerator, Health};
use plimsoll::units::{Bytes, BytesPerSec};
use serde::Serialize;

use crate::app::App;

/// What the machine is, and how looking at it went.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ProfileRecord {
    /// `plimsoll.profile/1`.
    format: &'static str,
    /// What the machine calls itself.
    node: String,
    /// The version of the agent.
    version: &'static str,
    /// Its processors.
    cpu: CpuRecord,
    /// All of its memory that may be used; null when that is not known.
    memory_bytes: Option<u64>,
    /// What does the work: `gpu`, `avx512`, `avx2`, `neon` or `generic`.
    acceleration: &'static str,
    /// How many threads of work suit it.
    workers: u32,
    /// Its accelerators, in the order of their driver.
    accelerators: Vec<AcceleratorRecord>,
    /// What each probe came back with.
    sources: Vec<SourceRecord>,
    /// How looking went since the start.
    looks: LooksRecord,
}

/// Processors.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CpuRecord {
    /// Who made them.
    vendor: Option<String>,
    /// What they are called.
    brand: Option<String>,
    /// Logical processors.
    logical: u32,
    /// Cores.
    physical: u32,
    /// Cores that may be used.
    usable: u32,
}

/// An accelerator.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct AcceleratorRecord {
    /// Its number with its driver.
    ordinal: u32,
    /// Its lasting name.
    id: String,
    /// What people call it.
    name: Option<String>,
    /// What drives it.
    backend: &'static str,
    /// `discrete`, `integrated` or `slice`.
    kind: &'static str,
    /// All of its memory.
    total_bytes: Option<u64>,
    /// How fast it reads that.
    bandwidth_bytes_per_second: Option<u64>,
    /// Whether it can be used.
    healthy: bool,
    /// Why not.
    trouble: Option<String>,
}

/// What a probe came back with.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SourceRecord {
    /// Who was asked.
    probe: &'static str,
    /// How many things were found.
    found: Option<usize>,
    /// Why nothing was.
    absent: Option<String>,
}

/// How looks went.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LooksRecord {
    /// So many came back.
    good: u64,
    /// So many did not.
    failed: u64,
    /// Why the last of those did not.
    last_failure: Option<String>,
}

/// What this machine is.
#[utoipa::path(
    get,
    path = "/v1/profile",
    responses((status = 200, description = "What the machine is, as far as it was looked at.", body = ProfileRecord))
)]
pub(super) async fn profile(State(app): State<Arc<App>>) -> Json<ProfileRecord> {
    let profile = app.watcher.current_profile();
    let looks = app.watcher.looks();
    let cores = &profile.cpu.cores;
    Json(ProfileRecord {
        format: "plimsoll.profile/1",
        node: app.node.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        cpu: CpuRecord {
            vendor: profile.cpu.vendor.clone(),
            brand: profile.cpu.brand.clone(),
            logical: cores.logical,
            physical: cores.physical,
            usable: cores.usable,
        },
        memory_bytes: profile.memory.as_result().ok().map(|memory| memory.total.get()),
        acceleration: profile.acceleration_mode().name(),
        workers: profile.recommended_workers(),
        accelerators: profile.accelerators.iter().map(accelerator).collect(),
        sources: profile
            .sources
            .iter()
            .map(|source| SourceRecord {
                probe: source.probe.name(),
                found: source.outcome.as_result().ok().copied(),
                absent: source.outcome.as_result().err().map(ToString::to_string),
            })
            .collect(),
        looks: LooksRecord {
            good: looks.good,
            failed: looks.failed,
            last_failure: looks.last_failure.as_ref().map(ToString::to_string),
        },
    })
}

fn accelerator(found: &Accelerator) -> AcceleratorRecord {
    AcceleratorRecord {
        ordinal: found.ordinal,
        id: found.id.clone(),
        name: found.name.clone(),
        backend: found.backend.name(),
        kind: found.kind.name(),
        total_bytes: found.total.map(Bytes::get),
        bandwidth_bytes_per_second: found.bandwidth.map(BytesPerSec::get),
        healthy: found.health.is_healthy(),
        trouble: match &found.health {
            Health::Healthy => None,
            Health::Unhealthy(why) => Some(why.to_string()),
        },
    }
}
