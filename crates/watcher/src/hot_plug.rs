//! News of devices that come and go, from the kernel.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub(crate) use linux::HotPlug;

/// Listens to nothing: here no kernel tells.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct HotPlug;

#[cfg(not(target_os = "linux"))]
impl HotPlug {
    pub(crate) fn listen(_news: impl Fn() + Send + 'static) -> Self {
        Self
    }
}
