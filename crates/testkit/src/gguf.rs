//! Writes small GGUF files: right ones, and wrong ones where a test asks for it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A fact of a header.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Type 0.
    U8(u8),
    /// Type 1.
    I8(i8),
    /// Type 2.
    U16(u16),
    /// Type 3.
    I16(i16),
    /// Type 4.
    U32(u32),
    /// Type 5.
    I32(i32),
    /// Type 6.
    F32(f32),
    /// Type 7.
    Bool(bool),
    /// Type 8.
    Text(String),
    /// Type 8, with bytes that need not be UTF-8.
    Raw(Vec<u8>),
    /// Type 9: the number of the item type, and items of that type.
    List(u32, Vec<Value>),
    /// Type 10.
    U64(u64),
    /// Type 11.
    I64(i64),
    /// Type 12.
    F64(f64),
}

impl Value {
    /// The number of its type.
    pub const fn kind(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Text(_) | Self::Raw(_) => 8,
            Self::List(..) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u32> for Value {
    fn from(n: u32) -> Self {
        Self::U32(n)
    }
}

/// A tensor of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its sides, the contiguous one first.
    pub dims: Vec<u64>,
    /// The number of its type.
    pub type_id: u32,
    /// What it takes, without padding.
    pub bytes: u64,
    /// Where its data begins; `None` is right behind the tensor before it.
    pub offset: Option<u64>,
}

/// How much of the data of the tensors is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// All of it, as a hole in the file.
    Whole,
    /// Only the first so many bytes, as a hole.
    First(u64),
}

/// A GGUF file in the making.
#[derive(Clone, Debug, PartialEq)]
pub struct Writer {
    /// The version word.
    pub version: u32,
    /// The byte order.
    pub big_endian: bool,
    /// What data is padded to. Written as a fact only by [`Writer::aligned`].
    pub alignment: u64,
    /// The facts, in order.
    pub facts: Vec<(String, Value)>,
    /// The tensors, in order.
    pub tensors: Vec<Tensor>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Version 3, little-endian, aligned to 32, no facts and no tensors.
    pub const fn new() -> Self {
        Self { version: 3, big_endian: false, alignment: 32, facts: Vec::new(), tensors: Vec::new() }
    }

    /// Adds a fact.
    #[must_use]
    pub fn fact(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.facts.push((key.to_owned(), value.into()));
        self
    }

    /// Sets the alignment and says so in a fact.
    #[must_use]
    pub fn aligned(mut self, alignment: u32) -> Self {
        self.alignment = alignment.into();
        self.fact("general.alignment", alignment)
    }

    /// Adds a tensor right behind the one before it.
    #[must_use]
    pub fn tensor(self, name: &str, dims: &[u64], type_id: u32, bytes: u64) -> Self {
        self.push(name, dims, (type_id, bytes), None)
    }

    /// Adds a tensor whose data is said to begin at `offset`.
    #[must_use]
    pub fn tensor_at(self, name: &str, dims: &[u64], type_id: u32, bytes: u64, offset: u64) -> Self {
        self.push(name, dims, (type_id, bytes), Some(offset))
    }

    fn push(mut self, name: &str, dims: &[u64], (type_id, bytes): (u32, u64), offset: Option<u64>) -> Self {
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), type_id, bytes, offset });
        self
    }

    fn padded(&self, n: u64) -> u64 {
        n.checked_next_multiple_of(self.alignment.max(1)).unwrap_or(n)
    }

    /// The padded sizes of all tensors together.
    pub fn data_bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |end: u64, t| self.padded(end.saturating_add(t.bytes)))
    }

    /// The header without the padding behind it.
    pub fn header(&self) -> Vec<u8> {
        let mut out = Out { bytes: Vec::new(), big_endian: self.big_endian };
        out.bytes.extend(b"GGUF");
        out.number(self.version.to_le_bytes());
        out.len(self.tensors.len());
        out.len(self.facts.len());
        for (key, value) in &self.facts {
            out.text(key.as_bytes());
            out.number(value.kind().to_le_bytes());
            out.value(value);
        }
        let mut end = 0_u64;
        for tensor in &self.tensors {
            out.text(tensor.name.as_bytes());
            out.number(u32::try_from(tensor.dims.len()).unwrap_or(u32::MAX).to_le_bytes());
            for side in &tensor.dims {
                out.number(side.to_le_bytes());
            }
            out.number(tensor.type_id.to_le_bytes());
            out.number(tensor.offset.unwrap_or(end).to_le_bytes());
            end = self.padded(end.saturating_add(tensor.bytes));
        }
        out.bytes
    }

    /// The header and the padding behind it: everything but data.
    pub fn header_padded(&self) -> Vec<u8> {
        let mut bytes = self.header();
        let end = self.padded(bytes.len() as u64);
        bytes.resize(usize::try_from(end).unwrap_or(bytes.len()), 0);
        bytes
    }

    /// The whole file with data of zeros. Meant for small tensors.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header_padded();
        let end = (bytes.len() as u64).saturating_add(self.data_bytes());
        bytes.resize(usize::try_from(end).unwrap_or(bytes.len()), 0);
        bytes
    }

    /// Writes the file; data is a hole, so that large models take no room.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write(&self, path: &Path, data: Data) -> io::Result<()> {
        let header = self.header_padded();
        let mut file = File::create(path)?;
        file.write_all(&header)?;
        let data = match data {
            Data::Whole => self.data_bytes(),
            Data::First(n) => n.min(self.data_bytes()),
        };
        file.set_len((header.len() as u64).saturating_add(data))
    }

    /// Deals the tensors out to `parts` files, in order. The facts stay in the first; each says which part it is.
    pub fn split(&self, parts: u16) -> Vec<Self> {
        let total = i32::try_from(self.tensors.len()).unwrap_or(i32::MAX);
        let each = self.tensors.len().div_ceil(usize::from(parts.max(1)));
        let part = |no: u16| {
            let begin = (usize::from(no) * each).min(self.tensors.len());
            let end = (begin + each).min(self.tensors.len());
            let mut part = Self { tensors: self.tensors[begin..end].to_vec(), ..self.clone() };
            if no > 0 {
                part.facts.retain(|(key, _)| key == "general.alignment");
            }
            part.fact("split.no", Value::U16(no))
                .fact("split.count", Value::U16(parts))
                .fact("split.tensors.count", Value::I32(total))
        };
        (0..parts).map(part).collect()
    }

    /// Writes [`Writer::split`] into `folder` and returns the paths.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write_split(&self, folder: &Path, stem: &str, parts: u16, data: Data) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for (part, no) in self.split(parts).iter().zip(1..) {
            let path = folder.join(part_name(stem, no, parts));
            part.write(&path, data)?;
            paths.push(path);
        }
        Ok(paths)
    }
}

