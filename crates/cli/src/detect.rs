//! `plimsoll detect`.

use plimsoll::cluster::{self, ClusterSnapshot, speeds};
use plimsoll::profile::{
    Accelerator, CpuFeatures, FreeMemory, GpuBackend, Health, Presence, Probe, SystemProfile,
};
use plimsoll::units::{Bytes, BytesPerSec};
use serde::Serialize;

use crate::args::{Cli, DetectArgs, EmitArg};
use crate::failure::{Failure, Outcome};
use crate::{input, show};

#[derive(Serialize)]
struct Record {
    format: &'static str,
    node: String,
    cpu: CpuRecord,
    memory: Option<MemoryRecord>,
    accelerators: Vec<AcceleratorRecord>,
    sources: Vec<SourceRecord>,
}

#[derive(Serialize)]
struct CpuRecord {
    vendor: Option<String>,
    brand: Option<String>,
    logical: u32,
    physical: u32,
    usable: u32,
    avx2: Option<bool>,
    avx512: Option<bool>,
    neon: Option<bool>,
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
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
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

pub(crate) fn run(args: &DetectArgs, cli: &Cli) -> Outcome {
    let profile = if args.fast { SystemProfile::detect_fast() } else { SystemProfile::detect() };
    let free = FreeMemory::read(&profile);
    let snapshot = cluster::this_machine(input::node_name(), &profile, &free);
    if args.emit == Some(EmitArg::Node) {
        if cli.json {
            return Err(Failure::Input(
                "--emit prints a cluster file, which is TOML: --json does not go with it".to_owned(),
            ));
        }
        return Ok(cluster::file::write_cluster(&snapshot));
    }
    if cli.json {
        let text = serde_json::to_string_pretty(&record(&profile, &free)).map_err(Failure::internal)?;
        return Ok(text + "\n");
    }
    Ok(text(&profile, &free, &snapshot))
}

fn record(profile: &SystemProfile, free: &FreeMemory) -> Record {
    let features = profile.cpu.features.as_result().ok();
    let feature = |pick: fn(&CpuFeatures) -> bool| features.map(pick);
    let memory = profile.memory.as_result().ok();
    Record {
        format: "plimsoll.detect/1",
        node: input::node_name().to_string(),
        cpu: CpuRecord {
            vendor: profile.cpu.vendor.clone(),
            brand: profile.cpu.brand.clone(),
            logical: profile.cpu.cores.logical,
            physical: profile.cpu.cores.physical,
            usable: profile.cpu.cores.usable,
            avx2: feature(|f| f.avx2),
            avx512: feature(|f| f.avx512),
            neon: feature(|f| f.neon),
        },
        memory: memory.map(|memory| MemoryRecord {
            total_bytes: memory.total.get(),
            host_total_bytes: memory.host_total.get(),
            free_bytes: free.host.map(Bytes::get),
            limited_by: memory.limit.as_ref().map(|limit| limit.path.clone()),
        }),
        accelerators: profile.accelerators.iter().map(|a| accelerator_record(a, free)).collect(),
        sources: profile
            .sources
            .iter()
            .map(|source| SourceRecord {
                probe: source.probe.name(),
                found: source.outcome.as_result().ok().copied(),
                absent: source.outcome.as_result().err().map(ToString::to_string),
            })
            .collect(),
    }
}

fn accelerator_record(accelerator: &Accelerator, free: &FreeMemory) -> AcceleratorRecord {
    AcceleratorRecord {
        ordinal: accelerator.ordinal,
        id: accelerator.id.clone(),
        uuid: accelerator.uuid.clone(),
        pci: accelerator.pci.clone(),
        name: accelerator.name.clone(),
        backend: accelerator.backend.name(),
        total_bytes: accelerator.total.map(Bytes::get),
        free_bytes: free.accelerators.get(&accelerator.id).map(|bytes| bytes.get()),
        compute_capability: accelerator.compute_capability,
        multiprocessors: accelerator.multiprocessors,
        bandwidth_bytes_per_second: accelerator.bandwidth.map(BytesPerSec::get),
        healthy: accelerator.health.is_healthy(),
        trouble: trouble(accelerator),
    }
}

fn trouble(accelerator: &Accelerator) -> Option<String> {
    match &accelerator.health {
        Health::Healthy => None,
        Health::Unhealthy(why) => Some(why.to_string()),
    }
}

fn text(profile: &SystemProfile, free: &FreeMemory, snapshot: &ClusterSnapshot) -> String {
    let mut lines = vec![format!("{}:", input::node_name()), cpu(profile), memory(profile, free)];
    lines.extend(accelerators(profile));
    let mut out: String = lines.iter().map(|line| show::wrap(line, "  ") + "\n").collect();
    out.push_str("\nwhat plimsoll plans with:\n");
    out.push_str(&devices(snapshot));
    let unasked = profile.sources.iter().filter(|s| s.probe != Probe::Cuda);
    for source in unasked {
        if let Presence::Absent(why) = &source.outcome {
            out.push_str(&show::wrap(&format!("note: {}: {why}", source.probe.name()), "  "));
            out.push('\n');
        }
    }
    out
}

fn cpu(profile: &SystemProfile) -> String {
    let cpu = &profile.cpu;
    let brand = cpu.brand.as_deref().or(cpu.vendor.as_deref()).unwrap_or("of an unknown make");
    let cores = &cpu.cores;
    let mut text = format!(
        "  processor   {brand}: {} of {} core(s) usable, {}",
        cores.usable,
        cores.physical,
        profile.acceleration_mode().name()
    );
    if let Some(quota) = cores.quota {
        text.push_str(&format!(
            " (a quota of {:.2} processors)",
            Bytes::new(quota.quota_us).as_f64() / Bytes::new(quota.period_us).as_f64()
        ));
    }
    text
}

fn memory(profile: &SystemProfile, free: &FreeMemory) -> String {
    match profile.memory.as_result() {
        Ok(memory) => {
            let now =
                free.host.map_or_else(|| "what is free is not known".to_owned(), |f| format!("{f} free"));
            let limit = memory.limit.as_ref().map_or_else(String::new, |limit| {
                format!(" (the host has {}; limited by {})", memory.host_total, limit.path)
            });
            format!("  memory      {}, {now}{limit}", memory.total)
        }
        Err(why) => format!("  memory      not known: {why}"),
    }
}

fn accelerators(profile: &SystemProfile) -> Vec<String> {
    let found = profile.accelerators.iter().map(|accelerator| {
        let total = accelerator.total.map_or_else(|| "memory not known".to_owned(), |t| t.to_string());
        let trouble = trouble(accelerator).map_or_else(String::new, |why| format!(", not used: {why}"));
        format!("  accelerator {accelerator}: {total}{trouble}")
    });
    let mut lines: Vec<String> = found.collect();
    if lines.is_empty() {
        let why = match profile.source(Probe::Cuda) {
            Some(Presence::Absent(why)) => format!("none found: {why}"),
            Some(Presence::Found(_)) | None => "none: the driver lists none".to_owned(),
        };
        lines.push(format!("  accelerator {why}"));
    }
    lines
}

fn devices(snapshot: &ClusterSnapshot) -> String {
    let mut table = show::table(&["device", "memory", "free", "reads at"], &[1, 2]);
    for node in &snapshot.nodes {
        for device in &node.devices {
            let pool = node.pool(&device.pool);
            let told = device.bandwidth.map(|rate| rate.to_string());
            let assumed = || {
                let name = device.name.as_deref();
                let name = if device.backend == GpuBackend::Cpu { None } else { name };
                speeds::assumed_bandwidth(name, device.backend)
                    .map(|(rate, by)| format!("{rate} (assumed {by})"))
            };
            table.add_row([
                format!("{}/{}", node.id, device.id),
                pool.map_or_else(String::new, |p| p.total.to_string()),
                pool.and_then(|p| p.free).map_or_else(|| "not known".to_owned(), |f| f.to_string()),
                told.or_else(assumed).unwrap_or_else(|| "not known".to_owned()),
            ]);
        }
    }
    if snapshot.nodes.iter().all(|node| node.devices.is_empty()) {
        return "  nothing: no memory is known\n".to_owned();
    }
    show::text(&table)
}
