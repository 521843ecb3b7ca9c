//! The difference between two profiles, in words.

use std::collections::BTreeSet;

use plimsoll_profile::{
    Accelerator, CpuFeatures, CpuProfile, Health, MemoryProfile, Presence, Probe, SystemProfile,
};

/// What came, went or changed from `old` to `new`, a line each: accelerators first, in their order, then memory,
/// processors, and probes that began or ceased to answer. Nothing when there is no difference.
///
/// ```text
/// GPU 1 'RTX 4090' GPU-… gone
/// memory: 32 GiB, was 64 GiB (limit /sys/fs/cgroup/job/memory.max)
/// usable cores: 4, was 8
/// ```
pub fn describe_changes(old: &SystemProfile, new: &SystemProfile) -> Vec<String> {
    let mut changes = Vec::new();
    accelerators(&mut changes, &old.accelerators, &new.accelerators);
    memory(&mut changes, &old.memory, &new.memory);
    processors(&mut changes, &old.cpu, &new.cpu);
    probes(&mut changes, old, new);
    changes
}

fn accelerators(changes: &mut Vec<String>, old: &[Accelerator], new: &[Accelerator]) {
    let in_list = |list: &[Accelerator], wanted: &Accelerator| list.iter().any(|a| a.id == wanted.id);
    for gone in old.iter().filter(|a| !in_list(new, a)) {
        changes.push(format!("{gone} gone"));
    }
    for now in new {
        match old.iter().find(|a| a.id == now.id) {
            None => {
                let ill = match &now.health {
                    Health::Healthy => String::new(),
                    Health::Unhealthy(why) => format!(", unhealthy: {why}"),
                };
                changes.push(format!("{now} new{ill}"));
            }
            Some(before) => accelerator(changes, before, now),
        }
    }
}

fn accelerator(changes: &mut Vec<String>, old: &Accelerator, new: &Accelerator) {
    if old.health != new.health {
        changes.push(match &new.health {
            Health::Healthy => format!("{new} healthy again"),
            Health::Unhealthy(why) => format!("{new} unhealthy: {why}"),
        });
    }
    let mut tell = |what: &str, old: Option<String>, new_value: Option<String>| {
        if old != new_value {
            let shown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
            changes.push(format!("{new} {what}: {}, was {}", shown(new_value), shown(old)));
        }
    };
    tell("number", Some(old.ordinal.to_string()), Some(new.ordinal.to_string()));
    tell("name", old.name.clone(), new.name.clone());
    tell("place", old.pci.clone(), new.pci.clone());
    tell("uuid", old.uuid.clone(), new.uuid.clone());
    tell("driver", Some(old.backend.to_string()), Some(new.backend.to_string()));
    tell("kind", Some(old.kind.to_string()), Some(new.kind.to_string()));
    let exact = |a: &Accelerator| a.total.map(|total| total.exact().to_string());
    tell("memory", exact(old), exact(new));
    let capability = |a: &Accelerator| a.compute_capability.map(|(major, minor)| format!("{major}.{minor}"));
    tell("compute capability", capability(old), capability(new));
    let count = |a: &Accelerator| a.multiprocessors.map(|n| n.to_string());
    tell("multiprocessors", count(old), count(new));
    let rate = |a: &Accelerator| a.bandwidth.map(|rate| rate.to_string());
    tell("bandwidth", rate(old), rate(new));
}

fn memory(changes: &mut Vec<String>, old: &Presence<MemoryProfile>, new: &Presence<MemoryProfile>) {
    if old == new {
        return;
    }
    let size = |memory: &Presence<MemoryProfile>| match memory {
        Presence::Found(memory) => memory.total.exact().to_string(),
        Presence::Absent(_) => "unknown".to_owned(),
    };
    let why = match new {
        Presence::Found(MemoryProfile { limit: Some(limit), .. }) => format!("limit {}", limit.path),
        Presence::Found(memory) => format!("of {} in the host", memory.host_total.exact()),
        Presence::Absent(why) => why.to_string(),
    };
    changes.push(format!("memory: {}, was {} ({why})", size(new), size(old)));
}

fn processors(changes: &mut Vec<String>, old: &CpuProfile, new: &CpuProfile) {
    let brand = |cpu: &CpuProfile| cpu.brand.clone().or_else(|| cpu.vendor.clone());
    if (&old.brand, &old.vendor) != (&new.brand, &new.vendor) {
        let shown = |cpu: &CpuProfile| brand(cpu).unwrap_or_else(|| "unknown".to_owned());
        changes.push(format!("processor: {}, was {}", shown(new), shown(old)));
    }
    let flags = |cpu: &CpuProfile| {
        let CpuFeatures { avx2, avx512, neon } = match &cpu.features {
            Presence::Found(features) => *features,
            Presence::Absent(_) => CpuFeatures::default(),
        };
        [("avx2", avx2), ("avx512", avx512), ("neon", neon)]
    };
    for ((name, before), (_, now)) in flags(old).into_iter().zip(flags(new)) {
        if before != now {
            changes.push(format!("{name} {}", if now { "new" } else { "gone" }));
        }
    }
    let counts = |cpu: &CpuProfile| {
        let cores = &cpu.cores;
        let quota = cores.quota.map_or("none".to_owned(), |q| format!("{}/{} us", q.quota_us, q.period_us));
        [
            ("logical processors", cores.logical.to_string()),
            ("allowed processors", cores.allowed.to_string()),
            ("physical cores", cores.physical.to_string()),
            ("quota", quota),
            ("usable cores", cores.usable.to_string()),
        ]
    };
    for ((name, before), (_, now)) in counts(old).into_iter().zip(counts(new)) {
        if before != now {
            changes.push(format!("{name}: {now}, was {before}"));
        }
    }
}

/// Probes that began or ceased to answer, or failed in another way; how many things they found is told above.
fn probes(changes: &mut Vec<String>, old: &SystemProfile, new: &SystemProfile) {
    let all: BTreeSet<Probe> = old.sources.iter().chain(&new.sources).map(|source| source.probe).collect();
    for probe in all {
        match (old.source(probe), new.source(probe)) {
            (Some(Presence::Absent(before)), Some(Presence::Absent(now))) if before == now => {}
            (_, Some(Presence::Absent(why))) => changes.push(format!("probe '{probe}' finds nothing: {why}")),
            (Some(Presence::Absent(_)), Some(Presence::Found(_))) => {
                changes.push(format!("probe '{probe}' answers again"));
            }
            _ => {}
        }
    }
}
