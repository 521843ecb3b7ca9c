//! The bytes of a header: every length is compared with what is left before anything is allocated or skipped.

use std::io::{BufRead, BufReader, Read, Seek};

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
        let buffer = usize::try_from(len).map_or(BUFFER, |len| len.min(BUFFER));
        Self { inner: BufReader::with_capacity(buffer, inner), pos: 0, len, big_endian: false }
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

    /// Skips `count` texts, each behind its length. A vocabulary has hundreds of thousands, so those that lie in the
    /// buffer as a whole are passed over without a call for each.
    pub(super) fn skip_texts(&mut self, count: u64) -> Result<(), Fault> {
        let mut left = count;
        while left > 0 {
            let end = self.len.min(LONGEST_HEADER).saturating_sub(self.pos);
            let buffer = match self.inner.fill_buf() {
                Ok(buffer) => &buffer[..buffer.len().min(usize::try_from(end).unwrap_or(usize::MAX))],
                Err(source) => return Err(self.io("length of the text", source)),
            };
            let mut used = 0;
            while left > 0
                && let Some(len) = buffer[used..].first_chunk()
                && let len = if self.big_endian { u64::from_be_bytes(*len) } else { u64::from_le_bytes(*len) }
                && let Some(next) = usize::try_from(len).ok().and_then(|len| len.checked_add(used + 8))
                && next <= buffer.len()
            {
                used = next;
                left -= 1;
            }
            self.inner.consume(used);
            self.pos += used as u64;
            if left > 0 {
                // This one crosses the end of the buffer, or that of the file.
                let len = self.u64("length of the text")?;
                self.skip(len, "text")?;
                left -= 1;
            }
        }
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
