//! What a watcher tells whom, and when.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use plimsoll_profile::SystemProfile;
use plimsoll_units::Bytes;
use plimsoll_watcher::{LookError, ProfileChange, Subscription, SystemProfileWatcher};
use tokio::runtime::Handle;
use tokio::time::{Instant, advance, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// A machine that a test changes, and that counts how often it is looked at.
#[derive(Clone)]
struct Stage {
    shown: Arc<Mutex<Result<SystemProfile, LookError>>>,
    looks: Arc<AtomicUsize>,
}

/// A machine with so many processors.
fn machine(processors: u32) -> SystemProfile {
    let mut machine = SystemProfile::detect_fast();
    machine.accelerators.clear();
    machine.cpu.cores.logical = processors;
    machine
}

impl Stage {
    fn new() -> Self {
        Self { shown: Arc::new(Mutex::new(Ok(machine(1)))), looks: Arc::default() }
    }

    fn show(&self, processors: u32) {
        *self.shown.lock().unwrap() = Ok(machine(processors));
    }

    fn fail(&self, reason: &str) {
        *self.shown.lock().unwrap() = Err(LookError::failed(reason));
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    fn watcher(&self, interval: Duration) -> SystemProfileWatcher {
        let stage = self.clone();
        SystemProfileWatcher::with_probe(interval, move || {
            stage.looks.fetch_add(1, Ordering::SeqCst);
            stage.shown.lock().unwrap().clone()
        })
        .unwrap()
    }
}

fn described(change: Option<ProfileChange>) -> String {
    match change {
        Some(ProfileChange::HardwareChange { description }) => description,
        other => panic!("{other:?}"),
    }
}

fn processors(change: Option<ProfileChange>) -> u32 {
    match change {
        Some(ProfileChange::Updated(profile)) => profile.cpu.cores.logical,
        other => panic!("{other:?}"),
    }
}

/// The processors of the next machine that is told, whatever is described before.
async fn next_machine(subscription: &mut Subscription) -> u32 {
    loop {
        match subscription.next().await {
            Some(ProfileChange::HardwareChange { .. }) => {}
            other => return processors(other),
        }
    }
}

#[test]
fn the_first_look_has_ended_when_there_is_a_watcher() {
    let stage = Stage::new();
    stage.show(7);
    let watcher = stage.watcher(SECOND);
    assert_eq!((stage.looks(), watcher.current_profile().cpu.cores.logical), (1, 7));
    assert_eq!(watcher.looks().good, 1);
}

#[test]
fn without_a_first_look_there_is_no_watcher() {
    let failed = SystemProfileWatcher::with_probe(SECOND, || Err(LookError::failed("no /proc here")));
    assert_eq!(failed.unwrap_err().to_string(), "this machine cannot be looked at: no /proc here");
    let panicked = SystemProfileWatcher::with_probe(SECOND, || panic!("a driver went wild"));
    assert_eq!(panicked.unwrap_err(), LookError::Panicked);
}

#[cfg(feature = "detect")]
#[test]
fn this_machine_can_be_watched() {
    let watcher = SystemProfileWatcher::new(SECOND);
    assert!(watcher.current_profile().cpu.cores.logical >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_sees_what_is_there_first_and_then_what_changed() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND);
    let mut early = watcher.subscribe();
    assert_eq!(watcher.poll_once().await, Ok(false));
    stage.show(2);
    assert_eq!(watcher.poll_once().await, Ok(true));
    let mut late = watcher.subscribe();
    assert_eq!(processors(early.next().await), 1);
    assert_eq!(described(early.next().await), "logical processors: 2, was 1");
    assert_eq!(processors(early.next().await), 2);
    assert_eq!(early.try_next(), None);
    // Its own copy: what one reads is still there for the other.
    assert_eq!(processors(late.next().await), 2);
    assert_eq!(late.try_next(), None);
}

#[tokio::test(start_paused = true)]
async fn changes_since_a_profile_are_told_without_a_look() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND);
    let last = watcher.current_profile();
    assert_eq!(watcher.check_for_changes(&last), []);
    stage.show(4);
    watcher.poll_once().await.unwrap();
    let looks = stage.looks();
    let changes = watcher.check_for_changes(&last);
    assert_eq!(described(changes.first().cloned()), "logical processors: 4, was 1");
    assert_eq!(processors(changes.last().cloned()), 4);
    assert_eq!((changes.len(), stage.looks()), (2, looks));
}

