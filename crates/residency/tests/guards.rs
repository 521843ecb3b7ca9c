//! Guards that give back, and waits without a runtime.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{at, gb, request, spec};
use plimsoll_residency::{
    CoResidency, Eviction, KeptBecause, Reservation, ResidencyLedger, Store, WaitEnd, Waiting,
};
use plimsoll_units::Bytes;

fn ledger() -> ResidencyLedger {
    ResidencyLedger::new(Some(gb(10)))
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(waiting: &mut Waiting, count: &Arc<Count>) -> Poll<Result<Reservation, WaitEnd>> {
    pin!(waiting).as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
}

#[test]
fn a_dropped_guard_gives_back_and_a_kept_one_does_not() {
    let ledger = ledger();
    let held = ledger.hold(&request("a", 6), at(0)).unwrap();
    assert_eq!(held.booking().unwrap().bytes(), gb(6));
    assert!(held.resize(&spec("a", 7)).unwrap());
    assert!(matches!(ledger.hold(&request("a", 7), at(0)), Err(CoResidency::Taken { .. })));
    drop(held);
    assert_eq!(ledger.used(), Bytes::ZERO);
    let kept = ledger.hold(&request("a", 6), at(0)).unwrap().keep();
    assert_eq!((kept.as_str(), ledger.used()), ("a", gb(6)));
    assert!(ledger.release(&kept));
}

#[test]
fn a_guard_does_not_end_a_later_booking_of_its_instance() {
    let ledger = ledger();
    let held = ledger.hold(&request("a", 6), at(0)).unwrap();
    assert!(ledger.release("a"));
    assert_eq!(held.booking(), None);
    ledger.reserve("a", &spec("a", 3)).unwrap();
    let used = ledger.in_use("a").unwrap();
    drop(held);
    assert_eq!(ledger.used(), gb(3));
    drop(used);
    assert!(ledger.in_use("b").is_none());
}

#[test]
fn a_use_lasts_as_long_as_its_guard() {
    let ledger = ledger();
    ledger.reserve("a", &spec("a", 6)).unwrap();
    let uses = [ledger.in_use("a").unwrap(), ledger.in_use("a").unwrap()];
    let wanted = request("b", 6);
    let advice = || ledger.eviction_advice(&wanted, &Eviction::default(), at(1));
    assert_eq!(advice().unwrap_err().kept[0].because, KeptBecause::InUse);
    drop(uses);
    assert_eq!(advice().unwrap().victims.len(), 1);
}

#[test]
fn a_wait_wakes_once_when_it_is_admitted() {
    let (ledger, count) = (ledger(), Arc::new(Count::default()));
    let first = ledger.hold(&request("a", 6), at(0)).unwrap();
    let second = ledger.hold(&request("b", 2), at(0)).unwrap();
    let mut waiting = ledger.reserve_wait(&request("c", 9), None, at(0)).unwrap();
    assert!(poll(&mut waiting, &count).is_pending());
    assert!(matches!(waiting.reason(), Some(CoResidency::OverBudget { .. })));
    drop(second);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    drop(first);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(Ok(held)) = poll(&mut waiting, &count) else { panic!("not admitted") };
    assert_eq!((held.instance(), ledger.used()), ("c", gb(9)));
    assert!(matches!(poll(&mut waiting, &count), Poll::Ready(Err(WaitEnd::Gone { .. }))));
    drop(waiting);
    assert_eq!(ledger.used(), gb(9));
}

#[test]
fn a_deadline_comes_when_the_ledger_is_told_the_time() {
    let (ledger, count) = (ledger(), Arc::new(Count::default()));
    let _held = ledger.hold(&request("a", 6), at(0)).unwrap();
    let mut waiting = ledger.reserve_wait(&request("b", 9), Some(at(5)), at(0)).unwrap();
    assert!(poll(&mut waiting, &count).is_pending());
    ledger.sweep(at(4)).unwrap();
    assert!(poll(&mut waiting, &count).is_pending());
    ledger.sweep(at(5)).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let ended = poll(&mut waiting, &count);
    assert!(
        matches!(ended, Poll::Ready(Err(WaitEnd::TimedOut(CoResidency::OverBudget { .. })))),
        "{ended:?}"
    );
}

#[test]
fn a_dropped_wait_gives_up_its_place_or_its_booking() {
    let ledger = ledger();
    let held = ledger.hold(&request("a", 6), at(0)).unwrap();
    let big = ledger.reserve_wait(&request("big", 10), None, at(0)).unwrap();
    assert!(ledger.reserve("small", &spec("small", 1)).is_err());
    drop(big);
    assert!(ledger.reserve("small", &spec("small", 1)).unwrap());
    let admitted = ledger.reserve_wait(&request("b", 2), None, at(0)).unwrap();
    assert_eq!(ledger.used(), gb(9));
    drop(admitted);
    drop(held);
    assert_eq!(ledger.used(), gb(1));
}

#[test]
fn a_thread_waits_until_another_gives_back() {
    let ledger = ledger();
    let held = ledger.hold(&request("a", 6), at(0)).unwrap();
    let waiting = ledger.reserve_wait(&request("b", 9), None, at(0)).unwrap();
    let thread = std::thread::spawn(move || waiting.block(None).map(Reservation::keep));
    drop(held);
    assert_eq!(thread.join().unwrap(), Ok("b".to_owned()));
    assert_eq!(ledger.used(), gb(9));
}

#[test]
fn a_thread_that_has_waited_long_enough_says_why() {
    let ledger = ledger();
    ledger.reserve("a", &spec("a", 6)).unwrap();
    let waiting = ledger.reserve_wait(&request("b", 9), None, at(0)).unwrap();
    let ended = waiting.block(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(
        ended.to_string(),
        "timed out: unplaceable: 'b' needs 9.0 GB but only 4.0 GB of the 10.0 GB unified-memory budget is free \
         (held by a 6.0 GB)"
    );
    assert_eq!(ledger.waiting().unwrap(), []);
}

#[test]
fn a_panic_under_the_lock_leaves_the_ledger_usable() {
    let ledger = ledger();
    ledger.reserve("a", &spec("a", 6)).unwrap();
    let other = ledger.clone();
    let panicked = std::thread::spawn(move || other.view(&mut |_| panic!("on purpose"))).join();
    assert!(panicked.is_err());
    assert_eq!(ledger.used(), gb(6));
    assert!(ledger.release("a"));
    assert!(ledger.reserve("b", &spec("b", 10)).unwrap());
}
