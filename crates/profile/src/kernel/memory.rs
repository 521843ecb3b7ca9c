//! The memory that this process may use.

use std::path::{Path, PathBuf};

use plimsoll_units::Bytes;

use super::{Machine, cgroup};
use crate::{Absence, CgroupVersion, MemoryLimit, MemoryProfile};

/// Where the first generation's "no limit" begins: it says 2^63 - 4096, or a little less with larger pages.
const NO_LIMIT: u64 = 1 << 62;

/// The memory that this process may use, and what of it is free now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// What changes rarely.
    pub profile: MemoryProfile,
    /// What is free, at most the total; `None` when that cannot be known.
    pub available: Option<Bytes>,
}

pub(super) fn read(machine: &Machine) -> Result<MemoryReading, Absence> {
    let info = machine.text("proc/meminfo")?;
    let Some(host_total) = kilobytes(&info, "MemTotal")? else {
        return Err(Absence::garbled("/proc/meminfo", "no MemTotal"));
    };
    let mut total = host_total;
    let mut limit = None;
    let mut available = kilobytes(&info, "MemAvailable").unwrap_or(None);
    for hierarchy in cgroup::hierarchies(machine, "memory") {
        for level in &hierarchy.levels {
            let files = Files::of(hierarchy.version);
            let Some(here) = files.limit(machine, level)? else { continue };
            if here < total {
                total = here;
                let path = format!("/{}", level.join(files.limit).display());
                limit = Some(MemoryLimit { path, version: hierarchy.version });
            }
            if here < host_total {
                let used = files.used(machine, level);
                let free = used.map(|used| here.saturating_sub(used));
                available = available.zip(free).map(|(a, b)| a.min(b));
            }
        }
    }
    let available = available.map(|free| free.min(total));
    Ok(MemoryReading { profile: MemoryProfile { total, host_total, limit }, available })
}

/// A line `Name:   123 kB`, in bytes.
fn kilobytes(info: &str, name: &str) -> Result<Option<Bytes>, Absence> {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let Some(rest) = line else { return Ok(None) };
    let amount = rest.trim().strip_suffix("kB").and_then(|n| n.trim().parse().ok());
    match amount.and_then(|n: u64| Bytes::new(n).checked_mul(1024)) {
        Some(amount) => Ok(Some(amount)),
        None => Err(Absence::garbled(format!("{name} in /proc/meminfo"), rest)),
    }
}

/// The names of a generation's files.
struct Files {
    limit: &'static str,
    current: &'static str,
    /// What in `memory.stat` could be given back at once: with children, then without.
    inactive: &'static [&'static str],
}

impl Files {
    const fn of(version: CgroupVersion) -> Self {
        match version {
            CgroupVersion::V1 => Self {
                limit: "memory.limit_in_bytes",
                current: "memory.usage_in_bytes",
                inactive: &["total_inactive_file", "inactive_file"],
            },
            CgroupVersion::V2 => {
                Self { limit: "memory.max", current: "memory.current", inactive: &["inactive_file"] }
            }
        }
    }

    /// The limit of one level; `None` when it has none.
    fn limit(&self, machine: &Machine, level: &Path) -> Result<Option<Bytes>, Absence> {
        let path: PathBuf = level.join(self.limit);
        // The root has no such file, and neither has a level to which the controller is not given.
        let Some(text) = machine.text_if_there(&path)? else { return Ok(None) };
        match text.trim() {
            "max" => Ok(None),
            number => match number.parse::<u64>() {
                Ok(NO_LIMIT..) => Ok(None),
                Ok(limit) => Ok(Some(Bytes::new(limit))),
                Err(_) => Err(Absence::garbled(format!("/{}", path.display()), number)),
            },
        }
    }

    /// What of one level is in use and cannot be given back at once.
    fn used(&self, machine: &Machine, level: &Path) -> Option<Bytes> {
        let current = machine.text(level.join(self.current)).ok()?;
        let current = Bytes::new(current.trim().parse().ok()?);
        // Without an account of it all counts as in use: rather too little free than too much.
        let stat = machine.text(level.join("memory.stat")).unwrap_or_default();
        let value = |name: &str| {
            let rest = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            rest.trim().parse().ok().map(Bytes::new)
        };
        let inactive = self.inactive.iter().find_map(|name| value(name)).unwrap_or(Bytes::ZERO);
        Some(current.saturating_sub(inactive))
    }
}
