//! How fast the host reads its memory, by reading it.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_units::{Bytes, BytesPerSec};

/// What is read by all threads together.
const BUFFER: u64 = 256 << 20;

/// Threads that read at most.
const MOST_THREADS: u32 = 64;

/// What is read between two looks at the clock.
const BLOCK: usize = 1 << 18;

/// What a measurement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// How fast memory was read by all threads together.
    pub rate: BytesPerSec,
    /// How much was read.
    pub read: Bytes,
    /// In how long.
    pub took: Duration,
    /// By how many threads.
    pub threads: u32,
    /// From a buffer of this size; a cache that is not much smaller makes the rate too good.
    pub buffer: Bytes,
}

/// What one thread did.
struct Part {
    filled: usize,
    /// Blocks.
    read: u64,
    start: Instant,
    stop: Instant,
}

/// Fills a buffer for at most half of `budget`, and reads it over and over on `workers` threads until the budget is over.
/// `None` when `free` leaves no room (four times the whole buffer), or the time was up before anything was read.
///
/// The rate is that of one pattern (long runs of whole numbers, read in order), which is how weights are read; other work,
/// and other processes at the same time, get less.
pub fn measure_host(
    workers: u32,
    free: Option<Bytes>,
    budget: Duration,
    now: &(dyn Fn() -> Instant + Sync),
) -> Option<Measured> {
    let threads = workers.clamp(1, MOST_THREADS);
    let each = usize::try_from(BUFFER / u64::from(threads)).ok()? / BLOCK * BLOCK;
    if each == 0 || free.is_some_and(|free| free < Bytes::new(BUFFER).saturating_mul(4)) {
        return None;
    }
    let begin = now();
    let (half, end) = (begin + budget / 2, begin + budget);
    let start_together = Barrier::new(usize::try_from(threads).ok()?);
    let worker = || {
        // Not zeros: pages that were never written may all be one.
        let ones = vec![1_u8; BLOCK];
        let mut memory = Vec::with_capacity(each);
        while memory.len() < each && now() < half {
            memory.extend_from_slice(&ones);
        }
        start_together.wait();
        let start = now();
        let mut read = 0_u64;
        let mut stop = start;
        'passes: while stop < end && !memory.is_empty() {
            for block in memory.chunks_exact(BLOCK) {
                black_box(sum(block));
                read += 1;
                stop = now();
                if stop >= end {
                    break 'passes;
                }
            }
        }
        Part { filled: memory.len(), read, start, stop }
    };
    let parts: Vec<Part> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        started.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let bytes = |n: usize| u64::try_from(n).map(Bytes::new).ok();
    let buffer = Bytes::saturating_sum(parts.iter().filter_map(|part| bytes(part.filled)));
    let first = parts.iter().map(|part| part.start).min()?;
    let last = parts.iter().map(|part| part.stop).max()?;
    let took = last.saturating_duration_since(first);
    let read = bytes(BLOCK)?.checked_mul(parts.iter().map(|part| part.read).sum())?;
    let rate = u128::from(read.get()) * 1_000_000_000 / took.as_nanos().max(1);
    let rate = BytesPerSec::new(u64::try_from(rate).ok()?);
    (!read.is_zero()).then_some(Measured { rate, read, took, threads, buffer })
}

/// The sum of a block's whole numbers, so that each byte is needed.
fn sum(block: &[u8]) -> u64 {
    let (numbers, _) = block.as_chunks::<8>();
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(u64::from_le_bytes(*number)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that ticks a millisecond at each look.
    fn ticking() -> impl Fn() -> Instant + Sync {
        #[expect(
            clippy::disallowed_methods,
            reason = "the caller owns the clock; this one goes on by itself"
        )]
        let start = Instant::now();
        let looks = AtomicU64::new(0);
        move || start + Duration::from_millis(looks.fetch_add(1, Ordering::Relaxed))
    }

    #[test]
    fn what_was_read_over_the_time_it_took_is_the_rate() {
        let clock = ticking();
        let measured = measure_host(1, None, Duration::from_millis(200), &clock).unwrap();
        // The first look begins; one block is filled at each of the next, and the look at half time fills no more.
        assert_eq!((measured.threads, measured.buffer), (1, Bytes::new(99 * 262_144)));
        // One block a look, from the next one to the first that is not before the end.
        assert_eq!(measured.took, Duration::from_millis(99));
        assert_eq!(measured.read, Bytes::new(99 * 262_144));
        assert_eq!(measured.rate, BytesPerSec::new(262_144_000));
    }

    #[test]
    fn nothing_is_measured_without_room_or_time() {
        let clock = ticking();
        let tight = Some(Bytes::mib(1023));
        assert_eq!(measure_host(1, tight, Duration::from_millis(100), &clock), None);
        assert_eq!(measure_host(1, None, Duration::ZERO, &clock), None);
    }

    #[test]
    fn every_byte_counts() {
        assert_eq!(sum(&[1; 16]), 2 * 0x0101_0101_0101_0101);
        assert_eq!(sum(&[]), 0);
    }
}
