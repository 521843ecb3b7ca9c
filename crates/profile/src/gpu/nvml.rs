//! NVIDIA's management library: loaded when present, each call looked up before it is made, each answer bounded.
//!
//! It tells live memory without a context on the device, so that looking costs no memory on the card. Only the bindings'
//! types are used: a safe layer over them would allocate whatever count the library answers, and panics when it is dropped
//! and the library lacks its closing call.

#![expect(unsafe_code, reason = "calls into a foreign library")]

use std::ffi::{c_char, c_uint};
use std::sync::OnceLock;

use nvml_wrapper_sys::bindings as sys;
use plimsoll_units::Bytes;

use super::bounds::{self, MOST_DEVICES};
use crate::Absence;

/// What the library is called in messages.
const LIBRARY: &str = "libnvidia-ml";

/// Where it is looked for.
const FILE: &str = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };

/// The device cannot tell this, now or ever.
pub(super) const NOT_SUPPORTED: i32 = 3;
/// There is no such thing under this number.
const NOT_FOUND: i32 = 6;
/// The buffer is too small.
const INSUFFICIENT_SIZE: i32 = 7;
/// The library has no such function for this device, or none of this version.
const OLDER: [i32; 2] = [13, 25];

/// Slices that one device has at most; today's have seven.
const MOST_SLICES: u32 = 64;

/// Processes that are asked for at first, and then at most.
const PROCESSES: [u32; 2] = [256, 16_384];

/// The library, loaded once in a process and never unloaded.
fn library() -> Result<&'static sys::NvmlLib, Absence> {
    static LOADED: OnceLock<Option<sys::NvmlLib>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        // SAFETY: loading a library runs its constructors; this is the driver's own library, found by its own name.
        unsafe { sys::NvmlLib::new(FILE) }.ok()
    });
    loaded.as_ref().ok_or(Absence::NoLibrary { library: LIBRARY })
}

/// Zero is success.
fn answer(call: &'static str, code: c_uint) -> Result<(), Absence> {
    match i32::try_from(code).unwrap_or(i32::MAX) {
        0 => Ok(()),
        code => Err(Absence::Driver { call, code }),
    }
}

macro_rules! call {
    ($library:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match &$library.$name {
            Err(_) => Err(Absence::MissingSymbol { symbol: stringify!($name) }),
            Ok(function) => {
                // SAFETY: the signature is that of the library's header; every pointer that is passed is to a live value of
                // the type that the call writes, and every handle came from the library since it was started.
                answer(stringify!($name), unsafe { function($($arg),*) })
            }
        }
    };
}

/// The library while it is started.
pub(super) struct Session(&'static sys::NvmlLib);

/// A device or a slice, known to the session that it came from.
#[derive(Clone, Copy)]
pub(super) struct Handle<'s> {
    library: &'s sys::NvmlLib,
    device: sys::nvmlDevice_t,
}

/// Live memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: Bytes,
    /// At most the total.
    pub(super) free: Bytes,
}

impl Session {
    /// Starts the library.
    ///
    /// # Errors
    ///
    /// No library, one that cannot be ended again, or one that does not start.
    pub(super) fn start() -> Result<Self, Absence> {
        let library = library()?;
        if library.nvmlShutdown.is_err() {
            return Err(Absence::MissingSymbol { symbol: "nvmlShutdown" });
        }
        call!(library, nvmlInit_v2())?;
        Ok(Self(library))
    }

    /// How many devices there are, of which so many are looked at.
    pub(super) fn count(&self) -> Result<u32, Absence> {
        let mut count = 0;
        call!(self.0, nvmlDeviceGetCount_v2(&raw mut count))?;
        Ok(count.min(MOST_DEVICES))
    }

    /// The device of this number, in the order of the bus.
    pub(super) fn device(&self, index: u32) -> Result<Handle<'_>, Absence> {
        let mut device = std::ptr::null_mut();
        call!(self.0, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device))?;
        Ok(Handle { library: self.0, device })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A library that does not end is no trouble of ours.
        let _ended = call!(self.0, nvmlShutdown());
    }
}

