//! A profile as lines of text, exact to the byte.

use std::fmt::Write as _;

use plimsoll_profile::{
    Accelerator, CacheKind, DeviceMetrics, Health, Metrics, Presence, Probe, SystemProfile,
};
use plimsoll_units::Bytes;

fn exact(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.exact().to_string())
}

/// All that is known of a machine but its registers, and these too when they were recorded.
pub(crate) fn machine(profile: &SystemProfile, metrics: &Metrics, registers: bool) -> String {
    let mut out = String::new();
    let cpu = &profile.cpu;
    if registers {
        let features = cpu.features.as_result().map(|f| (f.avx2, f.avx512)).unwrap();
        let (vendor, brand) = (cpu.vendor.as_deref().unwrap(), cpu.brand.as_deref().unwrap());
        writeln!(out, "{vendor}, {brand}, (avx2, avx512) {features:?}").unwrap();
        let kind = |kind| match kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        let caches = cpu.topology.caches.iter();
        let caches: Vec<_> =
            caches.map(|c| format!("L{}{} {}", c.level, kind(c.kind), c.size.exact())).collect();
        let caches = if caches.is_empty() { "-".to_owned() } else { caches.join(", ") };
        writeln!(out, "caches {caches}").unwrap();
    }
    let cores = &cpu.cores;
    let quota = cores.quota.map_or_else(|| "-".to_owned(), |q| format!("{}/{}", q.quota_us, q.period_us));
    let hybrid = cpu.topology.hybrid.map_or_else(String::new, |h| {
        format!(", {} performance and {} efficient", h.performance, h.efficient)
    });
    writeln!(
        out,
        "packages {}, logical {}, allowed {}, physical {}, quota {quota}, usable {}{hybrid}",
        cpu.topology.packages.map_or_else(|| "-".to_owned(), |n| n.to_string()),
        cores.logical,
        cores.allowed,
        cores.physical,
        cores.usable,
    )
    .unwrap();
    match profile.memory.as_result() {
        Ok(memory) => {
            let limit = memory.limit.as_ref().map_or("-", |limit| limit.path.as_str());
            let free = metrics.host.as_result().ok().copied();
            let (total, host) = (memory.total.exact(), memory.host_total.exact());
            writeln!(out, "memory {total} of {host}, free {}, limit {limit}", exact(free)).unwrap();
        }
        Err(why) => writeln!(out, "memory absent: {why}").unwrap(),
    }
    for probe in [Probe::Amdgpu, Probe::Intel] {
        match profile.source(probe).unwrap() {
            Presence::Found(count) => writeln!(out, "{probe}: {count}").unwrap(),
            Presence::Absent(why) => writeln!(out, "{probe}: absent: {why}").unwrap(),
        }
    }
    for gpu in &profile.accelerators {
        out.push_str(&accelerator(gpu, &metrics.accelerators[&gpu.id]));
    }
    out
}

fn accelerator(gpu: &Accelerator, live: &DeviceMetrics) -> String {
    let health = match &gpu.health {
        Health::Healthy => "healthy".to_owned(),
        Health::Unhealthy(why) => format!("unhealthy: {why}"),
    };
    let share = gpu.layout.host_share.map_or_else(String::new, |share| format!(", share {}", share.exact()));
    let free = live.free.as_result().ok().copied();
    format!(
        "{gpu}: {} {}, {health}\n  total {}{share}, free {}\n",
        gpu.backend,
        gpu.kind,
        exact(gpu.total),
        exact(free)
    )
}
