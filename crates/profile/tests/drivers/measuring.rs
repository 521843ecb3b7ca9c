//! Measuring an accelerator's memory, with drivers that copy, fail, hang and lie.

use std::time::Duration;

use plimsoll_profile::isolated::{self, Wanted};
use plimsoll_profile::{Absence, Accelerator, DeviceMeasured};
use plimsoll_units::Bytes;

use crate::{Library, child, cuda};

/// Long enough for a child to start on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A card as the look before saw it, and its measurement by a driver of these flags and settings; `None` where no driver can
/// be made.
fn measured(
    flags: &'static [&'static str],
    settings: &[(&str, &str)],
    limit: Duration,
) -> Option<Result<DeviceMeasured, Absence>> {
    let asked = |libraries: &[Library], settings: &[(&str, &str)], question: &str| {
        let mut command = child("answers", libraries, &[("FAKE_CUDA", "4090")]).unwrap();
        command.envs(settings.iter().copied()).env("FAKE_QUESTION", question);
        command
    };
    child("answers", &[cuda(&[])], &[])?;
    let wanted = Wanted { limit: PATIENCE, free: false, held: false };
    let look = isolated::look(wanted, |question| asked(&[cuda(&[])], &[], question));
    let card: &Accelerator = &look.profile.accelerators[0];
    let times = (Duration::from_millis(20), limit);
    Some(isolated::measure(card, times, |question| asked(&[cuda(flags)], settings, question)))
}

fn refused(flags: &'static [&'static str], settings: &[(&str, &str)], expected: &str) {
    let Some(measured) = measured(flags, settings, PATIENCE) else { return };
    assert_eq!(measured.unwrap_err().to_string(), expected, "{settings:?}");
}

#[test]
fn what_a_card_copies_in_a_while_is_told_and_given_back() {
    let Some(measured) = measured(&[], &[], PATIENCE) else { return };
    let measured = measured.unwrap();
    // The driver has 1 GiB free: an eighth of it.
    assert_eq!(measured.buffer, Bytes::mib(128));
    assert!(measured.moved.get().is_multiple_of(4 * 2 * (64 << 20)), "{measured:?}");
    // It takes a millisecond for 100 MB that are read and 100 MB that are written, or longer where the machine is busy.
    assert!(measured.rate.get() > 0 && measured.rate.get() <= 200_000_000_000, "{measured:?}");
}

#[test]
fn a_driver_that_cannot_copy_or_fails_says_so_and_keeps_nothing() {
    let lacks = "the driver library has no 'cuMemAlloc_v2'; it is too old or not the driver's";
    refused(&["-DWITHOUT_COPIES"], &[], lacks);
    let lacks = "the driver library has no 'cuDevicePrimaryCtxRetain'; it is too old or not the driver's";
    refused(&["-DWITHOUT_CONTEXTS"], &[], lacks);
    refused(&[], &[("FAKE_FAILS", "cuMemAlloc_v2")], "cuMemAlloc_v2 failed with code 2");
    // Each of these leaves by another way; the driver ends the process where something is left on the card.
    for call in ["cuMemsetD8_v2", "cuMemcpyDtoD_v2", "cuCtxSynchronize", "cuMemFree_v2"] {
        refused(&[], &[("FAKE_FAILS", call)], &format!("{call} failed with code 719"));
    }
    refused(&[], &[("FAKE_RETAIN", "2")], "cuDevicePrimaryCtxRetain failed with code 2");
}

#[test]
fn a_card_that_is_lost_or_another_one_now_is_not_measured() {
    refused(&[], &[("FAKE_LOST", "0")], "cuDeviceTotalMem_v2 failed with code 999");
    refused(&[], &[("FAKE_INIT", "100")], "the driver sees no device");
    refused(
        &[],
        &[("FAKE_CUDA", "3090")],
        "'GPU-10101010-1010-1010-1010-101010101010' is no longer at its place; \
         'GPU-30303030-3030-3030-3030-303030303030' is",
    );
}

#[test]
fn a_driver_that_answers_what_cannot_be_gives_no_figure() {
    let Some(measured) = measured(&[], &[("FAKE_AT_ONCE", "1"), ("FAKE_FREE", "1")], PATIENCE) else {
        return;
    };
    assert_eq!(
        measured.unwrap_err().to_string(),
        format!("cuMemGetInfo_v2 says '{}', which cannot be", 99_u64 << 30)
    );
}

#[test]
fn a_driver_that_hangs_or_crashes_costs_a_while_and_a_line() {
    let short = Duration::from_millis(1_480);
    for call in ["cuMemAlloc_v2", "cuCtxSynchronize"] {
        let Some(measured) = measured(&[], &[("FAKE_HANGS", call)], short) else { return };
        assert_eq!(measured, Err(Absence::TimedOut { milliseconds: 1_500 }));
    }
    let Some(measured) = measured(&[], &[("FAKE_CONTEXT_DOES", "crash")], PATIENCE) else { return };
    assert!(matches!(measured, Err(Absence::Crashed { .. })), "{measured:?}");
}
