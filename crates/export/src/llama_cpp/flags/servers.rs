//! The lines of rpc servers that stand before the engine's own: which devices each of them shows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use plimsoll_cluster::{ClusterSnapshot, GpuBackend};
use plimsoll_units::DeviceRef;

use super::devices::named;
use super::{Flags, FlagsError};

/// One server's line.
#[derive(Debug)]
pub(super) struct ServerLine {
    host: String,
    port: String,
    /// Everything that its machine has where it is not said.
    devices: Option<Vec<String>>,
}

/// Takes the lines of servers out of the words that were typed.
///
/// # Errors
///
/// A flag of a server without its value.
pub(super) fn taken_out(words: &[String]) -> Result<(Vec<ServerLine>, Vec<String>), FlagsError> {
    let (mut lines, mut others) = (Vec::new(), Vec::new());
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        if !is_server(word) {
            others.push(word.clone());
            continue;
        }
        let mut line = ServerLine { host: "127.0.0.1".to_owned(), port: "50052".to_owned(), devices: None };
        while let Some(flag) = rest.next_if(|next| next.starts_with('-')) {
            if matches!(flag.as_str(), "-c" | "--cache") {
                continue;
            }
            let value = rest.next().ok_or_else(|| FlagsError::NoValue { flag: flag.clone() })?;
            match flag.as_str() {
                "-H" | "--host" => value.clone_into(&mut line.host),
                "-p" | "--port" => value.clone_into(&mut line.port),
                "-d" | "--device" => line.devices = Some(value.split(',').map(str::to_owned).collect()),
                // Threads, and an amount of memory that it tells.
                _ => {}
            }
        }
        lines.push(line);
    }
    Ok((lines, others))
}

fn is_server(word: &str) -> bool {
    let stem = Path::new(word).file_stem().and_then(|stem| stem.to_str());
    matches!(stem, Some("ggml-rpc-server" | "rpc-server"))
}

impl Flags {
    /// Keeps what each of the addresses shows. One that listens everywhere belongs to the first address of its port that no
    /// other line names.
    pub(super) fn show(&mut self, mut lines: Vec<ServerLine>) {
        let mut shown = BTreeMap::new();
        for everywhere in [false, true] {
            for address in &self.servers {
                let Some((host, port)) = address.rsplit_once(':') else { continue };
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let is_it = |line: &ServerLine| {
                    let listens = line.host == host || (everywhere && is_unspecified(&line.host));
                    line.port == port && listens
                };
                if shown.contains_key(address) {
                    continue;
                }
                if let Some(at) = lines.iter().position(is_it) {
                    shown.insert(address.clone(), lines.remove(at).devices);
                }
            }
        }
        let unused = lines.iter().map(|line| format!("the server at {}:{}", line.host, line.port));
        self.ignored.extend(unused);
        self.shown = shown;
    }

    /// The servers whose lines were not given though it matters which of its devices each shows.
    pub fn unsaid_servers(&self, snapshot: &ClusterSnapshot) -> Vec<&str> {
        let servers = self.servers.iter().filter(|address| !self.shown.contains_key(*address));
        let several = |address: &&String| self.devices_of(address, snapshot).is_ok_and(|all| all.len() > 1);
        servers.filter(several).map(String::as_str).collect()
    }

    /// The devices of one server, in the order in which it shows them: as its line says, else as its node lists them.
    pub(super) fn devices_of(
        &self,
        address: &str,
        snapshot: &ClusterSnapshot,
    ) -> Result<Vec<DeviceRef>, FlagsError> {
        let node = snapshot.nodes.iter().find(|node| node.rpc.as_deref() == Some(address));
        let node = node.ok_or_else(|| FlagsError::UnknownServer { address: address.to_owned() })?;
        let Some(Some(names)) = self.shown.get(address) else {
            return Ok(node.devices.iter().filter(|d| !d.is_host()).map(|d| named(&node.id, d)).collect());
        };
        let found = |name: &String| {
            let is_it = |d: &&plimsoll_cluster::Device| {
                d.id.as_str() == name || (name == "CPU" && d.backend == GpuBackend::Cpu)
            };
            node.devices.iter().find(is_it).map(|d| named(&node.id, d)).ok_or_else(|| {
                let seen: Vec<&str> = node.devices.iter().map(|d| d.id.as_str()).collect();
                FlagsError::UnknownDevice {
                    flag: "ggml-rpc-server --device",
                    name: name.clone(),
                    seen: seen.join(", "),
                }
            })
        };
        names.iter().map(found).collect()
    }
}

fn is_unspecified(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}
