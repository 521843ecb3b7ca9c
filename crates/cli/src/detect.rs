//! `plimsoll detect`.

mod record;

use std::time::{Duration, Instant};

use plimsoll::cluster::{self, ClusterSnapshot, speeds};
use plimsoll::profile::isolated::{self, Look};
use plimsoll::profile::{
    Absence, Accelerator, AcceleratorKind, CacheKind, DeviceMeasured, GpuBackend, Health, Measured, Presence,
    SystemProfile, measure_host,
};
use plimsoll::units::{Bytes, DeviceId};

use crate::args::{Cli, DetectArgs, EmitArg};
use crate::failure::{Failure, Outcome};
use crate::{input, look, show};

/// How long a measurement may take.
const BUDGET: Duration = Duration::from_millis(300);

pub(crate) fn run(args: &DetectArgs, cli: &Cli) -> Outcome {
    let look = if args.fast { isolated::look_fast() } else { look::full() };
    let measured = if args.measure { Some(measure(&look)?) } else { None };
    let cards: Vec<Card<'_>> =
        if args.measure { look.profile.accelerators.iter().map(measure_card).collect() } else { Vec::new() };
    let mut snapshot = cluster::this_machine(input::node_name(), &look.profile, &look.free);
    if let Some(measured) = &measured {
        for device in snapshot.nodes.iter_mut().flat_map(|node| &mut node.devices) {
            if device.is_host() {
                device.bandwidth = Some(measured.rate);
            }
        }
    }
    for card in &cards {
        let name = format!("CUDA{}", card.accelerator.ordinal);
        let devices = snapshot.nodes.iter_mut().flat_map(|node| &mut node.devices);
        if let (Ok(measured), Some(device)) =
            (&card.measured, devices.into_iter().find(|device| device.id.as_str() == name))
        {
            device.bandwidth = Some(measured.rate);
        }
    }
    if args.emit == Some(EmitArg::Node) {
        if cli.json {
            return Err(Failure::Input(
                "--emit prints a cluster file, which is TOML: --json does not go with it".to_owned(),
            ));
        }
        return Ok(cluster::file::write_cluster(&snapshot));
    }
    if cli.json {
        let record = record::record(&look, measured.as_ref(), &cards);
        let text = serde_json::to_string_pretty(&record).map_err(Failure::internal)?;
        return Ok(text + "\n");
    }
    Ok(text(&look, (measured.as_ref(), &cards), &snapshot))
}

/// How fast the host reads its memory now.
fn measure(look: &Look) -> Result<Measured, Failure> {
    #[expect(clippy::disallowed_methods, reason = "a measurement is of time")]
    let clock = Instant::now;
    measure_host(look.profile.recommended_workers(), look.free.host, BUDGET, &clock).ok_or_else(|| {
        Failure::Input(
            "--measure: 1 GiB must be free, and this machine busy with less than all it has".to_owned(),
        )
    })
}

/// An accelerator, and how fast its memory is, or why that is not known.
struct Card<'a> {
    accelerator: &'a Accelerator,
    measured: Result<DeviceMeasured, Absence>,
}

/// How fast an accelerator copies in its memory now.
fn measure_card(accelerator: &Accelerator) -> Card<'_> {
    Card { accelerator, measured: look::measure(accelerator, BUDGET) }
}

fn measured_card(card: &Card<'_>) -> String {
    let accelerator = card.accelerator;
    match &card.measured {
        Ok(m) => format!(
            "  measured    {accelerator} moves {} ({} read and written within {} in {} ms)",
            m.rate,
            m.moved,
            m.buffer,
            m.took.as_millis()
        ),
        Err(why) => format!("  measured    {accelerator} is not: {}", reason(why)),
    }
}

/// What is wrong with an accelerator.
fn trouble(accelerator: &Accelerator) -> Option<String> {
    match &accelerator.health {
        Health::Healthy => None,
        Health::Unhealthy(why) => Some(why.to_string()),
    }
}

