//! A look at this machine in a child process, so that a driver that crashes or hangs costs a moment and a line of
//! explanation.
//!
//! A library cannot start its host program again, so this is for programs that can: one that has a hidden command of its own
//! that calls [`answer`], and asks with [`look`].
//!
//! ```no_run
//! use std::process::Command;
//! use std::time::Duration;
//!
//! use plimsoll_profile::isolated;
//!
//! let program = std::env::current_exe()?;
//! let wanted = isolated::Wanted { limit: Duration::from_secs(2), free: true, held: false };
//! let look = isolated::look(wanted, |question| {
//!     let mut command = Command::new(&program);
//!     command.arg("__look").arg(question);
//!     command
//! });
//! println!("{} accelerator(s)", look.profile.accelerators.len());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{
    Absence, Accelerator, DeviceMeasured, FreeMemory, Machine, Presence, Probe, ProcessMemory, SystemProfile,
    measure_accelerator, read_processes,
};

/// What stands before each line that is ours: a driver may print too.
const MARK: &str = "plimsoll-look ";

/// How much a child may print.
const MOST_OUTPUT: u64 = 8 << 20;

/// How long a child that has closed its output may take to end.
const END: Duration = Duration::from_millis(200);

/// Who holds memory on each accelerator, by [`Accelerator::id`](crate::Accelerator::id), or why that is not known.
pub type Held = Presence<BTreeMap<String, Presence<Vec<ProcessMemory>>>>;

/// What a look came back with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What the machine is. A driver that crashed or hung is told of in its sources.
    pub profile: SystemProfile,
    /// What is free on it.
    pub free: FreeMemory,
    /// Who holds memory on the accelerators, as [`read_processes`] tells it.
    pub held: Held,
    /// Why what is free on the accelerators is not known, when asking for that crashed or hung.
    pub trouble: Option<Absence>,
}

/// What is wanted of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How long each step may take: loading a driver with what it lists, or reading what is free.
    pub limit: Duration,
    /// Whether to read what is free on the accelerators. Where NVIDIA's management library is not there, that takes memory on
    /// the card for a moment.
    pub free: bool,
    /// Whether to ask that library who holds memory on the accelerators. Where it is not there, what is free is not read
    /// either: whoever asks who holds memory must not be among them.
    pub held: bool,
}

/// What the child is asked.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    /// Whether to read what is free on the accelerators.
    free: bool,
    /// Whether to ask who holds memory on them.
    held: bool,
    /// How long each step may take.
    milliseconds: u64,
    /// Drivers that are left out, and why.
    left_out: Vec<(Probe, Absence)>,
    /// An accelerator whose memory is to be measured, for so many milliseconds; then nothing else is asked.
    measured: Option<(Accelerator, u64)>,
}

/// What the child says, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    /// A driver is about to be loaded.
    Asking(Probe),
    /// What the machine is; what is free is asked for next.
    Profile(Box<SystemProfile>),
    /// Who holds memory; said only when it was asked.
    Held(Held),
    /// What is free. The last line.
    Free(FreeMemory),
    /// What a measurement found. The only line.
    Measured(Presence<DeviceMeasured>),
}

/// What was heard of one child.
#[derive(Debug, Default)]
struct Heard {
    asking: Option<Probe>,
    profile: Option<SystemProfile>,
    held: Option<Held>,
    free: Option<FreeMemory>,
    measured: Option<Presence<DeviceMeasured>>,
}

/// Measures an accelerator's memory in a child process, as [`measure_accelerator`] does: for at most `budget`, with what the
/// driver takes to begin as long as `limit`. `command` is that of [`look`].
///
/// # Errors
///
/// As that function, and a driver that crashes or hangs.
pub fn measure(
    accelerator: &Accelerator,
    (budget, limit): (Duration, Duration),
    command: impl Fn(&str) -> Command,
) -> Result<DeviceMeasured, Absence> {
    let whole = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let limit = limit.saturating_add(budget);
    let (free, held, left_out) = (false, false, Vec::new());
    let measured = Some((accelerator.clone(), whole(budget)));
    let question = Question { free, held, milliseconds: whole(limit), left_out, measured };
    let text =
        serde_json::to_string(&question).map_err(|error| Absence::Crashed { how: error.to_string() })?;
    let (heard, end) = hear(&mut command(&text), limit);
    match (heard.measured, end) {
        (Some(Presence::Found(measured)), _) => Ok(measured),
        (Some(Presence::Absent(why)), _) | (None, Err(why)) => Err(why),
        (None, Ok(())) => Err(Absence::Crashed { how: "it said nothing".to_owned() }),
    }
}

