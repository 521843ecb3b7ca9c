//! GGUF headers, versions 2 and 3, in either byte order.
//!
//! Only headers are read: of a vocabulary nothing is kept but its length. A split model is read whole from any of its
//! parts. Limits keep what a hostile file can take below 64 MiB of memory; every refusal names the file, the byte and the
//! field.
//!
//! ```
//! use std::io::Cursor;
//! use std::path::Path;
//!
//! use plimsoll_model::gguf::read_gguf_from;
//!
//! // Version 3, one tensor, no facts; the tensor "t" has 8 values of F32 at offset 0.
//! let mut file = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
//! file.extend(b"\x01\0\0\0\0\0\0\0t\x01\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
//! let header = read_gguf_from(Cursor::new(&file), file.len() as u64, Path::new("t.gguf"))?;
//! assert_eq!((header.tensors[0].elements(), header.missing_bytes.get()), (8, 32));
//!
//! let error = read_gguf_from(Cursor::new(&file[..30]), 30, Path::new("t.gguf")).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "t.gguf, byte 24, facts and tensors: needs 25 bytes, but the file has only 6 left"
//! );
//! # Ok::<(), plimsoll_model::gguf::GgufError>(())
//! ```

mod error;
mod parse;
mod shards;
mod source;
mod value;

use std::io::{Read, Seek};
use std::path::Path;

pub use error::{GgufError, Problem};

#[cfg(feature = "http")]
use crate::files::Files;
use crate::files::OnDisk;
use crate::header::GgufHeader;

/// Reads the header of the model in `path`; of a split model, `path` may be any of its parts and all are read.
///
/// A file that ends within the data of its tensors is read all the same: [`GgufHeader::missing_bytes`] says how much is
/// not there.
///
/// # Errors
///
/// A part that is missing or does not belong, a file that ends within its header, or a header that cannot be: see
/// [`GgufError`] and [`Problem`].
pub fn read_gguf(path: &Path) -> Result<GgufHeader, GgufError> {
    shards::read(&OnDisk, path)
}

/// The same of files from elsewhere.
#[cfg(feature = "http")]
pub(crate) fn read_gguf_of(files: &dyn Files, path: &Path) -> Result<GgufHeader, GgufError> {
    shards::read(files, path)
}

/// Reads the header of one file of `len` bytes from anything that can be read. `file` is what errors call it. No other
/// parts are looked for.
///
/// # Errors
///
/// As [`read_gguf`], without those of split models.
pub fn read_gguf_from(reader: impl Read + Seek, len: u64, file: &Path) -> Result<GgufHeader, GgufError> {
    let mut table = parse::Table::default();
    let mut source = source::Source::new(reader, len);
    let part = parse::part(&mut source, &mut table).map_err(|fault| fault.in_file(file))?;
    shards::finish(table, part.metadata, part.missing_bytes, &[(0, file)])
}
