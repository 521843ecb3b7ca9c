//! Which crate may know which: the architecture as a table that fails.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use cargo_metadata::{DependencyKind, Metadata, Package};

use crate::shell;

/// Who may name whom, lowest first.
///
/// A row names only rows above it, so every arrow goes down.
/// A crate that has no row fails the check.
const MAY_USE: &[(&str, &[&str])] = &[
    ("plimsoll-units", &[]),
    ("plimsoll-model", &["plimsoll-units"]),
    ("plimsoll-profile", &["plimsoll-units"]),
    ("plimsoll-residency", &["plimsoll-units"]),
    ("plimsoll-cluster", &["plimsoll-units", "plimsoll-profile"]),
    ("plimsoll-watcher", &["plimsoll-units", "plimsoll-profile"]),
    ("plimsoll-balance", &["plimsoll-units", "plimsoll-model", "plimsoll-profile", "plimsoll-cluster"]),
    // A command line names addresses and kinds of device, which stand in the snapshot.
    ("plimsoll-export", &["plimsoll-units", "plimsoll-model", "plimsoll-cluster", "plimsoll-balance"]),
    // What decides stands below; this keeps it where all machines of a cluster see it.
    (
        "plimsoll-etcd",
        &["plimsoll-units", "plimsoll-profile", "plimsoll-residency", "plimsoll-cluster", "plimsoll-watcher"],
    ),
    (
        "plimsoll-simulate",
        &["plimsoll-units", "plimsoll-model", "plimsoll-residency", "plimsoll-cluster", "plimsoll-balance"],
    ),
    (
        "plimsoll",
        &[
            "plimsoll-units",
            "plimsoll-model",
            "plimsoll-profile",
            "plimsoll-residency",
            "plimsoll-cluster",
            "plimsoll-watcher",
            "plimsoll-balance",
            "plimsoll-export",
            "plimsoll-etcd",
            "plimsoll-simulate",
        ],
    ),
    // Over HTTP what the command says on a terminal.
    ("plimsoll-agent", &["plimsoll"]),
    ("plimsoll-cli", &["plimsoll", "plimsoll-agent"]),
    // Beside the ranks: unpublished, and unknown to every published crate.
    ("plimsoll-testkit", &["plimsoll-units", "plimsoll-model", "plimsoll-profile", "plimsoll-cluster"]),
    (
        "plimsoll-benches",
        &[
            "plimsoll-units",
            "plimsoll-model",
            "plimsoll-profile",
            "plimsoll-residency",
            "plimsoll-cluster",
            "plimsoll-watcher",
            "plimsoll-balance",
            "plimsoll-export",
            "plimsoll-etcd",
            "plimsoll",
            "plimsoll-testkit",
        ],
    ),
    ("xtask", &[]),
];

/// The one crate that tests, and only tests, may use from anywhere.
const FOR_TESTS: &str = "plimsoll-testkit";

/// Rows that are not released.
const UNPUBLISHED: &[&str] = &[FOR_TESTS, "plimsoll-benches", "xtask"];

/// Where default features are allowed: what people install or start from.
const MAY_HAVE_DEFAULTS: &[&str] = &["plimsoll", "plimsoll-cli"];

/// Who sees machines as plain data, and so may switch on no probe.
const DATA_ONLY: &[&str] =
    &["plimsoll-cluster", "plimsoll-watcher", "plimsoll-balance", "plimsoll-etcd", FOR_TESTS];

/// Features of `plimsoll-profile` that bring no probe.
const DATA_FEATURES: &[&str] = &["serde"];

/// Checks the workspace in this folder and says so.
pub(crate) fn run() -> Result<()> {
    println!("layers: {}", checked()?);
    Ok(())
}

/// What was checked, when nothing is wrong.
pub(crate) fn checked() -> Result<String> {
    let metadata = shell::metadata()?;
    let problems = check(&metadata);
    if !problems.is_empty() {
        bail!("{}\nThe table of arrows is `MAY_USE` in xtask/src/layers.rs.", problems.join("\n"));
    }
    Ok(format!("{} crates, every arrow goes down", metadata.packages.len()))
}

