//! From what was typed to what the library takes.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use plimsoll::Engine;
use plimsoll::balance::PlanOptions;
use plimsoll::cluster::{self, ClusterSnapshot, hardware};
use plimsoll::export::PlanFile;
use plimsoll::model::http::{Client, Options, Url, Usage, open_url};
use plimsoll::model::{ContextLength, ModelFormat, ModelSpec, Request};
use plimsoll::profile::{FreeMemory, SystemProfile};
use plimsoll::units::{Bytes, NodeId};

use crate::args::{ChoiceArgs, LimitArgs, RequestArgs};
use crate::failure::Failure;
use crate::{live, look};

/// Reads the header of a model, from a disk or a server.
pub(crate) fn open_model(path: &Path) -> Result<ModelSpec, Failure> {
    open_model_telling(path, false)
}

/// The same; where the model is on a server and somebody wants to know, what was read is said on stderr.
pub(crate) fn open_model_telling(path: &Path, verbose: bool) -> Result<ModelSpec, Failure> {
    let model = match address(path)? {
        None => {
            refuse_other_schemes(path)?;
            plimsoll::model::open(path).map_err(Failure::input)?
        }
        Some(url) => {
            let client = Client::new(Options::from_env());
            let model = open_url(&url, &client);
            if verbose {
                crate::complain(&read_from(&url, client.usage()));
            }
            model.map_err(Failure::input)?
        }
    };
    match model.layer_count() {
        0 => Err(Failure::Input(format!("{} has no layers", shown(path).display()))),
        _ => Ok(model),
    }
}

/// Refuses what looks like an address of a kind that is not read, and is no file.
fn refuse_other_schemes(path: &Path) -> Result<(), Failure> {
    let scheme = path.to_str().and_then(|text| text.split_once("://")).map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| !scheme.contains('/') && !path.exists()) {
        Some(scheme) => Err(Failure::Input(format!(
            "a model is a file, a folder, or an address with http:// or https://; {scheme}:// is not read"
        ))),
        None => Ok(()),
    }
}

/// The address that was typed in place of a path.
pub(crate) fn address(path: &Path) -> Result<Option<Url>, Failure> {
    let text = path.to_str().filter(|_| Url::is_meant(path));
    // What is no good address may hold a secret all the same, so it is not repeated.
    text.map(str::parse).transpose().map_err(Failure::input)
}

/// A path as it may be shown: of an address, name, password and query may be secrets.
pub(crate) fn shown(path: &Path) -> PathBuf {
    match address(path) {
        Ok(Some(url)) => url.shown_path(),
        _ => path.to_owned(),
    }
}

/// What the engine is given as its model, and what has to be said of it.
pub(crate) fn for_engine(path: &Path) -> Result<(String, Option<&'static str>), Failure> {
    let Some(url) = address(path)? else {
        let text = path.to_str().map(str::to_owned);
        let not_text =
            || format!("{} is not UTF-8, so no command line can be printed for it", path.display());
        return Ok((text.ok_or_else(|| Failure::Input(not_text()))?, None));
    };
    let secret = "the address in the command is without name, password and query: they may be secrets, and the engine \
                  may need them";
    Ok((url.first_part().to_string(), url.hides_something().then_some(secret)))
}

fn read_from(url: &Url, usage: Usage) -> String {
    let requests = if usage.requests == 1 { "request" } else { "requests" };
    format!("read {} bytes of {url} in {} {requests}", usage.bytes, usage.requests)
}

/// Reads a saved plan, or the one in force of a cluster that is kept in etcd.
pub(crate) fn read_plan(path: &Path) -> Result<PlanFile, Failure> {
    if live::is_url(path) {
        return live::in_force(path).map(|(_, file)| file);
    }
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => {
            Failure::Input(format!("{} is no saved plan (plan --out): it is not text", path.display()))
        }
        _ => Failure::Input(format!("{}: {error}", cannot(path.display()))),
    })?;
    PlanFile::parse(&text).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

/// Reads a cluster file or a hardware snapshot, asks a cluster that is kept in etcd, or looks at this machine.
pub(crate) fn open_cluster(path: Option<&Path>) -> Result<ClusterSnapshot, Failure> {
    let Some(path) = path else { return Ok(this_machine()) };
    if live::is_url(path) {
        return live::snapshot(path);
    }
    if let Some(url) = address(path)? {
        let text = Client::new(Options::from_env()).text(&url, hardware::LONGEST);
        let text = text.map_err(|error| Failure::input(anyhow::Error::from(error).context(cannot(&url))))?;
        let text = String::from_utf8(text).map_err(|_| Failure::Input(format!("{url} is not UTF-8")))?;
        return imported(&text, url.host(), &url);
    }
    match begins_with_brace(path) {
        true => {
            let mut text = String::new();
            std::fs::File::open(path)
                .and_then(|file| file.take(hardware::LONGEST + 1).read_to_string(&mut text))
                .map_err(|error| Failure::Input(format!("{}: {error}", cannot(path.display()))))?;
            let name = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
            imported(&text, &name, path.display())
        }
        false => cluster::file::read_cluster(path).map(|file| file.snapshot).map_err(Failure::input),
    }
}

/// Whether two names are those of one file.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn cannot(what: impl Display) -> String {
    format!("cannot read {what}")
}

