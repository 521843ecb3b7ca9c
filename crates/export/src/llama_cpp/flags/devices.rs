//! Where a command line puts indices and tensors on a cluster.

use plimsoll_cluster::{ClusterSnapshot, Device, GpuBackend, Node};
use plimsoll_units::{DeviceRef, NodeId};

use super::super::replay::assign;
use super::super::tensors::HOST_BUFFER;
use super::{Assignment, Flags, FlagsError};

impl Flags {
    /// Whether the engine would choose layers and context by itself: its fit is on, and nothing is set that it keeps to.
    pub fn fit_may_change(&self) -> bool {
        self.fit && self.gpu_layers < 0 && self.split.is_none() && self.request.context.is_none()
    }

    /// Where the engine would put `blocks` blocks and the head on this cluster.
    ///
    /// # Errors
    ///
    /// A device or a server that the cluster does not have, more shares than devices, or no node to run the engine on.
    pub fn assign(&self, blocks: u32, snapshot: &ClusterSnapshot) -> Result<Assignment, FlagsError> {
        let main = snapshot.main_node().map_err(|_| FlagsError::NoMainNode)?;
        let mut devices = self.engine_devices(snapshot, main)?;
        let repeated = devices.iter().enumerate().find(|(at, device)| devices[..*at].contains(device));
        if let Some((_, device)) = repeated {
            return Err(FlagsError::RepeatedDevice { device: device.clone() });
        }
        if self.only_main_gpu && !devices.is_empty() {
            let all = devices.len();
            devices = devices.into_iter().skip(self.main_gpu).take(1).collect();
            if devices.is_empty() {
                return Err(FlagsError::NoMainGpu { main_gpu: self.main_gpu, devices: all });
            }
        }
        let split = match &self.split {
            Some(shares) if shares.len() > devices.len() => {
                return Err(FlagsError::TooManyShares { shares: shares.len(), devices: devices.len() });
            }
            Some(shares) if shares.iter().any(|share| *share > 0.0) => {
                let missing = devices.len() - shares.len();
                shares.iter().copied().chain(std::iter::repeat_n(0.0, missing)).collect()
            }
            // No shares, or none above zero: by what is free.
            _ => devices.iter().map(|device| free_share(snapshot, device)).collect::<Vec<f32>>(),
        };
        Ok(Assignment { places: assign(blocks, self.gpu_layers, &split), devices })
    }

    /// The device behind each buffer that a tensor can be sent to, by the buffer's name: a server counts its own devices
    /// from 0, and its address belongs to the name.
    ///
    /// # Errors
    ///
    /// A server that the cluster does not have, no node to run the engine on, or a rule that names a buffer which is not
    /// there.
    pub fn buffers(&self, snapshot: &ClusterSnapshot) -> Result<Vec<(String, DeviceRef)>, FlagsError> {
        let main = snapshot.main_node().map_err(|_| FlagsError::NoMainNode)?;
        let host = main.host().map(|host| (HOST_BUFFER.to_owned(), named(&main.id, host)));
        let local = main.devices.iter().filter(|device| !is_cpu(device));
        let local = local.map(|device| (device.id.to_string(), named(&main.id, device)));
        let mut buffers: Vec<(String, DeviceRef)> = host.into_iter().chain(local).collect();
        for address in &self.servers {
            let devices = self.devices_of(address, snapshot)?;
            let name = |number: usize| format!("RPC{number}[{address}]");
            buffers.extend(devices.into_iter().enumerate().map(|(number, device)| (name(number), device)));
        }
        let unknown = |name: &&str| !buffers.iter().any(|(known, _)| known == name);
        if let Some(name) = self.tensors.buffers().find(unknown) {
            let known: Vec<&str> = buffers.iter().map(|(name, _)| name.as_str()).collect();
            return Err(FlagsError::UnknownBuffer { name: name.to_owned(), known: known.join(", ") });
        }
        Ok(buffers)
    }

    /// The devices in the order in which `-ts` counts them: as `--device` says, else those of rpc servers first.
    fn engine_devices(&self, snapshot: &ClusterSnapshot, main: &Node) -> Result<Vec<DeviceRef>, FlagsError> {
        match &self.devices {
            Some(names) => self.devices_named("--device", names, snapshot, main),
            None => {
                let remote = self.remote_devices(snapshot)?;
                Ok(remote.into_iter().chain(local_devices(main)).collect())
            }
        }
    }

    /// The devices of a list of names, in its order; nothing for `none`.
    pub(super) fn devices_named(
        &self,
        flag: &'static str,
        names: &[String],
        snapshot: &ClusterSnapshot,
        main: &Node,
    ) -> Result<Vec<DeviceRef>, FlagsError> {
        let remote = self.remote_devices(snapshot)?;
        let local = local_devices(main);
        if names.len() == 1 && names[0] == "none" {
            return Ok(Vec::new());
        }
        let by_name = |name: &String| {
            let over_rpc = name.strip_prefix("RPC").and_then(|n| n.parse::<usize>().ok());
            let found = match over_rpc {
                Some(n) => remote.get(n).cloned(),
                None => local.iter().find(|device| device.device.as_str() == name).cloned(),
            };
            found.ok_or_else(|| {
                let remote = (0..remote.len()).map(|n| format!("RPC{n}"));
                let seen: Vec<String> = local.iter().map(|d| d.device.to_string()).chain(remote).collect();
                let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
                FlagsError::UnknownDevice { flag, name: name.clone(), seen }
            })
        };
        names.iter().map(by_name).collect()
    }

    /// Every device of every server, in the order of `--rpc`.
    fn remote_devices(&self, snapshot: &ClusterSnapshot) -> Result<Vec<DeviceRef>, FlagsError> {
        let mut devices = Vec::new();
        for address in &self.servers {
            devices.extend(self.devices_of(address, snapshot)?);
        }
        Ok(devices)
    }
}

fn local_devices(main: &Node) -> Vec<DeviceRef> {
    main.devices.iter().filter(|device| !is_cpu(device)).map(|device| named(&main.id, device)).collect()
}

fn is_cpu(device: &Device) -> bool {
    device.backend == GpuBackend::Cpu
}

pub(super) fn named(node: &NodeId, device: &Device) -> DeviceRef {
    DeviceRef { node: node.clone(), device: device.id.clone() }
}

/// What is free on a device, as the engine would weigh it; nothing where that is not known.
#[expect(clippy::cast_possible_truncation, reason = "the engine keeps shares in 32-bit floating point")]
fn free_share(snapshot: &ClusterSnapshot, device: &DeviceRef) -> f32 {
    let pool = snapshot.device(device).and_then(|(node, found)| node.pool(&found.pool));
    pool.and_then(|pool| pool.free).map_or(0.0, |free| free.as_f64() as f32)
}