fn text(
    look: &Look,
    (measured, cards): (Option<&Measured>, &[Card<'_>]),
    snapshot: &ClusterSnapshot,
) -> String {
    let profile = &look.profile;
    let mut lines = vec![format!("{}:", input::node_name()), processor(profile), memory(look)];
    lines.extend(measured.map(|m| {
        let mut note = String::new();
        let largest = profile.cpu.topology.caches.iter().map(|cache| cache.size).max();
        if largest.is_some_and(|cache| m.buffer < cache.saturating_mul(4)) {
            note.push_str("; caches hold much of it, so this is too good");
        }
        if cfg!(debug_assertions) {
            note.push_str("; this build is not optimised, so this is too little");
        }
        format!(
            "  measured    the host reads {} ({} thread(s), {} from a buffer of {} in {} ms{note})",
            m.rate,
            m.threads,
            m.read,
            m.buffer,
            m.took.as_millis()
        )
    }));
    lines.extend(cards.iter().map(measured_card));
    lines.extend(accelerators(look));
    let mut out = wrapped(&lines);
    let absent = absent(profile);
    if !absent.is_empty() {
        out.push_str("\nnot found:\n");
        out.push_str(&wrapped(&absent));
    }
    out.push_str("\nwhat plimsoll plans with:\n");
    out.push_str(&devices(snapshot));
    out.push_str(&wrapped(&notes(look, snapshot)));
    out
}

fn wrapped(lines: &[String]) -> String {
    lines.iter().map(|line| show::wrap(line, "  ") + "\n").collect()
}

fn processor(profile: &SystemProfile) -> String {
    let cpu = &profile.cpu;
    let brand = cpu.brand.as_deref().or(cpu.vendor.as_deref()).unwrap_or("of an unknown make");
    let cores = &cpu.cores;
    let mut counts = vec![format!("{} of {} core(s) usable", cores.usable, cores.physical)];
    if cores.allowed < cores.logical {
        counts.push(format!("{} of {} logical processors allowed", cores.allowed, cores.logical));
    } else {
        counts.push(format!("{} logical", cores.logical));
    }
    if let Some(packages @ 2..) = cpu.topology.packages {
        counts.push(format!("{packages} sockets"));
    }
    if let Some(hybrid) = cpu.topology.hybrid {
        counts.push(format!("{} fast and {} frugal", hybrid.performance, hybrid.efficient));
    }
    if let Some(quota) = cores.quota {
        let processors = Bytes::new(quota.quota_us).as_f64() / Bytes::new(quota.period_us).as_f64();
        counts.push(format!("a quota of {processors:.2} processors"));
    }
    let data = |cache: &&plimsoll::profile::Cache| cache.kind != CacheKind::Instruction;
    let caches: Vec<_> =
        cpu.topology.caches.iter().filter(data).map(|cache| cache.size.exact().to_string()).collect();
    if !caches.is_empty() {
        counts.push(format!("caches {}", caches.join(", ")));
    }
    let vectors = match &cpu.features {
        Presence::Found(features) if features.avx512 => "avx512",
        Presence::Found(features) if features.avx2 => "avx2",
        Presence::Found(features) if features.neon => "neon",
        _ => "no wide vectors known",
    };
    format!("  processor   {brand}: {}; {vectors}", counts.join(", "))
}

fn memory(look: &Look) -> String {
    match look.profile.memory.as_result() {
        Ok(memory) => {
            let free = look.free.host;
            let now = free.map_or_else(|| "what is free is not known".to_owned(), |f| format!("{f} free"));
            let limit = memory.limit.as_ref().map_or_else(String::new, |limit| {
                format!(" (the host has {}; limited by {})", memory.host_total, limit.path)
            });
            format!("  memory      {}, {now}{limit}", memory.total)
        }
        Err(why) => format!("  memory      not known: {why}"),
    }
}

fn accelerators(look: &Look) -> Vec<String> {
    let of = |accelerator: &Accelerator| {
        let total = accelerator.total.map_or_else(|| "memory not known".to_owned(), |t| t.to_string());
        let free = look.free.accelerators.get(&accelerator.id).map(|free| format!(", {free} free"));
        let kind = match accelerator.kind {
            AcceleratorKind::Discrete => String::new(),
            kind => format!(", {kind}"),
        };
        let share = accelerator.layout.host_share.map(|share| format!(" and up to {share} of the host's"));
        let trouble = match &accelerator.health {
            Health::Healthy => None,
            Health::Unhealthy(why) => Some(format!(", not used: {}", reason(why))),
        };
        format!(
            "  accelerator {accelerator}: {total}{}{}{kind}{}",
            share.unwrap_or_default(),
            free.unwrap_or_default(),
            trouble.unwrap_or_default()
        )
    };
    let mut lines: Vec<String> = look.profile.accelerators.iter().map(of).collect();
    if lines.is_empty() {
        lines.push("  accelerator none".to_owned());
    }
    lines
}

/// Why probes found nothing, those with one reason on one line.
fn absent(profile: &SystemProfile) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for source in &profile.sources {
        let Presence::Absent(why) = &source.outcome else { continue };
        let text = reason(why);
        match reasons.iter_mut().find(|(known, _)| *known == text) {
            Some((_, probes)) => probes.push(source.probe.name()),
            None => reasons.push((text, vec![source.probe.name()])),
        }
    }
    reasons.into_iter().map(|(text, probes)| format!("  {}: {text}", probes.join(", "))).collect()
}

/// What a person can do about it.
fn hint(why: &Absence) -> Option<&'static str> {
    match why {
        Absence::Driver { call: "cuInit", code: 803 } | Absence::Driver { call: "nvmlInit_v2", code: 18 } => {
            Some("the library and the kernel's module are of different versions; restart the machine")
        }
        Absence::Driver { call: "nvmlInit_v2", code: 9 } => Some("the kernel's module is not loaded"),
        Absence::Driver { call, code: 15 } if call.starts_with("nvml") => {
            Some("the card is lost: it no longer answers on the bus; restart the machine")
        }
        Absence::Driver { call: "cuInit", code: 999 } => {
            Some("the driver cannot say why; after a suspend, reload the kernel's module")
        }
        Absence::TimedOut { .. } => Some("PLIMSOLL_DRIVER_LIMIT_MS gives it more time"),
        _ => None,
    }
}

