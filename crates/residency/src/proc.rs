//! Processes, as `/proc` shows them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Owners, ProcessId, Standing};

/// Tells which processes of this machine exist, from a mounted `/proc`.
///
/// Where there is none, or it hides other people's processes, or it shows another pid namespace than ours, nothing is
/// told and leases decide.
#[derive(Clone, Debug)]
pub struct ProcOwners {
    root: PathBuf,
    boot: Option<String>,
    // The namespace in which the numbers under `root` count; `None` when that cannot be told.
    namespace: Option<u64>,
}

impl ProcOwners {
    /// What `/proc` shows to this process.
    pub fn new() -> Self {
        Self::with_root("/proc", std::process::id())
    }

    /// What a tree like `/proc` shows to the process `me`.
    pub fn with_root(root: impl Into<PathBuf>, me: u32) -> Self {
        let root = root.into();
        let boot = fs::read_to_string(root.join("sys/kernel/random/boot_id"))
            .ok()
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty());
        // Another pid namespace's `/proc` numbers us otherwise.
        let ours = fs::read_link(root.join("self")).is_ok_and(|link| link == Path::new(&me.to_string()));
        let namespace = if ours && shows_others(&root) { namespace(&root) } else { None };
        Self { root, boot, namespace }
    }

    /// The process that has this number now; `None` when none has, or it cannot be told apart from later ones.
    pub fn identify(&self, pid: u32) -> Option<ProcessId> {
        let (boot, namespace) = (self.boot.clone()?, self.namespace?);
        let start = self.running(pid).ok()??;
        Some(ProcessId { boot, namespace, pid, start })
    }

    /// This process itself.
    pub fn this_process(&self) -> Option<ProcessId> {
        self.identify(std::process::id())
    }

    /// When the process with this number started; `None` when none runs.
    fn running(&self, pid: u32) -> io::Result<Option<u64>> {
        let folder = self.root.join(pid.to_string());
        let stat = match fs::read(folder.join("stat")) {
            Ok(stat) => stat,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (state, start) = parse(&stat).ok_or(io::ErrorKind::InvalidData)?;
        // A zombie has ended, unless only its first thread has.
        if matches!(state, b'Z' | b'X' | b'x') && threads(&folder) < 2 {
            return Ok(None);
        }
        Ok(Some(start))
    }
}

impl Default for ProcOwners {
    fn default() -> Self {
        Self::new()
    }
}

impl Owners for ProcOwners {
    fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    fn standing(&self, process: &ProcessId) -> Standing {
        if self.boot.as_deref() != Some(&process.boot) || self.namespace != Some(process.namespace) {
            return Standing::Elsewhere;
        }
        match self.running(process.pid) {
            Ok(Some(start)) if start == process.start => Standing::Alive,
            Ok(_) => Standing::Dead,
            Err(_) => Standing::Elsewhere,
        }
    }
}

/// Whether processes of other people are shown: the first process always exists, and is seldom ours.
fn shows_others(root: &Path) -> bool {
    fs::read(root.join("1/stat")).is_ok()
}

/// The namespace in which we are, from `pid:[4026531836]`.
fn namespace(root: &Path) -> Option<u64> {
    let link = fs::read_link(root.join("self/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// ENOENT before the file is opened, ESRCH (3) when the process ends while it is read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3)
}

/// State and start time, the 3rd and the 22nd field. The 2nd is a name in brackets that may hold anything.
fn parse(stat: &[u8]) -> Option<(u8, u64)> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields =
        stat.get(name_end + 1..)?.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let start = std::str::from_utf8(fields.nth(18)?).ok()?.parse().ok()?;
    Some((state, start))
}

fn threads(folder: &Path) -> usize {
    fs::read_dir(folder.join("task")).map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: char, start: u64) -> Vec<u8> {
        format!("7 (a ) b) {state} 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {start} 99 88 77").into_bytes()
    }

    #[test]
    fn a_name_may_hold_anything() {
        assert_eq!(parse(&stat('S', 4711)), Some((b'S', 4711)));
        assert_eq!(parse(b"7 (x) R 1 2 3"), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b")"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_number_that_is_used_again_is_another_process() {
        let owners = ProcOwners::new();
        let me = owners.this_process().expect("/proc is mounted");
        assert_eq!(owners.standing(&me), Standing::Alive);
        let earlier = ProcessId { start: me.start - 1, ..me.clone() };
        assert_eq!(owners.standing(&earlier), Standing::Dead);
        let elsewhere = ProcessId { namespace: me.namespace + 1, ..me.clone() };
        assert_eq!(owners.standing(&elsewhere), Standing::Elsewhere);
        let before = ProcessId { boot: "another".to_owned(), ..me };
        assert_eq!(owners.standing(&before), Standing::Elsewhere);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_ended_is_dead_even_before_its_parent_asks() {
        let owners = ProcOwners::new();
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = owners.identify(child.id()).unwrap();
        assert_eq!(owners.standing(&id), Standing::Alive);
        drop(child.stdin.take());
        // Its output ends when it does; it stays a zombie until it is waited for.
        std::io::Read::read_to_end(&mut child.stdout.take().unwrap(), &mut Vec::new()).unwrap();
        while owners.standing(&id) == Standing::Alive {
            std::thread::yield_now();
        }
        assert_eq!(owners.standing(&id), Standing::Dead);
        child.wait().unwrap();
        assert_eq!(owners.standing(&id), Standing::Dead);
    }

    #[test]
    fn where_there_is_no_proc_nothing_is_told() {
        let owners = ProcOwners::with_root("/nowhere", 7);
        assert_eq!((owners.boot(), owners.identify(7)), (None, None));
        let some = ProcessId { boot: "b".to_owned(), namespace: 1, pid: 7, start: 3 };
        assert_eq!(owners.standing(&some), Standing::Elsewhere);
    }
}
