//! Layer lists: a model described by hand, as TOML or JSON.
//!
//! ```
//! use plimsoll_model::list::parse_list_toml;
//!
//! let list = parse_list_toml("layers = [{ bytes = 14 }, { count = 2, bytes = '3GB', cut = false }]")?;
//! assert_eq!(list.layers.len(), 3);
//! assert!(list.layers[0].cut_after && !list.layers[2].cut_after);
//!
//! let error = parse_list_toml("layers = []\nlayrs = []").unwrap_err();
//! assert!(error.to_string().starts_with("layer list, line 2: unknown field `layrs`"));
//! # Ok::<(), plimsoll_model::list::ListProblem>(())
//! ```

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use plimsoll_units::Bytes;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// The most layers of a list, all counts expanded.
const MOST_LAYERS: u64 = 1_000_000;

/// The longest file that is read, in bytes.
const LONGEST_FILE: u64 = 64 << 20;

/// A model as a list of layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerList {
    /// What it is called; empty where nothing says so.
    pub name: String,
    /// What stands before the first layer.
    pub input_bytes: Bytes,
    /// What stands behind the last layer.
    pub head_bytes: Bytes,
    /// The layers in order, counts expanded. May be empty. All their bytes together fit 64 bits.
    pub layers: Vec<ListedLayer>,
}

/// A layer of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedLayer {
    /// The bytes of its weights.
    pub bytes: Bytes,
    /// The key-value bytes it takes whatever the context.
    pub kv_bytes: Bytes,
    /// The key-value bytes it takes for each token of context.
    pub kv_bytes_per_token: Option<Bytes>,
    /// How many weights it has.
    pub weights: u64,
    /// Whether a stage may end right after it.
    pub cut_after: bool,
}

/// Why a layer list cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The file cannot be read.
    #[error("cannot read the layer list {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The file is too long to be meant.
    #[error("the layer list {} has {found} bytes; at most {LONGEST_FILE} can be read", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// How long it is.
        found: u64,
    },
    /// Neither TOML nor JSON, by the name.
    #[error("the layer list {} must end in .toml or .json", file.display())]
    Extension {
        /// The file.
        file: PathBuf,
    },
    /// The text is not a layer list.
    #[error("{}: {problem}", file.display())]
    In {
        /// The file.
        file: PathBuf,
        /// What is wrong with the text.
        problem: ListProblem,
    },
}

/// What is wrong with the text of a layer list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListProblem {
    /// Bad syntax, an unknown key, a missing key or a bad value.
    #[error("layer list, line {line}: {message}")]
    Text {
        /// Which line, from 1.
        line: usize,
        /// What is wrong there; an unknown or missing key is named.
        message: String,
    },
    /// More layers than any model has.
    #[error("layer list: {found} layers; at most {MOST_LAYERS} are allowed")]
    TooManyLayers {
        /// How many there are.
        found: u64,
    },
    /// All bytes together do not fit 64 bits.
    #[error("layer list: the bytes up to layer {layer} add up to more than 18446744073709551615 (2^64 - 1)")]
    Overflow {
        /// The layer where the sum no longer fits.
        layer: usize,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListText {
    #[serde(default)]
    name: String,
    #[serde(default)]
    input_bytes: Bytes,
    #[serde(default)]
    head_bytes: Bytes,
    layers: Vec<Table<LayerText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerText {
    #[serde(default = "one")]
    count: u64,
    bytes: Bytes,
    #[serde(default)]
    kv_bytes: Bytes,
    #[serde(default)]
    kv_bytes_per_token: Option<Bytes>,
    #[serde(default)]
    weights: u64,
    #[serde(default = "yes")]
    cut: bool,
}

/// Keys and values; nothing that leaves the keys out, which a derived form would take.
struct Table<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TableVisitor(PhantomData))
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = Table<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("keys with values")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Table)
    }
}

const fn one() -> u64 {
    1
}

const fn yes() -> bool {
    true
}

/// Reads a layer list; the extension says whether it is TOML or JSON. A list without a name is called after its file.
///
/// # Errors
///
/// See [`ListError`].
pub fn read_list(path: &Path) -> Result<LayerList, ListError> {
    let file = || path.to_owned();
    let parse = match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => parse_list_toml,
        Some("json") => parse_list_json,
        _ => return Err(ListError::Extension { file: file() }),
    };
    let found = fs::metadata(path).map_err(|source| ListError::Read { file: file(), source })?.len();
    if found > LONGEST_FILE {
        return Err(ListError::TooLong { file: file(), found });
    }
    let text = fs::read_to_string(path).map_err(|source| ListError::Read { file: file(), source })?;
    let mut list = parse(&text).map_err(|problem| ListError::In { file: file(), problem })?;
    if list.name.is_empty() {
        list.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    Ok(list)
}

/// Reads a layer list from TOML.
///
/// # Errors
///
/// See [`ListProblem`].
pub fn parse_list_toml(text: &str) -> Result<LayerList, ListProblem> {
    let Table(list) = toml::from_str(text).map_err(|error| {
        let begin = error.span().map_or(0, |span| span.start).min(text.len());
        let line = 1 + text.as_bytes()[..begin].iter().filter(|&&b| b == b'\n').count();
        ListProblem::Text { line, message: error.message().to_owned() }
    })?;
    expand(list)
}

/// Reads a layer list from JSON.
///
/// # Errors
///
/// See [`ListProblem`].
pub fn parse_list_json(text: &str) -> Result<LayerList, ListProblem> {
    let Table(list) = serde_json::from_str(text).map_err(|error| ListProblem::Text {
        line: error.line(),
        message: crate::json::without_place(&error),
    })?;
    expand(list)
}

fn expand(text: ListText) -> Result<LayerList, ListProblem> {
    let found = text.layers.iter().fold(0_u64, |n, layer| n.saturating_add(layer.0.count));
    if found > MOST_LAYERS {
        return Err(ListProblem::TooManyLayers { found });
    }
    let mut layers = Vec::new();
    for Table(layer) in &text.layers {
        let listed = ListedLayer {
            bytes: layer.bytes,
            kv_bytes: layer.kv_bytes,
            kv_bytes_per_token: layer.kv_bytes_per_token,
            weights: layer.weights,
            cut_after: layer.cut,
        };
        layers.extend((0..layer.count).map(|_| listed));
    }
    let fixed = text.input_bytes.checked_add(text.head_bytes);
    let mut sum = fixed.ok_or(ListProblem::Overflow { layer: 0 })?;
    let mut per_token = Bytes::ZERO;
    let mut weights = 0_u64;
    for (index, layer) in layers.iter().enumerate() {
        let overflow = ListProblem::Overflow { layer: index };
        let all = sum.checked_add(layer.bytes).and_then(|sum| sum.checked_add(layer.kv_bytes));
        let per_token_now = per_token.checked_add(layer.kv_bytes_per_token.unwrap_or_default());
        let weights_now = weights.checked_add(layer.weights);
        let (Some(all), Some(tokens), Some(count)) = (all, per_token_now, weights_now) else {
            return Err(overflow);
        };
        (sum, per_token, weights) = (all, tokens, count);
    }
    Ok(LayerList { name: text.name, input_bytes: text.input_bytes, head_bytes: text.head_bytes, layers })
}
