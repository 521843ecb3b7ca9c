//! A file on a server that is read in few, growing pieces.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::answer::Mark;
use super::client::{Client, Part};
use super::error::HttpError;
use super::url::Url;
use crate::files::{Files, Opened};

/// The first piece: the headers of most parts of a split model are shorter.
const FIRST_PIECE: u64 = 64 << 10;

/// No piece is longer.
const LONGEST_PIECE: u64 = 2 << 20;

/// How much longer a piece is than the one before it.
const GROWTH: u64 = 4;

/// The files beside the one that was named, on its server.
#[derive(Debug)]
pub(crate) struct OnServer<'a> {
    pub(crate) client: &'a Client,
    pub(crate) url: &'a Url,
}

impl OnServer<'_> {
    fn url_of(&self, path: &Path) -> io::Result<Url> {
        self.url.sibling(path).ok_or_else(|| HttpError::Elsewhere.into())
    }
}

impl Files for OnServer<'_> {
    fn open(&self, path: &Path) -> io::Result<Option<Opened<'_>>> {
        let file = RemoteFile::open(self.client, self.url_of(path)?)?;
        let len = file.len;
        Ok(Some((Box::new(file), len)))
    }

    #[cfg(feature = "safetensors")]
    fn open_text(&self, path: &Path, limit: u64) -> io::Result<Option<Opened<'_>>> {
        let bytes = match self.client.text(&self.url_of(path)?, limit) {
            Ok(bytes) => bytes,
            // Whoever asked says what is too long and by how much.
            Err(HttpError::Limit { limit: hit }) if hit == limit => {
                return Ok(Some((Box::new(io::empty()), limit.saturating_add(1))));
            }
            Err(error) => return Err(error.into()),
        };
        let len = bytes.len() as u64;
        Ok(Some((Box::new(io::Cursor::new(bytes)), len)))
    }

    fn is_folder(&self, path: &Path) -> io::Result<bool> {
        Ok(path.to_str().is_some_and(|path| path.ends_with('/')))
    }
}

/// A file of which only the pieces are fetched that somebody reads.
#[derive(Debug)]
struct RemoteFile<'a> {
    client: &'a Client,
    /// As it is called.
    first: Url,
    /// Where it really is: the ways to it are gone once.
    at: Url,
    mark: Option<Mark>,
    len: u64,
    pos: u64,
    /// The bytes from `begin` on.
    piece: Vec<u8>,
    begin: u64,
    /// How long the next piece is.
    next: u64,
}

impl<'a> RemoteFile<'a> {
    fn open(client: &'a Client, url: Url) -> Result<Self, HttpError> {
        let Part { bytes, total, mark, at } = client.part(&url, &url, 0, FIRST_PIECE)?;
        let next = FIRST_PIECE * GROWTH;
        Ok(Self { client, first: url, at, mark, len: total, pos: 0, piece: bytes, begin: 0, next })
    }

    /// What of the piece stands at the position and behind it.
    fn at_hand(&self) -> &[u8] {
        let offset = self.pos.checked_sub(self.begin).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| self.piece.get(offset..)).unwrap_or_default()
    }

    fn fetch(&mut self) -> Result<(), HttpError> {
        let count = self.next.min(self.len - self.pos);
        let part = self.client.part(&self.first, &self.at, self.pos, count)?;
        let changed = |what, before: String, now: String| Err(HttpError::Changed { what, before, now });
        if part.total != self.len {
            return changed("its length", self.len.to_string(), part.total.to_string());
        }
        match (&self.mark, part.mark) {
            (Some(before), Some(now)) if *before != now => {
                return changed(before.what, before.value.clone(), now.value);
            }
            (Some(before), None) => return changed(before.what, before.value.clone(), "none".to_owned()),
            _ => {}
        }
        self.piece = part.bytes;
        self.begin = self.pos;
        self.next = (self.next * GROWTH).min(LONGEST_PIECE);
        Ok(())
    }
}

impl Read for RemoteFile<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() || self.pos >= self.len {
            return Ok(0);
        }
        if self.at_hand().is_empty() {
            self.fetch()?;
        }
        let from = self.at_hand();
        let count = from.len().min(out.len());
        out[..count].copy_from_slice(&from[..count]);
        self.pos += count as u64;
        Ok(count)
    }
}

impl Seek for RemoteFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(step) => self.pos.checked_add_signed(step),
            SeekFrom::End(step) => self.len.checked_add_signed(step),
        };
        self.pos = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.pos)
    }
}
