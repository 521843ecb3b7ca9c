//! The ledger in memory on locks whose every interleaving a scheduler chooses.

/// Locks that a scheduler controls.
mod sync {
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
}

#[path = "memory/mod.rs"]
#[expect(
    clippy::duplicate_mod,
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the tests below use a part of it"
)]
mod memory;

use std::sync::atomic::{AtomicU64, Ordering};

use memory::ResidencyLedger;
use plimsoll_units::Bytes;
use shuttle::thread;

use crate::{InferenceSpec, Request, Timestamp, WaitEnd};

const BUDGET: u64 = 10;

fn request(name: &str, needs: u64) -> Request {
    Request::new(name, InferenceSpec::new(name, "x").with_memory(Bytes::new(needs), Bytes::ZERO))
}

/// Runs it under many random schedules, and under schedules that switch rarely but at bad moments.
fn check(schedules: usize, run: fn()) {
    shuttle::check_random(run, schedules);
    shuttle::check_pct(run, schedules, 3);
}

/// What threads hold at this moment, counted apart from the ledger.
#[derive(Default)]
struct Gauge(AtomicU64);

impl Gauge {
    fn with(&self, bytes: u64, hold: impl FnOnce()) {
        let held = self.0.fetch_add(bytes, Ordering::SeqCst) + bytes;
        assert!(held <= BUDGET, "{held} of {BUDGET} at once");
        hold();
        self.0.fetch_sub(bytes, Ordering::SeqCst);
    }
}

#[test]
fn threads_never_hold_more_than_the_budget() {
    check(400, || {
        let ledger = ResidencyLedger::new(Some(Bytes::new(BUDGET)));
        let gauge = std::sync::Arc::new(Gauge::default());
        let threads: Vec<_> = [("a", 6), ("b", 5), ("c", 4)]
            .into_iter()
            .map(|(name, needs)| {
                let (ledger, gauge) = (ledger.clone(), std::sync::Arc::clone(&gauge));
                thread::spawn(move || {
                    for _ in 0..2 {
                        if let Ok(held) = ledger.hold(&request(name, needs), Timestamp::ZERO) {
                            gauge.with(needs, thread::yield_now);
                            drop(held);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(ledger.used(), Bytes::ZERO);
    });
}

#[test]
fn everyone_who_waits_is_served_and_nobody_is_woken_in_vain() {
    check(400, || {
        let ledger = ResidencyLedger::new(Some(Bytes::new(BUDGET)));
        let gauge = std::sync::Arc::new(Gauge::default());
        let threads: Vec<_> = [("a", 6), ("b", 5), ("c", 10), ("d", 1)]
            .into_iter()
            .map(|(name, needs)| {
                let (ledger, gauge) = (ledger.clone(), std::sync::Arc::clone(&gauge));
                thread::spawn(move || {
                    let waiting = ledger.reserve_wait(&request(name, needs), None, Timestamp::ZERO).unwrap();
                    // A lost wake-up would be a deadlock, which the scheduler reports.
                    let held = waiting.block(None).unwrap();
                    gauge.with(needs, thread::yield_now);
                    drop(held);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(ledger.used(), Bytes::ZERO);
    });
}

#[test]
fn who_gives_up_leaves_nothing_behind_and_lets_the_next_one_in() {
    check(400, || {
        let ledger = ResidencyLedger::new(Some(Bytes::new(BUDGET)));
        let first = ledger.hold(&request("first", 8), Timestamp::ZERO).unwrap();
        let quitter = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                // It may be admitted before it gives up, or not.
                drop(ledger.reserve_wait(&request("quitter", 9), None, Timestamp::ZERO).unwrap());
            })
        };
        let patient = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let waiting = ledger.reserve_wait(&request("patient", 7), None, Timestamp::ZERO).unwrap();
                drop(waiting.block(None).unwrap());
            })
        };
        let releaser = thread::spawn(move || drop(first));
        [quitter, patient, releaser].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((ledger.used(), ledger.snapshot().len()), (Bytes::ZERO, 0));
    });
}

#[test]
fn a_deadline_and_a_release_at_once_end_in_one_of_both() {
    check(400, || {
        let ledger = ResidencyLedger::new(Some(Bytes::new(BUDGET)));
        let first = ledger.hold(&request("first", 8), Timestamp::ZERO).unwrap();
        let deadline = Timestamp::from_millis(10);
        let waiting = ledger.reserve_wait(&request("late", 9), Some(deadline), Timestamp::ZERO).unwrap();
        let clock = {
            let ledger = ledger.clone();
            thread::spawn(move || crate::Store::sweep(&ledger, deadline).unwrap())
        };
        let releaser = thread::spawn(move || drop(first));
        match waiting.block(None) {
            Ok(held) => assert_eq!((held.instance(), ledger.snapshot().len()), ("late", 1)),
            Err(WaitEnd::TimedOut(_)) => {}
            Err(other) => panic!("{other}"),
        }
        [clock, releaser].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(ledger.used(), Bytes::ZERO);
    });
}