/// Looks at this machine in a child process. `command` makes the command that passes its argument to [`answer`] and prints
/// to its standard output; its streams are set here.
///
/// A driver that crashes or takes longer than the limit is told of in the profile's sources, and the others are asked again
/// without it. When no child can be started, the look is a fast one.
pub fn look(wanted: Wanted, command: impl Fn(&str) -> Command) -> Look {
    let Wanted { limit, free, held } = wanted;
    let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let mut question = Question { free, held, milliseconds, left_out: Vec::new(), measured: None };
    loop {
        let (heard, end) = match serde_json::to_string(&question) {
            Ok(text) => hear(&mut command(&text), limit),
            Err(error) => (Heard::default(), Err(Absence::Crashed { how: error.to_string() })),
        };
        let why = end.err().unwrap_or_else(|| Absence::Crashed { how: "it said nothing".to_owned() });
        match heard {
            Heard { profile: Some(profile), free: Some(free), held, .. } => {
                let held = held.unwrap_or(Presence::Absent(Absence::NotAsked));
                return Look { profile, free, held, trouble: None };
            }
            Heard { profile: Some(profile), held: told, .. } => {
                let unasked = if held { why.clone() } else { Absence::NotAsked };
                let held = told.unwrap_or(Presence::Absent(unasked));
                return Look { profile, free: host_alone(), held, trouble: Some(why) };
            }
            Heard { asking: Some(probe), .. } if question.left_out.iter().all(|(out, _)| *out != probe) => {
                question.left_out.push((probe, why));
            }
            Heard { .. } => return without_drivers(&question.left_out, &why),
        }
    }
}

/// The look that needs no driver; each is told of with the reason that it was left out for.
fn without_drivers(left_out: &[(Probe, Absence)], why: &Absence) -> Look {
    let asked = |probe| {
        let known = left_out.iter().find(|(out, _)| *out == probe);
        Err(known.map_or_else(|| why.clone(), |(_, why)| why.clone()))
    };
    let profile = SystemProfile::detect_by(&Machine::here(), &asked);
    let held = Presence::Absent(why.clone());
    Look { profile, free: host_alone(), held, trouble: Some(why.clone()) }
}

/// What is free where no driver was asked.
fn host_alone() -> FreeMemory {
    FreeMemory { host: host_free(), ..FreeMemory::default() }
}

fn host_free() -> Option<plimsoll_units::Bytes> {
    Machine::here().memory().found().and_then(|reading| reading.available)
}

/// Starts a child and hears it out: until it has said all, ends, or is silent for longer than `limit`.
fn hear(command: &mut Command, limit: Duration) -> (Heard, Result<(), Absence>) {
    let mut heard = Heard::default();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return (heard, Err(Absence::Crashed { how: format!("it cannot be started: {error}") }));
        }
    };
    let lines = lines_of(&mut child);
    let end = loop {
        match lines.recv_timeout(limit) {
            Ok(Line::Asking(probe)) => heard.asking = Some(probe),
            Ok(Line::Profile(profile)) => heard.profile = Some(*profile),
            Ok(Line::Held(held)) => heard.held = Some(held),
            Ok(Line::Free(free)) => {
                heard.free = Some(free);
                break Ok(());
            }
            Ok(Line::Measured(measured)) => {
                heard.measured = Some(measured);
                break Ok(());
            }
            Err(RecvTimeoutError::Timeout) => {
                let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                break Err(Absence::TimedOut { milliseconds });
            }
            Err(RecvTimeoutError::Disconnected) => {
                break Err(match ended(&mut child) {
                    Some(status) => Absence::Crashed { how: status.to_string() },
                    None => Absence::Crashed { how: "it closed its output and went on".to_owned() },
                });
            }
        }
    };
    // What it does now is of no more interest. One that has ended already cannot be killed, and need not be.
    let _killed = child.kill();
    let _reaped = child.wait();
    (heard, end)
}

