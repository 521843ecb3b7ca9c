//! Where the control groups of this process are, from its own up to the root.

use std::path::{Component, Path, PathBuf};

use super::Machine;
use crate::CgroupVersion;

/// One hierarchy of control groups, as far as this process can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: CgroupVersion,
    /// The directories from the process's own group up to the mount point, named from the machine's root.
    pub(super) levels: Vec<PathBuf>,
}

/// A mounted hierarchy.
struct Mount {
    version: CgroupVersion,
    /// The group that is mounted.
    root: String,
    /// Where.
    point: String,
}

/// The hierarchies that may limit this process through `controller` (`memory`, `cpu`); none where there are no control
/// groups.
pub(super) fn hierarchies(machine: &Machine, controller: &str) -> Vec<Hierarchy> {
    let Ok(groups) = machine.text("proc/self/cgroup") else { return Vec::new() };
    let mounts = mounts(machine, controller);
    let mut found = Vec::new();
    for version in [CgroupVersion::V2, CgroupVersion::V1] {
        let Some(group) = own_group(&groups, version, controller) else { continue };
        let candidates = mounts.iter().filter(|m| m.version == version);
        // The mount that shows the most of the way down to this group.
        let best = candidates
            .map(|mount| (below(&mount.root, group), mount))
            .max_by_key(|(rest, mount)| rest.map_or(0, |_| 1 + mount.root.len()));
        if let Some((rest, mount)) = best {
            found.push(Hierarchy { version, levels: levels(&mount.point, rest.unwrap_or("")) });
        }
    }
    found
}

/// The group of this process in a line such as `4:memory:/a/b` or, for the second generation, `0::/a/b`.
fn own_group<'t>(groups: &'t str, version: CgroupVersion, controller: &str) -> Option<&'t str> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let ours = match version {
            CgroupVersion::V2 => controllers.is_empty(),
            CgroupVersion::V1 => controllers.split(',').any(|c| c == controller),
        };
        ours.then_some(path)
    })
}

/// The mounted hierarchies: `id parent dev ROOT POINT options.. - TYPE source OPTIONS`.
fn mounts(machine: &Machine, controller: &str) -> Vec<Mount> {
    let text = machine.text("proc/self/mountinfo").unwrap_or_default();
    let parse = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, point) = (unescape(front.next()?), unescape(front.next()?));
        let mut back = back.split(' ');
        let version = match back.next()? {
            "cgroup2" => CgroupVersion::V2,
            "cgroup" if back.nth(1)?.split(',').any(|o| o == controller) => CgroupVersion::V1,
            _ => return None,
        };
        Some(Mount { version, root, point })
    };
    let mounts: Vec<Mount> = text.lines().filter_map(parse).collect();
    if !mounts.is_empty() {
        return mounts;
    }
    // Where the mounts are not told, the usual places.
    let usual = |version, point: String| Mount { version, root: "/".to_owned(), point };
    vec![
        usual(CgroupVersion::V2, "/sys/fs/cgroup".to_owned()),
        usual(CgroupVersion::V1, format!("/sys/fs/cgroup/{controller}")),
    ]
}

/// Spaces, tabs, line ends and backslashes stand as `\040` and the like.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (plain, escaped) = rest.split_at(at);
        out.push_str(plain);
        match escaped.get(1..4).and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => {
                out.push(char::from(code));
                rest = &escaped[4..];
            }
            None => {
                out.push('\\');
                rest = &escaped[1..];
            }
        }
    }
    out + rest
}

/// What of `group` lies below `root`; `None` when it lies elsewhere.
fn below<'g>(root: &str, group: &'g str) -> Option<&'g str> {
    let rest = group.strip_prefix(root.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The directories from the group up to the mount point.
fn levels(point: &str, rest: &str) -> Vec<PathBuf> {
    let bottom: PathBuf = Path::new(point.trim_start_matches('/')).components().collect();
    let steps: Vec<Component<'_>> =
        Path::new(rest).components().filter(|c| !matches!(c, Component::RootDir)).collect();
    // A way that leads out of what is mounted (`/../other`) shows nothing below the mount point.
    let plain = steps.iter().all(|c| matches!(c, Component::Normal(_)));
    let count = if plain { steps.len() } else { 0 };
    (0..=count).rev().map(|n| steps[..n].iter().fold(bottom.clone(), |path, step| path.join(step))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_leads_from_the_own_group_to_the_mount_point() {
        let shown = |point: &str, rest: &str| -> Vec<String> {
            levels(point, rest).iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(
            shown("/sys/fs/cgroup", "/a/b"),
            ["sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"]
        );
        assert_eq!(shown("/sys/fs/cgroup", ""), ["sys/fs/cgroup"]);
        assert_eq!(shown("/sys/fs/cgroup", "/../other"), ["sys/fs/cgroup"]);
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_is_not_below_it() {
        assert_eq!(below("/", "/a/b"), Some("/a/b"));
        assert_eq!(below("/a", "/a/b"), Some("/b"));
        assert_eq!(below("/a", "/a"), Some(""));
        assert_eq!(below("/a", "/ab"), None);
        assert_eq!(below("/docker/1", "/"), None);
    }

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescape(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescape(r"/a\04"), r"/a\04");
        assert_eq!(unescape(r"/a\ä"), r"/a\ä");
    }
}
