//! From a snapshot to the text of a cluster file.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_profile::GpuBackend;
use plimsoll_units::{Bytes, BytesPerSec, DeviceId, PoolId};

use super::UNKNOWN;
use crate::{ClusterSnapshot, Device, Node, Pool};

/// Writes the nodes and links of a snapshot as a cluster file.
///
/// A snapshot that was read from a file, or made by [`this_machine`](crate::this_machine), comes back unchanged. A file
/// describes machines, not their state, so status, generation and what is held are left out. It knows pools by the names
/// `ram` and of devices only: another pool is named after the first device that draws on it, and a pool on which no
/// device draws is left out; where a device with a limit gives its name to a pool, the limit becomes the pool's cap.
pub fn write_cluster(snapshot: &ClusterSnapshot) -> String {
    // Where the file leaves no doubt the mark is left out, so that written nodes can be put together in one file.
    let mut unmarked = snapshot.clone();
    unmarked.nodes.iter_mut().for_each(|node| node.main = false);
    let told = unmarked.main_node().ok().map(|node| &node.id);
    let mut out = Sheet::default();
    for node in &snapshot.nodes {
        write_node(&mut out, node, node.main && told != Some(&node.id));
    }
    for link in &snapshot.links {
        let [a, b] = &link.between;
        out.table("[[link]]");
        out.raw("between", &format!("[{}, {}]", quoted(a.as_str()), quoted(b.as_str())));
        out.rate("bandwidth", link.bandwidth);
        if let Some(latency) = link.latency {
            out.raw("latency", &quoted(&time(latency)));
        }
    }
    out.text
}

fn write_node(out: &mut Sheet, node: &Node, marked: bool) {
    out.table("[[node]]");
    out.raw("id", &quoted(node.id.as_str()));
    let ram = node.pools.iter().find(|p| p.id.as_str() == Pool::RAM);
    // Without a device `host` the pool is brought by the first processor that draws on it.
    if let (Some(pool), Some(host)) = (ram, node.host()) {
        out.bytes("memory", Some(pool.total));
        out.free("memory_free", pool);
        out.rate("memory_bandwidth", host.bandwidth);
        out.bytes("memory_cap", pool.cap);
        out.bytes("reserve", pool.reserve);
    }
    if node.drained {
        out.raw("drain", "true");
    }
    if let Some(rpc) = &node.rpc {
        out.raw("rpc", &quoted(rpc));
    }
    if marked {
        out.raw("main", "true");
    }
    let owners = owners(node);
    for device in node.devices.iter().filter(|d| !d.is_host()) {
        write_device(out, node, device, owners.get(&device.pool).copied());
    }
}

/// Which device gives its name to each pool.
fn owners(node: &Node) -> BTreeMap<&PoolId, &DeviceId> {
    let mut owners = BTreeMap::new();
    for device in node.devices.iter().filter(|d| !d.is_host()) {
        let is_ram = device.pool.as_str() == Pool::RAM;
        if is_ram && (node.host().is_some() || device.backend != GpuBackend::Cpu) {
            continue;
        }
        let owner = owners.entry(&device.pool).or_insert(&device.id);
        if device.id.as_str() == device.pool.as_str() {
            *owner = &device.id;
        }
    }
    owners
}

fn write_device(out: &mut Sheet, node: &Node, device: &Device, owner: Option<&DeviceId>) {
    out.table("[[node.device]]");
    out.raw("id", &quoted(device.id.as_str()));
    if let Some(name) = &device.name {
        out.raw("name", &quoted(name));
    }
    match (node.pool(&device.pool), owner) {
        (Some(pool), Some(owner)) if *owner == device.id => {
            out.bytes("memory", Some(pool.total));
            out.free("free", pool);
            out.bytes("cap", [pool.cap, device.limit].into_iter().flatten().min());
            out.bytes("reserve", pool.reserve);
        }
        (_, owner) => {
            let is_ram = device.pool.as_str() == Pool::RAM;
            out.raw("pool", &quoted(if is_ram { Pool::RAM } else { owner.map_or("", DeviceId::as_str) }));
            out.bytes("memory", device.limit);
        }
    }
    out.rate("bandwidth", device.bandwidth);
    out.raw("backend", &quoted(device.backend.name()));
    if let Some(uuid) = &device.uuid {
        out.raw("uuid", &quoted(uuid));
    }
}

/// A file that grows line by line.
#[derive(Default)]
struct Sheet {
    text: String,
}

impl Sheet {
    fn table(&mut self, header: &str) {
        if !self.text.is_empty() && header != "[[node.device]]" {
            self.text.push('\n');
        }
        self.text.push_str(header);
        self.text.push('\n');
    }

    fn raw(&mut self, key: &str, value: &str) {
        self.text.push_str(&format!("{key} = {value}\n"));
    }

    fn bytes(&mut self, key: &str, amount: Option<Bytes>) {
        if let Some(amount) = amount {
            self.raw(key, &quoted(&amount.exact().to_string()));
        }
    }

    fn free(&mut self, key: &str, pool: &Pool) {
        match pool.free {
            None => self.raw(key, &quoted(UNKNOWN)),
            free if free == Some(pool.total) => {}
            free => self.bytes(key, free),
        }
    }

    fn rate(&mut self, key: &str, rate: Option<BytesPerSec>) {
        if let Some(rate) = rate {
            self.raw(key, &quoted(&format!("{}/s", Bytes::new(rate.get()).exact())));
        }
    }
}

/// The largest unit that is exact.
fn time(time: Duration) -> String {
    let nanos = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.into_iter().find(|(size, _)| nanos.is_multiple_of(*size)) {
        Some((size, name)) => format!("{}{name}", nanos / size),
        None => format!("{nanos}ns"),
    }
}

/// A TOML text in quotes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
