//! Processors, cores, affinity and quota.

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_units::Bytes;

use super::{Machine, cgroup};
use crate::{Absence, Cache, CacheKind, CgroupVersion, Cores, CpuQuota, CpuTopology, HybridCores};

/// More processors than any machine has.
const MOST: u32 = 1 << 16;

pub(super) fn read(machine: &Machine) -> Result<Cores, Absence> {
    let online = list(machine, "sys/devices/system/cpu/online")?;
    let affinity = affinity(machine)?;
    let (online, allowed) = match (online, affinity) {
        (Some(online), Some(mask)) => {
            let allowed: BTreeSet<u32> = online.intersection(&mask).copied().collect();
            (online, allowed)
        }
        (Some(online), None) => (online.clone(), online),
        (None, Some(mask)) => (mask.clone(), mask),
        (None, None) => {
            return Err(Absence::NoFile { path: "/sys/devices/system/cpu/online".to_owned() });
        }
    };
    if allowed.is_empty() {
        return Err(Absence::garbled("Cpus_allowed_list in /proc/self/status", "no processor that is on"));
    }
    // Core numbers repeat from package to package. A processor without both is a core of its own.
    let mut cores = BTreeSet::new();
    for cpu in &allowed {
        let number = |name: &str| -> Option<i64> {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
            machine.text(path).ok()?.trim().parse().ok()
        };
        cores.insert(match (number("physical_package_id"), number("core_id")) {
            (Some(package), Some(core)) => (Some(package), core),
            _ => (None, i64::from(*cpu)),
        });
    }
    let quota = quota(machine).unwrap_or(None);
    let physical = count(cores.len());
    let usable = quota.map_or(physical, |quota| physical.min(quota.processors()));
    Ok(Cores { logical: count(online.len()), allowed: count(allowed.len()), physical, quota, usable })
}

/// How the processors are put together. Reading is best effort: nothing is decided by it.
pub(super) fn topology(machine: &Machine) -> CpuTopology {
    let online = list(machine, "sys/devices/system/cpu/online").unwrap_or(None).unwrap_or_default();
    let package = |cpu: &u32| -> Option<i64> {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        machine.text(path).ok()?.trim().parse().ok()
    };
    let packages: BTreeSet<i64> = online.iter().filter_map(package).collect();
    let kind = |name: &str| list(machine, &format!("sys/devices/{name}/cpus")).unwrap_or(None);
    let hybrid = kind("cpu_core").zip(kind("cpu_atom")).map(|(performance, efficient)| HybridCores {
        performance: count(performance.len()),
        efficient: count(efficient.len()),
    });
    CpuTopology {
        packages: (!packages.is_empty()).then(|| count(packages.len())),
        hybrid,
        caches: online.first().map_or_else(Vec::new, |cpu| caches(machine, *cpu)),
    }
}

/// More caches than a processor has.
const MOST_CACHES: u32 = 16;

/// The caches of one processor.
fn caches(machine: &Machine, cpu: u32) -> Vec<Cache> {
    let cache = |index: u32| -> Option<Cache> {
        let text = |name: &str| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
            machine.text(path).ok().map(|text| text.trim().to_owned())
        };
        let kind = match text("type")?.as_str() {
            "Data" => CacheKind::Data,
            "Instruction" => CacheKind::Instruction,
            "Unified" => CacheKind::Unified,
            _ => return None,
        };
        let size = text("size")?;
        let kilobytes: u64 = size.strip_suffix('K')?.parse().ok()?;
        Some(Cache {
            level: text("level")?.parse().ok()?,
            kind,
            size: Bytes::new(kilobytes).checked_mul(1024)?,
        })
    };
    let mut found: Vec<Cache> = (0..MOST_CACHES).map_while(cache).collect();
    found.sort_unstable();
    found
}

