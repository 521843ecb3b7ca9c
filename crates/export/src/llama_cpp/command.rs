//! A plan as a command line, and one more for each remote node.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use plimsoll_balance::{Plan, Stage};
use plimsoll_cluster::{ClusterSnapshot, GpuBackend, Node};
use plimsoll_model::{FlashAttention, Request, ResolvedContext};
use plimsoll_units::{Bytes, DeviceId, DeviceRef, NodeId};

use super::{MAX_DEVICES, overrides};
use crate::launch;

/// Why a plan cannot be said in llama.cpp's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// More devices than the engine takes.
    #[error("the plan uses {devices} devices and llama.cpp takes at most {MAX_DEVICES}")]
    TooManyDevices {
        /// How many the plan uses.
        devices: usize,
    },
    /// The host holds layers that are not the first ones.
    #[error(
        "the host {host} holds layers from {first} on; llama.cpp keeps only the first layers on the host"
    )]
    HostLayersNotFirst {
        /// The main node's host.
        host: DeviceRef,
        /// The first layer there.
        first: u32,
    },
    /// The head is not on the last device.
    #[error("the head lies on {device}; llama.cpp keeps it on the last device of the line")]
    HeadNotLast {
        /// Where it lies.
        device: DeviceRef,
    },
    /// A device is not in the snapshot.
    #[error("the plan uses {device}, which the cluster does not have")]
    UnknownDevice {
        /// The device.
        device: DeviceRef,
    },
    /// A remote node without an address.
    #[error("node {node} is not the main node and its cluster file names no rpc address")]
    NoAddress {
        /// The node.
        node: NodeId,
    },
    /// Nobody runs the engine.
    #[error("the cluster has no main node to run the engine on")]
    NoMainNode,
    /// Several devices behind a server that shows one.
    #[error(
        "the plan uses {devices} devices of {node}, and the rpc server of that time shows one; leave out or cap all but one"
    )]
    OneDeviceOfServer {
        /// The node.
        node: NodeId,
        /// How many the plan uses.
        devices: usize,
    },
    /// A text that no shell can be given.
    #[error("the text {text:?} holds a NUL character, which no command line can carry")]
    Unquotable {
        /// The text.
        text: String,
    },
}

/// What the command line says of the model, beside the plan.
#[derive(Clone, Debug)]
pub struct ModelFacts<'a> {
    /// The file, as the person gave it.
    pub path: &'a str,
    /// How many next-token blocks follow the layers: an index each.
    pub nextn: u32,
    /// The context as the engine lays it out.
    pub context: ResolvedContext,
    /// What the server may cache in the host's memory; `None` leaves its default.
    pub cache_ram: Option<Bytes>,
}

/// Everything to type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// One server for each remote node that holds something, in the order of `--rpc`.
    pub rpc_servers: Vec<LaunchLine>,
    /// The engine.
    pub server: LaunchLine,
    /// What a person should know before typing it.
    pub notes: Vec<String>,
}

/// A line to type on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchLine {
    /// Where.
    pub node: NodeId,
    /// The program and its arguments, unquoted.
    pub words: Vec<String>,
}

impl LaunchLine {
    /// The words, quoted for a POSIX shell.
    ///
    /// # Errors
    ///
    /// A word holds a NUL character.
    pub fn quoted(&self) -> Result<Vec<String>, ExportError> {
        // Commas and colons mean nothing to a shell outside of braces: lists stay readable.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
        let quote = |word: &String| {
            if !word.is_empty() && word.chars().all(plain) {
                return Ok(word.clone());
            }
            if word.contains('\\') && !word.contains(['\'', '\0']) {
                // Nothing means anything to a shell between these.
                return Ok(format!("'{word}'"));
            }
            shlex::try_quote(word)
                .map(|quoted| quoted.into_owned())
                .map_err(|_| ExportError::Unquotable { text: word.clone() })
        };
        self.words.iter().map(quote).collect()
    }
}

impl fmt::Display for LaunchLine {
    /// The line on one row. A word that cannot be quoted is left out of reach of the shell: it is shown escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quoted() {
            Ok(words) => f.write_str(&words.join(" ")),
            Err(_) => write!(f, "{:?}", self.words),
        }
    }
}

/// The stages of a plan as the engine sees them.
struct Line<'a> {
    main: &'a Node,
    /// (device, indices on it): layers, and on the last one the next-token blocks and the head.
    devices: Vec<(&'a DeviceRef, u32)>,
}