#[tokio::test(start_paused = true)]
async fn who_sleeps_through_a_thousand_changes_gets_the_newest_and_stays_subscribed() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND);
    let mut sleeper = watcher.subscribe();
    for change in 2..=1_001 {
        stage.show(change);
        advance(SECOND * 20).await;
        assert_eq!(watcher.poll_once().await, Ok(true));
    }
    let (mut last, mut read) = (0, 0);
    while let Some(change) = sleeper.try_next() {
        read += 1;
        if let ProfileChange::Updated(profile) = change {
            last = profile.cpu.cores.logical;
        }
    }
    assert_eq!(last, 1_001);
    // What is there first, and of every change a description and a profile.
    assert_eq!(sleeper.lost() + read, 1 + 2 * 1_000);
    stage.show(1);
    advance(SECOND * 20).await;
    watcher.poll_once().await.unwrap();
    assert_eq!(next_machine(&mut sleeper).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_keeps_what_was_known_and_is_counted() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND);
    let mut subscription = watcher.subscribe();
    stage.fail("the bus is gone");
    for row in 1..=3 {
        assert_eq!(watcher.poll_once().await, Err(LookError::failed("the bus is gone")));
        assert_eq!(watcher.looks().failed_in_a_row, row);
    }
    assert_eq!(watcher.current_profile().cpu.cores.logical, 1);
    stage.show(3);
    assert_eq!(watcher.poll_once().await, Ok(true));
    let looks = watcher.looks();
    assert_eq!((looks.good, looks.failed, looks.failed_in_a_row), (2, 3, 0));
    assert_eq!(looks.last_failure, Some(LookError::failed("the bus is gone")));
    assert_eq!(processors(subscription.next().await), 1);
    assert_eq!(next_machine(&mut subscription).await, 3);
}

#[tokio::test]
async fn a_probe_that_panics_has_failed_and_is_asked_again() {
    let calls = AtomicUsize::new(0);
    let watcher = SystemProfileWatcher::with_probe(SECOND, move || {
        assert_ne!(calls.fetch_add(1, Ordering::SeqCst), 1, "the second look panics");
        Ok(machine(1))
    })
    .unwrap();
    assert_eq!(watcher.poll_once().await, Err(LookError::Panicked));
    assert_eq!(watcher.poll_once().await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn in_the_background_it_looks_once_an_interval() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND * 5);
    let mut subscription = watcher.subscribe();
    assert_eq!(next_machine(&mut subscription).await, 1);
    let begun = Instant::now();
    let task = watcher.start_background();
    for change in 2..6 {
        stage.show(change);
        assert_eq!(next_machine(&mut subscription).await, change);
        // Three are told at once, and the fourth has to stand for a while.
        let looks = if change < 5 { change - 1 } else { 7 };
        assert_eq!(begun.elapsed().as_secs(), 5 * u64::from(looks), "change to {change}");
    }
    task.stop().await;
    let looks = stage.looks();
    advance(SECOND * 50).await;
    assert_eq!(stage.looks(), looks, "nobody looks any more");
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_is_not_told_each_time() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND);
    let mut told = 0;
    for look in 0..60 {
        stage.show(1 + (look + 1) % 2);
        advance(SECOND).await;
        told += u32::from(watcher.poll_once().await.unwrap());
    }
    assert!((4..=24).contains(&told), "{told} of 60 changes were told");
    assert!(watcher.looks().held >= 20, "{:?}", watcher.looks());
    // What it settles on is told.
    for _ in 0..4 {
        stage.show(9);
        advance(SECOND).await;
        watcher.poll_once().await.unwrap();
    }
    assert_eq!(watcher.current_profile().cpu.cores.logical, 9);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_is_wanted_soon_does_not_wait_for_the_interval() {
    let stage = Stage::new();
    let watcher = stage.watcher(Duration::from_secs(3_600));
    let mut subscription = watcher.subscribe();
    assert_eq!(next_machine(&mut subscription).await, 1);
    let _task = watcher.start_background();
    let begun = Instant::now();
    stage.show(2);
    watcher.look_soon();
    assert_eq!(next_machine(&mut subscription).await, 2);
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_task_of_ours_is_alive_once_its_owner_is_dropped() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND).with_hot_plug();
    let metrics = Handle::current().metrics();
    let tasks: Vec<_> = (0..3).map(|_| watcher.start_background()).collect();
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(metrics.num_alive_tasks(), 3);
    assert!(tasks.iter().all(|task| !task.is_finished()));
    drop(tasks);
    while metrics.num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
    }
    let looks = stage.looks();
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(stage.looks(), looks);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_with_the_last_who_could_tell_it_something() {
    let watcher = Stage::new().watcher(SECOND);
    let mut subscription = watcher.subscribe();
    let (clone, task) = (watcher.clone(), watcher.start_background());
    drop(watcher);
    assert_eq!(processors(subscription.next().await), 1);
    drop(clone);
    assert!(timeout(SECOND * 10, subscription.next()).await.is_err(), "the task may tell something yet");
    drop(task);
    assert_eq!(subscription.next().await, None);
    assert_eq!(subscription.next().await, None);
}