/// How far down the table a crate has its row; unknown crates come last.
pub(crate) fn rank(name: &str) -> usize {
    MAY_USE.iter().position(|(row, _)| *row == name).unwrap_or(MAY_USE.len())
}

/// Everything that is wrong, one line each.
fn check(metadata: &Metadata) -> Vec<String> {
    let members: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    metadata.packages.iter().flat_map(|package| check_package(package, &members)).collect()
}

fn check_package(package: &Package, members: &BTreeSet<&str>) -> Vec<String> {
    let name = package.name.as_str();
    let Some((_, may_use)) = MAY_USE.iter().find(|(row, _)| *row == name) else {
        return vec![format!("{name} has no row in the table of arrows")];
    };
    let mut problems = Vec::new();
    for dependency in &package.dependencies {
        let to = dependency.name.as_str();
        if !members.contains(to) {
            continue;
        }
        let for_tests = dependency.kind == DependencyKind::Development && to == FOR_TESTS;
        if !may_use.contains(&to) && !for_tests {
            let kind =
                if dependency.kind == DependencyKind::Development { ", not even in its tests" } else { "" };
            problems.push(format!("{name} must not depend on {to}{kind}"));
        }
        if dependency.path.is_none() {
            problems.push(format!("{name} takes {to} from a registry instead of this workspace"));
        }
        if to == "plimsoll-profile" && DATA_ONLY.contains(&name) {
            let probes = dependency.features.iter().filter(|feature| is_probe(feature));
            problems
                .extend(probes.map(|feature| format!("{name} must not switch on {to}'s feature {feature}")));
        }
    }
    for (feature, enables) in &package.features {
        for forwarded in enables.iter().filter_map(|enabled| enabled.strip_prefix("plimsoll-profile/")) {
            if DATA_ONLY.contains(&name) && is_probe(forwarded) {
                problems.push(format!("{name}'s feature {feature} must not switch on a probe ({forwarded})"));
            }
        }
    }
    let defaults = package.features.get("default").is_some_and(|enables| !enables.is_empty());
    if defaults && !MAY_HAVE_DEFAULTS.contains(&name) {
        problems.push(format!("{name} is a library crate and must have no default features"));
    }
    match (shell::is_published(package), UNPUBLISHED.contains(&name)) {
        (true, true) => problems.push(format!("{name} must say `publish = false`")),
        (false, false) => {
            problems.push(format!("{name} belongs to the release and must not say `publish = false`"))
        }
        _ => {}
    }
    problems
}

