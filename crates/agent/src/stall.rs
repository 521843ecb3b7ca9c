//! A connection whose other end has to take what is sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream that fails when nothing of what is written was taken for so long.
pub(crate) struct Stalling<S> {
    stream: S,
    patience: Duration,
    patient: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Stalling<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, patient: Box::pin(sleep(patience)), waits: false }
    }

    /// Lets what was written through, and counts the time where nothing was.
    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            let patience = self.patience;
            self.patient.as_mut().reset(Instant::now() + patience);
        }
        match self.patient.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up() {
        let (near, mut far) = duplex(8);
        let mut stream = Stalling::new(near, Duration::from_secs(60));
        stream.write_all(b"12345678").await.unwrap();
        let begun = Instant::now();
        let error = stream.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 60);
        let mut taken = [0; 8];
        far.read_exact(&mut taken).await.unwrap();
        stream.write_all(b"9").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_rests_where_nothing_is_sent_is_kept() {
        let (near, mut far) = duplex(8);
        let mut stream = Stalling::new(near, Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        stream.write_all(b"12345678").await.unwrap();
        let mut taken = [0; 8];
        far.read_exact(&mut taken).await.unwrap();
        assert_eq!(&taken, b"12345678");
    }
}
