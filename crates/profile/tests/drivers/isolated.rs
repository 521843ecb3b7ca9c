//! Drivers that crash and hang, looked at in a child.

use std::process::Command;
use std::time::Duration;

use plimsoll_profile::isolated::{Look, Wanted, look};
use plimsoll_profile::{Absence, Health, Presence, Probe};
use plimsoll_units::Bytes;

use crate::{child, cuda, nvml};

/// Long enough for a child to start on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// For a child that will not answer.
const SHORT: Duration = Duration::from_millis(1_500);

/// A look with both libraries; `None` where they cannot be made.
fn seen(limit: Duration, settings: &[(&str, &str)]) -> Option<Look> {
    seen_with(Wanted { limit, free: true, held: false }, settings)
}

fn seen_with(wanted: Wanted, settings: &[(&str, &str)]) -> Option<Look> {
    child("answers", &[cuda(&[]), nvml(&[])], settings)?;
    Some(look(wanted, |question| {
        let mut command = child("answers", &[cuda(&[]), nvml(&[])], settings).unwrap();
        command.env("FAKE_CUDA", "4090").env("FAKE_NVML", "4090,3090").env("FAKE_QUESTION", question);
        command
    }))
}

fn absent(look: &Look, probe: Probe) -> Option<&Absence> {
    look.profile.source(probe).and_then(|outcome| outcome.as_result().err())
}

/// Of each accelerator: its name's end, and what is wrong with it.
fn troubles(look: &Look) -> Vec<(&str, Option<&Absence>)> {
    let of = |gpu| {
        let gpu: &plimsoll_profile::Accelerator = gpu;
        let trouble = match &gpu.health {
            Health::Healthy => None,
            Health::Unhealthy(why) => Some(why),
        };
        (gpu.name.as_deref().unwrap().rsplit(' ').next().unwrap(), trouble)
    };
    look.profile.accelerators.iter().map(of).collect()
}

#[test]
fn drivers_that_behave_are_told_as_without_a_child() {
    let Some(look) = seen(PATIENCE, &[]) else { return };
    assert_eq!(look.trouble, None);
    assert_eq!(look.failed().count(), 0);
    assert_eq!(troubles(&look), [("4090", None), ("3090", Some(&Absence::Hidden))]);
    let free: Vec<Bytes> = look.free.accelerators.values().copied().collect();
    assert_eq!(free, [Bytes::gib(22)]);
    assert!(look.free.host.is_some());
    assert_eq!(look.held, Presence::Absent(Absence::NotAsked));
}

#[test]
fn who_holds_memory_is_told_where_it_is_asked() {
    let wanted = Wanted { limit: PATIENCE, free: true, held: true };
    let Some(look) = seen_with(wanted, &[("FAKE_PID", "41")]) else { return };
    assert_eq!(look.free.accelerators.values().copied().collect::<Vec<_>>(), [Bytes::gib(22)]);
    let held = look.held.found().unwrap();
    assert_eq!(held.len(), 2, "{held:?}");
    for held in held.into_values() {
        let held: Vec<_> = held.found().unwrap().into_iter().map(|held| (held.pid, held.bytes)).collect();
        assert_eq!(held, [(41, Some(Bytes::gib(1))), (42, None)]);
    }
}

#[test]
fn who_asks_who_holds_memory_takes_none() {
    let wanted = Wanted { limit: SHORT, free: true, held: true };
    let Some(look) = seen_with(wanted, &[("FAKE_NVML_DOES", "hang")]) else { return };
    assert_eq!(look.held, Presence::Absent(Absence::TimedOut { milliseconds: 1_500 }));
    // The driver itself would have to take memory to tell what is free.
    assert!(look.free.accelerators.is_empty() && look.free.host.is_some());
    let Some(look) = seen_with(wanted, &[("FAKE_NVML_INIT", "9")]) else { return };
    assert!(matches!(look.held, Presence::Absent(Absence::Driver { code: 9, .. })));
    assert!(look.free.accelerators.is_empty());
}

#[test]
fn a_driver_that_crashes_is_told_of_and_the_others_are_asked() {
    for (does, how) in [("crash", "signal: 11"), ("exit", "exit status: 7")] {
        let Some(look) = seen(PATIENCE, &[("FAKE_CUDA_DOES", does)]) else { return };
        let why = absent(&look, Probe::Cuda).unwrap().clone();
        assert!(matches!(&why, Absence::Crashed { how: told } if told.contains(how)), "{why}");
        assert_eq!(look.profile.source(Probe::Nvml), Some(&Presence::Found(2)));
        assert_eq!(troubles(&look), [("4090", Some(&why)), ("3090", Some(&why))]);
        assert_eq!(look.failed().map(|(probe, _)| probe).collect::<Vec<_>>(), [Probe::Cuda]);
        assert_eq!(look.free.accelerators.len(), 0);
    }
    let Some(look) = seen(PATIENCE, &[("FAKE_NVML_DOES", "crash")]) else { return };
    assert!(matches!(absent(&look, Probe::Nvml), Some(Absence::Crashed { .. })));
    assert_eq!(troubles(&look), [("4090", None)]);
}

#[test]
fn a_driver_that_hangs_is_given_up() {
    let Some(look) = seen(SHORT, &[("FAKE_CUDA_DOES", "hang"), ("FAKE_NVML_DOES", "hang")]) else { return };
    let late = Absence::TimedOut { milliseconds: 1_500 };
    assert_eq!(absent(&look, Probe::Cuda), Some(&late));
    assert_eq!(absent(&look, Probe::Nvml), Some(&late));
    assert_eq!(late.to_string(), "timed out: no answer within 1500 ms");
    assert!(look.profile.accelerators.is_empty());
    assert!(look.profile.memory.as_result().is_ok());
}

#[test]
fn a_library_that_hangs_is_not_asked_again_for_what_is_free() {
    let Some(look) = seen(SHORT, &[("FAKE_NVML_DOES", "hang")]) else { return };
    assert_eq!(absent(&look, Probe::Nvml), Some(&Absence::TimedOut { milliseconds: 1_500 }));
    assert_eq!((troubles(&look), look.trouble.clone()), (vec![("4090", None)], None));
    // The driver itself is asked instead.
    assert_eq!(look.free.accelerators.values().copied().collect::<Vec<_>>(), [Bytes::gib(1)]);
}

#[test]
fn a_driver_that_hangs_when_asked_what_is_free_leaves_the_profile() {
    let settings = [("FAKE_CONTEXT_DOES", "hang"), ("FAKE_NVML_INIT", "9")];
    let Some(look) = seen(SHORT, &settings) else { return };
    assert_eq!(look.trouble, Some(Absence::TimedOut { milliseconds: 1_500 }));
    assert_eq!(troubles(&look), [("4090", None)]);
    assert!(look.free.accelerators.is_empty() && look.free.host.is_some());
}

#[test]
fn a_child_that_cannot_be_started_or_says_nothing_leaves_what_needs_no_driver() {
    for (program, told) in [("/none/such", "cannot be started"), ("true", "exit status: 0")] {
        let look = look(Wanted { limit: PATIENCE, free: true, held: true }, |_| Command::new(program));
        assert!(look.profile.memory.as_result().is_ok());
        for probe in Probe::ALL.into_iter().filter(|probe| matches!(probe, Probe::Cuda | Probe::Nvml)) {
            let why = absent(&look, probe).unwrap().to_string();
            assert!(why.contains(told), "{why}");
        }
        assert!(look.trouble.is_some());
    }
}
