//! Apple's systems, which tell their memory by commands.

use plimsoll_units::Bytes;

#[cfg(target_os = "macos")]
use crate::{Absence, MemoryProfile, MemoryReading};

/// The memory of this machine. No control group limits it.
#[cfg(target_os = "macos")]
pub(super) fn read() -> Result<MemoryReading, Absence> {
    let text = said("/usr/sbin/sysctl", &["-n", "hw.memsize"])?;
    let known = text.trim().parse().ok().map(Bytes::new).filter(|total| !total.is_zero());
    let total = known.ok_or_else(|| Absence::garbled("sysctl hw.memsize", &text))?;
    let free = said("/usr/bin/vm_stat", &[]).ok().and_then(|text| available(&text));
    Ok(MemoryReading {
        profile: MemoryProfile { total, host_total: total, limit: None },
        available: free.map(|free| free.min(total)),
    })
}

#[cfg(target_os = "macos")]
fn said(command: &str, arguments: &[&str]) -> Result<String, Absence> {
    let failed = |why: String| Absence::Unreadable { path: command.to_owned(), why };
    let output = std::process::Command::new(command).args(arguments).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What `vm_stat` counts as free, inactive and purgeable, in bytes.
fn available(text: &str) -> Option<Bytes> {
    let (_, rest) = text.split_once("page size of ")?;
    let page: u64 = rest.split_whitespace().next()?.parse().ok()?;
    let pages = |name: &str| -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().trim_end_matches('.').parse().ok()
    };
    let counts = [pages("Pages free:")?, pages("Pages inactive:")?, pages("Pages purgeable:").unwrap_or(0)];
    Bytes::checked_sum(counts.map(Bytes::new))?.checked_mul(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_can_be_had_are_counted_in_bytes() {
        let text = "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n\
                    Pages free:                               60000.\n\
                    Pages active:                            900000.\n\
                    Pages inactive:                          100000.\n\
                    Pages purgeable:                           4000.\n";
        assert_eq!(available(text), Some(Bytes::new(164_000 * 16_384)));
        for bad in ["", "page size of x", "page size of 16384 bytes\nPages free: 1.\n"] {
            assert_eq!(available(bad), None, "{bad}");
        }
    }
}
