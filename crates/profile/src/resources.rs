//! What one machine brings to a cluster, as plain data.

use std::sync::OnceLock;

use plimsoll_units::{Bytes, BytesPerSec, DeviceId, NodeId, PoolId};

use crate::{Accelerator, AcceleratorKind, GpuBackend, MemoryProfile, Presence, SystemProfile};

/// What one machine brings to a cluster: memory, and what draws on it.
///
/// The machine's own memory is the pool `ram` with the device `host` on it. Where no devices are given, `vram` is one
/// device `gpu0` with a pool of its own under the same name; no video memory, no device.
///
/// ```
/// use plimsoll_profile::NodeResources;
/// use plimsoll_units::{Bytes, NodeId};
///
/// let tower = NodeResources::new(NodeId::new("tower")?, Bytes::gib(24), Bytes::gib(64))
///     .with_gpu_name("RTX 4090")
///     .with_compute_capability(8, 9);
/// assert_eq!(tower.devices()[1].id.as_str(), "gpu0");
/// assert_eq!(tower.pools()[1].total, Bytes::gib(24));
/// # Ok::<(), plimsoll_units::IdError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResources {
    /// Its name.
    pub id: NodeId,
    /// The memory of its accelerators in all.
    pub vram: Bytes,
    /// The memory of the machine itself.
    pub system_memory: Bytes,
    /// What it is called that `vram` belongs to.
    pub gpu_name: Option<String>,
    /// Which instructions that has, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Which start of the machine this is: the kernel draws a new one at every boot.
    pub boot_id: Option<String>,
    /// Where it can be reached (`10.0.0.7:7000`).
    pub address: Option<String>,
    /// Where its rpc server listens, for engines that need one.
    pub rpc: Option<String>,
    /// Whether it runs the engine.
    pub main: bool,
    own: Option<Own>,
}

/// Pools and devices that were listed one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    pools: Vec<PoolSpec>,
    devices: Vec<DeviceSpec>,
}

/// Memory that devices draw from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Its name on the node.
    pub id: PoolId,
    /// All of it.
    pub total: Bytes,
    /// What is to be kept free; `None` leaves that to the engine's margin.
    pub reserve: Option<Bytes>,
    /// The most that may be used.
    pub cap: Option<Bytes>,
    /// What is free as long as nobody has measured it; `None` where only a measurement can tell.
    pub free: Option<Bytes>,
}

impl PoolSpec {
    /// The id of a host's own memory.
    pub const RAM: &str = "ram";

    /// A pool that counts as empty until it is measured.
    pub const fn new(id: PoolId, total: Bytes) -> Self {
        Self { id, total, reserve: None, cap: None, free: Some(total) }
    }

    /// The same, of which nothing is known to be free until it is measured.
    #[must_use]
    pub fn unmeasured(mut self) -> Self {
        self.free = None;
        self
    }

    /// The same with an amount that is kept free.
    #[must_use]
    pub const fn with_reserve(mut self, reserve: Bytes) -> Self {
        self.reserve = Some(reserve);
        self
    }

    /// The same with the most that may be used.
    #[must_use]
    pub const fn with_cap(mut self, cap: Bytes) -> Self {
        self.cap = Some(cap);
        self
    }
}

/// Something that holds layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The engine's name for it.
    pub id: DeviceId,
    /// What people call it (`RTX 4090`).
    pub name: Option<String>,
    /// The memory it draws from.
    pub pool: PoolId,
    /// The most of that pool that it can use, where that is less than the pool.
    pub limit: Option<Bytes>,
    /// What drives it.
    pub backend: GpuBackend,
    /// How fast it reads its memory, where that is told.
    pub bandwidth: Option<BytesPerSec>,
    /// The driver's name for it, the same under every numbering.
    pub uuid: Option<String>,
    /// Which instructions it has, major and minor.
    pub compute_capability: Option<(u32, u32)>,
}

impl DeviceSpec {
    /// The id of the device that stands for a host's own memory.
    pub const HOST: &str = "host";

