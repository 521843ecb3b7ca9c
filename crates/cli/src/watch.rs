//! `plimsoll watch`.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll::profile::isolated::Look;
use plimsoll::profile::{Probe, SystemProfile};
use plimsoll::watcher::{LookError, ProfileChange, Subscription, SystemProfileWatcher};
use serde::Serialize;

use crate::args::{Cli, WatchArgs};
use crate::failure::{Failure, Outcome};
use crate::{input, look, print};

/// The format of a line of JSON.
const FORMAT: &str = "plimsoll.watch/1";

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    /// What the machine is from now on.
    Profile(ProfileRecord<'a>),
    /// What changed.
    Change { format: &'static str, description: &'a str },
}

#[derive(Serialize)]
struct ProfileRecord<'a> {
    format: &'static str,
    node: String,
    acceleration: &'static str,
    workers: u32,
    memory_bytes: Option<u64>,
    accelerators: Vec<AcceleratorRecord<'a>>,
}

#[derive(Serialize)]
struct AcceleratorRecord<'a> {
    ordinal: u32,
    id: &'a str,
    name: Option<&'a str>,
    total_bytes: Option<u64>,
    healthy: bool,
}

pub(crate) fn run(args: &WatchArgs, cli: &Cli) -> Outcome {
    if let Some(url) = &args.cluster {
        return crate::live::watch(url, cli);
    }
    let interrupts = interrupts()?;
    let failing = Mutex::new(Failing::default());
    let probe = move || {
        let look = look::without_free();
        failing.lock().unwrap_or_else(PoisonError::into_inner).settle(look)
    };
    let watcher =
        SystemProfileWatcher::with_probe(args.interval, probe).map_err(Failure::internal)?.with_hot_plug();
    let mut subscription = watcher.subscribe();
    let looks = watcher.start_thread().map_err(Failure::internal)?;
    // Nobody is left to tell anything then, which ends the subscription.
    interrupts.then(move || drop((watcher, looks)));
    follow(&mut subscription, cli.json, print)?;
    Ok(String::new())
}

/// Drivers that crashed or hung in the last look; `None` before the first.
#[derive(Debug, Default)]
pub(crate) struct Failing(Option<Vec<Probe>>);

impl Failing {
    /// What a look shows. A driver that crashes or hangs once says nothing about its cards, so that look has failed; when
    /// it does so again, or did from the start, its cards are not to be had.
    pub(crate) fn settle(&mut self, look: Look) -> Result<SystemProfile, LookError> {
        let now: Vec<Probe> = look.failed().map(|(probe, _)| probe).collect();
        let before = self.0.replace(now);
        let new = |probe: Probe| before.as_ref().is_some_and(|before| !before.contains(&probe));
        let newly = look.failed().find(|(probe, _)| new(*probe));
        let trouble = newly.map(|(probe, why)| LookError::failed(format!("{}: {why}", probe.name())));
        trouble.map_or(Ok(look.profile), Err)
    }
}

/// Prints what is told, a piece at a time, until nothing more can come.
fn follow(
    subscription: &mut Subscription,
    json: bool,
    mut print: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while let Some(change) = subscription.next_blocking() {
        let line = if json { record(&change)? } else { text(&change) };
        print(&(line + "\n"))?;
    }
    Ok(())
}

fn record(change: &ProfileChange) -> Result<String, Failure> {
    let event = match change {
        ProfileChange::Updated(profile) => Event::Profile(profile_record(profile)),
        ProfileChange::HardwareChange { description } => Event::Change { format: FORMAT, description },
    };
    serde_json::to_string(&event).map_err(Failure::internal)
}

fn profile_record(profile: &Arc<SystemProfile>) -> ProfileRecord<'_> {
    let accelerators = profile.accelerators.iter().map(|accelerator| AcceleratorRecord {
        ordinal: accelerator.ordinal,
        id: &accelerator.id,
        name: accelerator.name.as_deref(),
        total_bytes: accelerator.total.map(|total| total.get()),
        healthy: accelerator.health.is_healthy(),
    });
    ProfileRecord {
        format: FORMAT,
        node: input::node_name().to_string(),
        acceleration: profile.acceleration_mode().name(),
        workers: profile.recommended_workers(),
        memory_bytes: profile.memory.as_result().ok().map(|memory| memory.total.get()),
        accelerators: accelerators.collect(),
    }
}

fn text(change: &ProfileChange) -> String {
    let profile = match change {
        ProfileChange::HardwareChange { description } => return description.clone(),
        ProfileChange::Updated(profile) => profile,
    };
    let memory = match profile.memory.as_result() {
        Ok(memory) => memory.total.to_string(),
        Err(_) => "not known".to_owned(),
    };
    let healthy = profile.accelerators.iter().filter(|accelerator| accelerator.health.is_healthy());
    format!(
        "now: {} worker(s), acceleration {}, memory {memory}, {} accelerator(s)",
        profile.recommended_workers(),
        profile.acceleration_mode(),
        healthy.count()
    )
}

/// What ends the command without a fault.
pub(crate) struct Interrupts {
    #[cfg(unix)]
    signals: signal_hook::iterator::Signals,
}

/// Catches them from now on.
pub(crate) fn interrupts() -> Result<Interrupts, Failure> {
    Ok(Interrupts {
        #[cfg(unix)]
        signals: {
            use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
            signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Failure::internal)?
        },
    })
}

impl Interrupts {
    /// Does this when the first one comes, in a thread that ends with this process.
    #[cfg(unix)]
    pub(crate) fn then(mut self, stop: impl FnOnce() + Send + 'static) {
        std::thread::spawn(move || {
            if self.signals.forever().next().is_some() {
                stop();
            }
        });
    }

