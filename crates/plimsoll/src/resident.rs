//! What processes really use of the host's memory, as `/proc` tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use plimsoll_units::Bytes;

/// Every process that can be seen, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    seen: BTreeMap<u32, Seen>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    parent: u32,
    name: String,
    resident: Bytes,
}

impl Processes {
    /// Looks at this machine; empty where there is no `/proc`.
    pub fn look() -> Self {
        Self::look_at(Path::new("/proc"))
    }

    /// Looks at a tree like `/proc`. What ends or hides while it is read is left out.
    pub fn look_at(root: &Path) -> Self {
        let Ok(entries) = fs::read_dir(root) else { return Self::default() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let seen = pids.filter_map(|pid| {
            let status = fs::read_to_string(root.join(pid.to_string()).join("status")).ok()?;
            Some((pid, read(&status)?))
        });
        Self { seen: seen.collect() }
    }

    /// A process and all that descend from it.
    pub fn tree(&self, root: u32) -> BTreeSet<u32> {
        let mut tree: BTreeSet<u32> = self.seen.contains_key(&root).then_some(root).into_iter().collect();
        let mut last = 0;
        // A child may have a smaller number than its parent, so until nothing is added.
        while tree.len() > last {
            last = tree.len();
            let children = self.seen.iter().filter(|(_, seen)| tree.contains(&seen.parent));
            let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
            tree.extend(children);
        }
        tree
    }

    /// The resident sets of these processes together. What several of them share is counted for each.
    pub fn resident<'a>(&self, pids: impl IntoIterator<Item = &'a u32>) -> Bytes {
        let sets = pids.into_iter().filter_map(|pid| self.seen.get(pid)).map(|seen| seen.resident);
        Bytes::saturating_sum(sets)
    }

    /// Whether this process can be seen.
    pub fn has(&self, pid: u32) -> bool {
        self.seen.contains_key(&pid)
    }

    /// What this process is called; `None` when it cannot be seen.
    pub fn name(&self, pid: u32) -> Option<&str> {
        self.seen.get(&pid).map(|seen| seen.name.as_str())
    }

    /// Every process but these: its name, its number, its resident set; the largest first.
    pub fn others(&self, known: &BTreeSet<u32>) -> Vec<(String, u32, Bytes)> {
        let others = self.seen.iter().filter(|(pid, _)| !known.contains(pid));
        let mut others: Vec<_> = others.map(|(pid, seen)| (seen.name.clone(), *pid, seen.resident)).collect();
        others.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(&b.1)));
        others
    }
}

/// The lines that matter of a `status` file. A process of the kernel has no resident set.
fn read(status: &str) -> Option<Seen> {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let resident = field("VmRSS").and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
    Some(Seen {
        parent: field("PPid")?.parse().ok()?,
        name: field("Name")?.to_owned(),
        resident: Bytes::new(1024).saturating_mul(resident.unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, parent: u32, kib: u64) -> (u32, Seen) {
        let status = format!("Name:\tp{pid}\nState:\tS (sleeping)\nPPid:\t{parent}\nVmRSS:\t{kib:>8} kB\n");
        (pid, read(&status).unwrap())
    }

    #[test]
    fn a_tree_is_a_process_and_all_that_descend_from_it() {
        let all = [seen(1, 0, 1), seen(50, 1, 10), seen(7, 50, 20), seen(9, 7, 40), seen(60, 1, 80)];
        let processes = Processes { seen: all.into_iter().collect() };
        let tree = processes.tree(50);
        assert_eq!(tree, BTreeSet::from([7, 9, 50]));
        assert_eq!(processes.resident(&tree), Bytes::kib(70));
        assert_eq!(processes.tree(4711), BTreeSet::new());
        assert_eq!((processes.has(9), processes.has(8)), (true, false));
        assert_eq!((processes.name(9), processes.name(8)), (Some("p9"), None));
        let names: Vec<String> = processes.others(&tree).into_iter().map(|other| other.0).collect();
        assert_eq!(names, ["p60", "p1"]);
    }

    #[test]
    fn a_process_of_the_kernel_has_no_resident_set() {
        let kernel = read("Name:\tkthreadd\nPPid:\t0\n").unwrap();
        assert_eq!(kernel.resident, Bytes::ZERO);
        assert_eq!(read("Name:\tx\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_resident() {
        let processes = Processes::look();
        let me = std::process::id();
        assert!(!processes.resident(&processes.tree(me)).is_zero());
    }
}