    /// A device of which only this is known.
    pub const fn new(id: DeviceId, pool: PoolId, backend: GpuBackend) -> Self {
        Self {
            id,
            name: None,
            pool,
            limit: None,
            backend,
            bandwidth: None,
            uuid: None,
            compute_capability: None,
        }
    }

    /// The same under the name that people call it.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same with the speed at which it reads its memory.
    #[must_use]
    pub const fn with_bandwidth(mut self, bandwidth: BytesPerSec) -> Self {
        self.bandwidth = Some(bandwidth);
        self
    }
}

impl NodeResources {
    /// A machine with this much memory on its accelerators and of its own; both count as free until they are measured.
    pub const fn new(id: NodeId, vram: Bytes, system_memory: Bytes) -> Self {
        Self {
            id,
            vram,
            system_memory,
            gpu_name: None,
            compute_capability: None,
            boot_id: None,
            address: None,
            rpc: None,
            main: false,
            own: None,
        }
    }

    /// The same with the instructions of its accelerator, which is then one of NVIDIA's.
    #[must_use]
    pub const fn with_compute_capability(mut self, major: u32, minor: u32) -> Self {
        self.compute_capability = Some((major, minor));
        self
    }

    /// The same with the name of its accelerator.
    #[must_use]
    pub fn with_gpu_name(mut self, name: impl Into<String>) -> Self {
        self.gpu_name = Some(name.into());
        self
    }

    /// The same with these pools and devices in place of the one that `vram` stands for. A device may also draw on the
    /// pool `ram`; whether all pools are there is checked where the machine is registered.
    ///
    /// [`NodeResources::vram`] becomes the sum of the pools, saturating.
    #[must_use]
    pub fn with_devices(
        mut self,
        pools: impl IntoIterator<Item = PoolSpec>,
        devices: impl IntoIterator<Item = DeviceSpec>,
    ) -> Self {
        let own = Own { pools: pools.into_iter().collect(), devices: devices.into_iter().collect() };
        let other = own.pools.iter().filter(|pool| pool.id.as_str() != PoolSpec::RAM);
        self.vram = Bytes::saturating_sum(other.map(|pool| pool.total));
        self.own = Some(own);
        self
    }

    /// The same with its identity: which start of which machine it is.
    #[must_use]
    pub fn with_boot_id(mut self, boot_id: impl Into<String>) -> Self {
        self.boot_id = Some(boot_id.into());
        self
    }

    /// The same with the place where it can be reached.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The same with the place where its rpc server listens.
    #[must_use]
    pub fn with_rpc(mut self, rpc: impl Into<String>) -> Self {
        self.rpc = Some(rpc.into());
        self
    }

    /// The same as the machine that runs the engine.
    #[must_use]
    pub const fn as_main(mut self) -> Self {
        self.main = true;
        self
    }

    /// Its pools, `ram` first where it has memory of its own.
    pub fn pools(&self) -> Vec<PoolSpec> {
        let own = self.own.as_ref().map(|own| own.pools.as_slice());
        let mut pools = Vec::with_capacity(1 + own.map_or(1, <[_]>::len));
        let listed = own.is_some_and(|pools| pools.iter().any(|pool| pool.id.as_str() == PoolSpec::RAM));
        if !self.system_memory.is_zero() && !listed {
            pools.push(PoolSpec::new(ram(), self.system_memory));
        }
        match own {
            Some(own) => pools.extend_from_slice(own),
            None if self.vram.is_zero() => {}
            None => pools.push(PoolSpec::new(gpu0().1, self.vram)),
        }
        pools
    }

    /// Its devices, `host` first where it has memory of its own.
    pub fn devices(&self) -> Vec<DeviceSpec> {
        let own = self.own.as_ref();
        let mut devices = Vec::with_capacity(1 + own.map_or(1, |own| own.devices.len()));
        let listed =
            own.is_some_and(|own| own.devices.iter().any(|device| device.id.as_str() == DeviceSpec::HOST));
        if !self.system_memory.is_zero() && !listed {
            devices.push(DeviceSpec::new(host(), ram(), GpuBackend::Cpu));
        }
        match own {
            Some(own) => devices.extend_from_slice(&own.devices),
            None if self.vram.is_zero() => {}
            None => devices.push(self.only_device()),
        }
        devices
    }

