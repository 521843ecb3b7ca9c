//! Where the files of a model come from: a disk, or a server.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;

/// What headers are read from.
pub(crate) trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// A file that is open, and how long it is.
pub(crate) type Opened<'a> = (Box<dyn ReadSeek + 'a>, u64);

/// Opens files by name. A file that is not there is an error of the kind `NotFound`.
pub(crate) trait Files {
    /// Opens a file of which a part is read; nothing where the name is that of a folder or a pipe.
    fn open(&self, path: &Path) -> io::Result<Option<Opened<'_>>>;

    /// Opens a file of at most `limit` bytes that is read to its end. A longer one may come without its bytes.
    #[cfg(feature = "safetensors")]
    fn open_text(&self, path: &Path, limit: u64) -> io::Result<Option<Opened<'_>>>;

    /// Whether the name is that of a folder.
    #[cfg(any(feature = "http", feature = "safetensors"))]
    fn is_folder(&self, path: &Path) -> io::Result<bool>;
}

/// The files of this machine.
#[derive(Debug)]
pub(crate) struct OnDisk;

impl Files for OnDisk {
    fn open(&self, path: &Path) -> io::Result<Option<Opened<'_>>> {
        let about = fs::metadata(path)?;
        if !about.is_file() {
            return Ok(None);
        }
        Ok(Some((Box::new(File::open(path)?), about.len())))
    }

    #[cfg(feature = "safetensors")]
    fn open_text(&self, path: &Path, _limit: u64) -> io::Result<Option<Opened<'_>>> {
        self.open(path)
    }

    #[cfg(any(feature = "http", feature = "safetensors"))]
    fn is_folder(&self, path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path)?.is_dir())
    }
}