/// A probe that answers when it is let, and how many of it run at most at once.
struct Gate {
    open: mpsc::Sender<()>,
    watcher: SystemProfileWatcher,
    most: Arc<AtomicUsize>,
}

fn gate() -> Gate {
    let (open, opened) = mpsc::channel();
    let opened = Mutex::new(opened);
    let (most, running) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    open.send(()).unwrap();
    let watcher = SystemProfileWatcher::with_probe(SECOND, move || {
        let at_once = running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(at_once, Ordering::SeqCst);
        // Closed when the test has ended.
        let answer = opened.lock().unwrap().recv();
        running.fetch_sub(1, Ordering::SeqCst);
        answer.map(|()| machine(1)).map_err(|_| LookError::failed("closed"))
    })
    .unwrap();
    Gate { open, watcher, most }
}

#[tokio::test]
async fn a_probe_that_hangs_is_given_up_on_and_never_asked_twice_at_once() {
    let Gate { open, watcher, most } = gate();
    let patience = Duration::from_millis(5);
    let watcher = watcher.with_patience(patience);
    for _ in 0..3 {
        assert_eq!(watcher.poll_once().await, Err(LookError::NoAnswer { waited: patience }));
    }
    assert_eq!(watcher.looks().failed, 3);
    let watcher = watcher.with_patience(SECOND * 60);
    // One for the look that hung, which may end before it is asked about and is old then, and one for each of ours.
    for _ in 0..3 {
        open.send(()).unwrap();
    }
    assert_eq!(watcher.poll_once().await, Ok(false));
    assert_eq!(watcher.poll_once().await, Ok(false));
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn giving_up_on_a_look_loses_nothing() {
    let Gate { open, watcher, most } = gate();
    for _ in 0..3 {
        let looks = timeout(Duration::from_millis(1), watcher.poll_once()).await;
        assert!(looks.is_err(), "{looks:?}");
    }
    open.send(()).unwrap();
    open.send(()).unwrap();
    assert_eq!(watcher.poll_once().await, Ok(false));
    assert_eq!((most.load(Ordering::SeqCst), watcher.looks().failed), (1, 0));
}

#[tokio::test]
async fn probes_run_off_the_threads_of_the_runtime() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let threads = Arc::clone(&seen);
    let watcher = SystemProfileWatcher::with_probe(SECOND, move || {
        threads.lock().unwrap().push(thread::current().id());
        Ok(machine(1))
    })
    .unwrap();
    watcher.poll_once().await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], thread::current().id(), "the first look is ours");
    assert_ne!(seen[1], thread::current().id());
}

#[test]
fn a_program_without_a_runtime_can_watch_from_a_thread() {
    let stage = Stage::new();
    let watcher = stage.watcher(Duration::from_millis(1));
    let mut subscription = watcher.subscribe();
    let looks = watcher.start_thread().unwrap();
    assert_eq!(processors(subscription.next_blocking()), 1);
    let mut gpu_box = machine(1);
    gpu_box.memory = plimsoll_profile::Presence::Found(plimsoll_profile::MemoryProfile {
        total: Bytes::gib(3),
        host_total: Bytes::gib(3),
        limit: None,
    });
    *stage.shown.lock().unwrap() = Ok(gpu_box);
    assert!(described(subscription.next_blocking()).starts_with("memory: 3 GiB, was "));
    assert_eq!(processors(subscription.next_blocking()), 1);
    // Whoever drops what tells ends the subscription, from another thread too.
    let ends = thread::spawn(move || drop((watcher, looks)));
    assert_eq!(subscription.next_blocking(), None);
    ends.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn looks_that_begin_to_fail_are_told_once_for_each_reason() {
    let stage = Stage::new();
    let watcher = stage.watcher(SECOND);
    let mut failures = watcher.failures();
    stage.fail("one");
    for _ in 0..3 {
        watcher.poll_once().await.unwrap_err();
    }
    stage.fail("other");
    watcher.poll_once().await.unwrap_err();
    stage.show(2);
    watcher.poll_once().await.unwrap();
    stage.fail("other");
    watcher.poll_once().await.unwrap_err();
    drop(watcher);
    let told = [failures.next().await, failures.next().await, failures.next().await];
    assert_eq!(told, ["one", "other", "other"].map(|reason| Some(LookError::failed(reason))));
    assert_eq!(failures.next().await, None);
}