    fn only_device(&self) -> DeviceSpec {
        // Only NVIDIA's cards have a compute capability; any other card has a Vulkan driver.
        let backend = if self.compute_capability.is_some() { GpuBackend::Cuda } else { GpuBackend::Vulkan };
        let (id, pool) = gpu0();
        DeviceSpec {
            name: self.gpu_name.clone(),
            compute_capability: self.compute_capability,
            ..DeviceSpec::new(id, pool, backend)
        }
    }

    /// What a machine brings that was looked at. Free memory is not part of a profile, so all of it is unmeasured.
    ///
    /// Devices are the healthy accelerators whose total is known, under their engine's name for them (`CUDA0`); one on
    /// the host's memory draws on `ram`.
    pub fn of_profile(id: NodeId, profile: &SystemProfile) -> Self {
        let host = match &profile.memory {
            Presence::Found(MemoryProfile { total, .. }) => *total,
            Presence::Absent(_) => Bytes::ZERO,
        };
        let mut pools = Vec::new();
        if !host.is_zero() {
            pools.push(PoolSpec::new(ram(), host).unmeasured());
        }
        let mut devices: Vec<DeviceSpec> = Vec::new();
        for accelerator in profile.accelerators.iter().filter(|a| a.health.is_healthy()) {
            let Some(total) = accelerator.total else { continue };
            let name = engine_name(accelerator);
            if devices.iter().any(|device| device.id.as_str() == name) {
                continue;
            }
            let mut device = DeviceSpec {
                name: accelerator.name.clone(),
                bandwidth: accelerator.bandwidth.filter(|rate| !rate.is_zero()),
                uuid: accelerator.uuid.clone(),
                compute_capability: accelerator.compute_capability,
                ..DeviceSpec::new(device_id(&name), pool_id(&name), accelerator.backend)
            };
            if accelerator.kind == AcceleratorKind::Integrated && !host.is_zero() {
                device.pool = ram();
                device.limit = Some(total).filter(|limit| *limit < host);
            } else {
                pools.push(PoolSpec::new(pool_id(&name), total).unmeasured());
            }
            devices.push(device);
        }
        let first = profile.accelerators.iter().find(|a| a.health.is_healthy());
        let mut resources = Self::new(id, Bytes::ZERO, host).with_devices(pools, devices);
        resources.gpu_name = first.and_then(|a| a.name.clone());
        resources.compute_capability = first.and_then(|a| a.compute_capability);
        resources
    }
}

/// What engines call an accelerator.
fn engine_name(accelerator: &Accelerator) -> String {
    let prefix = match accelerator.backend {
        GpuBackend::Cuda => "CUDA",
        GpuBackend::Rocm => "ROCm",
        GpuBackend::Vulkan => "Vulkan",
        GpuBackend::Directml => "DirectML",
        GpuBackend::Metal => "Metal",
        GpuBackend::Npu => "NPU",
        GpuBackend::Cpu => "CPU",
    };
    format!("{prefix}{}", accelerator.ordinal)
}

/// The pool of a host's own memory. Every node has one, so the name is made once.
fn ram() -> PoolId {
    static RAM: OnceLock<PoolId> = OnceLock::new();
    RAM.get_or_init(|| pool_id(PoolSpec::RAM)).clone()
}

/// The device of a host's own memory.
fn host() -> DeviceId {
    static HOST: OnceLock<DeviceId> = OnceLock::new();
    HOST.get_or_init(|| device_id(DeviceSpec::HOST)).clone()
}

/// The device that `vram` stands for, and its pool.
fn gpu0() -> (DeviceId, PoolId) {
    static GPU0: OnceLock<(DeviceId, PoolId)> = OnceLock::new();
    GPU0.get_or_init(|| (device_id("gpu0"), pool_id("gpu0"))).clone()
}

fn pool_id(name: &str) -> PoolId {
    PoolId::new(name).expect("letters and digits are a pool id")
}

fn device_id(name: &str) -> DeviceId {
    DeviceId::new(name).expect("letters and digits are a device id")
}