/// A plan in llama.cpp's words.
///
/// # Errors
///
/// The plan breaks a rule of the engine (the planner obeys them, a plan made for another engine may not), or the snapshot
/// is not the one it was made for.
pub fn command(
    plan: &Plan,
    snapshot: &ClusterSnapshot,
    request: &Request,
    model: &ModelFacts<'_>,
) -> Result<Command, ExportError> {
    let line = line_up(plan, snapshot, model.nextn)?;
    let (servers, names) = remote_servers(&line, snapshot)?;
    let mut notes = Vec::new();
    if !servers.is_empty() {
        notes.push("an rpc server asks nobody for a password: run it only on a network you trust".to_owned());
        for server in servers.iter().filter(|server| server.everywhere) {
            notes.push(format!("the server on {} listens on every address it has", server.line.node));
        }
    }

    // The engine fetches what is on a server itself, all parts of it.
    let is_remote = ["http://", "https://"].iter().any(|scheme| model.path.starts_with(scheme));
    let named_by = if is_remote { "-mu" } else { "-m" };
    let mut words: Vec<String> = vec!["llama-server".into(), named_by.into(), model.path.to_owned()];
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    flag("-c", model.context.total.to_string());
    flag("-np", request.parallel.to_string());
    flag("-b", request.batch.to_string());
    flag("-ub", request.micro_batch.to_string());
    let flash = match request.flash_attention {
        FlashAttention::On => "on",
        FlashAttention::Off => "off",
        FlashAttention::Auto if request.cache_type_v.is_quantised() => "on",
        FlashAttention::Auto => "auto",
    };
    flag("-fa", flash.to_owned());
    flag("-ctk", request.cache_type_k.to_string());
    flag("-ctv", request.cache_type_v.to_string());
    flag("--fit", "off".to_owned());
    if let Some(limit) = model.cache_ram {
        flag("--cache-ram", (limit.get() >> 20).to_string());
    }
    if line.devices.is_empty() {
        flag("--device", "none".to_owned());
        flag("-ngl", "0".to_owned());
    } else {
        let total: u32 = line.devices.iter().map(|(_, n)| n).sum();
        let shares: Vec<String> = line.devices.iter().map(|(_, n)| n.to_string()).collect();
        let addresses: Vec<&str> = servers.iter().map(|s| s.address).collect();
        if !addresses.is_empty() {
            flag("--rpc", addresses.join(","));
        }
        flag("--device", names.join(","));
        flag("-ngl", total.to_string());
        flag("-ts", shares.join(","));
    }
    words.extend(overrides::words(plan));
    if request.unified_kv {
        words.push("--kv-unified".to_owned());
    }
    if request.full_window {
        words.push("--swa-full".to_owned());
    }
    for (device, _) in &line.devices {
        if device.device.as_str() == "gpu0" {
            notes.push(format!(
                "{device} has no name of the engine's; give it the one that `llama-server --list-devices` prints (id = … in \
                 the cluster file)"
            ));
        }
    }
    let rpc_servers = servers.into_iter().map(|s| s.line).collect();
    let local = line.devices.iter().filter(|(device, _)| device.node == line.main.id);
    let words = numbered(line.main, local.map(|(device, _)| &device.device), words);
    Ok(Command { rpc_servers, server: LaunchLine { node: line.main.id.clone(), words }, notes })
}

/// Checks the plan against the engine's rules and counts the indices on each device.
fn line_up<'a>(plan: &'a Plan, snapshot: &'a ClusterSnapshot, nextn: u32) -> Result<Line<'a>, ExportError> {
    let find = |device: &DeviceRef| {
        snapshot.device(device).ok_or_else(|| ExportError::UnknownDevice { device: device.clone() })
    };
    let main = snapshot.main_node().map_err(|_| ExportError::NoMainNode)?;
    let mut devices: Vec<(&DeviceRef, u32)> = Vec::new();
    let mut head: Option<&Stage> = None;
    for stage in &plan.stages {
        let (node, device) = find(&stage.device)?;
        let on_host = node.id == main.id && device.is_host();
        let holds = u32::from(stage.head) + length(&stage.layers);
        if on_host {
            if holds > 0 && stage.layers.start != 0 {
                let host = stage.device.clone();
                return Err(ExportError::HostLayersNotFirst { host, first: stage.layers.start });
            }
        } else if holds > 0 {
            devices.push((&stage.device, length(&stage.layers)));
        }
        if stage.head {
            head = Some(stage);
        }
    }
    if let Some((last, count)) = devices.last_mut() {
        match head {
            Some(stage) if stage.device == **last => *count += 1 + nextn,
            Some(stage) => return Err(ExportError::HeadNotLast { device: stage.device.clone() }),
            None => {}
        }
    }
    let most = usize::try_from(MAX_DEVICES).unwrap_or(usize::MAX);
    if devices.len() > most {
        return Err(ExportError::TooManyDevices { devices: devices.len() });
    }
    Ok(Line { main, devices })
}

