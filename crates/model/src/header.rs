//! What stands in the header of a model file: facts by name, tensors by shape.

use std::collections::BTreeMap;

use plimsoll_units::Bytes;

use crate::tensor::TensorType;

/// The header of a GGUF model: all its shards taken together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufHeader {
    /// The facts, by key.
    pub metadata: BTreeMap<String, Value>,
    /// The tensors, in the order of the files.
    pub tensors: Vec<Tensor>,
    /// How many bytes of tensor data the table promises beyond the end of the files; zero for a whole model.
    pub missing_bytes: Bytes,
}

/// A tensor as a header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name (`blk.0.attn_q.weight`).
    pub name: String,
    /// Its sides, the contiguous one first. Never empty; the product fits 64 bits.
    pub dims: Vec<u64>,
    /// How its values are stored.
    pub kind: TensorType,
    /// What it takes in the file, without padding.
    pub bytes: Bytes,
}

impl Tensor {
    /// How many values it holds.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |n, &d| n.saturating_mul(d))
    }
}

/// A fact of a header.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned width.
    Unsigned(u64),
    /// Any signed width.
    Signed(i64),
    /// Either width of floating point.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// Text; invalid UTF-8 is replaced.
    Text(String),
    /// A short list.
    List(Vec<Value>),
    /// A list or a text too long to keep (a vocabulary), or a list of lists: only its length is known.
    Skipped {
        /// How many items it has; of a text, how many bytes.
        len: u64,
    },
}

impl Value {
    /// As a count, where it is one: an unsigned number, or a signed one that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// As text, where it is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As yes or no, where it is that.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// How it reads in an error.
    pub(crate) fn spoken(&self) -> String {
        match self {
            Self::Unsigned(n) => n.to_string(),
            Self::Signed(n) => n.to_string(),
            Self::Float(x) => x.to_string(),
            Self::Bool(b) => b.to_string(),
            Self::Text(text) => format!("the text '{}'", shown(text)),
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Skipped { len } => format!("a list or text of {len}, too long to keep"),
        }
    }

    /// The items, where it is a list that was kept.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}

/// The most characters of a foreign name that an error repeats.
const SHOWN: usize = 100;

/// A name from a file as an error may repeat it: short, and without control characters.
pub(crate) fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if name.chars().nth(SHOWN).is_some() {
        text.push('…');
    }
    text
}