/// A reason, and what can be done about it.
fn reason(why: &Absence) -> String {
    hint(why).map_or_else(|| why.to_string(), |hint| format!("{why}: {hint}"))
}

fn devices(snapshot: &ClusterSnapshot) -> String {
    let mut table = show::table(&["device", "memory", "free", "reads at"], &[1, 2]);
    for node in &snapshot.nodes {
        for device in &node.devices {
            let pool = node.pool(&device.pool);
            let told = device.bandwidth.map(|rate| rate.to_string());
            let assumed = || {
                let name = device.name.as_deref();
                let name = if device.backend == GpuBackend::Cpu { None } else { name };
                speeds::assumed_bandwidth(name, device.backend)
                    .map(|(rate, by)| format!("{rate} (assumed {by})"))
            };
            let total = device.limit.or_else(|| pool.map(|p| p.total));
            table.add_row([
                format!("{}/{}", node.id, device.id),
                total.map_or_else(String::new, |total| total.to_string()),
                pool.and_then(|p| p.free).map_or_else(|| "not known".to_owned(), |f| f.to_string()),
                told.or_else(assumed).unwrap_or_else(|| "not known".to_owned()),
            ]);
        }
    }
    if snapshot.nodes.iter().all(|node| node.devices.is_empty()) {
        return "  nothing: no memory is known\n".to_owned();
    }
    show::text(&table)
}

/// What plimsoll will and will not do with what is there.
fn notes(look: &Look, snapshot: &ClusterSnapshot) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(format!("  note: {text}"));
    if let Some(why) = &look.trouble {
        note(format!("what is free on accelerators is not known, so nothing new is placed there: {why}"));
    }
    let devices = || snapshot.nodes.iter().flat_map(|node| &node.devices);
    for node in &snapshot.nodes {
        let on_ram: Vec<&DeviceId> =
            node.devices.iter().filter(|d| !d.is_host() && d.pool.as_str() == "ram").map(|d| &d.id).collect();
        if !on_ram.is_empty() {
            let names = on_ram.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            note(format!("{names} and the host draw on the same memory, which counts once"));
        }
    }
    for accelerator in &look.profile.accelerators {
        let planned = devices().any(|d| {
            (d.uuid.is_some() && d.uuid == accelerator.uuid) || (d.name == accelerator.name && !d.is_host())
        });
        if !planned && accelerator.health.is_healthy() {
            note(format!("{accelerator} is not planned with: {}", unplanned(accelerator)));
        }
        if let Some(heap) = accelerator.layout.largest_heap {
            note(format!("{accelerator} gives at most {heap} in one piece"));
        }
    }
    notes
}

fn unplanned(accelerator: &Accelerator) -> &'static str {
    match (accelerator.total, accelerator.backend) {
        (None, _) => "its memory is not known",
        (Some(_), GpuBackend::Cuda | GpuBackend::Rocm) => "it is listed twice",
        (Some(_), _) => "put it into a cluster file if the engine has a driver for it",
    }
}
