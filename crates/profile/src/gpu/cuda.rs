//! NVIDIA's driver library: loaded when present, each call looked up before it is made, each answer a plain number.
//!
//! Answers are C ints and not the bindings' enumeration: a driver may answer with a code that the bindings do not know,
//! and such a value must never become a Rust enum.

#![expect(unsafe_code, reason = "calls into a foreign library")]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
pub(super) use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::Absence;

/// What the library is called in messages.
const LIBRARY: &str = "libcuda";

/// The library, if it is there. Asked once in a process: loading runs the library's own start-up code.
fn library_is_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| {
        // SAFETY: loading a library runs its constructors; this is the driver's own library, found by its own names.
        unsafe { sys::is_culib_present() }
    })
}

macro_rules! calls {
    ($(#[$doc:meta])* $table:ident { $($name:ident: fn($($arg:ty),*)),* $(,)? }) => {
        $(#[$doc])*
        #[expect(non_snake_case, reason = "calls keep the driver's names")]
        #[derive(Debug)]
        pub(super) struct $table {
            $($name: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl $table {
            /// Looks up every call.
            ///
            /// # Errors
            ///
            /// No library, or one that lacks a call.
            pub(super) fn load() -> Result<Self, Absence> {
                if !library_is_present() {
                    return Err(Absence::NoLibrary { library: LIBRARY });
                }
                // SAFETY: this panics when the library is absent, and it is present.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the signature follows the driver's header: every handle by value is a C int or a
                        // pointer, every answer a C int.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> c_int>(symbol) };
                        *found.map_err(|_| Absence::MissingSymbol { symbol: stringify!($name) })?
                    },)*
                })
            }
        }
    };
}

calls! {
    /// What tells devices apart. None of these touches a device's memory.
    Listing {
        cuInit: fn(c_uint),
        cuDeviceGetCount: fn(*mut c_int),
        cuDeviceGet: fn(*mut c_int, c_int),
        cuDeviceGetName: fn(*mut c_char, c_int, c_int),
        cuDeviceTotalMem_v2: fn(*mut usize, c_int),
        cuDeviceGetAttribute: fn(*mut c_int, c_int, c_int),
        cuDeviceGetUuid_v2: fn(*mut [u8; 16], c_int),
    }
}

calls! {
    /// What tells free memory. These make a context on the device.
    Metering {
        cuDevicePrimaryCtxRetain: fn(*mut *mut c_void, c_int),
        cuDevicePrimaryCtxRelease_v2: fn(c_int),
        cuCtxPushCurrent_v2: fn(*mut c_void),
        cuCtxPopCurrent_v2: fn(*mut *mut c_void),
        cuMemGetInfo_v2: fn(*mut usize, *mut usize),
    }
}

calls! {
    /// What tells how fast a device's memory is. These make a context and take memory on the device.
    Copying {
        cuDevicePrimaryCtxRetain: fn(*mut *mut c_void, c_int),
        cuDevicePrimaryCtxRelease_v2: fn(c_int),
        cuCtxPushCurrent_v2: fn(*mut c_void),
        cuCtxPopCurrent_v2: fn(*mut *mut c_void),
        cuMemGetInfo_v2: fn(*mut usize, *mut usize),
        cuMemAlloc_v2: fn(*mut u64, usize),
        cuMemFree_v2: fn(u64),
        cuMemsetD8_v2: fn(u64, c_uchar, usize),
        cuMemcpyDtoD_v2: fn(u64, u64, usize),
        cuCtxSynchronize: fn(),
    }
}

/// A piece of a device's memory, made of two halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    calls: &'a Copying,
    begin: u64,
    half: usize,
}

/// Zero is success.
fn answer(call: &'static str, code: c_int) -> Result<(), Absence> {
    if code == 0 { Ok(()) } else { Err(Absence::Driver { call, code }) }
}

impl Listing {
    /// Starts the driver; must come before any other call.
    pub(super) fn init(&self) -> Result<(), Absence> {
        // SAFETY: flags must be 0.
        answer("cuInit", unsafe { (self.cuInit)(0) })
    }