struct RpcServer<'a> {
    address: &'a str,
    line: LaunchLine,
    /// Whether it listens on every address of its node.
    everywhere: bool,
}

/// One server for each remote node, in the order in which the plan reaches them, and the engine's name for every device of
/// the line: a local device keeps its own, remote ones are `RPC0`, `RPC1`, … counted through all servers in `--rpc` order.
fn remote_servers<'a>(
    line: &Line<'_>,
    snapshot: &'a ClusterSnapshot,
) -> Result<(Vec<RpcServer<'a>>, Vec<String>), ExportError> {
    let mut by_node: Vec<(&NodeId, Vec<&DeviceId>)> = Vec::new();
    for (device, _) in &line.devices {
        if device.node == line.main.id {
            continue;
        }
        match by_node.iter_mut().find(|(node, _)| **node == device.node) {
            Some((_, devices)) => devices.push(&device.device),
            None => by_node.push((&device.node, vec![&device.device])),
        }
    }
    let mut servers = Vec::new();
    let mut remote_names: BTreeMap<(&NodeId, &DeviceId), String> = BTreeMap::new();
    for (node, devices) in by_node {
        let Some(found) = snapshot.node(node) else { continue };
        // As the node lists them: whoever reads the engine's line alone then counts them the same.
        let mut devices = devices;
        devices.sort_by_key(|id| found.devices.iter().position(|device| device.id == **id));
        let address = found.rpc.as_deref().ok_or_else(|| ExportError::NoAddress { node: node.clone() })?;
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        for device in &devices {
            let name = format!("RPC{}", remote_names.len());
            remote_names.insert((node, device), name);
        }
        let list: Vec<&str> = devices.iter().map(|device| engine_name(found, device)).collect();
        // The server listens on loopback unless told otherwise, and takes an address, not a name.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let everywhere = host.parse::<IpAddr>().is_err();
        let listen = if everywhere { "0.0.0.0" } else { host };
        let words = ["ggml-rpc-server", "-H", listen, "-p", port, "--device", &list.join(","), "-c"];
        let words = numbered(found, devices.iter().copied(), words.map(str::to_owned).to_vec());
        let line = LaunchLine { node: node.clone(), words };
        servers.push(RpcServer { address, line, everywhere });
    }
    let name = |device: &DeviceRef| {
        let remote = remote_names.get(&(&device.node, &device.device));
        remote.cloned().unwrap_or_else(|| device.device.to_string())
    };
    let names = line.devices.iter().map(|(device, _)| name(device)).collect();
    Ok((servers, names))
}

/// The line with the cards of its node numbered as the cluster file names them, where it knows the driver's own name of
/// each and `used` has one of them: a runtime counts the fastest first, or by the bus, as it is told.
fn numbered<'a>(
    node: &Node,
    mut used: impl Iterator<Item = &'a DeviceId>,
    words: Vec<String>,
) -> Vec<String> {
    let cuda = |id: &DeviceId| node.device(id).filter(|device| device.backend == GpuBackend::Cuda);
    if !used.any(|id| cuda(id).is_some()) {
        return words;
    }
    let count = node.devices.iter().filter(|device| device.backend == GpuBackend::Cuda).count();
    let uuid = |number: usize| {
        let name = format!("CUDA{number}");
        node.devices.iter().find(|device| device.id.as_str() == name)?.uuid.as_deref()
    };
    match (0..count).map(uuid).collect::<Option<Vec<&str>>>() {
        Some(uuids) => launch::words(vec![format!("CUDA_VISIBLE_DEVICES={}", uuids.join(","))], words),
        None => words,
    }
}

/// The engine's name for a device: processors are `CPU` to it, whatever the cluster file calls them.
fn engine_name<'a>(node: &Node, device: &'a DeviceId) -> &'a str {
    match node.device(device) {
        Some(found) if found.backend == GpuBackend::Cpu => "CPU",
        _ => device.as_str(),
    }
}

/// The length of a half-open range of layers.
fn length(layers: &Range<u32>) -> u32 {
    layers.end.saturating_sub(layers.start)
}
