//! Vulkan's loader: what its drivers say of devices.

#![expect(unsafe_code, reason = "calls into a foreign library")]

use std::ffi::CStr;
use std::sync::OnceLock;

use ash::vk;

use crate::Absence;

/// What the loader is called in messages.
const LIBRARY: &str = "libvulkan";

/// A device in its driver's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) name: Vec<u8>,
    /// Who made it, by the bus's number.
    pub(super) vendor: u32,
    /// What it is, by Vulkan's number.
    pub(super) kind: i32,
    /// The driver's name for it; zeros where it has none.
    pub(super) uuid: [u8; 16],
    /// Domain, bus and slot.
    pub(super) place: Option<(u32, u32, u32)>,
    pub(super) heaps: Vec<Heap>,
}

/// A piece of memory that a device can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    pub(super) size: u64,
    /// Whether it is the device's own.
    pub(super) is_local: bool,
    /// How much a process may use of it now, and how much this one does.
    pub(super) budget: Option<(u64, u64)>,
}

/// The loader, loaded once in a process and never unloaded.
fn entry() -> Result<&'static ash::Entry, Absence> {
    static LOADED: OnceLock<Option<ash::Entry>> = OnceLock::new();
    // SAFETY: loading a library runs its constructors; this is Vulkan's own loader, found by its own name.
    let loaded = LOADED.get_or_init(|| unsafe { ash::Entry::load() }.ok());
    loaded.as_ref().ok_or(Absence::NoLibrary { library: LIBRARY })
}

/// An instance that ends with its owner.
struct Instance(ash::Instance);

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: nothing made from it is left: devices are handles that need no ending.
        unsafe { self.0.destroy_instance(None) };
    }
}

/// Every device of every driver.
pub(super) fn devices() -> Result<Vec<Told>, Absence> {
    let entry = entry()?;
    let failed = |call: &'static str| move |code: vk::Result| Absence::Driver { call, code: code.as_raw() };
    // SAFETY: asks the loader for a number.
    let version =
        unsafe { entry.try_enumerate_instance_version() }.unwrap_or(None).unwrap_or(vk::API_VERSION_1_0);
    let application = vk::ApplicationInfo::default().api_version(version.min(vk::API_VERSION_1_1));
    let wanted = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: what is passed lives until the call returns.
    let instance = unsafe { entry.create_instance(&wanted, None) }.map_err(failed("vkCreateInstance"))?;
    let instance = Instance(instance);
    // SAFETY: the instance is alive.
    let handles = unsafe { instance.0.enumerate_physical_devices() };
    let handles = handles.map_err(failed("vkEnumeratePhysicalDevices"))?;
    Ok(handles.into_iter().take(256).map(|device| told(&instance.0, device, version)).collect())
}

fn told(instance: &ash::Instance, device: vk::PhysicalDevice, version: u32) -> Told {
    // SAFETY: the handle came from this instance, which is alive.
    let plain = unsafe { instance.get_physical_device_properties(device) };
    let mut told = Told {
        name: text(&plain.device_name),
        vendor: plain.vendor_id,
        kind: plain.device_type.as_raw(),
        ..Told::default()
    };
    // The calls that take more exist from version 1.1 on, of the loader and of the device.
    if version.min(plain.api_version) < vk::API_VERSION_1_1 {
        // SAFETY: as above.
        told.heaps = heaps(&unsafe { instance.get_physical_device_memory_properties(device) }, None);
        return told;
    }
    // SAFETY: as above.
    let extensions = unsafe { instance.enumerate_device_extension_properties(device) }.unwrap_or_default();
    let has = |name: &CStr| extensions.iter().any(|e| text(&e.extension_name) == name.to_bytes());
    let (mut ids, mut place) =
        (vk::PhysicalDeviceIDProperties::default(), vk::PhysicalDevicePCIBusInfoPropertiesEXT::default());
    let has_place = has(ash::ext::pci_bus_info::NAME);
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
    if has_place {
        properties = properties.push_next(&mut place);
    }
    // SAFETY: as above; each structure that is chained is one that the device knows.
    unsafe { instance.get_physical_device_properties2(device, &mut properties) };
    told.uuid = ids.device_uuid;
    told.place = has_place.then_some((place.pci_domain, place.pci_bus, place.pci_device));
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let has_budget = has(ash::ext::memory_budget::NAME);
    let mut memory = vk::PhysicalDeviceMemoryProperties2::default();
    if has_budget {
        memory = memory.push_next(&mut budget);
    }
    // SAFETY: as above.
    unsafe { instance.get_physical_device_memory_properties2(device, &mut memory) };
    let properties = memory.memory_properties;
    told.heaps = heaps(&properties, has_budget.then_some(&budget));
    told
}

fn heaps(
    memory: &vk::PhysicalDeviceMemoryProperties,
    budget: Option<&vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>,
) -> Vec<Heap> {
    // The count comes from the driver; the array has so many as it has.
    let count = usize::try_from(memory.memory_heap_count).unwrap_or(usize::MAX);
    let heap = |(index, heap): (usize, &vk::MemoryHeap)| Heap {
        size: heap.size,
        is_local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
        budget: budget.map(|budget| (budget.heap_budget[index], budget.heap_usage[index])),
    };
    memory.memory_heaps.iter().take(count).enumerate().map(heap).collect()
}

/// The bytes before the first zero.
fn text(characters: &[std::ffi::c_char]) -> Vec<u8> {
    characters.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect()
}
