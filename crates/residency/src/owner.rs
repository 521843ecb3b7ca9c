//! Who a booking lives and dies with.

use std::fmt;

/// One process, told apart from every other that ever had the same number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessId {
    /// The boot during which it runs.
    pub boot: String,
    /// The pid namespace in which `pid` counts.
    pub namespace: u64,
    /// Its number there.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub start: u64,
}

/// `pid 4711`.
impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("pid {}", self.pid))
    }
}

/// What can be told about a process from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It runs.
    Alive,
    /// It has ended: its number is free, or belongs to another process now.
    Dead,
    /// It counts in another boot or another pid namespace, or cannot be seen: its lease decides.
    Elsewhere,
}

/// Which processes exist. Asked on every decision, so an answer should take microseconds.
pub trait Owners: fmt::Debug + Send + Sync {
    /// The boot during which we run, where that is known. What nobody owns ends with it.
    fn boot(&self) -> Option<&str>;

    /// What can be told about this process.
    fn standing(&self, process: &ProcessId) -> Standing;
}

/// Knows no process and no boot: owned bookings live as long as their leases, others until they are released.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOwners;

impl Owners for NoOwners {
    fn boot(&self) -> Option<&str> {
        None
    }

    fn standing(&self, _process: &ProcessId) -> Standing {
        Standing::Elsewhere
    }
}
