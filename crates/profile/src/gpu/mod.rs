//! Accelerators: which driver is asked, and the door when none is compiled in.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod nvidia;

#[cfg(not(feature = "cuda"))]
mod nvidia {
    //! The door without the feature.

    use plimsoll_units::Bytes;

    use crate::{Absence, Accelerator};

    pub(super) fn accelerators() -> Result<Vec<Accelerator>, Absence> {
        Err(Absence::NotCompiled { feature: "cuda" })
    }

    pub(super) fn free(_accelerator: &Accelerator) -> Result<Bytes, Absence> {
        Err(Absence::NotCompiled { feature: "cuda" })
    }
}

use plimsoll_units::Bytes;

use crate::{Absence, Accelerator, GpuBackend, Health, Presence};

/// What NVIDIA's driver sees, in its order; unhealthy devices are listed as such. Loads the driver's library.
pub(crate) fn accelerators() -> Presence<Vec<Accelerator>> {
    nvidia::accelerators().into()
}

/// What is free on an accelerator now.
///
/// NVIDIA's driver answers this only inside a context, which itself takes memory on the card (some hundred MB) for the
/// time of the call; what is told is what is free beside it. So this is asked on request only.
pub fn read_free(accelerator: &Accelerator) -> Presence<Bytes> {
    if let Health::Unhealthy(why) = &accelerator.health {
        return Presence::Absent(why.clone());
    }
    match accelerator.backend {
        GpuBackend::Cuda => nvidia::free(accelerator).into(),
        _ => Presence::Absent(Absence::NotHere),
    }
}
