//! What the kernel tells in files: processors, memory, limits.

#[cfg(any(test, target_os = "macos"))]
mod apple;
mod boot;
mod cgroup;
mod cores;
mod drm;
mod memory;
mod xdp;

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

pub use memory::MemoryReading;

use plimsoll_units::Bytes;

use crate::{Absence, Accelerator, Cores, CpuQuota, CpuTopology, DeviceMetrics, Presence, RegisterDump};

/// How many bytes of a kernel file are read at most.
const LIMIT: u64 = 4 << 20;

/// A machine as its kernel describes it, under some root directory: `/`, or a captured tree.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    registers: Option<RegisterDump>,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn here() -> Self {
        Self::at("/")
    }

    /// The machine whose `/proc` and `/sys` lie under `root`.
    pub fn at(root: impl AsRef<Path>) -> Self {
        Self { root: root.as_ref().to_owned(), registers: None }
    }

    /// The same machine with these recorded registers in place of those of the processor at hand.
    pub fn with_registers(self, registers: RegisterDump) -> Self {
        Self { registers: Some(registers), ..self }
    }

    /// Recorded registers.
    pub(crate) fn registers(&self) -> Option<&RegisterDump> {
        self.registers.as_ref()
    }

    /// How many processors there are and how many may be used. A quota that cannot be read counts as none; see
    /// [`Machine::cpu_quota`].
    pub fn cores(&self) -> Presence<Cores> {
        cores::read(self).into()
    }

    /// How the processors are put together.
    pub fn topology(&self) -> CpuTopology {
        cores::topology(self)
    }

    /// The tightest quota of processor time on the way to the root of the control groups; `None` when there is none.
    pub fn cpu_quota(&self) -> Presence<Option<CpuQuota>> {
        cores::quota(self).into()
    }

    /// The memory that this process may use, and what of it is free.
    ///
    /// The total is the host's or the tightest limit on the way to the root of the control groups, of both generations.
    /// A limit that cannot be read makes it unknown: neither nothing nor everything. What is free is the least of what the
    /// kernel calls available and, under every limit, limit − (current − inactive file pages). Swap and soft limits do
    /// not count.
    pub fn memory(&self) -> Presence<MemoryReading> {
        #[cfg(target_os = "macos")]
        if self.root == Path::new("/") {
            return apple::read().into();
        }
        memory::read(self).into()
    }

    /// AMD's cards. `host` is the host's memory, of which no card can map more.
    pub(crate) fn amd(&self, host: Option<Bytes>) -> Presence<Vec<Accelerator>> {
        drm::amd(self, host).into()
    }

    /// Live figures of one of AMD's cards.
    pub(crate) fn amd_metrics(&self, accelerator: &Accelerator) -> DeviceMetrics {
        drm::amd_metrics(self, accelerator)
    }

    /// Intel's cards.
    pub(crate) fn intel(&self) -> Presence<Vec<Accelerator>> {
        drm::intel(self).into()
    }

    /// The brand of the first processor, where the kernel tells it.
    pub(crate) fn cpu_brand(&self) -> Option<String> {
        let text = self.text("proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        let (_, brand) = line.split_once(':')?;
        Some(brand.trim().to_owned()).filter(|brand| !brand.is_empty())
    }

    /// The text of a file, named from the root without a leading slash.
    fn text(&self, path: impl AsRef<Path>) -> Result<String, Absence> {
        let path = path.as_ref();
        let shown = || format!("/{}", path.display());
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Absence::NoFile { path: shown() },
            _ => Absence::Unreadable { path: shown(), why: error.to_string() },
        };
        let mut bytes = Vec::new();
        let file = File::open(self.root.join(path)).map_err(failed)?;
        file.take(LIMIT).read_to_end(&mut bytes).map_err(failed)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text of a file, `None` when there is none.
    fn text_if_there(&self, path: impl AsRef<Path>) -> Result<Option<String>, Absence> {
        match self.text(path) {
            Ok(text) => Ok(Some(text)),
            Err(Absence::NoFile { .. }) => Ok(None),
            Err(why) => Err(why),
        }
    }
}