impl Handle<'_> {
    pub(super) fn uuid(self) -> Result<String, Absence> {
        let mut text = Text::new();
        call!(self.library, nvmlDeviceGetUUID(self.device, text.pointer(), Text::ROOM))?;
        text.read("nvmlDeviceGetUUID")
    }

    pub(super) fn name(self) -> Result<String, Absence> {
        let mut text = Text::new();
        call!(self.library, nvmlDeviceGetName(self.device, text.pointer(), Text::ROOM))?;
        text.read("nvmlDeviceGetName")
    }

    /// Its address as the kernel writes it; not of a slice.
    pub(super) fn pci(self) -> Result<String, Absence> {
        let mut pci = sys::nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        call!(self.library, nvmlDeviceGetPciInfo_v3(self.device, &raw mut pci))?;
        bounds::pci(pci.domain, pci.bus, pci.device)
            .ok_or_else(|| Absence::garbled("nvmlDeviceGetPciInfo_v3", format!("{pci:?}")))
    }

    /// Its memory now, by the newer call, else by the older one.
    pub(super) fn memory(self) -> Result<Memory, Absence> {
        let size = u32::try_from(size_of::<sys::nvmlMemory_v2_t>()).unwrap_or(u32::MAX);
        let mut memory =
            sys::nvmlMemory_v2_t { version: size | 2 << 24, total: 0, reserved: 0, free: 0, used: 0 };
        match call!(self.library, nvmlDeviceGetMemoryInfo_v2(self.device, &raw mut memory)) {
            Ok(()) => checked("nvmlDeviceGetMemoryInfo_v2", memory.total, memory.free),
            Err(Absence::MissingSymbol { .. }) => self.memory_v1(),
            Err(Absence::Driver { code, .. }) if OLDER.contains(&code) => self.memory_v1(),
            Err(why) => Err(why),
        }
    }

    fn memory_v1(self) -> Result<Memory, Absence> {
        let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
        call!(self.library, nvmlDeviceGetMemoryInfo(self.device, &raw mut memory))?;
        checked("nvmlDeviceGetMemoryInfo", memory.total, memory.free)
    }

    /// Per cent of the time in which something ran on it lately.
    pub(super) fn busy(self) -> Result<u32, Absence> {
        let mut rates = sys::nvmlUtilization_t { gpu: 0, memory: 0 };
        call!(self.library, nvmlDeviceGetUtilizationRates(self.device, &raw mut rates))?;
        match rates.gpu {
            percent @ 0..=100 => Ok(percent),
            other => Err(Absence::garbled("nvmlDeviceGetUtilizationRates", other)),
        }
    }

    /// Its slices, when it is divided; `None` when it is not.
    pub(super) fn slices(self) -> Result<Option<Vec<Self>>, Absence> {
        let (mut now, mut later) = (0, 0);
        match call!(self.library, nvmlDeviceGetMigMode(self.device, &raw mut now, &raw mut later)) {
            Ok(()) if now == 1 => {}
            // Most devices cannot be divided, and old libraries know nothing of it.
            Ok(()) | Err(Absence::MissingSymbol { .. } | Absence::Driver { code: NOT_SUPPORTED, .. }) => {
                return Ok(None);
            }
            Err(why) => return Err(why),
        }
        let mut most = 0;
        call!(self.library, nvmlDeviceGetMaxMigDeviceCount(self.device, &raw mut most))?;
        let mut slices = Vec::new();
        for index in 0..most.min(MOST_SLICES) {
            let mut slice = std::ptr::null_mut();
            match call!(self.library, nvmlDeviceGetMigDeviceHandleByIndex(self.device, index, &raw mut slice))
            {
                Ok(()) => slices.push(Self { device: slice, ..self }),
                // The count is the most there can be, so there are gaps.
                Err(Absence::Driver { code: NOT_FOUND, .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(Some(slices))
    }

    /// How many multiprocessors a slice has.
    pub(super) fn slice_multiprocessors(self) -> Result<u32, Absence> {
        let mut told = sys::nvmlDeviceAttributes_t {
            multiprocessorCount: 0,
            sharedCopyEngineCount: 0,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: 0,
            computeInstanceSliceCount: 0,
            memorySizeMB: 0,
        };
        call!(self.library, nvmlDeviceGetAttributes_v2(self.device, &raw mut told))?;
        Ok(told.multiprocessorCount)
    }

    /// The fastest clock of its memory, in MHz.
    pub(super) fn memory_clock(self) -> Result<u32, Absence> {
        let mut megahertz = 0;
        let memory = sys::nvmlClockType_enum_NVML_CLOCK_MEM;
        call!(self.library, nvmlDeviceGetMaxClockInfo(self.device, memory, &raw mut megahertz))?;
        Ok(megahertz)
    }

    /// The width of its memory's bus, in bits.
    pub(super) fn bus_width(self) -> Result<u32, Absence> {
        let mut bits = 0;
        call!(self.library, nvmlDeviceGetMemoryBusWidth(self.device, &raw mut bits))?;
        Ok(bits)
    }

    /// Which instructions it has, major and minor.
    pub(super) fn capability(self) -> Result<(i32, i32), Absence> {
        let (mut major, mut minor) = (0, 0);
        call!(self.library, nvmlDeviceGetCudaComputeCapability(self.device, &raw mut major, &raw mut minor))?;
        Ok((major, minor))
    }

    /// The processes that hold memory on it, and how much where that is told. A process may come twice.
    pub(super) fn processes(self) -> Result<Vec<(u32, Option<Bytes>)>, Absence> {
        let mut all = Vec::new();
        for (name, graphics) in [
            ("nvmlDeviceGetComputeRunningProcesses_v3", false),
            ("nvmlDeviceGetGraphicsRunningProcesses_v3", true),
        ] {
            let listed = match self.processes_of(graphics, PROCESSES[0]) {
                Err(Absence::Driver { code: INSUFFICIENT_SIZE, .. }) => {
                    self.processes_of(graphics, PROCESSES[1])
                }
                listed => listed,
            };
            match listed {
                Ok(listed) => all.extend(listed),
                // A device without a screen lists no graphics.
                Err(_) if graphics => {}
                Err(Absence::Driver { code, .. }) => return Err(Absence::Driver { call: name, code }),
                Err(why) => return Err(why),
            }
        }
        Ok(all)
    }

    fn processes_of(self, graphics: bool, room: u32) -> Result<Vec<(u32, Option<Bytes>)>, Absence> {
        let empty =
            sys::nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        let mut listed = vec![empty; usize::try_from(room).unwrap_or(usize::MAX)];
        let mut count = room;
        let infos = listed.as_mut_ptr();
        if graphics {
            call!(
                self.library,
                nvmlDeviceGetGraphicsRunningProcesses_v3(self.device, &raw mut count, infos)
            )?;
        } else {
            call!(self.library, nvmlDeviceGetComputeRunningProcesses_v3(self.device, &raw mut count, infos))?;
        }
        // The count comes from the library; what is taken is at most what was allocated.
        listed.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        let bytes = |told: u64| Some(Bytes::new(told)).filter(|b| b.get() <= bounds::MOST_BYTES);
        Ok(listed.iter().map(|info| (info.pid, bytes(info.usedGpuMemory))).collect())
    }
}

/// Memory that can be.
fn checked(call: &'static str, total: u64, free: u64) -> Result<Memory, Absence> {
    let total = bounds::memory(total).ok_or_else(|| Absence::garbled(call, total))?;
    match Bytes::new(free) {
        free if free <= total => Ok(Memory { total, free }),
        _ => Err(Absence::garbled(call, format_args!("{free} free of {}", total.get()))),
    }
}

/// A buffer for text, whose last byte stays zero whatever is written.
struct Text([u8; 128]);

impl Text {
    const ROOM: c_uint = 127;

    const fn new() -> Self {
        Self([0; 128])
    }

    const fn pointer(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    /// The text; an empty one is none.
    fn read(&self, call: &'static str) -> Result<String, Absence> {
        let bytes: Vec<u8> = self.0.iter().copied().take_while(|b| *b != 0).collect();
        bounds::text(&bytes).ok_or_else(|| Absence::garbled(call, ""))
    }
}
