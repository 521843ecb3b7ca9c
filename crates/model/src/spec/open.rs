//! Models from paths.

use std::path::{Path, PathBuf};

use crate::spec::{ModelSpec, SpecError};

/// Why a path cannot be opened as a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path cannot be looked at.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// It is in no form that this build reads.
    #[error("{} is none of the forms that can be read here ({FORMS})", path.display())]
    UnknownForm {
        /// The path.
        path: PathBuf,
    },
    /// Not a good GGUF.
    #[cfg(feature = "gguf")]
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    /// Not a good checkpoint.
    #[cfg(feature = "safetensors")]
    #[error(transparent)]
    Safetensors(#[from] crate::safetensors::SafetensorsError),
    /// Not a good list of layers.
    #[cfg(feature = "list")]
    #[error(transparent)]
    List(#[from] crate::list::ListError),
    /// Read, but not a model.
    #[error("{} cannot be planned", path.display())]
    Spec {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: SpecError,
    },
}

/// The forms that this build reads.
const FORMS: &str = if cfg!(all(feature = "gguf", feature = "safetensors", feature = "list")) {
    "a GGUF, a safetensors checkpoint, a .toml or .json list of layers"
} else if cfg!(all(feature = "gguf", feature = "safetensors")) {
    "a GGUF, a safetensors checkpoint"
} else if cfg!(feature = "gguf") {
    "a GGUF"
} else if cfg!(feature = "safetensors") {
    "a safetensors checkpoint"
} else {
    "a .toml or .json list of layers"
};

/// The forms of models on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Gguf,
    Checkpoint,
    List,
}

/// Opens a model: a GGUF (any of its parts), a safetensors folder, index or file, or a list of layers in TOML or JSON.
///
/// A model that tells no name is called after its file or folder.
///
/// # Errors
///
/// A path that cannot be read, is in no known form, or holds no model.
pub fn open(path: &Path) -> Result<ModelSpec, OpenError> {
    let form = form_of(path)?;
    match form.ok_or_else(|| OpenError::UnknownForm { path: path.to_owned() })? {
        #[cfg(feature = "gguf")]
        Form::Gguf => from_gguf(&crate::gguf::read_gguf(path)?, path),
        #[cfg(feature = "safetensors")]
        Form::Checkpoint => from_checkpoint(&crate::safetensors::read_safetensors(path)?, path),
        #[cfg(feature = "list")]
        Form::List => Ok(ModelSpec::from_list(&crate::list::read_list(path)?)),
        #[cfg(not(all(feature = "gguf", feature = "safetensors", feature = "list")))]
        _ => Err(OpenError::UnknownForm { path: path.to_owned() }),
    }
}

/// Opens a model on a server: a GGUF (any of its parts, all are read), a safetensors file or index, or an address that ends
/// in `/` with one of both below it, all with the `config.json` beside them.
///
/// Nothing but headers is read. Errors and the model's name show the address without name, password and query.
///
/// # Errors
///
/// As [`open`]; what a server can get wrong is an [`HttpError`](crate::http::HttpError) among their sources.
#[cfg(feature = "http")]
pub fn open_url(url: &crate::http::Url, client: &crate::http::Client) -> Result<ModelSpec, OpenError> {
    use std::io::Read;

    use crate::files::Files;

    let files = crate::http::OnServer { client, url };
    let path = url.shown_path();
    let unreadable = |source| OpenError::Read { path: path.clone(), source };
    let unknown = || OpenError::UnknownForm { path: path.clone() };
    let form = match form_by_name(&path) {
        _ if files.is_folder(&path).map_err(unreadable)? => Form::Checkpoint,
        Some(form) => form,
        // Stores that call files by their digest have no endings.
        None => {
            let opened = files.open(&path).map_err(unreadable)?;
            let mut begin = Vec::new();
            if let Some((file, _)) = opened {
                file.take(4).read_to_end(&mut begin).map_err(unreadable)?;
            }
            if begin == b"GGUF" { Form::Gguf } else { return Err(unknown()) }
        }
    };
    match form {
        #[cfg(feature = "gguf")]
        Form::Gguf => from_gguf(&crate::gguf::read_gguf_of(&files, &path)?, &path),
        #[cfg(feature = "safetensors")]
        Form::Checkpoint => from_checkpoint(&crate::safetensors::read_safetensors_of(&files, &path)?, &path),
        _ => Err(unknown()),
    }
}

#[cfg(feature = "gguf")]
fn from_gguf(header: &crate::GgufHeader, path: &Path) -> Result<ModelSpec, OpenError> {
    let spec = ModelSpec::from_gguf(header).map_err(|source| not_a_model(path, source))?;
    let is_named = header.metadata.contains_key("general.name");
    Ok(if is_named { spec } else { spec.with_name(name_of(path)) })
}

#[cfg(feature = "safetensors")]
fn from_checkpoint(checkpoint: &crate::safetensors::Checkpoint, path: &Path) -> Result<ModelSpec, OpenError> {
    let name = name_of(path);
    ModelSpec::from_checkpoint(&name, checkpoint).map_err(|source| not_a_model(path, source))
}

#[cfg(any(feature = "gguf", feature = "safetensors"))]
fn not_a_model(path: &Path, source: SpecError) -> OpenError {
    OpenError::Spec { path: path.to_owned(), source }
}

/// Which form a path is in, by its first bytes and its name.
fn form_of(path: &Path) -> Result<Option<Form>, OpenError> {
    let unreadable = |source| OpenError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(Some(Form::Checkpoint));
    }
    if begins_with_magic(path).map_err(unreadable)? {
        return Ok(Some(Form::Gguf));
    }
    Ok(form_by_name(path))
}

fn form_by_name(path: &Path) -> Option<Form> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("gguf") => Some(Form::Gguf),
        Some("safetensors") => Some(Form::Checkpoint),
        Some("json") if name.ends_with(".safetensors.index.json") => Some(Form::Checkpoint),
        Some("toml" | "json") => Some(Form::List),
        _ => None,
    }
}

fn begins_with_magic(path: &Path) -> std::io::Result<bool> {
    use std::io::Read;
    let mut begin = Vec::new();
    std::fs::File::open(path)?.take(4).read_to_end(&mut begin)?;
    Ok(begin == b"GGUF")
}

/// A name after a path: the file without its extension and shard number; for a checkpoint's files the folder they are in.
#[cfg(any(feature = "gguf", feature = "safetensors"))]
fn name_of(path: &Path) -> String {
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let text =
        |name: Option<&std::ffi::OsStr>| name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if whole.is_dir() {
        return text(whole.file_name());
    }
    let stem = text(whole.file_stem());
    let stem = without_part(&stem);
    // Checkpoints are named by their folder; within it, all have files of the same names.
    if stem == "model" || stem.ends_with(".index") {
        return text(whole.parent().and_then(Path::file_name));
    }
    stem.to_owned()
}

/// `big-00001-of-00003` as `big`.
#[cfg(any(feature = "gguf", feature = "safetensors"))]
fn without_part(stem: &str) -> &str {
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    let parts = stem.rsplit_once("-of-").filter(|(_, count)| digits(count));
    let base = parts.and_then(|(rest, _)| rest.rsplit_once('-')).filter(|(_, number)| digits(number));
    base.map_or(stem, |(base, _)| base)
}
