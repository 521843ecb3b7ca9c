//! Captured and constructed machines, each with the profile that it must give. Their drivers are not looked at here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/bundle.rs"]
mod bundle;
#[path = "support/shown.rs"]
mod shown;

use std::time::Duration;

use expect_test::{Expect, expect};
use plimsoll_profile::{AcceleratorKind, GpuBackend, ProbeMode, SystemProfile, read_metrics_of};
use plimsoll_units::Bytes;

/// Whether recorded registers are looked at.
const REGISTERS: bool = cfg!(all(feature = "cpu", target_arch = "x86_64"));

/// What a fast look says of a machine, in lines.
fn check(name: &str, text: &str, expected: Expect) -> SystemProfile {
    let root = bundle::laid_out(name, text);
    let machine = bundle::machine(&root, text);
    let profile = SystemProfile::detect_with(&machine, ProbeMode::Fast);
    #[expect(clippy::disallowed_methods, reason = "the caller owns the clock")]
    let now = std::time::Instant::now();
    let metrics = read_metrics_of(&machine, &profile, now);
    assert_eq!(metrics.free(now, Duration::ZERO).host, metrics.host.as_result().ok().copied());
    let has_registers = text.contains("--- cpuid");
    expected.assert_eq(&shown::machine(&profile, &metrics, has_registers && REGISTERS));
    profile
}

#[test]
fn a_laptop_without_a_card() {
    let profile = check("laptop", include_str!("fixtures/laptop.txt"), expect![[r#""#]]);
    // What shares the host's memory and tells none of its own is there and is not planned with.
    assert_eq!(profile.accelerators[0].kind, AcceleratorKind::Integrated);
}

#[test]
fn a_desktop_with_two_kinds_of_cores() {
    check("hybrid-desktop", include_str!("fixtures/hybrid-desktop.txt"), expect![[r#""#]]);
}

#[test]
fn a_server_with_two_sockets() {
    check("dual-socket", include_str!("fixtures/dual-socket.txt"), expect![[r#""#]]);
}

#[test]
fn a_container_with_a_quota_and_its_parents_limit() {
    check("container", include_str!("fixtures/container.txt"), expect![[r#""#]]);
}

#[test]
fn a_container_under_the_first_generation_of_control_groups() {
    check("cgroup-v1", include_str!("fixtures/cgroup-v1.txt"), expect![[r#""#]]);
}

#[test]
fn a_processor_with_an_accelerator_and_memory_for_it_alone() {
    let profile = check("amd-apu", include_str!("fixtures/amd-apu.txt"), expect![[r#""#]]);
    let apu = &profile.accelerators[0];
    // It may map more than the system has: then it is what the system has. And nothing counts twice.
    let system = Bytes::gib(120);
    assert_eq!(apu.layout.host_share, Some(system));
    assert_eq!(apu.total.unwrap().checked_add(system), Some(Bytes::gib(128)));
    assert_eq!(apu.backend, GpuBackend::Rocm);
}

#[test]
fn cards_are_numbered_by_their_places_and_one_that_is_broken_hides_no_other() {
    check("amd-cards", include_str!("fixtures/amd-cards.txt"), expect![[r#""#]]);
}

#[test]
fn a_board_with_one_memory() {
    check("unified-board", include_str!("fixtures/unified-board.txt"), expect![[r#""#]]);
}

#[test]
fn a_server_whose_card_is_divided() {
    check("mig-server", include_str!("fixtures/mig-server.txt"), expect![[r#""#]]);
}

#[test]
fn a_small_server_with_both_generations_of_control_groups() {
    check("hybrid-server", include_str!("fixtures/hybrid-server.txt"), expect![[r#""#]]);
}