    pub(super) fn count(&self) -> Result<c_int, Absence> {
        let mut count = 0;
        // SAFETY: one C int is written.
        answer("cuDeviceGetCount", unsafe { (self.cuDeviceGetCount)(&raw mut count) })?;
        Ok(count)
    }

    /// The handle of the device of this number.
    pub(super) fn device(&self, ordinal: c_int) -> Result<c_int, Absence> {
        let mut device = 0;
        // SAFETY: one C int is written.
        answer("cuDeviceGet", unsafe { (self.cuDeviceGet)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    pub(super) fn name(&self, device: c_int) -> Result<Vec<u8>, Absence> {
        let mut name = [0_u8; 256];
        // One byte stays zero whatever is written.
        let room: c_int = 255;
        // SAFETY: at most `room` bytes are written, and the buffer has more.
        answer("cuDeviceGetName", unsafe {
            (self.cuDeviceGetName)(name.as_mut_ptr().cast::<c_char>(), room, device)
        })?;
        Ok(name.iter().copied().take_while(|b| *b != 0).collect())
    }

    pub(super) fn total(&self, device: c_int) -> Result<usize, Absence> {
        let mut total = 0;
        // SAFETY: one size_t is written.
        answer("cuDeviceTotalMem_v2", unsafe { (self.cuDeviceTotalMem_v2)(&raw mut total, device) })?;
        Ok(total)
    }

    pub(super) fn attribute(&self, attribute: Attribute, device: c_int) -> Result<c_int, Absence> {
        let mut value = 0;
        // SAFETY: one C int is written; an attribute that the driver does not know is answered with a failure.
        answer("cuDeviceGetAttribute", unsafe {
            (self.cuDeviceGetAttribute)(&raw mut value, attribute as c_int, device)
        })?;
        Ok(value)
    }

    pub(super) fn uuid(&self, device: c_int) -> Result<[u8; 16], Absence> {
        let mut uuid = [0; 16];
        // SAFETY: sixteen bytes are written.
        answer("cuDeviceGetUuid_v2", unsafe { (self.cuDeviceGetUuid_v2)(&raw mut uuid, device) })?;
        Ok(uuid)
    }
}

impl Metering {
    /// Free and total bytes of a device, seen from its primary context, which is given back.
    pub(super) fn memory(&self, device: c_int) -> Result<(usize, usize), Absence> {
        let mut context = std::ptr::null_mut();
        // SAFETY: one pointer is written; the driver has been started and the handle came from it.
        answer("cuDevicePrimaryCtxRetain", unsafe {
            (self.cuDevicePrimaryCtxRetain)(&raw mut context, device)
        })?;
        let read = self.memory_in(context);
        // SAFETY: the context was retained above and is no longer current.
        let released =
            answer("cuDevicePrimaryCtxRelease_v2", unsafe { (self.cuDevicePrimaryCtxRelease_v2)(device) });
        let read = read?;
        released.map(|()| read)
    }

    fn memory_in(&self, context: *mut c_void) -> Result<(usize, usize), Absence> {
        // SAFETY: the context is alive until the caller gives it back.
        answer("cuCtxPushCurrent_v2", unsafe { (self.cuCtxPushCurrent_v2)(context) })?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: two size_t are written; a context is current.
        let read =
            answer("cuMemGetInfo_v2", unsafe { (self.cuMemGetInfo_v2)(&raw mut free, &raw mut total) });
        let mut popped = std::ptr::null_mut();
        // SAFETY: one pointer is written; the context was pushed above.
        let pop = answer("cuCtxPopCurrent_v2", unsafe { (self.cuCtxPopCurrent_v2)(&raw mut popped) });
        read?;
        pop.map(|()| (free, total))
    }
}

impl Copying {
    /// Lets `work` copy within a piece of a device's memory, of as many bytes as `size` makes of what is free. The piece and
    /// the context are given back whatever happens.
    pub(super) fn with_piece<T>(
        &self,
        device: c_int,
        size: impl FnOnce(usize) -> Result<usize, Absence>,
        work: impl FnOnce(&Piece<'_>) -> Result<T, Absence>,
    ) -> Result<T, Absence> {
        let mut context = std::ptr::null_mut();
        // SAFETY: one pointer is written; the driver has been started and the handle came from it.
        answer("cuDevicePrimaryCtxRetain", unsafe {
            (self.cuDevicePrimaryCtxRetain)(&raw mut context, device)
        })?;
        let done = self.in_context(context, size, work);
        // SAFETY: the context was retained above and is no longer current.
        let released =
            answer("cuDevicePrimaryCtxRelease_v2", unsafe { (self.cuDevicePrimaryCtxRelease_v2)(device) });
        let done = done?;
        released.map(|()| done)
    }

    fn in_context<T>(
        &self,
        context: *mut c_void,
        size: impl FnOnce(usize) -> Result<usize, Absence>,
        work: impl FnOnce(&Piece<'_>) -> Result<T, Absence>,
    ) -> Result<T, Absence> {
        // SAFETY: the context is alive until the caller gives it back.
        answer("cuCtxPushCurrent_v2", unsafe { (self.cuCtxPushCurrent_v2)(context) })?;
        let done = self.in_memory(size, work);
        let mut popped = std::ptr::null_mut();
        // SAFETY: one pointer is written; the context was pushed above.
        let pop = answer("cuCtxPopCurrent_v2", unsafe { (self.cuCtxPopCurrent_v2)(&raw mut popped) });
        let done = done?;
        pop.map(|()| done)
    }

    /// A context is current.
    fn in_memory<T>(
        &self,
        size: impl FnOnce(usize) -> Result<usize, Absence>,
        work: impl FnOnce(&Piece<'_>) -> Result<T, Absence>,
    ) -> Result<T, Absence> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two size_t are written; a context is current.
        answer("cuMemGetInfo_v2", unsafe { (self.cuMemGetInfo_v2)(&raw mut free, &raw mut total) })?;
        if free > total {
            return Err(Absence::garbled("cuMemGetInfo_v2", free));
        }
        let half = size(free)? / 2;
        let whole = half * 2;
        let mut begin = 0;
        // SAFETY: one device pointer is written; a context is current.
        answer("cuMemAlloc_v2", unsafe { (self.cuMemAlloc_v2)(&raw mut begin, whole) })?;
        // Not zeros: a device may keep those apart from what holds something.
        // SAFETY: the device writes to itself, within what was allocated.
        let filled = answer("cuMemsetD8_v2", unsafe { (self.cuMemsetD8_v2)(begin, 0x5a, whole) });
        let piece = Piece { calls: self, begin, half };
        let done = filled.and_then(|()| piece.wait()).and_then(|()| work(&piece));
        // SAFETY: allocated above, once; the call waits for what still uses it.
        let freed = answer("cuMemFree_v2", unsafe { (self.cuMemFree_v2)(begin) });
        let done = done?;
        freed.map(|()| done)
    }
}

impl Piece<'_> {
    /// How much one copy reads, and as much it writes.
    pub(super) fn half(&self) -> usize {
        self.half
    }

    /// Copies one half to the other. The copy may still be going when this returns.
    pub(super) fn copy(&self) -> Result<(), Absence> {
        let to = self.begin.saturating_add(u64::try_from(self.half).unwrap_or(0));
        // SAFETY: both halves lie in what was allocated and do not overlap; the context is current on this thread.
        answer("cuMemcpyDtoD_v2", unsafe { (self.calls.cuMemcpyDtoD_v2)(to, self.begin, self.half) })
    }

    /// Waits for all copies.
    pub(super) fn wait(&self) -> Result<(), Absence> {
        // SAFETY: a context is current on this thread.
        answer("cuCtxSynchronize", unsafe { (self.calls.cuCtxSynchronize)() })
    }
}
