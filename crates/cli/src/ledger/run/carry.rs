//! A command from its start to its end: signals passed on, the lease renewed, memory measured.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use plimsoll::residency::{LedgerError, Request, footprint};
use plimsoll::units::{Bytes, PoolId};
use plimsoll::{Place, Processes};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use super::super::args::{OnLost, RunArgs};
use super::super::{Ledger, now};
use super::device::Pinned;
use crate::failure::Failure;

/// How often the lease is renewed and the memory measured.
const BEAT: Duration = Duration::from_secs(5);

/// Runs a command until it ends; its status, or 128 and the signal that ended it.
pub(super) fn carry(
    ledger: &Ledger,
    request: &Request,
    args: &RunArgs,
    device: Option<&Pinned>,
) -> Result<u8, Failure> {
    // Before the command starts, so that no signal falls between.
    let events = events()?;
    let mut child = start(&args.command, device)?;
    let mut lost = false;
    let mut beat = Beat { ledger, request, told: false, gone: false, pool: host_pool(ledger, request) };
    let mut next = now().saturating_add(BEAT);
    loop {
        match events.recv_timeout(BEAT) {
            Ok(event) => pass_on(&child, &event),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody tells us of signals any more; the end of the command is still seen.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(100)),
        }
        if let Some(status) = child.try_wait().map_err(Failure::internal)? {
            return Ok(told(status));
        }
        if let (false, Some(why)) = (lost, ledger.lease.as_ref().and_then(crate::live::Lease::lost)) {
            lost = true;
            on_lost(&child, &request.instance, &why, args.on_lost);
        }
        if now() >= next {
            beat.beat(child.id());
            next = now().saturating_add(BEAT);
        }
    }
}

/// Signals as they come, in a thread that ends with this process.
fn events() -> Result<Receiver<Origin>, Failure> {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
    // What we are told to ignore (`nohup`, a job in the background) the command is to ignore too, and so inherits it.
    let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let wanted = wanted.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).chain([SIGCHLD]);
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted).map_err(Failure::internal)?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || signals.forever().try_for_each(|event| sender.send(event)));
    Ok(receiver)
}

/// The signals that a process ignores, a bit for each, from its `status` file.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Starts the command under a name of this program that makes it end when we are killed.
fn start(command: &[OsString], device: Option<&Pinned>) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(Failure::internal)?;
    let mut start = Command::new(program);
    start.arg("__start").arg(std::process::id().to_string()).arg("--").args(command);
    start.envs(device.iter().flat_map(|device| device.environment()));
    start.spawn().map_err(|error| Failure::Ended {
        status: 126,
        stdout: String::new(),
        stderr: format!("cannot start a process: {error}"),
    })
}

/// Says that a booking was lost, and ends the command where that was asked for.
fn on_lost(child: &Child, instance: &str, why: &str, what: OnLost) {
    let then = match what {
        OnLost::Warn => "the command runs on",
        OnLost::Kill => "the command is told to end",
    };
    crate::complain(&format!("note: the booking of {instance} was lost: {why}; {then}"));
    if what == OnLost::Kill {
        let _ended = kill_process(Pid::from_child(child), Signal::TERM);
    }
}

/// Sends a signal on to the command. What the terminal or the kernel sent, the command has got itself.
fn pass_on(child: &Child, event: &Origin) {
    if event.signal == SIGCHLD || event.cause == Cause::Kernel {
        return;
    }
    // It was not waited for yet, so its number is still its own.
    if let Some(signal) = Signal::from_named_raw(event.signal) {
        let _ended = kill_process(Pid::from_child(child), signal);
    }
}

/// Its status; 128 and the number of the signal that ended it.
fn told(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(128 + status.signal()?));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

/// The pool of the host's memory on which a request draws: what is resident there can be measured.
fn host_pool(ledger: &Ledger, request: &Request) -> Option<PoolId> {
    let held = ledger.book().ok()?.holders().into_iter().filter(|held| held.instance == request.instance);
    held.map(|held| held.pool).find(|pool| Place::of_pool(Some(pool)) == Place::OneMemory)
}

/// What is done now and then while a command runs.
struct Beat<'a> {
    ledger: &'a Ledger,
    request: &'a Request,
    pool: Option<PoolId>,
    // Whether more than the booking was measured once.
    told: bool,
    // Whether somebody ended the booking.
    gone: bool,
}

impl Beat<'_> {
    /// Renews the lease and takes in what is used. A ledger that cannot be written now is tried again next time.
    fn beat(&mut self, child: u32) {
        let (store, instance) = (&self.ledger.store, &self.request.instance);
        // A lease of etcd's is renewed by itself.
        if self.ledger.lease.is_none()
            && !self.gone
            && let Err(LedgerError::NotHeld { .. }) = store.heartbeat(instance, now())
        {
            self.gone = true;
            crate::complain(&format!(
                "note: the booking of {instance} was ended; the command runs on without it"
            ));
        }
        if self.gone {
            return;
        }
        let Some(pool) = &self.pool else { return };
        let processes = Processes::look();
        let measured = processes.resident(&processes.tree(child));
        let booked: Bytes = footprint(&self.request.spec);
        if let Some(bytes) = to_tell(measured, booked, self.told) {
            self.told = true;
            let _later = store.measure(instance, pool, bytes, now());
        }
    }
}

/// What the ledger is told of a measurement. A model that has not filled its memory yet keeps its booking: only more than
/// that is told, and afterwards that it is less again.
fn to_tell(measured: Bytes, booked: Bytes, told_before: bool) -> Option<Bytes> {
    (measured > booked || told_before).then(|| measured.max(booked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_never_takes_a_booking_back() {
        let tell = |measured, told| to_tell(Bytes::new(measured), Bytes::new(10), told).map(Bytes::get);
        assert_eq!(tell(3, false), None, "it still loads");
        assert_eq!(tell(10, false), None);
        assert_eq!(tell(11, false), Some(11));
        assert_eq!(tell(3, true), Some(10), "what was promised stays promised");
    }

    #[test]
    fn ignored_signals_are_read_from_the_status_of_a_process() {
        let mask =
            ignored("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000440\n");
        assert_eq!((mask >> (SIGHUP - 1) & 1, mask >> (SIGINT - 1) & 1), (1, 0));
        assert_eq!(ignored("Name:\tx\n"), 0);
    }

    #[test]
    fn a_status_is_passed_on_as_a_shell_would() {
        let status = |raw| told(ExitStatus::from_raw(raw));
        assert_eq!((status(0), status(7 << 8), status(9), status(15)), (0, 7, 137, 143));
    }
}