fn is_probe(feature: &str) -> bool {
    !DATA_FEATURES.contains(&feature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A crate of a made-up workspace, as `cargo metadata` would print it.
    fn made_up(name: &str, dependencies: &[Value]) -> Value {
        let publish = if UNPUBLISHED.contains(&name) { json!([]) } else { Value::Null };
        json!({
            "name": name, "version": "0.1.0", "id": format!("path+file:///ws/{name}#0.1.0"), "publish": publish,
            "dependencies": dependencies, "targets": [], "features": {}, "manifest_path": format!("/ws/{name}/Cargo.toml"),
        })
    }

    fn arrow(to: &str, kind: Value) -> Value {
        json!({
            "name": to, "source": null, "req": "*", "kind": kind, "rename": null, "optional": false,
            "uses_default_features": true, "features": [], "target": null, "path": format!("/ws/{to}"), "registry": null,
        })
    }

    /// Every crate of the table, with one of them replaced.
    fn workspace(replaced: &Value) -> Metadata {
        let rows =
            MAY_USE.iter().filter(|(row, _)| replaced["name"] != *row).map(|(row, _)| made_up(row, &[]));
        let packages: Vec<Value> = rows.chain([replaced.clone()]).collect();
        let text = json!({
            "packages": packages, "workspace_members": [], "workspace_default_members": [], "resolve": null,
            "target_directory": "/ws/target", "version": 1, "workspace_root": "/ws", "metadata": null,
        });
        cargo_metadata::MetadataCommand::parse(text.to_string()).unwrap()
    }

    #[test]
    fn every_row_names_only_rows_above_it() {
        let mut above = BTreeSet::new();
        for (row, may_use) in MAY_USE {
            assert!(may_use.iter().all(|to| above.contains(to)), "{row} points up: {may_use:?}");
            assert!(above.insert(row), "{row} has two rows");
        }
    }

    #[test]
    fn an_arrow_passes_when_the_table_has_it_and_fails_when_it_does_not() {
        let mut forbidden = 0;
        for (from, may_use) in MAY_USE {
            for (to, _) in MAY_USE.iter().filter(|(to, _)| to != from) {
                let problems = check(&workspace(&made_up(from, &[arrow(to, Value::Null)])));
                if may_use.contains(to) {
                    assert_eq!(problems, Vec::<String>::new());
                } else {
                    forbidden += 1;
                    assert_eq!(problems, [format!("{from} must not depend on {to}")]);
                }
            }
        }
        assert!(forbidden > MAY_USE.len(), "{forbidden}");
    }

    #[test]
    fn tests_of_any_crate_may_use_the_testkit_and_nothing_else_that_is_unpublished() {
        let dev = |to| check(&workspace(&made_up("plimsoll-balance", &[arrow(to, json!("dev"))])));
        assert_eq!(dev("plimsoll-testkit"), Vec::<String>::new());
        assert_eq!(
            dev("plimsoll-benches"),
            ["plimsoll-balance must not depend on plimsoll-benches, not even in its tests"]
        );
        assert_eq!(
            dev("plimsoll-residency"),
            ["plimsoll-balance must not depend on plimsoll-residency, not even in its tests"]
        );
        let build =
            check(&workspace(&made_up("plimsoll-balance", &[arrow("plimsoll-testkit", json!("build"))])));
        assert_eq!(build, ["plimsoll-balance must not depend on plimsoll-testkit"]);
    }

    #[test]
    fn a_crate_without_a_row_fails() {
        assert_eq!(
            check(&workspace(&made_up("plimsoll-extra", &[]))),
            ["plimsoll-extra has no row in the table of arrows"]
        );
    }

    #[test]
    fn a_library_crate_with_default_features_fails_and_the_facade_may_have_them() {
        let with_defaults = |name: &str| {
            let mut package = made_up(name, &[]);
            package["features"] = json!({"default": ["gguf"], "gguf": []});
            check(&workspace(&package))
        };
        assert_eq!(
            with_defaults("plimsoll-model"),
            ["plimsoll-model is a library crate and must have no default features"]
        );
        assert_eq!(with_defaults("plimsoll"), Vec::<String>::new());
    }

    #[test]
    fn a_crate_that_sees_machines_as_data_cannot_switch_a_probe_on() {
        let mut dependency = arrow("plimsoll-profile", Value::Null);
        dependency["features"] = json!(["cuda", "serde"]);
        let mut package = made_up("plimsoll-cluster", &[dependency]);
        package["features"] = json!({"file": ["plimsoll-profile/serde"], "fast": ["plimsoll-profile/cpu"]});
        assert_eq!(
            check(&workspace(&package)),
            [
                "plimsoll-cluster must not switch on plimsoll-profile's feature cuda",
                "plimsoll-cluster's feature fast must not switch on a probe (cpu)",
            ]
        );
    }

    #[test]
    fn a_sister_crate_from_a_registry_fails() {
        let mut dependency = arrow("plimsoll-units", Value::Null);
        dependency["path"] = Value::Null;
        let problems = check(&workspace(&made_up("plimsoll-model", &[dependency])));
        assert_eq!(
            problems,
            ["plimsoll-model takes plimsoll-units from a registry instead of this workspace"]
        );
    }

    #[test]
    fn what_is_not_released_says_so_and_what_is_released_does_not() {
        let mut kit = made_up("plimsoll-testkit", &[]);
        kit["publish"] = Value::Null;
        assert_eq!(check(&workspace(&kit)), ["plimsoll-testkit must say `publish = false`"]);
        let mut units = made_up("plimsoll-units", &[]);
        units["publish"] = json!([]);
        assert_eq!(
            check(&workspace(&units)),
            ["plimsoll-units belongs to the release and must not say `publish = false`"]
        );
    }
}
