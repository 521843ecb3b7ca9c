//! The models that may be named by path: those below one folder.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use plimsoll::model::gguf::read_gguf;
use plimsoll::model::{GgufHeader, ModelSpec, OpenError};

/// So many headers are kept.
const KEPT: usize = 64;

/// The folder below which models may be named, with the headers that were read there.
#[derive(Debug)]
pub(crate) struct Models {
    root: PathBuf,
    kept: Mutex<BTreeMap<PathBuf, (State, Arc<ModelSpec>)>>,
}

/// What the files of a folder were when a header was read: with the same, the header is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State(Vec<(PathBuf, u64, Option<SystemTime>)>);

/// A model that was named.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) path: PathBuf,
    pub(crate) state: State,
}

/// A file that is loaded beside a model.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) header: GgufHeader,
    pub(crate) path: PathBuf,
    pub(crate) state: State,
}

/// Why models cannot be named by path.
#[derive(Debug, thiserror::Error)]
#[error("the folder of models {} cannot be read", path.display())]
pub struct ModelsError {
    path: PathBuf,
    source: std::io::Error,
}

/// Why a name names no model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NameError {
    /// It could lead anywhere.
    #[error(
        "the model '{name}' must be a path below the folder of models, of names alone: no '..', no '/' before them"
    )]
    Form { name: String },
    /// It leads out of the folder.
    #[error("the model '{name}' leads out of the folder of models (through '{}')", through.display())]
    Outside { name: String, through: PathBuf },
    /// There is nothing of that name.
    #[error("there is no model '{name}' below the folder of models")]
    Missing { name: String },
    /// It is neither a file nor a folder.
    #[error("the model '{name}' is neither a file nor a folder")]
    Kind { name: String },
    /// The file is no model.
    #[error("the model '{name}' cannot be read")]
    Open { name: String, source: Box<OpenError> },
    /// The model has no layers.
    #[error("the model '{name}' has no layers")]
    Empty { name: String },
}

impl Models {
    /// Models below this folder.
    pub(crate) fn below(root: &Path) -> Result<Self, ModelsError> {
        let wrong = |source| ModelsError { path: root.to_owned(), source };
        let found = root.canonicalize().map_err(wrong)?;
        std::fs::read_dir(&found).map_err(wrong)?;
        Ok(Self { root: found, kept: Mutex::default() })
    }

    /// The model of this name. Its header is read when it has changed since the last time; blocks.
    pub(crate) fn open(&self, name: &str) -> Result<Found, NameError> {
        let path = self.resolve(name)?;
        let state = self.state(name, &path)?;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
        if let Some((_, spec)) = kept.filter(|(was, _)| *was == state) {
            return Ok(Found { spec, path, state });
        }
        let opened = plimsoll::model::open(&path);
        let spec =
            opened.map_err(|source| NameError::Open { name: name.to_owned(), source: Box::new(source) })?;
        if spec.layer_count() == 0 {
            return Err(NameError::Empty { name: name.to_owned() });
        }
        let spec = Arc::new(spec);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT && !kept.contains_key(&path) {
            kept.pop_first();
        }
        kept.insert(path.clone(), (state.clone(), Arc::clone(&spec)));
        Ok(Found { spec, path, state })
    }

    /// The GGUF file of this name, which need not be a model; blocks.
    pub(crate) fn piece(&self, name: &str) -> Result<Piece, NameError> {
        let path = self.resolve(name)?;
        let state = self.state(name, &path)?;
        let header = read_gguf(&path).map_err(|source| NameError::Open {
            name: name.to_owned(),
            source: Box::new(OpenError::Gguf(source)),
        })?;
        Ok(Piece { header, path, state })
    }

    fn resolve(&self, name: &str) -> Result<PathBuf, NameError> {
        let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        // A backslash parts names elsewhere, and nothing good has a control character in its name.
        if name.is_empty() || !plain || name.contains('\\') || name.chars().any(char::is_control) {
            return Err(NameError::Form { name: name.to_owned() });
        }
        let path = self.root.join(name);
        let real = path.canonicalize().map_err(|_| NameError::Missing { name: name.to_owned() })?;
        if real.starts_with(&self.root) {
            Ok(real)
        } else {
            Err(NameError::Outside { name: name.to_owned(), through: path })
        }
    }

    /// What lies in the folder of a model, its parts among it. None of that may lead elsewhere, for readers follow it.
    fn state(&self, name: &str, path: &Path) -> Result<State, NameError> {
        let missing = || NameError::Missing { name: name.to_owned() };
        let kind = std::fs::metadata(path).map_err(|_| missing())?;
        if !kind.is_file() && !kind.is_dir() {
            return Err(NameError::Kind { name: name.to_owned() });
        }
        let folder = if kind.is_dir() { path } else { path.parent().ok_or_else(missing)? };
        let mut state = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|_| missing())? {
            let Ok(entry) = entry else { continue };
            let file = entry.path();
            if !is_part_of_a_model(&file) {
                continue;
            }
            let Ok(real) = file.canonicalize() else { continue };
            if !real.starts_with(&self.root) {
                return Err(NameError::Outside { name: name.to_owned(), through: file });
            }
            let Ok(found) = std::fs::metadata(&real) else { continue };
            // A pipe by that name would be waited for.
            if !found.is_file() && !found.is_dir() {
                return Err(NameError::Kind { name: name.to_owned() });
            }
            state.push((real, found.len(), found.modified().ok()));
        }
        state.sort();
        Ok(State(state))
    }
}

impl State {
    /// The same in bytes, to be part of a key.
    pub(crate) fn key(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn is_part_of_a_model(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("gguf" | "safetensors" | "json" | "toml"))
}
