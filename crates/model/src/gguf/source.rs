//! The bytes of a header: every length is compared with what is left before anything is allocated or skipped.

use std::io::{BufReader, Read, Seek};

use super::error::{Cause, Fault, Problem};

/// Large enough that a vocabulary is read in few calls.
const BUFFER: usize = 256 << 10;

/// The longest header that is walked. The longest vocabularies take about 30 MB.
const LONGEST_HEADER: u64 = 512 << 20;

/// A file, read from front to back.
#[derive(Debug)]
pub(super) struct Source<R> {
    inner: BufReader<R>,
    /// Where the next byte stands. Never beyond `len`.
    pos: u64,
    /// How long the file is.
    len: u64,
    /// The byte order.
    big_endian: bool,
}

impl<R: Read + Seek> Source<R> {
    pub(super) fn new(inner: R, len: u64) -> Self {
        Self { inner: BufReader::with_capacity(BUFFER, inner), pos: 0, len, big_endian: false }
    }

    pub(super) fn set_big_endian(&mut self) {
        self.big_endian = true;
    }

    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether `n` more bytes can be there.
    pub(super) fn need(&self, n: u64, field: &'static str) -> Result<(), Fault> {
        let left = self.len - self.pos;
        if n > left {
            return Err(Fault::new(self.pos, field, Problem::Ends { need: n, left }));
        }
        match self.pos.checked_add(n) {
            Some(end) if end <= LONGEST_HEADER => Ok(()),
            end => {
                let found = end.unwrap_or(u64::MAX);
                let problem = Problem::TooMany { found, limit: LONGEST_HEADER };
                Err(Fault::new(self.pos, format!("{field}, length of the header"), problem))
            }
        }
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, field)?;
        Ok(bytes)
    }

    /// `n` bytes. The caller has a limit on `n`.
    pub(super) fn bytes(&mut self, n: u64, field: &'static str) -> Result<Vec<u8>, Fault> {
        self.need(n, field)?;
        let size = usize::try_from(n)
            .map_err(|_| Fault::new(self.pos, field, Problem::TooMany { found: n, limit: LONGEST_HEADER }))?;
        let mut bytes = vec![0; size];
        self.fill(&mut bytes, field)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], field: &'static str) -> Result<(), Fault> {
        let n = bytes.len() as u64;
        self.need(n, field)?;
        self.inner.read_exact(bytes).map_err(|source| self.io(field, source))?;
        self.pos += n;
        Ok(())
    }

    pub(super) fn skip(&mut self, n: u64, field: &'static str) -> Result<(), Fault> {
        self.need(n, field)?;
        // `need` keeps `n` far below 2^63.
        let step = i64::try_from(n)
            .map_err(|_| Fault::new(self.pos, field, Problem::TooMany { found: n, limit: LONGEST_HEADER }))?;
        self.inner.seek_relative(step).map_err(|source| self.io(field, source))?;
        self.pos += n;
        Ok(())
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Fault> {
        let bytes = self.array(field)?;
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, Fault> {
        let bytes = self.array(field)?;
        Ok(if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// `N` bytes with the least significant one first, whatever the byte order.
    pub(super) fn le<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Fault> {
        let mut bytes = self.array(field)?;
        if self.big_endian {
            bytes.reverse();
        }
        Ok(bytes)
    }

    fn io(&self, field: &'static str, source: std::io::Error) -> Fault {
        Fault { offset: self.pos, field: field.to_owned(), cause: Cause::Io(source) }
    }
}
