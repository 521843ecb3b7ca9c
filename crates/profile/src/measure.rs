//! How fast the host reads its memory, by reading it, and how fast an accelerator copies in its own.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_units::{Bytes, BytesPerSec};

use crate::{Absence, Accelerator, gpu};

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

/// What is taken of an accelerator's memory at most: both halves are far larger than its caches.
const MOST_OF_DEVICE: u64 = 256 << 20;

/// With less, a cache would be measured.
const LEAST_OF_DEVICE: u64 = 64 << 20;

/// Copies between two looks at the clock.
const COPIES: u32 = 4;

/// The most copies of one measurement.
const MOST_COPIES: u64 = 1 << 16;

/// No accelerator's memory is faster: 10^15 bytes in a second.
const MOST_RATE: u64 = 1_000_000_000_000_000;

/// What a measurement of an accelerator found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceMeasured {
    /// How fast its memory moves bytes: what a copy reads and what it writes count both.
    pub rate: BytesPerSec,
    /// How much was read and written.
    pub moved: Bytes,
    /// In how long.
    pub took: Duration,
    /// How much memory that took on it, given back at the end.
    pub buffer: Bytes,
}

/// Copies in an accelerator's memory over and over for at most `budget`, with a piece of 256 MiB or an eighth of what is
/// free. It goes through the driver: one that hangs hangs the caller, so programs that cannot afford it ask in a child
/// (the module `isolated`, behind its feature).
///
/// # Errors
///
/// Why there is no figure: less than 512 MiB free, a device that is lost or driven by somebody else's driver, a call that is
/// missing or fails, an answer that cannot be. Nothing stays on the device.
pub fn measure_accelerator(
    accelerator: &Accelerator,
    budget: Duration,
    now: &dyn Fn() -> Instant,
) -> Result<DeviceMeasured, Absence> {
    gpu::measure(accelerator, &Timing { budget, now })
}

/// For how long is copied, and on whose clock.
pub(crate) struct Timing<'a> {
    budget: Duration,
    now: &'a dyn Fn() -> Instant,
}

impl std::fmt::Debug for Timing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timing").field("budget", &self.budget).finish_non_exhaustive()
    }
}

#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "no driver is compiled in that could copy"))]
impl Timing<'_> {
    /// How much memory may be taken of what is free.
    pub(crate) fn buffer(&self, free: Bytes) -> Result<Bytes, Absence> {
        let share = free.get() / 8;
        if share < LEAST_OF_DEVICE {
            let text = format!(
                "{} are free on it, and a measurement needs {}",
                free,
                Bytes::new(LEAST_OF_DEVICE * 8)
            );
            return Err(Absence::Told { text });
        }
        Ok(Bytes::new(share.min(MOST_OF_DEVICE)))
    }

    /// Copies of `half` bytes each until the time is up.
    pub(crate) fn measure(
        &self,
        half: Bytes,
        copy: &dyn Fn() -> Result<(), Absence>,
        wait: &dyn Fn() -> Result<(), Absence>,
    ) -> Result<DeviceMeasured, Absence> {
        // The first copy wakes the device.
        copy()?;
        wait()?;
        let start = (self.now)();
        let (mut copies, mut took) = (0_u64, Duration::ZERO);
        while took < self.budget && copies < MOST_COPIES {
            for _ in 0..COPIES {
                copy()?;
            }
            wait()?;
            copies += u64::from(COPIES);
            took = (self.now)().saturating_duration_since(start);
        }
        let moved = half.saturating_mul(copies.saturating_mul(2));
        let rate = u128::from(moved.get()) * 1_000_000_000 / took.as_nanos().max(1);
        let known = u64::try_from(rate).ok().filter(|rate| (1..=MOST_RATE).contains(rate));
        let rate = known.map(BytesPerSec::new).ok_or_else(|| {
            Absence::garbled("cuCtxSynchronize", format_args!("{} copied in {} ns", moved, took.as_nanos()))
        })?;
        Ok(DeviceMeasured { rate, moved, took, buffer: half.saturating_mul(2) })
    }
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
    fn what_was_copied_twice_over_the_time_it_took_is_the_rate() {
        let clock = ticking();
        let calls = std::cell::Cell::new((0_u32, 0_u32));
        let copy = || {
            calls.set((calls.get().0 + 1, calls.get().1));
            Ok(())
        };
        let wait = || {
            calls.set((calls.get().0, calls.get().1 + 1));
            Ok(())
        };
        let timing = Timing { budget: Duration::from_millis(10), now: &clock };
        let measured = timing.measure(Bytes::mib(128), &copy, &wait).unwrap();
        // One copy to wake it, and four between each of ten looks.
        assert_eq!(calls.get(), (41, 11));
        assert_eq!((measured.took, measured.buffer), (Duration::from_millis(10), Bytes::mib(256)));
        assert_eq!(measured.moved, Bytes::mib(128 * 2 * 40));
        assert_eq!(measured.rate, BytesPerSec::new(128 * 2 * 40 * (1 << 20) * 100));
    }

    #[test]
    fn a_clock_that_stands_still_ends_and_gives_no_rate() {
        let now = ticking()();
        let timing = Timing { budget: Duration::from_millis(10), now: &|| now };
        let why = timing.measure(Bytes::mib(128), &|| Ok(()), &|| Ok(())).unwrap_err();
        assert!(why.to_string().starts_with("cuCtxSynchronize says '"), "{why}");
    }

    #[test]
    fn a_call_that_fails_is_the_answer() {
        let clock = ticking();
        let timing = Timing { budget: Duration::from_millis(10), now: &clock };
        let fails = || Err(Absence::Driver { call: "cuMemcpyDtoD_v2", code: 719 });
        assert_eq!(timing.measure(Bytes::mib(128), &fails, &|| Ok(())), fails().map(|()| unreachable!()));
    }

    #[test]
    fn little_is_taken_of_what_is_free_and_nothing_where_that_is_short() {
        let clock = ticking();
        let timing = Timing { budget: Duration::ZERO, now: &clock };
        assert_eq!(timing.buffer(Bytes::gib(24)), Ok(Bytes::mib(256)));
        assert_eq!(timing.buffer(Bytes::gib(1)), Ok(Bytes::mib(128)));
        assert_eq!(timing.buffer(Bytes::mib(512)), Ok(Bytes::mib(64)));
        let short = timing.buffer(Bytes::mib(511)).unwrap_err().to_string();
        assert_eq!(short, "0.5 GB are free on it, and a measurement needs 0.5 GB");
    }

    #[test]
    fn every_byte_counts() {
        assert_eq!(sum(&[1; 16]), 2 * 0x0101_0101_0101_0101);
        assert_eq!(sum(&[]), 0);
    }
}
