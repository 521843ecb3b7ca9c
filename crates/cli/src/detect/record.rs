//! What `plimsoll detect --json` prints.

use plimsoll::profile::isolated::Look;
use plimsoll::profile::{Accelerator, Cache, CacheKind, CpuFeatures, Measured};
use plimsoll::units::{Bytes, BytesPerSec};
use serde::Serialize;

use super::{Card, trouble};
use crate::input;

#[derive(Serialize)]
pub(super) struct Record {
    format: &'static str,
    node: String,
    cpu: CpuRecord,
    memory: Option<MemoryRecord>,
    accelerators: Vec<AcceleratorRecord>,
    sources: Vec<SourceRecord>,
    /// Why what is free on accelerators is not known.
    free_unknown: Option<String>,
    measured: Option<MeasuredRecord>,
    /// Of each accelerator, where it was asked for.
    measured_accelerators: Vec<CardRecord>,
}

#[derive(Serialize)]
struct CpuRecord {
    vendor: Option<String>,
    brand: Option<String>,
    logical: u32,
    allowed: u32,
    physical: u32,
    usable: u32,
    packages: Option<u32>,
    performance: Option<u32>,
    efficient: Option<u32>,
    quota_us: Option<u64>,
    period_us: Option<u64>,
    caches: Vec<CacheRecord>,
    avx2: Option<bool>,
    avx512: Option<bool>,
    neon: Option<bool>,
}

#[derive(Serialize)]
struct CacheRecord {
    level: u32,
    holds: &'static str,
    bytes: u64,
}

#[derive(Serialize)]
struct MemoryRecord {
    total_bytes: u64,
    host_total_bytes: u64,
    free_bytes: Option<u64>,
    limited_by: Option<String>,
}

#[derive(Serialize)]
struct AcceleratorRecord {
    ordinal: u32,
    id: String,
    uuid: Option<String>,
    pci: Option<String>,
    name: Option<String>,
    backend: &'static str,
    kind: &'static str,
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    host_share_bytes: Option<u64>,
    largest_heap_bytes: Option<u64>,
    compute_capability: Option<(u32, u32)>,
    multiprocessors: Option<u32>,
    bandwidth_bytes_per_second: Option<u64>,
    healthy: bool,
    trouble: Option<String>,
}

#[derive(Serialize)]
struct SourceRecord {
    probe: &'static str,
    found: Option<usize>,
    absent: Option<String>,
}

#[derive(Serialize)]
struct MeasuredRecord {
    host_bytes_per_second: u64,
    read_bytes: u64,
    microseconds: u128,
    threads: u32,
    buffer_bytes: u64,
}

#[derive(Serialize)]
struct CardRecord {
    id: String,
    bytes_per_second: Option<u64>,
    moved_bytes: Option<u64>,
    microseconds: Option<u128>,
    buffer_bytes: Option<u64>,
    /// Why there is no figure.
    not_measured: Option<String>,
}

fn card(card: &Card<'_>) -> CardRecord {
    let measured = card.measured.as_ref().ok();
    CardRecord {
        id: card.accelerator.id.clone(),
        bytes_per_second: measured.map(|m| m.rate.get()),
        moved_bytes: measured.map(|m| m.moved.get()),
        microseconds: measured.map(|m| m.took.as_micros()),
        buffer_bytes: measured.map(|m| m.buffer.get()),
        not_measured: card.measured.as_ref().err().map(ToString::to_string),
    }
}

pub(super) fn record(look: &Look, measured: Option<&Measured>, cards: &[Card<'_>]) -> Record {
    let profile = &look.profile;
    let memory = profile.memory.as_result().ok();
    Record {
        format: "plimsoll.detect/1",
        node: input::node_name().to_string(),
        cpu: cpu(look),
        memory: memory.map(|memory| MemoryRecord {
            total_bytes: memory.total.get(),
            host_total_bytes: memory.host_total.get(),
            free_bytes: look.free.host.map(Bytes::get),
            limited_by: memory.limit.as_ref().map(|limit| limit.path.clone()),
        }),
        accelerators: profile.accelerators.iter().map(|a| accelerator(a, look)).collect(),
        sources: profile
            .sources
            .iter()
            .map(|source| SourceRecord {
                probe: source.probe.name(),
                found: source.outcome.as_result().ok().copied(),
                absent: source.outcome.as_result().err().map(ToString::to_string),
            })
            .collect(),
        free_unknown: look.trouble.as_ref().map(ToString::to_string),
        measured: measured.map(|m| MeasuredRecord {
            host_bytes_per_second: m.rate.get(),
            read_bytes: m.read.get(),
            microseconds: m.took.as_micros(),
            threads: m.threads,
            buffer_bytes: m.buffer.get(),
        }),
        measured_accelerators: cards.iter().map(card).collect(),
    }
}

fn cpu(look: &Look) -> CpuRecord {
    let cpu = &look.profile.cpu;
    let features = cpu.features.as_result().ok();
    let feature = |pick: fn(&CpuFeatures) -> bool| features.map(pick);
    let cache = |cache: &Cache| CacheRecord {
        level: cache.level,
        holds: match cache.kind {
            CacheKind::Data => "data",
            CacheKind::Instruction => "instructions",
            CacheKind::Unified => "both",
        },
        bytes: cache.size.get(),
    };
    CpuRecord {
        vendor: cpu.vendor.clone(),
        brand: cpu.brand.clone(),
        logical: cpu.cores.logical,
        allowed: cpu.cores.allowed,
        physical: cpu.cores.physical,
        usable: cpu.cores.usable,
        packages: cpu.topology.packages,
        performance: cpu.topology.hybrid.map(|hybrid| hybrid.performance),
        efficient: cpu.topology.hybrid.map(|hybrid| hybrid.efficient),
        quota_us: cpu.cores.quota.map(|quota| quota.quota_us),
        period_us: cpu.cores.quota.map(|quota| quota.period_us),
        caches: cpu.topology.caches.iter().map(cache).collect(),
        avx2: feature(|f| f.avx2),
        avx512: feature(|f| f.avx512),
        neon: feature(|f| f.neon),
    }
}

fn accelerator(accelerator: &Accelerator, look: &Look) -> AcceleratorRecord {
    AcceleratorRecord {
        ordinal: accelerator.ordinal,
        id: accelerator.id.clone(),
        uuid: accelerator.uuid.clone(),
        pci: accelerator.pci.clone(),
        name: accelerator.name.clone(),
        backend: accelerator.backend.name(),
        kind: accelerator.kind.name(),
        total_bytes: accelerator.total.map(Bytes::get),
        free_bytes: look.free.accelerators.get(&accelerator.id).map(|bytes| bytes.get()),
        host_share_bytes: accelerator.layout.host_share.map(Bytes::get),
        largest_heap_bytes: accelerator.layout.largest_heap.map(Bytes::get),
        compute_capability: accelerator.compute_capability,
        multiprocessors: accelerator.multiprocessors,
        bandwidth_bytes_per_second: accelerator.bandwidth.map(BytesPerSec::get),
        healthy: accelerator.health.is_healthy(),
        trouble: trouble(accelerator),
    }
}
