//! Rules for manifests: what is inherited, what is absent, what a package is called.

use toml::{Table, Value};

/// Keys that every package takes from the workspace.
const INHERITED: &[&str] = &["edition", "license", "rust-version", "version"];

/// Keys that name people or places.
const ABSENT: &[&str] = &["authors", "documentation", "homepage", "repository"];

pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let problems = match (manifest.get("workspace"), manifest.get("package")) {
        // A workspace of its own, such as the fuzz targets, inherits nothing.
        (Some(_), Some(package)) => absent(package),
        (Some(workspace), None) => check_workspace(workspace),
        (None, _) => check_package(path, &manifest),
    };
    problems.into_iter().map(|problem| format!("{path}: {problem}")).collect()
}

fn check_workspace(workspace: &Value) -> Vec<String> {
    let Some(package) = workspace.get("package") else { return vec!["no [workspace.package]".to_owned()] };
    let missing = INHERITED.iter().filter(|key| package.get(**key).and_then(Value::as_str).is_none());
    let mut problems: Vec<String> =
        missing.map(|key| format!("[workspace.package] must state `{key}`")).collect();
    problems.extend(absent(package));
    problems
}

fn check_package(path: &str, manifest: &Table) -> Vec<String> {
    let Some(package) = manifest.get("package") else { return vec!["no [package]".to_owned()] };
    let mut problems = Vec::new();
    for key in INHERITED {
        if !inherits(package.get(*key)) {
            problems.push(format!("[package] must say `{key}.workspace = true`"));
        }
    }
    problems.extend(absent(package));
    if !inherits(manifest.get("lints")) {
        problems.push("[lints] must say `workspace = true`".to_owned());
    }
    if package.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
        problems.push("[package] must have a description".to_owned());
    }
    let name = package.get("name").and_then(Value::as_str).unwrap_or_default();
    if let Some(expected) = name_for(path).filter(|expected| expected != name) {
        problems.push(format!("the package is called `{name}`, its folder asks for `{expected}`"));
    }
    problems
}

fn inherits(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

fn absent(package: &Value) -> Vec<String> {
    let present = ABSENT.iter().filter(|key| package.get(**key).is_some());
    present.map(|key| format!("`{key}` names people or places")).collect()
}

/// What the package in this folder is called, when the folder decides it.
fn name_for(path: &str) -> Option<String> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["crates", "plimsoll", _] => Some("plimsoll".to_owned()),
        ["crates", folder, _] => Some(format!("plimsoll-{folder}")),
        ["benches", _] => Some("plimsoll-benches".to_owned()),
        ["xtask", _] => Some("xtask".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/model/Cargo.toml";
    const GOOD: &str = "[package]\nname = \"plimsoll-model\"\ndescription = \"A\"\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";

    #[test]
    fn a_manifest_that_inherits_passes() {
        assert_eq!(check(PATH, GOOD), Vec::<String>::new());
    }

    #[test]
    fn each_key_that_is_not_inherited_fails() {
        for key in INHERITED {
            let expected = format!("{PATH}: [package] must say `{key}.workspace = true`");
            let without = GOOD.replace(&format!("\n{key}.workspace = true"), "");
            assert_eq!(check(PATH, &without), [expected.as_str()]);
            let own = GOOD.replace(&format!("\n{key}.workspace = true"), &format!("\n{key} = \"1\""));
            assert_eq!(check(PATH, &own), [expected.as_str()]);
        }
    }

    #[test]
    fn lints_must_be_inherited() {
        let expected = [format!("{PATH}: [lints] must say `workspace = true`")];
        assert_eq!(check(PATH, &GOOD.replace("[lints]\nworkspace = true\n", "")), expected);
        assert_eq!(
            check(PATH, &GOOD.replace("[lints]\nworkspace = true", "[lints]\nworkspace = false")),
            expected
        );
    }

    #[test]
    fn people_and_places_fail_in_packages_and_in_the_workspace() {
        for key in ABSENT {
            let named = GOOD.replace("[package]\n", &format!("[package]\n{key} = \"a\"\n"));
            assert_eq!(check(PATH, &named), [format!("{PATH}: `{key}` names people or places")]);
        }
        let root = "[workspace.package]\nversion = \"1.0.0\"\nedition = \"2024\"\nlicense = \"MIT\"\n\
            repository = \"a\"\n";
        assert_eq!(
            check("Cargo.toml", root),
            [
                "Cargo.toml: [workspace.package] must state `rust-version`",
                "Cargo.toml: `repository` names people or places",
            ]
        );
    }

    #[test]
    fn a_package_is_called_as_its_folder_asks() {
        let misnamed = GOOD.replace("plimsoll-model", "plimsoll-models");
        let expected = "the package is called `plimsoll-models`, its folder asks for `plimsoll-model`";
        assert_eq!(check(PATH, &misnamed), [format!("{PATH}: {expected}")]);
        let facade = GOOD.replace("plimsoll-model", "plimsoll");
        assert_eq!(check("crates/plimsoll/Cargo.toml", &facade), Vec::<String>::new());
    }

    #[test]
    fn a_workspace_of_its_own_inherits_nothing() {
        let fuzz = "[package]\nname = \"a\"\nversion = \"0.0.0\"\n[workspace]\n";
        assert_eq!(check("crates/model/fuzz/Cargo.toml", fuzz), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_manifest_fails() {
        assert_eq!(check(PATH, "[package").len(), 1);
        assert_eq!(check(PATH, ""), [format!("{PATH}: no [package]")]);
    }

    #[test]
    fn a_package_says_what_it_is() {
        let silent = GOOD.replace("description = \"A\"\n", "");
        assert_eq!(check(PATH, &silent), [format!("{PATH}: [package] must have a description")]);
    }
}
