//! The register that says which state the operating system keeps.

#[cfg(target_arch = "x86")]
use core::arch::x86::_xgetbv;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::_xgetbv;

/// Extended control register 0; nothing where the processor's OSXSAVE flag is not set, for then it cannot be read.
#[expect(unsafe_code, reason = "one instruction for which the standard library has no safe form")]
pub(crate) fn read(osxsave: bool) -> u64 {
    #[target_feature(enable = "xsave")]
    fn xgetbv() -> u64 {
        // SAFETY: register 0 exists wherever OSXSAVE is set, and this is called only there.
        unsafe { _xgetbv(0) }
    }
    if !osxsave {
        return 0;
    }
    // SAFETY: OSXSAVE is set, so the processor has the xsave instructions and the system has enabled them.
    unsafe { xgetbv() }
}