/// Whether a file holds JSON; one that cannot be read is left to whoever reads it.
fn begins_with_brace(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut begin));
    read.is_ok() && hardware::is_meant(&String::from_utf8_lossy(&begin))
}

/// A hardware snapshot as a cluster; what it leaves open is said on stderr.
fn imported(text: &str, name: &str, from: impl Display) -> Result<ClusterSnapshot, Failure> {
    let id = NodeId::new(name).or_else(|_| NodeId::new("machine"));
    let id = id.unwrap_or_else(|_| unreachable!("`machine` is a name"));
    let imported =
        hardware::parse_hardware(text, id).map_err(|error| Failure::Input(format!("{from}: {error}")))?;
    for note in &imported.notes {
        crate::complain(&format!("note: {from}: {note}"));
    }
    Ok(imported.snapshot)
}

/// This machine as a cluster of one node.
pub(crate) fn this_machine() -> ClusterSnapshot {
    let look = look::full();
    cluster::this_machine(node_name(), &look.profile, &look.free)
}

/// This machine as a cluster of one node, without a look at what is free on its accelerators: that may take memory on every
/// card.
pub(crate) fn this_machine_without_free() -> ClusterSnapshot {
    cluster::this_machine(node_name(), &look::without_free().profile, &FreeMemory::default())
}

/// All of the host's memory that this process may use, and what is free of it.
pub(crate) fn host_memory() -> Option<(Bytes, Bytes)> {
    let profile = SystemProfile::detect_fast();
    let total = profile.memory.as_result().ok()?.total;
    Some((total, FreeMemory::read(&profile).host?))
}

/// What this machine calls itself, or `here` where that cannot stand in `node/device`.
pub(crate) fn node_name() -> NodeId {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    NodeId::new(name).or_else(|_| NodeId::new("here")).unwrap_or_else(|_| unreachable!("`here` is a name"))
}

/// The engine that was named, else the one that suits the file.
pub(crate) fn engine(args: &RequestArgs, model: &ModelSpec) -> Engine {
    args.engine.unwrap_or(match model.format() {
        ModelFormat::Gguf => Engine::LlamaCpp,
        ModelFormat::Safetensors | ModelFormat::List => Engine::None,
    })
}

/// The request that was typed.
pub(crate) fn request(args: &RequestArgs, engine: Engine) -> Request {
    let context = match (args.ctx, args.ctx_total) {
        (Some(cells), _) => Some(ContextLength::PerSequence(cells)),
        (None, Some(cells)) => Some(ContextLength::Total(cells)),
        (None, None) => None,
    };
    Request {
        context,
        parallel: args.parallel,
        unified_kv: args.unified_kv,
        cache_type_k: args.cache_type_k,
        cache_type_v: args.cache_type_v,
        flash_attention: args.flash_attn.into(),
        micro_batch: args.ubatch,
        batch: Request::default().batch.max(args.ubatch),
        full_window: args.swa_full,
        ranks: args.tensor_parallel,
        engine: engine.profile(),
    }
}

/// The options that were typed. Names that the cluster does not have are wrong usage.
pub(crate) fn options(args: &ChoiceArgs, snapshot: &ClusterSnapshot) -> Result<PlanOptions, Failure> {
    Ok(PlanOptions {
        objective: args.objective.into(),
        strategy: args.strategy.into(),
        pipelines: args.pipelines,
        transfers: args.transfers.into(),
        ..limits(&args.limits, snapshot)?
    })
}

/// What of the machines may be used, and for what, as it was typed.
pub(crate) fn limits(args: &LimitArgs, snapshot: &ClusterSnapshot) -> Result<PlanOptions, Failure> {
    let known = || snapshot.nodes.iter().map(|n| n.id.to_string()).collect::<Vec<_>>().join(", ");
    if let Some(node) = args.only.iter().find(|id| snapshot.node(id).is_none()) {
        return Err(Failure::Input(format!("--only names node '{node}', and the cluster has {}", known())));
    }
    let capped = args.cap.iter().map(|(device, _)| ("--cap", device));
    let mut named = capped.chain(args.pin.iter().map(|pin| ("--pin", &pin.device)));
    if let Some((flag, device)) = named.find(|(_, device)| snapshot.device(device).is_none()) {
        let devices = |n: &plimsoll::cluster::Node| {
            n.devices.iter().map(|d| format!("{}/{}", n.id, d.id)).collect::<Vec<_>>().join(", ")
        };
        let all = snapshot.nodes.iter().map(devices).filter(|devices| !devices.is_empty());
        let all = all.collect::<Vec<_>>().join(", ");
        return Err(Failure::Input(format!("{flag} names device '{device}', and the cluster has {all}")));
    }
    let mut seen = BTreeSet::new();
    if let Some((device, _)) = args.cap.iter().find(|(device, _)| !seen.insert(device)) {
        return Err(Failure::Input(format!("--cap names device '{device}' twice")));
    }
    Ok(limits_of_known(args))
}

/// The same where the names are known to be right.
pub(crate) fn limits_of_known(args: &LimitArgs) -> PlanOptions {
    PlanOptions {
        max_devices: args.max_devices,
        only: (!args.only.is_empty()).then(|| args.only.iter().cloned().collect()),
        caps: args.cap.iter().cloned().collect(),
        reserve: args.reserve,
        pins: args.pin.clone(),
        ..PlanOptions::default()
    }
}
