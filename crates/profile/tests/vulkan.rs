//! The real Vulkan path, on whatever drivers this machine has: Debian's software driver is enough.

use plimsoll_profile::{Absence, GpuBackend, Presence, Probe, SystemProfile};

#[test]
fn software_drivers_are_no_accelerators() {
    let profile = SystemProfile::detect();
    match profile.source(Probe::Vulkan) {
        // A loader with no driver at all has nothing to make an instance with.
        Some(Presence::Absent(why @ (Absence::NoLibrary { .. } | Absence::Driver { .. }))) => {
            let in_ci = std::env::var("PLIMSOLL_TEST_VULKAN").is_ok_and(|value| !value.is_empty());
            assert!(!in_ci, "{why}");
            eprintln!("skipped: {why}; packages libvulkan1 and mesa-vulkan-drivers bring a software driver");
        }
        // It was there and is left out.
        Some(Presence::Absent(why)) => assert_eq!(why, &Absence::NoDevice),
        Some(Presence::Found(count)) => {
            let cards = profile.accelerators.iter().filter(|a| a.backend == GpuBackend::Vulkan);
            assert!(cards.count() <= *count);
        }
        None => panic!("the probe took no part"),
    }
}