/// The name of part `no`, from 1, of `parts`.
pub fn part_name(stem: &str, no: u16, parts: u16) -> String {
    format!("{stem}-{no:05}-of-{parts:05}.gguf")
}

/// A model of many tensors and a full vocabulary (texts, scores, kinds and merges), to measure readers with.
pub fn large(tensors: u32, vocabulary: u32) -> Writer {
    let texts = |n: u32, mark: char| {
        let items = (0..n).map(|i| Value::Text(format!("{mark}{i:x}{}", "a".repeat((i % 9) as usize))));
        Value::List(8, items.collect())
    };
    let mut writer = Writer::new()
        .fact("general.architecture", "llama")
        .fact("tokenizer.ggml.tokens", texts(vocabulary, 't'))
        .fact("tokenizer.ggml.scores", Value::List(6, vec![Value::F32(0.5); vocabulary as usize]))
        .fact("tokenizer.ggml.token_type", Value::List(5, vec![Value::I32(1); vocabulary as usize]))
        .fact("tokenizer.ggml.merges", texts(vocabulary, 'm'));
    for i in 0..tensors {
        let name = format!("blk.{}.ffn_{}.weight", i / 10, i % 10);
        // 4096 x 4096 values of Q4_K: 144 bytes for 256.
        writer = writer.tensor(&name, &[4096, 4096], 12, 9_437_184);
    }
    writer
}

struct Out {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl Out {
    /// A number of any width, given with its least significant byte first.
    fn number<const N: usize>(&mut self, mut le: [u8; N]) {
        if self.big_endian {
            le.reverse();
        }
        self.bytes.extend(le);
    }

    fn len(&mut self, n: usize) {
        self.number((n as u64).to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.bytes.extend(bytes);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::U8(n) => self.number(n.to_le_bytes()),
            Value::I8(n) => self.number(n.to_le_bytes()),
            Value::U16(n) => self.number(n.to_le_bytes()),
            Value::I16(n) => self.number(n.to_le_bytes()),
            Value::U32(n) => self.number(n.to_le_bytes()),
            Value::I32(n) => self.number(n.to_le_bytes()),
            Value::F32(n) => self.number(n.to_le_bytes()),
            Value::Bool(b) => self.number([u8::from(*b)]),
            Value::Text(text) => self.text(text.as_bytes()),
            Value::Raw(bytes) => self.text(bytes),
            Value::U64(n) => self.number(n.to_le_bytes()),
            Value::I64(n) => self.number(n.to_le_bytes()),
            Value::F64(n) => self.number(n.to_le_bytes()),
            Value::List(kind, items) => {
                self.number(kind.to_le_bytes());
                self.len(items.len());
                items.iter().for_each(|item| self.value(item));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_laid_out_as_the_format_says() {
        let file = Writer::new().fact("k", 7).tensor("t", &[2, 3], 0, 24);
        let mut expected = b"GGUF\x03\0\0\0".to_vec();
        expected.extend(1_u64.to_le_bytes());
        expected.extend(1_u64.to_le_bytes());
        expected.extend(b"\x01\0\0\0\0\0\0\0k\x04\0\0\0\x07\0\0\0");
        expected.extend(b"\x01\0\0\0\0\0\0\0t\x02\0\0\0");
        expected.extend(2_u64.to_le_bytes());
        expected.extend(3_u64.to_le_bytes());
        expected.extend(b"\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(file.header(), expected);
        assert_eq!(file.header_padded().len(), expected.len().next_multiple_of(32));
        assert_eq!(file.bytes().len(), expected.len().next_multiple_of(32) + 32);
    }

    #[test]
    fn parts_hold_all_tensors_once_and_facts_only_in_the_first() {
        let mut file = Writer::new().fact("general.architecture", "llama");
        for i in 0..5 {
            file = file.tensor(&format!("t{i}"), &[8], 0, 32);
        }
        let parts = file.split(3);
        let names: Vec<_> = parts.iter().flat_map(|p| p.tensors.iter().map(|t| t.name.as_str())).collect();
        assert_eq!(names, ["t0", "t1", "t2", "t3", "t4"]);
        assert_eq!(parts[0].facts.len(), 4);
        assert_eq!(parts[2].facts.len(), 3);
        assert_eq!(part_name("m", 1, 3), "m-00001-of-00003.gguf");
    }
}