/// What a child says, line by line, from a thread that ends with the child's output.
fn lines_of(child: &mut Child) -> Receiver<Line> {
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let mut output = BufReader::new(output.take(MOST_OUTPUT));
            let mut bytes = Vec::new();
            while matches!(output.read_until(b'\n', &mut bytes), Ok(1..)) {
                let ours = std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_prefix(MARK));
                let line = ours.and_then(|text| serde_json::from_str(text).ok());
                if line.is_some_and(|line| sender.send(line).is_err()) {
                    return;
                }
                bytes.clear();
            }
        });
    }
    receiver
}

/// How a child ended that has closed its output.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    const STEPS: u32 = 100;
    for _ in 0..STEPS {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => thread::sleep(END / STEPS),
            Err(_) => return None,
        }
    }
    None
}

/// The child's side: answers `question` on `out`, which the parent reads.
///
/// The process ends itself when a driver holds it for much longer than the parent waits: the parent may be gone.
///
/// # Errors
///
/// A question that is none, or output that cannot be written.
pub fn answer(question: &str, out: &mut impl Write) -> io::Result<()> {
    let question: Question = serde_json::from_str(question).map_err(io::Error::other)?;
    let patience = Duration::from_millis(question.milliseconds).saturating_mul(8);
    thread::spawn(move || {
        thread::sleep(patience);
        std::process::abort();
    });
    let out = RefCell::new(out);
    let say = |line: &Line| -> io::Result<()> {
        let text = serde_json::to_string(line).map_err(io::Error::other)?;
        let mut out = out.borrow_mut();
        writeln!(out, "{MARK}{text}")?;
        out.flush()
    };
    if let Some((accelerator, budget)) = &question.measured {
        #[expect(clippy::disallowed_methods, reason = "a measurement is of time")]
        let clock = Instant::now;
        let measured = measure_accelerator(accelerator, Duration::from_millis(*budget), &clock);
        return say(&Line::Measured(measured.into()));
    }
    let machine = Machine::here();
    let asked = |probe: Probe| match question.left_out.iter().find(|(out, _)| *out == probe) {
        Some((_, why)) => Err(why.clone()),
        // Who cannot tell what comes next must not do it.
        None => say(&Line::Asking(probe)).map_err(|e| Absence::Told { text: e.to_string() }),
    };
    let profile = SystemProfile::detect_by(&machine, &asked);
    say(&Line::Profile(Box::new(profile.clone())))?;
    let mut free = question.free;
    if question.held {
        let left_out = question.left_out.iter().find(|(out, _)| *out == Probe::Nvml);
        let held = left_out.map_or_else(read_processes, |(_, why)| Presence::Absent(why.clone()));
        free &= held.as_result().is_ok();
        say(&Line::Held(held))?;
    }
    say(&Line::Free(if free { FreeMemory::read_with(&machine, &profile) } else { host_alone() }))
}

/// A fast look, which loads no driver and needs no child.
pub fn look_fast() -> Look {
    let profile = SystemProfile::detect_fast();
    let free = FreeMemory::read(&profile);
    Look { profile, free, held: Presence::Absent(Absence::NotAsked), trouble: None }
}

impl Look {
    /// The probes that crashed or hung.
    pub fn failed(&self) -> impl Iterator<Item = (Probe, &Absence)> {
        self.profile.sources.iter().filter_map(|source| match &source.outcome {
            Presence::Absent(why @ (Absence::TimedOut { .. } | Absence::Crashed { .. })) => {
                Some((source.probe, why))
            }
            _ => None,
        })
    }
}