    /// Here an interrupt ends the process by itself.
    #[cfg(not(unix))]
    pub(crate) fn then(self, stop: impl FnOnce() + Send + 'static) {
        std::mem::forget(stop);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use plimsoll::profile::{
        Accelerator, AcceleratorKind, Cores, CpuFeatures, CpuProfile, GpuBackend, Health, MemoryProfile,
        Presence,
    };
    use plimsoll::units::Bytes;
    use snapbox::{assert_data_eq, str};

    use super::*;

    fn machine(cards: u32) -> SystemProfile {
        let card = |ordinal| Accelerator {
            ordinal,
            id: format!("GPU-{ordinal}"),
            uuid: None,
            pci: None,
            name: Some("RTX 4090".to_owned()),
            backend: GpuBackend::Cuda,
            kind: AcceleratorKind::Discrete,
            total: Some(Bytes::gib(24)),
            compute_capability: None,
            multiprocessors: None,
            bandwidth: None,
            health: Health::Healthy,
            layout: plimsoll::profile::MemoryLayout::default(),
        };
        SystemProfile {
            cpu: CpuProfile {
                vendor: None,
                brand: None,
                features: Presence::Found(CpuFeatures { avx2: true, ..CpuFeatures::default() }),
                cores: Cores { logical: 16, allowed: 16, physical: 8, quota: None, usable: 8 },
                topology: plimsoll::profile::CpuTopology::default(),
            },
            memory: Presence::Found(MemoryProfile {
                total: Bytes::new(64_000_000_000),
                host_total: Bytes::new(64_000_000_000),
                limit: None,
            }),
            accelerators: (0..cards).map(card).collect(),
            sources: Vec::new(),
        }
    }

    /// What is printed of a machine that has two cards, then one, then none.
    fn printed(json: bool) -> String {
        let script = Mutex::new(vec![machine(0), machine(1), machine(2)]);
        let probe = move || {
            let mut script = script.lock().unwrap();
            Ok(if script.len() > 1 { script.pop().unwrap() } else { script[0].clone() })
        };
        let watcher = SystemProfileWatcher::with_probe(Duration::from_millis(1), probe).unwrap();
        let mut subscription = watcher.subscribe();
        let mut watched = Some((watcher.start_thread().unwrap(), watcher));
        let mut out = String::new();
        follow(&mut subscription, json, |line| {
            out.push_str(line);
            if out.lines().count() == 5 {
                drop(watched.take());
            }
            Ok(())
        })
        .unwrap();
        out.replace(input::node_name().as_str(), "tower")
    }

    #[test]
    fn changes_are_printed_as_they_come_until_nobody_watches() {
        assert_data_eq!(
            printed(false),
            str![[r#"
now: 8 worker(s), acceleration gpu, memory 64.0 GB, 2 accelerator(s)
GPU 1 'RTX 4090' GPU-1 gone
now: 8 worker(s), acceleration gpu, memory 64.0 GB, 1 accelerator(s)
GPU 0 'RTX 4090' GPU-0 gone
now: 8 worker(s), acceleration avx2, memory 64.0 GB, 0 accelerator(s)

"#]]
        );
    }

    #[test]
    fn a_driver_that_fails_once_takes_no_card_away() {
        use plimsoll::profile::isolated::{self, Held};
        use plimsoll::profile::{Absence, FreeMemory, Source};
        let look = |fails: bool| {
            let outcome = match fails {
                true => Presence::Absent(Absence::TimedOut { milliseconds: 1 }),
                false => Presence::Found(1),
            };
            let sources = vec![Source { probe: Probe::Cuda, outcome }];
            let profile = SystemProfile { sources, ..machine(u32::from(!fails)) };
            let held = Held::Absent(Absence::NotAsked);
            isolated::Look { profile, free: FreeMemory::default(), held, trouble: None }
        };
        let cards = |script: &[bool]| -> Vec<_> {
            let mut failing = Failing::default();
            let told = script.iter().map(|fails| failing.settle(look(*fails)));
            told.map(|told| told.map(|profile| profile.accelerators.len())).collect()
        };
        let error = LookError::failed("cuda: timed out: no answer within 1 ms");
        assert_eq!(cards(&[false, true, false]), [Ok(1), Err(error.clone()), Ok(1)]);
        assert_eq!(cards(&[false, true, true, true]), [Ok(1), Err(error), Ok(0), Ok(0)]);
        assert_eq!(cards(&[true, true, false]), [Ok(0), Ok(0), Ok(1)]);
    }

    #[test]
    fn changes_are_lines_of_json() {
        assert_data_eq!(
            printed(true),
            str![[r#"
{"event":"profile","format":"plimsoll.watch/1","node":"tower","acceleration":"gpu","workers":8,"memory_bytes":64000000000,"accelerators":[{"ordinal":0,"id":"GPU-0","name":"RTX 4090","total_bytes":25769803776,"healthy":true},{"ordinal":1,"id":"GPU-1","name":"RTX 4090","total_bytes":25769803776,"healthy":true}]}
{"event":"change","format":"plimsoll.watch/1","description":"GPU 1 'RTX 4090' GPU-1 gone"}
{"event":"profile","format":"plimsoll.watch/1","node":"tower","acceleration":"gpu","workers":8,"memory_bytes":64000000000,"accelerators":[{"ordinal":0,"id":"GPU-0","name":"RTX 4090","total_bytes":25769803776,"healthy":true}]}
{"event":"change","format":"plimsoll.watch/1","description":"GPU 0 'RTX 4090' GPU-0 gone"}
{"event":"profile","format":"plimsoll.watch/1","node":"tower","acceleration":"avx2","workers":8,"memory_bytes":64000000000,"accelerators":[]}

"#]]
        );
    }
}