/// As a count that a profile holds.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The processors on which this process may run.
fn affinity(machine: &Machine) -> Result<Option<BTreeSet<u32>>, Absence> {
    let Some(status) = machine.text_if_there("proc/self/status")? else { return Ok(None) };
    match status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")) {
        None => Ok(None),
        Some(text) => match parse_list(text) {
            Some(cpus) => Ok(Some(cpus)),
            None => Err(Absence::garbled("Cpus_allowed_list in /proc/self/status", text)),
        },
    }
}

fn list(machine: &Machine, path: &str) -> Result<Option<BTreeSet<u32>>, Absence> {
    let Some(text) = machine.text_if_there(path)? else { return Ok(None) };
    match parse_list(&text) {
        Some(cpus) => Ok(Some(cpus)),
        None => Err(Absence::garbled(format!("/{path}"), text)),
    }
}

/// `0-3,8`; not empty.
fn parse_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The tightest quota on the way to the root.
pub(super) fn quota(machine: &Machine) -> Result<Option<CpuQuota>, Absence> {
    let mut tightest: Option<CpuQuota> = None;
    for hierarchy in cgroup::hierarchies(machine, "cpu") {
        for level in &hierarchy.levels {
            let here = match hierarchy.version {
                CgroupVersion::V1 => quota_v1(machine, level)?,
                CgroupVersion::V2 => quota_v2(machine, level)?,
            };
            if let Some(here) = here
                && tightest.is_none_or(|so_far| is_tighter(here, so_far))
            {
                tightest = Some(here);
            }
        }
    }
    Ok(tightest)
}

/// Compares quota ÷ period without dividing.
fn is_tighter(a: CpuQuota, b: CpuQuota) -> bool {
    let cross = |x: CpuQuota, y: CpuQuota| u128::from(x.quota_us) * u128::from(y.period_us);
    cross(a, b) < cross(b, a)
}

fn quota_v1(machine: &Machine, level: &Path) -> Result<Option<CpuQuota>, Absence> {
    let path = level.join("cpu.cfs_quota_us");
    let Some(text) = machine.text_if_there(&path)? else { return Ok(None) };
    if text.trim() == "-1" {
        return Ok(None);
    }
    let garbled = || Absence::garbled(format!("/{}", path.display()), &text);
    let quota_us = text.trim().parse().map_err(|_| garbled())?;
    let period_path = level.join("cpu.cfs_period_us");
    let period = machine.text(&period_path)?;
    match period.trim().parse() {
        Ok(period_us @ 1..) => Ok(Some(CpuQuota { quota_us, period_us })),
        _ => Err(Absence::garbled(format!("/{}", period_path.display()), period)),
    }
}

/// `max 100000`, `50000 100000`, or a quota alone, of 100 ms.
fn quota_v2(machine: &Machine, level: &Path) -> Result<Option<CpuQuota>, Absence> {
    let path = level.join("cpu.max");
    let Some(text) = machine.text_if_there(&path)? else { return Ok(None) };
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next().unwrap_or(""), words.next().unwrap_or("100000"));
    if quota == "max" {
        return Ok(None);
    }
    match (quota.parse(), period.parse()) {
        (Ok(quota_us), Ok(period_us @ 1..)) => Ok(Some(CpuQuota { quota_us, period_us })),
        _ => Err(Absence::garbled(format!("/{}", path.display()), text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_ranges() {
        let list = |text: &str| parse_list(text).map(Vec::from_iter);
        assert_eq!(list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(list("5"), Some(vec![5]));
        for bad in ["", "a", "3-1", "0-99999999", "1,,2", "-1"] {
            assert_eq!(list(bad), None, "{bad}");
        }
    }

    #[test]
    fn quotas_are_rounded_down_and_never_nothing() {
        let whole = |quota_us, period_us| CpuQuota { quota_us, period_us }.processors();
        assert_eq!(whole(765_000, 100_000), 7);
        assert_eq!(whole(50_000, 100_000), 1);
        assert_eq!(whole(800_000, 100_000), 8);
        assert_eq!(whole(u64::MAX, 1), u32::MAX);
        assert_eq!(whole(7, 0), 1);
    }
}
